"""Looking for one tool at a time: each function says what it found, and raises when it is not there.

`doctor` turns what they raise into findings. GPUs are asked through the driver's own library, so that
neither CuPy nor NVML is needed to see them.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

Device = tuple[str, tuple[int, int], int]
"""Name, compute capability and SM count of a GPU."""

_PATIENCE_SECONDS = 20
_NCU_PLACES = ("usr/local/cuda/bin/ncu", "opt/nvidia/nsight-compute/*/ncu")
_MAJOR, _MINOR, _SM_COUNT = 75, 76, 16  # CUdevice_attribute
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def load_libcuda() -> ctypes.CDLL:
    """The driver's library; OSError when there is no driver."""
    return ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")


def cuda_level() -> str:
    """The CUDA version the driver supports: "13.0"."""
    number = ctypes.c_int()
    if status := load_libcuda().cuDriverGetVersion(ctypes.byref(number)):
        raise OSError(f"cuDriverGetVersion returned {status}")
    return f"{number.value // 1000}.{number.value % 1000 // 10}"


def driver_release() -> str:
    """The driver's own version, "580.159.03", from its kernel module or nvidia-smi, else "unknown"."""
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8")
        if match := re.search(r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)?)\s", text):
            return match[1]
    except OSError:
        pass
    try:
        said = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")
    except OSError:
        return "unknown"
    return said.strip().split("\n", 1)[0] or "unknown"


def nvrtc() -> tuple[str, bool]:
    """The version of the NVRTC that loads, and whether its CUDA headers are beside it."""
    from harness.build.toolkit import toolkit

    tools = toolkit()
    return tools.version, bool(tools.include_dirs)


def cuda_core() -> str:
    """The version of cuda.core, once it has been imported."""
    from cuda.core import Program  # noqa: F401 - that it loads is the question

    return metadata.version("cuda-core")


def nvdisasm() -> str:
    """The version of the disassembler in use."""
    from harness.build.toolkit import require_nvdisasm

    return read_version(output(str(require_nvdisasm()), "--version"))


def ncu_program() -> str:
    """Nsight Compute's command line, on PATH or where its installer puts it; FileNotFoundError without."""
    elsewhere = (
        str(path) for pattern in _NCU_PLACES for path in sorted(Path("/").glob(pattern), reverse=True)
    )
    program = shutil.which("ncu") or next(elsewhere, None)
    if program is None:
        raise FileNotFoundError("not on PATH")
    return program


def ncu() -> str:
    """The version of that command line."""
    return read_version(output(ncu_program(), "--version"))


def counters_are_closed() -> bool:
    """Whether the driver keeps hardware counters from this user."""
    try:
        text = Path("/proc/driver/nvidia/params").read_text(encoding="utf-8")
    except OSError:
        return False
    return "RmProfilingAdminOnly: 1" in text and os.geteuid() != 0


def host_compiler() -> str:
    """The first line that the first C++ compiler on PATH says of itself."""
    program = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    if program is None:
        raise FileNotFoundError("none of c++, g++, clang++ is on PATH")
    return output(program, "--version").strip().split("\n", 1)[0]


def cupy_wheels() -> tuple[str, ...]:
    """Every CuPy distribution installed; more than one do not work together."""
    names = (str(one.metadata["Name"] or "") for one in metadata.distributions())
    return tuple(sorted({name for name in names if re.fullmatch(r"cupy(-cuda\w+|-rocm\S+)?", name)}))


def devices() -> tuple[Device, ...]:
    """Every GPU the driver shows; OSError when there is none."""
    library = load_libcuda()

    def call(function: str, *arguments: Any) -> None:
        if status := getattr(library, function)(*arguments):
            raise OSError(
                "the driver sees no GPU" if status == _NO_DEVICE else f"{function} returned {status}"
            )

    count = ctypes.c_int()
    call("cuInit", 0)
    call("cuDeviceGetCount", ctypes.byref(count))
    if not count.value:
        raise OSError("the driver sees no GPU")
    found: list[Device] = []
    for index in range(count.value):
        device, name, value = ctypes.c_int(), ctypes.create_string_buffer(256), ctypes.c_int()
        call("cuDeviceGet", ctypes.byref(device), index)
        call("cuDeviceGetName", name, len(name), device)
        numbers: list[int] = []
        for attribute in (_MAJOR, _MINOR, _SM_COUNT):
            call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
            numbers.append(value.value)
        found.append((name.value.decode(errors="replace"), (numbers[0], numbers[1]), numbers[2]))
    return tuple(found)


def output(*command: str) -> str:
    """What a program prints; OSError when it cannot run, fails, or does not end."""
    name = Path(command[0]).name
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{name} did not answer within {_PATIENCE_SECONDS} s") from error
    if done.returncode:
        raise OSError(f"{name} ended with exit status {done.returncode}")
    return done.stdout


def read_version(text: str) -> str:
    """The version a tool of the toolkit prints: "V13.5.37", "Version 2026.2.0.0"; else its last line."""
    match = re.search(r"\bV(?:ersion )?(\d+(?:\.\d+)+)", text)
    return match[1] if match else text.strip().rsplit("\n", 1)[-1]
