"""In-kernel stamps -> cycles, FLOP/clk/SM and the SM clock run. Pure NumPy.

A row of stamps is one CTA: smid, clock64 at start and end, globaltimer at start and end (ns). clock64 counts
per SM and is compared only within one SM; differences are modulo 2^64, so a wrapped counter is no fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import LaunchError

COLUMNS = 5
POISON = np.uint64(0xFFFFFFFFFFFFFFFF)
# The coarsest globaltimer known; taken when the stamps themselves show no finer tick.
COARSEST_TICK_NS = 1024
# A span of fewer ticks gives the clock to no better than about a percent: then it is not known.
FEWEST_TICKS = 100
MOST_SMS = 4096

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """Stamps of one launch, reduced.

    Args:
        busy_cycles: mean over the SMs that ran of last end - first start.
        wall_cycles: the longest such span.
        flop_clk_sm: mean over those SMs of the FLOPs of their CTAs over their span.
        wall_flop_clk_sm: all FLOPs over the longest span and all SMs of the GPU: counts the uneven last wave.
        sm_hz: median over SMs of clock64 span over globaltimer span; None when too short for the tick.
        spread: (max - min) / mean of the per-SM FLOP/clk.
        gap: the widest step between two neighbours of these values in ascending order, over their mean.
        ctas_per_sm: fewest and most CTAs that one SM ran in all.
    """

    busy_cycles: float
    wall_cycles: float
    flop_clk_sm: float
    wall_flop_clk_sm: float
    sm_hz: float | None
    spread: float
    gap: float
    sms_used: int
    ctas_per_sm: tuple[int, int]


def reduce(stamps: NDArray[np.uint64], flops_per_cta: float | Floats, *, sms: int | None = None) -> Reduction:
    """Reduce the stamps of one launch; uint64 [CTAs, 5].

    Args:
        flops_per_cta: one number, or one per CTA in the order of the rows.
        sms: SMs of the GPU, for the wall rate; without it, those that ran.

    Raises:
        LaunchError: a CTA wrote no stamps, ended before it started, or names an impossible SM.
    """
    _refuse_bad(stamps)
    # Small integers sort in linear time.
    order = np.argsort(stamps[:, 0].astype(np.uint16), kind="stable")
    rows = stamps[order]
    firsts = np.flatnonzero(np.r_[True, rows[1:, 0] != rows[:-1, 0]])
    counts = np.diff(np.r_[firsts, len(rows)])
    # Relative to one stamp of the same SM, as signed numbers: right across a wrap.
    origin = np.repeat(rows[firsts, 1], counts)
    starts = (rows[:, 1] - origin).view(np.int64)
    ends = (rows[:, 2] - origin).view(np.int64)
    cycles = (np.maximum.reduceat(ends, firsts) - np.minimum.reduceat(starts, firsts)).astype(np.float64)
    work = np.broadcast_to(np.asarray(flops_per_cta, dtype=np.float64), (len(rows),))[order]
    rates = np.add.reduceat(work, firsts) / cycles
    mean_rate = float(rates.mean())
    # Without work to rate (flops 0), SMs are compared by how long they were busy.
    spread, gap = _unevenness(rates if mean_rate else cycles)
    return Reduction(
        busy_cycles=float(cycles.mean()),
        wall_cycles=float(cycles.max()),
        flop_clk_sm=mean_rate,
        wall_flop_clk_sm=float(work.sum() / (cycles.max() * (sms or len(firsts)))),
        sm_hz=_clock(rows, starts, ends, firsts, counts),
        spread=spread,
        gap=gap,
        sms_used=len(firsts),
        ctas_per_sm=(int(counts.min()), int(counts.max())),
    )


def tick_ns(times: NDArray[np.uint64]) -> int:
    """The globaltimer's step as these values show it; at most the coarsest tick known."""
    # A few thousand of them show the step as well as all.
    values = np.unique(times.reshape(-1)[:: 1 + times.size // 8192])
    if len(values) < 2:
        return COARSEST_TICK_NS
    return int(min(np.diff(values).min(), COARSEST_TICK_NS))


def _refuse_bad(stamps: NDArray[np.uint64]) -> None:
    if stamps.ndim != 2 or stamps.shape[1] != COLUMNS or stamps.dtype != np.uint64 or not len(stamps):
        raise LaunchError(f"stamps are {stamps.dtype}{list(stamps.shape)}, not uint64 [CTAs, {COLUMNS}]")
    unwritten = (stamps == POISON).any(axis=1)
    if unwritten.any():
        first = int(unwritten.argmax())
        raise LaunchError(
            f"{int(unwritten.sum())} of {len(stamps)} CTAs wrote no stamps; the first is CTA {first}"
        )
    if int(stamps[:, 0].max()) >= MOST_SMS:
        raise LaunchError(f"a CTA stamped SM {int(stamps[:, 0].max())}: there are never {MOST_SMS} SMs")
    clocks = (stamps[:, 2] - stamps[:, 1]).view(np.int64)
    if (clocks <= 0).any():
        bad = int((clocks <= 0).argmax())
        raise LaunchError(f"CTA {bad} ended {-int(clocks[bad])} clocks before it started: not monotonic")
    nanoseconds = (stamps[:, 4] - stamps[:, 3]).view(np.int64)
    if (nanoseconds < 0).any():
        bad = int((nanoseconds < 0).argmax())
        raise LaunchError(f"CTA {bad} ended {-int(nanoseconds[bad])} ns before it started by the globaltimer")


def _clock(
    rows: NDArray[np.uint64], starts: Any, ends: Any, firsts: NDArray[np.intp], counts: NDArray[np.intp]
) -> float | None:
    """SM clock in Hz: per SM, the same two stamps give the cycles and the nanoseconds between them."""
    first = _where(starts == np.repeat(np.minimum.reduceat(starts, firsts), counts), firsts)
    last = _where(ends == np.repeat(np.maximum.reduceat(ends, firsts), counts), firsts)
    nanoseconds = (rows[last, 4] - rows[first, 3]).view(np.int64)
    long_enough = nanoseconds >= FEWEST_TICKS * tick_ns(rows[:, 3:5])
    if 2 * long_enough.sum() < len(firsts) or not long_enough.any():
        return None
    cycles = (ends[last] - starts[first])[long_enough]
    return float(np.median(cycles / nanoseconds[long_enough]) * 1e9)


def _where(found: NDArray[np.bool_], firsts: NDArray[np.intp]) -> NDArray[np.intp]:
    """The first row of each SM where `found` holds; it holds somewhere in each."""
    indices = np.flatnonzero(found)
    return indices[np.searchsorted(indices, firsts)]


def _unevenness(values: Floats) -> tuple[float, float]:
    """Range, and widest step between neighbours, of one value per SM; both over the mean."""
    ascending = np.sort(values)
    gap = np.diff(ascending).max() if len(values) > 1 else 0.0
    return float((ascending[-1] - ascending[0]) / values.mean()), float(gap / values.mean())
