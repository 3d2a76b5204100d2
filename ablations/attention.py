"""What limits the FlashAttention-2 forward main loop on mma.sync?

The loop copies K and V tiles from global to shared memory (cp.async), reads fragments from there
(ldmatrix), multiplies S = Q K^T, takes an online softmax and multiplies O += P V. Each part can be stripped
on its own, and added on its own to the floor, where only the MMAs are left.

Expectation: on chips that accumulate fp32 at half rate (GeForce) the MMAs hide everything and full is at
its ceiling, which is half of the fp16-accumulate peak. Where fp32 runs at full rate, the softmax costs
most, then ldmatrix; the copies cost little, because the tensor cores never wait for bytes but for latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from ablations import _attention_reference as attention_reference
from ablations._attention_peers import peers
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
    to_bfloat16,
)

SWITCHES = (
    Switch(
        name="dtype",
        levels=("fp16", "bf16"),
        baseline="fp16",
        label="in",
        meaning="input type of Q, K, V and P",
    ),
    Switch(
        name="head_dim", levels=(64, 128), baseline=64, label="head dim", meaning="columns of Q, K, V and O"
    ),
    Switch(
        name="acc_dtype",
        levels=("f32", "f16"),
        baseline="f32",
        label="acc",
        meaning="accumulator type of both products",
    ),
    Switch(
        name="gemms",
        levels=("both", "qk", "pv"),
        baseline="both",
        label="GEMMs",
        meaning="which products the loop holds; qk adds all tiles' scores, pv takes Q's first columns for P",
    ),
    Switch(
        name="accumulators",
        levels=(1, 2, 4),
        baseline=1,
        label="acc sets",
        meaning="independent accumulator sets that the k steps of Q K^T rotate over, summed after the k loop",
    ),
    Switch(
        name="gmem_copy",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="gmem copy",
        meaning="global to shared copies; stripped: the last tile is copied once and read by every iteration",
    ),
    Switch(
        name="smem_copy",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="smem copy",
        meaning="ldmatrix; stripped: fragments come from a pool of registers, filled once from the last tile",
    ),
    Switch(
        name="barriers",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="barriers",
        meaning="the CTA-wide barrier of each tile; can go only when nothing writes shared memory any more",
    ),
    Switch(
        name="softmax",
        levels=("full", "no_max", "pack_only", "none"),
        baseline="full",
        strips=("no_max", "pack_only", "none"),
        label="softmax",
        meaning="full; no_max: no running maximum; pack_only: scores scaled and converted; none: raw bits",
    ),
)

LEGEND = {
    "gmem_copy=stripped": "attention over the last tile of K and V, once per tile; row sums grow with it",
    "smem_copy=stripped": "attention over tiles built from eight register fragments of the last tile",
    "barriers=stripped": "the same result as without",
    "softmax=no_max": "the same result as full, as long as exp(S) stays in range",
    "softmax=pack_only": "O = fp16(S / 8) V, not normalised",
    "softmax=none": "O = P V, P the fp32 scores' bits read as fp16 pairs (fp16 accumulators: the scores)",
    "gemms=qk": "the sum of all tiles' scores",
    "gemms=pv": "O = P V with P = the first block_n columns of Q, for every tile",
    "accumulators=2": "the same result as full",
    "accumulators=4": "the same result as full",
}

PACK_SCALE = 0.125  # a power of two: integer scores stay exact

_WIDE = {
    64: (
        Values(block_m=128, block_n=64, warps=4, stages=2, rescale=0, ctas=2),
        Values(block_m=64, block_n=64, warps=2, stages=2, rescale=0, ctas=4),
        Values(block_m=64, block_n=128, warps=4, stages=2, rescale=0, ctas=3),
    ),
    128: (
        Values(block_m=128, block_n=32, warps=4, stages=2, rescale=8, ctas=2),
        Values(block_m=128, block_n=64, warps=4, stages=2, rescale=8, ctas=2),
    ),
}
# 16 rows per warp and 32 keys: up to four sets of scores fit into the registers.
_NARROW = Values(block_m=64, block_n=32, warps=4, stages=2, rescale=0, ctas=4)


def configurations(levels: Values) -> tuple[Values, ...]:
    """Two 16-row tiles per warp, two CTAs per SM; sets of accumulators get a tile where they fit, with its
    own full."""
    if levels["accumulators"] != 1:
        return (_NARROW,)
    return _WIDE[levels.number("head_dim")]


def constraint(levels: Values, configuration: Values) -> str | None:
    """Why a combination cannot exist."""
    if levels["dtype"] == "bf16" and levels["acc_dtype"] == "f16":
        return "no such instruction: bf16 inputs accumulate in fp32 only"
    if levels["barriers"] == "stripped" and levels["gmem_copy"] == "kept":
        return "the barrier orders the next tile's copies after this tile's reads: strip gmem_copy too"
    if levels["gemms"] != "both" and levels["softmax"] != "none":
        return "with one product nothing consumes P, and its softmax would be dead code: use softmax=none"
    if levels["gemms"] == "pv" and levels["accumulators"] != 1:
        return "the sets hold partial sums of Q K^T, which gemms=pv removes"
    if levels["gemms"] == "pv" and configuration.number("block_n") > levels.number("head_dim"):
        return "P is the first block_n columns of Q, which has only head_dim of them"
    if levels["smem_copy"] == "stripped" and configuration.number("block_n") > 64:
        return "more than 8 key tiles would repeat operands of the pool, and ptxas would merge their MMAs"
    if levels["accumulators"] != 1 and configuration.number("block_m") != 16 * configuration.number("warps"):
        return "sets of accumulators fit with 16 rows per warp only"
    return None


def full_of(levels: Values) -> Values:
    """Same axes, nothing stripped; one accumulator set; one product alone has no softmax to keep."""
    softmax = "full" if levels["gemms"] == "both" else "none"
    return levels.replace(
        gmem_copy="kept", smem_copy="kept", barriers="kept", softmax=softmax, accumulators=1
    )


def sets() -> Mapping[str, tuple[Values, ...]]:
    """Full, one part removed, one part added to the floor, all sets of parts, the axes; at both head dims."""
    dims = [Values({s.name: s.baseline for s in SWITCHES}).replace(head_dim=d) for d in (64, 128)]
    no_copies: dict[str, str] = {"gmem_copy": "stripped", "barriers": "stripped"}
    floor: dict[str, str] = {**no_copies, "smem_copy": "stripped", "softmax": "none"}
    return {
        "full": tuple(dims),
        "strips": tuple(
            base.replace(**change)
            for base in dims
            for change in (
                {"gmem_copy": "stripped"},
                no_copies,
                {"smem_copy": "stripped"},
                {"softmax": "no_max"},
                {"softmax": "pack_only"},
                {"softmax": "none"},
            )
        ),
        "adds": tuple(
            base.replace(**{**floor, **change})
            for base in dims
            for change in (
                {},
                {"softmax": "pack_only"},
                {"softmax": "full"},
                {"smem_copy": "kept"},
                {"gmem_copy": "kept", "barriers": "kept"},
            )
        ),
        # With strips and adds: every stripped set there can be, softmax down to pack_only. A kernel has to
        # convert P in any case, and without that the compiler's code is often slower, not faster.
        "lattice": tuple(
            base.replace(softmax=softmax, **change)
            for base in dims
            for change, softmax in (
                ({"gmem_copy": "stripped", "smem_copy": "stripped"}, "full"),
                ({"gmem_copy": "stripped"}, "pack_only"),
                (no_copies, "pack_only"),
                ({"smem_copy": "stripped"}, "pack_only"),
                ({"gmem_copy": "stripped", "smem_copy": "stripped"}, "pack_only"),
            )
        ),
        "axes": tuple(
            base.replace(**change)
            for base in dims
            for change in (
                {"dtype": "bf16"},
                {"acc_dtype": "f16"},
                {"acc_dtype": "f16", **floor},
                {"gemms": "qk", "softmax": "none"},
                {"gemms": "qk", **floor},
                {"gemms": "pv", "softmax": "none"},
                {"gemms": "pv", **floor},
                {"accumulators": 2},
                {"accumulators": 4},
            )
        ),
    }


def sizes(case: Case, where: Where) -> Values:
    """waves: seqlen 4096, one batch, heads so that the grid is whole full waves, at least four. paper:
    16384 tokens, heads x head_dim = 2048, seqlen 4096; its last wave may be partial."""
    if case.problem == "paper":
        return Values(batch=4, heads=2048 // case.levels.number("head_dim"), seqlen=4096)
    ctas_per_head = 4096 // case.configuration.number("block_m")
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
    generator = np.random.default_rng((seed, *shape))
    return {name: _filled(generator, name, shape, dtype, filling, density) for name in ("q", "k", "v")}


def _filled(
    generator: np.random.Generator,
    name: str,
    shape: tuple[int, int, int],
    dtype: str,
    filling: str,
    density: float,
) -> Array:
    if filling == "zeros":
        values = np.zeros(shape, np.float32)
    elif filling == "uniform":
        values = generator.random(shape, np.float32) * 2 - 1
    elif filling == "integers":
        draw = generator.random(shape, np.float32)
        values = (draw < density / 2).astype(np.float32) - (draw > 1 - density / 2)
    else:
        values = generator.standard_normal(shape, np.float32)
        if filling == "growing" and name == "k":
            values *= np.linspace(4, 1, shape[1], dtype=np.float32)[:, None]
    return to_bfloat16(values) if dtype == "bf16" else values.astype(np.float16)


def outputs(case: Case, problem_sizes: Values) -> Mapping[str, OutputSpec]:
    """o (16-bit where it is normalised, else fp32), and lse [batch x heads, seqlen] where there is a
    softmax."""
    heads = problem_sizes.number("batch") * problem_sizes.number("heads")
    rows = problem_sizes.number("seqlen")
    columns = (
        case.configuration.number("block_n")
        if case.levels["gemms"] == "qk"
        else case.levels.number("head_dim")
    )
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
    case: Case, problem_sizes: Values, arrays: Inputs, slices: tuple[int, ...] | None
) -> Mapping[str, Expected]:
    """Float64 results of the asked (batch, head) slices, all by default."""
    filling = "integers" if _are_integers(arrays["q"]) else "normal"
    chosen = range(len(arrays["q"])) if slices is None else slices
    heads = [
        attention_reference.expected(
            case,
            attention_reference.prepare(case, arrays["q"][i], arrays["k"][i], arrays["v"][i], filling),
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
    c = case.configuration
    seqlen, head_dim = problem_sizes.number("seqlen"), case.levels.number("head_dim")
    has_softmax = case.levels["softmax"] in ("full", "no_max")
    scale = score_scale(case) * (attention_reference.LOG2_E if has_softmax else 1)
    return Launch(
        grid=(
            -(-seqlen // c.number("block_m")),
            problem_sizes.number("batch") * problem_sizes.number("heads"),
            1,
        ),
        block=32 * c.number("warps"),
        shared_bytes=2 * head_dim * (c.number("block_m") + 2 * c.number("stages") * c.number("block_n")),
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
    c, head_dim = case.configuration, case.levels.number("head_dim")
    block_n = c.number("block_n")
    return (
        c.number("block_m") // (16 * c.number("warps")),
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
    c = case.configuration
    iterations = -(-seqlen // c.number("block_n"))
    ctas = launch(case, problem_sizes).ctas
    tile_bytes = (qk + pv) * c.number("block_n") * head_dim * 2
    copied_tiles = iterations if case.levels["gmem_copy"] == "kept" else 1
    stored = sum(
        math.prod(spec.shape) * (4 if spec.dtype == "float32" else 2)
        for spec in outputs(case, problem_sizes).values()
    )
    return Work(
        flops=2 * (qk + pv) * seqlen * seqlen * head_dim * heads,
        mma_per_cta=iterations * _mma_per_iteration(case) * c.number("warps"),
        flops_per_mma=4096,
        iterations=iterations,
        gmem_bytes=ctas * (copied_tiles * tile_bytes + c.number("block_m") * head_dim * 2),
        unique_bytes=3 * heads * seqlen * head_dim * 2 + stored,
    )


def _mma_per_iteration(case: Case) -> int:
    m_tiles, n_tiles, d_tiles, qk_steps, pv_steps = _tiles(case)
    qk, pv = _products(case)
    return m_tiles * (qk * n_tiles * qk_steps + pv * d_tiles * pv_steps)


def contract(case: Case) -> Contract:
    """What one iteration of the main loop must hold, from the tile's shape alone."""
    levels, c = case.levels, case.configuration
    m_tiles, n_tiles, d_tiles, qk_steps, pv_steps = _tiles(case)
    qk, pv = _products(case)
    counts: dict[str, int] = {}
    absent = ["LDG", "STG", "LDS", "STS"]
    present: list[str] = []
    if levels["gmem_copy"] == "kept":
        copied = (qk + pv) * c.number("block_n") * levels.number("head_dim") * 2
        counts["LDGSTS"] = copied // (16 * 32 * c.number("warps"))
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
        spill_free=levels == full_of(levels) and c == configurations(levels)[0],
        input=levels.word("dtype"),
        acc=levels.word("acc_dtype"),
    )


STUDY = Study(
    name="attention",
    question=__doc__,
    template="attention.cu.j2",
    switches=SWITCHES,
    problems=("waves", "paper"),
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
    peers=peers,
    parallel=("accumulators",),
)
