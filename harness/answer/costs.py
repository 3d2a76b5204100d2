"""Records of one run -> what each case costs per tile of work, and how sure that is.

Costs are ratios to full within each round, so that what a whole round shares cancels, then scaled by full's
median. Two noises are drawn together: rounds are resampled, and between builds of trivially different text
the mean is moved by Student's t, as the few builds there are spread less than those one could have made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.key import digest
from harness.stats import Interval, Rule, Series
from harness.stats.resampling import Floats, distribution

Json = Mapping[str, Any]
# FLOPs of one warp-level m16n8k16: the unit of work where a record does not say its tile.
MMA_FLOPS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Amount:
    """A signed figure with its interval; `clear` when it stands out of every noise there is."""

    value: float
    low: float
    high: float
    clear: bool = False

    def scaled(self, factor: float) -> Amount:
        """The same in another unit; `factor` is positive."""
        return Amount(
            value=self.value * factor, low=self.low * factor, high=self.high * factor, clear=self.clear
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Cost of each case per tile of work, in `unit`; `draws` hold both noises, a column per resample.

    `builds_sampled` says whether any case was timed in more than one build.
    """

    unit: str
    full: float
    relative: Mapping[str, float]
    draws: Mapping[str, Floats]
    rounds: int
    builds_sampled: bool
    rule: Rule

    def value(self, case: str) -> float:
        """Cost of a case, in `unit`."""
        return self.relative[case] * self.full

    def amount(self, weights: Mapping[str, float]) -> Amount:
        """A weighted sum of costs, in `unit`; `clear` is whether its interval leaves out zero."""
        point = math.fsum(weight * self.relative[case] for case, weight in weights.items())
        drawn = sum(weight * self.draws[case] for case, weight in sorted(weights.items()))
        return self.between(point, np.asarray(drawn)).scaled(self.full)

    def between(self, point: float, drawn: Floats) -> Amount:
        """A figure and the percentile interval of its draws, widened to hold the figure itself."""
        tail = (1 - self.rule.confidence) / 2
        low, high = (float(v) for v in np.quantile(drawn, [tail, 1 - tail]))
        low, high = min(low, point), max(high, point)
        return Amount(value=point, low=low, high=high, clear=Interval(low=low, high=high).excludes(0.0))


def tile_flops(record: Json) -> tuple[float, str]:
    """FLOPs of one tile of work and its name: a trip of one CTA's main loop, else one MMA."""
    work, launch = record.get("work") or {}, record.get("launch") or {}
    trips, flops = work.get("iterations"), work.get("flops")
    if trips and flops and launch.get("grid"):
        return flops / (math.prod(launch["grid"]) * trips), "trip of a CTA"
    return float(work.get("flops_per_mma") or MMA_FLOPS), "MMA"


def series_of(record: Json, sms: int, flops: float) -> Series:
    """The samples of a record as SM cycles, and SM seconds, per `flops` FLOPs of work."""
    samples = record["samples"]
    share = sms * flops / record["work"]["flops"]
    rounds = tuple(int(r) for r in samples["round"])

    def scaled(name: str) -> tuple[float | None, ...]:
        column = samples.get(name) or [None] * len(rounds)
        return tuple(None if value is None else value * share for value in column)

    return Series(rounds=rounds, cycles=scaled("busy_cycles"), seconds=scaled("seconds"))


def costs_of(cases: Mapping[str, Mapping[int, Series]], full: str, unit: str, rule: Rule) -> Costs | None:
    """Costs of cases in the rounds they share; None when full is absent or fewer than two are shared.

    `cases` is case -> perturbation -> samples per tile. Where no cycles are known, seconds are taken.
    """
    for column in ("cycles", "seconds"):
        tables, rounds = _tables(cases, full, column)
        if full in tables and rounds >= 2:
            name = f"SM {column if column == 'cycles' else 'ns'} per {unit}"
            return _drawn(tables, full, rounds, name, 1.0 if column == "cycles" else 1e9, rule)
    return None


def _tables(
    cases: Mapping[str, Mapping[int, Series]], full: str, column: str
) -> tuple[dict[str, Floats], int]:
    """Case -> samples [builds, rounds] over the rounds that every build of every case shares."""
    found = {
        case: [values for _, series in sorted(builds.items()) if (values := _valid(series, column))]
        for case, builds in sorted(cases.items())
    }
    found = {case: builds for case, builds in found.items() if builds}
    if full not in found:
        return {}, 0
    rounds = sorted(set.intersection(*(set(v) for builds in found.values() for v in builds)))
    tables = {
        case: np.array([[values[r] for r in rounds] for values in builds]) for case, builds in found.items()
    }
    return tables, len(rounds)


def _valid(series: Series, column: str) -> dict[int, float]:
    values: Sequence[float | None] = getattr(series, column)
    return {
        r: float(v)
        for r, v in zip(series.rounds, values, strict=True)
        if v is not None and math.isfinite(v) and v > 0
    }


def _drawn(
    tables: Mapping[str, Floats], full: str, rounds: int, unit: str, scale: float, rule: Rule
) -> Costs:
    base = tables[full].mean(axis=0)
    names = sorted(tables)
    means = np.stack([tables[name].mean(axis=0) / base for name in names])
    builds = {name: np.median(tables[name] / base, axis=1) for name in names}

    def medians(drawn: NDArray[np.intp], axis: int) -> Floats:
        return np.asarray(np.median(means[:, drawn], axis=-1))

    across = distribution((np.arange(rounds),), medians, rule, rule.resamples, means.size)
    relative = {name: float(np.median(row)) for name, row in zip(names, means, strict=True)}
    several = [values for values in builds.values() if values.size > 1]
    freedom = sum(values.size - 1 for values in several)
    pooled = math.sqrt(sum(_relative_squares(values) for values in several) / freedom) if freedom else 0.0
    draws = {
        name: row + _build_noise(name, builds[name], relative[name], pooled, freedom, row.size, rule)
        for name, row in zip(names, across, strict=True)
    }
    return Costs(
        unit=unit,
        full=float(np.median(base)) * scale,
        relative=relative,
        draws=draws,
        rounds=rounds,
        builds_sampled=bool(several),
        rule=rule,
    )


def _relative_squares(values: Floats) -> float:
    return float(np.sum((values / values.mean() - 1) ** 2))


def _build_noise(
    name: str, builds: Floats, relative: float, pooled: float, freedom: int, count: int, rule: Rule
) -> Floats | float:
    """What another choice of builds would move the mean by. A case of one build takes the others' spread."""
    if not freedom:
        return 0.0
    if builds.size > 1:
        error, degrees = float(builds.std(ddof=1)) / math.sqrt(builds.size), builds.size - 1
    else:
        error, degrees = pooled * relative, freedom
    # The seed is the case's own, so that neither the order nor the number of the others matters.
    generator = np.random.default_rng((rule.seed, int(digest(name)[:15], 16)))
    return error * generator.standard_t(degrees, count)
