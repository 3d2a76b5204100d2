"""Small field cases that no other test covers whole; tests/test_cases_index.py lists where each case is."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import kernels
import pytest

from harness import chips, cli
from harness.build import nvrtc
from harness.build.artifact import Request, save_source
from harness.build.batch import make_all
from harness.build.contract import broken_rules
from harness.build.nvrtc import compile_cubin, supported_archs, toolkit
from harness.build.residency import check_dynamic, ctas_per_sm
from harness.build.toolkit import nvrtc_module
from harness.errors import CompileError, NotSupportedError, UsageError
from harness.model import Contract, Inspection
from harness.plan import RunResult
from harness.render import TEMPLATES
from tests.studies import STUDIES, user_cache

ONE_MMA = Contract(mma="HMMA.16816.F32", mma_count=1, counts={})


def inspected(text: str, arch: str) -> Inspection:
    cache, source = user_cache(), kernels.source(text)
    request = Request(source=source, source_path=save_source(source, cache), arch=arch, include_dir=None)
    nvrtc_module()
    made = make_all([request], cache)[request.key]
    assert isinstance(made, tuple), made
    return made[1]


# ---- C09 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_c09_a_result_that_nothing_reads_fails_the_check_and_a_flag_keeps_it(arch: str) -> None:
    (refused,) = broken_rules(ONE_MMA, inspected(kernels.NOT_STORED, arch))
    assert "no tensor instruction" in refused and "expected 1" in refused
    assert broken_rules(ONE_MMA, inspected(kernels.STORED_BEHIND_FLAG, arch)) == ()


# ---- C11 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_c11_four_equal_mmas_never_pass_as_four(arch: str) -> None:
    contract = replace(ONE_MMA, mma_count=4)
    merged = inspected(kernels.MERGED, arch)
    if merged.loop.get("HMMA.16816.F32") != 4:  # which architectures merge is the compiler's business
        assert broken_rules(contract, merged)
    assert broken_rules(contract, inspected(kernels.DISTINCT, arch)) == ()
    assert any("HMMA.16816.F32" in rule for rule in broken_rules(replace(contract, mma_count=5), merged))


# ---- C12 -----------------------------------------------------------------------------------------------


def test_c12_a_guard_that_leaves_a_scalar_loop_is_refused_where_it_does() -> None:
    scalar = "d[0] = d[0] * __uint_as_float(b[1]) + 1.5f;"
    body = f"#if __CUDA_ARCH__ >= 900\nmma(d, a, b[0], b[1]);\n#else\n{scalar}\n#endif"
    text = kernels.kernel("float d[4] = {};", body, kernels.SUM)
    (refused,) = broken_rules(ONE_MMA, inspected(text, "sm_89"))
    assert "no tensor instruction: expected 1 HMMA.16816.F32 per iteration, found 0" in refused
    assert broken_rules(ONE_MMA, inspected(text, "sm_90a")) == ()


def test_c12_a_label_of_the_other_accumulator_is_refused() -> None:
    for arch in ("sm_80", "sm_90a", "sm_120a"):
        assert broken_rules(replace(ONE_MMA, mma="HMMA.16816.F16"), inspected(kernels.ONE, arch))
        assert broken_rules(ONE_MMA, inspected(kernels.HALF, arch))
        assert broken_rules(replace(ONE_MMA, mma="HMMA.16816.F16"), inspected(kernels.HALF, arch)) == ()


def test_c12_a_run_says_how_many_cases_got_how_far(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = {"compiled": 18, "verified": 17, "timed": 0}
    result = RunResult(planned=20, reached=reached, counts={"ok": 17}, reason_not_timed="no driver")
    monkeypatch.setattr("harness.pipeline.run", lambda *_: result)
    assert cli.main(["run", "--results", str(tmp_path)]) == 0
    assert "\nrequested 20, compiled 18, verified 17, timed 0\n" in capsys.readouterr().out


# ---- C20 -----------------------------------------------------------------------------------------------

HEADERS = ("cuda_fp16.h", "cuda_bf16.h", "cuda_pipeline.h", "mma.h", "cuda/barrier", "stdint.h")
IN_THE_WHEEL = HEADERS[:3]


def compile_with(header: str) -> None:
    text = f'#include <{header}>\nextern "C" __global__ void kernel(int* p) {{ *p = 1; }}\n'
    compile_cubin(kernels.source(text), "sm_80", include_dir=None)


@pytest.mark.parametrize("header", HEADERS)
def test_c20_without_an_include_folder_every_header_is_missing(
    header: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "toolkit", lambda: replace(toolkit(), include_dirs=()))
    with pytest.raises(CompileError) as caught:
        compile_with(header)
    assert header in caught.value.message
    assert "folders searched for headers: none" in caught.value.detail
    assert f"NVRTC {toolkit().version}" in caught.value.detail


@pytest.mark.parametrize("header", HEADERS)
def test_c20_the_include_folder_is_the_one_of_the_compiler_that_is_loaded(header: str) -> None:
    found = toolkit()
    (folder,) = found.include_dirs
    assert found.nvrtc_path.parent.parent == folder.parent
    if header in IN_THE_WHEEL:
        compile_with(header)
        return
    needed = folder / ("crt/mma.h" if header == "mma.h" else header)
    if not needed.is_file():  # other wheels may have put them there
        with pytest.raises(CompileError) as caught:
            compile_with(header)
        assert str(folder) in caught.value.detail


def test_c20_the_templates_need_no_header_but_their_own() -> None:
    for path in (p for p in TEMPLATES.rglob("*") if p.is_file() and p.parent.name != "host"):
        for line in path.read_text().splitlines():
            assert not line.lstrip().startswith("#include <"), f"{path}: {line}"


# ---- C21 -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("90", "sm_90"),
        ("9.0", "sm_90a"),
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90a"),
        ("12.0", "sm_120a"),
        ("sm_120a", "sm_120a"),
        ("sm_120f", "sm_120f"),
        ("sm_121f", "sm_121f"),
        ("compute_90", "sm_90"),
        ("sm_90f", None),
        ("sm_86f", None),
        ("sm_70", None),
        ("sm_75", None),
        ("sm_9.0", None),
        ("", None),
    ],
)
def test_c21_a_target_keeps_its_suffix_and_compiles_or_is_refused_with_the_list(
    text: str, arch: str | None
) -> None:
    if arch is None:
        with pytest.raises(UsageError, match="choose one of sm_80"):
            chips.parse_target(text, supported_archs())
        return
    assert chips.parse_target(text, supported_archs()).arch == arch
    assert compile_cubin(kernels.source(kernels.ONE), arch, include_dir=None).cubin.startswith(b"\x7fELF")


# ---- C26 -----------------------------------------------------------------------------------------------

SIZES = (49151, 49152, 49153, 101376, 101377, 131072, 232448, 232449)


LARGEST = {"sm_80": 166912, "sm_86": 101376, "sm_87": 166912, "sm_89": 101376}
LARGEST |= {"sm_90a": 232448, "sm_100a": 232448, "sm_120a": 101376}


@pytest.mark.parametrize(("arch", "largest"), LARGEST.items())
@pytest.mark.parametrize("static", [0, 16])
def test_c26_what_fits_fits_and_what_does_not_is_refused_with_both_numbers(
    arch: str, largest: int, static: int
) -> None:
    limits = chips.limits(arch)
    for dynamic in SIZES:
        total = dynamic + static
        if total <= largest:
            assert ctas_per_sm(limits, threads=128, registers=64, shared_bytes=total).ctas >= 1
            continue
        with pytest.raises(NotSupportedError, match=rf"{total}\b.*\b{largest}\b"):
            ctas_per_sm(limits, threads=128, registers=64, shared_bytes=total)


@pytest.mark.parametrize("dynamic", SIZES)
def test_c26_odd_sizes_are_refused_before_a_launch(dynamic: int) -> None:
    if dynamic % 16 == 0:
        check_dynamic(dynamic)
        return
    with pytest.raises(NotSupportedError, match=str(dynamic)):
        check_dynamic(dynamic)


def test_c26_a_static_array_beyond_48_kib_names_the_case() -> None:
    with pytest.raises(CompileError, match=r"tests/hand-written for sm_89: .*49156.*49152"):
        compile_cubin(kernels.source(kernels.static_shared(49156)), "sm_89", include_dir=None)


# ---- C30 -----------------------------------------------------------------------------------------------


def test_c30_importing_everything_loads_no_driver() -> None:
    code = (
        "import sys, ablations, harness.cli, harness.pipeline, harness.publish, harness.store\n"
        "ablations.load()\n"
        "maps = open('/proc/self/maps').read()\n"
        "assert 'libcuda.so' not in maps and 'cupy' not in sys.modules, 'the driver or CuPy was loaded'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent
    )
    assert done.returncode == 0, done.stderr


def test_c30_no_architecture_is_guessed_from_what_is_here() -> None:
    assert set(chips.DEFAULT_ARCHS) <= set(supported_archs())
    assert [study.name for study in STUDIES.values()] == sorted(STUDIES)
