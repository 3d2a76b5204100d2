"""What can be stripped from a full case: the admissible sets of parts, and the orders of removing them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from harness.model import Level, Study, Values

Parts = frozenset[str]
"""Names of parts, stripped together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """Every set of parts that can be stripped together, each part down to one level.

    Args:
        depth: part -> the level that strips it.
        members: stripped set -> the levels of that case. Holds the empty set (full).
    """

    depth: Mapping[str, Level]
    members: Mapping[Parts, Values]

    @property
    def floor(self) -> Parts:
        """The largest admissible set: everything stripped that can be."""
        return max(self.members, key=lambda parts: (len(parts), sorted(parts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a study lets one take from one full case.

    Args:
        parts: names of what can be stripped, in the order of the study's columns.
        lattices: one per choice of how far each part is stripped, the deepest first.
        sweeps: part with several strips -> (level, levels of that case), least removed first.
        parallel: axes whose levels add independent work.
    """

    parts: tuple[str, ...]
    full: Values
    lattices: tuple[Lattice, ...]
    sweeps: Mapping[str, tuple[tuple[Level, Values], ...]] = field(default_factory=dict)
    parallel: tuple[str, ...] = ()


def shape_of(study: Study, full: Values, configuration: Values) -> Shape:
    """What `study` lets one strip from the full case of these levels, by its own constraint."""
    present = [s for s in study.switches if s.is_part and full[s.name] == s.baseline]

    def allowed(levels: Values) -> bool:
        return study.constraint(levels, configuration) is None

    lattices = tuple(
        _lattice(full, dict(zip((s.name for s in present), depth, strict=True)), allowed)
        for depth in itertools.product(*(tuple(reversed(s.strips)) for s in present))
    )
    sweeps = {
        s.name: tuple((level, full.replace(**{s.name: level})) for level in s.strips)
        for s in present
        if len(s.strips) > 1
    }
    allowed_sweeps = {
        name: tuple((level, levels) for level, levels in steps if allowed(levels))
        for name, steps in sweeps.items()
    }
    return Shape(
        parts=tuple(s.name for s in present),
        full=full,
        lattices=lattices,
        sweeps=allowed_sweeps,
        parallel=study.parallel,
    )


def _lattice(full: Values, depth: Mapping[str, Level], allowed: object) -> Lattice:
    assert callable(allowed)
    members = {}
    for size in range(len(depth) + 1):
        for names in itertools.combinations(depth, size):
            levels = full.replace(**{name: depth[name] for name in names})
            if not names or allowed(levels):
                members[frozenset(names)] = levels
    return Lattice(depth=depth, members=members)


def orders(sets: Collection[Parts]) -> tuple[tuple[str, ...], ...]:
    """Every order of removing all parts of the largest set one by one with each step admissible."""
    top = max(sets, key=len, default=frozenset())
    found: list[tuple[str, ...]] = []

    def extend(order: tuple[str, ...]) -> None:
        if len(order) == len(top):
            found.append(order)
        for name in sorted(top - set(order)):
            if frozenset((*order, name)) in sets:
                extend((*order, name))

    extend(())
    return tuple(found)


def share_weights(sets: Collection[Parts]) -> dict[str, dict[Parts, float]]:
    """Part -> weight of each set's cost in its share: the mean over all orders of the cost that its removal
    saves. Over the parts the weights add up to full minus floor."""
    every = orders(sets)
    weights: dict[str, Counter[Parts]] = {name: Counter() for name in max(sets, key=len, default=())}
    for order in every:
        for position, name in enumerate(order):
            before = frozenset(order[:position])
            weights[name][before] += 1
            weights[name][before | {name}] -= 1
    return {
        name: {parts: count / len(every) for parts, count in sorted(found.items(), key=_by_name) if count}
        for name, found in weights.items()
        if every
    }


def _by_name(item: tuple[Parts, int]) -> tuple[int, list[str]]:
    return len(item[0]), sorted(item[0])


def smallest_holding(sets: Iterable[Parts], name: str) -> Parts | None:
    """The smallest admissible set that strips `name`: the part, with what must go before it."""
    holding = [parts for parts in sets if name in parts]
    return min(holding, key=lambda parts: (len(parts), sorted(parts)), default=None)


def largest_without(sets: Iterable[Parts], name: str) -> Parts | None:
    """The largest admissible set that keeps `name`: the floor with the part, and what cannot go then."""
    keeping = [parts for parts in sets if name not in parts]
    return max(keeping, key=lambda parts: (len(parts), sorted(parts)), default=None)


def removable(sets: Collection[Parts]) -> tuple[Parts, ...]:
    """The groups of parts that a table has a row for, smallest first.

    Each part; and where it cannot go first, or cannot be the only one left, the group it goes with.
    """
    top = max(sets, key=len, default=frozenset())
    groups = {frozenset({name}) for name in top}
    for name in top:
        closure, kept = smallest_holding(sets, name), largest_without(sets, name)
        groups |= {closure} if closure else set()
        groups |= {top - kept} if kept is not None else set()
    return tuple(sorted(groups, key=lambda parts: (len(parts), sorted(parts))))
