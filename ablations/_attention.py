"""What every study of the attention kernel shares: data, sizes, launch, work and contract of one case.

A study gives every switch of _attention_switches as a level, and `block_m`, `block_n`, `warps` and `stages`
in its levels or in its configuration."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ablations import _attention_reference as attention_reference
from harness.floats import to_bfloat16
from harness.model import (
    Array,
    Case,
    Contract,
    Expected,
    Inputs,
    Launch,
    OutputSpec,
    Scalar,
    Values,
    Where,
    Work,
)

# Values of one input from which on starting threads costs less than it saves.
WORTH_THREADS = 1 << 21
PACK_SCALE = 0.125  # a power of two: integer scores stay exact


def number(case: Case, name: str) -> int:
    """A number of the tile, wherever the study keeps it: in the levels or in the configuration."""
    return (case.levels if name in case.levels else case.configuration).number(name)


def sizes(case: Case, where: Where) -> Values:
    """waves: seqlen 4096, one batch, heads so that the grid is whole full waves, at least four. paper:
    16384 tokens, heads x head_dim = 2048, seqlen 4096; its last wave may be partial."""
    if case.problem == "paper":
        return Values(batch=4, heads=2048 // case.levels.number("head_dim"), seqlen=4096)
    ctas_per_head = 4096 // number(case, "block_m")
    slots = where.sms * where.ctas_per_sm
    waves = next(w for w in range(4, 4 + ctas_per_head) if w * slots % ctas_per_head == 0)
    return Values(batch=1, heads=waves * slots // ctas_per_head, seqlen=4096)


def check_sizes(case: Case) -> Mapping[str, Values]:
    """Whole tiles, and a length that leaves short tiles of rows and of keys."""
    return {"small": Values(batch=1, heads=2, seqlen=256), "awkward": Values(batch=1, heads=3, seqlen=331)}


def fill(case: Case, wanted: str) -> str:
    """Which data a case gets. `check`: integers where sums can be exact, else keys that grow along the
    loop, so that the running maximum moves. Timed: as wanted, but integers where other bits would be Inf or
    NaN as fp16, or overflow it."""
    levels = case.levels
    if wanted == "check":
        if levels["softmax"] in ("pack_only", "none"):
            return "integers"
        return "growing" if levels["softmax"] == "full" else "normal"
    raw_bits = levels["softmax"] == "none" and levels["gemms"] == "both"
    overflows = levels["acc_dtype"] == "f16" and levels["softmax"] in ("pack_only", "none")
    return "integers" if raw_bits or overflows else wanted


def inputs(case: Case, problem_sizes: Values, filling: str, seed: int) -> Inputs:
    """q, k, v: [batch x heads, seqlen, head_dim], float16, or bf16 as uint16 bits."""
    density = 1 / 16 if case.levels["acc_dtype"] == "f16" else 1 / 8
    shape = (
        problem_sizes.number("batch") * problem_sizes.number("heads"),
        problem_sizes.number("seqlen"),
        case.levels.number("head_dim"),
    )
    return _inputs(shape, case.levels.word("dtype"), filling, seed, density if filling == "integers" else 0.0)


@lru_cache(maxsize=8)
def _inputs(shape: tuple[int, int, int], dtype: str, filling: str, seed: int, density: float) -> Inputs:
    """Each slice has its own generator, so that all cores draw: a large problem has 100 million values."""
    arrays = {name: np.empty(shape, np.uint16 if dtype == "bf16" else np.float16) for name in ("q", "k", "v")}

    def fill_slice(place: tuple[int, int]) -> None:
        number, index = place
        name = tuple(arrays)[number]
        generator = np.random.default_rng((seed, number, index, *shape[1:]))
        values = _drawn(generator, name, shape[1:], filling, density)
        arrays[name][index] = to_bfloat16(values) if dtype == "bf16" else values.astype(np.float16)

    places = itertools.product(range(len(arrays)), range(shape[0]))
    if math.prod(shape) < WORTH_THREADS:
        for place in places:
            fill_slice(place)
    else:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(fill_slice, places))
    return arrays


def _drawn(
    generator: np.random.Generator, name: str, shape: tuple[int, int], filling: str, density: float
) -> NDArray[np.float32]:
    """One slice of an input, [seqlen, head_dim]."""
    if filling == "zeros":
        return np.zeros(shape, np.float32)
    if filling == "uniform":
        return generator.random(shape, np.float32) * 2 - 1
    if filling == "integers":
        draw = generator.random(shape, np.float32)
        return (draw < density / 2).astype(np.float32) - (draw > 1 - density / 2)
    values = generator.standard_normal(shape, np.float32)
    if filling == "growing" and name == "k":
        values *= np.linspace(4, 1, shape[0], dtype=np.float32)[:, None]
    return values


def reference_key(case: Case) -> Hashable:
    """What decides the function that a case computes, and its bounds: not how it is scheduled."""
    decisive = (
        "dtype",
        "head_dim",
        "acc_dtype",
        "gemms",
        "accumulators",
        "gmem_copy",
        "smem_copy",
        "softmax",
    )
    return (*(case.levels[name] for name in decisive), number(case, "block_n"))


def outputs(case: Case, problem_sizes: Values) -> Mapping[str, OutputSpec]:
    """o (16-bit where it is normalised, else fp32), and lse [batch x heads, seqlen] where there is a
    softmax."""
    heads = problem_sizes.number("batch") * problem_sizes.number("heads")
    rows = problem_sizes.number("seqlen")
    columns = number(case, "block_n") if case.levels["gemms"] == "qk" else case.levels.number("head_dim")
    if case.levels["softmax"] in ("full", "no_max"):
        dtype = "bfloat16" if case.levels["dtype"] == "bf16" else "float16"
        return {
            "o": OutputSpec(shape=(heads, rows, columns), dtype=dtype),  # type: ignore[arg-type]
            "lse": OutputSpec(shape=(heads, rows), dtype="float32"),
        }
    return {"o": OutputSpec(shape=(heads, rows, columns), dtype="float32")}


def score_scale(case: Case) -> float:
    """What a raw score is multiplied by: 1/sqrt(head_dim) before exp, 1/8 before a bare conversion."""
    if case.levels["softmax"] == "pack_only":
        return PACK_SCALE
    return 1 / math.sqrt(case.levels.number("head_dim"))


def reference(
    case: Case,
    problem_sizes: Values,
    arrays: Inputs,
    slices: tuple[int, ...] | None,
    prepare: Callable[..., attention_reference.Slice] = attention_reference.prepare,
) -> Mapping[str, Expected]:
    """Float64 results of the asked (batch, head) slices, all by default; `prepare` makes the operands that
    the kernel multiplies of (case, q, k, v, fill)."""
    filling = "integers" if _are_integers(arrays["q"]) else "normal"
    chosen = range(len(arrays["q"])) if slices is None else slices
    heads = [
        attention_reference.expected(
            case,
            prepare(case, arrays["q"][i], arrays["k"][i], arrays["v"][i], filling),
            score_scale(case),
        )
        for i in chosen
    ]
    return {
        name: Expected(
            values=np.stack([head[name].values for head in heads]),
            bound=np.stack([np.broadcast_to(head[name].bound, head[name].values.shape) for head in heads]),
        )
        for name in heads[0]
    }


def _are_integers(array: Array) -> bool:
    """Whether the data are the sparse integers, whose sums can be compared bit for bit."""
    if array.dtype == np.uint16:
        return bool(np.isin(array[:1, :64], (0, 0x8000, 0x3F80, 0xBF80)).all())
    return bool(np.isin(array[:1, :64], (-1, 0, 1)).all())


def launch(case: Case, problem_sizes: Values) -> Launch:
    """One CTA per block_m rows of a head."""
    seqlen, head_dim = problem_sizes.number("seqlen"), case.levels.number("head_dim")
    has_softmax = case.levels["softmax"] in ("full", "no_max")
    rows_in_shared = number(case, "block_m") + 2 * number(case, "stages") * number(case, "block_n")
    scale = score_scale(case) * (attention_reference.LOG2_E if has_softmax else 1)
    return Launch(
        grid=(
            -(-seqlen // number(case, "block_m")),
            problem_sizes.number("batch") * problem_sizes.number("heads"),
            1,
        ),
        block=32 * number(case, "warps"),
        shared_bytes=2 * head_dim * rows_in_shared,
        arguments=(
            "q",
            "k",
            "v",
            "o",
            "lse" if has_softmax else Scalar(kind="u64", value=0),
            Scalar(kind="i32", value=seqlen),
            Scalar(kind="f32", value=scale),
            "stamps",
        ),
    )


def _products(case: Case) -> tuple[int, int]:
    """Whether the loop holds Q K^T and P V, as 0 or 1."""
    return int(case.levels["gemms"] != "pv"), int(case.levels["gemms"] != "qk")


def _tiles(case: Case) -> tuple[int, int, int, int, int]:
    """16-row tiles per warp, 8-key tiles, 8-column tiles, steps of Q K^T, steps of P V."""
    head_dim = case.levels.number("head_dim")
    block_n = number(case, "block_n")
    return (
        number(case, "block_m") // (16 * number(case, "warps")),
        block_n // 8,
        head_dim // 8,
        head_dim // 16,
        block_n // 16,
    )


def work(case: Case, problem_sizes: Values) -> Work:
    """2 x seqlen^2 x head_dim FLOPs per product and head."""
    seqlen, head_dim = problem_sizes.number("seqlen"), case.levels.number("head_dim")
    heads = problem_sizes.number("batch") * problem_sizes.number("heads")
    qk, pv = _products(case)
    iterations = -(-seqlen // number(case, "block_n"))
    ctas = launch(case, problem_sizes).ctas
    tile_bytes = (qk + pv) * number(case, "block_n") * head_dim * 2
    copied_tiles = iterations if case.levels["gmem_copy"] == "kept" else 1
    stored = sum(
        math.prod(spec.shape) * (4 if spec.dtype == "float32" else 2)
        for spec in outputs(case, problem_sizes).values()
    )
    return Work(
        flops=2 * (qk + pv) * seqlen * seqlen * head_dim * heads,
        mma_per_cta=iterations * _mma_per_iteration(case) * number(case, "warps"),
        flops_per_mma=4096,
        iterations=iterations,
        gmem_bytes=ctas * (copied_tiles * tile_bytes + number(case, "block_m") * head_dim * 2),
        unique_bytes=3 * heads * seqlen * head_dim * 2 + stored,
    )


def _mma_per_iteration(case: Case) -> int:
    m_tiles, n_tiles, d_tiles, qk_steps, pv_steps = _tiles(case)
    qk, pv = _products(case)
    return m_tiles * (qk * n_tiles * qk_steps + pv * d_tiles * pv_steps)


def contract(case: Case, *, spill_free: bool) -> Contract:
    """What one iteration of the main loop must hold, from the tile's shape alone."""
    levels = case.levels
    m_tiles, n_tiles, d_tiles, qk_steps, pv_steps = _tiles(case)
    qk, pv = _products(case)
    counts: dict[str, int] = {}
    absent = ["LDG", "STG", "LDS", "STS"]
    present: list[str] = []
    if levels["gmem_copy"] == "kept":
        copied = (qk + pv) * number(case, "block_n") * levels.number("head_dim") * 2
        counts["LDGSTS"] = copied // (16 * 32 * number(case, "warps"))
    else:
        absent.append("LDGSTS")
    if levels["smem_copy"] == "kept":
        counts["LDSM"] = qk * qk_steps * (m_tiles + n_tiles // 2) + pv * pv_steps * d_tiles // 2
    else:
        absent.append("LDSM")
    if levels["barriers"] == "kept":
        counts["BAR"] = 1
    else:
        absent.append("BAR")
    weights = m_tiles * n_tiles * 4
    if levels["softmax"] == "full":
        counts |= {"MUFU.EX2": weights + 2 * m_tiles, "SHFL": 4 * m_tiles}
        present += ["FMNMX", "F2FP"]
    elif levels["softmax"] == "no_max":
        counts |= {"MUFU.EX2": weights, "F2FP": weights // 2}
        absent += ["SHFL", "FMNMX", "FMNMX3"]
    elif levels["softmax"] == "pack_only":
        counts["F2FP"] = weights // 2
        absent += ["MUFU", "SHFL", "FMNMX", "FMNMX3"]
    else:
        absent += ["MUFU", "SHFL", "FMNMX", "FMNMX3", "F2FP"]
    accumulator = (
        "F16" if levels["acc_dtype"] == "f16" else "F32.BF16" if levels["dtype"] == "bf16" else "F32"
    )
    return Contract(
        mma=f"HMMA.16816.{accumulator}",
        mma_count=_mma_per_iteration(case),
        counts=counts,
        present=tuple(present),
        absent=tuple(absent),
        spill_free=spill_free,
        input=levels.word("dtype"),
        acc=levels.word("acc_dtype"),
    )


def contract_without_spills(case: Case) -> Contract:
    """What one iteration holds in a study whose cases are read beside one another: none may spill."""
    return contract(case, spill_free=True)


def resident(case: Case) -> int:
    """CTAs per SM that a case is held at, in studies that have the switch `resident`."""
    return case.levels.number("resident")
