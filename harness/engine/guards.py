"""Whether a sample can be believed, and how many launches make one. Pure."""

from __future__ import annotations

import math

from harness.engine.values import Plan, Timing

TICKS = 1000
# No SM clock comes near; a count that implies it is a wrapped or torn counter.
IMPOSSIBLE_HZ = 5e9
MOST_LAUNCHES = 1 << 16
# Of the time that the additional work should take, the least share that must be seen.
GROWTH = 1 / 3


def sample_problem(timing: Timing, launches: int, tick_seconds: float, *, cold: bool = False) -> str | None:
    """Why a sample of so many launches is no measurement, or None.

    Cold launches are timed one by one and cannot be repeated into a longer sample: their length is no fault.
    """
    seconds = timing.seconds
    if not math.isfinite(seconds):
        return f"time is {seconds}"
    if seconds <= 0:
        return f"time is {seconds:g} s"
    ticks = seconds * launches / tick_seconds
    if ticks < TICKS and not cold:
        return f"too short: {1e6 * seconds * launches:.3g} us is {ticks:.0f} ticks of the clock, not {TICKS}"
    for name, cycles in (("busy", timing.busy_cycles), ("longest", timing.wall_cycles)):
        if cycles is None:
            continue
        if not math.isfinite(cycles) or cycles <= 0:
            return f"stamps are not monotonic: {name} span of {cycles:g} cycles"
        if cycles > IMPOSSIBLE_HZ * seconds:
            return f"counter wrapped: {name} span of {cycles:.3g} cycles in {seconds:.3g} s"
    if timing.busy_cycles and timing.wall_cycles and timing.wall_cycles < timing.busy_cycles * (1 - 1e-9):
        return f"stamps contradict: longest span {timing.wall_cycles:g} below the mean {timing.busy_cycles:g}"
    return None


def known_clock(hz: float | None) -> float | None:
    """The SM clock where it is one: 0, negative, not finite and impossible clocks are unknown."""
    return hz if hz is not None and math.isfinite(hz) and 0 < hz < IMPOSSIBLE_HZ else None


def growth_problem(work: float, time: float) -> str | None:
    """Why a time that grew `time`-fold for `work` times the work (> 1) is none, or None."""
    if math.isfinite(time) and time >= 1 + GROWTH * (work - 1):
        return None
    return f"time does not scale with work (x{work:g} work, x{time:.1f} time)"


def size_sample(seconds: float, plan: Plan) -> int:
    """Whole launches per sample, from the seconds of one: just long enough for the clock."""
    shortest, longest = plan.sample_seconds
    # A fifth above the least, so that a faster launch later is not too short.
    target = min(1.2 * max(shortest, TICKS * plan.tick_seconds), max(longest, TICKS * plan.tick_seconds))
    return max(1, min(MOST_LAUNCHES, math.ceil(target / seconds)))
