"""How fast can mma.sync alone go, and how much independent work does it need?

Register-only m16n8k16: one CTA per SM, 1 to 16 warps, 1 to 8 independent accumulator chains per warp,
nothing else in the loop. The best case is the ceiling of the path on this GPU; the case with one chain and
four warps is the latency of one dependent MMA.

Expectation: one chain per sub-partition takes the full latency per MMA (24 cycles on Hopper); a few chains
or warps fill the pipe. On Hopper it fills at two thirds of wgmma's rate. On GeForce chips fp32 accumulators
reach half of fp16's rate."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from harness.floats import as_float64, to_bfloat16
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

STEPS, B_POOL = 8, 4  # MMAs of a chain per iteration, and the B fragments they take turns with

SWITCHES = (
    Switch(name="dtype", levels=("fp16", "bf16"), baseline="fp16", label="in", meaning="input type"),
    Switch(name="acc_dtype", levels=("f32", "f16"), baseline="f32", label="acc", meaning="accumulator type"),
    Switch(
        name="chains",
        levels=(1, 2, 4, 8),
        baseline=4,
        label="chains",
        meaning="independent accumulators per warp",
    ),
    Switch(
        name="warps",
        levels=(1, 2, 4, 8, 16),
        baseline=8,
        label="warps/SM",
        meaning="warps of the one CTA per SM",
    ),
)


def configurations(levels: Values) -> tuple[Values, ...]:
    """Nothing to configure: the levels say it all."""
    return (Values(),)


def constraint(levels: Values, configuration: Values) -> str | None:
    """Why a combination cannot exist."""
    if levels["dtype"] == "bf16" and levels["acc_dtype"] == "f16":
        return "no such instruction: bf16 inputs accumulate in fp32 only"
    return None


def full_of(levels: Values) -> Values:
    """The case that fills the pipe: four chains, eight warps, same types."""
    return levels.replace(chains=4, warps=8)


def sets() -> Mapping[str, tuple[Values, ...]]:
    """The filled pipe for each type, and the ladder of chains and warps."""
    base = Values({s.name: s.baseline for s in SWITCHES})
    types = (
        base,
        base.replace(acc_dtype="f16"),
        base.replace(dtype="bf16"),
    )
    ladder = ((1, 1), (1, 4), (2, 4), (4, 4), (8, 4), (1, 8), (2, 8), (8, 8), (1, 16), (4, 16))
    return {
        "full": types,
        "ladder": tuple(base.replace(chains=chains, warps=warps) for chains, warps in ladder),
        "f16": tuple(
            base.replace(acc_dtype="f16", chains=chains, warps=warps) for chains, warps in ((1, 4), (4, 16))
        ),
    }


def sizes(case: Case, where: Where) -> Values:
    """One CTA per SM; trips for about a million and a half cycles at the rates of sm_80 to sm_90."""
    warps_per_partition = -(-case.levels.number("warps") // 4)
    cycles_per_trip = STEPS * max(24, 6 * case.levels.number("chains") * warps_per_partition)
    return Values(ctas=where.sms, trips=1_500_000 // cycles_per_trip)


def check_sizes(case: Case) -> Mapping[str, Values]:
    """A few trips, and an odd number of them."""
    return {"small": Values(ctas=2, trips=4), "awkward": Values(ctas=3, trips=13)}


def fill(case: Case, wanted: str) -> str:
    """Small integers to check, because their sums are exact; as wanted when timed."""
    return "integers" if wanted == "check" else wanted


def inputs(case: Case, problem_sizes: Values, filling: str, seed: int) -> Inputs:
    """a: [warps x chains, 32, 8] A fragments, lane by lane; b: [4, 32, 4] B fragments; both 16-bit.

    Timed data: the third and fourth B nearly cancel the first and second, so that accumulators neither
    overflow nor leave the range of random data; what is left over grows with the trips (fp32) and counts
    them, or is zero (fp16)."""
    levels = case.levels
    groups = levels.number("warps") * levels.number("chains")
    exact = problem_sizes.number("trips") <= 64
    return _inputs(groups, levels.word("dtype"), levels.word("acc_dtype"), filling, seed, exact)


@lru_cache(maxsize=64)
def _inputs(groups: int, dtype: str, acc_dtype: str, filling: str, seed: int, exact: bool) -> Inputs:
    generator = np.random.default_rng((seed, groups))
    a = _matrix(generator, (groups, 16, 16), filling)
    b = _matrix(generator, (B_POOL, 16, 8), filling)
    if not exact:
        b[2:] = -b[:2]
        if acc_dtype == "f32":
            b[2] += np.float32(2.0**-5) * _matrix(generator, (16, 8), filling)
    convert = to_bfloat16 if dtype == "bf16" else (lambda values: values.astype(np.float16))
    return {"a": _a_fragments(convert(a)), "b": _b_fragments(convert(b))}


def _matrix(generator: np.random.Generator, shape: tuple[int, ...], filling: str) -> np.ndarray:
    if filling == "zeros":
        return np.zeros(shape, np.float32)
    if filling == "uniform":
        return generator.random(shape, np.float32) * 2 - 1
    if filling == "integers":
        return generator.integers(-1, 2, shape).astype(np.float32)
    return generator.standard_normal(shape, np.float32)


def _a_fragments(a: Array) -> Array:
    """[n, 16, 16] -> [n, 32, 8]: lane 4 g + t holds rows g and g + 8, columns 2 t, 2 t + 1, and those + 8."""
    split = a.reshape(-1, 2, 8, 2, 4, 2)  # n, row half, g, column half, t, pair
    return np.ascontiguousarray(split.transpose(0, 2, 4, 3, 1, 5)).reshape(-1, 32, 8)


def _b_fragments(b: Array) -> Array:
    """[n, 16, 8] -> [n, 32, 4]: lane 4 g + t holds column g, rows 2 t, 2 t + 1, and those + 8."""
    split = b.reshape(-1, 2, 4, 2, 8)  # n, row half, t, pair, g
    return np.ascontiguousarray(split.transpose(0, 4, 2, 1, 3)).reshape(-1, 32, 4)


def _d_fragments(d: Array) -> Array:
    """[n, 16, 8] -> [n, 32, 4]: lane 4 g + t holds columns 2 t, 2 t + 1 of row g, then of row g + 8."""
    split = d.reshape(-1, 2, 8, 4, 2)  # n, row half, g, t, pair
    return np.ascontiguousarray(split.transpose(0, 2, 3, 1, 4)).reshape(-1, 32, 4)


def outputs(case: Case, problem_sizes: Values) -> Mapping[str, OutputSpec]:
    """d: [ctas, warps x chains, 32, 4] accumulators, lane by lane."""
    groups = case.levels.number("warps") * case.levels.number("chains")
    return {"d": OutputSpec(shape=(problem_sizes.number("ctas"), groups, 32, 4), dtype="float32")}


def reference(
    case: Case, problem_sizes: Values, arrays: Inputs, slices: tuple[int, ...] | None
) -> Mapping[str, Expected]:
    """D = trips x sum over steps of A B: every CTA computes the same.

    Bound: each of n MMAs truncates an fp32 sum (2^-23) or rounds an fp16 sum (2^-11) relative to the
    accumulator, which stays within the final value plus what one round through the B fragments adds.
    Integers that fit are exact."""
    trips, chains = problem_sizes.number("trips"), case.levels.number("chains")
    a = _unpacked(arrays["a"], (0, 3, 1, 4, 2, 5), 2)
    b = as_float64(arrays["b"]).reshape(B_POOL, 8, 4, 2, 2).transpose(0, 3, 2, 4, 1).reshape(B_POOL, 16, 8)
    visits = trips * STEPS // B_POOL
    total, peak = np.zeros((len(a), 16, 8)), np.zeros((len(a), 16, 8))
    for step in range(B_POOL):  # chain c starts with fragment c; every fragment is met equally often
        chosen = b[(step + np.arange(len(a)) % chains) % B_POOL]
        total += a @ chosen
        peak += np.abs(a) @ np.abs(chosen)
    values = visits * total
    f16 = case.levels["acc_dtype"] == "f16"
    count, unit = trips * STEPS, 2.0**-11 if f16 else 2.0**-23
    integers = bool((a == np.round(a)).all() and (b == np.round(b)).all())
    exact = integers and float((np.abs(values) + peak).max()) <= (2.0**11 if f16 else 2.0**24)
    # Truncation always leans the same way, so its errors add up; rounding to nearest walks at random.
    steps_of_error = 4 * np.sqrt(count) if f16 else count
    bound = np.zeros_like(values) if exact else steps_of_error * unit * (np.abs(values) + peak)
    chosen_ctas = problem_sizes.number("ctas") if slices is None else len(slices)
    shape = (chosen_ctas, len(a), 32, 4)
    return {
        "d": Expected(
            values=np.broadcast_to(_d_fragments(values), shape),
            bound=np.broadcast_to(_d_fragments(bound), shape),
        )
    }


def _unpacked(fragments: Array, order: tuple[int, ...], pair: int) -> Array:
    """A fragments [n, 32, 8] back to matrices [n, 16, 16], float64."""
    split = as_float64(fragments).reshape(-1, 8, 4, 2, 2, pair)  # n, g, t, column half, row half, pair
    return split.transpose(0, 4, 1, 3, 2, 5).reshape(-1, 16, 16)


def launch(case: Case, problem_sizes: Values) -> Launch:
    """One CTA of all warps; operands as 32-bit words."""
    return Launch(
        grid=(problem_sizes.number("ctas"), 1, 1),
        block=32 * case.levels.number("warps"),
        shared_bytes=0,
        arguments=("a", "b", "d", Scalar(kind="i32", value=problem_sizes.number("trips")), "stamps"),
    )


def work(case: Case, problem_sizes: Values) -> Work:
    """4096 FLOPs per MMA."""
    groups = case.levels.number("warps") * case.levels.number("chains")
    per_cta = problem_sizes.number("trips") * STEPS * groups
    return Work(
        flops=4096 * per_cta * problem_sizes.number("ctas"),
        mma_per_cta=per_cta,
        flops_per_mma=4096,
        iterations=problem_sizes.number("trips"),
        gmem_bytes=problem_sizes.number("ctas") * groups * 32 * 16,
        unique_bytes=problem_sizes.number("ctas") * groups * 32 * 16 + groups * 32 * 16,
    )


def contract(case: Case) -> Contract:
    """STEPS MMAs per chain and nothing of memory, special functions or barriers."""
    levels = case.levels
    accumulator = (
        "F16" if levels["acc_dtype"] == "f16" else "F32.BF16" if levels["dtype"] == "bf16" else "F32"
    )
    return Contract(
        mma=f"HMMA.16816.{accumulator}",
        mma_count=STEPS * levels.number("chains"),
        counts={},
        absent=("LDG", "STG", "LDGSTS", "LDS", "STS", "LDSM", "MUFU", "BAR", "SHFL", "F2FP"),
        spill_free=levels == full_of(levels),
        input=levels.word("dtype"),
        acc=levels.word("acc_dtype"),
    )


STUDY = Study(
    name="instruction",
    question=__doc__,
    template="instruction.cu.j2",
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
    is_ceiling=True,
    parallel=("chains", "warps"),
)
