"""Building cases and recording what was built: the whole path on a machine without a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness import chips
from harness.build.build import Job, Result, build_all
from harness.build.cache import Cache
from harness.errors import AblationError
from harness.model import Case, Study
from harness.pipeline.rows import Record, failed, launch_row, record_of, skipped, with_build
from harness.progress import Ui


def build_cases(jobs: Sequence[Job], cache: Cache, ui: Ui) -> list[Result]:
    """Every job built, with a progress bar; an error is the result of its own job only."""
    existing = [job for job in jobs if job.case.skip is None]
    with ui.stage("compile and inspect", None if not existing else 2 * len(existing)) as advance:
        built = build_all(
            existing, cache, progress=lambda done, total, what: advance(what), limits_of=chips.limits
        )
    results = dict(zip((job.identity for job in existing), built, strict=True))
    return [results[job.identity] if job.case.skip is None else AblationError(job.case.skip) for job in jobs]


def built_records(
    study: Study, cases: Sequence[Case], arch: str, built: Mapping[str, Result], checks: Mapping[str, Any]
) -> list[Record]:
    """One record per case of one architecture; `built` and `checks` (from the CPU twin) by case name."""
    return [_built_record(study, case, arch, built[case.name], checks.get(case.name)) for case in cases]


def _built_record(study: Study, case: Case, arch: str, result: Result, check: Any) -> Record:
    record = record_of(study, case, arch, kind="built")
    if case.skip is not None:
        return skipped(record, case.skip)
    if isinstance(result, AblationError):
        return failed(record, result)
    record = with_build(record, study, result)
    small = study.check_sizes(case)["small"]
    record["launch"] = launch_row(study.launch(case, small), result.dynamic_bytes)
    if check is not None:
        record["checks"] = [check]
        if not check["passed"] and record["status"] == "ok":
            record |= {"status": "wrong", "reason": check["message"]}
    return record
