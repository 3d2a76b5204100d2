"""Does the chain of MMAs through one accumulator limit the attention loop?

Each score is a sum over the head dimension, so its MMAs wait for one another. Two ways to break that chain:
more sets of accumulators that the steps of Q K^T rotate over, summed afterwards (1, 2, 4 sets); or other work
between, Q K^T of the next tile standing before the softmax of this one (`order`). Both with fp32 and fp16
accumulators, with the whole loop and with Q K^T alone, on a tile of 16 rows per warp where four sets fit; and
the orders also with a single CTA per SM, that is with one warp per sub-partition.

`ahead` does one Q K^T more per CTA (the last iteration has no next tile and multiplies its own again; the
work that is counted leaves it out), and moves the next tile's scores to where this tile's were, a few
instructions a tile. Three stages for both orders: `ahead` reads one for V, one for K, and the third is
written.

Expectation: more sets change nothing, as was reported where the tensor cores stood at 50 %. The 4 key tiles
of a score tile are chains of their own already, and with three warps per sub-partition another one has work
while one waits: the chain is not the limit. `ahead` gains at one CTA per SM only, where a warp's softmax
leaves its sub-partition's tensor core idle; at three CTAs per SM the other CTAs' MMAs fill that time."""

from __future__ import annotations

from collections.abc import Mapping

from ablations import _attention as common
from ablations._attention_switches import legend, resident, restricted
from harness.model import Study, Switch, Values

SWITCHES = (
    *restricted(
        acc_dtype=("f32", "f16"), gemms=("both", "qk"), accumulators=(1, 2, 4), softmax=("full", "none")
    ),
    Switch(
        name="order",
        levels=("in_turn", "ahead"),
        baseline="in_turn",
        label="order",
        meaning="in_turn: a tile's Q K^T, softmax, P V; ahead: Q K^T of the next tile before the softmax",
    ),
    resident((1, 3), baseline=3),
)

LEGEND = {
    **legend("softmax=none", "gemms=qk", "accumulators=2", "accumulators=4"),
    "order=ahead": "the same result as in_turn",
}

# 16 rows per warp and 32 keys: up to four sets of scores fit into the registers that three CTAs leave.
_TILE = Values(block_m=64, block_n=32, warps=4, stages=3, rescale=0, ctas=3)


def configurations(levels: Values) -> tuple[Values, ...]:
    """One tile for all."""
    return (_TILE,)


def constraint(levels: Values, configuration: Values) -> str | None:
    """Why a combination cannot exist."""
    if levels["gemms"] == "qk" and levels["softmax"] != "none":
        return "with one product nothing consumes P, and its softmax would be dead code: use softmax=none"
    if levels["order"] == "ahead" and levels["gemms"] != "both":
        return "with one product there is nothing that the next tile could go ahead of"
    if levels["order"] == "ahead" and levels["accumulators"] != 1:
        return "the registers of further sets hold the scores of the next tile when it goes ahead"
    return None


def full_of(levels: Values) -> Values:
    """One set, in turn, with the same types, products and residency."""
    softmax = "full" if levels["gemms"] == "both" else "none"
    return levels.replace(accumulators=1, order="in_turn", softmax=softmax)


def sets() -> Mapping[str, tuple[Values, ...]]:
    """The loops in turn with one set; more sets; and the other order, at both residencies."""
    base = Values({s.name: s.baseline for s in SWITCHES})
    qk: dict[str, str] = {"gemms": "qk", "softmax": "none"}
    f32, f16 = ((base.replace(acc_dtype=acc), base.replace(acc_dtype=acc, **qk)) for acc in ("f32", "f16"))
    alone = base.replace(resident=1)
    return {
        "full": (*f32, *f16, alone),
        "sets": (
            *(levels.replace(accumulators=n) for levels in (*f32, f16[0]) for n in (2, 4)),
            f16[1].replace(accumulators=4),
        ),
        "order": (base.replace(order="ahead"), alone.replace(order="ahead")),
    }


STUDY = Study(
    name="chains",
    question=__doc__,
    template="chains.cu.j2",
    switches=SWITCHES,
    problems=("waves",),
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
    contract=common.contract_without_spills,
    legend=LEGEND,
    parallel=("accumulators", "resident"),
    residency=common.resident,
)
