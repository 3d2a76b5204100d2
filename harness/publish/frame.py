"""Record files -> one DataFrame: a row per record, with everything that tables show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.key import configuration_slug
from harness.model import Values
from harness.publish.derive import (
    bound_numbers,
    build_numbers,
    counter_numbers,
    measured_numbers,
    notes_of,
    product_of,
    ratio_to_full,
    working_set,
)
from harness.publish.known import Bounds, Current, Known
from harness.publish.stale import stale_label
from harness.store import RecordFile

Json = Mapping[str, Any]

# Column -> what it holds; the order of the CSV.
COLUMNS: Mapping[str, str] = {
    "study": "name of the study",
    "case": "name of the case",
    "block": "the axes and the configuration of the block of rows it stands in",
    "label": "what the case is called in that block",
    "set": "the study's set of cases it belongs to",
    "peer": "whose implementation it is, of a row that the suite did not build",
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
    "unique_bytes": "distinct bytes that a launch reads or writes",
    "l2_bytes": "size of the L2 cache, bytes",
    "working_set": "L2-resident, or larger than L2",
    "perturbation": "number of the text variant",
    "builds": "texts timed of the case, on the row that stands for them in a table",
    "samples": "timed launches",
    "seconds": "median time of a launch",
    "tflop_s": "useful TFLOP per second",
    "flop_clk_sm": "useful FLOP per SM clock and SM",
    "work_clk_sm": "work per SM clock and SM of a case that counts no FLOP",
    "unit": "what that work is",
    "sm_mhz": "SM clock run, MHz",
    "reported_mhz": "SM clock the driver reported, MHz",
    "own_percent": "flop_clk_sm as a percentage of own_peak",
    "own_peak": "peak of the path, input and accumulator, FLOP per clock and SM",
    "own_peak_name": "which peak that is",
    "chip_percent": "flop_clk_sm as a percentage of chip_peak",
    "chip_peak": "highest peak of the chip for this input, FLOP per clock and SM",
    "chip_peak_name": "which peak that is",
    "ratio": "flop_clk_sm over full's, at full's configuration, median within rounds",
    "effect": "faster, slower, same or unclear against full, over all builds, corrected for the table",
    "effect_percent": "change of FLOP per clock against full, percent",
    "effect_low": "lower end of its 95 % interval, run and code generation",
    "effect_high": "upper end",
    "effect_note": "why the word is no stronger one",
    "codegen_percent": "half the range of flop_clk_sm over builds, percent of their median",
    "spread_percent": "range of FLOP per clock over the SMs of a launch, percent",
    "profiler": "what read the counters that follow, of one launch outside the timing",
    "tensor_active_percent": "active cycles of an SM in which the tensor pipe worked, percent",
    "issue_active_percent": "active cycles of a sub-partition that issued an instruction, percent",
    "mufu_active_percent": "instructions of the MUFU pipe, percent of what it sustains",
    "shared_active_percent": "wavefronts of shared memory, percent of what its data pipe sustains",
    "l2_hit_percent": "sectors found in L2, percent of those asked of it",
    "math_throttle": "clocks that warps stalled for a math pipe, summed, per instruction issued",
    "top_stall": "the reason of those read with most such clocks, and how many per instruction issued",
    "ceiling": "best flop_clk_sm of the same levels over all configurations",
    "ceiling_at": "the configuration that reaches it",
    "mma": "tensor instructions in one iteration of the main loop",
    "mma_opcode": "their opcode",
    "bound": "predicted from the machine code: what no run can beat, FLOP per clock and SM",
    "of_bound": "flop_clk_sm as a percentage of bound",
    "binding": "the pipe that sets the bound",
    "memory": "memory level that is busy longer than that pipe, where the rate is near what it gives",
    "of_memory": "flop_clk_sm as a percentage of what that level leaves at its best known rate",
    "second": "the pipe that is next",
    "margin": "its clocks over those of the binding one",
    "bound_tflop_s": "bound at the boost clock of the specification, TFLOP/s, of a predicted row",
    "bound_own_percent": "bound as a percentage of own_peak, of a predicted row",
    "bound_chip_percent": "bound as a percentage of chip_peak, of a predicted row",
    "estimate": "what a simulation of one SM reaches, FLOP per clock and SM: no bound",
    "estimate_tflop_s": "that at the boost clock of the specification, TFLOP/s, of a predicted row",
    "registers": "registers per thread",
    "spills": "spill instructions in the kernel",
    "shared_bytes": "shared memory per CTA, bytes",
    "ctas_per_sm": "resident CTAs per SM",
    "verified_on": "where the numbers were compared with the reference: GPU, CPU, or - for nowhere",
    "notes": "what else to know of the row",
    "stale": "how to refresh a row whose source is not what the template renders today",
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


# Columns that no table shows.
HELPERS = ("levels", "slug", "latest", "record")


def frame(
    files: Iterable[RecordFile],
    known: Known | None = None,
    current: Current | None = None,
    bounds: Bounds | None = None,
) -> pd.DataFrame:
    """One row per record of the files, rows in the study's order, columns as COLUMNS plus helpers.

    `known` holds the cases of each study in order; cases it does not hold follow in the order of the files.
    `current` says what a record's template renders today, `bounds` what it cannot beat. What depends on
    other rows of a table (label, effect, ceiling) is still empty. The helper column `latest` is False for a
    record that a newer run of the same case replaces; `levels`, `slug` and `record` are the levels, the
    configuration, the whole record.
    """
    rows = [row for file in files for row in _rows(file, current, bounds)]
    _mark_latest(rows)
    order = {study: facts.cases for study, facts in (known or {}).items()}
    rows = [rows[i] for i in _sorted(rows, order)]
    return pd.DataFrame(rows, columns=[*COLUMNS, *HELPERS], dtype=object)


def _rows(file: RecordFile, current: Current | None, bounds: Bounds | None) -> Iterable[dict[str, Any]]:
    product = product_of(file.header)
    fulls = {_full_key(r, r.get("case")): r for r in file.records if not r.get("perturbation")}
    asked = {name: _asked(file.records, name) for name in ("fill", "l2")}
    for record in file.records:
        row: dict[str, Any] = dict.fromkeys(COLUMNS)
        row |= _identity(file, record, asked)
        row |= measured_numbers(record, product) | build_numbers(record) | counter_numbers(record)
        row["ratio"] = ratio_to_full(record, fulls.get(_full_key(record, record.get("full"))))
        row |= bound_numbers(file.header, record, row["flop_clk_sm"], bounds)
        row |= working_set(file.header, record)
        row["notes"] = "; ".join(notes_of(record, row["memory"]))
        row["stale"] = stale_label(record, current)
        row["record"] = record
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
        "peer": record.get("peer") or "",
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


def _case_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in (*SECTION, "case", "arch", "type"))


def _mark_latest(rows: Sequence[dict[str, Any]]) -> None:
    """Rows come oldest run first: the last of a case and text is the one a table shows.

    Texts of a run before the last of the first text are dropped: they were timed in other rounds.
    """
    newest = {(_case_key(row), row["perturbation"]): i for i, row in enumerate(rows)}
    for i, row in enumerate(rows):
        key = _case_key(row)
        first = newest.get((key, 0), -1)
        older = first >= 0 and (row["started"], row["run"]) < (rows[first]["started"], rows[first]["run"])
        row["latest"] = newest[key, row["perturbation"]] == i and not older


def _sorted(rows: Sequence[Mapping[str, Any]], order: Mapping[str, Sequence[str]]) -> list[int]:
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
