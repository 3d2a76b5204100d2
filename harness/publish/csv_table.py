"""Rows as CSV: every column of the frame, one record a line, empty where there is no value."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from harness.publish.columns import Row
from harness.publish.frame import COLUMNS


def csv_text(rows: Iterable[Row], columns: Sequence[str] = tuple(COLUMNS)) -> str:
    """The rows as CSV with a header; floats to nine digits, so that equal records give equal bytes."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row[name]) for name in columns])
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)
