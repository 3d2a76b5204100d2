"""CuPy, as little of it as the worker needs: the one place that touches device memory, streams and events.

Everything runs on one non-blocking stream, so that the order of the calls is the order on the device.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.gpu.commands import Entry, Loaded, Scan
from harness.gpu.facts import GpuFacts
from harness.gpu.faults import cuda_status, is_sticky
from harness.gpu.load import load
from harness.gpu.scan import COUNTERS, INFINITY, KERNELS, NUMPY_TYPE, WORD_BYTES, as_scan, scan_array
from harness.model import Array

SCAN_THREADS = 256


class Cuda:
    """One CUDA device, its context and its stream. Buffers are one-dimensional cupy arrays of bytes."""

    def __init__(self, facts: GpuFacts) -> None:
        import cupy

        self._cupy = cupy
        self.facts = facts
        cupy.cuda.Device(facts.index).use()
        self._stream = cupy.cuda.Stream(non_blocking=True)
        self._stream.use()
        self._copies: dict[str, int] = {}
        self._scan_module: Any = None
        self._scan_works = True

    def free_bytes(self) -> int:
        """Device memory not yet taken by anyone."""
        return int(self._cupy.cuda.runtime.memGetInfo()[0])

    def trim(self) -> None:
        """Give memory that CuPy's pool holds unused back to the driver."""
        self._cupy.get_default_memory_pool().free_all_blocks()

    def load(self, entry: Entry) -> tuple[Any, Loaded]:
        """Load an entry's kernel as a module of its own, also when its file is loaded already."""
        copy = self._copies.get(entry.cubin_path, -1) + 1
        self._copies[entry.cubin_path] = copy
        return load(entry, self.facts, copy=copy)

    def empty(self, size: int) -> Any:
        """A buffer of `size` bytes, unwritten."""
        return self._cupy.empty((size,), dtype=np.uint8)

    def upload(self, array: Array) -> Any:
        """A new buffer with the bytes of a host array; complete on return."""
        host = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        buffer = self.empty(host.size)
        buffer.set(host, stream=self._stream)
        self._stream.synchronize()
        return buffer

    def fill(self, buffer: Any, size: int, byte: int) -> None:
        """Set the first `size` bytes, in stream order."""
        buffer.data.memset_async(byte, size, self._stream)

    def launch(
        self, kernel: Any, grid: tuple[int, int, int], block: int, shared: int, arguments: list[Any]
    ) -> None:
        """Enqueue one launch: a buffer is passed as its pointer, a NumPy scalar by value."""
        kernel(grid, (block, 1, 1), tuple(arguments), shared_mem=shared, stream=self._stream)

    def stream_pointer(self) -> int:
        """The CUDA stream that everything runs on, for a library that shares it."""
        return int(self._stream.ptr)

    def record(self) -> Any:
        """An event at this point of the stream."""
        event = self._cupy.cuda.Event()
        event.record(self._stream)
        return event

    def seconds_between(self, start: Any, stop: Any) -> float:
        """Device time from one event to the other, both complete."""
        return float(self._cupy.cuda.get_elapsed_time(start, stop)) / 1e3

    def synchronize(self) -> None:
        """Wait for the stream; a fault of an earlier launch is raised here."""
        self._stream.synchronize()

    def download(self, buffer: Any, shape: tuple[int, ...], dtype: str, offset: int = 0) -> Array:
        """A host array of `shape` from `offset` bytes into a buffer."""
        view = self._cupy.ndarray(shape, dtype=np.dtype(dtype), memptr=buffer.data + offset)
        host: Array = view.get(stream=self._stream)
        return host

    def scan(self, buffer: Any, elements: int, dtype: str) -> Scan:
        """Scan the first `elements` of a buffer on the device; on the host where CuPy cannot compile here."""
        if self._scan_works:
            try:
                return self._scan_on_device(buffer, elements, dtype)
            except Exception as error:
                if is_sticky(cuda_status(error) or 1):
                    raise
                self._scan_works = False
        return scan_array(self.download(buffer, (elements,), NUMPY_TYPE[dtype]), dtype)

    def _scan_on_device(self, buffer: Any, elements: int, dtype: str) -> Scan:
        if self._scan_module is None:
            self._scan_module = self._cupy.RawModule(code=KERNELS)
        kernel = self._scan_module.get_function(f"scan_{WORD_BYTES[dtype]}")
        counters = self.upload(np.array([0] * (COUNTERS - 1) + [2**64 - 1], dtype=np.uint64))
        grid = min(-(-elements // SCAN_THREADS), 16 * self.facts.sms)
        arguments = [buffer, np.uint64(elements), np.uint32(INFINITY[dtype]), counters]
        self.launch(kernel, (grid, 1, 1), SCAN_THREADS, 0, arguments)
        unwritten, nan, inf, first = self.download(counters, (COUNTERS,), "uint64")
        return as_scan(elements, (int(unwritten), int(nan), int(inf), int(first)))
