"""The bootstrap distribution of a median without drawing: every resample that can be, with its probability.

A resample of n values has one of them, or the mean of two, for its median; how often follows from binomial
counts. Resampling a few builds has few outcomes, too. So what a percentile bootstrap would tend to with ever
more resamples is had at once, the same each time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# More outcomes of one series than this are drawn rather than listed.
MOST_OUTCOMES = 200_000
# Numbers held at once.
_ROOM = 4_000_000


def outcomes(builds: int, rounds: int) -> int:
    """In how many ways a resample of both levels can come out."""
    medians = rounds if rounds % 2 else rounds * (rounds + 1) // 2
    return math.comb(2 * builds - 1, builds) * medians


def drawn_medians(logs: Floats, count: int) -> Floats:
    """Median over rounds of the mean over builds, both resampled.

    [series, builds, rounds] -> [series, count].

    The result holds `count` evenly spaced quantiles of the exact distribution, ascending.
    """
    series, builds, rounds = logs.shape
    weights, of_builds = _build_weights(builds)
    low, high, of_medians = _median_weights(rounds)
    probabilities = np.multiply.outer(of_builds, of_medians).ravel()
    found = np.empty((series, count))
    for rows in _chunks(series, probabilities.size):
        mixed = np.sort(np.einsum("mb,sbr->smr", weights, logs[rows]), axis=-1)
        values = ((mixed[..., low] + mixed[..., high]) / 2).reshape(mixed.shape[0], -1)
        found[rows] = _quantiles(values, probabilities, count)
    return found


def drawn_means(values: Floats, count: int) -> Floats:
    """The mean of a few values, resampled: [n] -> `count` quantiles of its exact distribution."""
    weights, probabilities = _build_weights(values.size)
    return np.asarray(_quantiles((weights @ values)[None], probabilities, count)[0])


def _chunks(series: int, size: int) -> Iterator[slice]:
    step = max(1, _ROOM // max(size, 1))
    return (slice(start, start + step) for start in range(0, series, step))


def _quantiles(values: Floats, probabilities: Floats, count: int) -> Floats:
    order = np.argsort(values, axis=-1, kind="stable")
    reached = np.cumsum(probabilities[order], axis=-1)
    # How many of the levels (k + 1/2) / count lie under each outcome's cumulated probability.
    under = np.floor(reached / reached[:, -1:] * count + 0.5).astype(np.intp)
    under[:, -1] = count
    times = np.diff(under, axis=-1, prepend=0)
    return np.repeat(np.take_along_axis(values, order, axis=-1).ravel(), times.ravel()).reshape(-1, count)


@cache
def _build_weights(builds: int) -> tuple[Floats, Floats]:
    """The shares of each build in every multiset that can be drawn, and how often it is."""
    counts = np.array(
        [
            np.bincount(chosen, minlength=builds)
            for chosen in combinations_with_replacement(range(builds), builds)
        ]
    )
    ways = [
        math.factorial(builds) / math.prod(math.factorial(int(c)) for c in row) for row in counts.tolist()
    ]
    return counts / builds, np.array(ways) / builds**builds


@cache
def _median_weights(rounds: int) -> tuple[NDArray[np.intp], NDArray[np.intp], Floats]:
    """Ranks of the two values whose mean is a resample's median, and how often they are."""
    at_most = [
        _reached(rounds, rounds // 2 if rounds % 2 == 0 else rounds // 2 + 1, k) for k in range(rounds + 1)
    ]
    single = np.diff(at_most)  # how often the lower middle value has rank k
    ranks = np.arange(rounds)
    if rounds % 2:
        return ranks, ranks, single
    half = rounds // 2
    share = np.arange(rounds + 1) / rounds
    below, above = np.diff(share**half), np.diff(share**half)[::-1]
    joint = np.triu(math.comb(rounds, half) * np.multiply.outer(below, above), k=1)
    joint[ranks, ranks] = np.maximum(single - joint.sum(axis=1), 0.0)
    low, high = np.nonzero(joint)
    return low, high, joint[low, high]


def _reached(rounds: int, needed: int, rank: int) -> float:
    """How often at least `needed` of the values drawn have one of the `rank` lowest ranks."""
    share = rank / rounds
    return math.fsum(
        math.comb(rounds, i) * share**i * (1 - share) ** (rounds - i) for i in range(needed, rounds + 1)
    )
