"""Short names for the rows of one table: what is stripped relative to full, grouped by full.

A block is led by a full case that several rows are compared with; the few rows of other axes stand in the
block they share most levels with, named by those axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.publish.known import StudyFacts

Row = Mapping[str, Any]
Levels = Mapping[str, Any]

# With fewer rows compared with it, a full case joins another one's block.
_LEAST_OF_BLOCK = 3
OTHER_CONFIGURATIONS = "ceiling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """Where a row stands and what it is called there; `block` is a subtitle, empty for a lone block."""

    block: int
    subtitle: str
    text: str


def labels(rows: Sequence[Row], facts: StudyFacts) -> list[Label]:
    """One label per row, in their order; distinct cases of a block have distinct labels."""
    named: dict[str, Row] = {}
    for row in rows:
        named.setdefault(str(row["case"]), row)
    own = [named.get(_full_of(row, named), row) for row in rows]
    leaders = _leaders(rows, own)
    placed = [_nearest(full, leaders) for full in own]
    floors = _floors(rows, own, facts)
    found = []
    for row, full, place in zip(rows, own, placed, strict=True):
        leader = leaders[place]
        text = _label(row, full, leader, floors.get(str(full["case"]), {}), facts)
        if row["slug"] and row["slug"] != leader["slug"]:
            text += f" @{row['slug']}"
        if row["problem"] != leader["problem"]:
            text += f" +{row['problem']}"
        found.append(Label(block=place, subtitle=_subtitle(leader, leaders), text=text))
    return _distinct(rows, found)


def _full_of(row: Row, named: Mapping[str, Row]) -> str:
    """The case a row is compared with; one that others are compared with at its own configuration is full."""
    full = named.get(str(row["full"]))
    if full is not None and row["set"] == "full":
        return str(row["case"])
    return str(row["full"])


def _leaders(rows: Sequence[Row], own: Sequence[Row]) -> list[Row]:
    """The full cases that lead a block, in the order of the rows; the first row's where none has enough."""
    compared = {
        (str(full["case"]), str(row["case"]))
        for row, full in zip(rows, own, strict=True)
        if row["case"] != full["case"] and row["set"] != OTHER_CONFIGURATIONS
    }
    counts = Counter(full for full, _ in compared)
    fulls = list({str(full["case"]): full for full in own}.values())
    rich = [full for full in fulls if counts[str(full["case"])] >= _LEAST_OF_BLOCK]
    return rich or fulls[:1]


def _nearest(full: Row, leaders: Sequence[Row]) -> int:
    """The leader with the most levels in common, the same configuration if it can be; ties: the first."""
    levels = dict(full["levels"])

    def score(leader: Row) -> tuple[bool, int, bool]:
        shared = sum(levels.get(name) == level for name, level in leader["levels"])
        return (leader["case"] == full["case"], shared, leader["slug"] == full["slug"])

    return max(range(len(leaders)), key=lambda i: score(leaders[i]))


def _floors(rows: Sequence[Row], own: Sequence[Row], facts: StudyFacts) -> dict[str, dict[str, Any]]:
    """Full's name -> the deepest level of each part that any of its rows strips."""
    found: dict[str, dict[str, Any]] = {}
    for row, full in zip(rows, own, strict=True):
        deepest = found.setdefault(str(full["case"]), {})
        for name, level in _changes(row, full).items():
            strips = _strips(name, level, facts)
            if level in strips and (name not in deepest or strips.index(level) > strips.index(deepest[name])):
                deepest[name] = level
    return found


def _strips(name: str, level: Any, facts: StudyFacts) -> list[Any]:
    """The stripping levels of a switch; of a study that nobody knows, "stripped" strips."""
    if facts.parts:
        return list(facts.parts.get(name, ()))
    return [level] if level in ("stripped", "none") else []


def _changes(row: Row, full: Row) -> dict[str, Any]:
    before = dict(full["levels"])
    return {name: level for name, level in row["levels"] if before.get(name) != level}


def _label(row: Row, full: Row, leader: Row, floor: Levels, facts: StudyFacts) -> str:
    axes = [
        f"{name}={level}"
        for name, level in _changes(full, leader).items()
        if name not in facts.parts and not _strips(name, level, facts)
    ]
    changes = _changes(row, full)
    stripped = {n: level for n, level in changes.items() if level in _strips(n, level, facts)}
    axes += [f"{name}={level}" for name, level in changes.items() if name not in stripped]
    text = ", ".join(axes)
    what = _stripped_text(row, full, stripped, floor, facts)
    named = ", ".join(part for part in (text, what, str(row.get("peer") or "")) if part)
    return named or _full_text(full, facts)


def _full_text(full: Row, facts: StudyFacts) -> str:
    """`full`; of a study of one axis, where each case is its own full, with its level."""
    levels = [f"{name}={level}" for name, level in full["levels"]]
    return f"full, {levels[0]}" if facts.cases and not facts.parts and len(levels) == 1 else "full"


def _stripped_text(row: Row, full: Row, stripped: Levels, floor: Levels, facts: StudyFacts) -> str:
    if not stripped:
        return ""
    if len(floor) > 1 and dict(stripped) == dict(floor):
        return "floor"
    levels, before = dict(row["levels"]), dict(full["levels"])
    added = {n: levels.get(n) for n, level in floor.items() if stripped.get(n) != level}
    if row["set"] == "adds" and len(floor) > 1:
        return "floor" + "".join(
            f" + {name}" if level == before.get(name) else f" + {name}={level}"
            for name, level in added.items()
        )
    return " ".join(_minus(name, level, facts) for name, level in stripped.items())


def _minus(name: str, level: Any, facts: StudyFacts) -> str:
    """`- part` where a part goes whole, `- part=level` where something of it stays."""
    strips = _strips(name, level, facts)
    return f"- {name}" if level == strips[-1] else f"- {name}={level}"


def _subtitle(leader: Row, leaders: Sequence[Row]) -> str:
    """The axes in which the leaders of blocks differ, and the configuration of the leader."""
    varied = [
        name
        for name, level in leader["levels"]
        if any(dict(other["levels"]).get(name) != level for other in leaders)
    ]
    levels = dict(leader["levels"])
    parts = [f"{name}={levels[name]}" for name in varied]
    parts += [f"configuration {leader['slug']}"] if leader["slug"] else []
    return ", ".join(parts)


def _distinct(rows: Sequence[Row], found: Sequence[Label]) -> list[Label]:
    """Where two cases would be called alike, both take their full names."""
    cases: dict[tuple[int, str], set[str]] = {}
    for row, label in zip(rows, found, strict=True):
        cases.setdefault((label.block, label.text), set()).add(str(row["case"]))
    return [
        label
        if len(cases[label.block, label.text]) == 1
        else Label(block=label.block, subtitle=label.subtitle, text=str(row["case"]))
        for row, label in zip(rows, found, strict=True)
    ]
