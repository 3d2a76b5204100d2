"""Tables for a terminal: plain text that fits 80 columns and shows more where there is more room."""

from __future__ import annotations

from collections.abc import Sequence

from harness.printable import printable
from harness.publish.blocks import grid
from harness.publish.blocks_text import grid_lines
from harness.publish.caption import caption
from harness.publish.columns import (
    BY_NEED,
    MEASURED,
    PREDICTED,
    PREDICTED_BY_NEED,
    Column,
    Row,
    filled,
    name_of,
    notes_of,
    outcome,
)
from harness.publish.section import Section, blocks_of
from harness.publish.wrap import name_lines, wrap

_GAP = "  "
_INDENT = "  "
_LEAST_CASE = 28
# So many columns are worth a wrapped name; the others must leave every name whole.
_WORTH_WRAPPING = 3


def text_table(section: Section, *, columns: int = 80, others: Sequence[Row] = ()) -> str:
    """The section as text, no line longer than `columns`; `others` are rows of other machines to show beside.

    A row that failed or was skipped shows its reason where its numbers would be. Rows at other configurations
    than full's stand in the ceiling column only.
    """
    if section.gpu:
        body, shown = _measured(section, columns)
    else:
        body, shown = grid_lines(grid(section, others), columns), []
    head = [section.title, *caption(section, shown)]
    lines = [line for text in head for line in wrap(text, columns)]
    return "\n".join([*lines, "", *body]) + "\n"


def _measured(section: Section, columns: int) -> tuple[list[str], list[Column]]:
    """The lines of the table, and its columns."""
    rows = section.main
    notes = list(dict.fromkeys(note for row in rows for note in notes_of(row)))
    beside = len(_GAP) + max(4, *(len(_mark(row, notes)) for row in rows)) if notes else 0
    names = [len(_INDENT) + len(printable(name_of(row))) for row in rows]
    shown = _fitting(rows, max(names), columns - beside)
    sizes = [_size(column, rows) for column in shown]
    room = max(min(max(names), columns - beside - sum(sizes) - len(_GAP) * len(sizes)), 8)
    lines = _heads(shown, sizes, room, note=bool(notes))
    for subtitle, members in blocks_of(rows):
        lines += wrap(subtitle, columns) if subtitle else []
        for row in members:
            lines += _row_lines(row, shown, sizes, room, columns, _mark(row, notes))
    if section.alternatives:
        count = len(section.alternatives)
        lines += wrap(f"ceiling: the best of {count} more rows at other configurations counts, too", columns)
    return [*lines, *_legend(notes, columns)], shown


def _row_lines(
    row: Row, shown: Sequence[Column], sizes: Sequence[int], room: int, columns: int, mark: str
) -> list[str]:
    first, *rest = [_INDENT + line for line in name_lines(printable(name_of(row)), room - len(_INDENT))]
    if row["status"] != "ok":
        return _refused(row, [first, *rest], room, columns)
    return [(_line(first, [c.cell(row) for c in shown], sizes, room) + _GAP + mark).rstrip(), *rest]


def _mark(row: Row, notes: Sequence[str]) -> str:
    return ",".join(str(notes.index(note) + 1) for note in notes_of(row))


def _legend(notes: Sequence[str], columns: int) -> list[str]:
    lines = [
        line for i, note in enumerate(notes, 1) for line in wrap(f"[{i}] {note}", columns, indent="    ")
    ]
    return ["", *lines] if lines else []


def _fitting(rows: Sequence[Row], longest: int, columns: int) -> list[Column]:
    """As many columns as fit beside the cases, in the order they stand; empty columns are left out."""
    predicted = all(row["type"] == "predicted" for row in rows)
    by_need, order = (PREDICTED_BY_NEED, PREDICTED) if predicted else (BY_NEED, MEASURED)
    room = columns - min(longest, _LEAST_CASE)
    chosen: list[Column] = []
    for i, column in enumerate(filled(by_need, rows)):
        room -= len(_GAP) + _size(column, rows)
        if (room if i < _WORTH_WRAPPING else room - max(longest - _LEAST_CASE, 0)) < 0:
            break
        chosen.append(column)
    return [column for column in order if column in chosen]


def _head(column: Column) -> tuple[str, str]:
    """The heading over two lines."""
    upper, _, lower = column.short.rpartition("|")
    return upper, lower


def _size(column: Column, rows: Sequence[Row]) -> int:
    cells = (len(column.cell(row)) for row in rows if row["status"] == "ok")
    return max(*map(len, _head(column)), *cells, 1)


def _heads(shown: Sequence[Column], sizes: Sequence[int], room: int, *, note: bool) -> list[str]:
    upper = _line("", [_head(column)[0] for column in shown], sizes, room)
    lower = _line("case", [_head(column)[1] for column in shown], sizes, room)
    return [line.rstrip() for line in (upper, lower + (_GAP + "note" if note else "")) if line.strip()]


def _line(first: str, cells: Sequence[str], sizes: Sequence[int], room: int) -> str:
    numbers = (_GAP + cell.rjust(size) for cell, size in zip(cells, sizes, strict=True))
    return first.ljust(room) + "".join(numbers)


def _refused(row: Row, names: list[str], room: int, columns: int) -> list[str]:
    words = wrap(outcome(row), max(columns - room - len(_GAP), 20), indent="")
    names += [""] * (len(words) - len(names))
    words += [""] * (len(names) - len(words))
    return [(name.ljust(room) + _GAP + word).rstrip() for name, word in zip(names, words, strict=True)]
