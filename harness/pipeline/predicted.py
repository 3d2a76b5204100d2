"""Predicted rows: cases compiled for a chip that is not here, and what their machine code says of them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from harness.answer.counts import counts_of_build
from harness.answer.estimate import estimate
from harness.answer.predict import Prediction, predict, predicted_row
from harness.answer.simulate import Step
from harness.build.build import Job, Result
from harness.build.cache import Cache
from harness.build.control import controls
from harness.build.disassembler import Listing, disassemble_all
from harness.build.elf import kernel_code
from harness.build.path import usual_path
from harness.chips import Chip
from harness.errors import AblationError
from harness.model import Build, Case, Study, Where
from harness.pipeline.offline import build_cases
from harness.pipeline.rows import Record, failed, launch_row, record_of, skipped, with_build, work_row
from harness.progress import Ui

# The instruction that waits for copies names how many groups of them may still be under way.
_GROUPS = re.compile(r"SB[0-9], *0x([0-9a-f]+)")


def predicted_records(
    study: Study, cases: Sequence[Case], chip: Chip, cache: Cache, ui: Ui, *, simulate: bool = True
) -> list[tuple[Record, Prediction | None]]:
    """One record of type "predicted" per case, and its bound; None where it was not built or has no rate.

    Sizes are those the case would have on that chip. Nothing is measured: records have no samples. With
    `simulate` each bound comes with an estimate, which takes some tenths of a second.
    """
    jobs = [Job(study=study, case=case, arch=chip.arch) for case in cases]
    results = build_cases(jobs, cache, ui)
    steps = _steps(results, chip.arch) if simulate else {}
    return [
        _predicted(
            study, job, chip, result, steps.get(result.cubin_path, ()) if isinstance(result, Build) else ()
        )
        for job, result in zip(jobs, results, strict=True)
    ]


def _steps(results: Sequence[Result], arch: str) -> dict[str, tuple[Step, ...]]:
    """Cubin -> the usual way through its main loop."""
    paths = list(dict.fromkeys(Path(r.cubin_path) for r in results if isinstance(r, Build) and not r.broken))
    listings = disassemble_all(paths, arch)
    return {
        str(path): steps_of(listing)
        for path, listing in zip(paths, listings, strict=True)
        if isinstance(listing, Listing)
    }


def steps_of(listing: Listing) -> tuple[Step, ...]:
    """A kernel's main loop as a simulation takes it; empty where its code cannot be read."""
    code = kernel_code(listing.path.read_bytes(), str(listing.path))
    found = controls(code) if code else ()
    if len(found) != len(listing.instructions):
        return ()
    steps = []
    for instruction, control in usual_path(listing, found):
        groups = _GROUPS.search(instruction.operands) if instruction.opcode.startswith("DEPBAR") else None
        steps.append(
            Step(
                opcode="NOP" if instruction.does_nothing else instruction.opcode,
                stall=control.stall,
                write=control.write_barrier,
                read=control.read_barrier,
                waits=control.waits,
                groups=int(groups[1], 16) if groups else None,
            )
        )
    return tuple(steps)


def _predicted(
    study: Study, job: Job, chip: Chip, result: Result, steps: Sequence[Step]
) -> tuple[Record, Prediction | None]:
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
    record["reproduce"] = shlex.join(["ablate", "predict", study.name, "--gpu", chip.name])
    if case.skip is not None:
        return skipped(record, case.skip), None
    if isinstance(result, AblationError):
        return failed(record, result), None
    record = with_build(record, study, result)
    if record["status"] != "ok":
        return record, None
    work, launch, contract = study.work(case, sizes), study.launch(case, sizes), study.contract(case)
    record["work"], record["launch"] = work_row(work, contract), launch_row(launch, result.dynamic_bytes)
    counts = counts_of_build(result, work, launch, contract)
    found = predict(counts, chip)
    if found is None:
        reason = f"nothing is known of {contract.path} {contract.input} {contract.acc} on {chip.name}"
        return {**record, "status": "not_supported", "reason": reason}, None
    found = replace(found, estimate=estimate(steps, counts, chip, found))
    return {**record, "predicted": predicted_row(found)}, found
