"""What travels between the pipeline and the GPU worker: frozen, picklable, small.

Input arrays never travel. A provider does: the worker calls it, so hundreds of megabytes are made where they
are used.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.key import digest
from harness.model import Array, Build, Case, Inputs, Launch, OutputSpec, Values, Work


class Provider(Protocol):
    """Makes the input arrays of one run, in the worker. Equal keys promise equal arrays."""

    @property
    def key(self) -> Hashable:
        """What the arrays depend on."""

    def arrays(self) -> Inputs:
        """The arrays by name, C-contiguous."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyInputs:
    """Inputs made by a study's own `inputs`, from the seed, in the worker.

    Arrays are kept on the device by identity: a study that returns the *same* array object for cases that
    share it (by a cache on what the array depends on) is generated and uploaded once for all of them.

    Args:
        studies: "module:function" that returns {name: Study}.
    """

    study: str
    case: Case
    sizes: Values
    fill: str
    seed: int
    studies: str = "ablations:load"

    @property
    def key(self) -> Hashable:
        """The whole value: every field decides what the arrays hold."""
        return self

    def arrays(self) -> Inputs:
        """Call the study; raises what the study raises."""
        study = resolve(self.studies)()[self.study]
        inputs: Inputs = study.inputs(self.case, self.sizes, self.fill, self.seed)
        return inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedInputs:
    """Arrays that travel as they are: for small ones only."""

    values: Mapping[str, Array]

    @property
    def key(self) -> Hashable:
        """A digest of names, types, shapes and bytes."""
        parts: list[str | bytes] = []
        for name, array in self.values.items():
            parts += [name, str(array.dtype), str(array.shape), array.tobytes()]
        return digest(*parts)

    def arrays(self) -> Inputs:
        """The arrays given."""
        return self.values


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One launch with its data. Outputs are allocated, and poisoned with 0xFF bytes before verifying."""

    launch: Launch
    inputs: Provider
    outputs: Mapping[str, OutputSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Somebody else's implementation: `function` ("module:name") is called as Study.peers says."""

    function: str
    case: Case
    sizes: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kernel to load and the run it is timed with.

    Args:
        id: unique in the session, e.g. case name and perturbation.
        kernel: its extern "C" name.
        dynamic_bytes: shared memory asked for at every launch, after padding; a launch that names more gets
            more.
        flops: useful FLOPs of the timed launch; 0 when nobody asks for rates.
        cta_flops: FLOPs of each CTA where they differ (a causal mask); else the launch's are shared equally.
        peer: what to time in place of the kernel, on the run's inputs; then the cubin's fields are empty.
    """

    id: str
    cubin_path: str
    kernel: str
    dynamic_bytes: int
    arch: str
    toolkit: str
    run: Run
    flops: int = 0
    cta_flops: tuple[float, ...] | None = None
    peer: Peer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What the driver says of a loaded kernel; local bytes per thread, shared and dynamic bytes per CTA."""

    registers: int
    local_bytes: int
    shared_bytes: int
    dynamic_bytes: int
    max_threads: int
    binary_version: int
    ctas_per_sm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """One output looked at whole: how many elements are NaN, infinite, or still poison (never written).

    Poison is not counted as NaN. `first_bad` is the flat index of the first unwritten or NaN element, or
    None.
    """

    elements: int
    unwritten: int
    nan: int
    inf: int
    first_bad: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """Outputs of one launch: the slices asked for along axis 0 (or all), and a scan of each whole output."""

    outputs: Mapping[str, Array]
    scans: Mapping[str, Scan]


@dataclass(frozen=True, slots=True, kw_only=True)
class RawSample:
    """One timed sample of one entry: event time per launch, and the stamps of its last launch.

    `busy_cycles` and the six after it are None for a kernel that takes no stamps; `sm_hz` also when the
    launch is too short for the globaltimer's tick. `waves` is CTAs over what the GPU holds at once. FLOP
    rates are FLOP/clk/SM.
    """

    seconds: float
    launches: int
    busy_cycles: float | None
    wall_cycles: float | None
    flop_clk_sm: float | None
    wall_flop_clk_sm: float | None
    sm_hz: float | None
    spread: float | None
    gap: float | None
    waves: float
    sms_used: int | None = None
    cold: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmUp:
    """How the warm-up went: seconds spent, SM clock of each window, whether it had settled at the end."""

    seconds: float
    sm_hz: tuple[float, ...] = field(default=())
    settled: bool = False


def make_entry(entry_id: str, build: Build, kernel: str, run: Run, work: Work | None = None) -> Entry:
    """The entry of a build: its cubin, its padded shared memory, and the run it is timed with."""
    return Entry(
        id=entry_id,
        cubin_path=build.cubin_path,
        kernel=kernel,
        dynamic_bytes=build.dynamic_bytes,
        arch=build.arch,
        toolkit=build.toolkit,
        run=run,
        flops=work.flops if work else 0,
    )


def resolve(path: str) -> Any:
    """The object at "module:name"; ImportError or AttributeError when it is not there."""
    import importlib

    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)
