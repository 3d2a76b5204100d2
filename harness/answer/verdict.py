"""Verdicts: per GPU, study and axes one word, in a sentence with both percentages, and its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.answer.attribute import attribute
from harness.answer.costs import Amount
from harness.answer.counts import counts_of_record
from harness.answer.decide import Decision, Evidence, decide
from harness.answer.evidence import (
    Ceiling,
    Mode,
    ceiling_of,
    ceilings,
    evidence_of,
    light_clocks,
    mode_of,
    pipe_rates,
)
from harness.answer.group import Group, latest_groups, median_of
from harness.answer.lattice import shape_of
from harness.answer.pipes import is_pipe
from harness.answer.predict import Prediction, other_peak, predict, predicted_row
from harness.answer.profiler import counters_json
from harness.answer.result import Attribution
from harness.answer.words import evidence_text, sentence
from harness.chips import Rate, chip_peak, peak
from harness.model import Study, Values
from harness.stats import Rule
from harness.store import RecordFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Throughput of full, and percentages of the peaks it may be held against; None where unknown.

    `own` is the peak of its path, input and accumulator; `chip` the highest of the GPU for that input;
    `other` that of the same path with the other accumulator.
    """

    flop_clk_sm: float | None
    own: Rate | None
    chip: Rate | None
    other: Rate | None

    def percent(self, rate: Rate | None) -> float | None:
        """Of one peak."""
        if rate is None or self.flop_clk_sm is None:
            return None
        return 100 * self.flop_clk_sm / rate.flop_clk_sm


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The answer for one group. `sentence` says it; `evidence_text` is the paragraph behind it.

    `prediction` is the bound from the machine code of full, None where that is not known.
    """

    group: Group
    mode: Mode
    decision: Decision
    evidence: Evidence
    ceiling: Ceiling | None
    shares: Shares
    attribution: Attribution | None
    prediction: Prediction | None
    sentence: str
    evidence_text: str

    @property
    def word(self) -> str:
        """at-ceiling, part-bound, latency-bound or unclear."""
        return self.decision.word


def verdicts(
    files: Iterable[RecordFile], studies: Mapping[str, Study], rule: Rule | None = None
) -> tuple[Verdict, ...]:
    """The newest verdict of each GPU, study and axes in these files, in the order of first mention.

    Records of a study that is not among `studies`, or has not their levels, are left out. Reads nothing but
    its arguments.
    """
    files = tuple(files)
    measured = ceilings(files, [name for name, study in studies.items() if study.is_ceiling])
    clocks, rates = light_clocks(files), pipe_rates(files)
    return tuple(
        judge(
            group,
            studies[group.study],
            ceiling_of(group, measured),
            clocks.get(group.board),
            rule,
            # A loop that fills a pipe is held against the table: against itself it would say nothing.
            {} if is_pipe(mode_of(group.full_record)[0]) else rates.get((group.gpu, group.sms), {}),
        )
        for group in latest_groups(files)
        if group.study in studies and _is_known(group, studies[group.study])
    )


def _is_known(group: Group, study: Study) -> bool:
    """Whether today's study still has the levels of these records; older ones cannot be asked about."""
    return all(group.levels.get(s.name, s.baseline) in s.levels for s in study.switches)


def judge(
    group: Group,
    study: Study,
    ceiling: Ceiling | None,
    light_hz: float | None,
    rule: Rule | None = None,
    rates: Mapping[str, float] | None = None,
) -> Verdict:
    """The verdict on one group, given its ceiling, the clock of a light kernel on the board (Hz), and the
    measured rates of its pipes."""
    # Records of an older suite may lack a switch, or have one more: today's names, its baseline.
    levels = Values({s.name: group.levels.get(s.name, s.baseline) for s in study.switches})
    configuration = Values({**study.configurations(levels)[0], **group.configuration})
    shape = shape_of(study, levels, configuration)
    attribution = attribute(group, shape, rule)
    evidence = evidence_of(group, shape, attribution, ceiling, light_hz, rule)
    decision = decide(evidence)
    shares = shares_of(group)
    mode = mode_of(group.full_record)
    counts = counts_of_record(group.full_record)
    prediction = predict(counts, group.chip, rates=rates) if counts and group.chip else None
    own_rates = prediction is not None and prediction.binding in (rates or {})
    return Verdict(
        group=group,
        mode=mode,
        decision=decision,
        evidence=evidence,
        ceiling=ceiling,
        shares=shares,
        attribution=attribution,
        prediction=prediction,
        sentence=sentence(decision, evidence, mode, ceiling, shares),
        evidence_text=evidence_text(
            evidence,
            attribution,
            prediction,
            light_hz,
            group,
            own_rates=own_rates,
        ),
    )


def shares_of(group: Group) -> Shares:
    """What full reaches, against the peaks of its GPU."""
    chip, (path, entry, acc) = group.chip, mode_of(group.full_record)
    value = median_of(group.full_record, "flop_clk_sm")
    if chip is None:
        return Shares(flop_clk_sm=value, own=None, chip=None, other=None)
    return Shares(
        flop_clk_sm=value,
        own=peak(chip, path, entry, acc),
        chip=chip_peak(chip, entry),
        other=other_peak(chip, path, entry, acc),
    )


def as_json(verdict: Verdict) -> dict[str, Any]:
    """A verdict as JSON types; costs in the attribution's unit, fractions of full where said so."""
    shares, group = verdict.shares, verdict.group
    return {
        "study": group.study,
        "gpu": group.gpu,
        "board": group.board,
        "full": group.full,
        "problem": group.problem,
        "run": group.run,
        "levels": dict(group.levels),
        "configuration": dict(group.configuration),
        "verdict": verdict.word,
        "power_limited": verdict.decision.power_limited,
        "named": [list(names) for names in verdict.decision.named],
        "gains": [
            {"what": gain.what, "case": gain.case, "fraction": _amount(gain.fraction)}
            for gain in verdict.decision.gains
        ],
        "low_floor": verdict.decision.low_floor,
        "doubtful": list(verdict.decision.doubtful),
        "unmeasured": list(verdict.evidence.unmeasured),
        "sentence": verdict.sentence,
        "evidence": verdict.evidence_text,
        "ratio": _amount(verdict.evidence.ratio),
        "floor_ratio": _amount(verdict.evidence.floor_ratio),
        "clock_of_light": verdict.evidence.clock,
        "ceiling": None
        if verdict.ceiling is None
        else {"flop_clk_sm": verdict.ceiling.value, "measured_by": verdict.ceiling.case},
        "flop_clk_sm": shares.flop_clk_sm,
        "peaks": {
            name: None
            if rate is None
            else {"name": rate.name, "flop_clk_sm": rate.flop_clk_sm, "percent": shares.percent(rate)}
            for name, rate in (("own", shares.own), ("chip", shares.chip), ("other", shares.other))
        },
        "counters": counters_json(group),
        "attribution": _attribution(verdict.attribution),
        "predicted": None if verdict.prediction is None else predicted_row(verdict.prediction),
    }


def _amount(amount: Amount | None) -> dict[str, Any] | None:
    if amount is None:
        return None
    ends = {"low": amount.low, "high": amount.high}
    known = {name: value if abs(value) < float("inf") else None for name, value in ends.items()}
    return {"value": amount.value, **known, "clear": amount.clear}


def _attribution(found: Attribution | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "unit": found.unit,
        "full": found.full,
        "floor": found.floor,
        "floor_case": found.floor_case,
        "total": _amount(found.total),
        "depth": dict(found.depth),
        "rounds": found.rounds,
        "builds_sampled": found.builds_sampled,
        "missing": list(found.missing),
        "no_share": found.no_share,
        "rows": [
            {
                "parts": list(row.parts),
                **{
                    name: _amount(getattr(row, name))
                    for name in ("exposed", "intrinsic", "overlap", "difference", "share")
                },
                "relation": row.relation,
                "confounded": row.confounded,
            }
            for row in found.rows
        ],
        "marginals": [
            {"part": m.part, "before": m.before, "after": m.after, "cost": _amount(m.cost)}
            for m in found.marginals
        ],
        "ties": sorted(sorted(pair) for pair in found.ties),
    }
