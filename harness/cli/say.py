"""How a command answers: lines and JSON on standard output, errors on the other stream.

All that a command says goes through here, so that no text from elsewhere can command the terminal.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from harness.printable import printable


def width() -> int:
    """Columns to fill: the terminal's, COLUMNS, or 80."""
    return max(shutil.get_terminal_size((80, 24)).columns, 40)


def say(*lines: str) -> None:
    """Print lines on standard output, each on one line whatever name stands in it."""
    for line in lines:
        print(printable(line))


def say_text(text: str) -> None:
    """Print text of many lines on standard output."""
    print(printable(text, keep="\n\t"))


def complain(text: str, detail: str = "") -> None:
    """Write one line on standard error, and the lines of a detail below it."""
    sys.stderr.write(f"ablate: {printable(text)}\n")
    if detail:
        sys.stderr.write(printable(detail.rstrip("\n"), keep="\n\t") + "\n")


def say_json(value: object) -> None:
    """Print one JSON document on standard output."""
    text = json.dumps(value, allow_nan=False, indent=2, ensure_ascii=False)
    # What is left unescaped there stands inside a string, where its escape means the same.
    print(re.sub(r"[^ -~\n]", lambda c: c[0] if c[0].isprintable() else json.dumps(c[0])[1:-1], text))


def say_table(rows: Iterable[Sequence[str]], *, indent: str = "") -> None:
    """Print rows in aligned columns; the last column wraps at the width of the terminal."""
    lines = [tuple(map(printable, row)) for row in rows]
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
        print(textwrap.fill(printable(" ".join(paragraph.split())), width(), break_on_hyphens=False))
