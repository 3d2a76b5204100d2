"""Tables for a page: Markdown in which any text stays text, and the markers that tables stand between."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from harness.printable import printable
from harness.publish.blocks import grid
from harness.publish.caption import caption
from harness.publish.columns import (
    ALTERNATIVE,
    BRIEF,
    BUILT,
    MEASURED,
    PREDICTED,
    Column,
    Row,
    filled,
    name_of,
    notes_of,
    outcome,
)
from harness.publish.section import Section, blocks_of

_MARKER = re.compile(
    r"(?P<open><!-- table:(?P<name>\S+?)(?P<brief> brief)? -->)\n.*?(?P<close><!-- /table -->)", re.DOTALL
)
_OPENING = re.compile(r"<!-- table:(\S+?)(?: brief)? -->")
# What a brief table holds; the others are read in the whole one.
_BRIEF_SET, _BRIEF_LABELS = "strips", ("full", "floor")
_SPECIAL = re.compile(r"([\\`*\[\]<>|~$&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")


def escape(value: object) -> str:
    """Any text as it reads, in one cell or one line: nothing in it is markup, a column or a line end."""
    text = printable(str(value))
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: int = 1) -> str:
    """A table of cells that are already escaped; the first `left` columns and the last read from the left."""
    align = [":--" if i < left or i == len(header) - 1 else "--:" for i in range(len(header))]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in (header, align, *rows))


def markdown_section(section: Section, others: Sequence[Row] = (), *, brief: bool = False) -> str:
    """Title, caption and tables of a section. `brief` keeps full, its strips and the floor."""
    about = [f"**{escape(section.title)}**", ""]
    shown = () if brief else filled(MEASURED, section.rows)
    about += [f"- {_bold_warning(line)}" for line in caption(section, shown)]
    table = _measured(section, brief) if section.gpu else _built(section, others)
    return "\n".join([*about, "", table])


def _bold_warning(line: str) -> str:
    return f"**{escape(line)}**" if line.startswith(("PARTIAL", "STALE")) else escape(line)


def _measured(section: Section, brief: bool) -> str:
    """A table for each block of rows, another for the rows at other configurations, and the notes."""
    rows = [row for row in section.main if not brief or _is_brief(row)] or list(section.main)
    others = () if brief else section.alternatives
    notes = list(dict.fromkeys(note for row in (*rows, *others) for note in notes_of(row)))
    whole = PREDICTED if section.predicted else MEASURED
    text = _block_tables(rows, BRIEF if brief and not section.predicted else whole, notes)
    if others:
        text += "\nAt other configurations (what the ceiling is the best of):\n\n"
        text += _block_tables(others, ALTERNATIVE, notes)
    legend = "".join(f"\n- [{i}] {escape(note)}" for i, note in enumerate(notes, 1))
    return text + (legend + "\n" if legend else "")


def _is_brief(row: Row) -> bool:
    peer = bool(row["peer"]) and row["label"] == row["peer"]
    return peer or row["set"] == _BRIEF_SET or row["label"] in _BRIEF_LABELS


def _block_tables(rows: Sequence[Row], columns: Sequence[Column], notes: Sequence[str]) -> str:
    shown = filled(columns, rows)
    tables = []
    for subtitle, members in blocks_of(rows):
        cells = [
            [
                escape(name_of(row)),
                *(_shown(column, row) for column in shown),
                _status(row),
                _marks(row, notes),
            ]
            for row in members
        ]
        header = [escape(name) for name in ("case", *(column.label for column in shown), "status", "notes")]
        tables.append((f"*{escape(subtitle)}*\n\n" if subtitle else "") + markdown_table(header, cells))
    return "\n".join(tables)


def _shown(column: Column, row: Row) -> str:
    return escape(column.cell(row)) if row["status"] == "ok" else ""


def _status(row: Row) -> str:
    return escape(outcome(row)) + (" (*stale*)" if row["stale"] else "")


def _marks(row: Row, notes: Sequence[str]) -> str:
    return escape(" ".join(f"[{notes.index(note) + 1}]" for note in notes_of(row)))


def _built(section: Section, others: Sequence[Row]) -> str:
    table = grid(section, others)
    header = ["case"]
    for block in table.blocks:
        header += [f"{block.title}: {column.label}" for column in BUILT]
        header += [beside.title for beside in block.beside]
    header.append("")
    rows = []
    for number, name in enumerate(table.names):
        if number in table.subtitles:
            rows.append([f"*{escape(table.subtitles[number])}*", *[""] * (len(header) - 1)])
        cells = [name]
        for block in table.blocks:
            found = block.cells[number]
            cells += [found, *[""] * (len(BUILT) - 1)] if isinstance(found, str) else list(found)
            cells += [beside.cells[number] for beside in block.beside]
        rows.append([escape(cell) for cell in (*cells, "")])
    notes = "".join(f"\n- [{i}] {escape(note)}" for i, note in enumerate(table.footnotes, 1))
    return markdown_table([escape(name) for name in header], rows) + (notes + "\n" if notes else "")


def fill_markers(text: str, make: Callable[[str, bool], str | None]) -> str:
    """The text with every marked table made anew by `make(name, brief)`; None leaves what stands there."""

    def replace(found: re.Match[str]) -> str:
        table = make(found["name"], found["brief"] is not None)
        return found[0] if table is None else f"{found['open']}\n{table.rstrip()}\n{found['close']}"

    return _MARKER.sub(replace, text)


def marker_problems(text: str, known: Mapping[str, object]) -> list[str]:
    """What is wrong with the markers of a text: unknown names, an opening without its end."""
    opened, closed = _OPENING.findall(text), len(_MARKER.findall(text))
    names = ", ".join(known) or "none yet"
    problems = [f"no table {name!r}; there are {names}" for name in opened if name not in known]
    if len(opened) != closed:
        problems.append("a table marker has no <!-- /table --> after it")
    return problems
