"""Output against reference, element by element, and a scan for NaN and unwritten elements. NumPy only.

Every number is compared in float64. A 16-bit output of type uint16 holds bf16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from harness.floats import as_float64
from harness.model import Array, Check, Expected, Values

POISON = 0xFF
"""The byte outputs are filled with before a launch: an element of these bytes alone was never written.

It reads as NaN in every output type, but not as the NaN that GPUs compute (0x7FFF, 0x7FFFFFFF).
"""

# Elements looked at in one go: the bits of a chunk stay in the cache, so that memory is read once.
CHUNK = 1 << 17
# The bits of infinity, above which a magnitude is NaN, for every type an output may have.
_INFINITY_BITS = {"float16": 0x7C00, "uint16": 0x7F80, "float32": 0x7F800000}
_TYPES = "an output is float16, uint16 (bf16 bits) or float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Outputs against their references.

    Args:
        worst: the largest error over its bound; inf where no bound can hold (a NaN, a bit that differs).
        exact: whether every bound was 0: equality was asked for.
        output: the one with the worst element, at `index`; None where none was compared, as `got` and `want`.
        message: why it did not pass; empty when it did.
    """

    passed: bool
    worst: float
    exact: bool
    message: str = ""
    output: str | None = None
    index: tuple[int, ...] | None = None
    got: float | None = None
    want: float | None = None

    def check(self, size: str, sizes: Values) -> Check:
        """The same as a record keeps it, for the size it was made at."""
        return Check(
            size=size,
            sizes=sizes,
            passed=self.passed,
            worst=self.worst,
            exact=self.exact,
            message=self.message,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """What a scan of whole outputs found: elements that are NaN, and elements never written."""

    passed: bool
    nans: int
    unwritten: int
    message: str = ""


def compare(
    outputs: Mapping[str, Array], expected: Mapping[str, Expected], slices: tuple[int, ...] | None = None
) -> Comparison:
    """Every element of the outputs' slices against the reference of those slices; the worst one is named.

    An element passes when |got - want| <= its bound. A bound of 0 asks for the reference rounded to the
    output's type, nearest even, bit for bit; only the sign of a zero is free. NaN never passes, an infinity
    only where the reference, rounded to the output's type, is the same one. A reference that is NaN, a bound
    that is not a finite number >= 0, a shape or name that does not match, and nothing to compare are failures
    that say so.

    Args:
        outputs: whole arrays by name, float16, uint16 (bf16 bits) or float32.
        expected: references by the same names; axis 0 holds the slices only.
        slices: which indices of axis 0 the references cover, None for all.
    """
    fault = _fault_of_names(outputs, expected)
    if fault:
        return _refused(fault)
    results: list[Comparison] = []
    for name, reference in expected.items():
        fault = _fault_of_arrays(name, outputs[name], reference, slices)
        if fault:
            return _refused(fault)
        results.append(_compare_one(name, outputs[name], reference, slices))
    worst = max(results, key=lambda one: (not one.passed, one.worst))
    return Comparison(
        passed=all(one.passed for one in results),
        worst=worst.worst,
        exact=all(one.exact for one in results),
        message="; ".join(one.message for one in results if one.message),
        output=worst.output,
        index=worst.index,
        got=worst.got,
        want=worst.want,
    )


def _refused(message: str) -> Comparison:
    return Comparison(passed=False, worst=math.inf, exact=False, message=message)


def _fault_of_names(outputs: Mapping[str, Array], expected: Mapping[str, Expected]) -> str:
    if not expected:
        return "nothing was compared: the reference has no outputs"
    if missing := sorted(expected.keys() - outputs.keys()):
        return f"no output {', '.join(missing)}; the kernel has {', '.join(sorted(outputs)) or 'none'}"
    if unproved := sorted(outputs.keys() - expected.keys()):
        return f"no reference for output {', '.join(unproved)}; it has {', '.join(sorted(expected))}"
    return ""


def _fault_of_arrays(name: str, output: Array, reference: Expected, slices: tuple[int, ...] | None) -> str:
    if output.dtype.name not in _INFINITY_BITS:
        return f"{name} is {output.dtype.name}; {_TYPES}"
    shape = output.shape
    if slices is not None:
        length = shape[0] if shape else 0
        if not slices or len(set(slices)) != len(slices) or not all(0 <= index < length for index in slices):
            return f"{name} has {length} slices: {slices} do not name distinct ones of them"
        shape = (len(slices), *shape[1:])
    if reference.values.shape != shape:
        return f"{name}: the reference has shape {reference.values.shape}, the output {shape}"
    if reference.values.size == 0:
        return f"nothing was compared: {name} has no elements"
    bound = np.asarray(reference.bound)
    if bound.ndim and bound.shape != shape:
        return f"{name}: the bound has shape {bound.shape}, the output {shape}"
    if not bool(np.all(np.isfinite(bound) & (bound >= 0))):
        return f"{name}: a bound is negative or not finite: error of the reference"
    return ""


def _compare_one(name: str, output: Array, reference: Expected, slices: tuple[int, ...] | None) -> Comparison:
    raw = output if slices is None else output[list(slices)]
    got, want = as_float64(raw), np.asarray(reference.values, dtype=np.float64)
    rounded = round_to(want, raw.dtype.name)
    bound = np.broadcast_to(np.asarray(reference.bound, dtype=np.float64), want.shape)
    ratio = _ratios(got, want, rounded, bound)
    place = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    at = tuple(int(i) for i in place)
    index = at if slices is None else (slices[at[0]], *at[1:])
    failed = int(np.count_nonzero(ratio > 1))
    exact = not bool(bound.any())
    message = ""
    if failed:
        message = _describe(
            name, index, float(got[at]), float(want[at]), float(rounded[at]), float(bound[at])
        )
        message += f"; {failed} of {ratio.size} elements fail"
    return Comparison(
        passed=not failed,
        worst=float(ratio[at]),
        exact=exact,
        message=message,
        output=name,
        index=index,
        got=float(got[at]),
        want=float(want[at]),
    )


def _ratios(
    got: NDArray[np.float64],
    want: NDArray[np.float64],
    rounded: NDArray[np.float64],
    bound: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Error over bound: 0 where got is the rounded reference, inf where nothing could make it pass."""
    with np.errstate(all="ignore"):
        ratio = np.abs(got - want) / bound
    # A bound of 0 and a reference beyond the type leave two outcomes; a NaN among the outputs leaves one.
    equality = (bound == 0) | ~np.isfinite(rounded)
    ratio = np.where(equality, np.where(got == rounded, 0.0, np.inf), ratio)
    return np.where(np.isnan(ratio), np.inf, ratio)


def _describe(
    name: str, index: tuple[int, ...], got: float, want: float, rounded: float, bound: float
) -> str:
    place = f"{name}[{', '.join(map(str, index))}]"
    if math.isnan(want):
        return f"{place}: the reference is NaN: error of the reference"
    if math.isinf(rounded) and math.isfinite(want):
        fault = f"the reference {want:.9g} overflows the output's type"
        return f"{place}: {fault} (got {got:.9g}): error of the reference"
    if bound == 0:
        return f"{place}: got {got:.9g}, want exactly {rounded:.9g}"
    if not (math.isfinite(got) and math.isfinite(want)):
        return f"{place}: got {got:.9g}, want {want:.9g}"
    error = abs(got - want)
    size = f"error {error:.3g} is {error / bound:.3g} x its bound {bound:.3g}"
    return f"{place}: got {got:.9g}, want {want:.9g}: {size}"


def round_to(values: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Float64 values rounded once, to nearest even, to float16, float32 or bf16 (uint16); as float64."""
    with np.errstate(all="ignore"):
        if dtype != "uint16":
            return values.astype(dtype).astype(np.float64)
        return as_float64(_bfloat16_bits(values))


def _bfloat16_bits(values: NDArray[np.float64]) -> NDArray[np.uint16]:
    """Bits of bf16. By way of float32 rounded to odd, because two roundings to nearest are not one."""
    near = values.astype(np.float32)
    wide = near.astype(np.float64)
    down = np.where(np.abs(wide) > np.abs(values), np.nextafter(near, np.float32(0)), near)
    bits = np.ascontiguousarray(down).view(np.uint32)
    bits = bits | (wide != values).astype(np.uint32)
    rounded: NDArray[np.uint32] = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return rounded.astype(np.uint16)


def scan(outputs: Mapping[str, Array]) -> Scan:
    """NaN and unwritten elements in whole outputs that were filled with POISON bytes before the launch.

    The message names the first place of each kind and how many there are.
    """
    if not outputs:
        return Scan(passed=False, nans=0, unwritten=0, message="nothing was scanned: there are no outputs")
    nans = unwritten = 0
    messages: list[str] = []
    for name, output in outputs.items():
        if output.dtype.name not in _INFINITY_BITS:
            messages.append(f"{name} is {output.dtype.name}; {_TYPES}")
            continue
        bare, wrong = _suspects(output)
        unwritten += len(bare)
        nans += len(wrong)
        messages += _tell(name, output, bare, "unwritten") + _tell(name, output, wrong, "NaN")
    return Scan(passed=not messages, nans=nans, unwritten=unwritten, message="; ".join(messages))


def _suspects(output: Array) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Flat indices of unwritten elements and of other NaNs."""
    word = np.dtype(f"u{output.dtype.itemsize}")
    bits = np.ascontiguousarray(output).reshape(-1).view(word)
    magnitude = word.type(np.iinfo(word).max >> 1)
    infinity = word.type(_INFINITY_BITS[output.dtype.name])
    found = [np.empty(0, np.intp)]
    for start in range(0, bits.size, CHUNK):
        bad = (bits[start : start + CHUNK] & magnitude) > infinity
        if bad.any():
            found.append(np.flatnonzero(bad) + start)
    places = np.concatenate(found)
    bare = bits[places] == np.iinfo(word).max
    return places[bare], places[~bare]


def _tell(name: str, output: Array, places: NDArray[np.intp], what: str) -> list[str]:
    if not places.size:
        return []
    first = ", ".join(str(int(i)) for i in np.unravel_index(int(places[0]), output.shape))
    return [f"{name}: {places.size} of {output.size} elements are {what}, the first at [{first}]"]
