"""Records -> tables: for a terminal, as Markdown, as CSV. Pure functions of the records; no GPU is asked."""

from harness.publish.frame import COLUMNS, frame
from harness.publish.section import Section, caption, sections
from harness.publish.site import Published, check, publish, terminal
from harness.publish.text import text_table

__all__ = [
    "COLUMNS",
    "Published",
    "Section",
    "caption",
    "check",
    "frame",
    "publish",
    "sections",
    "terminal",
    "text_table",
]
