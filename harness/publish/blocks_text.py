"""The built table at a terminal: as many blocks side by side as fit, the others below."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from harness.printable import printable
from harness.publish.blocks import Block, Grid
from harness.publish.columns import BUILT, Column
from harness.publish.wrap import name_lines, wrap

_GAP = "  "
_INDENT = "  "
_LEAST_CASE = 24
_MOST_GPUS = 26  # one letter each


Beside = tuple[str, Sequence[str]]
Strip = tuple[list[Block], list[Beside]]


def grid_lines(table: Grid, columns: int) -> list[str]:
    """Blocks side by side as far as they fit, the rest below; the measurements stand beside the first."""
    gpus = list(table.measured)[:_MOST_GPUS]
    letters = [f"[{chr(ord('A') + i)}]" for i in range(len(gpus))]
    beside = [(letter, table.measured[gpu]) for letter, gpu in zip(letters, gpus, strict=True)]
    room = _LEAST_CASE
    strips = _packed(table.blocks, beside, columns - room)
    pieces = [*map(_block_size, table.blocks), *map(_beside_size, beside)]
    most = min(max(map(len, table.names)) + len(_INDENT), columns - len(_GAP) - max(pieces))
    for wider in range(most, room, -1):
        # The longest names that cost no further strip.
        if len(_packed(table.blocks, beside, columns - wider)) == len(strips):
            room, strips = wider, _packed(table.blocks, beside, columns - wider)
            break
    lines = [line for strip in strips for line in (*_strip_lines(table, *strip, room, columns), "")]
    legend = [f"{letter} FLOP/clk/SM recorded on {gpu}" for letter, gpu in zip(letters, gpus, strict=True)]
    notes = [f"[{i}] {note}" for i, note in enumerate(table.footnotes, 1)]
    return lines + [line for text in (*legend, *notes) for line in wrap(text, columns, indent="    ")]


def _packed(blocks: Sequence[Block], beside: Sequence[Beside], columns: int) -> list[Strip]:
    """Which blocks and measurements share a strip of this many columns; at least one in each."""
    waiting: list[Block | Beside] = [*blocks[:1], *beside, *blocks[1:]]
    strips: list[Strip] = []
    room = -1
    for piece in waiting:
        size = len(_GAP) + (_block_size(piece) if isinstance(piece, Block) else _beside_size(piece))
        if not strips or size > room:
            strips.append(([], []))
            room = columns
        room -= size
        if isinstance(piece, Block):
            strips[-1][0].append(piece)
        else:
            strips[-1][1].append(piece)
    return strips


def _head(column: Column) -> str:
    """On one line here."""
    return column.short.replace("|", "")


def _beside_size(column: Beside) -> int:
    return max(map(len, (column[0], *column[1])))


def _sizes(block: Block) -> list[int]:
    whole = [cells for cells in block.cells if not isinstance(cells, str)]
    return [max(len(_head(c)), *(len(cells[i]) for cells in whole), 1) for i, c in enumerate(BUILT)]


def _block_size(block: Block) -> int:
    words = [len(cells) for cells in block.cells if isinstance(cells, str)]
    return max(sum(_sizes(block)) + len(BUILT) - 1, *words, *map(len, _title_lines(block)), 1)


def _title_lines(block: Block) -> list[str]:
    return textwrap.wrap(block.title, sum(_sizes(block)) + len(BUILT) - 1)


def _strip_lines(
    table: Grid, blocks: Sequence[Block], beside: Sequence[Beside], room: int, columns: int
) -> list[str]:
    titles = [_title_lines(block) for block in blocks]
    wide = [_block_size(block) for block in blocks]
    extra = [_beside_size(column) for column in beside]
    lines = []
    for i in range(max(map(len, titles), default=0)):
        cells = [lines_of[i] if i < len(lines_of) else "" for lines_of in titles]
        lines.append(" " * room + "".join(_GAP + c.ljust(w) for c, w in zip(cells, wide, strict=True)))
    heads = [" ".join(_head(c).rjust(s) for c, s in zip(BUILT, _sizes(b), strict=True)) for b in blocks]
    lines.append(_row_of_blocks("case", room, heads, wide, [name for name, _ in beside], extra))
    for number, name in enumerate(table.names):
        if number in table.subtitles:
            lines += wrap(table.subtitles[number], columns)
        first, *rest = [_INDENT + line for line in name_lines(printable(name), room - len(_INDENT))]
        cells = [_block_cell(block, number) for block in blocks]
        lines.append(_row_of_blocks(first, room, cells, wide, [c[number] for _, c in beside], extra))
        lines += rest
    return [line.rstrip() for line in lines]


def _block_cell(block: Block, number: int) -> str:
    cells = block.cells[number]
    if isinstance(cells, str):
        return cells
    return " ".join(cell.rjust(size) for cell, size in zip(cells, _sizes(block), strict=True))


def _row_of_blocks(
    first: str,
    room: int,
    cells: Sequence[str],
    wide: Sequence[int],
    more: Sequence[str],
    extra: Sequence[int],
) -> str:
    body = "".join(_GAP + cell.ljust(size) for cell, size in zip(cells, wide, strict=True))
    return first.ljust(room) + body + "".join(_GAP + c.rjust(s) for c, s in zip(more, extra, strict=True))
