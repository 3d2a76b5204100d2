"""The decision rule: evidence with intervals -> one word. Knows neither records nor studies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.answer.costs import Amount

# At the ceiling: the lower end of the ratio reaches this.
CEILING_RATIO = 0.92
# A part or a gain that is worth a name, as a fraction of full's cost.
WORTH = 0.05
# Under this fraction of the clock of a light kernel the power limit is at work.
POWER_CLOCK = 0.97

Word = Literal["at-ceiling", "part-bound", "latency-bound", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """The exposed cost of one part, or of parts that go together, as a fraction of full's cost.

    `booked` is False where removing it changed something else, too, that may have made the difference.
    """

    parts: tuple[str, ...]
    fraction: Amount
    booked: bool = True

    @property
    def name(self) -> str:
        """Its parts, joined."""
        return " + ".join(self.parts)

    @property
    def counts(self) -> bool:
        """Whether it can be named: large enough, clear of noise, and its own."""
        return self.booked and self.fraction.clear and self.fraction.value >= WORTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """What more parallelism saves, as a fraction of full's cost; `what` is what there is more of."""

    what: str
    case: str
    fraction: Amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that the rule looks at.

    Args:
        ratio: throughput of full over the ceiling of its path, None where no ceiling is known.
        floor_ratio: the same of the floor; of full itself where nothing can be stripped.
        exposed: rows that were measured. unmeasured: parts that no measured row holds.
        ties: pairs of names that noise does not part.
        clock: SM clock run over that of a light kernel on the same board, None where unknown.
    """

    ratio: Amount | None = None
    floor_ratio: Amount | None = None
    exposed: tuple[Exposed, ...] = ()
    unmeasured: tuple[str, ...] = ()
    ties: frozenset[frozenset[str]] = field(default_factory=frozenset)
    gains: tuple[Gain, ...] = ()
    clock: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The word, and what it names.

    Args:
        named: the parts that bind, most first; those in one tuple are not separable from each other.
        gains: what more parallelism gains, clear and worth it, most first.
        low_floor: whether the floor itself stays under the ceiling.
        power_limited: at-ceiling only: the clock gave way.
        doubtful: rows large enough to name that noise or a side effect forbids to.
    """

    word: Word
    named: tuple[tuple[str, ...], ...] = ()
    gains: tuple[Gain, ...] = ()
    low_floor: bool = False
    power_limited: bool = False
    doubtful: tuple[str, ...] = ()


def decide(evidence: Evidence) -> Decision:
    """The verdict's word. The order of anything in the evidence does not matter."""
    if evidence.ratio is not None and evidence.ratio.low >= CEILING_RATIO:
        limited = evidence.clock is not None and evidence.clock < POWER_CLOCK
        return Decision(word="at-ceiling", power_limited=limited)
    named = _named(evidence)
    if named:
        return Decision(word="part-bound", named=_joined(named, evidence.ties))
    doubtful = tuple(sorted(e.name for e in evidence.exposed if e.fraction.value >= WORTH))
    gains = tuple(
        sorted(
            (g for g in evidence.gains if g.fraction.clear and g.fraction.value >= WORTH),
            key=lambda gain: (-gain.fraction.value, gain.what, gain.case),
        )
    )
    low_floor = evidence.floor_ratio is not None and evidence.floor_ratio.high < CEILING_RATIO
    settled = not doubtful and not evidence.unmeasured
    if settled and (gains or low_floor) and _below_ceiling(evidence.ratio):
        return Decision(word="latency-bound", gains=gains, low_floor=low_floor)
    return Decision(word="unclear", gains=gains, low_floor=low_floor, doubtful=doubtful)


def _below_ceiling(ratio: Amount | None) -> bool:
    """Whether full is not at the ceiling for all that is known."""
    return ratio is None or ratio.high < CEILING_RATIO


def _named(evidence: Evidence) -> list[Exposed]:
    """The rows to name: of parts that go together, the group where it clearly costs more than its part."""
    chosen: list[Exposed] = []
    rows = sorted((e for e in evidence.exposed if e.counts), key=lambda e: (len(e.parts), e.name))
    for row in rows:
        inside = [e for e in chosen if set(e.parts) < set(row.parts)]
        most = max((e.fraction.value for e in inside), default=0.0)
        more = row.fraction.value - most >= WORTH
        tied = any(frozenset((e.name, row.name)) in evidence.ties for e in inside)
        if not inside or (more and not tied):
            chosen = [e for e in chosen if e not in inside] + [row]
    return chosen


def _joined(rows: Sequence[Exposed], ties: frozenset[frozenset[str]]) -> tuple[tuple[str, ...], ...]:
    """Names, most costly first, with those that noise does not part from a neighbour in one tuple."""
    ordered = sorted(rows, key=lambda e: (-e.fraction.value, e.name))
    groups: list[list[str]] = []
    for row in ordered:
        if groups and any(frozenset((name, row.name)) in ties for name in groups[-1]):
            groups[-1].append(row.name)
        else:
            groups.append([row.name])
    return tuple(tuple(sorted(group)) for group in groups)
