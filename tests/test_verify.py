"""Comparing outputs with references and scanning them: what is right passes, every kind of fault is named."""

from __future__ import annotations

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from harness.check.verify import POISON, compare, round_to, scan
from harness.floats import as_float64, to_bfloat16
from harness.model import Array, Expected, Values

DTYPES = ("float16", "uint16", "float32")
FINITE = st.floats(-6e4, 6e4, allow_nan=False)
ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=1, max_dims=3, max_side=5), elements=FINITE)


def stored(values: Array, dtype: str) -> Array:
    """What a perfect kernel would have written."""
    exact = round_to(np.asarray(values, np.float64), dtype)
    return to_bfloat16(exact.astype(np.float32)) if dtype == "uint16" else exact.astype(dtype)


def expect(values: object, bound: object = 0.0) -> dict[str, Expected]:
    array = np.asarray(values, np.float64)
    return {"out": Expected(values=array, bound=bound if isinstance(bound, float) else np.asarray(bound))}


@given(ARRAYS, st.sampled_from(DTYPES))
def test_the_rounded_reference_is_exact(values: Array, dtype: str) -> None:
    result = compare({"out": stored(values, dtype)}, expect(values))
    assert result.passed and result.exact
    assert (result.worst, result.message) == (0.0, "")


@given(ARRAYS, st.sampled_from(DTYPES), st.data())
def test_one_flipped_bit_anywhere_fails_exactness_and_is_found(
    values: Array, dtype: str, data: st.DataObject
) -> None:
    output = stored(values, dtype)
    place = data.draw(st.integers(0, output.size - 1))
    bits = output.reshape(-1).view(f"u{output.itemsize}")
    before = as_float64(output).reshape(-1)[place]
    bits[place] ^= 1 << data.draw(st.integers(0, 8 * output.itemsize - 1))
    result = compare({"out": output}, expect(values))
    if before == 0 and as_float64(output).reshape(-1)[place] == 0:
        assert result.passed  # only the sign of a zero
        return
    assert not result.passed
    assert result.worst == math.inf
    assert result.index == tuple(int(i) for i in np.unravel_index(place, output.shape))
    assert "want exactly" in result.message and f"1 of {output.size} elements fail" in result.message


@given(ARRAYS, st.sampled_from(DTYPES), st.floats(1e-3, 1e3), st.floats(0, 4))
def test_worst_is_the_largest_error_over_its_bound(
    values: Array, dtype: str, bound: float, factor: float
) -> None:
    got = as_float64(stored(values, dtype))
    reference = got + bound * factor * np.linspace(0, 1, got.size).reshape(got.shape)
    result = compare({"out": stored(values, dtype)}, expect(reference, bound))
    if np.isinf(round_to(reference, dtype)).any():
        assert not result.passed
        return
    ratio = np.abs(got - reference) / bound
    assert result.worst == ratio.max()
    assert result.passed == bool(ratio.max() <= 1)
    assert not result.exact
    assert result.index is not None and ratio[result.index] == ratio.max()


def test_the_message_names_place_values_and_bound() -> None:
    output = np.zeros((2, 3), np.float32)
    output[1, 2] = 1.5
    result = compare({"out": output}, expect(np.zeros((2, 3)), 0.25))
    assert (
        result.message == "out[1, 2]: got 1.5, want 0: error 1.5 is 6 x its bound 0.25; 1 of 6 elements fail"
    )
    assert (result.output, result.index, result.got, result.want, result.worst) == (
        "out",
        (1, 2),
        1.5,
        0.0,
        6.0,
    )


def test_a_failure_comes_before_a_larger_ratio_that_passes() -> None:
    outputs = {"a": np.full(2, 0.5, np.float32), "b": np.array([1.0, 2.0], np.float32)}
    expected = {
        "a": Expected(values=np.zeros(2), bound=0.5),
        "b": Expected(values=np.array([1.0, 0.0]), bound=0.0),
    }
    result = compare(outputs, expected)
    assert (result.output, result.index, result.exact) == ("b", (1,), False)
    both = compare({"a": outputs["a"] * 4, "b": outputs["b"]}, expected)
    assert "a[0]" in both.message and "b[1]" in both.message


@given(st.permutations(range(6)), st.integers(1, 6))
def test_slices_are_compared_where_they_are(order: list[int], count: int) -> None:
    output = np.arange(24, dtype=np.float32).reshape(6, 4)
    slices = tuple(order[:count])
    want = output[list(slices)].astype(np.float64)
    assert compare({"out": output}, expect(want), slices).passed
    output[slices[-1], 3] += 1
    wrong = compare({"out": output}, expect(want), slices)
    assert wrong.index == (slices[-1], 3)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [0.0, 1e30])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_never_pass_a_finite_reference(dtype: str, bound: float, value: float) -> None:
    output = stored(np.array([1.0, value, 3.0]), dtype)
    result = compare({"out": output}, expect([1.0, 2.0, 3.0], bound))
    assert (result.passed, result.worst, result.index) == (False, math.inf, (1,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bound", [0.0, 1.0])
def test_a_nan_reference_never_passes_not_even_a_nan(dtype: str, bound: float) -> None:
    nan = np.array([math.nan])
    result = compare({"out": stored(nan, dtype)}, expect(nan, bound))
    assert not result.passed
    assert "the reference is NaN" in result.message


@pytest.mark.parametrize("bound", [0.0, 1e6])
def test_an_overflowing_reference_is_its_own_error_unless_equal(bound: float) -> None:
    reference = expect([70000.0, -70000.0], bound)
    assert compare({"out": np.array([math.inf, -math.inf], np.float16)}, reference).passed
    for wrong in ([65504.0, -math.inf], [-math.inf, -math.inf], [math.nan, -math.inf]):
        result = compare({"out": np.array(wrong, np.float16)}, reference)
        assert not result.passed
        assert "70000 overflows the output's type" in result.message
        assert "error of the reference" in result.message


def test_the_overflow_threshold_is_that_of_rounding_to_nearest() -> None:
    assert compare({"out": np.array([65504], np.float16)}, expect([65519.99])).passed
    assert not compare({"out": np.array([65504], np.float16)}, expect([65520.0])).passed


def test_an_infinite_reference_passes_only_as_itself() -> None:
    low = expect([-math.inf, 1.0], 0.1)
    assert compare({"out": np.array([-math.inf, 1], np.float32)}, low).passed
    for wrong in (math.inf, math.nan, -3e38):
        assert not compare({"out": np.array([wrong, 1], np.float32)}, low).passed


@pytest.mark.parametrize("bound", [-1.0, math.nan, math.inf])
def test_a_bound_that_is_none_is_refused(bound: float) -> None:
    for one in (bound, [0.0, bound]):
        result = compare({"out": np.zeros(2, np.float32)}, expect([0.0, 0.0], one))
        assert not result.passed
        assert "bound is negative or not finite" in result.message


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(-9, 9, width=32)), st.booleans())
def test_a_bound_may_differ_from_element_to_element(values: Array, loose: bool) -> None:
    bound = np.zeros((3, 4))
    bound[1, 2] = 0.5
    moved = values.astype(np.float64)
    moved[(1, 2) if loose else (2, 1)] += 0.25
    result = compare({"out": values}, expect(moved, bound))
    assert result.passed == loose
    assert not result.exact


ZERO = np.zeros((2, 3), np.float32)


@pytest.mark.parametrize(
    ("outputs", "expected", "slices", "message"),
    [
        ({}, {}, None, "nothing was compared: the reference has no outputs"),
        ({"out": ZERO}, {}, None, "nothing was compared"),
        ({}, expect(ZERO), None, "no output out; the kernel has none"),
        ({"o": ZERO}, expect(ZERO), None, "no output out; the kernel has o"),
        ({"out": ZERO, "sums": ZERO}, expect(ZERO), None, "no reference for output sums; it has out"),
        ({"out": ZERO}, expect(ZERO.T), None, "the reference has shape (3, 2), the output (2, 3)"),
        ({"out": ZERO}, expect(0.0), None, "the reference has shape (), the output (2, 3)"),
        ({"out": ZERO}, expect(ZERO), (0,), "the reference has shape (2, 3), the output (1, 3)"),
        ({"out": ZERO}, expect(ZERO), (0, 2), "2 slices: (0, 2) do not name distinct"),
        ({"out": ZERO}, expect(ZERO), (0, -1), "do not name distinct"),
        ({"out": ZERO}, expect(ZERO), (1, 1), "do not name distinct"),
        ({"out": ZERO}, expect(ZERO), (), "do not name distinct"),
        ({"out": ZERO}, expect(ZERO, [0.0, 0.0, 0.0]), None, "the bound has shape (3,), the output (2, 3)"),
        ({"out": ZERO[:0]}, expect(ZERO[:0]), None, "nothing was compared: out has no elements"),
        ({"out": ZERO.astype(np.int32)}, expect(ZERO), None, "out is int32; an output is float16, uint16"),
    ],
)
def test_what_does_not_match_is_refused(
    outputs: dict[str, Array], expected: dict[str, Expected], slices: tuple[int, ...] | None, message: str
) -> None:
    result = compare(outputs, expected, slices)
    assert not result.passed
    assert message in result.message


def test_a_comparison_becomes_the_check_of_a_record() -> None:
    sizes = Values(seqlen=77)
    check = compare({"out": ZERO}, expect(ZERO)).check("awkward", sizes)
    assert (check.size, check.sizes, check.passed, check.exact, check.worst) == (
        "awkward",
        sizes,
        True,
        True,
        0.0,
    )


@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(DTYPES))
def test_rounding_picks_the_nearest_and_of_two_the_even(value: float, dtype: str) -> None:
    mantissa, smallest, largest = {
        "float16": (10, -24, Fraction(65504)),
        "uint16": (7, -133, Fraction(2) ** 128 - Fraction(2) ** 120),
        "float32": (23, -149, Fraction(2) ** 128 - Fraction(2) ** 104),
    }[dtype]
    exact = Fraction(value)
    exponent = math.frexp(value)[1] - 1 if value else 0
    unit = Fraction(2) ** max(exponent - mantissa, smallest)
    nearest = round(exact / unit) * unit  # Python rounds a fraction's half to even
    got = float(round_to(np.array([value]), dtype)[0])
    if abs(nearest) > largest:
        assert got == math.copysign(math.inf, value)
    else:
        assert Fraction(got) == nearest


def test_bf16_is_rounded_once_not_twice() -> None:
    # Just above the middle of 1 and 1 + 2**-7: float32 to nearest would make it the middle, and that 1.
    assert round_to(np.array([1 + 2**-8 + 2**-40]), "uint16")[0] == 1 + 2**-7


@given(ARRAYS, st.sampled_from(DTYPES), st.data())
def test_a_scan_finds_every_nan_and_unwritten_element(values: Array, dtype: str, data: st.DataObject) -> None:
    output = stored(values, dtype)
    bits = output.reshape(-1).view(f"u{output.itemsize}")
    places = data.draw(st.lists(st.integers(0, output.size - 1), unique=True))
    cut = data.draw(st.integers(0, len(places)))
    for place in places[:cut]:
        bits[place] = np.iinfo(bits.dtype).max
    for place in places[cut:]:
        bits[place] = np.iinfo(bits.dtype).max >> 1  # the NaN a GPU computes
    result = scan({"out": output})
    assert result.passed == (not places)
    assert (result.unwritten, result.nans) == (cut, len(places) - cut)
    for kind, some in (("unwritten", places[:cut]), ("NaN", places[cut:])):
        if some:
            first = ", ".join(str(int(i)) for i in np.unravel_index(min(some), output.shape))
            assert (
                f"out: {len(some)} of {output.size} elements are {kind}, the first at [{first}]"
                in result.message
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinities_and_the_largest_numbers_are_not_nan(dtype: str) -> None:
    values = np.array([math.inf, -math.inf, 65504.0, -65504.0, 0.0, -0.0, 1e-7])
    assert scan({"out": stored(values, dtype)}).passed


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_poisoned_output_that_nothing_wrote_is_all_unwritten(dtype: str) -> None:
    output = np.frombuffer(bytes([POISON]) * 4096, dtype=dtype).reshape(8, -1)
    result = scan({"out": output})
    assert (result.unwritten, result.nans) == (output.size, 0)
    assert "the first at [0, 0]" in result.message


def test_a_scan_of_nothing_or_of_a_foreign_type_fails() -> None:
    assert not scan({}).passed
    result = scan({"out": np.zeros(3)})
    assert not result.passed and "float64" in result.message


def test_a_scan_sees_arrays_that_are_not_contiguous() -> None:
    whole = np.zeros((4, 6), np.float16)
    whole[3, 2] = math.nan
    assert "the first at [1, 3]" in scan({"out": whole.T[1::1, :]}).message
    assert scan({"out": whole[:3]}).passed


def test_a_large_output_is_scanned_in_a_blink() -> None:
    output = np.zeros((64, 4096, 128), np.float16)
    output[-1, -1, -1] = math.nan
    start = time.perf_counter()
    result = scan({"out": output})
    assert time.perf_counter() - start < 2  # 0.05 s on an idle core
    assert result.nans == 1 and "[63, 4095, 127]" in result.message
