"""Record files -> one DataFrame: a row per record, with everything that tables show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.key import configuration_slug
from harness.model import Values
from harness.publish.derive import build_numbers, measured_numbers, notes_of, product_of, ratio_to_full
from harness.store import RecordFile

Json = Mapping[str, Any]
Order = Mapping[str, Sequence[str]]

# Column -> what it holds; the order of the CSV.
COLUMNS: Mapping[str, str] = {
    "study": "name of the study",
    "case": "name of the case",
    "set": "the study's set of cases it belongs to",
    "full": "the case it is compared with",
    "problem": "named problem",
    "type": "measured, built or predicted",
    "status": "ok, or what went wrong",
    "reason": "why the status is not ok",
    "gpu": "GPU it was timed on, empty when it was only built",
    "board": "UUID of that GPU",
    "arch": "architecture it was compiled for",
    "run_fill": "input values that the run asked for",
    "fill": "input values that the case was timed with",
    "l2": "L2 cache at each launch",
    "perturbation": "number of the text variant",
    "samples": "timed launches",
    "seconds": "median time of a launch",
    "tflop_s": "useful TFLOP per second",
    "flop_clk_sm": "useful FLOP per SM clock and SM",
    "sm_mhz": "SM clock run, MHz",
    "reported_mhz": "SM clock the driver reported, MHz",
    "own_percent": "flop_clk_sm as a percentage of own_peak",
    "own_peak": "peak of the path, input and accumulator, FLOP per clock and SM",
    "own_peak_name": "which peak that is",
    "chip_percent": "flop_clk_sm as a percentage of chip_peak",
    "chip_peak": "highest peak of the chip for this input, FLOP per clock and SM",
    "chip_peak_name": "which peak that is",
    "ratio": "flop_clk_sm over full's, at full's configuration, median within rounds",
    "ceiling": "best flop_clk_sm of the same levels over all configurations",
    "ceiling_at": "the configuration that reaches it",
    "mma": "tensor instructions in one iteration of the main loop",
    "mma_opcode": "their opcode",
    "registers": "registers per thread",
    "spills": "spill instructions in the kernel",
    "shared_bytes": "shared memory per CTA, bytes",
    "ctas_per_sm": "resident CTAs per SM",
    "notes": "what else to know of the row",
    "digest": "hash of the rendered source",
    "toolkit": "NVRTC version",
    "driver": "driver version",
    "commit": "of the suite",
    "run": "run id",
    "started": "UTC start of the run",
    "partial": "what is missing of the run's file, empty when it is complete",
    "reproduce": "command that makes the row",
}


# What the rows of one table share.
SECTION = ("study", "gpu", "board", "problem", "run_fill", "l2")


def frame(files: Iterable[RecordFile], order: Order | None = None) -> pd.DataFrame:
    """One row per record of the files, rows in the study's order, columns as COLUMNS plus helpers.

    `order` gives the case names of each study; cases it does not hold follow in the order of the files. The
    helper column `latest` is False for a record that a newer run of the same row replaces; `levels` and
    `slug` are the levels and the configuration.
    """
    rows = [row for file in files for row in _rows(file)]
    _mark_latest(rows)
    _add_ceilings(rows)
    rows = [rows[i] for i in _sorted(rows, order or {})]
    return pd.DataFrame(rows, columns=[*COLUMNS, "levels", "slug", "latest"], dtype=object)


def _rows(file: RecordFile) -> Iterable[dict[str, Any]]:
    product = product_of(file.header)
    fulls = {_full_key(r, r.get("case")): r for r in file.records if not r.get("perturbation")}
    asked = {name: _asked(file.records, name) for name in ("fill", "l2")}
    for record in file.records:
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= _identity(file, record, asked)
        row |= measured_numbers(record, product) | build_numbers(record)
        row["ratio"] = ratio_to_full(record, fulls.get(_full_key(record, record.get("full"))))
        row["notes"] = "; ".join(notes_of(record))
        yield row


def _full_key(record: Json, name: Any) -> tuple[Any, ...]:
    return (record.get("study"), name, record.get("problem"), (record.get("target") or {}).get("arch"))


def _asked(records: Sequence[Json], condition: str) -> str:
    """The condition a run asked for: that of its full cases, which take any; skipped rows have none."""
    full_first = sorted(records, key=lambda record: record.get("set") != "full")
    values = ((record.get("conditions") or {}).get(condition) for record in full_first)
    return next((str(value) for value in values if value), "")


def _identity(file: RecordFile, record: Json, asked: Mapping[str, str]) -> dict[str, Any]:
    header, target = file.header, record.get("target") or {}
    environment, conditions = header.get("environment") or {}, record.get("conditions") or {}
    gpu = target.get("gpu")
    return {
        **{name: record.get(name) for name in ("study", "case", "set", "full", "problem", "type", "status")},
        "reason": record.get("reason") or "",
        "gpu": gpu,
        "board": str((environment.get("gpu") or {}).get("uuid") or "") if gpu else "",
        "arch": target.get("arch") or "",
        "run_fill": asked["fill"] if gpu else "",
        "fill": conditions.get("fill") or "",
        "l2": conditions.get("l2") or asked["l2"] if gpu else "",
        "perturbation": record.get("perturbation") or 0,
        "digest": (record.get("source") or {}).get("digest") or "",
        "toolkit": record.get("toolkit") or "",
        "driver": environment.get("driver") or "",
        "commit": _commit(header),
        "run": str(header["run"])[:12],
        "started": header["started"],
        "partial": file.partial or "",
        "reproduce": record.get("reproduce") or "",
        "levels": tuple((record.get("levels") or {}).items()),
        "slug": configuration_slug(Values(record.get("configuration") or {})),
    }


def _commit(header: Json) -> str:
    suite = header.get("suite") or {}
    commit = str(suite.get("commit") or "")[:12]
    return commit + "+changes" if commit and suite.get("dirty") else commit


def section_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    """What the rows of one table share, as text: study, board, problem, conditions of the run."""
    return tuple(str(row[name] or "") for name in SECTION)


def _row_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*SECTION, "case", "arch", "perturbation", "type"))


def _mark_latest(rows: Sequence[dict[str, Any]]) -> None:
    """Rows come oldest run first: the last of a key is the one a table shows."""
    newest = {_row_key(row): i for i, row in enumerate(rows)}
    for i, row in enumerate(rows):
        row["latest"] = newest[_row_key(row)] == i


def _add_ceilings(rows: Sequence[dict[str, Any]]) -> None:
    """On every row with a number: the best of its levels over all configurations, under like conditions."""
    best: dict[tuple[Any, ...], tuple[float, str]] = {}
    for row in rows:
        if row["latest"] and row["flop_clk_sm"] is not None and not row["perturbation"]:
            key = (section_key(row), row["levels"])
            best[key] = max(
                best.get(key, (0.0, "")), (row["flop_clk_sm"], row["slug"]), key=lambda pair: pair[0]
            )
    for row in rows:
        if row["flop_clk_sm"] is not None:
            row["ceiling"], row["ceiling_at"] = best.get((section_key(row), row["levels"]), (None, None))


def _sorted(rows: Sequence[Mapping[str, Any]], order: Order) -> list[int]:
    """Row numbers, studies and cases in their given order, then by first mention; stable."""
    place = {(study, case): i for study, cases in order.items() for i, case in enumerate(cases)}
    studies = {study: i for i, study in enumerate(order)}
    first: dict[tuple[Any, Any], int] = {}
    for row in rows:
        first.setdefault((row["study"], row["case"]), len(first))

    def key(i: int) -> tuple[Any, ...]:
        row = rows[i]
        name = (row["study"], row["case"])
        return (
            studies.get(row["study"], len(studies)),
            str(row["study"]),
            place.get(name, len(place)),
            first[name],
            row["perturbation"],
        )

    return sorted(range(len(rows)), key=key)
