"""A clock that shows the time a GPU spent on the launches of one case, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence


class DeviceTimeline:
    """The timer of a benchmark whose rounds were timed on the device: `advance` is a round, `read` the clock.

    The rounds of all cases are interleaved on the GPU; here each case's own are played back one by one.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._next: list[float] = []

    def load(self, seconds: Sequence[float]) -> int:
        """Take the GPU seconds of the rounds to come; how many there are."""
        self._next = list(reversed([float(value) for value in seconds]))
        return len(self._next)

    def advance(self) -> None:
        """One round; nothing more happens after the last."""
        if self._next:
            self._now += self._next.pop()

    def read(self) -> float:
        """Seconds on the device so far."""
        return self._now
