"""The frozen values: mappings that keep order and hash, switches that cannot contradict themselves, bf16."""

from __future__ import annotations

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import errors
from harness.errors import AblationError, StudyError
from harness.floats import as_float64, to_bfloat16
from harness.model import STATUSES, Launch, Switch, Values
from tests.studies import ATTENTION, STUDIES, case_of

ITEMS = st.dictionaries(st.text(min_size=1, max_size=4), st.integers() | st.text(max_size=4), max_size=5)


@given(ITEMS)
def test_values_are_a_frozen_mapping_that_keeps_its_order(items: dict[str, int | str]) -> None:
    values = Values(items)
    assert dict(values) == items and list(values) == list(items) and len(values) == len(items)
    assert values == Values(items) and hash(values) == hash(Values(items))
    assert pickle.loads(pickle.dumps(values)) == values == copy.deepcopy(values)
    with pytest.raises(AttributeError, match="frozen"):
        values.anything = 1  # type: ignore[attr-defined]
    assert repr(values).startswith("Values(")


@given(ITEMS, st.data())
def test_replace_changes_one_and_copies_the_rest(items: dict[str, int | str], data: st.DataObject) -> None:
    values = Values(items)
    if items:
        name = data.draw(st.sampled_from(sorted(items)))
        changed = values.replace(**{name: "new"})
        assert changed[name] == "new" and list(changed) == list(values)
        assert {k: v for k, v in changed.items() if k != name} == {
            k: v for k, v in items.items() if k != name
        }
    assert dict(values) == items


def test_an_unknown_name_is_named_with_the_known_ones() -> None:
    with pytest.raises(StudyError, match="no such name: b, c; there are a"):
        Values(a=1).replace(b=2, c=3)


def test_numbers_and_words_are_told_apart() -> None:
    values = Values(n=3, w="x")
    assert values.number("n") == 3 and values.word("w") == "x"
    with pytest.raises(StudyError, match="w is 'x', not a number"):
        values.number("w")
    with pytest.raises(StudyError, match="n is 3, not a word"):
        values.word("n")


def test_a_switch_cannot_contradict_itself() -> None:
    good = Switch(name="s", levels=("a", "b"), baseline="a", strips=("b",), label="s", meaning="m")
    assert good.is_part and not replace(good, strips=()).is_part
    with pytest.raises(StudyError, match="switch s: 'c' is not among its levels"):
        replace(good, baseline="c")
    with pytest.raises(StudyError, match="switch s: 'c' is not among its levels"):
        replace(good, strips=("c",))
    with pytest.raises(StudyError, match="the baseline 'a' cannot strip"):
        replace(good, strips=("a",))


def test_an_unknown_switch_is_named_with_the_known_ones() -> None:
    with pytest.raises(StudyError, match="study attention has no switch 'x'; it has dtype, head_dim"):
        ATTENTION.switch("x")
    for study in STUDIES.values():
        assert all(study.switch(name).baseline == level for name, level in study.baseline.items())


def test_values_cannot_be_set_and_travel_between_processes() -> None:
    case = case_of(ATTENTION)
    with pytest.raises(FrozenInstanceError):
        case.name = "x"  # type: ignore[misc]
    assert pickle.loads(pickle.dumps(case)) == case and str(case) == f"attention/{case.name}"
    assert Launch(grid=(2, 3, 4), block=32, shared_bytes=0, arguments=()).ctas == 24


def test_every_error_has_a_status_that_a_record_can_have_and_travels() -> None:
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, AblationError)]
    assert len(kinds) >= 12
    for kind in kinds:
        error = pickle.loads(pickle.dumps(kind("what is wrong", detail="a log")))
        assert type(error) is kind and error.status in STATUSES
        assert (error.message, error.detail, str(error)) == ("what is wrong", "a log", "what is wrong")


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bf16_is_the_nearest_and_of_two_the_even(value: float) -> None:
    bits = to_bfloat16(np.array([value], np.float32))
    got = float(as_float64(bits)[0])
    if abs(value) >= 3.3961775292304e38:
        assert abs(got) == math.inf or abs(got) > 3.3e38
        return
    exponent = math.frexp(value)[1] - 1 if value else 0
    unit = Fraction(2) ** max(exponent - 7, -133)
    assert Fraction(got) == round(Fraction(value) / unit) * unit


@given(st.integers(0, 0x7F7E), st.booleans())
def test_between_two_bf16_numbers_the_even_one_wins(bits: int, negative: bool) -> None:
    word = np.array([bits << 16 | 0x8000 | negative << 31], np.uint32)
    assert to_bfloat16(word.view(np.float32))[0] == bits + bits % 2 + (negative << 15)


@given(st.integers(0, 0xFFFF))
def test_every_bf16_number_is_itself(bits: int) -> None:
    value = as_float64(np.array([bits], np.uint16))
    if np.isfinite(value[0]):
        assert to_bfloat16(value.astype(np.float32))[0] == bits


def test_halves_and_floats_widen_exactly() -> None:
    for dtype in (np.float16, np.float32):
        array = np.array([0.1, -3.0, 65504.0], dtype)
        assert as_float64(array).dtype == np.float64 and (as_float64(array) == array).all()
