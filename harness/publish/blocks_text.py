"""The built table at a terminal: as many blocks side by side as fit, the others below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from harness.printable import printable
from harness.publish.blocks import Beside, Block, Grid
from harness.publish.columns import BUILT, Column
from harness.publish.wrap import name_lines, wrap

_GAP = "  "
_INDENT = "  "
_LEAST_CASE = 24
_MOST_BESIDE = 26  # one letter each


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """What stands in one go beside the cases: a block, or what was recorded of it, with its legend.

    `title` stands over the head; over what was recorded only where its block does not stand before it.
    """

    title: tuple[str, ...]
    head: str
    cells: tuple[str, ...]
    size: int
    legend: str = ""


def grid_lines(table: Grid, columns: int) -> list[str]:
    """Blocks side by side as far as they fit, the rest below; above each strip what its letters mean."""
    pieces = _pieces(table.blocks)
    room = _LEAST_CASE
    strips = _packed(pieces, columns - room)
    longest = max(map(len, table.names)) + len(_INDENT)
    most = min(longest, columns - len(_GAP) - max(piece.size for piece in pieces))
    for wider in range(most, room, -1):
        # The longest names that cost no further strip.
        if len(_packed(pieces, columns - wider)) == len(strips):
            room, strips = wider, _packed(pieces, columns - wider)
            break
    lines = [line for strip in strips for line in (*_strip_lines(table, strip, room, columns), "")]
    notes = (f"[{i}] {note}" for i, note in enumerate(table.footnotes, 1))
    return lines + [line for note in notes for line in wrap(note, columns, indent="    ")]


def _pieces(blocks: Sequence[Block]) -> list[_Piece]:
    """Each block with what was recorded of it after it."""
    pieces: list[_Piece] = []
    letters = iter(map(chr, range(ord("A"), ord("A") + _MOST_BESIDE)))
    for block in blocks:
        pieces.append(_of_block(block))
        # Only so many letters: what is recorded of further GPUs stands in the pages.
        pieces += [
            _of_beside(beside, letter, block) for beside, letter in zip(block.beside, letters, strict=False)
        ]
    return pieces


def _of_block(block: Block) -> _Piece:
    whole = [cells for cells in block.cells if not isinstance(cells, str)]
    sizes = [max(len(_head(c)), *(len(cells[i]) for cells in whole), 1) for i, c in enumerate(BUILT)]
    title = _title(block, sum(sizes) + len(BUILT) - 1)
    cells = tuple(cells if isinstance(cells, str) else _aligned(cells, sizes) for cells in block.cells)
    head = _aligned([_head(column) for column in BUILT], sizes)
    return _Piece(title=title, head=head, cells=cells, size=max(map(len, (head, *cells, *title))))


def _of_beside(beside: Beside, letter: str, block: Block) -> _Piece:
    head = f"[{letter}]"
    size = max(map(len, (head, *beside.cells, *block.title.split())))
    return _Piece(
        title=tuple(line.rjust(size) for line in _title(block, size)),
        head=head.rjust(size),
        cells=tuple(cell.rjust(size) for cell in beside.cells),
        size=size,
        legend=f"{head} {beside.title}",
    )


def _title(block: Block, size: int) -> tuple[str, ...]:
    return tuple(textwrap.wrap(block.title, size))


def _aligned(cells: Sequence[str], sizes: Sequence[int]) -> str:
    return " ".join(cell.rjust(size) for cell, size in zip(cells, sizes, strict=True))


def _head(column: Column) -> str:
    """On one line here."""
    return column.short.replace("|", "")


def _packed(pieces: Sequence[_Piece], columns: int) -> list[list[_Piece]]:
    """Which pieces share a strip of this many columns; at least one in each."""
    strips: list[list[_Piece]] = []
    room = -1
    for piece in pieces:
        size = len(_GAP) + piece.size
        if not strips or size > room:
            strips.append([])
            room = columns
        room -= size
        strips[-1].append(piece)
    return strips


def _strip_lines(table: Grid, strip: Sequence[_Piece], room: int, columns: int) -> list[str]:
    lines = [line for p in strip if p.legend for line in wrap(p.legend, columns, indent="    ")]
    # A letter stands after its block, and bears the title itself only where that is in the strip before.
    titles = [piece.title if not piece.legend or i == 0 else () for i, piece in enumerate(strip)]
    for i in range(max(map(len, titles))):
        lines.append(_line("", [title[i] if i < len(title) else "" for title in titles], strip, room))
    lines.append(_line("case", [piece.head for piece in strip], strip, room))
    for number, name in enumerate(table.names):
        if number in table.subtitles:
            lines += wrap(table.subtitles[number], columns)
        first, *rest = [_INDENT + line for line in name_lines(printable(name), room - len(_INDENT))]
        lines += [_line(first, [piece.cells[number] for piece in strip], strip, room), *rest]
    return [line.rstrip() for line in lines]


def _line(first: str, cells: Sequence[str], strip: Sequence[_Piece], room: int) -> str:
    body = (_GAP + cell.ljust(piece.size) for cell, piece in zip(cells, strip, strict=True))
    return first.ljust(room) + "".join(body)
