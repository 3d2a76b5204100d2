"""Lines for a terminal: wrapped prose, wrapped names, nothing unprintable."""

from __future__ import annotations

import textwrap

from harness.printable import printable


def wrap(text: str, columns: int, indent: str = "  ") -> list[str]:
    """Prose in lines; a word longer than a line is cut, for nothing may be wider than the terminal."""
    return textwrap.wrap(printable(text), columns, subsequent_indent=indent, break_on_hyphens=False) or [""]


def name_lines(name: str, room: int) -> list[str]:
    """A case's name over as many lines as it needs, broken where its parts end."""
    lines = [""]
    for part in name.replace(",", ",\0").replace("@", "\0@").split("\0"):
        if lines[-1] and len(lines[-1]) + len(part) > room:
            lines.append("  ")
        lines[-1] += part
        while len(lines[-1]) > room:
            lines[-1:] = [lines[-1][:room], "  " + lines[-1][room:]]
    return lines
