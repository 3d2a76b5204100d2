"""The compiler: whole cubins, kept logs, errors that name the template's line, and architecture strings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from kernels import HALF, ONE, PTX, SPILL, source, static_shared

from harness.build import toolkit as tools
from harness.build.nvrtc import check_arch, compile_cubin, supported_archs, toolkit
from harness.errors import AblationError, CompileError, NotSupportedError, ToolError, UsageError


def compiled(text: str, arch: str = "sm_80", **options: object) -> tuple[bytes, str]:
    made = compile_cubin(source(text), arch, include_dir=None, **options)  # type: ignore[arg-type]
    return made.cubin, made.log


def refused(text: str, arch: str = "sm_80", **options: object) -> AblationError:
    with pytest.raises(AblationError) as caught:
        compile_cubin(source(text), arch, **{"include_dir": None, **options})  # type: ignore[arg-type]
    assert "\n" not in caught.value.message
    return caught.value


def test_toolkit_names_an_exact_version_and_one_header_folder() -> None:
    found = toolkit()
    assert len(found.version.split(".")) >= 2
    assert found.nvrtc_path.is_file()
    assert len(found.include_dirs) <= 1
    assert all((folder / "cuda_runtime.h").is_file() for folder in found.include_dirs)


@pytest.mark.parametrize(
    "arch", ["sm_75", "sm_87", "sm_90", "sm_90a", "sm_100a", "sm_100f", "sm_120", "sm_120a", "sm_121f"]
)
def test_real_architectures_give_a_whole_cubin(arch: str) -> None:
    cubin, log = compiled('extern "C" __global__ void kernel(int* p) { p[threadIdx.x] = 1; }\n', arch)
    assert cubin.startswith(b"\x7fELF")
    assert "Used" in log and "Compile time" not in log and "\0" not in log


@pytest.mark.parametrize("arch", ["90", "9.0", "12.0", "sm_9.0", "", "90a", "SM_90", "compute_90", "sm_"])
def test_a_string_that_names_no_real_architecture_is_bad_usage(arch: str) -> None:
    with pytest.raises(UsageError, match=r"sm_90a"):
        check_arch(arch)


@pytest.mark.parametrize("arch", ["sm_70", "sm_90f", "sm_86f", "sm_999"])
def test_an_architecture_that_nvrtc_lacks_is_not_supported_and_the_known_ones_are_listed(arch: str) -> None:
    with pytest.raises(NotSupportedError, match=r"knows .*sm_80.*sm_90a") as caught:
        check_arch(arch)
    assert arch in caught.value.message


def test_a_virtual_architecture_is_told_its_real_one() -> None:
    with pytest.raises(UsageError, match="use sm_90"):
        check_arch("compute_90")


def test_what_nvrtc_itself_refuses_as_architecture_is_not_supported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.build.nvrtc.supported_archs", lambda: ("sm_80", "sm_90f", "sm_70"))
    for arch in ("sm_90f", "sm_70"):
        assert isinstance(refused(ONE, arch), NotSupportedError)


def test_every_architecture_we_list_compiles_and_no_other_spelling_is_listed() -> None:
    listed = supported_archs()
    assert {"sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_120a"} <= set(listed)
    assert not {"sm_90f", "sm_86f", "sm_86a", "sm_70"} & set(listed)


def test_instructions_that_an_architecture_lacks_are_not_supported_there() -> None:
    assert isinstance(refused(ONE, "sm_75"), NotSupportedError)
    copy = 'asm volatile("cp.async.cg.shared.global [%0],[%1],16;" :: "r"(0), "l"(p));'
    wgmma = 'asm volatile("wgmma.fence.sync.aligned;");'
    for body, arch in ((copy, "sm_75"), (wgmma, "sm_90"), (wgmma, "sm_120a")):
        error = refused(f'extern "C" __global__ void kernel(int* p) {{ {body} }}\n', arch)
        assert isinstance(error, NotSupportedError)
        assert "hand-written" in error.message and arch in error.message
    compiled(f'extern "C" __global__ void kernel(int* p) {{ {wgmma} }}\n', "sm_90a")


def test_an_error_names_template_line_rendered_line_and_saved_file(tmp_path: Path) -> None:
    saved = tmp_path / "kernel.cu"
    text = ONE.replace("mma(d, a, b[0], b[1]);", "nothing(d);")
    line = text[: text.index("nothing")].count("\n") + 1
    error = refused(text, saved=saved)
    assert isinstance(error, CompileError)
    assert f"templates/kernel.cu.j2:{line + 100}" in error.message
    assert 'identifier "nothing" is undefined' in error.message
    assert str(saved) in error.message
    assert "nothing(d);" in error.detail and f"{saved}:{line}" in error.detail


def test_an_error_shows_the_text_of_the_template_line() -> None:
    from harness.render import TEMPLATES

    header = next(path for path in sorted(TEMPLATES.rglob("*.cuh")) if path.stat().st_size)
    name = str(header.relative_to(TEMPLATES))
    made = source("int x = y;\n", template=name)
    made_line = header.read_text().split("\n")[0].strip()
    from dataclasses import replace

    with pytest.raises(CompileError) as caught:
        compile_cubin(replace(made, line_map=((name, 1),)), "sm_80", include_dir=None)
    assert f"templates/{name}:1" in caught.value.message
    assert made_line in caught.value.detail


def test_an_error_in_a_header_names_the_header(tmp_path: Path) -> None:
    folder = tmp_path / "templates" / "device"
    folder.mkdir(parents=True)
    (folder / "bad.cuh").write_text("#pragma once\n__device__ int f() { return missing; }\n")
    error = refused('#include "bad.cuh"\n' + ONE, include_dir=folder)
    assert "templates/device/bad.cuh:2" in error.message
    assert "return missing;" in error.detail


def test_a_missing_header_shows_the_folders_searched_and_the_compiler(tmp_path: Path) -> None:
    error = refused('#include "absent.cuh"\n' + ONE, include_dir=tmp_path)
    assert str(tmp_path) in error.detail
    assert toolkit().version in error.detail


def test_a_header_of_the_working_folder_is_never_picked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stray.cuh").write_text("")
    monkeypatch.chdir(tmp_path)
    assert isinstance(refused('#include "stray.cuh"\n' + ONE), CompileError)


def test_own_headers_are_found_in_the_folder_given(tmp_path: Path) -> None:
    (tmp_path / "ptx.cuh").write_text(PTX)
    text = '#include "ptx.cuh"\n' + ONE.replace(PTX, "")
    assert compile_cubin(source(text), "sm_80", include_dir=tmp_path).cubin


def test_static_shared_memory_just_fits_and_just_does_not() -> None:
    _, log = compiled(static_shared(49152), "sm_89")
    assert "49152 bytes smem" in log
    error = refused(static_shared(49156), "sm_89")
    assert isinstance(error, CompileError)
    assert "hand-written" in error.message and "49156" in error.message and "49152" in error.message


def test_a_bad_instruction_is_a_compile_error_with_the_log() -> None:
    error = refused('extern "C" __global__ void kernel(int* p) { asm volatile("fooo.bar;"); }\n')
    assert isinstance(error, CompileError)
    assert "fooo" in error.detail


def test_options_reach_the_compiler_and_unknown_ones_are_refused() -> None:
    _, log = compiled(SPILL, "sm_89", options=("--maxrregcount=40",))
    assert "Used 40 registers" in log
    text = "#ifndef WIDTH\n#error no width\n#endif\nstatic_assert(WIDTH == 3);\n" + HALF
    compiled(text, options=("-DWIDTH=3",))
    with pytest.raises(UsageError, match="--maxrregcount=N"):
        compile_cubin(source(HALF), "sm_80", options=("--fastest",))


def test_a_missing_compiler_library_is_one_line_that_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import cuda.pathfinder

    def missing(name: str) -> None:
        raise RuntimeError(f"Failure finding lib{name}.so\nand a long story")

    monkeypatch.setattr(cuda.pathfinder, "load_nvidia_dynamic_lib", missing)
    with pytest.raises(ToolError, match=r"pip install .*nvidia-cuda-nvrtc") as caught:
        tools._load_nvrtc()
    assert "\n" not in caught.value.message


def test_a_missing_cuda_core_is_one_line_that_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(ToolError, match=r"pip install .*cuda-core"):
        tools.nvrtc_module()
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    with pytest.raises(ToolError, match=r"pip install .*cuda-core"):
        tools._load_nvrtc()


def test_a_damaged_builtins_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusal(Exception):
        pass

    class Program:
        def __init__(self, *_: object) -> None:
            raise Refusal(
                "7: error, compilation log:\n\nnvrtc: error: failed to open libnvrtc-builtins.so.13.5.\n"
            )

    monkeypatch.setattr("harness.build.nvrtc.nvrtc_module", lambda: (Program, dict, Refusal))
    error = refused(ONE)
    assert isinstance(error, ToolError)
    assert "libnvrtc-builtins.so.13.5" in error.message
