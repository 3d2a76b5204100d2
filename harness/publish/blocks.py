"""The built table as columns: one block per architecture, what GPUs of it recorded beside it."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.publish.columns import BUILT, Row, name_of, outcome
from harness.publish.section import Section, blocks_of

Rates = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a GPU recorded of kernels compiled for a block's architecture: a cell per case, empty for none."""

    title: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One architecture, or several that came out alike: each case's cells, or a word in place of them."""

    title: str
    cells: tuple[tuple[str, ...] | str, ...]
    beside: tuple[Beside, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Cases down, blocks across. `footnotes` explains the words that stand in for cells.

    `names` are what the cases are called; `subtitles` stand before the case of that number.
    """

    cases: tuple[str, ...]
    names: tuple[str, ...]
    subtitles: Mapping[int, str]
    blocks: tuple[Block, ...]
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
    rates = recorded([row for row in others if row["study"] == section.study])
    blocks = tuple(
        Block(title=", ".join(archs), cells=cells, beside=_beside(rates, archs, cases))
        for cells, archs in alike.items()
    )
    return Grid(
        cases=cases,
        names=tuple(named.values()),
        subtitles=subtitles,
        blocks=blocks,
        footnotes=tuple(footnotes),
    )


def recorded(rows: Sequence[Row]) -> dict[tuple[str, str], Rates]:
    """(GPU, architecture its kernels were compiled for) -> case -> FLOP/clk/SM as tables show it.

    That is the median over the texts of the newest run.
    """
    found: dict[tuple[str, str], dict[str, dict[tuple[str, str], list[float]]]] = {}
    for row in rows:
        if row["gpu"] and row["latest"] and row["status"] == "ok" and row["flop_clk_sm"] is not None:
            cases = found.setdefault((str(row["gpu"]), str(row["arch"])), {})
            runs = cases.setdefault(str(row["case"]), {})
            runs.setdefault((str(row["started"]), str(row["run"])), []).append(row["flop_clk_sm"])
    return {
        place: {case: statistics.median(runs[max(runs)]) for case, runs in cases.items()}
        for place, cases in sorted(found.items())
    }


def _beside(
    rates: Mapping[tuple[str, str], Rates], archs: Sequence[str], cases: Sequence[str]
) -> tuple[Beside, ...]:
    return tuple(
        Beside(
            title=f"FLOP/clk/SM recorded on {gpu} ({arch}), median over a case's texts",
            cells=tuple(f"{found[case]:.1f}" if case in found else "" for case in cases),
        )
        for (gpu, arch), found in rates.items()
        if arch in archs and set(found) & set(cases)
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
