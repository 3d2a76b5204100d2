"""What a table says of its rows: bistable or not, and a summary over those that are ok."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.stats.paired import Series

# SMs of one launch in two groups that are further apart than this fraction make the row bistable.
BISTABLE = 0.005


def series(samples: Mapping[str, Sequence[Any]]) -> Series:
    """The samples of a record as a Series; busy cycles are the cycles."""
    rounds = tuple(int(r) for r in samples["round"])
    return Series(
        rounds=rounds,
        cycles=tuple(samples.get("busy_cycles") or [None] * len(rounds)),
        seconds=tuple(samples["seconds"]),
    )


def is_bistable(samples: Mapping[str, Sequence[Any]], limit: float = BISTABLE) -> bool:
    """Whether the SMs fall into two groups, further apart than `limit`, in more than a tenth of the launches.

    Two groups: between two neighbouring rates lies more than half of what separates the slowest SM from the
    fastest. A loop that can fall into either of two rhythms shows that; the SMs of a grid of several waves
    differ, too, by when their last CTAs ran alone, but by a little more from each to the next. Records
    without `gap` are judged by the spread alone.
    """
    spreads = samples.get("spread") or ()
    gaps = samples.get("gap") or spreads
    known = [
        (gap, spread)
        for gap, spread in zip(gaps, spreads, strict=False)
        if gap is not None and spread is not None
    ]
    in_two = sum(1 for gap, spread in known if gap > max(limit, spread / 2))
    return in_two > len(known) / 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Best, mean and worst over the ok rows, None without any; and how many rows have which status."""

    best: float | None
    mean: float | None
    worst: float | None
    counts: Mapping[str, int]


def summarise(
    values: Iterable[float | None], statuses: Iterable[str], *, higher_is_better: bool = True
) -> Summary:
    """Summarise one column over ok rows only: whatever a failed row holds is no number."""
    rows = list(zip(values, statuses, strict=True))
    good = [float(v) for v, status in rows if status == "ok" and v is not None and math.isfinite(v)]
    best, worst = (max, min) if higher_is_better else (min, max)
    return Summary(
        best=best(good, default=None),
        mean=sum(good) / len(good) if good else None,
        worst=worst(good, default=None),
        counts=dict(Counter(status for _, status in rows)),
    )
