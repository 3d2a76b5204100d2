"""Which GPU is here, or in one sentence why there is none. Creates no CUDA context."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.gpu.faults import cuda_level, cuda_status
from harness.gpu.nvml import BoardFacts, Nvml, open_nvml

INSUFFICIENT_DRIVER = 35
NO_DEVICE = 100
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
DRIVER_FILE = Path("/proc/driver/nvidia/version")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """A CUDA device and the board behind it; None is unknown.

    Args:
        index: CUDA ordinal, after CUDA_VISIBLE_DEVICES.
        uuid: of the physical GPU where NVML says it, else of the CUDA device.
        sms: of the CUDA device: a MIG slice has its own number.
        max_sm_hz: the maximum that NVML reports, not a clock that was run.
        driver: e.g. "580.159.03"; `cuda_driver` the CUDA level it supports, e.g. "13.0".
    """

    index: int
    name: str
    uuid: str | None
    pci: str | None
    cc: tuple[int, int]
    sms: int
    memory_bytes: int
    l2_bytes: int | None
    driver: str | None
    cuda_driver: str | None
    cupy: str
    ecc: bool | None
    mig: bool | None
    persistence: bool | None
    power_limit_w: float | None
    max_sm_hz: float | None
    compute_mode: str | None
    clocks_locked: bool | None

    @property
    def lock_key(self) -> str:
        """What names this GPU to every process of the machine."""
        return self.uuid or self.pci or f"index-{self.index}"

    def as_record(self) -> dict[str, Any]:
        """The `environment.gpu` object of a record file."""
        return {
            "name": self.name,
            "uuid": self.uuid,
            "pci": self.pci,
            "cc": list(self.cc),
            "sms": self.sms,
            "memory_bytes": self.memory_bytes,
            "l2_bytes": self.l2_bytes,
            "ecc": self.ecc,
            "mig": self.mig,
            "persistence": self.persistence,
            "power_limit_w": self.power_limit_w,
            "max_sm_hz": self.max_sm_hz,
            "compute_mode": self.compute_mode,
            "clocks_locked": self.clocks_locked,
        }


def find_gpu(index: int = 0, *, cupy: Any = None, nvml: Any = None) -> GpuFacts | str:
    """The GPU with this CUDA ordinal, or one plain sentence why it cannot be used. Never raises.

    `cupy` and `nvml` stand in for the modules in tests.
    """
    if cupy is None:
        try:
            import cupy as cupy_module
        except Exception as error:  # not installed, or a wheel that does not fit this machine
            return f"CuPy cannot be imported ({type(error).__name__}: {_line(error)})"
        cupy = cupy_module
    runtime = cupy.cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
        if count == 0:
            return no_device_reason(os.environ.get("CUDA_VISIBLE_DEVICES"))
        if not 0 <= index < count:
            return f"there is no GPU {index}: CUDA sees {count}, numbered from 0"
        facts = _facts(index, cupy, open_gpu_nvml(index, cupy=cupy, module=nvml))
    except Exception as error:
        return _no_gpu_reason(error, runtime)
    if facts.compute_mode == "prohibited":
        return f"GPU {index} ({facts.name}) is in compute mode 'prohibited': nvidia-smi -c 0 lifts it"
    return facts


def open_gpu_nvml(index: int, *, cupy: Any = None, module: Any = None) -> Nvml:
    """NVML for the CUDA device with this ordinal; unmatched when CUDA does not answer."""
    if cupy is None:
        try:
            import cupy as cupy_module
        except Exception:
            return Nvml()
        cupy = cupy_module
    try:
        runtime = cupy.cuda.runtime
        properties = runtime.getDeviceProperties(index)
        return open_nvml(_pci(runtime, index, properties), _uuid(index, properties), module=module)
    except Exception:
        return Nvml()


def no_device_reason(visible: str | None) -> str:
    """The driver works and shows no GPU: because of CUDA_VISIBLE_DEVICES, when that is set."""
    if visible is None:
        return "the NVIDIA driver sees no GPU"
    return f"CUDA sees no GPU: CUDA_VISIBLE_DEVICES is {visible!r}, which hides every one"


def driver_version(text: str) -> str | None:
    """The version in the text of /proc/driver/nvidia/version."""
    found = re.search(r"^NVRM version:.*?\s(\d{3,}\.\d+(?:\.\d+)?)\s", text, re.MULTILINE)
    return found[1] if found else None


def _no_gpu_reason(error: Exception, runtime: Any) -> str:
    status = cuda_status(error)
    try:
        level = int(runtime.driverGetVersion())
    except Exception:
        level = 0
    if status == NO_DEVICE:
        return no_device_reason(os.environ.get("CUDA_VISIBLE_DEVICES"))
    if level == 0:
        return "there is no NVIDIA driver on this machine (libcuda does not load)"
    if status == INSUFFICIENT_DRIVER:
        needs = cuda_level(int(runtime.runtimeGetVersion()))
        return (
            f"the NVIDIA driver supports CUDA {cuda_level(level)} and this CuPy needs CUDA {needs}: "
            f"update the driver, or install the CuPy wheel for CUDA {level // 1000}"
        )
    return f"CUDA does not start ({_line(error)})"


def _facts(index: int, cupy: Any, nvml: Nvml) -> GpuFacts:
    runtime = cupy.cuda.runtime
    properties = runtime.getDeviceProperties(index)
    board = nvml.facts()
    name = properties["name"]
    return GpuFacts(
        index=index,
        name=name.decode() if isinstance(name, bytes) else str(name),
        uuid=board.uuid or _uuid(index, properties),
        pci=_pci(runtime, index, properties),
        cc=(int(properties["major"]), int(properties["minor"])),
        sms=int(properties["multiProcessorCount"]),
        memory_bytes=int(properties["totalGlobalMem"]),
        l2_bytes=int(properties["l2CacheSize"]) or None,
        driver=board.driver or _proc_driver(),
        cuda_driver=cuda_level(int(runtime.driverGetVersion())),
        cupy=str(cupy.__version__),
        ecc=_ecc(board, properties),
        mig=board.mig,
        persistence=board.persistence,
        power_limit_w=board.power_limit_w,
        max_sm_hz=board.max_sm_hz,
        compute_mode=COMPUTE_MODES.get(int(properties.get("computeMode", -1))),
        clocks_locked=board.clocks_locked,
    )


def _ecc(board: BoardFacts, properties: Any) -> bool | None:
    if board.ecc is not None:
        return board.ecc
    return bool(properties["ECCEnabled"]) if "ECCEnabled" in properties else None


def _pci(runtime: Any, index: int, properties: Any) -> str | None:
    try:
        return str(runtime.deviceGetPCIBusId(index)).lower()
    except Exception:
        pass
    try:
        ids = [int(properties[name]) for name in ("pciDomainID", "pciBusID", "pciDeviceID")]
    except KeyError:
        return None
    return "{:04x}:{:02x}:{:02x}.0".format(*ids)


def _uuid(index: int, properties: Any) -> str | None:
    """The CUDA device's UUID. CuPy cuts its bytes at the first zero byte: only a whole one is taken."""
    raw = properties.get("uuid")
    if not (isinstance(raw, bytes) and len(raw) == 16):
        raw = _driver_uuid(index)
    return format_uuid(raw) if raw else None


def _driver_uuid(index: int) -> bytes | None:
    try:
        from cuda.bindings import driver

        driver.cuInit(0)
        status, device = driver.cuDeviceGet(index)
        status, uuid = driver.cuDeviceGetUuid(device)
        return bytes(uuid.bytes) if int(status) == 0 else None
    except Exception:
        return None


def format_uuid(raw: bytes) -> str:
    """16 bytes as NVML writes a GPU's UUID."""
    text = raw.hex()
    return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _proc_driver() -> str | None:
    try:
        return driver_version(DRIVER_FILE.read_text())
    except OSError:
        return None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
