"""What a profiler read, where somebody quoted one: of the loop that a story starts from, and its floor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from harness.publish.caption import counters_words
from harness.publish.columns import COUNTERS, FLOP_CLK, OWN, Row, filled
from harness.publish.markdown import escape, markdown_table
from harness.publish.thread_rows import Rows
from harness.story import Story

_COLUMNS = (FLOP_CLK, OWN, *COUNTERS)
_FLOOR = "floor"


def counters_table(gpus: Sequence[Rows], story: Story) -> list[str]:
    """Lines: for each measured GPU its full rows and their floors, as far as they were counted; else none."""
    found = [
        (rows, name, row)
        for rows in gpus
        for name, row in _full_and_floor(rows, story)
        if row["status"] == "ok" and row["profiler"]
    ]
    if not found:
        return []
    cells = [
        [escape(rows.name), escape(name), *(escape(column.cell(row)) for column in _COLUMNS)]
        for rows, name, row in found
    ]
    header = ["GPU", "case", *(escape(column.label) for column in _COLUMNS)]
    members = [row for _, _, row in found]
    words = counters_words(members, filled(COUNTERS, members))
    return [
        "What the counters read here, beside the rate that the kernels count themselves:",
        "",
        *markdown_table(header, cells, left=2).splitlines(),
        "",
        *(f"- {escape(line)}." for line in words),
    ]


def _full_and_floor(rows: Rows, story: Story) -> Iterator[tuple[str, Row]]:
    for name, spot in zip(story.columns, story.steps[0].spots, strict=True):
        full = rows.row(spot)
        if full is None:
            continue
        yield f"full, {name}", full
        members = rows.sections[spot.study].rows
        floors = (r for r in members if r["full"] == full["case"] and r["arch"] == full["arch"])
        yield from ((f"floor, {name}", row) for row in floors if _is_floor(row))


def _is_floor(row: Row) -> bool:
    return str(row["label"]).split(", ")[-1] == _FLOOR
