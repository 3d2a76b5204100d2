"""Would copying K and V in chunks of the head dimension, or in more stages, hide the copies better?

FlashAttention-2 keeps one buffer for K and one for V: V is copied under Q K^T, the next K under the softmax
and P V. The proposal: cut both into chunks of columns, so that the copy of one half buffer runs under the
MMAs of the other (`chunks`: 1, 2, 4). The usual answer: more buffers for whole tiles (`stages`: 1, 2, 3).

All arrangements are one loop: a ring of 2 x stages buffers, each for one chunk. For each chunk: wait for it,
barrier, start the copy of the chunk that is one ring less one ahead (into the buffer read just before),
multiply. So chunks=1 with stages=1 is FA2's arrangement, with two barriers a tile; chunks=2 with stages=2
has the same memory in halves. K in chunks of columns are the steps of Q K^T one part after another, V in
chunks the columns of O; the weights are then kept for the later chunks.

Expectation: the proposal gains at most what FA2's arrangement loses to its copies, the cost of `gmem_copy`
at chunks=1, stages=1, a few per cent. With two half buffers a copy has half the MMAs to hide under and there
are twice the barriers: that loses. Two stages gain what is to be gained, three nothing more. Where an SM has
100 KB of shared memory (compute capability 8.6, 8.9, 12.0) a second stage of whole tiles costs a CTA and
loses, while halves in two stages (the memory of FA2's two buffers) keep it: there the proposal is the better
way to a second stage."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

import numpy as np

from ablations import _attention as common
from ablations import _attention_reference as attention_reference
from ablations._attention_switches import SWITCHES as ATTENTION_SWITCHES
from harness.model import (
    Array,
    Case,
    Contract,
    Expected,
    Inputs,
    Launch,
    OutputSpec,
    Study,
    Switch,
    Values,
    Where,
    Work,
)

SWITCHES = (
    Switch(
        name="head_dim", levels=(64, 128), baseline=128, label="head dim", meaning="columns of Q, K, V and O"
    ),
    Switch(
        name="chunks",
        levels=(1, 2, 4),
        baseline=1,
        label="chunks",
        meaning="parts that a tile of K, and one of V, is copied and multiplied in",
    ),
    Switch(
        name="stages",
        levels=(1, 2, 3),
        baseline=1,
        label="stages",
        meaning="buffers of one chunk in the ring, divided by 2",
    ),
    Switch(
        name="gmem_copy",
        levels=("kept", "stripped"),
        baseline="kept",
        strips=("stripped",),
        label="gmem copy",
        meaning="global to shared copies; stripped: each buffer is filled once and read by every iteration",
    ),
)

LEGEND = {
    **{f"chunks={n}": "the same result as full" for n in (2, 4)},
    **{f"stages={n}": "the same result as full" for n in (2, 3)},
    "gmem_copy=stripped": "attention over one tile, once per tile: the last one, made of the chunks that fit "
    "into the ring (K's first); row sums grow with it",
}

_TILES = {
    64: Values(block_m=128, block_n=64, warps=4, rescale=0, ctas=2),
    128: Values(block_m=128, block_n=32, warps=4, rescale=8, ctas=2),
}
_NARROWEST = 32  # columns of a chunk


def configurations(levels: Values) -> tuple[Values, ...]:
    """The tile of the attention study's full."""
    return (_TILES[levels.number("head_dim")],)


def constraint(levels: Values, configuration: Values) -> str | None:
    """Why a combination cannot exist."""
    if levels.number("head_dim") // levels.number("chunks") < _NARROWEST:
        return "ldmatrix cannot read rows of 32 bytes without bank conflicts, which chunks of 16 columns are"
    return None


def full_of(levels: Values) -> Values:
    """FA2's arrangement with its copies."""
    return levels.replace(chunks=1, stages=1, gmem_copy="kept")


def sets() -> Mapping[str, tuple[Values, ...]]:
    """FA2's arrangement, the proposal, more stages, and each without its copies."""
    base = Values({s.name: s.baseline for s in SWITCHES})
    short = base.replace(head_dim=64)
    bare = base.replace(gmem_copy="stripped")
    return {
        "full": (base, short),
        "strips": (bare,),
        "chunks": (
            base.replace(chunks=2),
            base.replace(chunks=4),
            base.replace(chunks=2, stages=2),
            short.replace(chunks=2),
        ),
        "stages": (base.replace(stages=2), base.replace(stages=3)),
        "without copies": (bare.replace(chunks=2), bare.replace(chunks=4), bare.replace(stages=2)),
    }


def as_attention(case: Case) -> Case:
    """The same case in the words of the attention study."""
    fixed = {switch.name: switch.baseline for switch in ATTENTION_SWITCHES}
    return replace(case, levels=Values({**fixed, **case.levels}))


def _units(case: Case) -> tuple[int, int]:
    """Chunks of a tile's K and V, and those of them that the ring holds."""
    units = 2 * case.levels.number("chunks")
    return units, min(units, 2 * case.levels.number("stages"))


def sizes(case: Case, where: Where) -> Values:
    """As the attention study's."""
    return common.sizes(as_attention(case), where)


def fill(case: Case, wanted: str) -> str:
    """As the attention study's."""
    return common.fill(as_attention(case), wanted)


def inputs(case: Case, problem_sizes: Values, filling: str, seed: int) -> Inputs:
    """q, k, v: [batch x heads, seqlen, head_dim], float16."""
    return common.inputs(as_attention(case), problem_sizes, filling, seed)


def outputs(case: Case, problem_sizes: Values) -> Mapping[str, OutputSpec]:
    """o [batch x heads, seqlen, head_dim], float16, and lse [batch x heads, seqlen]."""
    return common.outputs(as_attention(case), problem_sizes)


def reference(
    case: Case, problem_sizes: Values, arrays: Inputs, slices: tuple[int, ...] | None
) -> Mapping[str, Expected]:
    """Attention; without copies, over the tile that the ring holds."""
    return common.reference(as_attention(case), problem_sizes, arrays, slices, prepare)


def prepare(case: Case, q: Array, k: Array, v: Array, filling: str) -> attention_reference.Slice:
    """The operands that the kernel really multiplies: without copies, chunk i of a tile comes from buffer i
    modulo their number, which holds chunk i of the last tile."""
    head = attention_reference.prepare(case, q, k, v, filling)
    if case.levels["gmem_copy"] == "kept":
        return head
    chunks, block_n = case.levels.number("chunks"), common.number(case, "block_n")
    units, held = _units(case)
    columns = head.k.shape[1] // chunks
    last = np.hstack((head.k[-block_n:], head.v[-block_n:]))
    read = last.reshape(block_n, units, columns)[:, np.arange(units) % held]
    tile_k, tile_v = read[:, :chunks].reshape(block_n, -1), read[:, chunks:].reshape(block_n, -1)
    tiles = len(head.k) // block_n
    return replace(head, k=np.tile(tile_k, (tiles, 1)), v=np.tile(tile_v, (tiles, 1)))


def reference_key(case: Case) -> Hashable:
    """Every arrangement computes the same; without copies, what the ring holds decides."""
    made_of = None if case.levels["gmem_copy"] == "kept" else (case.levels["chunks"], _units(case))
    return case.configuration, case.levels["head_dim"], made_of


def _chunk_bytes(case: Case) -> int:
    return 2 * common.number(case, "block_n") * case.levels.number("head_dim") // case.levels.number("chunks")


def launch(case: Case, problem_sizes: Values) -> Launch:
    """One CTA per block_m rows of a head."""
    q_bytes = 2 * common.number(case, "block_m") * case.levels.number("head_dim")
    ring_bytes = 2 * case.levels.number("stages") * _chunk_bytes(case)
    return replace(common.launch(as_attention(case), problem_sizes), shared_bytes=q_bytes + ring_bytes)


def work(case: Case, problem_sizes: Values) -> Work:
    """As the attention study's; without copies, what the ring holds is read once."""
    found = common.work(as_attention(case), problem_sizes)
    if case.levels["gmem_copy"] == "kept":
        return found
    units, held = _units(case)
    never_read = launch(case, problem_sizes).ctas * (units - held) * _chunk_bytes(case)
    return replace(found, gmem_bytes=found.gmem_bytes - never_read)


def contract(case: Case) -> Contract:
    """What one iteration holds: as the attention study's, and a barrier for each chunk."""
    is_full = case.levels == full_of(case.levels)
    found = common.contract(as_attention(case), spill_free=is_full)
    return replace(found, counts={**found.counts, "BAR": _units(case)[0]})


STUDY = Study(
    name="pipelining",
    question=__doc__,
    template="pipelining.cu.j2",
    switches=SWITCHES,
    problems=("waves",),
    configurations=configurations,
    sets=sets,
    constraint=constraint,
    full_of=full_of,
    sizes=sizes,
    check_sizes=common.check_sizes,
    fill=fill,
    inputs=inputs,
    outputs=outputs,
    reference=reference,
    launch=launch,
    work=work,
    contract=contract,
    legend=LEGEND,
    reference_key=reference_key,
)
