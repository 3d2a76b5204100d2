"""What the worker process does on its GPU: prepare, verify, time, warm up. The parent's side is device.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from harness.errors import AblationError, LaunchError
from harness.gpu import stamps
from harness.gpu.commands import Entry, Loaded, RawSample, Run, Verified, WarmUp, resolve
from harness.gpu.facts import GpuFacts
from harness.gpu.faults import as_fault
from harness.gpu.launch import STAMPS, Buffers, arguments, flush_bytes, output_bytes, stamps_bytes, timed
from harness.gpu.scan import NUMPY_TYPE, POISON_BYTE, WORD_BYTES
from harness.model import Array, OutputSpec

DEVICE_SHARE = 0.5
NO_RESOURCES = Loaded(
    registers=0,
    local_bytes=0,
    shared_bytes=0,
    dynamic_bytes=0,
    max_threads=0,
    binary_version=0,
    ctas_per_sm=1,
)
T = TypeVar("T")

PREPARE_SECONDS = 300.0
# Making and uploading a run's inputs, before the watchdog of the launch itself begins.
INPUT_SECONDS = 300.0
WINDOW_SECONDS = 0.1
SETTLED_WINDOWS = 4
SETTLED_RANGE = 0.005


@dataclass(slots=True)
class Held:
    """A loaded entry."""

    entry: Entry
    kernel: Any
    loaded: Loaded


class DeviceServer:
    """Commands of the GPU worker. `limit(seconds)` tells the parent how long what follows may take."""

    def __init__(
        self, limit: Callable[[float], None], facts: GpuFacts, watchdog_seconds: float, *, cuda: Any = None
    ) -> None:
        if cuda is None:
            from harness.gpu.cuda import Cuda

            cuda = Cuda(facts)
        self._limit = limit
        self._facts = facts
        self._watchdog = watchdog_seconds
        self._cuda = cuda
        self._buffers = Buffers(cuda, int(DEVICE_SHARE * cuda.free_bytes()))
        self._held: dict[str, Held] = {}
        self._cold_next = False

    def prepare(self, entry: Entry) -> Loaded:
        """Load an entry's kernel. Its inputs are made when it first runs."""
        self._limit(PREPARE_SECONDS)
        loaded: Loaded
        kernel, loaded = self._peer(entry) if entry.peer else self._cuda.load(entry)
        self._held[entry.id] = Held(entry, kernel, loaded)
        return loaded

    def _peer(self, entry: Entry) -> tuple[Any, Loaded]:
        """What enqueues one launch of a peer. It has no stamps, and its resources are its own business."""

        def make() -> Any:
            assert entry.peer is not None
            inputs = self._buffers.inputs(entry.run)
            function = resolve(entry.peer.function)
            return function(entry.peer.case, entry.peer.sizes, inputs, self._cuda.stream_pointer())

        enqueue = self._guarded(f"{entry.id}: preparing", make)
        self._guarded(f"{entry.id}: first launch", enqueue)
        return enqueue, NO_RESOURCES

    def verify(self, entry_id: str, run: Run, slices: Sequence[int] | None) -> Verified:
        """Run once on poisoned outputs; slices along axis 0 (None: all) and a scan of each whole output."""
        held = self._entry(entry_id)
        launch = self._bound(held, run)
        return self._guarded(f"{entry_id}: verifying", lambda: self._verified(run, launch, slices))

    def time(self, entry_id: str, repeats: int, cold: bool) -> RawSample:
        """One sample: `repeats` launches between events, warm or each cold, and the stamps of the last."""
        held = self._entry(entry_id)
        cold, self._cold_next = cold or self._cold_next, False
        launch = self._bound(held, held.entry.run)
        return self._guarded(
            f"{entry_id}: timing", lambda: self._sampled(held, launch, max(1, repeats), cold)
        )

    def launch(self, entry_id: str) -> None:
        """The timed launch, once, and nobody looks at the time."""
        held = self._entry(entry_id)
        launch = self._bound(held, held.entry.run)

        def go() -> None:
            launch()
            self._cuda.synchronize()

        self._guarded(f"{entry_id}: launching", go)

    def flush(self) -> None:
        """Let the next sample start cold: the flush itself happens right before its start event."""
        self._cold_next = True

    def warm_up(self, entry_ids: Sequence[str], seconds: float) -> WarmUp:
        """Launch the entries in turn until the SM clock has settled, at most for about `seconds`."""
        clocks: list[float] = []
        begin = time.monotonic()
        while entry_ids and time.monotonic() - begin < seconds:
            window = [self._window(entry_id) for entry_id in entry_ids]
            known = [hz for hz in window if hz]
            if not known:
                continue
            clocks.append(float(np.median(known)))
            if settled(clocks):
                break
        return WarmUp(seconds=time.monotonic() - begin, sm_hz=tuple(clocks), settled=settled(clocks))

    def _window(self, entry_id: str) -> float | None:
        first = self.time(entry_id, 1, False)
        repeats = int(min(1000, max(1, WINDOW_SECONDS / max(first.seconds, 1e-6))))
        return self.time(entry_id, repeats, False).sm_hz

    def _entry(self, entry_id: str) -> Held:
        if entry_id not in self._held:
            raise LaunchError(f"{entry_id}: not prepared in this worker")
        return self._held[entry_id]

    def _bound(self, held: Held, run: Run) -> Callable[[], None]:
        """What enqueues one launch of `run`, its buffers ready; the launch's own watchdog begins here."""
        if held.entry.peer:
            self._limit(self._watchdog)
            enqueue: Callable[[], None] = held.kernel
            return enqueue
        self._limit(INPUT_SECONDS)
        values = self._guarded(f"{held.entry.id}: making the inputs", lambda: arguments(run, self._buffers))
        shared = max(held.loaded.dynamic_bytes, run.launch.shared_bytes)
        self._limit(self._watchdog)
        return lambda: self._cuda.launch(held.kernel, run.launch.grid, run.launch.block, shared, values)

    def _guarded(self, doing: str, work: Callable[[], T]) -> T:
        """Do the work; what goes wrong becomes a typed error, sticky when the context is lost."""
        try:
            return work()
        except AblationError:
            raise
        except Exception as error:
            raise as_fault(error, doing) from error

    def _verified(self, run: Run, launch: Callable[[], None], slices: Sequence[int] | None) -> Verified:
        buffers = {
            name: self._buffers.scratch(name, output_bytes(spec)) for name, spec in run.outputs.items()
        }
        for name, spec in run.outputs.items():
            self._cuda.fill(buffers[name], output_bytes(spec), POISON_BYTE)
        launch()
        self._cuda.synchronize()
        outputs, scans = {}, {}
        for name, spec in run.outputs.items():
            elements = output_bytes(spec) // WORD_BYTES[spec.dtype]
            scans[name] = self._cuda.scan(buffers[name], elements, spec.dtype)
            outputs[name] = self._slices(buffers[name], spec, slices)
        return Verified(outputs=outputs, scans=scans)

    def _sampled(self, held: Held, launch: Callable[[], None], repeats: int, cold: bool) -> RawSample:
        stamped = STAMPS in held.entry.run.launch.arguments and not held.entry.peer
        size = stamps_bytes(held.entry.run.launch)
        marks = self._buffers.scratch(STAMPS, size) if stamped else None

        def poison() -> None:
            if stamped:
                self._cuda.fill(marks, size, POISON_BYTE)

        flush = self._flush_once() if cold else None
        seconds = timed(self._cuda, launch, repeats, before=poison, flush=flush)
        found = self._reduced(held.entry, marks) if stamped else None
        return raw_sample(held, self._facts.sms, seconds, repeats, found, cold)

    def _flush_once(self) -> Callable[[], None]:
        size = flush_bytes(self._facts.l2_bytes)
        buffer = self._buffers.scratch("l2 flush", size)
        return lambda: self._cuda.fill(buffer, size, 0)

    def _reduced(self, entry: Entry, marks: Any) -> stamps.Reduction:
        ctas = entry.run.launch.ctas
        rows = self._cuda.download(marks, (ctas, stamps.COLUMNS), "uint64")
        work = np.asarray(entry.cta_flops) if entry.cta_flops else entry.flops / ctas
        try:
            return stamps.reduce(rows, work, sms=self._facts.sms)
        except LaunchError as error:
            raise LaunchError(f"{entry.id}: {error.message}") from error

    def _slices(self, buffer: Any, spec: OutputSpec, slices: Sequence[int] | None) -> Array:
        dtype = NUMPY_TYPE[spec.dtype]
        if slices is None:
            whole: Array = self._cuda.download(buffer, spec.shape, dtype)
            return whole
        step = output_bytes(spec) // spec.shape[0]
        return np.stack([self._cuda.download(buffer, spec.shape[1:], dtype, i * step) for i in slices])


def raw_sample(
    held: Held, sms: int, seconds: float, launches: int, found: stamps.Reduction | None, cold: bool
) -> RawSample:
    """The sample of one timing; cycle fields None without stamps."""
    return RawSample(
        seconds=seconds,
        launches=launches,
        busy_cycles=found.busy_cycles if found else None,
        wall_cycles=found.wall_cycles if found else None,
        flop_clk_sm=found.flop_clk_sm if found else None,
        wall_flop_clk_sm=found.wall_flop_clk_sm if found else None,
        sm_hz=found.sm_hz if found else None,
        spread=found.spread if found else None,
        gap=found.gap if found else None,
        sms_used=found.sms_used if found else None,
        waves=held.entry.run.launch.ctas / (sms * held.loaded.ctas_per_sm),
        cold=cold,
    )


def settled(clocks: Sequence[float]) -> bool:
    """Whether the last few windows agree within half a percent."""
    last = clocks[-SETTLED_WINDOWS:]
    return len(last) == SETTLED_WINDOWS and max(last) - min(last) <= SETTLED_RANGE * max(last)
