"""16-bit floats as NumPy holds them: float16 as itself, bf16, which NumPy lacks, as its bits in uint16."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from harness.model import Array


def as_float64(array: Array) -> NDArray[np.float64]:
    """The values of a float16, float32, or bf16-bits (uint16) array as float64."""
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def to_bfloat16(values: Array) -> NDArray[np.uint16]:
    """Finite float32 values rounded to nearest even bf16, as uint16 bits."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
