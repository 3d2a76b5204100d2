"""References computed ahead, on the CPU's cores, while the GPU runs: NumPy in float64 is the slow half of
verifying."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock

import numpy as np
from threadpoolctl import threadpool_limits

from harness.model import Case, Expected, Study, Values

# Slices of the timed size that are compared whole.
SLICES = 3
# One reference takes about a hundred megabytes while it is computed.
MOST_AT_ONCE = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One comparison: a case at one size with one data fill; `slices` None compares everything."""

    case: Case
    size: str
    sizes: Values
    fill: str
    seed: int
    slices: tuple[int, ...] | None


class References:
    """Expected outputs, computed in the order in which they will be asked for, equal ones once."""

    def __init__(self, study: Study, wanted: Sequence[Wanted]) -> None:
        self._study = study
        # As many threads as cores, each with its own products: BLAS threads on top only get in the way.
        self._blas = threadpool_limits(1, user_api="blas")
        self._pool = ThreadPoolExecutor(max_workers=min(MOST_AT_ONCE, os.cpu_count() or 1))
        self._one_at_a_time = Lock()
        self._users = Counter(self._key(w) for w in wanted)
        self._futures: dict[Hashable, Future[Mapping[str, Expected]]] = {}
        for w in wanted:
            if self._key(w) not in self._futures:
                self._futures[self._key(w)] = self._pool.submit(self._compute, w)

    def take(self, wanted: Wanted) -> Mapping[str, Expected]:
        """The reference; raises what the study raised."""
        return self._futures[self._key(wanted)].result()

    def drop(self, wanted: Wanted) -> None:
        """One user less; the arrays of a reference that nobody asks for again are freed."""
        key = self._key(wanted)
        self._users[key] -= 1
        if self._users[key] <= 0:
            self._futures.pop(key, None)

    def _key(self, wanted: Wanted) -> Hashable:
        of_case = self._study.reference_key(wanted.case)
        return of_case, wanted.sizes, wanted.fill, wanted.seed, wanted.slices

    def close(self) -> None:
        """Give up what is not computed yet."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._blas.restore_original_limits()

    def _compute(self, wanted: Wanted) -> Mapping[str, Expected]:
        # One at a time: whoever comes second finds them made, where a study keeps them.
        with self._one_at_a_time:
            inputs = self._study.inputs(wanted.case, wanted.sizes, wanted.fill, wanted.seed)
        return self._study.reference(wanted.case, wanted.sizes, inputs, wanted.slices)


def wanted_checks(study: Study, case: Case, sizes: Values, fill: str, seed: int) -> tuple[Wanted, ...]:
    """Small and awkward whole, the timed size in a few seeded slices."""
    check_fill = study.fill(case, "check")
    checks = [
        Wanted(case=case, size=name, sizes=check_sizes, fill=check_fill, seed=seed, slices=None)
        for name, check_sizes in study.check_sizes(case).items()
    ]
    count = min(spec.shape[0] for spec in study.outputs(case, sizes).values())
    timed = Wanted(
        case=case, size="timed", sizes=sizes, fill=fill, seed=seed, slices=seeded_slices(count, seed)
    )
    return (*checks, timed)


def seeded_slices(count: int, seed: int) -> tuple[int, ...]:
    """SLICES distinct slice numbers below `count`, ascending, drawn from the seed."""
    generator = np.random.default_rng([seed, count])
    chosen = generator.choice(count, size=min(SLICES, count), replace=False)
    return tuple(sorted(int(i) for i in chosen))
