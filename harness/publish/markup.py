"""Text from records inside HTML: neither markup nor a control character of it survives."""

from __future__ import annotations

import html

from harness.printable import printable


def escape(text: str) -> str:
    """Text for HTML, between tags or in a quoted attribute, where a line end is a space."""
    return html.escape(printable(text, keep="\n\t"))
