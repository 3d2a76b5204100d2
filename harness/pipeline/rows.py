"""Records: what is stored of a case on a target, made from the frozen values of the stages."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.build.contract import counted
from harness.cases import full_case
from harness.errors import AblationError, ContractError
from harness.model import Build, Case, Check, Contract, Launch, Study, Values, Work

Record = dict[str, Any]


def record_of(
    study: Study,
    case: Case,
    arch: str,
    *,
    kind: str,
    gpu: str | None = None,
    sizes: Values | None = None,
    conditions: Mapping[str, Any] | None = None,
    perturbation: int = 0,
    digest: str | None = None,
    toolkit: str | None = None,
    options: Sequence[str] = (),
) -> Record:
    """A record that says what a case is, and nothing yet of what came of it. `kind` is measured or built."""
    return {
        "type": kind,
        "status": "ok",
        "reason": "",
        "study": study.name,
        "case": case.name,
        "set": case.set_name,
        "full": full_case(study, case).name,
        "levels": dict(case.levels),
        "configuration": dict(case.configuration),
        "problem": case.problem,
        "sizes": dict(sizes or {}),
        "conditions": dict(conditions or {}),
        "perturbation": perturbation,
        "source": {"digest": digest},
        "target": {"arch": arch, "gpu": gpu},
        "toolkit": toolkit,
        "options": list(options),
        "build": None,
        "broken": [],
        "checks": [],
        "work": None,
        "launch": None,
        "counters": None,
        "samples": None,
        "exit": None,
        "reproduce": reproduce(case, arch, timed=gpu is not None),
    }


def reproduce(case: Case, arch: str, *, timed: bool) -> str:
    """The command that makes this row again."""
    words = ["ablate", "run", case.study, "--case", case.name, "--problem", case.problem]
    return shlex.join(words if timed else [*words, "--target", arch])


def failed(record: Record, error: AblationError, status: str | None = None) -> Record:
    """The record of a case that failed: status and reason, never a number."""
    reason = error.message if not error.detail else f"{error.message}\n{error.detail}"
    return {**record, "status": status or error.status, "reason": reason, "samples": None, "exit": None}


def skipped(record: Record, reason: str) -> Record:
    """The record of a combination that cannot exist."""
    return {**record, "status": "skipped", "reason": reason}


def with_build(record: Record, study: Study, build: Build) -> Record:
    """The record with what the compiler made; a broken contract is its status."""
    inspection, contract = build.inspection, study.contract(build.case)
    added: Record = {
        **record,
        "source": {"digest": build.source_digest},
        "toolkit": build.toolkit,
        "options": list(build.options),
        "build": {
            "registers": inspection.registers,
            "shared_bytes": inspection.shared_bytes,
            "dynamic_bytes": build.dynamic_bytes,
            "local_bytes": inspection.local_bytes,
            "spill_stores": inspection.spill_stores,
            "spill_loads": inspection.spill_loads,
            "ctas_per_sm": build.ctas_per_sm,
            "natural_ctas": build.natural_ctas,
            "loop_instructions": inspection.loop_instructions,
            "loop": dict(inspection.loop),
            "loop_minimum": dict(inspection.loop_minimum),
            "mma": {"opcode": contract.mma, "count": counted(contract, inspection.loop)},
            "code_hash": inspection.code_hash,
            "cubin_sha256": build.cubin_sha256,
            "cached": build.cached,
            "compile_seconds": build.compile_seconds,
            "notes": list(build.notes),
        },
        "broken": list(build.broken),
    }
    return failed(added, ContractError("; ".join(build.broken))) if build.broken else added


def work_row(work: Work, contract: Contract) -> Record:
    """The work of one launch, and which peak it is measured against."""
    return {**asdict(work), "mma_path": contract.path, "input": contract.input, "acc": contract.acc}


def launch_row(launch: Launch, dynamic_bytes: int) -> Record:
    """Grid and block, and the dynamic shared memory really asked for."""
    return {
        "grid": list(launch.grid),
        "block": launch.block,
        "shared_bytes": max(dynamic_bytes, launch.shared_bytes),
    }


def check_row(check: Check) -> Record:
    """One comparison with the reference."""
    return {
        "size": check.size,
        "sizes": dict(check.sizes),
        "passed": check.passed,
        "worst": check.worst if check.worst < float("inf") else None,
        "exact": check.exact,
        "message": check.message,
    }
