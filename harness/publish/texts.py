"""Kernel texts for the page: each line once, each text as runs of lines, and what differs between two."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

Kept = Callable[[str], str | None]


class Texts:
    """Collects texts by digest; `as_json` is what the page's script reads.

    lines: every distinct line. texts: digest -> line numbers, as [first, count] runs. diffs:
    "before>after" -> [tag, i1, i2, j1, j2] of lines, where tag is - (only before), + (only after), or =.
    """

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._numbers: dict[str, int] = {}
        self._texts: dict[str, list[int] | None] = {}
        self._diffs: dict[str, list[list[Any]]] = {}

    def add(self, digest: str) -> bool:
        """Whether the text is kept; then the page holds it."""
        if digest not in self._texts:
            text = self._kept(digest) if digest else None
            self._texts[digest] = None if text is None else self._lines(text.splitlines())
        return self._texts[digest] is not None

    def add_diff(self, before: str, after: str) -> bool:
        """Whether both texts are kept; then the page holds their difference."""
        if not (self.add(before) and self.add(after)) or before == after:
            return False
        name = f"{before}>{after}"
        if name not in self._diffs:
            old, new = self._texts[before] or [], self._texts[after] or []
            self._diffs[name] = [list(part) for part in _opcodes(old, new)]
        return True

    def as_json(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "lines": list(self._numbers),
            "texts": {name: _runs(found) for name, found in self._texts.items() if found is not None},
            "diffs": self._diffs,
        }

    def _lines(self, lines: Iterable[str]) -> list[int]:
        return [self._numbers.setdefault(line, len(self._numbers)) for line in lines]


def _opcodes(old: list[int], new: list[int]) -> Iterable[tuple[str, int, int, int, int]]:
    for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if tag == "equal":
            yield ("=", i1, i2, j1, j2)
            continue
        if i2 > i1:
            yield ("-", i1, i2, j1, j1)
        if j2 > j1:
            yield ("+", i2, i2, j1, j2)


def _runs(numbers: Iterable[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][0] + runs[-1][1] == number:
            runs[-1][1] += 1
        else:
            runs.append([number, 1])
    return runs
