"""What this machine has of the tools the suite needs, what is missing, and what to do about it.

Looking never raises: a tool that cannot be found, loaded or asked is a finding that says so. Nothing prints.
"""

from __future__ import annotations

import os
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from harness import chips, probes
from harness.errors import AblationError

WIDTH = 80
_PACKAGES = ("cuda-core", "cuda-bindings", "jinja2", "numpy", "pandas", "pytest", "pytest-benchmark", "scipy")
# The oldest Linux driver that loads cubins of a CUDA major version (from the CUDA release notes).
_OLDEST_DRIVER = {11: "450.80", 12: "525.60", 13: "580.65"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One tool: whether it is here, its version, what it is needed for, and what to do (empty: nothing)."""

    name: str
    found: bool
    version: str = ""
    needed_for: str = ""
    remedy: str = ""


def diagnose() -> tuple[Finding, ...]:
    """Everything looked for, in the order of the table; the GPUs last, one finding each. Never raises."""
    return (
        _ask("NVRTC", _nvrtc, "compiling", "pip install nvidia-cuda-nvrtc nvidia-cuda-runtime"),
        _ask("cuda.core", probes.cuda_core, "compiling", "pip install 'cuda-core[cu13]'"),
        _ask("nvdisasm", probes.nvdisasm, "checking machine code", "pip install nvidia-cuda-nvdisasm"),
        _ask("C++ compiler", probes.host_compiler, "checking kernels on the CPU", "install g++ or clang"),
        _ask(
            "driver",
            _driver,
            "verifying and timing",
            "install the NVIDIA driver; without a GPU none is needed",
        ),
        _ask(
            "CuPy",
            _cupy,
            "verifying and timing",
            "pip install cupy-cuda13x (cupy-cuda12x for a CUDA 12 driver)",
        ),
        _ask(
            "ncu",
            _ncu,
            "hardware counters",
            "install Nsight Compute; everything but the counters works without",
        ),
        *_gpus(),
    )


def can_build(findings: Sequence[Finding]) -> bool:
    """Whether studies can be compiled and their machine code checked here; no GPU is needed for that."""
    return {"NVRTC", "cuda.core", "nvdisasm"} <= {one.name for one in findings if one.found}


def can_time(findings: Sequence[Finding]) -> bool:
    """Whether kernels can be timed here as well."""
    here = {one.name for one in findings if one.found}
    return can_build(findings) and {"driver", "CuPy"} <= here and any(name.startswith("GPU") for name in here)


def packages() -> dict[str, str]:
    """Versions of Python and of the packages in use, as far as they are installed."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in (*_PACKAGES, *probes.cupy_wheels()):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return versions


def render_text(findings: Sequence[Finding]) -> str:
    """The findings as aligned lines of at most 80 columns; what to do stands below its tool."""
    name_width = max((len(one.name) for one in findings), default=0) + 2
    lines: list[str] = []
    for one in findings:
        head = f"{one.name:<{name_width}}{'found' if one.found else 'missing':<9}"
        indent = " " * len(head)
        lines += textwrap.wrap(
            head + (one.version or f"for {one.needed_for}"), WIDTH, subsequent_indent=indent
        )
        lines += textwrap.wrap(one.remedy, WIDTH, initial_indent=indent, subsequent_indent=indent)
    verdicts = ["can" if able else "cannot" for able in (can_build(findings), can_time(findings))]
    lines += ["", "Here studies {} be built, and {} be timed.".format(*verdicts)]
    return "\n".join(lines) + "\n"


def render_json(findings: Sequence[Finding]) -> dict[str, object]:
    """The findings as a mapping that JSON can hold: tools, can_build, can_time."""
    tools = [asdict(one) for one in findings]
    return {"tools": tools, "can_build": can_build(findings), "can_time": can_time(findings)}


def driver_advice(
    driver: str | None,
    cuda_level: str | None,
    nvrtc: str | None,
    gpu_cc: chips.Capability | None,
    target: str,
    error_name: str,
) -> str:
    """One line for a kernel that the driver refused to load: which of driver, compiler and target to change.

    Args:
        driver: the driver's version, "550.54".
        cuda_level: the CUDA version it supports, "12.4".
        nvrtc: the compiler's version, "13.0".
        gpu_cc: the GPU's compute capability.
        target: the architecture compiled for, "sm_120".
        error_name: as the driver API or the runtime spells it.
    """
    name = error_name.replace("_", "").lower()
    if "unsupportedptxversion" in name:
        advice = f"the driver is older than the compiler that wrote the PTX: {_update(nvrtc, cuda_level)}"
    elif "nobinaryforgpu" in name or "nokernelimage" in name:
        advice = _binary_advice(gpu_cc, target, _update(nvrtc, cuda_level))
    elif "insufficientdriver" in name:
        advice = f"the driver is older than the CUDA libraries in use: {_update(nvrtc, cuda_level)}"
    else:
        advice = "see what `ablate doctor` says of these versions"
    facts = (
        f"driver {driver or 'unknown'} for CUDA {cuda_level or 'unknown'}, NVRTC {nvrtc or 'unknown'}, "
        f"GPU of compute capability {chips.spell(gpu_cc) if gpu_cc else 'unknown'}, target {target}"
    )
    return f"{error_name}: {advice} ({facts})"


def _binary_advice(gpu_cc: chips.Capability | None, target: str, update: str) -> str:
    if gpu_cc is None:
        return "the cubin is for another GPU: compile for the one at hand"
    try:
        wanted = chips.arch_of(gpu_cc)
    except AblationError:
        return "the suite does not support this GPU: it is older than Ampere or not known yet"
    if _runs_on(target, gpu_cc):
        return f"the cubin fits the GPU, so the driver is too old to know it: {update}"
    return f"the cubin does not run on this GPU: compile for {wanted}"


def _runs_on(target: str, gpu_cc: chips.Capability) -> bool:
    """Whether a cubin runs there: same major, no newer minor; with suffix a, that very capability."""
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


def _update(nvrtc: str | None, cuda_level: str | None) -> str:
    new, old = _major(nvrtc), _major(cuda_level)
    oldest = f", {_OLDEST_DRIVER[new]} or newer" if new in _OLDEST_DRIVER else ""
    update = f"update the driver to one for CUDA {new or 'of that version'}{oldest}"
    return f"{update}, or install the wheels for CUDA {old}" if old and new and old < new else update


def _ask(name: str, probe: Callable[[], str | tuple[str, str]], needed_for: str, remedy: str) -> Finding:
    """What a probe says: a version, or a version and what to do; whatever it raises means it is not there."""
    try:
        answer = probe()
    except Exception as error:  # a broken installation may throw anything, and that is the finding
        return Finding(name=name, found=False, needed_for=needed_for, remedy=f"{remedy} ({_reason(error)})")
    version, todo = (answer, "") if isinstance(answer, str) else answer
    return Finding(name=name, found=True, version=version, needed_for=needed_for, remedy=todo)


def _reason(error: Exception) -> str:
    """The first line of what went wrong, or the kind of error where it says nothing."""
    return (str(error).strip() or type(error).__name__).split("\n", 1)[0][:120]


def _nvrtc() -> tuple[str, str]:
    version, headers = probes.nvrtc()
    return version, "" if headers else "its headers are missing: pip install nvidia-cuda-runtime"


def _driver() -> tuple[str, str]:
    level = probes.cuda_level()
    try:
        compiler: str | None = probes.nvrtc()[0]
    except Exception:  # NVRTC has a finding of its own; here it is only compared with
        compiler = None
    behind = (_major(level) or 0) < (_major(compiler) or 0)
    remedy = f"older than NVRTC {compiler}: {_update(compiler, level)}" if behind else ""
    return f"{probes.driver_release()}, CUDA {level}", remedy


def _cupy() -> tuple[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cupy
    wheels = probes.cupy_wheels()
    several = f"{', '.join(wheels)} are in each other's way: uninstall all, install one"
    return f"{cupy.__version__} ({wheels[0] if wheels else 'no wheel'})", several if len(wheels) > 1 else ""


def _ncu() -> tuple[str, str]:
    closed = "only root may read counters: set the driver's NVreg_RestrictProfilingToAdminUsers=0"
    return probes.ncu(), closed if probes.counters_are_closed() else ""


def _gpus() -> tuple[Finding, ...]:
    needed_for = "verifying and timing"
    try:
        return tuple(_gpu(index, *device) for index, device in enumerate(probes.devices()))
    except Exception as error:  # no driver, no device, a driver that fails: the same answer
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        shown = "" if hidden is None else f"; CUDA_VISIBLE_DEVICES is {hidden!r}"
        remedy = f"nothing is timed here, all else works ({_reason(error)}{shown})"
        return (Finding(name="GPU", found=False, needed_for=needed_for, remedy=remedy),)


def _gpu(index: int, name: str, cc: chips.Capability, sms: int) -> Finding:
    remedy = ""
    if cc < (8, 0):
        remedy = "no target: mma.sync.m16n8k16 and cp.async need compute capability 8.0"
    elif chips.identify(name, sms) is None:
        remedy = "its peak is unknown, so there is no percentage: add it to harness/chips/chips.toml"
    version = f"{name}, compute capability {chips.spell(cc)}, {sms} SMs"
    return Finding(
        name=f"GPU {index}", found=True, version=version, needed_for="verifying and timing", remedy=remedy
    )
