"""Driver, compiler and target that do not go together: which of the three to change.

Pure: works on version numbers and on the names of CUDA errors; no driver is asked.
"""

from __future__ import annotations

import re

from harness import chips
from harness.errors import AblationError

# The oldest Linux driver that loads cubins of a CUDA major version (from the CUDA release notes).
_OLDEST_DRIVER = {11: "450.80", 12: "525.60", 13: "580.65"}
# CUDA errors 200, 300, 301 and 302, as the runtime and the driver API spell them.
_UNREADABLE = ("invalidimage", "invalidkernelimage", "invalidsource", "filenotfound", "symbolnotfound")


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
    update = update_driver(nvrtc, cuda_level)
    if "unsupportedptxversion" in name:
        advice = f"the driver is older than the compiler that wrote the PTX: {update}"
    elif "invalidptx" in name:
        advice = f"the driver cannot translate this PTX: load a cubin instead, or {update}"
    elif "nobinaryforgpu" in name or "nokernelimage" in name:
        advice = _binary_advice(gpu_cc, target, update)
    elif "insufficientdriver" in name:
        advice = f"the driver is older than the CUDA libraries in use: {update}"
    elif any(word in name for word in _UNREADABLE):
        advice = "the driver cannot read the file as a cubin: build it again, after `ablate cache --clear`"
    else:
        advice = "see what `ablate doctor` says of these versions"
    facts = (
        f"driver {driver or 'unknown'} for CUDA {cuda_level or 'unknown'}, NVRTC {nvrtc or 'unknown'}, "
        f"GPU of compute capability {chips.spell(gpu_cc) if gpu_cc else 'unknown'}, target {target}"
    )
    return f"{error_name}: {advice} ({facts})"


def is_behind(cuda_level: str | None, nvrtc: str | None) -> bool:
    """Whether a driver for `cuda_level` is of an older major version than what this compiler makes."""
    return (_version(cuda_level) or (0, 0))[0] < (_version(nvrtc) or (0, 0))[0]


def update_driver(nvrtc: str | None, cuda_level: str | None) -> str:
    """What to do about a driver for `cuda_level` that is too old for what this compiler makes."""
    new, old = _version(nvrtc), _version(cuda_level)
    if new and old and new[0] <= old[0]:
        # Its major version is new enough, so only a later release of it can know more.
        later = f"one for CUDA {new[0]}.{new[1]}" if new > old else "the newest there is"
        return f"update the driver to {later}"
    oldest = f", {_OLDEST_DRIVER[new[0]]} or newer" if new and new[0] in _OLDEST_DRIVER else ""
    update = f"update the driver to one for CUDA {new[0] if new else 'of that version'}{oldest}"
    return f"{update}, or install the wheels for CUDA {old[0]}" if old and new else update


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


def _version(text: str | None) -> tuple[int, int] | None:
    """ "12.4.99" -> (12, 4); a missing minor version is 0."""
    match = re.match(r"(\d+)(?:\.(\d+))?", text or "")
    return (int(match[1]), int(match[2] or 0)) if match else None
