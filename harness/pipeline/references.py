"""References computed ahead, on the CPU's cores, while the GPU runs: NumPy in float64 is the slow half of
verifying."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from harness.key import digest
from harness.model import Case, Expected, Study, Values

# Slices of the timed size that are compared whole.
SLICES = 3
# One reference of the timed size takes a gigabyte while it is computed.
MOST_AT_ONCE = 6


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
    """Expected outputs by (case name, size); submitted in the order in which they will be asked for."""

    def __init__(self, study: Study, wanted: Sequence[Wanted]) -> None:
        self._study = study
        self._pool = ThreadPoolExecutor(max_workers=min(MOST_AT_ONCE, os.cpu_count() or 1))
        self._futures: dict[tuple[str, str], Future[Mapping[str, Expected]]] = {
            (w.case.name, w.size): self._pool.submit(self._compute, w) for w in wanted
        }

    def take(self, wanted: Wanted) -> Mapping[str, Expected]:
        """The reference; raises what the study raised."""
        return self._futures[wanted.case.name, wanted.size].result()

    def drop(self, wanted: Wanted) -> None:
        """Free the arrays of a reference that nobody asks for again."""
        self._futures.pop((wanted.case.name, wanted.size), None)

    def close(self) -> None:
        """Give up what is not computed yet."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _compute(self, wanted: Wanted) -> Mapping[str, Expected]:
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
        case=case, size="timed", sizes=sizes, fill=fill, seed=seed, slices=seeded_slices(count, case, seed)
    )
    return (*checks, timed)


def seeded_slices(count: int, case: Case, seed: int) -> tuple[int, ...]:
    """SLICES distinct slice numbers below `count`, ascending, drawn from the seed and the case."""
    generator = np.random.default_rng([seed, int(digest(str(case))[:8], 16)])
    chosen = generator.choice(count, size=min(SLICES, count), replace=False)
    return tuple(sorted(int(i) for i in chosen))
