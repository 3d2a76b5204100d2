"""Predicted rows: cases compiled for a chip that is not here, and the bound that their machine code sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.answer.counts import counts_of_build
from harness.answer.predict import Prediction, predict, predicted_row
from harness.build.build import Job, Result
from harness.build.cache import Cache
from harness.chips import Chip
from harness.errors import AblationError
from harness.model import Build, Case, Study, Where
from harness.pipeline.offline import build_cases
from harness.pipeline.rows import Record, failed, launch_row, record_of, skipped, with_build, work_row
from harness.progress import Ui


def predicted_records(
    study: Study, cases: Sequence[Case], chip: Chip, cache: Cache, ui: Ui
) -> list[tuple[Record, Prediction | None]]:
    """One record of type "predicted" per case, and its bound; None where it was not built or has no rate.

    Sizes are those the case would have on that chip. Nothing is measured: records have no samples.
    """
    jobs = [Job(study=study, case=case, arch=chip.arch) for case in cases]
    return [
        _predicted(study, job, chip, result)
        for job, result in zip(jobs, build_cases(jobs, cache, ui), strict=True)
    ]


def _predicted(study: Study, job: Job, chip: Chip, result: Result) -> tuple[Record, Prediction | None]:
    case = job.case
    ctas = (result.ctas_per_sm or 1) if isinstance(result, Build) else 1
    sizes = study.sizes(case, Where(sms=chip.sms, ctas_per_sm=ctas))
    record = record_of(
        study,
        case,
        job.arch,
        kind="predicted",
        gpu=chip.name,
        sizes=sizes,
        conditions={"ctas_per_sm": ctas},
    )
    record["reproduce"] = f"ablate explain {study.name} --gpu '{chip.name}'"
    if case.skip is not None:
        return skipped(record, case.skip), None
    if isinstance(result, AblationError):
        return failed(record, result), None
    record = with_build(record, study, result)
    if record["status"] != "ok":
        return record, None
    work, launch, contract = study.work(case, sizes), study.launch(case, sizes), study.contract(case)
    record["work"], record["launch"] = work_row(work, contract), launch_row(launch, result.dynamic_bytes)
    found = predict(counts_of_build(result, work, launch, contract), chip)
    if found is None:
        reason = f"nothing is known of {contract.path} {contract.input} {contract.acc} on {chip.name}"
        return {**record, "status": "not_supported", "reason": reason}, None
    added: dict[str, Any] = {"predicted": predicted_row(found)}
    return {**record, **added}, found
