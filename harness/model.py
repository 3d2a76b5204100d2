"""The words of the suite as frozen values: switches, cases, studies, and what each stage hands to the next.

Nothing here computes, imports a tool or knows a study. Shapes, units and meanings are said where a field is
declared."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from harness.errors import StudyError
from harness.values import Level as Level
from harness.values import Values as Values

Array = NDArray[Any]

STATUSES = (
    "ok",
    "skipped",
    "not_supported",
    "render_failed",
    "compile_failed",
    "contract_broken",
    "wrong",
    "launch_failed",
    "hung",
    "noisy",
    "below_floor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One thing that can be varied. A *part* can be stripped; an *axis* removes nothing.

    Args:
        name: snake_case; the same word in the template (upper case in CUDA), the record and the tables.
        levels: every level, the kept (baseline) level first for a part.
        baseline: the level that `full` has.
        label: the column heading.
        meaning: one line for `list` and for the published legend.
        strips: levels that remove something, least removed first; empty for an axis.
    """

    name: str
    levels: tuple[Level, ...]
    baseline: Level
    label: str
    meaning: str
    strips: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        for level in (self.baseline, *self.strips):
            if level not in self.levels:
                raise StudyError(f"switch {self.name}: {level!r} is not among its levels {self.levels}")
        if self.baseline in self.strips:
            raise StudyError(f"switch {self.name}: the baseline {self.baseline!r} cannot strip")

    @property
    def is_part(self) -> bool:
        """Whether some level strips it; otherwise it is an axis."""
        return bool(self.strips)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel to build and time: levels + configuration + problem.

    `set_name` is the study's set that asks for it (full, strips, adds, sweep, ceiling).
    `skip` says why the combination cannot exist; such a case is a row, never built.
    """

    study: str
    levels: Values
    configuration: Values
    problem: str
    name: str
    set_name: str
    skip: str | None = None

    def __str__(self) -> str:
        return f"{self.study}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What sizing a problem must know of the target: SM count and resident CTAs per SM (from full's
    build)."""

    sms: int
    ctas_per_sm: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A by-value kernel argument. `kind` is the C type: i32, u32, f32, u64 (also a null pointer)."""

    kind: Literal["i32", "u32", "u64", "f32"]
    value: int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Grid and block in CTAs and threads; dynamic shared memory in bytes; arguments in the kernel's order.

    A str names an input, an output, or `stamps` (uint64 [CTAs, 5]: smid, clock64 start, clock64 end,
    globaltimer start, globaltimer end; clocks in SM cycles, globaltimer in ns).
    """

    grid: tuple[int, int, int]
    block: int
    shared_bytes: int
    arguments: tuple[str | Scalar, ...]

    @property
    def ctas(self) -> int:
        """CTAs in the grid."""
        return self.grid[0] * self.grid[1] * self.grid[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What one launch has to do, over the whole grid and over one CTA's main loop.

    Args:
        flops: useful FLOPs of the launch (1 FMA = 2); masked or padded work is not counted.
        mma_per_cta: warp-level MMA instructions one CTA issues in its main loop.
        flops_per_mma: FLOPs of one warp-level MMA (4096 for m16n8k16).
        iterations: main-loop trips per CTA.
        gmem_bytes: bytes the CTAs read from global memory (L2 or DRAM) in all.
        unique_bytes: distinct bytes among them plus the bytes written: the working set.
        unit: what `flops` counts: FLOP, or for a study of another instruction what its pipe is rated in.
    """

    flops: int
    mma_per_cta: int
    flops_per_mma: int
    iterations: int
    gmem_bytes: int
    unique_bytes: int
    unit: str = "FLOP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """What the SASS of the main loop must show, per iteration.

    Args:
        mma: the exact opcode of the tensor instruction, e.g. "HMMA.16816.F32"; where a study counts another
            instruction, its opcode prefix, e.g. "MUFU.EX2".
        mma_count: how many of them one iteration holds.
        counts: opcode prefix (dot-separated components) -> exact number, for parts that are kept.
        present: opcode prefixes of kept parts whose number the compiler may choose.
        absent: opcode prefixes of what was stripped.
        spill_free: whether a register spill breaks the contract (full's default configuration).
        path: mma.sync, wgmma or tcgen05.
        input, acc: the types that choose the peak (fp16, bf16; f32, f16).
    """

    mma: str
    mma_count: int
    counts: Mapping[str, int]
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    spill_free: bool = False
    path: str = "mma.sync"
    input: str = "fp16"
    acc: str = "f32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A reference for one output: float64 values and the error each may have (0: equal bit for bit).

    `values` and `bound` have the output's shape, with the first axis cut to the slices asked for.
    """

    values: Array
    bound: Array | float


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """Shape and element type of an output. `bfloat16` arrays travel as uint16 bits in NumPy."""

    shape: tuple[int, ...]
    dtype: Literal["float16", "bfloat16", "float32"]


Inputs = Mapping[str, Array]


def _as_it_comes(case: Case) -> int | None:
    return None


def _itself(case: Case) -> Hashable:
    return case.name


def _no_peers(case: Case) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """One question, and everything the harness must be told to answer it.

    The callables are pure. `sizes` are a problem's numbers (batch, heads, seqlen, trips, ...). Arrays have
    the slice axis (batch x head, or CTA) first, so that a few slices can be checked at the timed size.

    Args:
        name: also the kernel's extern "C" name.
        question: the study module's docstring: question and expectation.
        template: file name under templates/.
        switches: in the order of the tables' columns.
        problems: names, the default first.
        configurations: levels -> declared configurations, the configuration of full first, at most four.
        sets: set name -> levels of its cases, in the order of the tables; "full" comes first.
        constraint: (levels, configuration) -> why it cannot exist, or None.
        full_of: levels -> levels of the full case it is compared with (same axes, nothing stripped).
        sizes: (case, where) -> the sizes of case.problem on that target.
        check_sizes: case -> {"small": sizes, "awkward": sizes}.
        fill: (case, wanted fill) -> the fill the case is timed with (some strips are exact on integers only).
        inputs: (case, sizes, fill, seed) -> {name: array}; 16-bit floats as float16 or uint16 (bf16 bits).
        outputs: (case, sizes) -> {name: OutputSpec}.
        reference: (case, sizes, inputs, slices) -> {output: Expected}; slices index axis 0, None means all.
        reference_key: case -> what its reference depends on besides sizes and data; cases that compute the
            same function share one. By default the case itself.
        launch: (case, sizes) -> Launch.
        work: (case, sizes) -> Work.
        contract: case -> Contract.
        legend: level meanings beyond the switches' own lines: what each strip computes.
        is_ceiling: whether its best case is the most that a path and its types give on a GPU.
        parallel: axes whose levels add independent work to a warp or an SM.
        residency: case -> CTAs per SM that it is held at by dynamic shared memory, where its study varies
            them; None where full decides.
        peers: full case -> {name: "module:function"}, what a user would run instead, timed in the same
            rounds where its package is installed; the function takes (case, sizes, inputs, stream) with the
            inputs as device buffers of bytes, and returns what enqueues one launch on that CUDA stream.
    """

    name: str
    question: str
    template: str
    switches: tuple[Switch, ...]
    problems: tuple[str, ...]
    configurations: Callable[[Values], tuple[Values, ...]]
    sets: Callable[[], Mapping[str, tuple[Values, ...]]]
    constraint: Callable[[Values, Values], str | None]
    full_of: Callable[[Values], Values]
    sizes: Callable[[Case, Where], Values]
    check_sizes: Callable[[Case], Mapping[str, Values]]
    fill: Callable[[Case, str], str]
    inputs: Callable[[Case, Values, str, int], Inputs]
    outputs: Callable[[Case, Values], Mapping[str, OutputSpec]]
    reference: Callable[[Case, Values, Inputs, tuple[int, ...] | None], Mapping[str, Expected]]
    launch: Callable[[Case, Values], Launch]
    work: Callable[[Case, Values], Work]
    contract: Callable[[Case], Contract]
    legend: Mapping[str, str] = field(default_factory=dict)
    is_ceiling: bool = False
    parallel: tuple[str, ...] = ()
    peers: Callable[[Case], Mapping[str, str]] = field(default=_no_peers)
    reference_key: Callable[[Case], Hashable] = field(default=_itself)
    residency: Callable[[Case], int | None] = field(default=_as_it_comes)

    def switch(self, name: str) -> Switch:
        """The switch called `name`; StudyError with the valid names."""
        for switch in self.switches:
            if switch.name == name:
                return switch
        raise StudyError(
            f"study {self.name} has no switch {name!r}; it has {', '.join(s.name for s in self.switches)}"
        )

    @property
    def baseline(self) -> Values:
        """Every switch at its baseline: the levels of full."""
        return Values({switch.name: switch.baseline for switch in self.switches})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A rendered kernel. `line_map[i]` is (template, line) of line i+1; `digest` covers text and included
    headers."""

    case: Case
    entry: str
    text: str
    line_map: tuple[tuple[str, int], ...]
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What the disassembler and the compiler's log said of one cubin; per thread where not said otherwise.

    Args:
        registers: registers per thread.
        shared_bytes: static shared memory per CTA.
        local_bytes: frame (local memory) per thread, in bytes.
        spill_stores: STL instructions in the whole kernel; `spill_loads` LDL.
        loop: opcode -> number in the main loop; empty when no loop holds an MMA.
        loop_instructions: instructions in the main loop, NOPs left out.
        kernel_mma: opcode -> number of tensor instructions in the whole kernel.
        code_hash: of the kernel's instruction text: equal hashes are the same code.
        loop_minimum: as `loop`, but only what every trip runs, whichever way its branches go.
    """

    registers: int
    shared_bytes: int
    local_bytes: int
    spill_stores: int
    spill_loads: int
    loop: Mapping[str, int]
    loop_instructions: int
    kernel_mma: Mapping[str, int]
    code_hash: str
    loop_minimum: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """What the compiler made of a case for an architecture, inspected.

    `dynamic_bytes` is the shared memory asked for at launch, after padding to full's residency.
    `ctas_per_sm` is what then fits (offline arithmetic), `natural_ctas` what would fit unpadded.
    `compile_seconds` is what the compile took, also when its result came from the cache.
    """

    case: Case
    arch: str
    source_digest: str
    source_path: str
    cubin_path: str
    cubin_sha256: str
    toolkit: str
    options: tuple[str, ...]
    log: str
    cached: bool
    inspection: Inspection
    broken: tuple[str, ...] = ()
    dynamic_bytes: int = 0
    natural_ctas: int | None = None
    ctas_per_sm: int | None = None
    notes: tuple[str, ...] = ()
    compile_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Output against reference at one size: the largest error over its bound (<= 1 passes)."""

    size: str
    sizes: Values
    passed: bool
    worst: float
    exact: bool
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One timed launch. Times in seconds, cycles in SM clocks; None where it could not be had.

    Args:
        round: the interleaved round it belongs to.
        seconds: between the CUDA events around the launch.
        busy_cycles: mean over SMs of (last end - first start) of the CTAs that SM ran.
        wall_cycles: the longest such span.
        flop_clk_sm: mean over SMs of the work that SM did over its span.
        sm_hz: SM clock run: clock64 over globaltimer.
        spread: (max - min)/mean of the per-SM FLOP/clk.
        gap: the widest step between two neighbours of these values in ascending order, over their mean.
    """

    round: int
    seconds: float
    busy_cycles: float
    wall_cycles: float
    flop_clk_sm: float
    sm_hz: float | None
    spread: float
    gap: float
