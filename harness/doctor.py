"""What this machine has of the tools the suite needs, what is missing, and what to do about it.

Looking never raises: a tool that cannot be found, loaded or asked is a finding that says so. Nothing prints.
"""

from __future__ import annotations

import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata

from harness import advice, chips, probes

WIDTH = 80
_PACKAGES = ("cuda-core", "cuda-bindings", "jinja2", "numpy", "pandas", "pytest", "pytest-benchmark", "scipy")


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
    update = advice.update_driver(compiler, level)
    remedy = f"older than NVRTC {compiler}: {update}" if advice.is_behind(level, compiler) else ""
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
