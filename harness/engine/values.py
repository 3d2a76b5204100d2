"""What the engine asks of a device, what it is told to do, and what it hands back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from harness.model import Sample

Exit = Literal["narrow", "no longer shrinking", "out of time", "fixed rounds"]

# The clock is held back for the board's safety. A power cap is none of these: it moves no cycles.
THROTTLED = frozenset({"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"})


class Timing(Protocol):
    """One timed sample: seconds per launch, and the summary of its last launch's stamps (None: not known)."""

    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def busy_cycles(self) -> float | None: ...  # noqa: D102
    @property
    def wall_cycles(self) -> float | None: ...  # noqa: D102
    @property
    def flop_clk_sm(self) -> float | None: ...  # noqa: D102
    @property
    def wall_flop_clk_sm(self) -> float | None: ...  # noqa: D102
    @property
    def sm_hz(self) -> float | None: ...  # noqa: D102
    @property
    def spread(self) -> float | None: ...  # noqa: D102
    @property
    def gap(self) -> float | None: ...  # noqa: D102


class State(Protocol):
    """One look at the GPU; None where nobody can say. `throttle` is () when nothing holds the clock back."""

    @property
    def watts(self) -> float | None: ...  # noqa: D102
    @property
    def temperature_c(self) -> float | None: ...  # noqa: D102
    @property
    def throttle(self) -> tuple[str, ...] | None: ...  # noqa: D102
    @property
    def reported_hz(self) -> float | None: ...  # noqa: D102


class Warmth(Protocol):
    """How a warm-up went."""

    @property
    def seconds(self) -> float: ...  # noqa: D102
    @property
    def settled(self) -> bool: ...  # noqa: D102


class Device(Protocol):
    """A GPU with the entries prepared, inputs included: nothing is filled or allocated while it is timed.

    A LaunchError or HungError of one entry must leave the device ready for the others.
    """

    def time(self, entry_id: str, repeats: int = 1, *, cold: bool = False) -> Timing:
        """One sample of `repeats` launches, led by an untimed one; cold: L2 flushed right before each."""
        ...

    def warm_up(self, entry_ids: Sequence[str] | None = None, seconds: float = 5.0) -> Warmth:
        """Run these entries until the SM clock settles, at most for `seconds`."""
        ...

    def state(self) -> State:
        """Power, temperature, throttle reasons and reported clock now; unknown is None, never an error."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NoState:
    """Nothing is known of the GPU's state."""

    watts: float | None = None
    temperature_c: float | None = None
    throttle: tuple[str, ...] | None = None
    reported_hz: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One build of one case, prepared on the device under its id.

    Args:
        full: id of the entry it is compared with, for the width that ends the run; None: by itself.
        launches: per sample; None lets the engine size the sample.
        cold: L2 is flushed before each launch.
        floor_seconds, floor_cycles: what no launch can stay under (cycles: the mean over the SMs).
        smaller: (id of the same kernel prepared with less work, how many times less): the time must grow.
        paces: whether the run goes on until its interval is narrow; not for what has no cycles.
    """

    id: str
    full: str | None = None
    launches: int | None = None
    cold: bool = False
    floor_seconds: float = 0.0
    floor_cycles: float = 0.0
    smaller: tuple[str, float] | None = None
    paces: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How to measure. Times in seconds.

    Args:
        seed: of the order of every round; recorded.
        width: target width of each effect's interval in cycles, as a fraction.
        min_rounds: before the run may end by itself.
        seconds: for the rounds; the one that is under way is finished.
        rounds: take exactly so many, if given.
        warm_up_seconds: at most.
        sample_seconds: shortest and longest sample that whole launches are sized to.
        tick_seconds: of the event clock; a sample lasts at least 1000.
        retries: of a bad sample within its round, and of throttled rounds in a row.
        pause_seconds: before the first retry of a throttled round; doubles each time.
        throttled: reasons that make a round worthless.
    """

    seed: int = 0
    width: float = 0.005
    min_rounds: int = 10
    seconds: float = 30.0
    rounds: int | None = None
    warm_up_seconds: float = 5.0
    sample_seconds: tuple[float, float] = (0.3e-3, 5e-3)
    tick_seconds: float = 0.5e-6
    retries: int = 4
    pause_seconds: float = 0.2
    throttled: frozenset[str] = THROTTLED

    @property
    def least(self) -> int:
        """Samples without which a row is no result."""
        return min(3, self.rounds or 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What became of one entry. Samples only with status "ok"; a reason with every other.

    Args:
        states: of the round of each sample.
        wall_flop_clk_sm: per sample, None where not known.
        launches: per sample.
        first_seconds: host time of the first, untimed launch, module load included.
        rejected: samples thrown away.
        width: of the effect's interval at the end, as a fraction; None when unknown.
        notes: what the row should say of itself.
        exit: why no more samples were taken of it; "narrow" also where others went on.
    """

    id: str
    status: str
    reason: str = ""
    samples: tuple[Sample, ...] = ()
    states: tuple[State, ...] = ()
    wall_flop_clk_sm: tuple[float | None, ...] = ()
    launches: int = 0
    first_seconds: float | None = None
    rejected: int = 0
    width: float | None = None
    notes: tuple[str, ...] = ()
    exit: Exit | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A measurement: results by entry id, in the order given, and why it ended.

    `partial` says that it was interrupted: `exit` is then None; `missing` names entries without a result.
    """

    results: Mapping[str, Measured]
    exit: Exit | None
    rounds: int
    seed: int
    seconds: float
    settled: bool
    partial: bool = False
    missing: tuple[str, ...] = ()


def columns(measured: Measured) -> dict[str, list[Any]] | None:
    """The "samples" of a record: one list per quantity, None where not known; None without samples."""
    if not measured.samples:
        return None
    found: dict[str, list[Any]] = {"round": [sample.round for sample in measured.samples]}
    for name in ("seconds", "busy_cycles", "wall_cycles", "flop_clk_sm", "sm_hz", "spread", "gap"):
        found[name] = [finite(getattr(sample, name)) for sample in measured.samples]
    found["wall_flop_clk_sm"] = list(measured.wall_flop_clk_sm)
    for name in ("watts", "temperature_c", "reported_hz"):
        found[name] = [getattr(state, name) for state in measured.states]
    found["throttle"] = [None if s.throttle is None else "+".join(s.throttle) for s in measured.states]
    found["launches"] = [measured.launches] * len(measured.samples)
    return found


def finite(value: float | None) -> float | None:
    """The value, or None for nan and inf."""
    return value if value is not None and math.isfinite(value) else None
