"""How a command answers: lines and JSON on standard output."""

from __future__ import annotations

import json
import shutil
import textwrap
from collections.abc import Iterable, Sequence


def width() -> int:
    """Columns to fill: the terminal's, COLUMNS, or 80."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def say(text: str = "") -> None:
    """Print text on standard output."""
    print(text)


def say_json(value: object) -> None:
    """Print one JSON document on standard output."""
    print(json.dumps(value, allow_nan=False, indent=2, ensure_ascii=False))


def say_table(rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print rows in aligned columns; the last column wraps at the width of the terminal."""
    lines = [tuple(row) for row in rows]
    if not lines:
        return
    widths = [max(len(row[i]) for row in lines) for i in range(len(lines[0]) - 1)]
    for row in lines:
        head = indent + "".join(f"{cell:<{size}}  " for cell, size in zip(row, widths, strict=False))
        room = max(width() - len(head), 24)
        first, *rest = textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        print((head + first).rstrip())
        for line in rest:
            print(" " * len(head) + line)


def say_paragraphs(text: str) -> None:
    """Print prose wrapped at the width of the terminal; blank lines part paragraphs."""
    for i, paragraph in enumerate(text.strip().split("\n\n")):
        if i:
            print()
        print(textwrap.fill(" ".join(paragraph.split()), width(), break_on_hyphens=False))
