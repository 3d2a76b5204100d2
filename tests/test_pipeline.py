"""A whole run, without a GPU and with one made up: every fate of a case is a row, and no row is lost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import fake_gpu
import numpy as np
import pytest
from fake_device import FakeDevice, FakeKernel, raising

from harness import pipeline, store
from harness.build import build as building
from harness.cases import default_cases
from harness.check.twin import TwinResult, run_twin, twin_available
from harness.errors import HungError, LaunchError, NotSupportedError, RenderError, ToolError, UsageError
from harness.gpu.commands import Entry, Loaded, Run, Scan, StudyInputs, Verified
from harness.gpu.facts import GpuFacts
from harness.key import digest
from harness.model import Case, Expected, Source, Study, Values, Where
from harness.pipeline import counting, timed
from harness.pipeline import rows as rows_module
from harness.pipeline.references import References
from harness.plan import Plan, RunResult
from harness.progress import Quiet
from harness.publish.derive import notes_of
from tests.studies import INSTRUCTION, stored

FULL, ONE, WIDE, BARRED = "full", "chains=1,warps=4", "chains=8,warps=4", "dtype=bf16,acc_dtype=f16"
FULL_F16, F16 = "acc_dtype=f16", "acc_dtype=f16,chains=1,warps=4"
CASES = [FULL, FULL_F16, BARRED, ONE, WIDE, F16]
BUILDABLE = [name for name in CASES if name != BARRED]
Json = dict[str, Any]


def small_sets() -> Mapping[str, tuple[Values, ...]]:
    base = INSTRUCTION.baseline
    half = base.replace(acc_dtype="f16")
    return {
        "full": (base, half, base.replace(dtype="bf16", acc_dtype="f16")),
        "ladder": (base.replace(chains=1, warps=4), base.replace(chains=8, warps=4)),
        "f16": (half.replace(chains=1, warps=4),),
    }


STUDY = replace(INSTRUCTION, sets=small_sets, sizes=lambda case, where: Values(ctas=where.sms, trips=40))


class FakeGpu:
    """GpuDevice as the pipeline uses it: gives what the study's reference says, or what a fault makes of it.

    `faults` gives a case's fault by its name: wrong, nan, unwritten, launch, hang (while it is verified),
    unsupported (while it is loaded), interrupt, or an error that it raises when it is timed.
    """

    made: list[FakeGpu] = []  # noqa: RUF012

    def __init__(self, facts: GpuFacts, faults: Mapping[str, Any]) -> None:
        self.facts, self.faults = facts, faults
        self.timer = FakeDevice(kernels={})
        self.entries: dict[str, Entry] = {}
        self.allowed_busy: bool | None = None
        self.time, self.warm_up, self.state = self.timer.time, self.timer.warm_up, self.timer.state
        FakeGpu.made.append(self)

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    @contextmanager
    def reserved(self, *, allow_busy: bool = False) -> Iterator[None]:
        self.allowed_busy = allow_busy
        yield

    def come_up(self) -> None:
        if "worker" in self.faults:
            raise self.faults["worker"]

    def fault_of(self, entry_id: str) -> Any:
        return self.faults.get(entry_id.partition("/")[2].removesuffix("#0"))

    def prepare(self, entry: Entry) -> Loaded:
        fault = self.fault_of(entry.id)
        if fault == "unsupported":
            raise NotSupportedError("needs 3 bytes of shared memory, has 2")
        if isinstance(fault, NotSupportedError):
            raise fault
        error = fault if isinstance(fault, BaseException) else None
        self.timer.kernels[entry.id] = FakeKernel(noise=1e-3, fault=raising(error, at=1) if error else None)
        self.entries[entry.id] = entry
        return Loaded(
            registers=32,
            local_bytes=0,
            shared_bytes=0,
            dynamic_bytes=0,
            max_threads=1024,
            binary_version=90,
            ctas_per_sm=8,
        )

    def forget(self, entry_id: str) -> None:
        self.entries.pop(entry_id, None)

    def verify(self, entry_id: str, run: Run, slices: Sequence[int] | None) -> Verified:
        fault = self.fault_of(entry_id)
        if fault == "interrupt":
            raise KeyboardInterrupt
        if fault == "launch":
            raise LaunchError("cudaErrorIllegalAddress: an illegal memory access was encountered")
        if fault == "hang":
            raise HungError("did not come back within 20 s")
        given = run.inputs
        assert isinstance(given, StudyInputs) and given.case.name in entry_id
        inputs = STUDY.inputs(given.case, given.sizes, given.fill, given.seed)
        chosen = None if slices is None else tuple(slices)
        expected = STUDY.reference(given.case, given.sizes, inputs, chosen)
        outputs = stored(expected, STUDY, given.case, given.sizes)
        scan = Scan(elements=1, unwritten=0, nan=0, inf=0, first_bad=None)
        if fault == "wrong":
            outputs = {name: array + np.float32(1) for name, array in outputs.items()}
        if fault == "nan" and slices is not None:  # outside of what is compared
            scan = replace(scan, nan=2, first_bad=7)
        if fault == "unwritten":
            scan = replace(scan, unwritten=3, first_bad=1)
        return Verified(outputs=outputs, scans=dict.fromkeys(outputs, scan))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


Go = Callable[..., RunResult]


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> Go:
    """Runs the small study; `gpu` is None for a machine without, `faults` what its kernels do."""

    def run(
        *,
        gpu: GpuFacts | None = None,
        faults: Mapping[str, Any] | None = None,
        study: Study = STUDY,
        **more: Any,
    ) -> RunResult:
        FakeGpu.made = []
        monkeypatch.setattr(pipeline, "find_gpu", lambda: gpu or "there is no NVIDIA driver")
        monkeypatch.setattr(pipeline, "GpuDevice", lambda facts: FakeGpu(facts, faults or {}))
        monkeypatch.setattr(pipeline, "cpu_checks", more.pop("twins", lambda *_: {}))
        plan = Plan(
            **{
                "studies": (study.name,),
                "cache": cache,
                "results": tmp_path / "results",
                "rounds": 4,
                "perturbations": 1,
                "command": "ablate run of a test",
                **more,
            }
        )
        return pipeline.run(plan, {study.name: study}, Quiet())

    return run


GPU = fake_gpu.facts()


def lines(result: RunResult, number: int = 0) -> list[Json]:
    """The lines of a record file, read by a strict reader; the file is valid."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is no JSON number")

    path = result.files[number]
    assert store.validate(path) == []
    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def rows(result: RunResult, number: int = 0) -> dict[str, Json]:
    """The records of a file by case, and by case#perturbation for the perturbed builds."""
    found = [line for line in lines(result, number) if line["kind"] == "record"]
    named = {r["case"] + (f"#{r['perturbation']}" if r["perturbation"] else ""): r for r in found}
    assert len(named) == len(found)
    return named


# ---- no GPU --------------------------------------------------------------------------------------------


def test_c30_without_a_gpu_everything_up_to_the_contract_is_recorded(go: Go) -> None:
    result = go(targets=("sm_80", "12.0"))
    assert result.reason_not_timed == "there is no NVIDIA driver"
    assert [path.parent.name for path in result.files] == ["sm_80", "sm_120a"]
    assert result.planned == 2 * len(CASES) == sum(result.counts.values())
    assert result.counts == {"ok": 2 * len(BUILDABLE), "skipped": 2} and result.failed == 0
    assert result.reached == {"compiled": 2 * len(BUILDABLE), "verified": 0, "timed": 0}
    for number, arch in enumerate(("sm_80", "sm_120a")):
        head, *_, footer = lines(result, number)
        assert head["reason_not_timed"] == "there is no NVIDIA driver" and head["environment"]["gpu"] is None
        assert footer == {"kind": "footer", "complete": True, "planned": len(CASES), "written": len(CASES)}
        found = rows(result, number)
        assert list(found) == CASES
        for name in BUILDABLE:
            row = found[name]
            assert (row["type"], row["status"], row["samples"]) == ("built", "ok", None)
            assert row["target"] == {"arch": arch, "gpu": None} and row["broken"] == []
            assert row["build"]["mma"]["count"] == STUDY.contract(case_named(name)).mma_count
            assert f"--target {arch}" in row["reproduce"]
        assert "no such instruction" in found[BARRED]["reason"] and found[BARRED]["build"] is None


def case_named(name: str) -> Case:
    return next(case for case in default_cases(STUDY) if case.name == name)


@pytest.mark.skipif(twin_available() is not None, reason=twin_available() or "")
def test_numbers_are_checked_on_the_cpu_where_there_is_no_gpu(go: Go) -> None:
    result = go(targets=("sm_80",), patterns=(ONE,), twins=real_twins)
    check = rows(result)[ONE]["checks"][0]
    assert check["passed"] and check["exact"] and check["worst"] == 0


real_twins = pipeline.cpu_checks


@pytest.mark.skipif(twin_available() is not None, reason=twin_available() or "")
def test_bank_conflicts_of_a_right_kernel_are_said_and_kept(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def conflicting(*words: Any) -> TwinResult:
        return replace(run_twin(*words), conflicts=("bank conflicts: 2.00 x at templates/p.cuh:1",))

    monkeypatch.setattr("harness.pipeline.twins.run_twin", conflicting)
    notes: list[str] = []
    monkeypatch.setattr(Quiet, "note", lambda _, text: notes.append(text))
    row = rows(go(targets=("sm_80",), patterns=(ONE,), twins=real_twins, cache=tmp_path / "cache"))[ONE]
    assert row["status"] == "ok" and row["checks"][0]["passed"]
    assert row["checks"][0]["message"].startswith("bank conflicts")
    assert any(text.endswith("bank conflicts: 2.00 x at templates/p.cuh:1") for text in notes)
    assert notes_of(row) == (row["checks"][0]["message"],)


def test_a_wrong_number_on_the_cpu_is_a_wrong_row(go: Go) -> None:
    check = {"size": "cpu", "sizes": {"trips": 4}, "passed": False, "worst": None, "exact": True}
    check["message"] = "d[0, 0, 0, 0]: got 1, want exactly 2"
    result = go(targets=("sm_80",), twins=lambda *_: {ONE: check})
    assert result.counts["wrong"] == 1 and result.failed == 1
    row = rows(result)[ONE]
    assert (row["status"], row["reason"], row["checks"]) == ("wrong", check["message"], [check])


def test_other_architectures_than_the_gpus_are_built_only(go: Go) -> None:
    result = go(gpu=GPU, targets=("sm_80",))
    assert FakeGpu.made == [] and result.reason_not_timed is not None
    assert "sm_90a" in result.reason_not_timed and "sm_80" in result.reason_not_timed
    both = go(gpu=GPU, targets=("sm_80", "9.0"))
    assert both.reason_not_timed is None
    assert {row["type"] for row in rows(both, 0).values()} == {"built"}
    assert {row["type"] for row in rows(both, 1).values()} == {"measured"}


def test_require_gpu_ends_before_anything_is_built(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "build_cases", lambda *_: pytest.fail("built"))
    result = go(require_gpu=True)
    assert result.reason_not_timed and result.files == () and result.planned == 0


@pytest.mark.parametrize("gpu", [None, GPU])
def test_a_dry_run_does_nothing_and_says_what_it_would(
    go: Go, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: GpuFacts | None
) -> None:
    monkeypatch.setattr(pipeline, "build_cases", lambda *_: pytest.fail("built"))
    result = go(gpu=gpu, dry_run=True, targets=() if gpu else ("sm_80",))
    assert [step.case for step in result.steps] == CASES and result.planned == len(CASES)
    actions = {step.case: step.action for step in result.steps}
    assert actions[FULL] == ("verify and time" if gpu else "build and check")
    assert actions[BARRED].startswith("skip: no such instruction")
    assert result.files == () and not (tmp_path / "results").exists() and FakeGpu.made == []


def test_a_wrong_target_is_an_error_with_the_right_ones(go: Go) -> None:
    with pytest.raises(UsageError, match="sm_90a"):
        go(targets=("sm_9O",))


def test_a_pattern_without_a_case_is_an_error_before_anything_is_done(go: Go) -> None:
    with pytest.raises(UsageError, match="chains has no level '3'"):
        go(patterns=("chains=3,warps=4",))


# ---- a GPU ---------------------------------------------------------------------------------------------


def test_every_case_is_verified_timed_and_recorded(go: Go) -> None:
    result = go(gpu=GPU, force_busy=True)
    assert result.reason_not_timed is None and result.counts == {"ok": len(BUILDABLE), "skipped": 1}
    head, *_, footer = lines(result)
    assert footer["complete"] and footer["planned"] == footer["written"] == len(CASES) == result.planned
    assert head["environment"]["gpu"]["name"] == "Fake" and head["reason_not_timed"] is None
    assert head["command"] == "ablate run of a test" and len(head["run"]) == 32
    assert FakeGpu.made[0].allowed_busy is True
    found = rows(result)
    assert set(found) == set(CASES)
    for name in BUILDABLE:
        row = found[name]
        assert (row["type"], row["status"], row["reason"], row["exit"]) == (
            "measured",
            "ok",
            "",
            "fixed rounds",
        )
        assert len(row["samples"]["round"]) == 4 and row["target"]["gpu"] == "Fake"
        assert [check["size"] for check in row["checks"]] == ["small", "awkward", "timed"]
        assert all(check["passed"] for check in row["checks"])
        assert row["sizes"] == {"ctas": 4, "trips": 40} and row["conditions"]["fill"] == "normal"
        assert row["work"]["flops"] == STUDY.work(case_named(name), Values(**row["sizes"])).flops
        assert row["full"] == (FULL_F16 if "f16" in name else FULL)
        assert "--target" not in row["reproduce"]


def test_c42_each_fate_has_its_status_and_reason_and_no_number(go: Go) -> None:
    faults = {FULL_F16: "nan", ONE: "wrong", WIDE: "launch", F16: "hang"}
    result = go(gpu=GPU, faults=faults)
    assert result.counts == {"ok": 1, "skipped": 1, "wrong": 2, "launch_failed": 1, "hung": 1}
    assert result.reached == {"compiled": 5, "verified": 1, "timed": 1}
    assert result.failed == 4 and sum(result.counts.values()) == result.planned == len(CASES)
    found = rows(result)
    reasons = {
        FULL_F16: "timed size: d: 0 elements never written, 2 NaN, first at 7",
        ONE: "small size: d[",
        WIDE: "illegal memory access",
        F16: "did not come back within 20 s",
    }
    for name, words in reasons.items():
        assert words in found[name]["reason"]
        assert found[name]["samples"] is None and found[name]["exit"] is None
    assert found[FULL]["status"] == "ok" and lines(result)[-1]["complete"]
    # What was wrong stays in the row: the check that failed is the last one.
    assert [c["passed"] for c in found[ONE]["checks"]] == [False]
    assert [c["passed"] for c in found[FULL_F16]["checks"]] == [True, True, False]
    assert found[ONE]["checks"][0]["worst"] is None and found[ONE]["checks"][0]["exact"]
    # A wrong case is never timed.
    assert set(FakeGpu.made[0].entries) == {f"instruction/{FULL}#0"}


def test_outputs_never_written_are_wrong_and_what_does_not_fit_is_not_supported(go: Go) -> None:
    found = rows(go(gpu=GPU, faults={ONE: "unwritten", WIDE: "unsupported"}))
    assert (found[ONE]["status"], found[WIDE]["status"]) == ("wrong", "not_supported")
    assert "3 elements never written" in found[ONE]["reason"]
    assert found[WIDE]["reason"] == "needs 3 bytes of shared memory, has 2"
    assert found[F16]["status"] == "ok"


def test_a_kernel_that_fails_when_it_is_timed_costs_one_row(go: Go) -> None:
    faults = {ONE: LaunchError("unspecified launch failure"), WIDE: HungError("no answer")}
    found = rows(go(gpu=GPU, faults=faults))
    assert (found[ONE]["status"], found[ONE]["reason"]) == ("launch_failed", "unspecified launch failure")
    assert (found[WIDE]["status"], found[WIDE]["reason"]) == ("hung", "no answer")
    assert found[ONE]["samples"] is found[WIDE]["samples"] is None
    assert found[FULL]["status"] == found[F16]["status"] == "ok"


def test_when_nothing_can_be_timed_every_case_is_still_a_row(go: Go) -> None:
    result = go(gpu=GPU, faults=dict.fromkeys(CASES, "launch"))
    assert result.counts == {"launch_failed": len(BUILDABLE), "skipped": 1}
    assert lines(result)[-1]["complete"]


def test_a_broken_contract_and_texts_that_fail_are_rows_and_never_run(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    def render(study: Study, case: Case, perturbation: int = 0, **more: Any) -> Source:
        source = original(study, case, perturbation, **more)
        if case.name == ONE:
            raise RenderError("templates/instruction.cu.j2:7: 'iters' is undefined")
        if case.name == WIDE:
            return replace(source, text=source.text.replace("int trips", "int trip"), digest="0" * 64)
        return source

    original = building.render
    monkeypatch.setattr(building, "render", render)

    def contract(case: Case) -> Any:
        found = INSTRUCTION.contract(case)
        return replace(found, mma_count=found.mma_count + 1) if case.name == F16 else found

    for gpu in (None, GPU):
        result = go(gpu=gpu, study=replace(STUDY, contract=contract), targets=() if gpu else ("sm_90a",))
        assert result.counts == {
            "ok": 2,
            "skipped": 1,
            "render_failed": 1,
            "compile_failed": 1,
            "contract_broken": 1,
        }
        found = rows(result)
        assert found[ONE]["reason"] == "templates/instruction.cu.j2:7: 'iters' is undefined"
        assert "templates/instruction.cu.j2:" in found[WIDE]["reason"] and '"trips"' in found[WIDE]["reason"]
        assert "expected 9 HMMA.16816.F16 per iteration, found 8" in found[F16]["reason"]
        assert found[F16]["broken"] and found[F16]["build"]["mma"]["count"] == 8
    assert not any(name in key for key in FakeGpu.made[0].timer.kernels for name in (ONE, WIDE, F16))


def test_the_floor_that_no_run_can_beat_is_held_against_every_sample(go: Go) -> None:
    # 132 SMs at the peak of mma.sync would need far longer for this much work than the fake says.
    def sizes(case: Case, where: Where) -> Values:
        return Values(ctas=where.sms, trips=40_000)

    facts = fake_gpu.facts(name="NVIDIA H200", sms=132)
    result = go(gpu=facts, study=replace(STUDY, sizes=sizes), patterns=(WIDE,))
    row = rows(result)[WIDE]
    assert row["status"] == "below_floor" and "below the floor" in row["reason"] and row["samples"] is None


def test_perturbed_builds_are_rows_of_their_own(go: Go) -> None:
    found = rows(go(gpu=GPU, perturbations=3, patterns=(FULL,)))
    assert list(found) == [FULL, f"{FULL}#1", f"{FULL}#2"]
    assert len({row["build"]["code_hash"] for row in found.values()}) == 3
    assert [len(row["checks"]) for row in found.values()] == [3, 1, 1]


def test_a_selected_case_brings_its_full_along(go: Go) -> None:
    timed_here = go(gpu=GPU, patterns=(F16,))
    assert list(rows(timed_here)) == [FULL_F16, F16] and timed_here.planned == 2
    built = go(patterns=(F16,), targets=("sm_90a",))
    assert list(rows(built)) == [F16]


# ---- interrupted, resumed ------------------------------------------------------------------------------


def test_ctrl_c_while_verifying_leaves_a_partial_file_with_what_is_known(go: Go) -> None:
    result = go(gpu=GPU, faults={ONE: "wrong", WIDE: "interrupt"})
    head, *records, footer = lines(result)
    names = [r["case"] for r in records]
    assert names == [BARRED, ONE] and not footer["complete"]
    assert footer["planned"] == len(CASES) == head["planned"] and footer["written"] == 2
    # Every case is a row or is missing, and none is both.
    assert sorted(names + [m.partition("/")[2].rpartition("#")[0] for m in footer["missing"]]) == sorted(
        CASES
    )
    assert "partial" in str(store.read(result.files[0]).partial)


def test_ctrl_c_while_timing_leaves_a_partial_file(go: Go) -> None:
    result = go(gpu=GPU, faults={WIDE: KeyboardInterrupt(), ONE: "wrong"})
    _, *records, footer = lines(result)
    names = [r["case"] for r in records]
    assert not footer["complete"] and footer["planned"] == len(CASES) and footer["missing"]
    assert sorted(names + [m.partition("/")[2].rpartition("#")[0] for m in footer["missing"]]) == sorted(
        CASES
    )


def test_an_interrupt_ends_the_run_and_not_only_the_study(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline, "find_gpu", lambda: GPU)
    monkeypatch.setattr(pipeline, "GpuDevice", lambda facts: FakeGpu(facts, {FULL: "interrupt"}))
    studies = {"instruction": STUDY, "second": replace(STUDY, name="second")}
    plan = Plan(studies=tuple(studies), results=tmp_path, cache=cache, rounds=4, perturbations=1)
    result = pipeline.run(plan, studies, Quiet())
    assert [path.parent.parent.name for path in result.files] == ["instruction"]


def test_without_a_worker_the_run_fails_once_and_no_row_does(go: Go, tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="did not come up"):
        go(gpu=GPU, faults={"worker": LaunchError("the GPU worker did not come up in 3 starts: no CuPy")})
    assert FakeGpu.made[0].entries == {}
    assert not (tmp_path / "results" / "records").exists()


def test_nothing_to_time_needs_no_worker(go: Go) -> None:
    whole = go(gpu=GPU)
    again = go(gpu=GPU, resume=whole.files[0], faults={"worker": LaunchError("the worker did not come up")})
    assert again.counts == {"skipped": 1}


def test_c40_resume_measures_only_what_is_missing_and_its_full(go: Go) -> None:
    cut = go(gpu=GPU, faults={WIDE: "wrong", F16: "hang"})
    assert sum(cut.counts.values()) == len(CASES)
    again = go(gpu=GPU, resume=cut.files[0])
    # Failed rows run again, with the full of each; what was measured stays. A skipped row costs nothing.
    assert set(rows(again)) == {FULL, FULL_F16, WIDE, F16, BARRED}
    assert again.counts == {"ok": 4, "skipped": 1} and again.planned == 5 and lines(again)[-1]["complete"]


def test_c40_nothing_is_left_to_resume(go: Go) -> None:
    whole = go(gpu=GPU)
    again = go(gpu=GPU, resume=whole.files[0])
    assert again.counts == {"skipped": 1} and again.planned == 1 and lines(again)[-1]["complete"]
    assert FakeGpu.made[0].entries == {}


@pytest.mark.parametrize(
    "change",
    [
        {"gpu": fake_gpu.facts(name="NVIDIA A100-SXM4-40GB")},
        {"gpu": fake_gpu.facts(sms=5)},
        {"fill": "zeros"},
        {"l2": "cold"},
    ],
    ids=str,
)
def test_c40_resume_on_another_gpu_or_with_other_conditions_reruns_all(go: Go, change: Json) -> None:
    whole = go(gpu=GPU)
    again = go(**{"gpu": GPU, "resume": whole.files[0], **change})
    assert set(rows(again)) == set(CASES)


def test_c40_resume_after_a_changed_text_reruns_all(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = go(gpu=GPU)
    original = building.render

    def render(*words: Any, **more: Any) -> Source:
        source = original(*words, **more)
        return replace(source, text=source.text + "// new\n", digest=digest(source.digest, "new"))

    monkeypatch.setattr(building, "render", render)
    assert set(rows(go(gpu=GPU, resume=whole.files[0]))) >= set(BUILDABLE)


def test_two_runs_write_two_files(go: Go) -> None:
    first, second = go(gpu=GPU, patterns=(FULL,)), go(gpu=GPU, patterns=(FULL,))
    assert first.files != second.files
    keys = [store.key(f.header, f.records[0]) for f in map(store.read, (first.files[0], second.files[0]))]
    assert keys[0] == keys[1]


def test_slices_to_check_come_from_the_seed_so_that_cases_share_references() -> None:
    chosen = [
        timed.wanted_checks(STUDY, case, Values(ctas=132, trips=40), "normal", seed)[-1].slices
        for seed in (0, 1)
        for case in default_cases(STUDY)
    ]
    assert all(s and len(s) == 3 and len(set(s)) == 3 and max(s) < 132 for s in chosen)
    assert len(set(chosen)) == 2


def test_cases_of_one_function_share_a_reference_and_free_it_after_the_last() -> None:
    made: list[str] = []

    def reference(case: Case, *_: object) -> dict[str, Expected]:
        made.append(case.name)
        return {}

    study = replace(STUDY, reference=reference, reference_key=lambda case: case.levels["acc_dtype"])
    cases = default_cases(STUDY)[:4]
    wanted = [timed.wanted_checks(study, case, Values(ctas=4, trips=4), "normal", 0)[-1] for case in cases]
    references = References(study, wanted)
    for w in wanted:
        references.take(w)
    assert len(made) == len({case.levels["acc_dtype"] for case in cases})
    for w in wanted:
        references.drop(w)
    with pytest.raises(KeyError):
        references.take(wanted[0])
    references.close()


def test_what_a_user_would_run_instead_is_a_row_beside_each_full(go: Go) -> None:
    study = replace(STUDY, peers=lambda case: {"theirs": "somewhere:run", "absent": "nowhere:run"})
    faults = {f"{FULL}~absent": NotSupportedError("nowhere is not installed")}
    result = go(gpu=GPU, study=study, patterns=(FULL, ONE), faults=faults)
    found = rows(result)
    assert set(found) == {FULL, ONE, f"{FULL}~theirs", f"{FULL}~absent"}
    theirs, absent = found[f"{FULL}~theirs"], found[f"{FULL}~absent"]
    assert theirs["status"] == "ok" and len(theirs["samples"]["round"]) == 4
    assert theirs["build"] is None and theirs["source"] == {"digest": None}
    assert (absent["status"], absent["reason"]) == ("not_supported", "nowhere is not installed")
    assert sum(result.counts.values()) == result.planned == 4


def test_a_failure_takes_every_number_with_it() -> None:
    row = {"status": "ok", "reason": "", "samples": {"seconds": [1.0]}, "exit": "narrow"}
    assert rows_module.failed(row, HungError("no answer", detail="a log")) == {
        "status": "hung",
        "reason": "no answer\na log",
        "samples": None,
        "exit": None,
    }


# ---- hardware counters -----------------------------------------------------------------------------------


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting.probes, "ncu_program", lambda: "ncu")
    monkeypatch.setattr(counting.probes, "ncu", lambda: "2025.3.1")
    monkeypatch.setattr(counting.probes, "counters_are_closed", lambda: False)


def counted(change: int = 0) -> Callable[..., dict[str, dict[str, float]]]:
    """Reads of each entry what its work says, but of ONE `change` more."""

    def read(entries: Sequence[Entry], facts: GpuFacts, program: str) -> dict[str, dict[str, float]]:
        found = {}
        for entry in entries:
            said = entry.flops / 4096 + (change if ONE in entry.id else 0)
            found[entry.id] = {"tensor_instructions": said, "stalled_wait": 1.5}
        return found

    return read


@pytest.mark.usefixtures("ncu")
def test_counters_stand_in_the_records_of_the_first_texts(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "read_counters", counted())
    found = rows(go(gpu=GPU, counters=True, perturbations=2))
    assert found[FULL]["counters"]["tool"] == "Nsight Compute 2025.3.1"
    assert found[FULL]["counters"]["values"]["stalled_wait"] == 1.5
    assert all(r["counters"] is None for name, r in found.items() if "#" in name or name == BARRED)
    assert not any("ncu counts" in note for r in found.values() for note in notes_of(r))


@pytest.mark.usefixtures("ncu")
def test_tensor_instructions_that_the_work_does_not_know_are_said(
    go: Go, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "read_counters", counted(change=32))
    found = rows(go(gpu=GPU, counters=True))
    said = {name for name, r in found.items() if any("ncu counts" in note for note in notes_of(r))}
    assert said == {ONE, F16}


@pytest.mark.usefixtures("ncu")
@pytest.mark.parametrize("error", [ToolError("ncu counted 1 launches of 5"), PermissionError("ncu")])
def test_an_ncu_that_fails_costs_the_counters_and_no_row(
    go: Go, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(counting, "read_counters", fails)
    found = rows(go(gpu=GPU, counters=True))
    assert found[FULL]["status"] == "ok" and found[FULL]["counters"] is None


@pytest.mark.usefixtures("ncu")
def test_without_being_asked_nothing_is_counted(go: Go, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "read_counters", lambda *_: pytest.fail("counted"))
    assert rows(go(gpu=GPU))[FULL]["counters"] is None
