"""When it is enough: the width of every entry's effect, and whether it still shrinks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from harness.engine.values import Entry, Plan, Timing
from harness.stats import Rule, relative_widths

Taken = Mapping[int, Timing]  # round -> sample

# A width should fall to 0.58 when the rounds treble; when it stays above this, it does not shrink.
SHRINKING = 0.95
LOOKBACK = 3


def effect_widths(entries: Sequence[Entry], taken: Mapping[str, Taken], seed: int = 0) -> dict[str, float]:
    """Relative interval width of each entry's effect against its full within rounds; inf where unknown.

    In cycles, in seconds where cycles are unknown; an entry without a full (or whose full failed) by itself.
    """
    series = [_series(taken[entry.id], taken.get(entry.full or "", {})) for entry in entries]
    widths = relative_widths(series, Rule(seed=seed))
    return {entry.id: float(width) for entry, width in zip(entries, widths, strict=True)}


def _series(own: Taken, full: Taken) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    if own is not full and set(own) & set(full):
        rounds = sorted(set(own) & set(full))
        pairs = [(own[r], full[r]) for r in rounds]
        in_cycles = all(a.busy_cycles and b.busy_cycles for a, b in pairs)
        return np.array([_cost(a, in_cycles) / _cost(b, in_cycles) for a, b in pairs])
    in_cycles = all(timing.busy_cycles for timing in own.values())
    return np.array([_cost(own[r], in_cycles) for r in sorted(own)])


def _cost(timing: Timing, in_cycles: bool) -> float:
    return timing.busy_cycles if in_cycles and timing.busy_cycles else timing.seconds


@dataclass(slots=True)
class Shrinking:
    """The widest interval at each look; looks become rarer as the rounds grow."""

    plan: Plan
    looks: list[tuple[int, float]] = field(default_factory=list)
    stalled: int = 0

    def is_due(self, rounds: int) -> bool:
        """Whether to look after so many rounds."""
        last = self.looks[-1][0] if self.looks else 0
        return rounds >= max(self.plan.min_rounds, math.ceil(1.15 * last))

    def has_stalled(self, rounds: int, widest: float) -> bool:
        """Note the widest; whether thrice in a row it was no narrower than at a third of the rounds."""
        before = [width for count, width in self.looks if LOOKBACK * count <= rounds]
        self.looks.append((rounds, widest))
        self.stalled = self.stalled + 1 if before and widest > SHRINKING * before[-1] else 0
        return self.stalled >= 3
