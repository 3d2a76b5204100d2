"""The NumPy references against slow, independent derivations, and what their bounds let pass."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from warp import Warp

from ablations import _attention
from ablations import _attention_reference as attention_reference
from harness.check.verify import compare
from harness.floats import as_float64
from harness.model import Array, Case, Expected, Inputs, Study, Values, Where
from tests.studies import ATTENTION, INSTRUCTION, MAIN, case_of, name_of, stored

H200 = Where(sms=132, ctas_per_sm=2)
EVERY_CASE = pytest.mark.parametrize(("study", "case"), MAIN, ids=name_of)
ATTENTION_CASES = [case for study, case in MAIN if study is ATTENTION]
WITHOUT_SOFTMAX = [c for c in ATTENTION_CASES if c.levels["softmax"] in ("none", "pack_only")]
STRIPPED = {"gmem_copy": "stripped", "barriers": "stripped"}
# What a strip computes is the study's own business.
STRIPPED_ONES = [
    (study, case) for study, case in MAIN if any(case.levels[s.name] in s.strips for s in study.switches)
]
NARROW = ATTENTION.configurations(ATTENTION.baseline.replace(accumulators=2))[0]


def reference(
    case: Case, seqlen: int, fill: str = "normal", *, seed: int = 3, heads: int = 1
) -> tuple[Inputs, Mapping[str, Expected]]:
    sizes = Values(batch=1, heads=heads, seqlen=seqlen)
    inputs = ATTENTION.inputs(case, sizes, fill, seed)
    return inputs, ATTENTION.reference(case, sizes, inputs, None)


def naive(q: Array, keys: list[Array], values: list[Array]) -> tuple[list[list[float]], list[float]]:
    """Softmax attention of each row over a list of keys, one number at a time; and ln of the row's sum."""
    outputs, logs = [], []
    for row in as_float64(q):
        scores = [float(np.dot(row, key)) / math.sqrt(len(row)) for key in keys]
        weights = [math.exp(score) for score in scores]
        total = math.fsum(weights)
        columns = zip(*values, strict=True)
        outputs.append([math.fsum(w * x for w, x in zip(weights, c, strict=True)) / total for c in columns])
        logs.append(math.log(total))
    return outputs, logs


# ---- softmax attention ---------------------------------------------------------------------------------


@settings(max_examples=15, deadline=None)
@given(
    seqlen=st.integers(1, 90),
    head_dim=st.sampled_from([64, 128]),
    dtype=st.sampled_from(["fp16", "bf16"]),
    level=st.sampled_from(["full", "no_max"]),
)
def test_full_is_softmax_attention(seqlen: int, head_dim: int, dtype: str, level: str) -> None:
    case = case_of(ATTENTION, head_dim=head_dim, dtype=dtype, softmax=level)
    inputs, expected = reference(case, seqlen)
    k, v = (list(as_float64(inputs[name][0])) for name in ("k", "v"))
    rows = sorted({0, seqlen // 2, seqlen - 1})
    o, lse = naive(inputs["q"][0][rows], k, v)
    np.testing.assert_allclose(expected["o"].values[0, rows], o, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(expected["lse"].values[0, rows], lse, rtol=1e-9, atol=1e-12)


@settings(max_examples=12, deadline=None)
@given(seqlen=st.integers(1, 150), head_dim=st.sampled_from([64, 128]), narrow=st.booleans())
def test_stripped_copies_are_attention_over_the_last_tile_repeated(
    seqlen: int, head_dim: int, narrow: bool
) -> None:
    case = case_of(
        ATTENTION, head_dim=head_dim, gmem_copy="stripped", configuration=NARROW if narrow else None
    )
    inputs, expected = reference(case, seqlen)
    block_n = case.configuration.number("block_n")
    tiles = -(-seqlen // block_n)
    first = (tiles - 1) * block_n
    short = seqlen - first
    k, v = (as_float64(inputs[name][0][first:]) for name in ("k", "v"))
    empty = [np.zeros(head_dim)] * (block_n - short)  # keys that do not exist are zeros, masked in one tile
    keys = [*k, *(([*k, *empty]) * (tiles - 1))]
    values = [*v, *(([*v, *empty]) * (tiles - 1))]
    rows = sorted({0, seqlen - 1})
    o, lse = naive(inputs["q"][0][rows], keys, values)
    np.testing.assert_allclose(expected["o"].values[0, rows], o, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(expected["lse"].values[0, rows], lse, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("strips", [{"gmem_copy": "stripped"}, STRIPPED, {"smem_copy": "stripped"}])
@pytest.mark.parametrize("level", ["full", "no_max"])
@pytest.mark.parametrize("tiles", [1, 2, 7])
def test_row_sums_of_a_repeated_tile_grow_with_the_tiles(
    strips: dict[str, str], level: str, tiles: int
) -> None:
    case = case_of(ATTENTION, softmax=level, **strips)
    block_n = case.configuration.number("block_n")
    inputs, many = reference(case, tiles * block_n)
    last = {"q": inputs["q"][:, :block_n]} | {n: inputs[n][:, -block_n:] for n in ("k", "v")}
    one = ATTENTION.reference(case, Values(batch=1, heads=1, seqlen=block_n), last, None)
    grown = many["lse"].values[0, :block_n] - one["lse"].values[0]
    np.testing.assert_allclose(grown, math.log(tiles), atol=1e-12)
    np.testing.assert_allclose(many["o"].values[0, :block_n], one["o"].values[0], rtol=1e-9, atol=1e-14)
    # So a loop that ran one tile more or less is told apart, though O is the same.
    if tiles > 1:
        missing = many["lse"].values + math.log((tiles - 1) / tiles)
        assert (np.abs(missing - many["lse"].values) > 2 * many["lse"].bound).all()


@settings(max_examples=10, deadline=None)
@given(seqlen=st.integers(1, 300), head_dim=st.sampled_from([64, 128]), sets=st.sampled_from([2, 4]))
def test_no_max_and_sets_of_accumulators_are_the_same_function_as_full(
    seqlen: int, head_dim: int, sets: int
) -> None:
    full = case_of(ATTENTION, head_dim=head_dim, configuration=NARROW)
    _, want = reference(full, seqlen)
    for changes in ({"softmax": "no_max"}, {"accumulators": sets}):
        case = case_of(ATTENTION, head_dim=head_dim, configuration=NARROW, **changes)
        _, got = reference(case, seqlen)
        for name in ("o", "lse"):
            np.testing.assert_array_equal(got[name].values, want[name].values)


def test_barriers_change_no_value() -> None:
    with_them, without = (case_of(ATTENTION, gmem_copy="stripped", barriers=b) for b in ("kept", "stripped"))
    for name, expected in reference(with_them, 331)[1].items():
        np.testing.assert_array_equal(expected.values, reference(without, 331)[1][name].values)


# ---- fragments, register by register -------------------------------------------------------------------


@pytest.mark.parametrize("case", WITHOUT_SOFTMAX, ids=name_of)
@pytest.mark.parametrize("short", [0, 5])
def test_cases_without_softmax_are_what_a_warp_computes(case: Case, short: int) -> None:
    block_n = case.configuration.number("block_n")
    seqlen = 3 * block_n - short
    inputs, expected = reference(case, seqlen, "integers")
    q = as_float64(inputs["q"][0][:16])
    k, v = (np.pad(as_float64(inputs[name][0]), ((0, short), (0, 0))) for name in ("k", "v"))
    assert k.any() and v.any()
    np.testing.assert_array_equal(Warp(case, q, k, v).run(), expected["o"].values[0, :16])


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("sets", "narrow"), [(1, False), (1, True), (2, True), (4, True)])
def test_stripped_fragments_come_from_the_pools(head_dim: int, sets: int, narrow: bool) -> None:
    case = case_of(
        ATTENTION,
        head_dim=head_dim,
        gemms="qk",
        softmax="none",
        smem_copy="stripped",
        accumulators=sets,
        configuration=NARROW if narrow else None,
    )
    block_n = case.configuration.number("block_n")
    inputs, expected = reference(case, 2 * block_n, "integers", seed=11)
    q, k, v = (as_float64(inputs[name][0]) for name in ("q", "k", "v"))
    np.testing.assert_array_equal(Warp(case, q[:16], k, v).run(), expected["o"].values[0, :16])


def test_the_same_warp_with_a_fragment_swapped_differs() -> None:
    case = case_of(ATTENTION, softmax="none", smem_copy="stripped")
    inputs, expected = reference(case, 128, "integers")
    q, k, v = (as_float64(inputs[name][0]) for name in ("q", "k", "v"))
    warp = Warp(case, q[:16], k, v)
    warp.v_pool[2], warp.v_pool[3] = warp.v_pool[3], warp.v_pool[2]
    assert (warp.run() != expected["o"].values[0, :16]).any()


# ---- exactness and bounds ------------------------------------------------------------------------------


def sizes_to_check(study: Study, case: Case) -> dict[str, tuple[Values, tuple[int, ...] | None]]:
    found: dict[str, tuple[Values, tuple[int, ...] | None]] = {
        name: (sizes, None) for name, sizes in study.check_sizes(case).items()
    }
    return found | {"timed": (study.sizes(case, H200), (0,))}


@EVERY_CASE
def test_integers_are_compared_bit_for_bit_wherever_there_is_no_softmax(study: Study, case: Case) -> None:
    for name, (sizes, slices) in sizes_to_check(study, case).items():
        if study is INSTRUCTION and name == "timed":
            continue  # as many MMAs as fill a millisecond leave every exact range
        fill = study.fill(case, "check" if slices is None else "integers")
        if "lse" in study.outputs(case, sizes) or case.levels.get("operation") == "ex2":
            assert study.fill(case, "check") != "integers"
            return
        assert fill == "integers"
        if name == "timed" and not is_timed_exactly(study, case):
            continue
        inputs = study.inputs(case, sizes, fill, 5)
        for expected in study.reference(case, sizes, inputs, slices).values():
            assert not np.any(expected.bound), f"{name}: {sizes}"
            assert np.any(expected.values)


def is_timed_exactly(study: Study, case: Case) -> bool:
    """Whether the study insists on integers at the timed size: elsewhere the data may have a bound.

    The larger head has the larger sums."""
    return study.fill(case, "normal") == "integers" and case.levels.get("head_dim") == 128


@pytest.mark.parametrize(
    ("study", "case"),
    [p for p in MAIN if p[0] is not ATTENTION and "head_dim" in p[1].levels and p not in STRIPPED_ONES],
    ids=name_of,
)
def test_other_studies_of_the_loop_compute_what_attention_does(study: Study, case: Case) -> None:
    shared = {name: level for name, level in case.levels.items() if name in ATTENTION.baseline}
    numbers = {n: {**case.levels, **case.configuration}[n] for n in ("block_m", "block_n", "warps")}
    twin = case_of(ATTENTION, **shared, configuration=Values(numbers, stages=2, rescale=0, ctas=1))
    sizes, fill = study.check_sizes(case)["awkward"], study.fill(case, "check")
    inputs = study.inputs(case, sizes, fill, 3)
    expected = study.reference(case, sizes, inputs, None)
    want = ATTENTION.reference(twin, sizes, inputs, None)
    assert set(expected) == set(want)
    for name in want:
        np.testing.assert_allclose(expected[name].values, want[name].values, rtol=1e-12, atol=1e-14)


@settings(max_examples=40, deadline=None)
@given(
    case=st.sampled_from(ATTENTION_CASES),
    seqlen=st.integers(1, 300),
    narrow=st.booleans(),
    fill=st.sampled_from(["normal", "uniform", "zeros", "integers", "growing"]),
)
def test_bounds_are_finite_and_only_exact_values_have_none(
    case: Case, seqlen: int, narrow: bool, fill: str
) -> None:
    levels = case.levels
    configuration = NARROW if narrow else case.configuration
    if ATTENTION.constraint(levels, configuration):
        configuration = case.configuration
    fill = ATTENTION.fill(case, fill)
    case = case_of(ATTENTION, **levels, configuration=configuration)
    sizes = Values(batch=1, heads=2, seqlen=seqlen)
    inputs = ATTENTION.inputs(case, sizes, fill, 0)
    outputs = ATTENTION.outputs(case, sizes)
    found = ATTENTION.reference(case, sizes, inputs, None)
    assert set(found) == set(outputs)
    for name, expected in found.items():
        assert expected.values.shape == outputs[name].shape
        assert np.isfinite(expected.values).all()
        bound = np.broadcast_to(expected.bound, expected.values.shape)
        assert np.isfinite(bound).all() and (bound >= 0).all()
        if fill in ("normal", "uniform", "growing"):
            assert (bound[expected.values != 0] > 0).all()
    second = ATTENTION.reference(case, sizes, inputs, (1,))
    for name, expected in second.items():
        np.testing.assert_array_equal(expected.values[0], found[name].values[1])


# ---- what the bounds still catch -----------------------------------------------------------------------


def with_tiles(case: Case, inputs: Inputs, more: int) -> dict[str, Expected]:
    """What the kernel would give if its loop ran over so many tiles more (the first ones twice) or fewer.

    For lengths of whole tiles."""
    block_n = case.configuration.number("block_n")
    fill = "integers" if as_float64(inputs["q"]).max() == 1 else "normal"
    heads = []
    for q, k, v in zip(inputs["q"], inputs["k"], inputs["v"], strict=True):
        head = attention_reference.prepare(case, q, k, v, fill)
        keys, values = (
            (np.concatenate([x[: more * block_n], x]) if more > 0 else x[-more * block_n :])
            for x in (head.k, head.v)
        )
        head = replace(head, k=keys, v=values, seqlen=max(len(q), len(keys)))
        heads.append(attention_reference.expected(case, head, _attention.score_scale(case)))
    return {
        name: Expected(values=np.stack([head[name].values for head in heads]), bound=0.0) for name in heads[0]
    }


def caught(case: Case, sizes: Values, fill: str, more: int) -> bool:
    """Whether the right kernel passes, and one with another number of tiles does not."""
    inputs = ATTENTION.inputs(case, sizes, fill, 9)
    expected = ATTENTION.reference(case, sizes, inputs, None)
    assert compare(stored(expected, ATTENTION, case, sizes), expected).passed
    return not compare(stored(with_tiles(case, inputs, more), ATTENTION, case, sizes), expected).passed


@pytest.mark.parametrize("case", ATTENTION_CASES, ids=name_of)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_loop_of_one_tile_more_or_less_is_caught(case: Case, more: int) -> None:
    assert caught(case, ATTENTION.check_sizes(case)["small"], ATTENTION.fill(case, "check"), more)


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({}, -1),
        ({"dtype": "bf16"}, 1),
        ({"softmax": "no_max"}, 1),
        ({"softmax": "none"}, -1),
        ({"gmem_copy": "stripped"}, -1),
        ({"smem_copy": "stripped", "softmax": "pack_only"}, 1),
        ({"gemms": "qk", "softmax": "none"}, -1),
        # fp16 sums are coarse: what is one tile of 64 there, only the smaller sizes tell.
        ({"acc_dtype": "f16"}, -8),
    ],
    ids=str,
)
def test_a_lost_tile_is_caught_at_the_timed_size_too(changes: dict[str, str], more: int) -> None:
    case = case_of(ATTENTION, **changes)
    sizes = ATTENTION.sizes(case, H200).replace(heads=1)
    assert caught(case, sizes, ATTENTION.fill(case, "normal"), more)


@pytest.mark.parametrize("case", [c for s, c in MAIN if s is INSTRUCTION], ids=name_of)
@pytest.mark.parametrize("more", [-1, 1])
def test_a_loop_of_one_trip_more_or_less_is_caught(case: Case, more: int) -> None:
    for sizes in INSTRUCTION.check_sizes(case).values():
        inputs = INSTRUCTION.inputs(case, sizes, "integers", 9)
        expected = INSTRUCTION.reference(case, sizes, inputs, None)
        assert compare(stored(expected, INSTRUCTION, case, sizes), expected).passed
        other = sizes.replace(trips=sizes.number("trips") + more)
        wrong = stored(INSTRUCTION.reference(case, other, inputs, None), INSTRUCTION, case, other)
        assert not compare(wrong, expected).passed
