"""A whole output looked at for NaN, infinities and poison: on the host in NumPy, on the device by a small
kernel."""

from __future__ import annotations

import numpy as np

from harness.gpu.commands import Scan
from harness.model import Array

POISON_BYTE = 0xFF
# The bits of +infinity; larger magnitudes are NaN, and all ones (a NaN) is poison.
INFINITY = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}
WORD_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
# NumPy has no bfloat16: such arrays are their bits.
NUMPY_TYPE = {"float16": "float16", "bfloat16": "uint16", "float32": "float32"}

COUNTERS = 4
# counters: unwritten, NaN, infinite, first index of an unwritten or NaN element.
KERNELS = r"""
#define SCAN(NAME, WORD, ALL) \
extern "C" __global__ void NAME(const WORD* words, unsigned long long count, unsigned int infinity, \
                                unsigned long long* counters) { \
    unsigned long long unwritten = 0, nan = 0, inf = 0, first = ~0ull; \
    unsigned long long step = (unsigned long long)gridDim.x * blockDim.x; \
    unsigned long long mine = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x; \
    for (unsigned long long i = mine; i < count; i += step) { \
        unsigned int word = words[i], magnitude = word & (ALL >> 1); \
        bool poison = word == ALL, bad = poison || magnitude > infinity; \
        unwritten += poison; \
        nan += bad && !poison; \
        inf += magnitude == infinity; \
        if (bad && i < first) first = i; \
    } \
    if (unwritten) atomicAdd(counters, unwritten); \
    if (nan) atomicAdd(counters + 1, nan); \
    if (inf) atomicAdd(counters + 2, inf); \
    if (first != ~0ull) atomicMin(counters + 3, first); \
}
SCAN(scan_2, unsigned short, 0xFFFFu)
SCAN(scan_4, unsigned int, 0xFFFFFFFFu)
"""


def scan_array(array: Array, dtype: str) -> Scan:
    """Scan a host array whose elements are `dtype` (float16, bfloat16 bits, float32)."""
    words = np.ascontiguousarray(array).reshape(-1).view(f"u{WORD_BYTES[dtype]}")
    everything = (1 << 8 * WORD_BYTES[dtype]) - 1
    magnitude = words & words.dtype.type(everything >> 1)
    unwritten = words == everything
    bad = magnitude > INFINITY[dtype]
    return as_scan(
        len(words),
        (
            int(unwritten.sum()),
            int((bad & ~unwritten).sum()),
            int((magnitude == INFINITY[dtype]).sum()),
            int(bad.argmax()) if bad.any() else -1,
        ),
    )


def as_scan(elements: int, counters: tuple[int, int, int, int]) -> Scan:
    """A scan from the four counters; a first index outside the array means that there is none."""
    unwritten, nan, inf, first = counters
    first_bad = first if 0 <= first < elements else None
    return Scan(elements=elements, unwritten=unwritten, nan=nan, inf=inf, first_bad=first_bad)
