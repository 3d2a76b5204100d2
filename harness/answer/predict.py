"""Machine code of a loop and the rates of a chip -> a throughput that no run can beat, and what sets it.

A bound says what binds where a pipe is really near full. Far below it (under 0.9, say) it says only that no
pipe is: latency and overlap are then the reason, and a bound explains nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.answer.counts import Counts
from harness.answer.pipes import SUB_PARTITIONS, PipeUse, pipe_names, pipe_uses
from harness.chips import Chip, Rate, chip_peak, peak, pipe

# More than this over the bound is an error of the suite: wrong work, merged MMAs, a wrong clock or rate.
TOLERANCE = 0.005
# Without knowing what every trip runs: what no branch of these loops skips.
CERTAIN = ("shared_bytes",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """A bound of one case on one chip.

    Args:
        flop_clk_sm: never to be beaten. tflop_s: the same at the specification's boost clock.
        binding: the pipe that sets it. second: the next, `margin` its clocks over those of the binding one.
        pipes: clocks per trip of one CTA, most first; unknown: pipes whose rate nobody knows.
        whole_loop: only tensor and shared memory were counted, as branches could not be told.
        own, chip: the peaks it is a share of; other: that of the same path with the other accumulator.
        estimate: FLOP per clock and SM that a simulation of one SM reaches, no bound; None: not simulated.
        unit: what the bound counts per clock and SM: FLOP, or the unit of the pipe that the loop fills.
    """

    study: str
    case: str
    arch: str
    gpu: str
    flop_clk_sm: float
    tflop_s: float
    boost_hz: float
    binding: str
    second: str | None
    margin: float | None
    pipes: tuple[PipeUse, ...]
    unknown: tuple[str, ...]
    whole_loop: bool
    own: Rate | None
    chip: Rate | None
    other: Rate | None
    estimate: float | None = None
    unit: str = "FLOP"

    def percent(self, rate: Rate | None) -> float | None:
        """The bound as a percentage of a peak."""
        return None if rate is None else 100 * self.flop_clk_sm / rate.flop_clk_sm


def predict(
    counts: Counts,
    chip: Chip,
    *,
    tensor: float | None = None,
    rates: Mapping[str, float] | None = None,
) -> Prediction | None:
    """The bound of a case on a chip; None where nothing is known of its path.

    The path may be another pipe by its name, for a loop that fills it: work and bound are then in that pipe's
    unit. `tensor` (FLOP per clock and SM) and `rates` (by pipe) were measured on that chip and stand above
    the table's.
    """
    own = peak(chip, counts.path, counts.input, counts.acc)
    rate = tensor if tensor is not None else own.flop_clk_sm if own else None
    itself = pipe(chip.cc, counts.path) if counts.path in pipe_names() else None
    if rate is None and itself is None:
        return None
    resident = _resident_warps(counts, chip)
    uses, unknown = pipe_uses(
        counts.loop,
        chip.cc,
        warps=counts.warps,
        resident_warps=resident,
        rates=rates,
        only=CERTAIN if counts.whole else (),
    )
    every = [*uses, *_memory_uses(counts, chip, rates or {})]
    if rate is not None:
        every.append(_tensor_use(counts, rate, resident, own))
    # Of pipes that are full alike the tensor pipe is named: nothing better can be had there.
    ordered = sorted(every, key=lambda use: (-round(use.clk, 6), use.pipe != "tensor", use.pipe))
    hard = [use for use in ordered if not use.soft]
    per_trip = counts.flops / (counts.ctas * counts.trips)
    bound = per_trip / hard[0].clk
    return Prediction(
        study=counts.study,
        case=counts.case,
        arch=counts.arch,
        gpu=chip.name,
        flop_clk_sm=bound,
        tflop_s=bound * chip.sms * chip.boost_hz / 1e12,
        boost_hz=chip.boost_hz,
        binding=hard[0].pipe,
        second=hard[1].pipe if len(hard) > 1 else None,
        margin=hard[1].clk / hard[0].clk if len(hard) > 1 else None,
        pipes=tuple(ordered),
        unknown=unknown,
        unit=itself.unit if itself else "FLOP",
        whole_loop=counts.whole,
        own=own,
        chip=chip_peak(chip, counts.input),
        other=other_peak(chip, counts.path, counts.input, counts.acc),
    )


def other_peak(chip: Chip, path: str, entry: str, acc: str) -> Rate | None:
    """The peak of the same path and input with the other floating-point accumulator, if there is one."""
    others = (peak(chip, path, entry, name) for name in ("f32", "f16") if name != acc)
    return next((rate for rate in others if rate), None)


def _resident_warps(counts: Counts, chip: Chip) -> int | None:
    """Warps an SM holds at once: as many CTAs as fit, but no more than its part of the grid."""
    if not counts.ctas_per_sm:
        return None
    return min(counts.ctas_per_sm, -(-counts.ctas // chip.sms)) * counts.warps


def _tensor_use(counts: Counts, rate: float, resident: int | None, own: Rate | None) -> PipeUse:
    """From the work itself, not from the opcodes: the contract has compared the two."""
    used = min(SUB_PARTITIONS, resident or SUB_PARTITIONS) / SUB_PARTITIONS
    flops = counts.mma_per_cta * counts.flops_per_mma / counts.trips
    return PipeUse(pipe="tensor", clk=flops / (rate * used), confidence=own.confidence if own else "measured")


def _memory_uses(counts: Counts, chip: Chip, rates: Mapping[str, float]) -> tuple[PipeUse, ...]:
    """L2 (soft: the most anybody measured) and DRAM (what cannot be in L2 already), per trip of one CTA."""
    trips = counts.ctas * counts.trips
    found = []
    l2 = pipe(chip.cc, "l2_bytes")
    rate = rates.get("l2_bytes", l2.rate if l2 else None)
    if rate and counts.gmem_bytes:
        clk = counts.gmem_bytes / trips / rate
        found.append(PipeUse(pipe="l2_bytes", clk=clk, confidence="measured", soft=True))
    if chip.dram_bytes_s and chip.l2_bytes is not None and counts.unique_bytes > chip.l2_bytes:
        per_clk_sm = chip.dram_bytes_s / chip.boost_hz / chip.sms
        clk = (counts.unique_bytes - chip.l2_bytes) / trips / per_clk_sm
        # In clocks it holds at boost only: a slower SM clock leaves more bytes per clock.
        found.append(PipeUse(pipe="dram_bytes", clk=clk, confidence="vendor", soft=True))
    return tuple(found)


def floor_cycles(counts: Counts, chip: Chip) -> float:
    """Cycles that the mean SM cannot stay under, less the tolerance; 0 where nothing is known of the chip.

    A measured time below it is an error of the suite, never a result.
    """
    found = predict(counts, chip)
    return 0.0 if found is None else (1 - TOLERANCE) * counts.flops / (chip.sms * found.flop_clk_sm)


def of_bound(flop_clk_sm: float, prediction: Prediction) -> tuple[float, bool]:
    """Measured over predicted, and whether it beats the bound by more than can be: an error of the suite."""
    ratio = flop_clk_sm / prediction.flop_clk_sm
    return ratio, ratio > 1 + TOLERANCE


def predicted_row(prediction: Prediction) -> dict[str, Any]:
    """A prediction as JSON types: what a record of type "predicted" holds under the name `predicted`."""
    return {
        "flop_clk_sm": prediction.flop_clk_sm,
        "tflop_s": prediction.tflop_s,
        "boost_hz": prediction.boost_hz,
        "unit": prediction.unit,
        "binding": prediction.binding,
        "second": prediction.second,
        "margin": prediction.margin,
        "whole_loop": prediction.whole_loop,
        "estimate": prediction.estimate,
        "uses": [
            {"pipe": u.pipe, "clk": u.clk, "confidence": u.confidence, "soft": u.soft}
            for u in prediction.pipes
        ],
        "unknown": list(prediction.unknown),
        "peaks": {
            name: None
            if rate is None
            else {
                "name": rate.name,
                "flop_clk_sm": rate.flop_clk_sm,
                "percent": prediction.percent(rate),
                "confidence": rate.confidence,
            }
            for name, rate in (
                ("own", prediction.own),
                ("chip", prediction.chip),
                ("other", prediction.other),
            )
        },
    }
