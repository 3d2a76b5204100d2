"""What limits the FlashAttention-2 forward main loop on mma.sync?

The loop copies K and V tiles from global to shared memory (cp.async), reads fragments from there
(ldmatrix), multiplies S = Q K^T, takes an online softmax and multiplies O += P V. Each part can be stripped
on its own, and added on its own to the floor, where only the MMAs are left.

Expectation: on chips that accumulate fp32 at half rate (GeForce) the MMAs hide everything and full is at
its ceiling, which is half of the fp16-accumulate peak. Where fp32 runs at full rate, the softmax costs
most, then ldmatrix; the copies cost little, because the tensor cores never wait for bytes but for latency.
"""

from __future__ import annotations

from collections.abc import Mapping

from ablations import _attention as common
from ablations._attention_peers import peers
from ablations._attention_switches import LEGEND, SWITCHES
from harness.model import Case, Contract, Study, Values

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


def contract(case: Case) -> Contract:
    """What one iteration holds; full at its own configuration may not spill."""
    is_full = case.levels == full_of(case.levels)
    return common.contract(case, spill_free=is_full and case.configuration == configurations(case.levels)[0])


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
    sizes=common.sizes,
    check_sizes=common.check_sizes,
    fill=common.fill,
    inputs=common.inputs,
    outputs=common.outputs,
    reference=common.reference,
    reference_key=common.reference_key,
    launch=common.launch,
    work=common.work,
    contract=contract,
    legend=LEGEND,
    peers=peers,
    parallel=("accumulators",),
)
