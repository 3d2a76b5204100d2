"""The loop: first launches, warm-up, then interleaved rounds until it is enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from harness.engine.guards import sample_problem
from harness.engine.results import conclude
from harness.engine.setup import launch_first, size, warm_up
from harness.engine.state import Loop, Progress, Track, time_once
from harness.engine.stopping import Shrinking, effect_widths
from harness.engine.values import Device, Entry, Exit, NoState, Plan, Session, State, Timing
from harness.errors import AblationError

# An entry that gave nothing usable in so many rounds in a row is not asked again.
HOPELESS = 3
# A group rests after so many times the rounds that a run must have.
REST_FACTOR = 2


def measure(
    device: Device,
    entries: Sequence[Entry],
    plan: Plan | None = None,
    *,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    progress: Progress = lambda rounds, widest: None,
) -> Session:
    """Time all entries in shuffled rounds and say how each went.

    An entry that fails costs its own row. Ctrl-C returns the whole rounds there are, marked partial.
    `progress` is told the rounds done and, when it was worked out, the widest interval as a fraction. Nothing
    is raised for a bad entry; what is no AblationError passes through.
    """
    plan = plan or Plan()
    if len({entry.id for entry in entries}) < len(entries):
        raise ValueError("two entries share an id")
    tracks = {entry.id: Track(entry=entry) for entry in entries}
    loop = Loop(device=device, plan=plan, tracks=tracks, now=now, sleep=sleep, progress=progress)
    begin = now()
    ended: Exit | None = None
    partial = False
    try:
        for track in loop.alive:
            launch_first(loop, track)
        warm_up(loop)
        for track in loop.alive:
            size(loop, track)
        ended = _take_rounds(loop)
    except KeyboardInterrupt:
        partial = True
        for track in loop.alive:
            track.drop_unfinished()
    return conclude(loop, ended, partial=partial, seconds=now() - begin)


def _take_rounds(loop: Loop) -> Exit | None:
    """Rounds until one of the exits; None when no entry is left.

    A group, the entries compared with one full, rests when all its intervals are narrow: the rounds that are
    left go to those that need them, and within a group every round still holds every entry.
    """
    plan = loop.plan
    rng = np.random.default_rng(plan.seed)
    shrinking = Shrinking(plan)
    begin = loop.now()
    while loop.running:
        if plan.rounds is not None and loop.rounds >= plan.rounds:
            return "fixed rounds"
        if plan.rounds is None and loop.rounds >= plan.least and loop.now() - begin >= plan.seconds:
            return "out of time"
        running = loop.running
        order = [running[i] for i in rng.permutation(len(running))]
        number = loop.rounds + loop.throttled
        for track in order:
            _take_sample(loop, track, number)
        if not _keep_round(loop, number):
            if loop.throttled_in_a_row > plan.retries:
                return "out of time" if loop.rounds else None
            continue
        loop.rounds += 1
        widest = _rest(loop) if plan.rounds is None and shrinking.is_due(loop.rounds) else None
        loop.progress(loop.rounds, widest)
        if widest is not None:
            if widest <= plan.width:
                return "narrow"
            if shrinking.has_stalled(loop.rounds, widest):
                return "no longer shrinking"
    return None


def _take_sample(loop: Loop, track: Track, number: int) -> None:
    """One believable sample, after bounded retries, or none in this round."""
    for _ in range(1 + loop.plan.retries):
        timing = time_once(loop, track, track.launches)
        if timing is None:
            return
        problem = sample_problem(timing, track.launches, loop.plan.tick_seconds, cold=track.entry.cold)
        if problem is None:
            below = _below_floor(track, timing)
            if below:
                return track.fail("below_floor", below)
            track.taken[number] = timing
            track.bad_in_a_row = 0
            return
        track.rejected += 1
        track.last_problem = problem
    track.bad_in_a_row += 1
    if track.bad_in_a_row >= HOPELESS:
        track.fail("noisy", f"no usable sample in {HOPELESS} rounds: {track.last_problem}")


def _below_floor(track: Track, timing: Timing) -> str:
    entry = track.entry
    if timing.seconds < entry.floor_seconds:
        return f"{timing.seconds:.4g} s is below the impossible-time floor of {entry.floor_seconds:.4g} s"
    if timing.busy_cycles is not None and timing.busy_cycles < entry.floor_cycles:
        return f"{timing.busy_cycles:.6g} cycles are below the floor of {entry.floor_cycles:.6g} cycles"
    return ""


def _keep_round(loop: Loop, number: int) -> bool:
    """Note the GPU's state with the round's samples; False when it was throttled: they are thrown away."""
    state = _state(loop.device)
    reasons = loop.plan.throttled & set(state.throttle or ())
    if not reasons:
        loop.throttled_in_a_row = 0
        for track in loop.tracks.values():
            track.states[number] = state
        return True
    for track in loop.tracks.values():
        track.rejected += track.taken.pop(number, None) is not None
        track.throttled += not track.resting
    loop.throttle_reasons |= reasons
    loop.sleep(loop.plan.pause_seconds * 2**loop.throttled_in_a_row)
    loop.throttled_in_a_row += 1
    loop.throttled += 1
    return False


def _state(device: Device) -> State:
    try:
        return device.state()
    except AblationError:
        return NoState()


def _rest(loop: Loop) -> float:
    """Let groups rest whose intervals are all narrow; the widest interval there is, of those and the others.

    Not before twice the rounds that a run must have: noise that comes in spells needs to be met. What paces
    nothing rests with its group, or ends with the last of the others.
    """
    running = loop.running
    pacing = [track for track in running if track.entry.paces]
    if not pacing:
        return 0.0
    entries = [track.entry for track in pacing if track.taken]
    taken = {name: track.taken for name, track in loop.tracks.items() if track.status is None}
    widths = effect_widths(entries, taken, loop.plan.seed)
    widest = max(widths.values(), default=math.inf)
    if widest > loop.plan.width:
        least = REST_FACTOR * loop.plan.min_rounds
        going = {
            loop.group_of(track)
            for track in pacing
            if len(track.taken) < least or widths[track.entry.id] > loop.plan.width
        }
        paced = {loop.group_of(track) for track in pacing}
        for track in running:
            track.resting = loop.group_of(track) in paced - going
    return widest
