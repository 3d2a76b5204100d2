"""The doctor finds what is there, never raises over what is not, and its words fit a terminal."""

from __future__ import annotations

import builtins
import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import doctor, probes
from harness.doctor import Finding, diagnose, render_json, render_text

NAMES = ("NVRTC", "cuda.core", "nvdisasm", "C++ compiler", "driver", "CuPy", "ncu")


def refuse(*_: object, **__: object) -> Any:
    raise OSError("nothing here\nsecond line")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with Python and nothing else."""
    ours = builtins.__import__

    def without(name: str, *rest: Any, **named: Any) -> Any:
        if name.split(".")[0] in ("cupy", "cuda", "pynvml") or name == "harness.build.toolkit":
            raise ImportError(f"No module named {name!r}")
        return ours(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    monkeypatch.setattr(probes, "load_libcuda", refuse)
    monkeypatch.setattr(probes, "_NCU_PLACES", ())
    monkeypatch.setenv("PATH", "")


def by_name(findings: Sequence[Finding]) -> dict[str, Finding]:
    return {one.name: one for one in findings}


@pytest.mark.usefixtures("bare")
def test_a_machine_with_nothing_is_diagnosed_without_an_exception() -> None:
    findings = diagnose()
    assert tuple(one.name for one in findings) == (*NAMES, "GPU")
    assert not any(one.found for one in findings)
    assert all(one.remedy and one.needed_for and not one.version for one in findings)
    assert not doctor.can_build(findings) and not doctor.can_time(findings)
    assert "Here studies cannot be built, and cannot be timed." in render_text(findings)


@pytest.mark.parametrize(
    "error", [OSError("x"), ValueError(), RuntimeError("a\nb"), KeyError("k"), AssertionError()]
)
def test_whatever_a_probe_throws_is_a_finding(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def throw(*_: object) -> Any:
        raise error

    for name in (
        "nvrtc",
        "cuda_core",
        "nvdisasm",
        "host_compiler",
        "cuda_level",
        "ncu",
        "devices",
        "cupy_wheels",
    ):
        monkeypatch.setattr(probes, name, throw)
    findings = diagnose()
    assert not any(one.found for one in findings)
    assert all("\n" not in one.remedy for one in findings)


def test_the_tools_of_this_environment_are_found_with_their_versions() -> None:
    found = by_name(diagnose())
    for name in ("NVRTC", "cuda.core", "nvdisasm"):
        assert found[name].found, found[name].remedy
        assert found[name].version[0].isdigit()
    assert doctor.packages()["python"].startswith("3.")
    assert "numpy" in doctor.packages()


def fake_driver(level: int, gpus: Sequence[tuple[bytes, int, int, int]], status: int = 0) -> Any:
    """A stand-in for libcuda with these GPUs: name, major, minor, SMs."""

    def store(pointer: Any, value: int) -> int:
        ctypes.cast(pointer, ctypes.POINTER(ctypes.c_int))[0] = value
        return 0

    def name(buffer: Any, size: int, device: Any) -> int:
        buffer.value = gpus[device.value][0]
        return 0

    numbers = {75: 1, 76: 2, 16: 3}
    return SimpleNamespace(
        cuDriverGetVersion=lambda pointer: store(pointer, level),
        cuInit=lambda flags: status,
        cuDeviceGetCount=lambda pointer: store(pointer, len(gpus)),
        cuDeviceGet=lambda pointer, index: store(pointer, index),
        cuDeviceGetName=name,
        cuDeviceGetAttribute=lambda pointer, which, device: store(
            pointer, int(gpus[device.value][numbers[which]])
        ),
    )


def install(monkeypatch: pytest.MonkeyPatch, library: Any) -> None:
    monkeypatch.setattr(probes, "load_libcuda", lambda: library)
    monkeypatch.setattr(probes, "driver_release", lambda: "550.54")


def test_gpus_are_named_with_capability_and_sms(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [(b"NVIDIA H200", 9, 0, 132), (b"NVIDIA GeForce RTX 4090 D", 8, 9, 114), (b"Tesla T4", 7, 5, 40)]
    install(monkeypatch, fake_driver(13000, gpus))
    found = by_name(diagnose())
    assert found["GPU 0"].version == "NVIDIA H200, compute capability 9.0, 132 SMs"
    assert found["GPU 0"].remedy == ""
    assert "its peak is unknown" in found["GPU 1"].remedy
    assert "no target" in found["GPU 2"].remedy
    assert found["driver"].version == "550.54, CUDA 13.0"


def test_a_driver_behind_the_compiler_is_told_with_both_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_driver(12040, [(b"NVIDIA H200", 9, 0, 132)]))
    monkeypatch.setattr(probes, "nvrtc", lambda: ("13.0.88", True))
    driver = by_name(diagnose())["driver"]
    assert driver.version == "550.54, CUDA 12.4"
    assert driver.remedy.startswith("older than NVRTC 13.0.88: update the driver to one for CUDA 13")
    assert "wheels for CUDA 12" in driver.remedy


def test_cubins_of_the_same_major_version_need_no_newer_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, fake_driver(13000, [(b"NVIDIA H200", 9, 0, 132)]))
    monkeypatch.setattr(probes, "nvrtc", lambda: ("13.5.37", True))
    assert by_name(diagnose())["driver"].remedy == ""


@pytest.mark.parametrize(
    ("status", "words"), [(100, "the driver sees no GPU"), (999, "cuInit returned 999"), (0, "sees no GPU")]
)
def test_a_driver_without_gpus_says_so_and_names_the_variable_that_hides_them(
    monkeypatch: pytest.MonkeyPatch, status: int, words: str
) -> None:
    install(monkeypatch, fake_driver(13000, [], status))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpu = by_name(diagnose())["GPU"]
    assert not gpu.found
    assert words in gpu.remedy and "CUDA_VISIBLE_DEVICES is ''" in gpu.remedy


def test_a_tool_that_hangs_or_fails_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "ncu"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "exit status 3" in by_name(diagnose())["ncu"].remedy
    broken.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import time; time.sleep(9)'\n")
    monkeypatch.setattr(probes, "_PATIENCE_SECONDS", 0.2)
    assert "did not answer within 0.2 s" in by_name(diagnose())["ncu"].remedy


def test_closed_counters_are_part_of_the_ncu_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ncu", lambda: "2026.2.0")
    monkeypatch.setattr(probes, "counters_are_closed", lambda: True)
    assert "only root may read counters" in by_name(diagnose())["ncu"].remedy


def test_two_cupys_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "cupy_wheels", lambda: ("cupy-cuda12x", "cupy-cuda13x"))
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(__version__="14.2.0"))
    assert "uninstall all, install one" in by_name(diagnose())["CuPy"].remedy


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (
            "nvdisasm: NVIDIA (R)\nCuda compilation tools, release 13.5, V13.5.37\nBuild x\n",
            "13.5.37",
        ),
        ("NVIDIA (R) Nsight Compute\nVersion 2026.2.0.0 (build 1) (public-release)\n", "2026.2.0.0"),
        ("something else\n", "something else"),
        ("", ""),
    ],
)
def test_versions_are_read_from_what_tools_print(text: str, version: str) -> None:
    assert probes.read_version(text) == version


WORDS = st.text(st.characters(codec="ascii", categories=("L", "N", "P", "Zs")), max_size=200)
FINDINGS = st.lists(
    st.builds(
        Finding,
        name=st.sampled_from(NAMES),
        found=st.booleans(),
        version=WORDS,
        needed_for=WORDS,
        remedy=WORDS,
    )
)


@given(FINDINGS)
def test_text_fits_80_columns_and_loses_no_word(findings: list[Finding]) -> None:
    text = render_text(findings)
    assert max(map(len, text.splitlines())) <= 80
    joined = "".join(text.split())
    for one in findings:
        shown = one.version or f"for {one.needed_for}"
        assert "".join((shown + one.remedy).split()) in joined


def test_columns_are_aligned() -> None:
    findings = [
        Finding(name="ncu", found=False, needed_for="counters"),
        Finding(name="C++ compiler", found=True, version="13"),
    ]
    assert render_text(findings).splitlines()[:2] == [
        "ncu           missing  for counters",
        "C++ compiler  found    13",
    ]


@given(FINDINGS)
def test_json_holds_the_findings_as_they_are(findings: list[Finding]) -> None:
    read = json.loads(json.dumps(render_json(findings), allow_nan=False))
    assert [Finding(**one) for one in read["tools"]] == findings
    assert read["can_build"] == doctor.can_build(findings)


def test_importing_the_doctor_loads_neither_cupy_nor_the_driver() -> None:
    code = (
        "import sys, harness.doctor; print(sorted({'cupy', 'pynvml', 'cuda.bindings'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
