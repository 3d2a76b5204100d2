"""Tables for a terminal: plain text that fits 80 columns and shows more where there is more room."""

from __future__ import annotations

from collections.abc import Sequence

from harness.publish.blocks import grid
from harness.publish.blocks_text import grid_lines
from harness.publish.columns import BY_NEED, MEASURED, Column, Row, name_of, outcome
from harness.publish.section import Section, caption
from harness.publish.wrap import clean, name_lines, wrap

_GAP = "  "
_LEAST_CASE = 24


def text_table(section: Section, *, columns: int = 80, others: Sequence[Row] = ()) -> str:
    """The section as text, no line longer than `columns`; `others` are rows of other machines to show beside.

    A row that failed or was skipped shows its reason where its numbers would be.
    """
    head = [section.title, *caption(section)]
    lines = [line for text in head for line in wrap(text, columns)]
    body = _measured(section, columns) if section.gpu else grid_lines(grid(section, others), columns)
    return "\n".join([*lines, "", *body]) + "\n"


def _measured(section: Section, columns: int) -> list[str]:
    notes = list(dict.fromkeys(note for row in section.rows for note in _notes_of(row)))
    marks = [",".join(str(notes.index(note) + 1) for note in _notes_of(row)) for row in section.rows]
    beside = len(_GAP) + max(4, *map(len, marks)) if notes else 0
    names = [clean(name_of(row)) for row in section.rows]
    shown = _fitting(section.rows, max(map(len, names)), columns - beside)
    sizes = [_size(column, section.rows) for column in shown]
    room = max(min(max(map(len, names)), columns - beside - sum(sizes) - len(_GAP) * len(sizes)), 8)
    lines = [_line("case", [c.short for c in shown], sizes, room) + (_GAP + "note" if notes else "")]
    for row, name, mark in zip(section.rows, names, marks, strict=True):
        first, *rest = name_lines(name, room)
        if row["status"] == "ok":
            cells = _line(first, [c.cell(row) for c in shown], sizes, room)
            lines += [(cells + _GAP + mark).rstrip(), *rest]
        else:
            lines += _refused(row, [first, *rest], room, columns)
    return [*lines, *_legend(notes, columns)]


def _notes_of(row: Row) -> list[str]:
    """The notes of a row that shows numbers."""
    return [note for note in str(row["notes"] or "").split("; ") if note and row["status"] == "ok"]


def _legend(notes: Sequence[str], columns: int) -> list[str]:
    lines = [
        line for i, note in enumerate(notes, 1) for line in wrap(f"[{i}] {note}", columns, indent="    ")
    ]
    return ["", *lines] if lines else []


def _fitting(rows: Sequence[Row], longest: int, columns: int) -> list[Column]:
    """As many columns as fit beside the cases, in the order they stand; empty columns are left out."""
    filled = [c for c in BY_NEED if any(row["status"] == "ok" and c.cell(row) for row in rows)]
    room = columns - min(longest, _LEAST_CASE)
    chosen: list[Column] = []
    for i, column in enumerate(filled):
        room -= len(_GAP) + _size(column, rows)
        # The first four are worth a wrapped name; the others must leave every name whole.
        if (room if i < 4 else room - max(longest - _LEAST_CASE, 0)) < 0:
            break
        chosen.append(column)
    return [column for column in MEASURED if column in chosen]


def _size(column: Column, rows: Sequence[Row]) -> int:
    return max(len(column.short), *(len(column.cell(row)) for row in rows if row["status"] == "ok"), 1)


def _line(first: str, cells: Sequence[str], sizes: Sequence[int], room: int) -> str:
    numbers = (_GAP + cell.rjust(size) for cell, size in zip(cells, sizes, strict=True))
    return first.ljust(room) + "".join(numbers)


def _refused(row: Row, names: list[str], room: int, columns: int) -> list[str]:
    words = wrap(outcome(row), max(columns - room - len(_GAP), 20), indent="")
    names += [""] * (len(words) - len(names))
    words += [""] * (len(names) - len(words))
    return [(name.ljust(room) + _GAP + word).rstrip() for name, word in zip(names, words, strict=True)]
