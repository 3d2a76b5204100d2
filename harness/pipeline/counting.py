"""Hardware counters beside the cases, where the user asks for them."""

from __future__ import annotations

from collections.abc import Sequence

from harness import probes
from harness.build.contract import counted
from harness.errors import ToolError, UsageError
from harness.gpu.counters import read_counters
from harness.model import Study
from harness.pipeline.timed import Bench, Candidate
from harness.plan import Plan
from harness.progress import Ui


def require_counters(plan: Plan) -> None:
    """UsageError when counters are wanted and there is nothing here to read them."""
    if not plan.counters:
        return
    try:
        probes.ncu_program()
    except FileNotFoundError:
        raise UsageError(
            "--counters needs Nsight Compute: put ncu on PATH, or leave --counters out"
        ) from None
    if probes.counters_are_closed():
        raise UsageError(
            "--counters: only root may read them here: set the driver's NVreg_RestrictProfilingToAdminUsers=0"
        )


def read_hardware(bench: Bench, verified: Sequence[Candidate], ui: Ui) -> None:
    """Note the counters of the first text of each case in its record; before the timing, which they disturb.

    A tensor instruction that the counters miss, or find too many, is said on the row: the work is not what
    the study says it is. Where ncu fails, a line says why, and the rows have none.
    """
    firsts = [candidate for candidate in verified if candidate.perturbation == 0]
    if not bench.plan.counters or not firsts:
        return
    study = bench.study
    entries = [bench.entry(candidate) for candidate in firsts]
    with ui.stage(f"count {len(entries)} launches of {study.name}", None):
        try:
            tool = f"Nsight Compute {probes.ncu()}"
            found = read_counters(entries, bench.facts, probes.ncu_program())
        except (ToolError, OSError) as error:
            ui.note(f"{study.name}: no hardware counters: {error}")
            return
    for candidate in firsts:
        values = found[candidate.id]
        candidate.record["counters"] = {"tool": tool, "values": values}
        candidate.record["build"]["notes"] += _miscounted(study, candidate, values.get("tensor_instructions"))


def _miscounted(study: Study, candidate: Candidate, found: float | None) -> list[str]:
    """What to say where the counters and the work disagree: the loop's MMAs, and those around it once."""
    contract, inspection = study.contract(candidate.case), candidate.build.inspection
    if found is None or contract.path != "mma.sync":
        return []
    launch, work = study.launch(candidate.case, candidate.sizes), study.work(candidate.case, candidate.sizes)
    around = sum(inspection.kernel_mma.values()) - counted(contract, inspection.loop)
    said = (work.mma_per_cta + around * launch.block // 32) * launch.ctas
    return [] if found == said else [f"ncu counts {found:.0f} tensor instructions, the work says {said}"]
