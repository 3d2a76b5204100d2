"""What this machine has of the tools the suite needs, what is missing, and what to do about it.

Looking never raises: a tool that cannot be found, loaded or asked is a finding that says so. Nothing is printed here.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from harness import chips
from harness.errors import AblationError

WIDTH = 80
_PATIENCE_SECONDS = 20
_NSIGHT_FOLDERS = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")
_PACKAGES = ("cuda-core", "cuda-bindings", "numpy", "scipy", "pandas", "jinja2", "hypothesis", "pytest", "pytest-benchmark")
# The oldest Linux driver that loads cubins of a CUDA major version (CUDA release notes, minor version compatibility).
_OLDEST_DRIVER = {11: "450.80", 12: "525.60", 13: "580.65"}
_MAJOR, _MINOR, _SM_COUNT = 75, 76, 16  # CUdevice_attribute


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One tool: whether it is here, in which version, what the suite needs it for, and what to do ("" : nothing)."""

    name: str
    found: bool
    version: str = ""
    needed_for: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tool:
    """How to look for a tool. `probe` returns its version and a remedy, or raises when it is not there."""

    name: str
    needed_for: str
    remedy: str
    probe: Callable[[], tuple[str, str]]


def diagnose() -> tuple[Finding, ...]:
    """Everything looked at, in the order of the table; GPUs last, one finding each. Never raises."""
    return (*map(_ask, _TOOLS), *_gpus())


def can_build(findings: Sequence[Finding]) -> bool:
    """Whether studies can be compiled and disassembled here; no GPU is needed for that."""
    return _all_found(findings, ("NVRTC", "cuda.core", "nvdisasm"))


def can_time(findings: Sequence[Finding]) -> bool:
    """Whether kernels can be timed here as well."""
    gpu = any(one.found and one.name.startswith("GPU") for one in findings)
    return gpu and can_build(findings) and _all_found(findings, ("driver", "CuPy"))


def packages() -> dict[str, str]:
    """Versions of the Python packages in use, those installed."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in (*_PACKAGES, *_cupy_wheels()):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def render_text(findings: Sequence[Finding]) -> str:
    """The findings as aligned lines of at most 80 columns; a remedy stands below its tool."""
    name_width = max((len(one.name) for one in findings), default=0) + 2
    lines: list[str] = []
    for one in findings:
        head = f"{one.name:<{name_width}}{'found' if one.found else 'missing':<9}"
        indent = " " * len(head)
        first = one.version or ("-" if one.found else f"for {one.needed_for}" if one.needed_for else "-")
        lines += textwrap.wrap(head + first, WIDTH, subsequent_indent=indent)
        if one.remedy:
            lines += textwrap.wrap(one.remedy, WIDTH, initial_indent=indent, subsequent_indent=indent)
    verdict = "can" if can_build(findings) else "cannot"
    timing = "can" if can_time(findings) else "cannot"
    lines += ["", f"Studies {verdict} be built here and {timing} be timed here."]
    return "\n".join(lines) + "\n"


def render_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as a mapping that JSON can hold."""
    tools = [
        {
            "name": one.name,
            "found": one.found,
            "version": one.version,
            "needed_for": one.needed_for,
            "remedy": one.remedy,
        }
        for one in findings
    ]
    return {"tools": tools, "can_build": can_build(findings), "can_time": can_time(findings)}


def driver_advice(
    driver: str | None,
    cuda_level: str | None,
    nvrtc: str | None,
    gpu_cc: chips.Capability | None,
    target: str,
    error_name: str,
) -> str:
    """One line for a kernel the driver refused to load: which of driver, compiler and target to change.

    Args:
        driver: the driver's version, "550.54".
        cuda_level: the CUDA version it supports, "12.4".
        nvrtc: the compiler's version, "13.0".
        gpu_cc: the GPU's compute capability.
        target: the architecture compiled for, "sm_120".
        error_name: as the driver API or the runtime spells it.
    """
    cc = chips.spell(gpu_cc) if gpu_cc else "unknown"
    facts = (
        f"driver {driver or 'unknown'} (CUDA {cuda_level or 'unknown'}), NVRTC {nvrtc or 'unknown'}, "
        f"GPU of compute capability {cc}, target {target}"
    )
    name = error_name.replace("_", "").lower()
    if "unsupportedptxversion" in name:
        advice = f"the driver is older than the compiler that wrote the PTX: {_level_advice(nvrtc, cuda_level)}"
    elif "nobinaryforgpu" in name or "nokernelimage" in name:
        advice = _binary_advice(gpu_cc, target, nvrtc, cuda_level)
    elif "insufficientdriver" in name or "systemdrivermismatch" in name:
        advice = f"the driver does not serve this CUDA version: {_level_advice(nvrtc, cuda_level)}"
    else:
        advice = "run `ablate doctor` and compare these versions"
    return f"{error_name}: {advice} [{facts}]"


def _binary_advice(
    gpu_cc: chips.Capability | None, target: str, nvrtc: str | None, cuda_level: str | None
) -> str:
    if gpu_cc is None:
        return f"the cubin is for {target} and the GPU is another: compile for the GPU at hand"
    cc = chips.spell(gpu_cc)
    try:
        wanted = chips.arch_of(gpu_cc)
    except AblationError:
        return f"the cubin is for {target}, and a GPU of compute capability {cc} is no target of this suite"
    if _runs_on(target, gpu_cc):
        return f"{target} fits the GPU, so the driver does not know such cubins: {_level_advice(nvrtc, cuda_level)}"
    return f"the cubin is for {target} and does not run on compute capability {cc}: compile for {wanted}"


def _runs_on(target: str, gpu_cc: chips.Capability) -> bool:
    """Whether a cubin runs: same major, no newer minor; with the suffix a, that very compute capability only."""
    try:
        built = chips.parse_target(target)
    except AblationError:
        return False
    if built.suffix == "a":
        return built.cc == gpu_cc
    return built.cc[0] == gpu_cc[0] and built.cc[1] <= gpu_cc[1]


def _major(version: str | None) -> int | None:
    match = re.match(r"\d+", version or "")
    return int(match[0]) if match else None


def _level_advice(nvrtc: str | None, cuda_level: str | None) -> str:
    new, old = _major(nvrtc), _major(cuda_level)
    driver = f" ({_OLDEST_DRIVER[new]} or newer)" if new in _OLDEST_DRIVER else ""
    update = f"update the driver to one for CUDA {nvrtc or 'of the compiler'}{driver}"
    return f"{update}, or install the wheels for CUDA {old}" if old and old != new else update


def _all_found(findings: Sequence[Finding], names: Sequence[str]) -> bool:
    return set(names) <= {one.name for one in findings if one.found}


def _ask(tool: _Tool) -> Finding:
    try:
        version, remedy = tool.probe()
    except Exception as error:  # whatever a broken installation throws is its finding, not our end
        reason = (str(error) or type(error).__name__).split("\n", 1)[0][:120]
        remedy = f"{tool.remedy} ({reason})"
        return Finding(name=tool.name, found=False, needed_for=tool.needed_for, remedy=remedy)
    return Finding(name=tool.name, found=True, version=version, needed_for=tool.needed_for, remedy=remedy)


def _libcuda() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def _driver() -> tuple[str, str]:
    level = _cuda_level()
    release = _kernel_module() or _nvidia_smi()
    nvrtc = _nvrtc_version()
    behind = (_major(level) or 0) < (_major(nvrtc) or 0)
    remedy = f"older than NVRTC {nvrtc}: {_level_advice(nvrtc, level)}" if behind else ""
    return f"{release or 'version unknown'}, CUDA {level}", remedy


def _cuda_level() -> str:
    number = ctypes.c_int()
    status = _libcuda().cuDriverGetVersion(ctypes.byref(number))
    if status:
        raise OSError(f"cuDriverGetVersion returned {status}")
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def _kernel_module() -> str:
    """The driver's version as its kernel module says it, "" where that cannot be read."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
    except OSError:
        return ""
    match = re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text)
    return match[1] if match else ""


def _nvidia_smi() -> str:
    try:
        return _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").splitlines()[0].strip()
    except (OSError, IndexError, subprocess.SubprocessError):
        return ""


def _nvrtc_version() -> str | None:
    try:
        return _nvrtc()[0]
    except Exception:  # asked for a comparison only; NVRTC has a finding of its own
        return None


def _nvrtc() -> tuple[str, str]:
    from harness.build.toolkit import toolkit

    tools = toolkit()
    return tools.version, "" if tools.include_dirs else "no CUDA headers beside it: pip install nvidia-cuda-runtime"


def _cuda_core() -> tuple[str, str]:
    from cuda.core import Program  # noqa: F401  loading it is the test

    return metadata.version("cuda-core"), ""


def _nvdisasm() -> tuple[str, str]:
    from harness.build.toolkit import require_nvdisasm

    return _release(_output(str(require_nvdisasm()), "--version")), ""


def _cupy_wheels() -> list[str]:
    names = (str(one.metadata["Name"] or "") for one in metadata.distributions())
    return sorted({name for name in names if re.fullmatch(r"cupy(-cuda\w+|-rocm\S+)?", name)})


def _cupy() -> tuple[str, str]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cupy

    wheels = _cupy_wheels()
    several = len(wheels) > 1
    remedy = f"more than one is installed ({', '.join(wheels)}): uninstall all, install one" if several else ""
    return f"{cupy.__version__} ({', '.join(wheels) or 'built from source'})", remedy


def _ncu() -> tuple[str, str]:
    found = shutil.which("ncu") or next(map(str, _installed("ncu")), None)
    if found is None:
        raise FileNotFoundError("not on PATH")
    return _release(_output(found, "--version")), _counter_remedy()


def _installed(program: str) -> Iterator[Path]:
    root = Path("/")
    return (path for folder in _NSIGHT_FOLDERS for path in root.glob(f"{folder[1:]}/{program}") if path.is_file())


def _counter_remedy() -> str:
    try:
        admin_only = "RmProfilingAdminOnly: 1" in Path("/proc/driver/nvidia/params").read_text(encoding="utf-8")
    except OSError:
        return ""
    if not admin_only or os.geteuid() == 0:
        return ""
    return "the driver lets only root read counters: load it with NVreg_RestrictProfilingToAdminUsers=0"


def _host_compiler() -> tuple[str, str]:
    found = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if found is None:
        raise FileNotFoundError("none of c++, g++, clang++ is on PATH")
    return _output(found, "--version").splitlines()[0].strip(), ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_SECONDS, check=True)
    return done.stdout


def _release(text: str) -> str:
    """The version in what an NVIDIA tool prints: "V13.5.37", "Version 2026.2.0.0"."""
    match = re.search(r"\bV(?:ersion )?(\d+(?:\.\d+)+)", text)
    return match[1] if match else text.strip().rsplit("\n", 1)[-1]


def _gpus() -> tuple[Finding, ...]:
    needed_for = "verifying and timing"
    try:
        return tuple(_gpu_finding(index, *facts) for index, facts in enumerate(_devices()))
    except Exception as error:  # no driver, no device, a driver that fails: all the same answer
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        shown = f"; CUDA_VISIBLE_DEVICES is {hidden!r}" if hidden is not None else ""
        remedy = f"nothing can be timed here, everything else works ({str(error)[:120]}{shown})"
        return (Finding(name="GPU", found=False, needed_for=needed_for, remedy=remedy),)


def _gpu_finding(index: int, name: str, cc: chips.Capability, sms: int) -> Finding:
    if cc < (8, 0):
        remedy = "not a target: mma.sync.m16n8k16 and cp.async need compute capability 8.0"
    elif chips.identify(name, sms) is None:
        remedy = "no peak is known for it, so percentages stay empty: add a row to harness/chips/chips.toml"
    else:
        remedy = ""
    version = f"{name}, compute capability {chips.spell(cc)}, {sms} SMs"
    return Finding(name=f"GPU {index}", found=True, version=version, needed_for="verifying and timing", remedy=remedy)


def _devices() -> list[tuple[str, chips.Capability, int]]:
    """(name, compute capability, SMs) of every GPU the driver shows; OSError when there is none."""
    library = _libcuda()

    def call(function: str, *arguments: Any) -> None:
        if status := getattr(library, function)(*arguments):
            reason = "the driver sees no GPU" if status == 100 else f"{function} returned {status}"
            raise OSError(reason)

    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    found: list[tuple[str, chips.Capability, int]] = []
    for index in range(count.value):
        device, name, value = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
        call("cuDeviceGet", ctypes.byref(device), index)
        call("cuDeviceGetName", name, len(name), device)
        numbers: list[int] = []
        for attribute in (_MAJOR, _MINOR, _SM_COUNT):
            call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            numbers.append(value.value)
        found.append((name.value.decode(errors="replace"), (numbers[0], numbers[1]), numbers[2]))
    if not found:
        raise OSError("the driver sees no GPU")
    return found


_TOOLS = (
    _Tool(name="NVRTC", needed_for="compiling", remedy="pip install nvidia-cuda-nvrtc", probe=lambda: _nvrtc()),
)
