"""A GPU for tests: entries with a true time, noise, a clock of its own, and any fault one can script."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

SM_HZ = 1.8e9


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeTiming:
    """One timed sample, as the device gives it; seconds per launch."""

    seconds: float
    busy_cycles: float | None = None
    wall_cycles: float | None = None
    flop_clk_sm: float | None = None
    wall_flop_clk_sm: float | None = None
    sm_hz: float | None = None
    spread: float | None = None
    gap: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeState:
    """One look at the GPU; all unknown by default, as without NVML."""

    watts: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    reported_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeWarmth:
    """How the warm-up went."""

    seconds: float = 0.1
    settled: bool = True


# (timing the device would give, call number of this entry, launches) -> what it gives, or an error it raises
Fault = Callable[[FakeTiming, int, int], FakeTiming]


@dataclass(slots=True)
class FakeKernel:
    """One entry: true seconds per launch, what its first call costs more, relative noise, and its fault."""

    seconds: float = 1e-3
    first_seconds: float = 0.0
    noise: float = 0.0
    fault: Fault | None = None
    stamped: bool = True
    calls: int = 0


@dataclass(slots=True)
class FakeDevice:
    """Does what `harness.engine.Device` asks, on a clock of its own that `now` and `sleep` share.

    `trace` holds every call in order; `states` is called with the number of looks before.
    """

    kernels: dict[str, FakeKernel]
    states: Callable[[int], FakeState] = lambda look: FakeState()
    warmth: FakeWarmth = field(default_factory=FakeWarmth)
    warm_up_error: Exception | None = None
    drift: float = 0.0  # of the clock, as a fraction per second
    seed: int = 0
    clock: float = 0.0
    looks: int = 0
    trace: list[tuple[object, ...]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)

    def prepare(self, entry_id: str) -> None:
        """Allocate and fill."""
        self.trace.append(("fill", entry_id))

    def time(self, entry_id: str, repeats: int = 1, *, cold: bool = False) -> FakeTiming:
        """One sample; the fault of the entry has the last word."""
        kernel = self.kernels[entry_id]
        self.trace.append(("time", entry_id, repeats, cold))
        if cold:
            self.trace += [("flush",), ("event",), ("launch", entry_id), ("event",)] * repeats
        number, kernel.calls = kernel.calls, kernel.calls + 1
        rng = np.random.default_rng([self.seed, zlib.crc32(entry_id.encode()), number])
        cycles = kernel.seconds * SM_HZ * float(np.exp(rng.normal(0, kernel.noise)))
        hz = SM_HZ / (1 + self.drift * self.clock)
        timing = FakeTiming(
            seconds=cycles / hz,
            busy_cycles=cycles,
            wall_cycles=1.001 * cycles,
            flop_clk_sm=2000.0,
            wall_flop_clk_sm=1990.0,
            sm_hz=hz,
            spread=0.001,
            gap=0.0001,
        )
        if not kernel.stamped:
            timing = FakeTiming(seconds=timing.seconds)
        self.clock += timing.seconds * (repeats + 1) + (kernel.first_seconds if number == 0 else 0.0)
        return timing if kernel.fault is None else kernel.fault(timing, number, repeats)

    def warm_up(self, entry_ids: Sequence[str] | None = None, seconds: float = 5.0) -> FakeWarmth:
        """Pass some time."""
        self.trace.append(("warm_up", tuple(entry_ids or ()), seconds))
        if self.warm_up_error is not None:
            raise self.warm_up_error
        self.clock += self.warmth.seconds
        return self.warmth

    def state(self) -> FakeState:
        """What the script says."""
        self.trace.append(("state",))
        self.looks += 1
        return self.states(self.looks - 1)

    def now(self) -> float:
        """Seconds on the device's own clock."""
        return self.clock

    def sleep(self, seconds: float) -> None:
        """Let the clock run."""
        self.slept.append(seconds)
        self.clock += seconds


def always(**fields: Any) -> Fault:
    """A fault that replaces these fields of every sample."""
    return lambda timing, number, launches: replace(timing, **fields)


def total(*seconds: float) -> Fault:
    """Samples that last so long in all, whatever the launches: one after the other, the last for ever."""
    return lambda timing, number, launches: replace(
        timing, seconds=seconds[min(number, len(seconds) - 1)] / launches
    )


def raising(error: BaseException, *, at: int = 0) -> Fault:
    """A fault that raises from the `at`-th call on."""

    def fault(timing: FakeTiming, number: int, launches: int) -> FakeTiming:
        if number >= at:
            raise error
        return timing

    return fault
