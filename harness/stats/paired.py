"""Two cases timed in the same rounds: the ratio within each round, resampled over rounds and over builds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from harness.stats.exact import MOST_OUTCOMES, drawn_means, drawn_medians, outcomes
from harness.stats.resampling import (
    Floats,
    Interval,
    Rule,
    by_shape,
    distribution,
    interval_of_logs,
    intervals,
    p_values,
    resamples_for,
)

Metric = Literal["cycles", "seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The samples of one build, by round. A value that is None, not finite or not positive does not count."""

    rounds: tuple[int, ...]
    cycles: tuple[float | None, ...]
    seconds: tuple[float | None, ...]


Builds = Mapping[int, Series]  # perturbation -> samples


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A case and the full case it is compared with, each in one or more builds timed in the same rounds.

    `same_source` says that both are the same text: then code generation cannot differ between them.
    """

    name: str
    case: Builds
    full: Builds
    same_source: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """An effect in one metric; `theta`, `spread` and `margin` are log ratios, the intervals ratios.

    `spread` is the range over builds; an effect up to `margin` may be code generation alone.
    """

    theta: float
    run: Interval
    codegen: Interval | None
    total: Interval
    p: float
    spread: float
    margin: float
    separated: bool
    rounds: int
    builds: int


def judge(pairs: Sequence[Pair], metric: Metric, rule: Rule, *, detail: bool) -> list[Judged | None]:
    """Every pair in one metric; None with fewer than two common rounds.

    Without `detail` only `total` and p are worked out with care.
    """
    tables = [_log_tables(pair, metric) for pair in pairs]
    resamples = resamples_for(len(pairs), rule)
    judged: list[Judged | None] = [None] * len(pairs)
    for members in by_shape([table[0] for table in tables]):
        case = np.stack([tables[i][0] for i in members])
        full = np.stack([tables[i][1] for i in members])
        if case.shape[1] == 0 or case.shape[2] < 2:
            continue
        same = [pairs[i].same_source for i in members]
        found = _resample(case, full, same, rule, resamples, detail=detail)
        for i, value in zip(members, found, strict=True):
            judged[i] = value
    return judged


def _resample(
    case: Floats, full: Floats, same_source: Sequence[bool], rule: Rule, resamples: int, *, detail: bool
) -> list[Judged]:
    """Judge a stack of log samples [pairs, builds, rounds]."""
    logs = case - full
    pairs, builds, rounds = logs.shape
    theta = np.median(logs.mean(axis=1), axis=-1)
    medians = np.median(logs, axis=-1)
    separated = _separated(case, full, rule) if detail else np.ones(pairs, dtype=bool)
    across_rounds = (
        _draw(logs.mean(axis=1, keepdims=True), rule, resamples) if detail or builds == 1 else None
    )
    across_both = _draw(logs, rule, resamples) if builds > 1 else across_rounds
    found = []
    for i in range(pairs):
        one_source = same_source[i] or builds == 1
        drawn = across_rounds if one_source and across_rounds is not None else across_both
        assert drawn is not None
        total = interval_of_logs(drawn[i], rule)
        found.append(
            Judged(
                theta=float(theta[i]),
                run=total if across_rounds is None else interval_of_logs(across_rounds[i], rule),
                codegen=None if one_source or not detail else _codegen(medians[i], rule),
                total=total,
                p=float(p_values(drawn[i])),
                spread=0.0 if one_source else float(np.ptp(medians[i])),
                margin=0.0 if one_source else _margin(medians[i], rule),
                separated=bool(separated[i]),
                rounds=rounds,
                builds=builds,
            )
        )
    return found


def _draw(logs: Floats, rule: Rule, resamples: int) -> Floats:
    """The effect with rounds and builds both resampled: [pairs, builds, rounds] -> [pairs, resamples].

    Where there are few enough outcomes they are listed with their probabilities; else SciPy resamples the
    indices of the two levels, independently. Builds are averaged within a round, so that a round stays
    whole and what all its samples share cancels.
    """
    pairs, builds, rounds = logs.shape
    if outcomes(builds, rounds) <= MOST_OUTCOMES:
        return drawn_medians(logs, resamples)

    def effect(drawn_rounds: NDArray[np.intp], drawn_builds: NDArray[np.intp], axis: int) -> Floats:
        weights = (drawn_builds[..., None] == np.arange(builds)).mean(axis=-2)
        mixed = np.tensordot(weights, logs, axes=([-1], [1]))  # [B, pairs, rounds]
        chosen = np.take_along_axis(mixed, np.expand_dims(drawn_rounds, -2), axis=-1)
        return np.moveaxis(np.median(chosen, axis=-1, overwrite_input=True), 0, -1)

    indices = (np.arange(rounds), np.arange(builds) if builds > 1 else np.zeros(2, dtype=int))
    return distribution(indices, effect, rule, resamples, pairs * rounds * 2)


def _margin(medians: Floats, rule: Rule) -> float:
    """What an effect must exceed to be more than code generation: the range over builds, and Student's bound.

    Two or three builds that happen to agree show a range far below that of the builds one could have made.
    """
    count = medians.size
    bound = student.ppf((1 + rule.confidence) / 2, count - 1) * medians.std(ddof=1) / math.sqrt(count)
    return float(max(np.ptp(medians), bound))


def _codegen(medians: Floats, rule: Rule) -> Interval:
    """The interval of the mean over builds when only they are resampled."""
    if outcomes(medians.size, 1) <= MOST_OUTCOMES:
        return interval_of_logs(drawn_means(medians, rule.resamples), rule)
    return interval_of_logs(distribution((medians,), np.mean, rule, rule.resamples, medians.size), rule)


def _separated(case: Floats, full: Floats, rule: Rule) -> NDArray[np.bool_]:
    """Whether the two cases' own median intervals share no point, per pair of a stack of log samples."""
    a, b = (_own_intervals(side.mean(axis=1, keepdims=True), rule) for side in (case, full))
    return np.asarray((a[:, 0] > b[:, 1]) | (b[:, 0] > a[:, 1]))


def _own_intervals(logs: Floats, rule: Rule) -> Floats:
    """Median intervals of a stack of log samples [pairs, 1, rounds] -> [pairs, 2]."""
    if outcomes(1, logs.shape[-1]) > MOST_OUTCOMES:
        return intervals(logs[:, 0], rule, resamples=999)
    tail = (1 - rule.confidence) / 2
    return np.quantile(drawn_medians(logs, 999), [tail, 1 - tail], axis=-1).T


def _log_tables(pair: Pair, metric: Metric) -> tuple[Floats, Floats]:
    """Logs of case and full, [builds, rounds], over the rounds that all builds share.

    A perturbation that one side lacks, because it changed nothing of its code, is that side's first build.
    """
    sides = [
        {build: _valid(series, metric) for build, series in side.items() if _valid(series, metric)}
        for side in (pair.case, pair.full)
    ]
    if not all(sides):
        return np.empty((0, 0)), np.empty((0, 0))
    builds = sorted(set(sides[0]) | set(sides[1]))
    used = [[side.get(build, side[min(side)]) for build in builds] for side in sides]
    rounds = sorted(set.intersection(*(set(samples) for side in used for samples in side)))
    case, full = (np.log([[samples[r] for r in rounds] for samples in side]) for side in used)
    return case.reshape(len(builds), -1), full.reshape(len(builds), -1)


def _valid(series: Series, metric: Metric) -> dict[int, float]:
    values = series.cycles if metric == "cycles" else series.seconds
    return {
        r: float(v)
        for r, v in zip(series.rounds, values, strict=True)
        if v is not None and math.isfinite(v) and v > 0
    }
