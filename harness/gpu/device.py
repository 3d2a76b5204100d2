"""The GPU as the pipeline and the engine see it: entries in, samples out, faults as typed errors.

Device work happens in a worker process. Entries are remembered here, so that after a fault the next worker
gets each of them again when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from harness.errors import HungError, LaunchError
from harness.gpu.commands import Entry, Loaded, RawSample, Run, Verified, WarmUp
from harness.gpu.facts import GpuFacts, open_gpu_nvml
from harness.gpu.lock import BusyError, gpu_lock
from harness.gpu.nvml import GpuState, Nvml, busy_reason, wait_idle
from harness.gpu.worker import Worker

SERVER = "harness.gpu.server:DeviceServer"
WATCHDOG_SECONDS = 20.0
WARM_UP_SECONDS = 5.0
# The warm-up takes turns over a few entries; more would only make its windows longer.
WARM_UP_ENTRIES = 2


class GpuDevice:
    """One GPU. `start` comes early (it overlaps with compiling), `close` at the end; also a context manager.

    Args:
        watchdog_seconds: a launch, or all launches of one sample, that takes longer hangs.
        worker, nvml: stand-ins for tests.
    """

    def __init__(
        self,
        facts: GpuFacts,
        *,
        watchdog_seconds: float = WATCHDOG_SECONDS,
        worker: Worker | None = None,
        nvml: Nvml | None = None,
    ) -> None:
        self.facts = facts
        self._worker = worker or Worker(SERVER, (facts, watchdog_seconds), call_seconds=watchdog_seconds)
        self._nvml = nvml if nvml is not None else open_gpu_nvml(facts.index)
        self._entries: dict[str, Entry] = {}
        self._loaded: set[str] = set()
        # Entries whose kernel hung or broke a worker: timed again when asked for, never to warm up.
        self._faulty: set[str] = set()
        self._generation = 0
        self._before: tuple[int, ...] = ()

    def __enter__(self) -> GpuDevice:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Start the worker without waiting for it."""
        if self._worker.pid is None:
            self._before = self._nvml.load().processes or ()
        self._worker.start()

    def come_up(self) -> None:
        """Wait for the worker; LaunchError with its own words when it does not come up in several starts."""
        self._worker.come_up()

    def close(self) -> None:
        """End the worker."""
        self._worker.close()

    @contextmanager
    def reserved(self, *, allow_busy: bool = False) -> Iterator[None]:
        """Hold the GPU's lock; BusyError when another run holds it or, unless allowed, others use the GPU."""
        with gpu_lock(self.facts.lock_key):
            reason = None if allow_busy else wait_idle(self._busy_reason)
            if reason:
                raise BusyError(f"{reason}; wait, or say that a busy GPU is allowed")
            yield

    def prepare(self, entry: Entry) -> Loaded:
        """Load a kernel; its id can then be verified and timed. Raises LaunchError, NotSupportedError."""
        self._refresh()
        self._entries.pop(entry.id, None)
        loaded: Loaded = self._call("prepare", entry.id, entry)
        self._entries[entry.id] = entry
        self._loaded.add(entry.id)
        return loaded

    def verify(self, entry_id: str, run: Run | None = None, slices: Sequence[int] | None = None) -> Verified:
        """Run once (the timed run, or one of other sizes); the outputs whole, or slices along axis 0."""
        self._ready(entry_id)
        run = run or self._entries[entry_id].run
        wanted = None if slices is None else tuple(slices)
        verified: Verified = self._call("verify", entry_id, entry_id, run, wanted)
        return verified

    def time(self, entry_id: str, repeats: int = 1, *, cold: bool = False) -> RawSample:
        """One sample of `repeats` launches; `cold` flushes L2 before each of them."""
        self._ready(entry_id)
        sample: RawSample = self._call("time", entry_id, entry_id, repeats, cold)
        return sample

    def flush(self) -> None:
        """Make the next sample a cold one."""
        self._refresh()
        self._call("flush", "flush")

    def warm_up(self, entry_ids: Sequence[str] | None = None, seconds: float = WARM_UP_SECONDS) -> WarmUp:
        """Run entries (the first prepared that never failed) until the SM clock settles."""
        sound = [entry_id for entry_id in self._entries if entry_id not in self._faulty]
        ids = tuple(entry_ids if entry_ids is not None else sound[:WARM_UP_ENTRIES])
        for entry_id in ids:
            self._ready(entry_id)
        result: WarmUp = self._call("warm_up", "warming up", ids, seconds)
        return result

    def state(self) -> GpuState:
        """Power, temperature, throttle reasons and reported clock now."""
        return self._nvml.sample()

    def forget(self, entry_id: str) -> None:
        """Drop an entry: it will not be prepared again."""
        self._entries.pop(entry_id, None)
        self._loaded.discard(entry_id)

    def _busy_reason(self) -> str | None:
        own = {self._worker.pid, os.getpid()} if self._worker.pid else set()
        return busy_reason(self._nvml.load(), own, self._before)

    def _refresh(self) -> None:
        """A worker that is up; one that was started anew has nothing loaded."""
        generation = self._worker.ensure()
        if generation != self._generation:
            self._generation = generation
            self._loaded.clear()

    def _ready(self, entry_id: str) -> None:
        if entry_id not in self._entries:
            raise LaunchError(f"{entry_id}: was never prepared")
        self._refresh()
        if entry_id not in self._loaded:
            self._call("prepare", entry_id, self._entries[entry_id])
            self._loaded.add(entry_id)

    def _call(self, method: str, subject: str, *arguments: Any) -> Any:
        try:
            return self._worker.call(method, *arguments, doing=f"{subject} ({method})")
        except (LaunchError, HungError):
            self._faulty.add(subject)
            raise
