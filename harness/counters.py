"""The hardware counters of a record: what a profiler read of one launch, outside the timing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TENSOR_ACTIVE = "tensor_active_percent"
MOST = 1e18
_STALLED = "stalled_"
MATH_PIPE = "math_pipe_throttle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What was read, and by what; any value may be missing.

    Args:
        tool: the profiler, with its version.
        values: percentages (`..._percent`) are of the cycles that an SM was active; `stalled_...` are
            clocks that warps stalled for that reason, summed over the warps, per instruction issued.
    """

    tool: str
    values: Mapping[str, float]

    @property
    def stalls(self) -> dict[str, float]:
        """Reason -> clocks that warps stalled for it, per instruction issued; most first, then by name."""
        found = [(n.removeprefix(_STALLED), v) for n, v in self.values.items() if n.startswith(_STALLED)]
        return dict(sorted(found, key=lambda one: (-one[1], one[0])))

    @property
    def top_stall(self) -> tuple[str, float] | None:
        """The reason of those read with most such clocks, and how many; None where none stalled."""
        reason, clocks = next(iter(self.stalls.items()), ("", 0.0))
        return (reason, clocks) if clocks > 0 else None


def counters_of(record: Mapping[str, Any]) -> Counters | None:
    """The counters of a record; None where no value was read."""
    found = record.get("counters") or {}
    read = (found.get("values") or {}).items()
    # Beyond that it is no number that a launch can give, and none that a float holds.
    values = {str(n): float(v) for n, v in read if isinstance(v, (int, float)) and abs(v) < MOST}
    return Counters(tool=str(found.get("tool") or "a profiler"), values=values) if values else None
