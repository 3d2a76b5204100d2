"""The public thread that the suite answers, step by step, and what each study expects, as ranges to check."""

from __future__ import annotations

from ablations import attention, chains, instruction, occupancy, pipelining
from harness.model import Level, Study
from harness.story import Claim, Spot, Step, Story

# A change that no verdict would name: under 5 % of full.
LITTLE = 5.0


def _spot(study: Study, **changes: Level) -> Spot:
    return Spot(study=study.name, levels=dict(study.baseline.replace(**changes)))


def _both(**changes: Level) -> tuple[Spot, ...]:
    return tuple(_spot(attention.STUDY, head_dim=dim, **changes) for dim in (64, 128))


_NO_COPIES: dict[str, Level] = {"gmem_copy": "stripped", "barriers": "stripped", "smem_copy": "stripped"}

STEPS = (
    Step(
        title="full",
        text="FlashAttention-2's forward main loop, with two stages of whole tiles and one barrier a "
        "tile; nothing stripped.",
        spots=_both(),
    ),
    Step(
        title="no global copies",
        text="The first thing removed: `cp.async` goes, the loop reads one tile again and again.",
        spots=_both(gmem_copy="stripped"),
    ),
    Step(
        title="no global copies, no barriers",
        text="Nothing writes shared memory any more, so the barriers may go too.",
        spots=_both(gmem_copy="stripped", barriers="stripped"),
    ),
    Step(
        title="no shared copies",
        text="`ldmatrix` goes, the operands stay in registers.",
        spots=_both(smem_copy="stripped"),
    ),
    Step(
        title="no copies at all",
        text="Both kinds removed; the softmax is what remains beside the MMAs.",
        spots=_both(gmem_copy="stripped", smem_copy="stripped"),
    ),
    Step(
        title="no softmax but its conversion",
        text="Maximum, exponential and sum go, the conversion to fp16 stays.",
        spots=_both(softmax="pack_only"),
    ),
    Step(title="no softmax at all", text="The conversion goes, too.", spots=_both(softmax="none")),
    Step(
        title="one GEMM alone",
        text="Only S = Q K^T is left, with no copies, barriers or softmax, against the same GEMM with them.",
        spots=_both(gemms="qk", softmax="none", **_NO_COPIES),
    ),
    Step(
        title="two accumulator sets",
        text="The chain over k is cut in two, on a tile where two sets fit.",
        spots=_both(accumulators=2),
    ),
    Step(
        title="fp16 accumulators",
        text="The other instruction; everything else as in full.",
        spots=_both(acc_dtype="f16"),
        against=_both(),
    ),
)


def _attention_claims() -> tuple[Claim, ...]:
    claims: list[Claim] = []
    for dim in (64, 128):
        full, bare = (_spot(attention.STUDY, head_dim=dim, gmem_copy=c) for c in ("kept", "stripped"))
        soft = _spot(attention.STUDY, head_dim=dim, softmax="none")
        smem = _spot(attention.STUDY, head_dim=dim, smem_copy="stripped")
        where = f"head dim {dim}"
        claims += [
            Claim(
                text=f"full is at its ceiling ({where})",
                spot=full,
                measure="own_percent",
                at_least=92,
                only="half rate",
            ),
            Claim(
                text=f"softmax costs more than ldmatrix ({where})",
                spot=soft,
                against=smem,
                at_least=0,
                only="full rate",
            ),
            Claim(
                text=f"ldmatrix costs more than the copies ({where})",
                spot=smem,
                against=bare,
                at_least=0,
                only="full rate",
            ),
            Claim(text=f"the copies cost little ({where})", spot=bare, at_most=LITTLE),
        ]
    return tuple(claims)


def _chains_claims() -> tuple[Claim, ...]:
    more = [_spot(chains.STUDY, accumulators=n) for n in (2, 4)]
    alone = _spot(chains.STUDY, resident=1, order="ahead")
    return (
        Claim(text="two sets change nothing", spot=more[0], at_least=-LITTLE, at_most=LITTLE),
        Claim(text="four sets change nothing", spot=more[1], at_least=-LITTLE, at_most=LITTLE),
        Claim(text="ahead gains at one CTA per SM", spot=alone, at_least=0),
        Claim(
            text="ahead gains nothing at three CTAs per SM",
            spot=_spot(chains.STUDY, order="ahead"),
            at_most=LITTLE,
        ),
    )


def _instruction_claims() -> tuple[Claim, ...]:
    base = _spot(instruction.STUDY)
    single = _spot(instruction.STUDY, chains=1, warps=4)
    return (
        Claim(
            text="one chain per sub-partition takes 24 cycles per MMA (683 FLOP/clk/SM)",
            spot=single,
            measure="flop_clk_sm",
            at_least=650,
            at_most=715,
            only="9.0",
        ),
        Claim(text="a few chains fill the pipe", spot=base, measure="own_percent", at_least=92),
        Claim(
            text="it fills at two thirds of wgmma's rate",
            spot=base,
            measure="chip_percent",
            at_least=64,
            at_most=68,
            only="9.0",
        ),
        Claim(
            text="fp32 accumulators reach half of fp16's rate",
            spot=base,
            against=_spot(instruction.STUDY, acc_dtype="f16"),
            at_least=-53,
            at_most=-47,
            only="half rate",
        ),
    )


def _occupancy_claims() -> tuple[Claim, ...]:
    by_warps = {n: _spot(occupancy.STUDY, warps=n) for n in (1, 2, 4, 8)}
    two = _spot(occupancy.STUDY, resident=2)
    four = _spot(occupancy.STUDY, resident=4)
    return (
        Claim(
            text="in step with the warps below 4: twice the rate from 1 to 2",
            spot=by_warps[2],
            against=by_warps[1],
            at_least=80,
            at_most=120,
        ),
        Claim(
            text="in step with the warps below 4: twice the rate from 2 to 4",
            spot=by_warps[4],
            against=by_warps[2],
            at_least=80,
            at_most=120,
        ),
        Claim(text="from 4 to 8 warps by a third or more", spot=two, against=by_warps[4], at_least=33),
        Claim(
            text="from 8 to 16 by less than half of that",
            spot=four,
            against=two,
            below=(0.5, two, by_warps[4]),
        ),
        Claim(
            text="8 warps are much the same as two CTAs of 4",
            spot=by_warps[8],
            against=two,
            at_least=-LITTLE,
            at_most=LITTLE,
        ),
        Claim(
            text="a second set gains where a sub-partition has a single warp, and little",
            spot=_spot(occupancy.STUDY, accumulators=2),
            at_least=0,
            at_most=LITTLE,
        ),
    )


def _pipelining_claims() -> tuple[Claim, ...]:
    def at(chunks: int, stages: int) -> Spot:
        return _spot(pipelining.STUDY, chunks=chunks, stages=stages)

    bare = _spot(pipelining.STUDY, gmem_copy="stripped")
    return (
        Claim(
            text="the proposal gains at most the cost of the copies", spot=at(2, 2), against=bare, at_most=0
        ),
        Claim(text="the copies cost a few per cent", spot=bare, at_least=0, at_most=2 * LITTLE),
        Claim(text="two half buffers in one stage lose", spot=at(2, 1), at_most=0),
        Claim(text="two stages gain", spot=at(1, 2), at_least=0),
        Claim(text="three stages gain nothing more", spot=at(1, 3), against=at(1, 2), at_most=LITTLE),
    )


def _proposal() -> tuple[str, str, tuple[tuple[str, Spot], ...]]:
    arrangements = [
        (f"{chunks} chunk{'s' * (chunks > 1)}, {stages} stage{'s' * (stages > 1)}", chunks, stages)
        for chunks, stages in ((1, 1), (2, 1), (4, 1), (2, 2), (1, 2), (1, 3))
    ]
    rows = [
        (name, _spot(pipelining.STUDY, chunks=chunks, stages=stages)) for name, chunks, stages in arrangements
    ]
    other = _spot(attention.STUDY, head_dim=128)
    rows.append(("study attention's loop, same tile: 2 stages of whole tiles, one barrier a tile", other))
    rows.append(("1 chunk, 1 stage, no copies at all", _spot(pipelining.STUDY, gmem_copy="stripped")))
    return (
        "What the proposal gives",
        "The thread proposes to cut K and V into chunks of the head dimension and to copy one under the "
        "MMAs of the other; the usual way is more whole tiles in flight. Both are varied here, on one loop, "
        "at head dim 128; 1 chunk with 1 stage is FlashAttention-2's arrangement. Each takes two barriers a "
        "tile or more. Two stages of whole tiles need one only, as study `attention` has them: hold the "
        "words below against its row. The last row has no copies to arrange.",
        tuple(rows),
    )


STORY = Story(
    name="thread",
    title="Why was it 50 %? The thread, run again",
    source="https://github.com/Dao-AILab/flash-attention/issues/1207",
    intro="The author of Dao-AILab/flash-attention#1207 had an attention loop at 50 % Tensor Core Active on "
    "GeForce and Orin boards, took parts away by hand, and saw 50 % every time. Here is each of those "
    "steps as a case that was checked against a reference and, where there was a GPU, timed.",
    columns=("head dim 64", "head dim 128"),
    steps=STEPS,
    ceilings={acc: _spot(instruction.STUDY, acc_dtype=acc) for acc in ("f32", "f16")},
    peaks="A loop of nothing but MMAs on registers is all that an instruction can give. On chips that "
    "accumulate fp32 at half rate, that is half of the chip's highest peak, and a profiler that divides by "
    "the latter shows 50 % for a loop that cannot go faster. Nsight Compute has both kinds of counter: "
    "`sm__ops_path_tensor_src_fp16_dst_fp32` is a share of the peak of that mode, `sm__throughput` of the "
    "chip's full rate, and the tensor pipe's instruction counter of one MMA per shortest interval. One GEMM "
    "on an RTX 4060 read 95.7, 47.4 and 23.9 % on the three (as in triton-lang/triton#10851).",
    proposal=_proposal(),
    claims={
        attention.STUDY.name: _attention_claims(),
        chains.STUDY.name: _chains_claims(),
        instruction.STUDY.name: _instruction_claims(),
        occupancy.STUDY.name: _occupancy_claims(),
        pipelining.STUDY.name: _pipelining_claims(),
    },
    predicted=(attention.STUDY.name, instruction.STUDY.name),
    chips=(
        "NVIDIA GeForce RTX 3080",
        "NVIDIA GeForce RTX 3090",
        "NVIDIA GeForce RTX 4080",
        "NVIDIA GeForce RTX 4090",
        "Jetson AGX Orin 64GB",
        "NVIDIA A100-SXM4-40GB",
    ),
)
