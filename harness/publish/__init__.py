"""Records -> tables: for a terminal, as Markdown, as CSV. Pure functions of the records; no GPU is asked."""

from harness.publish.caption import caption
from harness.publish.frame import COLUMNS, frame
from harness.publish.known import Answer, Bound, Context, Current, Known, PartCost, StudyFacts
from harness.publish.section import Section, sections
from harness.publish.site import Published, check, publish, stale, terminal
from harness.publish.text import text_table

__all__ = [
    "COLUMNS",
    "Answer",
    "Bound",
    "Context",
    "Current",
    "Known",
    "PartCost",
    "Published",
    "Section",
    "StudyFacts",
    "caption",
    "check",
    "frame",
    "publish",
    "sections",
    "stale",
    "terminal",
    "text_table",
]
