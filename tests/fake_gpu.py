"""Stand-ins for the GPU: a CUDA of NumPy arrays, an NVML of four boards, servers that misbehave on demand."""

from __future__ import annotations

import os
import time
from types import SimpleNamespace

import numpy as np

from harness.errors import NotSupportedError
from harness.gpu.commands import Entry, FixedInputs, Loaded, Run
from harness.gpu.facts import GpuFacts
from harness.gpu.faults import StickyError
from harness.gpu.scan import scan_array
from harness.model import Launch, OutputSpec, Scalar

SMS = 4


def facts(**changes) -> GpuFacts:
    values = {
        "index": 0,
        "name": "Fake",
        "uuid": "GPU-00000000-0000-0000-0000-000000000000",
        "pci": "0000:01:00.0",
        "cc": (9, 0),
        "sms": SMS,
        "memory_bytes": 1 << 30,
        "l2_bytes": 1 << 20,
        "driver": "580.10",
        "cuda_driver": "13.0",
        "cupy": "14.2.0",
        "ecc": None,
        "mig": None,
        "persistence": None,
        "power_limit_w": None,
        "max_sm_hz": None,
        "compute_mode": None,
        "clocks_locked": None,
    }
    return GpuFacts(**{**values, **changes})


def entry(
    entry_id: str = "full", kernel: str = "double_it", *, cubin: str = "k.cubin", ctas: int = 8
) -> Entry:
    run = Run(
        launch=Launch(
            grid=(ctas, 1, 1),
            block=128,
            shared_bytes=0,
            arguments=("x", "y", "stamps", Scalar(kind="i32", value=3)),
        ),
        inputs=FixedInputs(values={"x": np.arange(16, dtype=np.float32).reshape(4, 4)}),
        outputs={"y": OutputSpec(shape=(4, 4), dtype="float32")},
    )
    return Entry(
        id=entry_id,
        cubin_path=cubin,
        kernel=kernel,
        dynamic_bytes=1024,
        arch="sm_90a",
        toolkit="13.5",
        run=run,
        flops=8000,
    )


class Buffer:
    """Bytes that can be weakly referenced, as a CuPy array can."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, dtype=np.uint8)


class FakeCuda:
    """Does at once what CUDA would enqueue, and keeps a trace. A launch takes 1 ms at 1.5 GHz."""

    def __init__(self, *, room: int = 1 << 30) -> None:
        self.trace: list[str] = []
        self.uploads = 0
        self.room = room
        self.clock = 1_000_000
        self.seconds = 0.0
        self.unwritten = False
        self.error: Exception | None = None

    def free_bytes(self) -> int:
        return self.room

    def trim(self) -> None:
        self.trace.append("trim")

    def load(self, entry: Entry):
        if entry.kernel == "too big":
            raise NotSupportedError("needs 2 bytes, has 1")
        return entry.kernel, Loaded(
            registers=32,
            local_bytes=0,
            shared_bytes=0,
            dynamic_bytes=entry.dynamic_bytes,
            max_threads=1024,
            binary_version=90,
            ctas_per_sm=2,
        )

    def empty(self, size: int) -> Buffer:
        if size > self.room:
            self.room = 1 << 40
            raise MemoryError("full")
        return Buffer(size)

    def upload(self, array) -> Buffer:
        self.uploads += 1
        self.trace.append("upload")
        buffer = self.empty(array.nbytes)
        buffer.bytes[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return buffer

    def fill(self, buffer: Buffer, size: int, byte: int) -> None:
        self.trace.append("flush" if byte == 0 else "fill")
        buffer.bytes[:size] = byte

    def launch(self, kernel, grid, block, shared, arguments) -> None:
        self.trace.append("launch")
        if self.error is not None:
            raise self.error
        x, y, stamps, factor = arguments
        assert isinstance(factor, np.int32)
        if not self.unwritten:
            y.bytes[:64] = (x.bytes.view(np.float32)[:16] * 2).view(np.uint8)
        self.clock += 1_500_000
        self.seconds += 1e-3
        rows = np.zeros((grid[0], 5), dtype=np.uint64)
        rows[:, 0] = np.arange(grid[0]) % SMS
        rows[:, 1] = self.clock - 1_500_000
        rows[:, 2] = self.clock
        rows[:, 3] = np.uint64(self.seconds * 1e9) - np.uint64(1_000_000) + np.uint64(32) * (rows[:, 0] % 2)
        rows[:, 4] = rows[:, 3] + np.uint64(1_000_000)
        stamps.bytes[: rows.nbytes] = rows.reshape(-1).view(np.uint8)

    def record(self) -> float:
        self.trace.append("event")
        return self.seconds

    def seconds_between(self, start: float, stop: float) -> float:
        return stop - start

    def synchronize(self) -> None:
        self.trace.append("synchronize")

    def download(self, buffer: Buffer, shape, dtype, offset=0):
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return buffer.bytes[offset : offset + size].view(dtype).reshape(shape).copy()

    def scan(self, buffer: Buffer, elements, dtype):
        return scan_array(buffer.bytes[: elements * 4].view(np.float32), dtype)


class FakeNvmlError(Exception):
    pass


class FakeNvml:
    """pynvml of four GPUs; `cuda_order` below is how CUDA numbers them."""

    CLOCKS = (210, 1410, 1980, 1815)

    def __init__(self, *, refuse: tuple[str, ...] = ()) -> None:
        self.refuse = refuse
        self.uuids = [f"GPU-{i:08x}-0000-0000-0000-000000000000" for i in range(4)]
        self.pci = [f"0000:{0x10 + i:02x}:00.0" for i in range(4)]
        self.mig = {"MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee": 2}

    def __getattribute__(self, name: str):
        if name.startswith("nvml") and name in object.__getattribute__(self, "refuse"):
            raise FakeNvmlError("Not Supported")
        return object.__getattribute__(self, name)

    def nvmlDeviceGetHandleByPciBusId(self, pci: str):
        if pci not in self.pci:
            raise FakeNvmlError("Not Found")
        return self.pci.index(pci)

    def nvmlDeviceGetHandleByUUID(self, uuid: str):
        if uuid in self.mig:
            return uuid
        if uuid not in self.uuids:
            raise FakeNvmlError("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceIsMigDeviceHandle(self, handle):
        return isinstance(handle, str)

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, handle):
        return self.mig[handle]

    def nvmlDeviceGetClockInfo(self, handle, kind):
        assert kind == 1
        return self.CLOCKS[handle]

    def nvmlDeviceGetMaxClockInfo(self, handle, kind):
        return 1980

    def nvmlDeviceGetPowerUsage(self, handle):
        return 100_000 + handle

    def nvmlDeviceGetTemperature(self, handle, sensor):
        return 40 + handle

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return 0x4 | 0x8 if handle == 3 else 0

    def nvmlDeviceGetUtilizationRates(self, handle):
        return SimpleNamespace(gpu=7 * handle)

    def nvmlDeviceGetComputeRunningProcesses(self, handle):
        return [SimpleNamespace(pid=4242)] if handle == 1 else []

    def nvmlDeviceGetUUID(self, handle):
        return self.uuids[handle]

    def nvmlSystemGetDriverVersion(self):
        return "580.159.03"

    def nvmlDeviceGetEccMode(self, handle):
        return [1, 1]

    def nvmlDeviceGetMigMode(self, handle):
        return [int(handle == 2), 0]

    def nvmlDeviceGetPersistenceMode(self, handle):
        return 1

    def nvmlDeviceGetEnforcedPowerLimit(self, handle):
        return 700_000


class CUDARuntimeError(RuntimeError):
    """As CuPy's: told apart by its name and its status."""

    def __init__(self, status: int, text: str = "cudaError") -> None:
        super().__init__(text)
        self.status = status


class FakeRuntime:
    """cupy.cuda.runtime over the four boards; honours a CUDA_VISIBLE_DEVICES as CUDA does."""

    def __init__(
        self, visible: str | None = None, *, error: int = 0, driver: int = 13000, slice_sms: int = 0
    ) -> None:
        boards = FakeNvml()
        self.order = list(range(4))
        if visible is not None:
            self.order = []
            for word in [w for w in visible.split(",") if w]:
                known = (
                    [int(word)] if word.isdigit() else [i for i, u in enumerate(boards.uuids) if u == word]
                )
                self.order += known or ([boards.mig[word]] if word in boards.mig else [])
        self.boards, self.error, self.driver, self.slice_sms = boards, error, driver, slice_sms

    def getDeviceCount(self) -> int:
        if self.error:
            raise CUDARuntimeError(self.error, "cudaErrorSomething: a text")
        if not self.order:
            raise CUDARuntimeError(100, "cudaErrorNoDevice: no CUDA-capable device is detected")
        return len(self.order)

    def driverGetVersion(self) -> int:
        return self.driver

    def runtimeGetVersion(self) -> int:
        return 13020

    def deviceGetPCIBusId(self, index: int) -> str:
        return self.boards.pci[self.order[index]].upper()

    def getDeviceProperties(self, index: int):
        return {
            "name": b"NVIDIA H200",
            "major": 9,
            "minor": 0,
            "multiProcessorCount": self.slice_sms or 132,
            "totalGlobalMem": 1 << 37,
            "l2CacheSize": 60 << 20,
            "ECCEnabled": 1,
            "computeMode": 0,
            "uuid": b"\x01\x02",
        }


def fake_cupy(runtime: FakeRuntime) -> SimpleNamespace:
    return SimpleNamespace(cuda=SimpleNamespace(runtime=runtime), __version__="14.2.0")


class Moody:
    """A server for the worker: says how it is, or breaks as asked."""

    def __init__(self, limit, start_seconds: float = 0.0) -> None:
        time.sleep(start_seconds)
        self.limit = limit
        self.calls = 0

    def echo(self, value):
        self.calls += 1
        return value, self.calls, os.getpid()

    def fail(self) -> None:
        raise ZeroDivisionError("nothing to divide by")

    def shout(self, text: str) -> None:
        os.write(2, f"{text}\n".encode())

    def unsupported(self) -> None:
        raise NotSupportedError("needs 2 bytes, has 1")

    def stick(self) -> None:
        raise StickyError("cudaErrorIllegalAddress: an illegal memory access was encountered")

    def die(self) -> None:
        os._exit(9)

    def abort(self) -> None:
        os.abort()

    def hang(self) -> None:
        time.sleep(600)

    def slow(self, seconds: float, allowed: float) -> str:
        self.limit(allowed)
        time.sleep(seconds)
        return "done"

    def unpicklable(self):
        return lambda: None


def stillborn(limit):
    raise ValueError("no GPU in this child")


class FakeServer:
    """DeviceServer on a FakeCuda, in the child; kernels named after faults have them when they are timed."""

    def __new__(cls, limit, gpu_facts, seconds):
        from harness.gpu.server import DeviceServer

        class Server(DeviceServer):
            def time(self, entry_id, repeats, cold):
                kernel = self._held[entry_id].entry.kernel
                if kernel == "dies":
                    os._exit(3)
                if kernel == "hangs":
                    self._limit(0.3)
                    time.sleep(600)
                if kernel == "illegal":
                    raise StickyError("illegal address")
                return super().time(entry_id, repeats, cold)

        return Server(limit, gpu_facts, seconds, cuda=FakeCuda())
