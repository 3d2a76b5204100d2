"""The values that attributing yields: what each part costs in one group of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harness.answer.costs import Amount
from harness.model import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One part, or parts that can go only together. Costs in the unit of the attribution, None: not measured.

    Args:
        exposed: full minus full without it. intrinsic: floor with it minus floor.
        overlap: 1 - exposed/intrinsic where that has a meaning; else `difference` is exposed - intrinsic.
        relation: what the two say of each other: "overlap", "synergy", "code generation", "within noise".
        share: the part's mean marginal cost over the admissible orders of removal.
        confounded: what else removing it changed, so that its cost cannot be booked on it; else empty.
    """

    parts: tuple[str, ...]
    exposed: Amount | None = None
    intrinsic: Amount | None = None
    overlap: Amount | None = None
    difference: Amount | None = None
    relation: str = ""
    share: Amount | None = None
    confounded: str = ""

    @property
    def name(self) -> str:
        """Its parts, joined."""
        return " + ".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marginal:
    """What one step of a level sweep saves, from the level before it."""

    part: str
    before: Level
    after: Level
    cost: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The costs of one group. `ties` are pairs of row names whose exposed costs noise does not part.

    Args:
        unit: of every cost. full, floor: costs of the two ends; floor None when it was not measured.
        total: full minus floor. depth: the level that each part was stripped to.
        rows: parts and groups, in the study's order. marginals: the level sweeps.
        missing: admissible sets that were not measured, as "parts: status".
        no_share: why there are no shares; empty when there are.
    """

    unit: str
    full: float
    floor: float | None
    floor_case: str | None
    total: Amount | None
    depth: Mapping[str, Level]
    rows: tuple[Row, ...]
    marginals: tuple[Marginal, ...]
    ties: frozenset[frozenset[str]]
    missing: tuple[str, ...]
    no_share: str
    rounds: int
    builds_sampled: bool

    def row(self, *parts: str) -> Row:
        """The row of a part, or of parts together; KeyError when there is none."""
        for row in self.rows:
            if set(row.parts) == set(parts):
                return row
        raise KeyError(" + ".join(parts))
