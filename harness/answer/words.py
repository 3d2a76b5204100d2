"""Verdicts in plain words: the sentence with both percentages, and the paragraph of evidence behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from harness.answer.costs import Amount
from harness.answer.decide import CEILING_RATIO, Decision, Evidence, Gain
from harness.answer.evidence import Ceiling, Mode
from harness.answer.group import Group, median_of
from harness.answer.pipes import is_pipe
from harness.answer.predict import Prediction, of_bound
from harness.answer.profiler import counters_text
from harness.answer.result import Attribution
from harness.chips import Rate

if TYPE_CHECKING:
    from harness.answer.verdict import Shares

# From this fraction of a bound on, the pipe that sets it is what binds.
PIPE_RATIO = 0.9
_ACCUMULATE = {"f32": "fp32-accumulate", "f16": "fp16-accumulate", "s32": "int32-accumulate"}


def sentence(
    decision: Decision, evidence: Evidence, mode: Mode, ceiling: Ceiling | None, shares: Shares
) -> str:
    """The verdict in one or two sentences."""
    return f"{_claim(decision, evidence)}: {peaks_text(mode, evidence.ratio, ceiling, shares)}"


def _claim(decision: Decision, evidence: Evidence) -> str:
    if decision.word == "at-ceiling":
        limited = ", power-limited (the clock gave way: seconds are bound by power, cycles by the MMA)"
        return "at ceiling" + (limited if decision.power_limited else "")
    if decision.word == "part-bound":
        return "part-bound, by " + ", then ".join(_together(names) for names in decision.named)
    if decision.word == "latency-bound":
        return "latency-bound (" + "; ".join(_why_latency(decision, evidence)) + ")"
    return "unclear (" + _why_unclear(decision, evidence) + ")"


def _why_latency(decision: Decision, evidence: Evidence) -> list[str]:
    why = ["no part reaches 5 %"] if evidence.exposed else []
    why += [gain_text(gain) for gain in decision.gains[:2]]
    if decision.low_floor and evidence.exposed:
        why.append("with everything stripped that can be it still stays under its ceiling")
    elif decision.low_floor:
        why.append("the study strips nothing from it, and it stays under its ceiling")
    return why


def _why_unclear(decision: Decision, evidence: Evidence) -> str:
    reasons = []
    if decision.doubtful:
        reasons.append(f"{', '.join(decision.doubtful)} may matter, but not clear of noise and side effects")
    elif evidence.exposed:
        reasons.append("none of the removed parts matters here")
    if evidence.unmeasured:
        reasons.append(f"not measured: {', '.join(evidence.unmeasured)}")
    if evidence.ratio is None:
        reasons.append("no ceiling is known for this GPU and path")
    elif evidence.ratio.high >= CEILING_RATIO and not decision.doubtful:
        reasons.append("near the ceiling, within noise")
    return "; ".join(reasons) or "nothing measured tells latency from overlap"


def _together(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    return f"{', '.join(names[:-1])} and {names[-1]} (not separable)"


def gain_text(gain: Gain) -> str:
    """What a gain is: "more warps per SM (16, full has 8) saves 12 %"."""
    verb = "saves" if gain.fraction.value >= 0 else "costs"
    return f"more {gain.what} {verb} {100 * abs(gain.fraction.value):.0f} %"


def peak_words(rate: Rate) -> str:
    """A peak for a sentence: "mma.sync fp32-accumulate"."""
    return f"{rate.path} {_ACCUMULATE.get(rate.acc, rate.acc)}"


def peaks_text(mode: Mode, ratio: Amount | None, ceiling: Ceiling | None, shares: Shares) -> str:
    """Both percentages, each with its peak."""
    if is_pipe(mode[0]):
        return _pipe_text(mode[0], ratio, ceiling)
    path = f"{mode[0]} {_ACCUMULATE.get(mode[2], mode[2])}"
    if ceiling is None or ratio is None:
        rate = f"{shares.flop_clk_sm:.0f} FLOP/clk/SM" if shares.flop_clk_sm else "its rate is unknown"
        return f"{rate}; the {path} peak of this GPU is unknown."
    kind = "measured here" if ceiling.case else "table"
    text = (
        f"{100 * ratio.value:.0f} % of the {path} peak of this GPU ({ceiling.value:.0f} FLOP/clk/SM, {kind})"
    )
    return f"{text}; {other_peak_text(shares)}."


def _pipe_text(name: str, ratio: Amount | None, ceiling: Ceiling | None) -> str:
    """The share of a pipe's own rate, for a loop that does nothing else than fill it."""
    if ceiling is None or ratio is None:
        return f"the rate of the {name} pipe is unknown on this GPU."
    kind = "measured here" if ceiling.case else "table"
    return f"{100 * ratio.value:.0f} % of the {name} pipe ({ceiling.value:.0f} per clock and SM, {kind})."


def other_peak_text(shares: Shares) -> str:
    """What the figure is of the other peak, and what a profiler then shows."""
    own, chip, other = shares.own, shares.chip, shares.other
    if own is None or chip is None:
        return "its other peaks are unknown"
    percent = shares.percent(chip)
    if chip.path != own.path:
        return (
            f"that is {percent:.0f} % of its {chip.path} peak, which no {own.path} kernel can reach: "
            f"{own.path} ends at {100 * own.flop_clk_sm / chip.flop_clk_sm:.0f} % of it"
        )
    if chip.flop_clk_sm > own.flop_clk_sm * 1.001:
        return (
            f"that is {percent:.0f} % of its {_ACCUMULATE.get(chip.acc, chip.acc)} peak, "
            f"so a profiler percentage near {percent:.0f} % is expected (ask: of which peak?)"
        )
    if other is not None and other.flop_clk_sm < own.flop_clk_sm * 0.999:
        return (
            f"that is {shares.percent(other):.0f} % of its {_ACCUMULATE.get(other.acc, other.acc)} peak, "
            f"the lower one"
        )
    return "no peak of this GPU is higher for this input: both accumulators run at the same rate"


def evidence_text(
    evidence: Evidence,
    attribution: Attribution | None,
    prediction: Prediction | None,
    light_hz: float | None,
    group: Group,
    *,
    own_rates: bool = False,
) -> str:
    """The evidence in one paragraph; `own_rates`: the bound is at rates of pipes measured on this GPU."""
    parts = []
    if evidence.ratio is not None:
        parts.append(f"Full runs at {_interval(evidence.ratio)} of its path's ceiling.")
    if attribution is not None and evidence.exposed:
        parts.append(_costs_text(evidence))
    if evidence.unmeasured:
        parts.append(f"Not measured: {', '.join(evidence.unmeasured)}.")
    if attribution is not None and attribution.total is not None and evidence.floor_ratio is not None:
        parts.append(_floor_text(attribution, evidence.floor_ratio))
    if evidence.gains:
        best = max(evidence.gains, key=lambda gain: (gain.fraction.value, gain.what, gain.case))
        word = "" if best.fraction.clear else ", within noise"
        parts.append(f"More parallelism: {gain_text(best)} at best{word}.")
    measured = median_of(group.full_record, "flop_clk_sm")
    if prediction is not None and measured:
        parts.append(bound_text(measured, prediction, own_rates=own_rates))
    if counters := counters_text(group):
        parts.append(counters)
    parts += _clock_text(group, evidence, light_hz)
    if attribution is not None:
        sampled = "builds of perturbed text" if attribution.builds_sampled else "one build a case"
        caution = "" if attribution.builds_sampled else ", so code generation was not sampled"
        parts.append(f"{attribution.rounds} interleaved rounds, {sampled}{caution}.")
    if group.partial:
        parts.append(f"The run is not whole ({group.partial}).")
    return " ".join(parts)


def bound_text(measured: float, prediction: Prediction, *, own_rates: bool = False) -> str:
    """A measurement against the bound of its machine code, and what that says."""
    ratio, beaten = of_bound(measured, prediction)
    pipe = {"shared_bytes": "shared-memory"}.get(prediction.binding, prediction.binding)
    bound = f"{prediction.flop_clk_sm:.0f} {prediction.unit}/clk/SM, set by the {pipe} pipe"
    # The tables' bounds are at published rates, the highest there are: a little above.
    bound += " at the rates measured here" if own_rates else ""
    if beaten:
        over = 100 * ratio - 100
        return f"ERROR OF THE SUITE: it beats the bound of its machine code ({bound}) by {over:.1f} %."
    reaches = f"It reaches {100 * ratio:.0f} % of the bound of its machine code ({bound})"
    if ratio >= PIPE_RATIO:
        return f"{reaches}: that pipe is near full."
    return f"{reaches}: no pipe is full, so latency or overlap is the reason."


def _costs_text(evidence: Evidence) -> str:
    ordered = sorted(evidence.exposed, key=lambda e: (-e.fraction.value, e.name))
    told = []
    for row in ordered:
        word = "" if row.fraction.clear else " (within noise)"
        word = word if row.booked else " (and changes spills or residency)"
        told.append(f"{row.name} {_interval(row.fraction)}{word}")
    return "Removed from full, one at a time, these save of its cycles: " + "; ".join(told) + "."


def _floor_text(attribution: Attribution, ratio: Amount) -> str:
    assert attribution.total is not None
    depth = ", ".join(f"{part} {level}" for part, level in attribution.depth.items())
    saved = _interval(attribution.total.scaled(1 / attribution.full))
    return f"The fastest deep strip ({depth}) saves {saved}; it runs at {_interval(ratio)} of the ceiling."


def _clock_text(group: Group, evidence: Evidence, light_hz: float | None) -> list[str]:
    hz = median_of(group.full_record, "sm_hz")
    if not hz or not light_hz or evidence.clock is None:
        return []
    return [f"The SM clock ran at {hz / 1e6:.0f} MHz, {100 * evidence.clock:.0f} % of a light kernel's."]


def _interval(amount: Amount) -> str:
    low, high = 100 * amount.low, 100 * amount.high
    ends = f" [{low:.1f}, {high:.1f}]" if abs(high) < 1e6 else " [unknown]"
    return f"{100 * amount.value:.1f} %{ends}"
