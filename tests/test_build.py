"""Case -> Build: cache, equal work once, errors as values, residency of full, on a study of a few lines."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import kernels
import numpy as np
import pytest
from kernels import PTX

from harness.build import artifact as artifacts
from harness.build import batch
from harness.build.build import Job, Result, build, build_all
from harness.build.cache import Cache
from harness.cases import default_cases
from harness.errors import CompileError, NotSupportedError, RenderError, ToolError
from harness.model import Build, Case, Contract, Launch, Study, Switch, Values, Work

TEMPLATE = """\
#include "ptx.cuh"
extern "C" __global__ void tiny(float* out, const unsigned* in, int trips) {
    unsigned a[4], b[8];
    for (int i = 0; i < 4; ++i) a[i] = in[i];
    for (int i = 0; i < 8; ++i) b[i] = in[4 + i];
    float d[4] = {}, e = 0.f;
#pragma unroll 1
    for (int t = 0; t < trips; ++t) {
{% if exponent == "kept" %}
        e += exp2_fast(d[0]);
{% elif exponent == "wrong" %}
        e += nothing(d[0]);
{% elif exponent == "unknown" %}
        {{ absent }}
{% endif %}
        mma(d, a, b[0], b[1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3] + e;  // {{ perturbation }}
}
"""


def tiny_study(
    levels: tuple[str, ...] = ("kept", "stripped"), *, shared: Mapping[str, int] | None = None
) -> Study:
    """One part, one MMA per iteration; `shared` gives dynamic shared memory by level."""
    exponent = Switch(
        name="exponent",
        levels=levels,
        baseline="kept",
        label="exp",
        meaning="the exponential",
        strips=levels[1:],
    )

    def contract(case: Case) -> Contract:
        absent = () if case.levels["exponent"] == "kept" else ("MUFU.EX2",)
        present = () if absent else ("MUFU.EX2",)
        return Contract(mma="HMMA.16816.F32", mma_count=1, counts={}, present=present, absent=absent)

    def launch(case: Case, sizes: Values) -> Launch:
        dynamic = (shared or {}).get(str(case.levels["exponent"]), 0)
        return Launch(grid=(1, 1, 1), block=128, shared_bytes=dynamic, arguments=())

    return Study(
        name="tiny",
        question="?",
        template="tiny.cu.j2",
        switches=(exponent,),
        problems=("waves",),
        configurations=lambda _: (Values(warps=4),),
        sets=lambda: {"all": tuple(Values(exponent=level) for level in levels)},
        constraint=lambda values, _: "not today" if values["exponent"] == "barred" else None,
        full_of=lambda values: values.replace(exponent="kept"),
        sizes=lambda *_: Values(),
        check_sizes=lambda _: {"small": Values(trips=1)},
        fill=lambda _, wanted: wanted,
        inputs=lambda *_: {"in": np.zeros(1)},
        outputs=lambda *_: {},
        reference=lambda *_: {},
        launch=launch,
        work=lambda *_: Work(
            flops=1, mma_per_cta=1, flops_per_mma=4096, iterations=1, gmem_bytes=0, unique_bytes=0
        ),
        contract=contract,
    )


@dataclass(frozen=True)
class Limits:
    cc: tuple[int, int] = (8, 9)
    shared_per_sm_bytes: int = 102400
    shared_per_block_bytes: int = 101376
    blocks_per_sm: int = 24
    threads_per_sm: int = 1536
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    shared_granularity_bytes: int = 128
    register_granularity: int = 256
    reserved_shared_bytes: int = 1024


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project") / "templates"
    (folder / "device").mkdir(parents=True)
    (folder / "tiny.cu.j2").write_text(TEMPLATE)
    (folder / "device" / "ptx.cuh").write_text(PTX)
    return folder


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("warm"))


def jobs_of(study: Study, templates: Path, *archs: str, **more: Any) -> list[Job]:
    return [
        Job(study=study, case=case, arch=arch, templates=templates, **more)
        for arch in archs
        for case in default_cases(study)
    ]


def good(result: Result) -> Build:
    assert isinstance(result, Build), result
    return result


def test_a_case_is_built_inspected_and_checked(templates: Path, warm: Cache) -> None:
    full, stripped = map(good, build_all(jobs_of(tiny_study(), templates, "sm_80"), warm))
    assert full.broken == stripped.broken == ()
    assert full.inspection.loop["MUFU.EX2"] == 1 and "MUFU.EX2" not in stripped.inspection.loop
    assert "registers" in full.log and "\0" not in full.log and full.compile_seconds > 0
    assert "extern" in Path(full.source_path).read_text()
    assert Path(full.cubin_path).read_bytes().startswith(b"\x7fELF")


def test_the_second_time_everything_comes_from_the_cache(
    templates: Path, warm: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_of(tiny_study(), templates, "sm_80")
    first = build_all(jobs, warm)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("compiled or disassembled again")

    monkeypatch.setattr(artifacts, "compile_cubin", refuse)
    monkeypatch.setattr(batch, "disassemble_all", refuse)
    again = build_all(jobs, Cache(warm.root))
    assert [replace(good(b), cached=True) for b in first] == again


def test_equal_work_is_done_once_and_results_keep_their_order(
    templates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []
    original = artifacts.compile_cubin

    def counted(source: Any, arch: str, **more: Any) -> Any:
        compiled.append(arch)
        return original(source, arch, **more)

    monkeypatch.setattr(artifacts, "compile_cubin", counted)
    steps: list[tuple[int, int, str]] = []
    once = jobs_of(tiny_study(), templates, "sm_80", "sm_89")
    results = build_all(once + once[::-1], Cache(tmp_path), progress=lambda *step: steps.append(step))
    assert sorted(compiled) == ["sm_80", "sm_80", "sm_89", "sm_89"]
    assert [good(b).arch for b in results[:4]] == ["sm_80", "sm_80", "sm_89", "sm_89"]
    assert results[4:] == results[3::-1]
    assert [done for done, _, _ in steps] == list(range(1, 9)) and {total for _, total, _ in steps} == {8}
    assert all(what for _, _, what in steps)


def test_one_bad_case_is_a_value_and_the_others_go_on(templates: Path, warm: Cache) -> None:
    study = tiny_study(("kept", "wrong", "unknown", "barred", "stripped"))
    full, wrong, unknown, barred, stripped = build_all(jobs_of(study, templates, "sm_80"), warm)
    assert good(full).broken == good(stripped).broken == ()
    assert isinstance(wrong, CompileError) and isinstance(unknown, RenderError)
    line = TEMPLATE[: TEMPLATE.index("nothing")].count("\n") + 1
    assert f"templates/tiny.cu.j2:{line}" in wrong.message and "tiny/exponent=wrong" in wrong.message
    saved = Path(wrong.message.rpartition("rendered text: ")[2].rstrip(")"))
    assert "nothing(d[0])" in saved.read_text()
    assert isinstance(barred, NotSupportedError) and "not today" in barred.message


def test_an_architecture_without_the_instruction_is_a_value(templates: Path, warm: Cache) -> None:
    good_one, none, bad = build_all(
        [
            job
            for arch in ("sm_80", "sm_75", "sm_70")
            for job in jobs_of(tiny_study(("kept", "stripped")), templates, arch)[:1]
        ],
        warm,
    )
    assert good(good_one)
    assert isinstance(none, NotSupportedError) and isinstance(bad, NotSupportedError)


def test_a_truncated_cubin_is_compiled_again(templates: Path, tmp_path: Path) -> None:
    jobs = jobs_of(tiny_study(), templates, "sm_80")[:1]
    first = good(build_all(jobs, Cache(tmp_path))[0])
    path = Path(first.cubin_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:100])
    again = good(build_all(jobs, Cache(tmp_path))[0])
    assert not again.cached and Path(again.cubin_path).read_bytes() == whole
    assert good(build_all(jobs, Cache(tmp_path))[0]).cached


def test_a_changed_header_or_perturbation_or_option_is_another_build(templates: Path, tmp_path: Path) -> None:
    cache, job = Cache(tmp_path), jobs_of(tiny_study(), templates, "sm_80")[0]
    first = good(build_all([job], cache)[0])
    header = templates / "device" / "ptx.cuh"
    before = header.read_text()
    try:
        header.write_text(before.replace("return y;", "return y + 1.f;"))
        changed = good(build_all([job], cache)[0])
    finally:
        header.write_text(before)
    assert not changed.cached and changed.inspection.code_hash != first.inspection.code_hash
    perturbed = good(build_all([replace(job, perturbation=1)], cache)[0])
    assert not perturbed.cached and perturbed.source_digest != first.source_digest
    capped = good(build_all([replace(job, options=("--maxrregcount=32",))], cache)[0])
    assert not capped.cached and capped.cubin_path != first.cubin_path
    assert good(build_all([job], cache)[0]).cached


def test_a_broken_contract_is_told_and_no_error(templates: Path, warm: Cache) -> None:
    study = tiny_study()
    strict = replace(study, contract=lambda case: replace(study.contract(case), mma_count=4))
    result = good(build_all(jobs_of(strict, templates, "sm_80"), warm)[0])
    assert "expected 4 HMMA.16816.F32 per iteration, found 1" in result.broken[0]


def test_a_stripped_case_is_padded_to_the_residency_of_full(templates: Path, warm: Cache) -> None:
    jobs = jobs_of(tiny_study(shared={"kept": 40960, "stripped": 1024}), templates, "sm_89")
    full, stripped = map(good, build_all(jobs, warm, limits_of=lambda _: Limits()))
    assert (full.natural_ctas, full.ctas_per_sm, full.dynamic_bytes) == (2, 2, 40960)
    assert stripped.natural_ctas is not None and stripped.natural_ctas > 2
    assert stripped.ctas_per_sm == 2 and stripped.dynamic_bytes > 1024
    assert "padded to full's 2 CTAs per SM" in stripped.notes[-1]
    alone = good(build_all(jobs[1:], warm, limits_of=lambda _: Limits())[0])
    assert alone == replace(stripped, cached=True)


def test_a_case_is_held_at_the_residency_its_study_asks_for(templates: Path, warm: Cache) -> None:
    asked = {"kept": 1, "stripped": 3}
    study = replace(
        tiny_study(shared={"kept": 1024, "stripped": 40960}),
        residency=lambda case: asked[case.levels.word("exponent")],
    )
    results = build_all(jobs_of(study, templates, "sm_89"), warm, limits_of=lambda _: Limits())
    full, stripped = map(good, results)
    assert full.ctas_per_sm == 1 and full.dynamic_bytes > 1024
    assert "padded to the 1 CTAs per SM" in full.notes[0]
    assert stripped.ctas_per_sm == 2 and stripped.dynamic_bytes == 40960, "full's residency is not its own"
    assert "3 CTAs per SM are asked for, only 2 fit" in stripped.notes[0]


def test_a_level_that_removes_nothing_is_not_padded(templates: Path, warm: Cache) -> None:
    study = tiny_study(shared={"kept": 40960, "stripped": 1024})
    axis = replace(study, switches=(replace(study.switches[0], strips=()),))
    _, other = map(good, build_all(jobs_of(axis, templates, "sm_89"), warm, limits_of=lambda _: Limits()))
    assert other.ctas_per_sm == other.natural_ctas and other.dynamic_bytes == 1024


def test_fewer_ctas_than_full_are_noted(templates: Path, warm: Cache) -> None:
    jobs = jobs_of(tiny_study(shared={"kept": 0, "stripped": 98304}), templates, "sm_89")
    _, stripped = map(good, build_all(jobs, warm, limits_of=lambda _: Limits()))
    assert stripped.ctas_per_sm == 1 and "fewer CTAs per SM than full" in stripped.notes[-1]


def test_too_much_shared_memory_is_not_supported_there_and_the_others_go_on(
    templates: Path, warm: Cache
) -> None:
    jobs = jobs_of(tiny_study(shared={"kept": 1024, "stripped": 131072}), templates, "sm_89")
    full, stripped = build_all(jobs, warm, limits_of=lambda _: Limits())
    assert good(full)
    assert isinstance(stripped, NotSupportedError)
    assert (
        "131072" in stripped.message
        and "101376" in stripped.message
        and "exponent=stripped" in stripped.message
    )


def test_a_case_whose_full_fails_is_built_and_says_so(templates: Path, warm: Cache) -> None:
    jobs = jobs_of(tiny_study(shared={"kept": 131072, "stripped": 1024}), templates, "sm_89")
    full, stripped = build_all(jobs, warm, limits_of=lambda _: Limits())
    assert isinstance(full, NotSupportedError)
    assert "not compared with full" in good(stripped).notes[0]


def test_an_unwritable_cache_gives_a_warning_and_a_build(templates: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("a file")
    jobs = jobs_of(tiny_study(), templates, "sm_80")[:1]
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        result = build_all(jobs, Cache(blocked))[0]
    assert Path(good(result).cubin_path).is_file()


def test_missing_tools_stop_everything_with_one_line(
    templates: Path, warm: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ToolError("no compiler: pip install ...")

    monkeypatch.setattr("harness.build.build.toolkit", missing)
    with pytest.raises(ToolError, match="pip install"):
        build_all(jobs_of(tiny_study(), templates, "sm_80"), warm)


def test_build_raises_what_build_all_returns(monkeypatch: pytest.MonkeyPatch, warm: Cache) -> None:
    study = tiny_study()
    monkeypatch.setattr("harness.build.build.build_all", lambda *_, **__: [CompileError("no")])
    with pytest.raises(CompileError, match="no"):
        build(study, default_cases(study)[0], "sm_80", warm)


def test_eight_processes_compile_into_one_empty_cache(tmp_path: Path) -> None:
    # "spawn": a fork of a process in which NVRTC has run may not use it.
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        made = pool.map(kernels.compile_in_process, [str(tmp_path)] * 8)
    assert len({sha256 for sha256, _ in made}) == 1
    assert not all(cached for _, cached in made)
    assert kernels.compile_in_process(str(tmp_path)) == (made[0][0], True)
