"""What does each pipe beside the tensor cores give at most?

One instruction over and over, on operands that do not wait for one another, 16 warps per CTA: ldmatrix.x4
from shared memory without bank conflicts, ex2, the conversion of two fp32 to an fp16 pair, FFMA, and cp.async
from data that stay in L2. Each is the ceiling of its own pipe, in the unit that the pipe is rated in: bytes,
or results of a thread (an FFMA is one), per clock and SM.

Expectation: 128 bytes per clock and SM for ldmatrix; 16 results for ex2; 128 for FFMA, except on compute
capability 8.0, where it is 64; 64 for the conversion on 9.0, which is an ALU instruction there. What L2 gives
an SM when all ask at once is published nowhere for sure: 32 to 64 bytes per clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from harness.model import (
    Array,
    Case,
    Contract,
    Expected,
    Inputs,
    Launch,
    OutputSpec,
    Scalar,
    Study,
    Switch,
    Values,
    Where,
    Work,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One of parts/pipe_*.cuh.

    `opcode` is the instruction's prefix in SASS, `steps` how many a warp issues in an iteration, `pipe` the
    pipe that it fills, `amount` what one of them does there, in `unit`; `clocks` about what one takes an SM.
    `words` are 32-bit inputs per thread (`table` in all), `values` outputs per thread.
    """

    opcode: str
    steps: int
    pipe: str
    amount: int
    unit: str
    clocks: float
    values: int = 8
    words: int = 0
    table: int = 0
    shared_rounds: int = 0


OPERATIONS = {
    "ldmatrix": Operation(
        opcode="LDSM", steps=16, pipe="shared_bytes", amount=512, unit="byte", clocks=4, values=4, table=4096
    ),
    "ex2": Operation(opcode="MUFU.EX2", steps=64, pipe="mufu", amount=32, unit="result", clocks=2, words=8),
    "pack": Operation(opcode="F2FP", steps=256, pipe="pack", amount=32, unit="result", clocks=0.5, words=16),
    "ffma": Operation(opcode="FFMA", steps=128, pipe="fma", amount=32, unit="result", clocks=0.25, words=10),
    "cp_async": Operation(
        opcode="LDGSTS",
        steps=4,
        pipe="l2_bytes",
        amount=512,
        unit="byte",
        clocks=10,
        values=4,
        table=1 << 19,
        shared_rounds=8,
    ),
}
WAVES = 4

SWITCHES = (
    Switch(
        name="operation",
        levels=tuple(OPERATIONS),
        baseline="ldmatrix",
        label="operation",
        meaning="the instruction that the loop repeats",
    ),
)

LEGEND = {
    "operation=ldmatrix": "sums of a table's words, modulo 2^32",
    "operation=ex2": "x <- 2^-x: 0.641..., the x that is its own image",
    "operation=pack": "pair <- (fp16 of the float with the pair's bits, fp16 of a constant)",
    "operation=ffma": "x <- a x + b with a = 1 or -1 and a small whole b: exact",
    "operation=cp_async": "sums of the words that were copied last, modulo 2^32",
}


def _operation(case: Case) -> Operation:
    return OPERATIONS[case.levels.word("operation")]


def _threads(case: Case) -> int:
    return 32 * case.configuration.number("warps")


def configurations(levels: Values) -> tuple[Values, ...]:
    """Four warps for each sub-partition."""
    return (Values(warps=16),)


def constraint(levels: Values, configuration: Values) -> str | None:
    """Every operation can be run alone."""
    return None


def full_of(levels: Values) -> Values:
    """Each is its own."""
    return levels


def sets() -> Mapping[str, tuple[Values, ...]]:
    """One case each."""
    return {"full": tuple(Values(operation=name) for name in OPERATIONS)}


def sizes(case: Case, where: Where) -> Values:
    """Whole waves; trips for about a million and a half cycles."""
    one = _operation(case)
    ctas = WAVES * where.ctas_per_sm
    cycles_per_trip = ctas * case.configuration.number("warps") * one.steps * one.clocks
    return Values(ctas=ctas * where.sms, trips=max(4, int(1_500_000 / cycles_per_trip)))


def check_sizes(case: Case) -> Mapping[str, Values]:
    """So few trips that one more or less is seen, where the operation ever shows it."""
    return {"small": Values(ctas=2, trips=2), "awkward": Values(ctas=3, trips=5)}


def fill(case: Case, wanted: str) -> str:
    """Starts in [0, 1) for ex2; the others are exact on whole numbers only."""
    return "uniform" if case.levels["operation"] == "ex2" else "integers"


def inputs(case: Case, problem_sizes: Values, filling: str, seed: int) -> Inputs:
    """data: 32-bit words; [words, threads] of floats, or a table of whole numbers."""
    one = _operation(case)
    shape = (one.words, _threads(case)) if one.words else (one.table,)
    return _inputs(case.levels.word("operation"), shape, seed)


@lru_cache(maxsize=16)
def _inputs(operation: str, shape: tuple[int, ...], seed: int) -> Inputs:
    generator = np.random.default_rng((seed, *shape))
    if operation == "ex2":
        data = generator.random(shape, np.float32)
    elif operation == "pack":
        data = generator.integers(-8, 9, shape).astype(np.float32) / np.float32(4)
    elif operation == "ffma":
        data = generator.integers(-8, 9, shape).astype(np.float32)
        data[8] = np.where(data[8] < 0, -1, 1)
    else:
        data = generator.integers(0, 2**32, shape, np.uint32).view(np.float32)
    return {"data": np.ascontiguousarray(data).view(np.uint32)}


def outputs(case: Case, problem_sizes: Values) -> Mapping[str, OutputSpec]:
    """d: [ctas, threads, values] float32."""
    shape = (problem_sizes.number("ctas"), _threads(case), _operation(case).values)
    return {"d": OutputSpec(shape=shape, dtype="float32")}


def reference(
    case: Case, problem_sizes: Values, arrays: Inputs, slices: tuple[int, ...] | None
) -> Mapping[str, Expected]:
    """The same steps in NumPy. Only ex2 has a bound: the error of one, 2^-22, and what is left of those
    before it; a step shrinks an error at least by half."""
    trips = problem_sizes.number("trips")
    ctas = np.arange(problem_sizes.number("ctas")) if slices is None else np.array(slices)
    data, threads = arrays["data"], _threads(case)
    operation = case.levels.word("operation")
    if operation == "cp_async":
        return {"d": Expected(values=_copied(data, ctas, trips, threads), bound=0.0)}
    values = {"ldmatrix": _table_sums, "ex2": _exponentials, "pack": _packed, "ffma": _multiplied}[operation](
        data, trips
    )
    values = np.broadcast_to(values, (threads, values.shape[-1]))
    shape = (len(ctas), *values.shape)
    bound = 1.5 * 2.0**-21 if operation == "ex2" else 0.0
    return {"d": Expected(values=np.broadcast_to(values, shape), bound=bound)}


def _rounded(words: NDArray[np.uint32]) -> Array:
    """Unsigned words as the nearest float32, in float64."""
    return words.astype(np.float32).astype(np.float64)


def _table_sums(data: Array, trips: int) -> Array:
    """Register i of lane l is word 32 i + l of each 128: every lane's own row of each of four matrices."""
    halves = data.reshape(2, -1, 4, 32).sum(axis=1, dtype=np.uint32)
    sums = halves[0] * np.uint32(-(-trips // 2)) + halves[1] * np.uint32(trips // 2)
    return np.tile(_rounded(sums).T, (len(data) // 256, 1))


def _exponentials(data: Array, trips: int) -> Array:
    x = data.view(np.float32).astype(np.float64)
    for _ in range(min(8 * trips, 200)):  # it has long come to rest
        x = np.exp2(-x)
    return x.T


def _packed(data: Array, trips: int) -> Array:
    pair, high = data[:8].copy(), data[8:].view(np.float32).astype(np.float16).view(np.uint16)
    for _ in range(min(OPERATIONS["pack"].steps // 8 * trips, 200)):
        low = pair.view(np.float32).astype(np.float16).view(np.uint16)
        pair = low | high.astype(np.uint32) << 16
    return pair.view(np.float32).astype(np.float64).T


def _multiplied(data: Array, trips: int) -> Array:
    """The steps of a trip are an even number, after which a = -1 has brought x back to where it was."""
    *x, a, b = data.view(np.float32).astype(np.float64)
    return np.where(a > 0, np.stack(x) + OPERATIONS["ffma"].steps // 8 * trips * b, x).T


def _copied(data: Array, ctas: Array, trips: int, threads: int) -> Array:
    """Sums over the rounds of the last two iterations, each 4 times a word for every thread."""
    rounds = data.reshape(-1, 4, 4, threads).sum(axis=1, dtype=np.uint32)  # an iteration's
    sums = rounds[(ctas + trips - 1) % len(rounds)] + rounds[(ctas + trips - 2) % len(rounds)]
    return _rounded(sums.swapaxes(1, 2))


def launch(case: Case, problem_sizes: Values) -> Launch:
    """One-dimensional."""
    one, threads = _operation(case), _threads(case)
    table_bytes = 4 * one.table if one.table and not one.shared_rounds else 0
    return Launch(
        grid=(problem_sizes.number("ctas"), 1, 1),
        block=threads,
        shared_bytes=table_bytes + one.shared_rounds * threads * 16,
        arguments=("data", "d", Scalar(kind="i32", value=problem_sizes.number("trips")), "stamps"),
    )


def work(case: Case, problem_sizes: Values) -> Work:
    """What the pipe is rated in."""
    one, ctas, trips = _operation(case), problem_sizes.number("ctas"), problem_sizes.number("trips")
    per_cta = trips * one.steps * case.configuration.number("warps")
    first = 4 * (one.words * _threads(case) + one.table)
    return Work(
        flops=one.amount * per_cta * ctas,
        mma_per_cta=per_cta,
        flops_per_mma=one.amount,
        iterations=trips,
        gmem_bytes=one.amount * per_cta * ctas if one.shared_rounds else ctas * first,
        unique_bytes=first + 4 * ctas * _threads(case) * one.values,
        unit=one.unit,
    )


def contract(case: Case) -> Contract:
    """So many of the instruction in an iteration, and none of the others."""
    one = _operation(case)
    others = {other.opcode for other in OPERATIONS.values()} - {one.opcode}
    return Contract(
        mma=one.opcode,
        mma_count=one.steps,
        counts={},
        absent=(*sorted(others), "HMMA", "LDG", "STG", "LDS", "STS", "BAR", "FADD", "FMUL", "SHFL"),
        spill_free=True,
        path=one.pipe,
        input="fp32",
    )


STUDY = Study(
    name="pipes",
    question=__doc__,
    template="pipes.cu.j2",
    switches=SWITCHES,
    problems=("waves",),
    configurations=configurations,
    sets=sets,
    constraint=constraint,
    full_of=full_of,
    sizes=sizes,
    check_sizes=check_sizes,
    fill=fill,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    launch=launch,
    work=work,
    contract=contract,
    legend=LEGEND,
)
