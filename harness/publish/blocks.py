"""The built table as columns: one block per architecture, other machines' measurements beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.publish.columns import BUILT, Row, foreign, name_of, outcome
from harness.publish.section import Section, blocks_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One architecture, or several that came out alike: each case's cells, or a word in place of them."""

    title: str
    cells: tuple[tuple[str, ...] | str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cases down, blocks across. `footnotes` explains the words that stand in for cells.

    `names` are what the cases are called; `subtitles` stand before the case of that number.
    """

    cases: tuple[str, ...]
    names: tuple[str, ...]
    subtitles: Mapping[int, str]
    blocks: tuple[Block, ...]
    measured: Mapping[str, tuple[str, ...]]
    footnotes: tuple[str, ...]


def grid(section: Section, others: Sequence[Row] = ()) -> Grid:
    """The built table of a section, with what `others` (rows of any run) measured of the same study."""
    subtitles: dict[int, str] = {}
    named: dict[str, str] = {}
    for subtitle, members in blocks_of(section.rows):
        if subtitle:
            subtitles[len(named)] = subtitle
        named |= {str(row["case"]): name_of(row) for row in members}
    cases = tuple(named)
    footnotes: list[str] = []
    by_arch: dict[str, dict[str, tuple[str, ...] | str]] = {}
    for row in section.rows:
        by_arch.setdefault(str(row["arch"]), {})[str(row["case"])] = _cells(row, footnotes)
    alike: dict[tuple[tuple[str, ...] | str, ...], list[str]] = {}
    for arch in sorted(by_arch, key=_arch_order):
        alike.setdefault(tuple(by_arch[arch].get(case, "") for case in cases), []).append(arch)
    rates = foreign([row for row in others if row["study"] == section.study])
    measured = {
        gpu: tuple(f"{found[case]:.1f}" if case in found else "" for case in cases)
        for gpu, found in rates.items()
        if set(found) & set(cases)
    }
    blocks = tuple(Block(title=", ".join(archs), cells=cells) for cells, archs in alike.items())
    return Grid(
        cases=cases,
        names=tuple(named.values()),
        subtitles=subtitles,
        blocks=blocks,
        measured=measured,
        footnotes=tuple(footnotes),
    )


def _arch_order(arch: str) -> tuple[int, str]:
    digits = "".join(c for c in arch if c.isdigit())
    return (int(digits or 0), arch)


def _cells(row: Row, footnotes: list[str]) -> tuple[str, ...] | str:
    if row["status"] == "ok":
        return tuple(column.cell(row) for column in BUILT)
    text = outcome(row)
    if text not in footnotes:
        footnotes.append(text)
    return f"{row['status']} [{footnotes.index(text) + 1}]"
