"""Records whose source is not what the template renders today, and the command that makes them anew."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.publish.known import Current

Json = Mapping[str, Any]
Marks = frozenset[tuple[str, ...]]


def stale_label(record: Json, current: Current | None) -> str:
    """The command that refreshes a stale record; empty for one that is not, or that nobody can judge."""
    digest = (record.get("source") or {}).get("digest")
    if current is None or not digest:
        return ""
    today = current(record)
    return "" if today is None or today == digest else str(record.get("reproduce") or "unknown command")


def refresh_command(record: Json) -> str:
    """The command that times, or builds, the whole study again where the record was made."""
    target = record.get("target") or {}
    if record.get("type") == "predicted":
        return shlex.join(["ablate", "predict", str(record.get("study")), "--gpu", str(target.get("gpu"))])
    words = ["ablate", "run", str(record.get("study"))]
    return shlex.join(words if target.get("gpu") else [*words, "--target", str(target.get("arch"))])


def stale_lines(rows: Iterable[Json]) -> tuple[str, ...]:
    """One line per study and machine with stale rows among these of a frame, and what refreshes them."""
    counts: dict[str, tuple[str, list[bool]]] = {}
    for row in rows:
        where = f"{row['study']} on {row['gpu']}" if row["gpu"] else f"{row['study']} built for {row['arch']}"
        counts.setdefault(where, (refresh_command(row["record"]), []))[1].append(bool(row["stale"]))
    return tuple(
        f"{where}: {sum(stale)} of {len(stale)} rows are stale, their templates render another text today; "
        f"refresh with `{command}`"
        for where, (command, stale) in counts.items()
        if any(stale)
    )


def marked(tables: Iterable[Path]) -> Marks:
    """The rows that written tables (CSV) call stale: what they said when they were published."""
    found = set()
    for path in tables:
        try:
            rows = list(csv.DictReader(io.StringIO(path.read_bytes().decode(), newline="")))
        except (OSError, ValueError, csv.Error):
            continue
        found |= {_mark(row.get) for row in rows if row.get("stale")}
    return frozenset(found)


def _mark(of: Any) -> tuple[str, ...]:
    return tuple(str(of(name) or "") for name in ("study", "case", "perturbation", "digest"))


def as_marked(marks: Marks) -> Current:
    """What `current` would have to say for the tables to be marked as they are."""

    def current(record: Json) -> str | None:
        digest = (record.get("source") or {}).get("digest")
        own = (record.get("study"), record.get("case"), record.get("perturbation") or 0, digest)
        return "" if tuple("" if part is None else str(part) for part in own) in marks else None

    return current
