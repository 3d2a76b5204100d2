"""One measurement under way: what is known of each entry, and of the rounds so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from harness.engine.values import Device, Entry, Plan, State, Timing
from harness.errors import AblationError

Progress = Callable[[int, float | None], None]


@dataclass(slots=True)
class Track:
    """What is known of one entry so far. `status` is set once it is out."""

    entry: Entry
    launches: int = 1
    first_seconds: float | None = None
    taken: dict[int, Timing] = field(default_factory=dict)
    states: dict[int, State] = field(default_factory=dict)
    rejected: int = 0
    bad_in_a_row: int = 0
    last_problem: str = ""
    status: str | None = None
    reason: str = ""
    # The whole group's intervals are narrow: nothing more is learned from it.
    resting: bool = False
    # Rounds that were thrown away while it was still timed.
    throttled: int = 0

    def fail(self, status: str, reason: str) -> None:
        """Take the entry out."""
        self.status, self.reason = status, reason

    def drop_unfinished(self) -> None:
        """Forget a sample whose round was not finished: nobody looked whether it was throttled."""
        self.taken = {number: timing for number, timing in self.taken.items() if number in self.states}


@dataclass(slots=True)
class Loop:
    """One measurement under way."""

    device: Device
    plan: Plan
    tracks: dict[str, Track]
    now: Callable[[], float]
    sleep: Callable[[float], None]
    progress: Progress
    rounds: int = 0
    throttled_in_a_row: int = 0
    throttled: int = 0
    throttle_reasons: set[str] = field(default_factory=set)
    settled: bool = False

    @property
    def alive(self) -> list[Track]:
        """The entries that did not fail."""
        return [track for track in self.tracks.values() if track.status is None]

    def group_of(self, track: Track) -> str:
        """What an entry shares with all that it is compared with, at whatever remove: the last full's id.

        A full may itself be compared with another one.
        """
        seen, name = {track.entry.id}, track.entry.id
        while (known := self.tracks.get(name)) and known.entry.full and known.entry.full not in seen:
            name = known.entry.full
            seen.add(name)
        return name

    @property
    def running(self) -> list[Track]:
        """Those of them that are still timed."""
        return [track for track in self.alive if not track.resting]


def time_once(loop: Loop, track: Track, launches: int, entry_id: str | None = None) -> Timing | None:
    """One sample, or None after a fault, which takes the entry out."""
    try:
        return loop.device.time(entry_id or track.entry.id, launches, cold=track.entry.cold)
    except AblationError as error:
        track.fail(error.status, error.message)
        return None
