"""What each stripped attention kernel computes, in float64, and how far the kernel may be from it.

One slice is one (batch, head). Arrays: q, k, v [seqlen, head_dim]; o [seqlen, head_dim] or scores [seqlen,
block_n].

Strips change the operands, not the formula:
- `gmem_copy` stripped: every tile is the last one, zero-padded to block_n keys.
- `smem_copy` stripped: every tile is built from fragments of the tile processed first (the last one): key
  tile n at step s is fragment (n + s) mod 8, value tile d at step s is fragment (d + s) mod 8, from tile 8
  on (d + 3 s) mod 8, and Q repeats its first steps.
- `softmax` no_max: the same function. pack_only: P = 16-bit(scale S). none: P = the accumulator's bits read
  as 16-bit floats.
Keys that do not exist are zero rows, masked only where a softmax sees them, and only in their own tile.

Bounds are derived: u is the unit roundoff of the inputs' type, M = sum |p| |v| (over the row sum, where
there is one), n the number of accumulations. The tensor core truncates fp32 sums (2^-23 each); fp16 sums
round to nearest (2^-11 each), for which the probabilistic bound 4 sqrt(n) 2^-11 over the size of the
partial sums stands in for the hopeless worst case."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from harness.floats import as_float64
from harness.model import Case, Expected

F64 = NDArray[np.float64]
UNIT = {"fp16": 2.0**-11, "bf16": 2.0**-8}
HALF_STEP_AT_ZERO = {"fp16": 2.0**-25, "bf16": 2.0**-134}  # of a stored output
LOG2_E = math.log2(math.e)
ROW_BLOCK = 256  # a multiple of the 16 rows of a tile
EXACT_F32, EXACT_F16 = 2.0**24, 2.0**11


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """One head's float64 operands after the strips, padded to whole tiles: q [rows, D], k and v [keys, D]."""

    q: F64
    k: F64
    v: F64
    rows: int
    seqlen: int
    integers: bool


def prepare(
    case: Case, q: NDArray[np.generic], k: NDArray[np.generic], v: NDArray[np.generic], fill: str
) -> Slice:
    """The operands that the kernel of `case` really multiplies, from one head's inputs."""
    block_n, head_dim = case.configuration.number("block_n"), case.levels.number("head_dim")
    seqlen = len(q)
    tiles = -(-seqlen // block_n)
    padded_q = _padded(as_float64(q), -(-seqlen // 16) * 16)
    keys = _padded(as_float64(k), tiles * block_n)
    values = _padded(as_float64(v), tiles * block_n)
    if case.levels["smem_copy"] == "stripped":
        pool = max(2, case.levels.number("accumulators"))
        keys = np.tile(_pooled_keys(keys[-block_n:]), (tiles, 1))
        values = np.tile(_pooled_values(values[-block_n:]), (tiles, 1))
        if case.levels["gemms"] != "pv":
            padded_q = np.tile(padded_q[:, : 16 * pool], (1, head_dim // (16 * pool)))
    elif case.levels["gmem_copy"] == "stripped":
        keys = np.tile(keys[-block_n:], (tiles, 1))
        values = np.tile(values[-block_n:], (tiles, 1))
    return Slice(q=padded_q, k=keys, v=values, rows=seqlen, seqlen=seqlen, integers=fill == "integers")


def expected(case: Case, head: Slice, scale: float) -> dict[str, Expected]:
    """{"o", and "lse" where there is a softmax}: values and bounds of one slice.

    Rows do not depend on each other (with softmax=none, not beyond their 16-row tile), so blocks of rows are
    computed one by one: a block's scores stay in the cache.
    """
    blocks = []
    for start in range(0, head.rows, ROW_BLOCK):
        rows = slice(start, start + ROW_BLOCK)
        block = replace(head, q=head.q[rows], rows=min(ROW_BLOCK, head.rows - start))
        blocks.append(_expected_rows(case, block, scale))
    return {name: _joined([block[name] for block in blocks]) for name in blocks[0]}


def _joined(blocks: list[Expected]) -> Expected:
    bounds = [np.broadcast_to(block.bound, block.values.shape) for block in blocks]
    return Expected(values=np.concatenate([block.values for block in blocks]), bound=np.concatenate(bounds))


def _expected_rows(case: Case, head: Slice, scale: float) -> dict[str, Expected]:
    """The same of one block of rows."""
    if case.levels["gemms"] == "qk":
        return {"o": _scores_summed(case, head)}
    if case.levels["gemms"] == "pv":
        p = head.q[:, : case.configuration.number("block_n")]
        return {"o": _product(case, head, np.tile(p, (1, len(head.k) // p.shape[1])))}
    if case.levels["softmax"] in ("full", "no_max"):
        return _softmax(case, head, scale)
    scores = head.q @ head.k.T
    if case.levels["softmax"] == "pack_only":
        return {"o": _product(case, head, scores * scale, score_error=_score_error(case, head) * scale)}
    if case.levels["acc_dtype"] == "f16":
        return {"o": _product(case, head, scores, score_error=_score_error(case, head))}
    return {"o": _product_of_bits(case, head, scores)}


def _padded(array: F64, rows: int) -> F64:
    return np.pad(array, ((0, rows - len(array)), (0, 0)))


def _pooled_keys(tile: F64) -> F64:
    """Key tile n (8 rows), step s (16 columns) <- fragment (n + s) mod 8 = the tile's block (i mod N, i div
    N)."""
    n_tiles, steps = tile.shape[0] // 8, tile.shape[1] // 16
    blocks = tile.reshape(n_tiles, 8, steps, 16).transpose(0, 2, 1, 3)
    n, s = np.meshgrid(np.arange(n_tiles), np.arange(steps), indexing="ij")
    i = (n + s) % 8
    pooled: F64 = blocks[i % n_tiles, i // n_tiles].transpose(0, 2, 1, 3).reshape(tile.shape)
    return pooled


def _pooled_values(tile: F64) -> F64:
    """Step s (16 rows), column tile d (8 columns) <- fragment i = the tile's block (step 0, column tile
    i)."""
    steps, d_tiles = tile.shape[0] // 16, tile.shape[1] // 8
    blocks = tile.reshape(steps, 16, d_tiles, 8).transpose(0, 2, 1, 3)
    s, d = np.meshgrid(np.arange(steps), np.arange(d_tiles), indexing="ij")
    i = (d + s * np.where(d < 8, 1, 3)) % 8
    pooled: F64 = blocks[0, i].transpose(0, 2, 1, 3).reshape(tile.shape)
    return pooled


def _steps(case: Case, head: Slice) -> tuple[int, int, int]:
    """MMAs in a row into one accumulator: of a score, of an output, and the tiles."""
    tiles = len(head.k) // case.configuration.number("block_n")
    return head.q.shape[1] // 16, len(head.k) // 16, tiles


def _score_error(case: Case, head: Slice) -> F64:
    """Largest error of a raw score, per row [rows, 1]."""
    steps = _steps(case, head)[0]
    unit = 2.0**-11 if case.levels["acc_dtype"] == "f16" else 2.0**-23
    reach = (np.abs(head.q) @ np.abs(head.k).max(axis=0))[:, None]
    error: F64 = (steps + case.levels.number("accumulators")) * unit * reach
    return error


def _accumulation_error(
    case: Case, count: int, magnitude: F64, values: F64, squares: Callable[[], F64]
) -> F64:
    """Error of `count` accumulations: over M for fp32; over the partial sums' size (value + 4 sigma) for
    fp16."""
    if case.levels["acc_dtype"] == "f32":
        return count * 2.0**-23 * magnitude
    error: F64 = 4 * math.sqrt(count) * 2.0**-11 * (np.abs(values) + 4 * np.sqrt(squares()))
    return error


def _is_exact(case: Case, head: Slice, magnitude: F64, grain: float) -> bool:
    """Whether every partial sum, in whatever order, is a multiple of `grain` that the accumulator holds
    exactly."""
    limit = EXACT_F16 if case.levels["acc_dtype"] == "f16" else EXACT_F32
    return head.integers and float(magnitude.max(initial=0.0)) <= limit * grain


def _scores_summed(case: Case, head: Slice) -> Expected:
    block_n = case.configuration.number("block_n")
    k = head.k.reshape(-1, block_n, head.k.shape[1])
    rows = slice(0, head.rows)
    values = (head.q @ k.sum(axis=0).T)[rows]
    magnitude = (np.abs(head.q) @ np.abs(k).sum(axis=0).T)[rows]
    if _is_exact(case, head, magnitude, 1.0):
        return Expected(values=values, bound=0.0)
    steps, _, tiles = _steps(case, head)
    bound = _accumulation_error(
        case, steps * tiles, magnitude, values, lambda: (head.q**2 @ (k**2).sum(axis=0).T)[rows]
    )
    return Expected(values=values, bound=bound)


def _product(case: Case, head: Slice, p: F64, score_error: F64 | None = None) -> Expected:
    """O = P V, raw; P rounded to 16 bits by the kernel where it comes from scores."""
    rows = slice(0, head.rows)
    values, magnitude = (p @ head.v)[rows], (np.abs(p) @ np.abs(head.v))[rows]
    grain = 1.0 if score_error is None or case.levels["softmax"] == "none" else 0.125
    if _is_exact(case, head, magnitude, grain):
        return Expected(values=values, bound=0.0)
    bound = _accumulation_error(
        case, _steps(case, head)[1], magnitude, values, lambda: (p**2 @ head.v**2)[rows]
    )
    if score_error is not None:
        bound = (
            bound
            + UNIT[case.levels.word("dtype")] * magnitude
            + score_error[rows] * np.abs(head.v).sum(axis=0)
        )
    return Expected(values=values, bound=bound)


def _product_of_bits(case: Case, head: Slice, scores: F64) -> Expected:
    """P = the fp32 scores' bits. Registers (c0, c1, c2, c3) of a 16x8 score tile lie where (a0, a1, a2, a3)
    are read, so row half and column parity change places; column tiles of O take turns with the two key
    tiles of a step."""
    rows, keys = scores.shape
    bits = scores.astype(np.float32).reshape(rows // 16, 2, 8, keys // 16, 2, 4, 2, 1).view(np.uint16)
    pairs = _as_half(case, bits)  # [m, row half, g, step, turn, t, parity, low/high]
    a = pairs.transpose(4, 0, 6, 2, 3, 1, 5, 7).reshape(2, rows, keys)
    v = head.v.reshape(keys, -1, 2, 8)
    out = np.stack([a[turn] @ v[:, :, turn].reshape(keys, -1) for turn in (0, 1)], axis=1)
    size = np.stack([np.abs(a[turn]) @ np.abs(v[:, :, turn].reshape(keys, -1)) for turn in (0, 1)], axis=1)
    values, magnitude = (
        x.reshape(rows, 2, -1, 8).transpose(0, 2, 1, 3).reshape(rows, -1)[: head.rows] for x in (out, size)
    )
    if _is_exact(case, head, magnitude, 2.0**-10):
        return Expected(values=values, bound=0.0)
    return Expected(values=values, bound=_steps(case, head)[1] * 2.0**-23 * magnitude)


def _as_half(case: Case, bits: NDArray[np.uint16]) -> F64:
    return as_float64(bits) if case.levels["dtype"] == "bf16" else bits.view(np.float16).astype(np.float64)


def _softmax(case: Case, head: Slice, scale: float) -> dict[str, Expected]:
    """O = P V / sum P and ln sum P, with P = exp(scale S), keys beyond seqlen masked in the last tile
    only."""
    rows = slice(0, head.rows)
    scores = (head.q[rows] @ head.k.T) * scale
    scores[:, head.seqlen :] = -np.inf
    top = scores.max(axis=1, keepdims=True)
    p = np.exp(scores - top)
    total = p.sum(axis=1, keepdims=True)
    o, magnitude = (p @ head.v) / total, (p @ np.abs(head.v)) / total
    unit = UNIT[case.levels.word("dtype")]
    _, steps, tiles = _steps(case, head)
    exponent = np.abs(scores, where=np.isfinite(scores), out=np.zeros_like(scores)).max(axis=1, keepdims=True)
    weight_error = _score_error(case, head)[rows] * scale + exponent * 2.0**-21 + 2.0**-21
    bound = (
        (unit + 2 * weight_error) * magnitude
        + _accumulation_error(case, steps + 2 * tiles, magnitude, o, lambda: (p**2 @ head.v**2) / total**2)
        + 2.0**-25 * np.abs(head.v).sum(axis=0) / total
        + unit * np.abs(o)
        + HALF_STEP_AT_ZERO[case.levels.word("dtype")]
    )
    lse = (top + np.log(total))[:, 0]
    lse_bound = weight_error[:, 0] + len(head.k) * 2.0**-24 + 2.0**-20 * np.maximum(1.0, np.abs(lse))
    return {"o": Expected(values=o, bound=bound), "lse": Expected(values=lse, bound=lse_bound)}
