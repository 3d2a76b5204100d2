"""What the machine compiles and disassembles with: the NVRTC really loaded, its headers, the disassembler."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.errors import ToolError

_INSTALL = "pip install 'cuda-core[cu13]' nvidia-cuda-nvrtc nvidia-cuda-nvdisasm"
_NVRTC_WHEELS = ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "nvidia-cuda-nvrtc-cu12")
_TOOLKIT_FOLDER = Path("/usr/local/cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """The tools in use.

    Args:
        version: of the NVRTC loaded, as exact as can be had: "13.5.37", or "13.5".
        nvrtc_path: the file of that NVRTC.
        include_dirs: the one header folder that belongs to it, or none.
        nvdisasm: the disassembler, or None when there is none.
    """

    version: str
    nvrtc_path: Path
    include_dirs: tuple[Path, ...]
    nvdisasm: Path | None


@cache
def toolkit() -> Toolkit:
    """The tools in use, looked up once a process; ToolError when NVRTC or cuda.core is missing."""
    library = _load_nvrtc()
    home = library.parent.parent
    include = home / "include"
    return Toolkit(
        version=_version(library),
        nvrtc_path=library,
        include_dirs=(include,) if (include / "cuda_runtime.h").is_file() else (),
        nvdisasm=_find_nvdisasm(home),
    )


@cache
def supported_archs() -> tuple[str, ...]:
    """Every real architecture that the loaded NVRTC compiles for, ascending: ..., sm_90, sm_90a, ..."""
    version = toolkit().version
    status, numbers = _nvrtc_bindings().nvrtcGetSupportedArchs()
    if int(status) != 0:
        raise ToolError(f"NVRTC {version} does not say which architectures it knows: {status}")
    names: list[str] = []
    for number in sorted(numbers):
        names.append(f"sm_{number}")
        # "a": instructions of that very chip, from Hopper on; "f": of its family, from Blackwell on.
        names += [f"sm_{number}a"] if number >= 90 else []
        names += [f"sm_{number}f"] if number >= 100 else []
    return tuple(names)


def nvrtc_module() -> tuple[Any, Any, type[Exception]]:
    """cuda.core's Program and ProgramOptions, and the exception that a refused compile raises."""
    toolkit()
    try:
        from cuda.core import Program, ProgramOptions
        from cuda.core._utils.cuda_utils import NVRTCError
    except ImportError as error:
        raise ToolError(f"cuda.core cannot be imported ({error}): {_INSTALL}") from error
    return Program, ProgramOptions, NVRTCError


def require_nvdisasm() -> Path:
    """The disassembler; ToolError with what to install when there is none."""
    path = toolkit().nvdisasm
    if path is None:
        raise ToolError(
            "nvdisasm is not installed: pip install nvidia-cuda-nvdisasm, or put a CUDA toolkit on PATH"
        )
    return path


@cache
def nvdisasm_version(nvdisasm: Path) -> str:
    """The disassembler's build, as it says itself; ToolError when it does not run."""
    try:
        done = subprocess.run(
            [str(nvdisasm), "--version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolError(f"{nvdisasm} cannot be run: {error}") from error
    found = re.search(r"V([0-9.]+)", done.stdout)
    return found[1] if found else done.stdout.strip()


def _load_nvrtc() -> Path:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        raise ToolError(f"no compiler: cuda.core is not installed ({error}): {_INSTALL}") from error
    try:
        return Path(load_nvidia_dynamic_lib("nvrtc").abs_path)
    except Exception as error:  # the loader's own error types differ between its versions
        reason = str(error).split("\n", 1)[0][:200]
        raise ToolError(f"no compiler: the NVRTC library cannot be loaded ({reason}): {_INSTALL}") from error


def _nvrtc_bindings() -> Any:
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise ToolError(f"cuda.bindings cannot be imported ({error}): {_INSTALL}") from error
    return nvrtc


def _version(library: Path) -> str:
    """The wheel's version when the library lies in a wheel, the file's own number, or NVRTC's major.minor."""
    _, major, minor = _nvrtc_bindings().nvrtcVersion()
    short = f"{major}.{minor}"
    wheels = (_wheel_version(name, library) for name in _NVRTC_WHEELS)
    in_name = re.search(r"libnvrtc\.so\.([0-9.]+)$", library.resolve().name)
    for version in (*wheels, in_name[1] if in_name else None):
        if version and version.startswith(short + "."):
            return version
    return short


def _wheel_version(name: str, library: Path) -> str | None:
    try:
        wheel = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return None
    folder = Path(str(wheel.locate_file(""))).resolve()
    return str(wheel.version) if library.resolve().is_relative_to(folder) else None


def _find_nvdisasm(home: Path) -> Path | None:
    """The disassembler beside NVRTC, else on PATH, else of an installed toolkit."""
    beside = [home / "bin" / "nvdisasm", home.parent / "cuda_nvdisasm" / "bin" / "nvdisasm"]
    on_path = shutil.which("nvdisasm")
    places = [*beside, *([Path(on_path)] if on_path else []), _TOOLKIT_FOLDER / "bin" / "nvdisasm"]
    return next((path for path in places if path.is_file()), None)
