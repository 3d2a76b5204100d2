"""Predictions as record files: whole studies on chips that are not here, one file per study and chip."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import store
from harness.answer.estimate import FITTED, SPREAD
from harness.build.cache import Cache
from harness.cases import CEILING, default_cases
from harness.chips import Chip
from harness.errors import RecordError
from harness.key import safe_name
from harness.model import Study
from harness.pipeline.predicted import predicted_records
from harness.pipeline.rows import Record
from harness.pipeline.setting import header
from harness.plan import Plan
from harness.progress import Ui

NOT_TIMED = "predicted from machine code: the GPU named in its records was not here"
# What differs from one build of the same text to the next, and what no table of predictions shows.
_BUILD_LEFT_OUT = ("cached", "compile_seconds", "loop", "loop_minimum")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one study on one chip: its file, newly written or as it was; rows by status."""

    study: str
    gpu: str
    path: Path
    written: bool
    counts: Mapping[str, int]


def predict_study(
    study: Study, chip: Chip, results: Path, cache: Cache, ui: Ui, *, command: str, simulate: bool = True
) -> Outcome:
    """Predict the study's default cases at their first configuration, and write them where they are new.

    Equal texts, toolkit and rates give equal records; then the newest file stays the newest.
    """
    cases = [case for case in default_cases(study) if case.set_name != CEILING]
    found = predicted_records(study, cases, chip, cache, ui, simulate=simulate)
    records = [_stored(record) for record, _ in found]
    statuses = [str(record["status"]) for record in records]
    counts = {status: statuses.count(status) for status in dict.fromkeys(statuses)}
    root = results / "records"
    known = _newest(root / safe_name(study.name) / safe_name(chip.name))
    if known is not None and _same(known.records, records):
        return Outcome(study=study.name, gpu=chip.name, path=known.path, written=False, counts=counts)
    first = header(Plan(studies=(study.name,), command=command), None, NOT_TIMED)
    path = store.record_path(root, study.name, chip.name, first)
    with store.create(path, first, planned=len(records)) as writer:
        for record in records:
            writer.append(record)
        writer.finish()
    return Outcome(study=study.name, gpu=chip.name, path=path, written=True, counts=counts)


def _stored(record: Record) -> Record:
    """The record as a file holds it: what tables need, and nothing that changes by itself."""
    kept = dict(record)
    if record["build"]:
        kept["build"] = {k: v for k, v in record["build"].items() if k not in _BUILD_LEFT_OUT}
    if "predicted" in record:
        predicted = {k: v for k, v in record["predicted"].items() if k != "uses"}
        spread = None if predicted["estimate"] is None else list(SPREAD)
        fitted = None if spread is None else list(FITTED)
        kept["predicted"] = {**predicted, "estimate_spread": spread, "estimate_fitted": fitted}
    return kept


def _newest(folder: Path) -> store.RecordFile | None:
    """The newest whole file of predictions there; measured ones may lie beside it."""
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        try:
            file = store.read(path)
        except RecordError:
            continue
        if file.partial is None and file.records and all(r["type"] == "predicted" for r in file.records):
            found.append(file)
    return max(found, key=lambda file: (str(file.header["started"]), str(file.header["run"])), default=None)


def _same(stored: Sequence[Mapping[str, Any]], fresh: Sequence[Record]) -> bool:
    as_read = [json.loads(store.encode({"kind": "record", **record})) for record in fresh]
    return list(stored) == as_read
