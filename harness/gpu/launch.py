"""Device buffers, kernel arguments, and the order of one timed sample: on a `Cuda` or anything like it."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from harness.errors import LaunchError
from harness.gpu.commands import Run
from harness.gpu.scan import WORD_BYTES
from harness.gpu.stamps import COLUMNS
from harness.model import Array, Inputs, Launch, OutputSpec, Scalar

STAMPS = "stamps"
SCALARS: Mapping[str, type[np.generic]] = {
    "i32": np.int32,
    "u32": np.uint32,
    "u64": np.uint64,
    "f32": np.float32,
}
MIB = 1 << 20
UNKNOWN_L2_FLUSH = 256 * MIB

T = TypeVar("T")


class Lru(Generic[T]):
    """Values by key up to a number of bytes; the longest unused go first, the newest always stays."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._items: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._total = 0

    def get(self, key: Hashable, make: Callable[[], tuple[T, int]]) -> T:
        """The value of `key`; made, with its size in bytes, when it is not there."""
        if key in self._items:
            self._items.move_to_end(key)
            return self._items[key][0]
        value, size = make()
        while self._items and self._total + size > self.budget:
            self._total -= self._items.popitem(last=False)[1][1]
        self._items[key] = (value, size)
        self._total += size
        return value

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self._total = 0


class Buffers:
    """Device memory shared by all entries of a worker.

    Inputs stay on the device by their provider's key; two keys that yield the same host array share its
    buffer. Host arrays are not kept. Outputs and stamps are scratch: one buffer per name, grown to the
    largest asked for, because only one launch at a time has results that anyone reads.
    """

    def __init__(self, cuda: Any, budget: int) -> None:
        self._cuda = cuda
        self._inputs: Lru[dict[str, Any]] = Lru(budget)
        # id of a host array -> the array and its buffer, as long as both live: an id alone may be given anew.
        self._shared: dict[int, tuple[weakref.ref[Array], weakref.ref[Any]]] = {}
        self._scratch: dict[str, tuple[Any, int]] = {}

    def inputs(self, run: Run) -> dict[str, Any]:
        """A device buffer for each input of a run; made by the provider when they are not there."""
        return dict(self._inputs.get(run.inputs.key, lambda: self._upload_all(run.inputs.arrays())))

    def scratch(self, name: str, size: int) -> Any:
        """The buffer called `name`, at least `size` bytes; its content is whatever was there."""
        buffer, have = self._scratch.get(name, (None, 0))
        if have < size:
            # Dropped first, so that the old and the new need not fit together.
            buffer = None
            self._scratch.pop(name, None)
            buffer = self._room(lambda: self._cuda.empty(size))
            self._scratch[name] = (buffer, size)
        return buffer

    def _upload_all(self, arrays: Inputs) -> tuple[dict[str, Any], int]:
        buffers, added = {}, 0
        for name, array in arrays.items():
            buffers[name], size = self._upload(array)
            added += size
        return buffers, added

    def _upload(self, array: Array) -> tuple[Any, int]:
        """The buffer of an array and how many bytes it added."""
        if id(array) in self._shared:
            known, shared = (reference() for reference in self._shared[id(array)])
            if known is array and shared is not None:
                return shared, 0
        buffer = self._room(lambda: self._cuda.upload(array))
        self._shared[id(array)] = (weakref.ref(array), weakref.ref(buffer))
        return buffer, array.nbytes

    def _room(self, allocate: Callable[[], Any]) -> Any:
        """Allocate; when the GPU is full, give the inputs up and try once more."""
        try:
            return allocate()
        except MemoryError:
            self._inputs.clear()
            self._cuda.trim()
            return allocate()


def output_bytes(spec: OutputSpec) -> int:
    """Bytes of an output."""
    return int(np.prod(spec.shape, dtype=np.int64)) * WORD_BYTES[spec.dtype]


def stamps_bytes(launch: Launch) -> int:
    """Bytes of the stamps of a launch."""
    return launch.ctas * COLUMNS * 8


def scalar_value(scalar: Scalar) -> np.generic:
    """The scalar as the NumPy type of its C type; LaunchError when the value does not fit."""
    try:
        value: np.generic = SCALARS[scalar.kind](scalar.value)
    except OverflowError:
        raise LaunchError(f"{scalar.value} does not fit an argument of type {scalar.kind}") from None
    if scalar.kind != "f32" and value != scalar.value:
        raise LaunchError(f"{scalar.value} does not fit an argument of type {scalar.kind}")
    return value


def arguments(run: Run, buffers: Buffers) -> list[Any]:
    """Kernel arguments in the launch's order; LaunchError for a name that is no input, output or stamps."""
    launch = run.launch
    named = buffers.inputs(run)
    for name, spec in run.outputs.items():
        named[name] = buffers.scratch(name, output_bytes(spec))
    if STAMPS in launch.arguments:
        named[STAMPS] = buffers.scratch(STAMPS, stamps_bytes(launch))
    unknown = [a for a in launch.arguments if isinstance(a, str) and a not in named]
    if unknown:
        raise LaunchError(f"the launch names {', '.join(unknown)}; there are {', '.join(named)}")
    return [scalar_value(a) if isinstance(a, Scalar) else named[a] for a in launch.arguments]


def flush_bytes(l2_bytes: int | None) -> int:
    """Bytes to write so that nothing of before stays in L2: twice its size, at least 64 MiB."""
    return max(2 * l2_bytes, 64 * MIB) if l2_bytes else UNKNOWN_L2_FLUSH


def timed(
    cuda: Any, launch: Callable[[], None], repeats: int, *, before: Callable[[], None], flush: Any
) -> float:
    """Seconds per launch over `repeats` launches, by events.

    An untimed launch of the same kernel goes first: it takes what only a first launch pays, and while it runs
    the host enqueues everything else, so that no event waits for Python. Cold (`flush` given): each launch is
    timed alone, with the flush as the last thing before its start event.
    """
    launch()
    before()
    pairs = []
    for _ in range(repeats if flush else 1):
        if flush:
            flush()
        start = cuda.record()
        for _ in range(1 if flush else repeats):
            launch()
        pairs.append((start, cuda.record()))
    cuda.synchronize()
    total: float = sum(cuda.seconds_between(start, stop) for start, stop in pairs)
    return total / repeats
