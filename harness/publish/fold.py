"""The builds of a case as one row: medians over builds, and how far code generation alone spreads them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from harness.publish.derive import COUNTED

Row = Mapping[str, Any]

_MEDIANS = (
    "work_clk_sm",
    "seconds",
    "tflop_s",
    "flop_clk_sm",
    "sm_mhz",
    "reported_mhz",
    "own_percent",
    "chip_percent",
    "of_bound",
)


def fold(rows: Sequence[Row]) -> tuple[Row, ...]:
    """One row for the builds of a case that are ok, in place of the first; failed builds stay rows."""
    members: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["status"] == "ok":
            members.setdefault(_case(row), []).append(row)
    return tuple(
        _folded(members[_case(row)]) if row["status"] == "ok" else row
        for row in rows
        if row["status"] != "ok" or members[_case(row)][0] is row
    )


def _case(row: Row) -> tuple[Any, ...]:
    return (row["case"], row["arch"], row["type"], row["run"])


def _folded(builds: Sequence[Row]) -> Row:
    first = builds[0]
    if len(builds) == 1:
        return {**first, "builds": 1}
    folded = {**first, "builds": len(builds)}
    for name in _MEDIANS:
        known = [row[name] for row in builds if row[name] is not None]
        folded[name] = statistics.median(known) if known else None
    rates = [rate for row in builds if (rate := row["flop_clk_sm"] or row["work_clk_sm"])]
    if len(rates) > 1:
        folded["codegen_percent"] = 50 * (max(rates) - min(rates)) / statistics.median(rates)
    spreads = [row["spread_percent"] for row in builds if row["spread_percent"] is not None]
    folded["spread_percent"] = max(spreads, default=None)
    counted = next((row for row in builds if row["profiler"]), first)
    folded |= {name: counted[name] for name in COUNTED}
    notes = (note for row in builds for note in str(row["notes"] or "").split("; ") if note)
    folded["notes"] = "; ".join(dict.fromkeys(notes))
    folded["stale"] = next((row["stale"] for row in builds if row["stale"]), "")
    return folded
