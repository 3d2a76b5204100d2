"""One warp of the attention kernel, register by register and lane by lane, in loops: slow, and literal.

Written from the PTX definitions of ldmatrix and mma.sync.m16n8k16 and from the templates' text, not from the
NumPy references that it checks. Exact as long as the data are small integers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.model import Case

F64 = NDArray[np.float64]
Lanes = list[tuple[float, float]]  # of one register: two 16-bit values in each of 32 lanes
ZERO: Lanes = [(0.0, 0.0)] * 32


def ldmatrix_x4(tile: F64, rows: list[int], columns: list[int], *, transposed: bool = False) -> list[Lanes]:
    """Lane i points at row rows[i], 8 elements from columns[i]; register j of a lane comes from matrix j."""
    registers: list[Lanes] = []
    for matrix in range(4):
        held: Lanes = []
        for lane in range(32):
            pair = []
            for which in range(2):
                row, column = lane // 4, 2 * (lane % 4) + which
                if transposed:
                    row, column = column, row
                address = 8 * matrix + row
                pair.append(float(tile[rows[address], columns[address] + column]))
            held.append((pair[0], pair[1]))
        registers.append(held)
    return registers


def a_matrix(a: list[Lanes]) -> F64:
    """16 x 16 from the four A registers."""
    found = np.zeros((16, 16))
    for register in range(4):
        for lane in range(32):
            row, column = lane // 4 + 8 * (register % 2), 2 * (lane % 4) + 8 * (register // 2)
            found[row, column], found[row, column + 1] = a[register][lane]
    return found


def b_matrix(b: list[Lanes]) -> F64:
    """16 x 8 from the two B registers."""
    found = np.zeros((16, 8))
    for register in range(2):
        for lane in range(32):
            row, column = 2 * (lane % 4) + 8 * register, lane // 4
            found[row, column], found[row + 1, column] = b[register][lane]
    return found


class Warp:
    """16 rows of one head through the loop of `case`: q [16, D], k and v [keys, D] padded to whole tiles."""

    def __init__(self, case: Case, q: F64, k: F64, v: F64) -> None:
        self.case, self.q, self.k, self.v = case, q, k, v
        self.block_n = case.configuration.number("block_n")
        self.n_tiles, self.d_tiles = self.block_n // 8, q.shape[1] // 8
        self.tiles = len(k) // self.block_n
        self.stripped = case.levels["smem_copy"] == "stripped"
        if self.stripped:
            self._fill_pools(k[-self.block_n :], v[-self.block_n :])

    def _fill_pools(self, k: F64, v: F64) -> None:
        """The stripped part's registers, filled once from the tile that comes first: the last."""
        lanes = range(32)
        sets = self.case.levels.number("accumulators")
        self.q_pool = [self._query(self.q, step) for step in range(max(2, sets))]
        self.k_pool: list[list[Lanes]] = []
        self.v_pool: list[list[Lanes]] = []
        for i in range(0, 8, 2):
            pair, step = i % self.n_tiles // 2, i // self.n_tiles
            held = self._keys(k, pair, step)
            self.k_pool += [held[:2], held[2:]]
            held = ldmatrix_x4(
                v, [x % 16 for x in lanes], [8 * (x // 16 + i) for x in lanes], transposed=True
            )
            self.v_pool += [held[:2], held[2:]]

    def _query(self, q: F64, step: int) -> list[Lanes]:
        lanes = range(32)
        return ldmatrix_x4(q, [x % 16 for x in lanes], [8 * (x // 16 + 2 * step) for x in lanes])

    def _keys(self, k: F64, pair: int, step: int) -> list[Lanes]:
        lanes = range(32)
        rows = [x % 8 + x // 16 * 8 + 16 * pair for x in lanes]
        return ldmatrix_x4(k, rows, [8 * (x // 8 % 2 + 2 * step) for x in lanes])

    def query(self, step: int) -> list[Lanes]:
        """A of step `step` of Q K^T."""
        return self.q_pool[step % len(self.q_pool)] if self.stripped else self._query(self.q, step)

    def keys(self, k: F64, tile: int, step: int) -> list[Lanes]:
        """B of key tile `tile` (8 keys) at that step."""
        if self.stripped:
            return self.k_pool[(tile + step) % 8]
        held = self._keys(k, tile // 2, step)
        return held[2 * (tile % 2) :][:2]

    def values(self, v: F64, tile: int, step: int) -> list[Lanes]:
        """B of column tile `tile` (8 columns) for 16 keys."""
        if self.stripped:
            return self.v_pool[(tile + step * (1 if tile < 8 else 3)) % 8]
        lanes = range(32)
        rows, columns = [x % 16 + 16 * step for x in lanes], [8 * (x // 16 + tile // 2 * 2) for x in lanes]
        held = ldmatrix_x4(v, rows, columns, transposed=True)
        return held[2 * (tile % 2) :][:2]

    def run(self) -> F64:
        """The loop: what the accumulators hold that are stored, [16, head_dim] or [16, block_n]."""
        gemms = self.case.levels["gemms"]
        output, summed = np.zeros((16, 8 * self.d_tiles)), np.zeros((16, self.block_n))
        for tile in range(self.tiles - 1, -1, -1):
            source = self.tiles - 1 if self.case.levels["gmem_copy"] == "stripped" else tile
            k, v = (x[source * self.block_n :][: self.block_n] for x in (self.k, self.v))
            scores = np.zeros((16, self.block_n))
            if gemms != "pv":
                for step in range(self.q.shape[1] // 16):
                    a = a_matrix(self.query(step))
                    for n in range(self.n_tiles):
                        scores[:, 8 * n : 8 * n + 8] += a @ b_matrix(self.keys(k, n, step))
            summed += scores
            if gemms == "qk":
                continue
            for step in range(self.block_n // 16):
                operands = self._weights(scores, step)
                for d in range(self.d_tiles):
                    a = a_matrix(operands[d % 2 * (len(operands) - 1)])
                    output[:, 8 * d : 8 * d + 8] += a @ b_matrix(self.values(v, d, step))
        return summed if gemms == "qk" else output

    def _weights(self, scores: F64, step: int) -> list[list[Lanes]]:
        """The A operands made of key tiles 2 step and 2 step + 1."""
        if self.case.levels["gemms"] == "pv":
            return [self._query(self.q, step)]
        raw = self.case.levels["softmax"] == "none" and self.case.levels["acc_dtype"] == "f32"
        registers: list[Lanes] = []
        for tile in (2 * step, 2 * step + 1):
            for half in range(2):
                for which in range(2) if raw else (None,):
                    held: Lanes = []
                    for lane in range(32):
                        row, column = lane // 4 + 8 * half, 8 * tile + 2 * (lane % 4)
                        if which is None:
                            scale = 0.125 if self.case.levels["softmax"] == "pack_only" else 1.0
                            held.append((scores[row, column] * scale, scores[row, column + 1] * scale))
                        else:
                            held.append(self._halves(scores[row, column + which]))
                    registers.append(held)
        return [registers[i : i + 4] for i in range(0, len(registers), 4)]

    def _halves(self, score: float) -> tuple[float, float]:
        """The two 16-bit floats in the bits of an fp32 score, the lower half first."""
        bits = int(np.float32(score).view(np.uint32))
        low, high = bits & 0xFFFF, bits >> 16
        if self.case.levels["dtype"] == "bf16":
            return tuple(float(np.uint32(x << 16).view(np.float32)) for x in (low, high))  # type: ignore[return-value]
        return tuple(float(np.uint16(x).view(np.float16)) for x in (low, high))  # type: ignore[return-value]
