"""Percentile-bootstrap intervals through SciPy, vectorised (BCa gives nan on ties, and cycles tie)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import bootstrap

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What it takes to say a word.

    Args:
        confidence: of every interval; 1 - confidence is the error that Holm's correction spends on a table.
        min_ratio: the smallest effect worth a word, as a fraction; "same" means within it.
        min_rounds: with fewer common rounds every word is "unclear".
        resamples: bootstrap resamples, at least; a long table takes more, so that a claim stays possible.
        seed: of the resampling.
    """

    confidence: float = 0.95
    min_ratio: float = 0.005
    min_rounds: int = 5
    resamples: int = 1999
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A closed interval; of a ratio unless said otherwise."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low

    def excludes(self, value: float) -> bool:
        """Whether `value` lies outside."""
        return not self.low <= value <= self.high

    def overlaps(self, other: Interval) -> bool:
        """Whether the two share a point."""
        return self.low <= other.high and other.low <= self.high


def median(values: Iterable[float]) -> float:
    """The median of one or more finite values; ValueError when there are none."""
    found = [float(v) for v in values if math.isfinite(v)]
    if not found:
        raise ValueError("no finite value to take the median of")
    return float(np.median(found))


def intervals(values: Floats, rule: Rule, *, resamples: int | None = None) -> Floats:
    """Percentile-bootstrap intervals of the median along the last axis: [..., n] -> [..., 2].

    With fewer than two values nothing is known of the spread: -inf and inf.
    """
    if values.shape[-1] < 2:
        return np.broadcast_to(np.array([-np.inf, np.inf]), (*values.shape[:-1], 2)).copy()
    found = bootstrap(
        (values,),
        np.median,
        n_resamples=resamples or rule.resamples,
        batch=_batch(values.size),
        vectorized=True,
        axis=-1,
        confidence_level=rule.confidence,
        method="percentile",
        rng=np.random.default_rng(rule.seed),
    ).confidence_interval
    return np.stack([found.low, found.high], axis=-1)


def interval(values: Iterable[float], rule: Rule | None = None) -> Interval:
    """The percentile-bootstrap interval of the median of some values."""
    low, high = intervals(np.array([float(v) for v in values]), rule or Rule())
    return Interval(low=float(low), high=float(high))


def relative_widths(ratios: Sequence[Floats], rule: Rule, *, resamples: int = 499) -> Floats:
    """Width of each series' median interval over its median; lengths may differ. inf where unknown."""
    widths = np.full(len(ratios), np.inf)
    for members in by_shape(ratios):
        stack = np.stack([ratios[i] for i in members])
        if stack.shape[-1] >= 2:
            found = intervals(stack, rule, resamples=resamples)
            widths[members] = (found[:, 1] - found[:, 0]) / np.median(stack, axis=-1)
    return widths


def unpaired(
    case: Iterable[float], full: Iterable[float], rule: Rule | None = None
) -> tuple[float, Interval, float]:
    """Ratio of medians of samples that share no rounds, its interval, and the two-sided p of a ratio of 1."""
    return unpaired_builds([(tuple(case), tuple(full))], rule)


def unpaired_builds(
    builds: Sequence[tuple[Sequence[float], Sequence[float]]], rule: Rule | None = None
) -> tuple[float, Interval, float]:
    """The same over several builds (case, full): the geometric mean of their ratios; values are positive.

    With a single value on a side nothing is known of the spread: the interval is 0 to inf, p is 1.
    """
    rule = rule or Rule()
    sides = [np.log(side) for pair in builds for side in pair]
    signs = [1 if i % 2 == 0 else -1 for i in range(len(sides))]

    def difference(*data: Floats, axis: int) -> Floats:
        medians = [sign * np.median(side, axis=axis) for sign, side in zip(signs, data, strict=True)]
        return np.asarray(sum(medians) / len(builds))

    ratio = math.exp(difference(*sides, axis=-1))
    if min(side.size for side in sides) < 2:
        return ratio, Interval(low=0.0, high=math.inf), 1.0
    drawn = distribution(tuple(sides), difference, rule, rule.resamples, sum(side.size for side in sides))
    return ratio, interval_of_logs(drawn, rule), float(p_values(drawn))


def resamples_for(tests: int, rule: Rule) -> int:
    """Resamples that keep a claim possible after Holm over so many tests.

    The smallest p, 2/(resamples + 1), has to stay under its share of the error.
    """
    return max(rule.resamples, math.ceil(3 * tests / (1 - rule.confidence)))


def distribution(data: tuple[Any, ...], statistic: Any, rule: Rule, resamples: int, size: int) -> Floats:
    """SciPy's bootstrap distribution of a vectorised statistic, resamples last."""
    return np.asarray(
        bootstrap(
            data,
            statistic,
            n_resamples=resamples,
            batch=_batch(size),
            vectorized=True,
            paired=False,
            axis=-1,
            method="percentile",
            rng=np.random.default_rng(rule.seed),
        ).bootstrap_distribution
    )


def _batch(size: int) -> int:
    """Resamples at a time, so that a step holds some 16 MB."""
    return max(1, 2_000_000 // max(size, 1))


def interval_of_logs(drawn: Floats, rule: Rule) -> Interval:
    """The percentile interval of drawn log ratios, as ratios."""
    tail = (1 - rule.confidence) / 2
    low, high = np.exp(np.quantile(drawn, [tail, 1 - tail]))
    return Interval(low=float(low), high=float(high))


def p_values(drawn: Floats) -> Floats:
    """Two-sided bootstrap p of zero along the last axis, never below what the resamples can show."""
    count = drawn.shape[-1] + 1
    below = (1 + np.sum(drawn <= 0, axis=-1)) / count
    above = (1 + np.sum(drawn >= 0, axis=-1)) / count
    return np.asarray(np.minimum(1.0, 2 * np.minimum(below, above)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction: adjusted p values, in the given order."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.asarray(p_values)[order] * (len(order) - np.arange(len(order)))
    adjusted = np.empty(len(order))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(scaled)) if len(order) else []
    return [float(p) for p in adjusted]


def by_shape(arrays: Sequence[Floats]) -> list[list[int]]:
    """Positions of the arrays of each shape."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, array in enumerate(arrays):
        groups.setdefault(array.shape, []).append(i)
    return list(groups.values())
