"""Text that is safe to show. Records, GPU names and tools' messages come from elsewhere."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """The text with a space for each control character, line ends included, but for those to `keep`.

    They would move a terminal's cursor, change its colours, or forge a line. Half of a surrogate pair, as in
    a path that is no UTF-8, becomes its escape: no stream can take it as it is.
    """
    return text if text.isprintable() else "".join(c if c in keep else _shown(c) for c in text)


def _shown(character: str) -> str:
    if character.isprintable():
        return character
    is_half = "\ud800" <= character <= "\udfff"
    return character.encode("ascii", "backslashreplace").decode() if is_half else " "
