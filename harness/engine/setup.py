"""Before the rounds: the first launches, the warm-up, and how many launches make a sample."""

from __future__ import annotations

import math

from harness.engine.guards import MOST_LAUNCHES, growth_problem, sample_problem, size_sample
from harness.engine.state import Loop, Track, time_once
from harness.engine.values import Timing
from harness.errors import AblationError

WARM_UP_ENTRIES = 2


def launch_first(loop: Loop, track: Track) -> None:
    """The launch that pays for loading and first use; its time is kept apart and never a sample."""
    begin = loop.now()
    if time_once(loop, track, 1) is not None:
        track.first_seconds = loop.now() - begin


def warm_up(loop: Loop) -> None:
    """Let the SM clock settle under the first entries that work."""
    ids = [track.entry.id for track in loop.alive[:WARM_UP_ENTRIES]]
    if not ids or loop.plan.warm_up_seconds <= 0:
        return
    try:
        loop.settled = loop.device.warm_up(ids, loop.plan.warm_up_seconds).settled
    except AblationError:
        loop.settled = False  # the entry that did this will fail by itself


def size(loop: Loop, track: Track) -> None:
    """How many launches make a sample; refuses a time that does not grow with the work."""
    entry, plan = track.entry, loop.plan
    launches, single = 1, _usable(loop, track, 1)
    while single is not None and single.seconds == 0 and launches < MOST_LAUNCHES and not entry.cold:
        launches *= 16
        single = _usable(loop, track, launches)
    if single is None:
        return
    if single.seconds == 0:
        return track.fail("noisy", f"too short to time: {launches} launches take 0 s")
    if entry.launches is not None:
        track.launches = entry.launches
    elif not entry.cold:
        track.launches = size_sample(single.seconds, plan)
    _refuse_constant_time(loop, track, single.seconds, launches)


def _refuse_constant_time(loop: Loop, track: Track, seconds: float, launches: int) -> None:
    """Take the entry out when its time grows neither with the launches nor with the work of one."""
    more = max(2, track.launches)
    problem = None
    # Twice, since one sample may have met a clock that still moved.
    for _ in range(2 if more > launches and not track.entry.cold else 0):
        many = _usable(loop, track, more)
        one = None if many is None else _usable(loop, track, launches)
        if many is None or one is None:
            return
        shortest = min(one.seconds or seconds, seconds) * launches
        problem = growth_problem(more / launches, many.seconds * more / shortest)
        if problem is None:
            break
    if problem is None and track.entry.smaller is not None:
        entry_id, factor = track.entry.smaller
        small = time_once(loop, track, 1, entry_id)
        if small is not None:
            problem = growth_problem(factor, seconds / small.seconds if small.seconds > 0 else math.nan)
    if problem is not None and track.status is None:
        track.fail("noisy", problem)


def _usable(loop: Loop, track: Track, launches: int) -> Timing | None:
    """A sample with a time at all (0 may come), after bounded retries; else the entry is out."""
    problem = None
    for _ in range(1 + loop.plan.retries):
        timing = time_once(loop, track, launches)
        if timing is None:
            return None
        if math.isfinite(timing.seconds) and timing.seconds >= 0:
            return timing
        problem = sample_problem(timing, launches, loop.plan.tick_seconds)
    track.fail("noisy", f"no usable sample of {1 + loop.plan.retries}: {problem}")
    return None
