"""Verifying and timing one study's builds on the GPU here, and recording each case as soon as its fate is
known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from harness import chips, engine
from harness.answer import predict
from harness.answer.counts import counts_of_build
from harness.build.build import Result
from harness.check.verify import compare
from harness.errors import AblationError, VerifyError
from harness.gpu.commands import Entry, Run, StudyInputs, make_entry
from harness.gpu.device import GpuDevice
from harness.gpu.facts import GpuFacts
from harness.model import Build, Case, Check, Study, Values, Where
from harness.pipeline.references import References, Wanted, wanted_checks
from harness.pipeline.rows import (
    Record,
    check_row,
    failed,
    launch_row,
    record_of,
    skipped,
    with_build,
    work_row,
)
from harness.plan import Plan
from harness.progress import Ui


@dataclass(slots=True)
class Candidate:
    """One build of one case on its way to a record."""

    case: Case
    perturbation: int
    build: Build
    sizes: Values
    fill: str
    record: Record
    checks: tuple[Wanted, ...] = field(default=())

    @property
    def id(self) -> str:
        """Unique among the study's entries."""
        return f"{self.case.study}/{self.case.name}#{self.perturbation}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What timing a study needs: the study, the GPU, and what was asked for."""

    study: Study
    facts: GpuFacts
    arch: str
    plan: Plan

    def entry(self, candidate: Candidate) -> Entry:
        """What the GPU is given of a candidate: its kernel, and the launch that is timed."""
        run = self.run(candidate.case, candidate.sizes, candidate.fill)
        work = self.study.work(candidate.case, candidate.sizes)
        return make_entry(candidate.id, candidate.build, self.study.name, run, work)

    def run(self, case: Case, sizes: Values, fill: str) -> Run:
        """One launch of a case at some sizes, with its data made in the worker."""
        inputs = StudyInputs(study=case.study, case=case, sizes=sizes, fill=fill, seed=self.plan.seed)
        return Run(
            launch=self.study.launch(case, sizes),
            inputs=inputs,
            outputs=dict(self.study.outputs(case, sizes)),
        )


def candidates(
    bench: Bench, cases: Sequence[Case], built: Mapping[tuple[str, int], Result]
) -> Iterator[Candidate | Record]:
    """What can be timed, and the records of what cannot, in the order of the cases.

    A perturbation whose machine code is that of an earlier one tells nothing and is left out.
    """
    for case in cases:
        seen: set[str] = set()
        for (name, perturbation), result in built.items():
            if name != case.name:
                continue
            made = _candidate(bench, case, perturbation, result, built.get((name, 0), result))
            if isinstance(made, Candidate):
                if made.build.inspection.code_hash in seen:
                    continue
                seen.add(made.build.inspection.code_hash)
            yield made


def _candidate(
    bench: Bench, case: Case, perturbation: int, result: Result, first: Result
) -> Candidate | Record:
    study, plan = bench.study, bench.plan
    if not isinstance(result, Build) or not isinstance(first, Build):
        record = record_of(
            study, case, bench.arch, kind="measured", gpu=bench.facts.name, perturbation=perturbation
        )
        if case.skip is not None:
            return skipped(record, case.skip)
        return failed(record, result if isinstance(result, AblationError) else AblationError("full failed"))
    # All builds of a case do the same work, whatever their own residency.
    ctas = first.ctas_per_sm or 1
    sizes = study.sizes(case, Where(sms=bench.facts.sms, ctas_per_sm=ctas))
    fill = study.fill(case, plan.fill)
    launch, work = study.launch(case, sizes), study.work(case, sizes)
    record = record_of(
        study,
        case,
        bench.arch,
        kind="measured",
        gpu=bench.facts.name,
        sizes=sizes,
        perturbation=perturbation,
        conditions={
            "fill": fill,
            "l2": plan.l2,
            "waves": round(launch.ctas / (bench.facts.sms * ctas), 4),
            "ctas_per_sm": ctas,
        },
    )
    record = with_build(record, study, result)
    if record["status"] != "ok":
        return record
    record["work"] = work_row(work, study.contract(case))
    record["launch"] = launch_row(launch, result.dynamic_bytes)
    checks = wanted_checks(study, case, sizes, fill, plan.seed)
    return Candidate(case, perturbation, result, sizes, fill, record, checks)


def prepare_and_verify(
    bench: Bench, chosen: Sequence[Candidate], device: GpuDevice, ui: Ui
) -> Iterator[tuple[Candidate, AblationError | None]]:
    """Load each candidate and compare it with its reference; the error of one that fails.

    The first build of a case is checked at every size, its perturbations at the timed one.
    """
    firsts = {c.case.name: c for c in reversed(chosen)}
    references = References(bench.study, [w for c in reversed(firsts.values()) for w in c.checks])
    try:
        with ui.stage("verify", len(chosen)) as advance:
            for position, candidate in enumerate(chosen):
                error = _verified(
                    bench, candidate, device, references, first=firsts[candidate.case.name] is candidate
                )
                advance(candidate.case.name)
                following = chosen[position + 1].case.name if position + 1 < len(chosen) else None
                if following != candidate.case.name:
                    for wanted in candidate.checks:
                        references.drop(wanted)
                yield candidate, error
    finally:
        references.close()


def _verified(
    bench: Bench, candidate: Candidate, device: GpuDevice, references: References, *, first: bool
) -> AblationError | None:
    try:
        loaded = device.prepare(bench.entry(candidate))
        if loaded.ctas_per_sm != candidate.build.ctas_per_sm:
            candidate.record["build"]["notes"].append(
                f"the driver fits {loaded.ctas_per_sm} CTAs per SM, arithmetic {candidate.build.ctas_per_sm}"
            )
        for wanted in candidate.checks if first else candidate.checks[-1:]:
            check = _check(bench, candidate, device, references, wanted)
            candidate.record["checks"].append(check_row(check))
            if not check.passed:
                raise VerifyError(f"{check.size} size: {check.message}")
    except AblationError as error:
        device.forget(candidate.id)
        return error
    return None


def _check(
    bench: Bench, candidate: Candidate, device: GpuDevice, references: References, wanted: Wanted
) -> Check:
    """One launch compared with its reference, and every output scanned whole."""
    expected = references.take(wanted)
    got = device.verify(candidate.id, bench.run(candidate.case, wanted.sizes, wanted.fill), wanted.slices)
    # The outputs hold the wanted slices already, so all that came back is compared.
    check = compare(got.outputs, expected).check(wanted.size, wanted.sizes)
    for name, scan in got.scans.items():
        if scan.unwritten or scan.nan:
            message = (
                f"{name}: {scan.unwritten} elements never written, {scan.nan} NaN, first at {scan.first_bad}"
            )
            return replace(check, passed=False, message=message)
    return check


def entries_of(bench: Bench, chosen: Sequence[Candidate]) -> list[engine.Entry]:
    """The engine's entries of the verified candidates."""
    names = {c.id for c in chosen}
    return [_entry(bench, candidate, names) for candidate in chosen]


def measure(bench: Bench, entries: Sequence[engine.Entry], device: GpuDevice, ui: Ui) -> engine.Session:
    """Interleaved rounds over all entries."""
    plan = bench.plan
    settings: dict[str, Any] = {"seed": plan.seed, "rounds": plan.rounds}
    if plan.width_percent is not None:
        settings["width"] = plan.width_percent / 100
    if plan.seconds is not None:
        settings["seconds"] = plan.seconds
    with ui.stage(f"time {len(entries)} builds in interleaved rounds", None) as advance:
        return engine.measure(
            device,
            entries,
            engine.Plan(**settings),
            progress=lambda rounds, widest: advance(
                f"round {rounds}" + (f", widest interval {100 * widest:.2f} %" if widest is not None else "")
            ),
        )


def _entry(bench: Bench, candidate: Candidate, names: set[str]) -> engine.Entry:
    full = f"{candidate.case.study}/{candidate.record['full']}#0"
    return engine.Entry(
        id=candidate.id,
        full=full if full in names and full != candidate.id else None,
        cold=bench.plan.l2 == "cold",
        floor_cycles=floor_cycles(bench, candidate),
    )


def floor_cycles(bench: Bench, candidate: Candidate) -> float:
    """Cycles that the mean SM cannot stay under by what its machine code must do; 0 for an unknown chip."""
    chip = chips.identify(bench.facts.name, bench.facts.sms)
    if chip is None:
        return 0.0
    study, case, sizes = bench.study, candidate.case, candidate.sizes
    counts = counts_of_build(
        candidate.build, study.work(case, sizes), study.launch(case, sizes), study.contract(case)
    )
    return predict.floor_cycles(counts, chip)


def measured_record(candidate: Candidate, session: engine.Session) -> Record:
    """The record of a candidate after the rounds."""
    measured = session.results[candidate.id]
    record = {
        **candidate.record,
        "rejected": measured.rejected,
        "first_launch_seconds": measured.first_seconds,
    }
    record["build"] = {**record["build"], "notes": [*record["build"]["notes"], *measured.notes]}
    if measured.status != "ok":
        return {**record, "status": measured.status, "reason": measured.reason}
    return {**record, "samples": engine.columns(measured), "exit": measured.exit}
