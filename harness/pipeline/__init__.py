"""The path of a run, in order: build, then verify and time where there is a GPU, and record what came out.

The one place where the stages meet, and where an error of a stage becomes the status of a row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness import chips, store
from harness.build.build import Job, Result
from harness.build.cache import Cache
from harness.build.toolkit import supported_archs
from harness.cases import CEILING, full_case
from harness.gpu.device import GpuDevice
from harness.gpu.facts import GpuFacts, find_gpu
from harness.model import Case, Study
from harness.pipeline import peers, timed
from harness.pipeline.counting import read_hardware, require_counters
from harness.pipeline.offline import build_cases, built_records
from harness.pipeline.rows import Record, failed, record_of
from harness.pipeline.setting import header
from harness.pipeline.twins import cpu_checks
from harness.plan import Plan, RunResult, Step, cases_of
from harness.progress import Ui

# What a dry run says one build, and one timed case, take.
BUILD_SECONDS = 0.5
TIMED_SECONDS = 1.5


@dataclass(slots=True)
class _Outcome:
    """What the run has done so far."""

    files: list[Path] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    planned: int = 0

    def count(self, records: Sequence[Record]) -> None:
        self.counts.update(str(record["status"]) for record in records)
        for record in records:
            checks = record["checks"]
            self.reached["compiled"] += record["build"] is not None
            self.reached["verified"] += bool(checks) and all(check["passed"] for check in checks)
            self.reached["timed"] += record["samples"] is not None


def run(plan: Plan, studies: Mapping[str, Study], ui: Ui) -> RunResult:
    """Do what the plan asks and say what was recorded.

    With a GPU whose architecture is asked for, its cases are verified and timed; every other architecture
    is compiled, inspected and checked only. Raises UsageError for a wrong target and ToolError for a
    missing compiler."""
    facts, reason = _gpu(plan)
    cases = cases_of(plan, studies)
    if plan.require_gpu and reason:
        return RunResult(reason_not_timed=reason)
    archs = _architectures(plan, facts)
    timed_arch = chips.arch_of(facts.cc) if facts else None
    if facts:
        require_counters(plan)
    planned = {
        (name, arch): _with_full(studies[name], members) if arch == timed_arch else _main(members)
        for name, members in cases.items()
        for arch in archs
    }
    total = sum(map(len, planned.values()))
    if plan.dry_run:
        return RunResult(reason_not_timed=reason, planned=total, steps=_steps(planned, timed_arch))
    outcome = _Outcome()
    cache = Cache(plan.cache)
    offline = {key: members for key, members in planned.items() if key[1] != timed_arch}
    if offline:
        _run_offline(plan, studies, offline, cache, outcome, ui, reason)
    if facts and timed_arch in archs:
        with GpuDevice(facts) as device, device.reserved(allow_busy=plan.force_busy):
            for (name, arch), members in planned.items():
                if arch != timed_arch:
                    continue
                bench = timed.Bench(study=studies[name], facts=facts, arch=arch, plan=plan)
                if not _run_timed(bench, members, cache, device, outcome, ui):
                    break
    return RunResult(
        files=tuple(outcome.files),
        reason_not_timed=reason,
        planned=outcome.planned,
        counts=dict(outcome.counts),
        reached=dict(outcome.reached),
    )


def _gpu(plan: Plan) -> tuple[GpuFacts | None, str | None]:
    """The GPU that is timed, or why none is."""
    found = find_gpu()
    if isinstance(found, str):
        return None, found
    wanted = [chips.parse_target(word).arch for word in plan.targets]
    own = chips.arch_of(found.cc)
    if wanted and own not in wanted:
        return None, f"the GPU here ({found.name}, {own}) is not among the targets {' '.join(wanted)}"
    return found, None


def _architectures(plan: Plan, facts: GpuFacts | None) -> tuple[str, ...]:
    """The architectures to build for, those asked for or those that make sense here."""
    known = supported_archs()
    if plan.targets:
        return tuple(dict.fromkeys(chips.parse_target(word, known).arch for word in plan.targets))
    if facts:
        return (chips.arch_of(facts.cc),)
    return chips.usual_archs(known)


def _main(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Without the other configurations, which only a measurement can rank; all when nothing else was
    named."""
    return tuple(case for case in cases if case.set_name != CEILING) or tuple(cases)


def _with_full(study: Study, cases: Sequence[Case]) -> tuple[Case, ...]:
    """The cases, led by the full ones they are compared with: a ratio is one of the same rounds."""
    named = {case.name for case in cases}
    fulls = {full.name: full for full in (full_case(study, case) for case in cases) if full.name not in named}
    return (*fulls.values(), *cases)


def _steps(planned: Mapping[tuple[str, str], Sequence[Case]], timed_arch: str | None) -> tuple[Step, ...]:
    return tuple(
        Step(
            study=name,
            case=case.name,
            target=arch,
            action="skip: " + case.skip
            if case.skip
            else "verify and time"
            if arch == timed_arch
            else "build and check",
            seconds=0.0 if case.skip else TIMED_SECONDS if arch == timed_arch else BUILD_SECONDS,
        )
        for (name, arch), cases in planned.items()
        for case in cases
    )


def _run_offline(
    plan: Plan,
    studies: Mapping[str, Study],
    planned: Mapping[tuple[str, str], Sequence[Case]],
    cache: Cache,
    outcome: _Outcome,
    ui: Ui,
    reason: str | None,
) -> None:
    """Build for every architecture at once, check the numbers on the CPU, write one file per study and
    architecture."""
    jobs = [
        Job(study=studies[name], case=case, arch=arch)
        for (name, arch), cases in planned.items()
        for case in cases
    ]
    results = dict(
        zip(((j.study.name, j.arch, j.case.name) for j in jobs), build_cases(jobs, cache, ui), strict=True)
    )
    checks = {
        name: cpu_checks(
            studies[name], [c for (n, _), members in planned.items() if n == name for c in members], cache, ui
        )
        for name in dict.fromkeys(name for name, _ in planned)
    }
    for (name, arch), cases in planned.items():
        built = {case.name: results[name, arch, case.name] for case in cases}
        records = built_records(studies[name], cases, arch, built, checks[name])
        outcome.planned += len(records)
        first = header(plan, None, reason)
        path = store.record_path(plan.results / "records", name, arch, first)
        with store.create(path, first, planned=len(records)) as writer:
            for record in records:
                writer.append(record)
            writer.finish()
        outcome.files.append(path)
        outcome.count(records)


def _run_timed(
    bench: timed.Bench, cases: Sequence[Case], cache: Cache, device: GpuDevice, outcome: _Outcome, ui: Ui
) -> bool:
    """Build, verify, time and record one study; False when the user interrupted it. LaunchError, and no
    file, when there is no GPU worker to be had."""
    study, plan = bench.study, bench.plan
    built = _build_perturbed(bench, cases, cache, ui)
    first = header(plan, bench.facts, None)
    done = _resumed(plan, first, bench, cases, built)
    made = [c for c in timed.candidates(bench, cases, built) if _key(first, c) not in done]
    waiting = [c for c in made if isinstance(c, timed.Candidate)]
    if waiting:
        # Without a worker every row would fail alike, each after a start of its own.
        device.come_up()
    outcome.planned += len(made)
    path = store.record_path(plan.results / "records", study.name, bench.facts.name, first)
    with store.create(path, first, planned=len(made)) as writer:
        outcome.files.append(path)

        def keep(record: Record) -> None:
            writer.append(record)
            outcome.count([record])

        for record in made:
            if isinstance(record, dict):
                keep(record)
        verified: list[timed.Candidate] = []
        unrecorded = {c.id: None for c in waiting}
        try:
            for candidate, error in timed.prepare_and_verify(bench, waiting, device, ui):
                if error is None:
                    verified.append(candidate)
                else:
                    del unrecorded[candidate.id]
                    keep(failed(candidate.record, error))
            others: list[peers.Beside] = []
            for row, error in peers.prepared(bench, peers.beside(bench, verified), device):
                outcome.planned += 1
                if error is None:
                    others.append(row)
                else:
                    keep(failed(row.record(), error))
            entries = [*timed.entries_of(bench, verified), *peers.entries(others, cold=plan.l2 == "cold")]
            read_hardware(bench, verified, ui)
            session = timed.measure(bench, entries, device, ui)
        except KeyboardInterrupt:
            writer.finish(missing=tuple(unrecorded))
            ui.note(f"interrupted: {path} is partial; --resume {path} goes on from it")
            return False
        for candidate in verified:
            if candidate.id not in session.missing:
                keep(timed.measured_record(candidate, session))
        for row in others:
            if row.id not in session.missing:
                keep(peers.measured_record(row, session))
        names = [*(candidate.id for candidate in verified), *(row.id for row in others)]
        writer.finish(missing=[name for name in names if name in session.missing])
        if session.partial:
            ui.note(f"interrupted: {path} is partial; --resume {path} goes on from it")
        return not session.partial


def _build_perturbed(
    bench: timed.Bench, cases: Sequence[Case], cache: Cache, ui: Ui
) -> dict[tuple[str, int], Result]:
    """Every case, and its perturbations where an effect is claimed of it, by (case name, perturbation)."""
    wanted = [
        (case, perturbation)
        for case in cases
        for perturbation in range(1 if case.set_name == CEILING or case.skip else bench.plan.perturbations)
    ]
    jobs = [Job(study=bench.study, case=case, arch=bench.arch, perturbation=p) for case, p in wanted]
    results = build_cases(jobs, cache, ui)
    return {(case.name, p): result for (case, p), result in zip(wanted, results, strict=True)}


def _key(first: Mapping[str, object], made: timed.Candidate | Record) -> str:
    return store.key(first, made.record if isinstance(made, timed.Candidate) else made)


def _resumed(
    plan: Plan,
    first: Mapping[str, object],
    bench: timed.Bench,
    cases: Sequence[Case],
    built: Mapping[tuple[str, int], Result],
) -> frozenset[str]:
    """Keys that the file to resume from holds already. Full is timed again: effects are ratios within one
    run."""
    if plan.resume is None:
        return frozenset()
    wanted = [c for c in timed.candidates(bench, cases, built) if isinstance(c, timed.Candidate)]
    keys = {_key(first, c): c for c in wanted}
    done = frozenset(store.resume([store.read(plan.resume)], keys))
    rest = [c for name, c in keys.items() if name not in done]
    needed = {c.record["full"] for c in rest}
    return frozenset(name for name in done if keys[name].case.name not in needed)


__all__ = ["RunResult", "record_of", "run"]
