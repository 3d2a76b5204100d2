"""After the rounds: what became of each entry."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.engine.guards import TICKS, known_clock
from harness.engine.state import Loop, Track
from harness.engine.stopping import effect_widths
from harness.engine.values import Exit, Measured, NoState, Session, Timing
from harness.model import Sample


def conclude(loop: Loop, ended: Exit | None, *, partial: bool, seconds: float) -> Session:
    """The results of a loop that ended; entries without enough samples get their reason, or are missing."""
    for track in loop.alive:
        if len(track.taken) < loop.plan.least and not partial:
            track.fail("noisy", _too_few(loop, track))
    good = [track for track in loop.alive if len(track.taken) >= loop.plan.least]
    taken = {track.entry.id: track.taken for track in good}
    widths = effect_widths([track.entry for track in good], taken, loop.plan.seed) if good else {}
    results = {track.entry.id: _measured(loop, track, widths.get(track.entry.id), ended) for track in good}
    results |= {name: _failed(track) for name, track in loop.tracks.items() if track.status is not None}
    return Session(
        results={name: results[name] for name in loop.tracks if name in results},
        exit=ended,
        rounds=loop.rounds,
        seed=loop.plan.seed,
        seconds=seconds,
        settled=loop.settled,
        partial=partial,
        missing=tuple(name for name in loop.tracks if name not in results),
    )


def _too_few(loop: Loop, track: Track) -> str:
    kept = f"{len(track.taken)} samples" if track.taken else "no sample"
    if loop.throttled and not track.taken:
        return f"all {track.rejected} samples throttled: {', '.join(sorted(loop.throttle_reasons))}"
    if track.last_problem:
        return f"{kept} usable, {track.rejected} thrown away: {track.last_problem}"
    return f"{kept} before the time was out"


def _failed(track: Track) -> Measured:
    return Measured(
        id=track.entry.id,
        status=track.status or "noisy",
        reason=track.reason,
        launches=track.launches,
        first_seconds=track.first_seconds,
        rejected=track.rejected + len(track.taken),
    )


def _measured(loop: Loop, track: Track, width: float | None, ended: Exit | None) -> Measured:
    rounds = sorted(track.taken)
    timings = [track.taken[r] for r in rounds]
    return Measured(
        id=track.entry.id,
        status="ok",
        samples=tuple(_sample(r, timing) for r, timing in zip(rounds, timings, strict=True)),
        states=tuple(track.states.get(r, NoState()) for r in rounds),
        wall_flop_clk_sm=tuple(timing.wall_flop_clk_sm for timing in timings),
        launches=track.launches,
        first_seconds=track.first_seconds,
        rejected=track.rejected,
        width=width if width is not None and math.isfinite(width) else None,
        notes=_notes(loop, track, timings),
        exit="narrow" if track.resting else ended,
    )


def _notes(loop: Loop, track: Track, timings: Sequence[Timing]) -> tuple[str, ...]:
    notes = []
    if track.throttled:
        reasons = ", ".join(sorted(loop.throttle_reasons))
        notes.append(f"{track.throttled} throttled rounds thrown away: {reasons}")
    if track.last_problem:
        notes.append(f"{track.rejected} samples thrown away: {track.last_problem}")
    if any(known_clock(timing.sm_hz) is None for timing in timings):
        notes.append("SM clock unknown")
    if any(timing.busy_cycles is None for timing in timings):
        notes.append("cycles unknown")
    if track.entry.cold and min(t.seconds for t in timings) < TICKS * loop.plan.tick_seconds:
        notes.append(f"cold launches of under {TICKS} ticks of the clock")
    return tuple(notes)


def _sample(number: int, timing: Timing) -> Sample:
    known = {
        name: _or_nan(getattr(timing, name))
        for name in ("busy_cycles", "wall_cycles", "flop_clk_sm", "spread", "gap")
    }
    return Sample(round=number, seconds=timing.seconds, sm_hz=known_clock(timing.sm_hz), **known)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
