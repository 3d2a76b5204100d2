"""Names and digests: distinct things have distinct ones, equal things equal ones."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.key import case_name, configuration_slug, digest, digest_mapping, safe_name
from harness.model import Values
from tests.studies import STUDIES, name_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("study", STUDIES.values(), ids=name_of)
def test_all_combinations_of_a_study_have_distinct_names(study: object) -> None:
    seen: dict[str, object] = {}
    for levels in itertools.product(*(s.levels for s in study.switches)):  # type: ignore[attr-defined]
        values = Values(dict(zip((s.name for s in study.switches), levels, strict=True)))  # type: ignore[attr-defined]
        for configuration in study.configurations(values):  # type: ignore[attr-defined]
            for problem in study.problems:  # type: ignore[attr-defined]
                name = case_name(study, values, configuration, problem)  # type: ignore[arg-type]
                assert seen.setdefault(name, (values, configuration, problem)) == (
                    values,
                    configuration,
                    problem,
                )
                assert re.fullmatch(r"[\w=,.@+]+", name), "a name needs no quotes in a shell"


@pytest.mark.parametrize("study", STUDIES.values(), ids=name_of)
def test_the_letters_of_a_configuration_are_distinct(study: object) -> None:
    for configuration in study.configurations(study.baseline):  # type: ignore[attr-defined]
        letters = re.findall("[a-z]", configuration_slug(configuration))
        assert len(set(letters)) == len(letters) == len(configuration)


def test_a_slug_is_initials_and_numbers() -> None:
    assert configuration_slug(Values(block_m=128, block_n=64, warps=4, stages=2)) == "m128n64w4s2"


@given(st.lists(st.text(max_size=4), max_size=4), st.lists(st.text(max_size=4), max_size=4))
def test_a_digest_tells_any_two_lists_of_parts_apart(one: list[str], other: list[str]) -> None:
    assert (digest(*one) == digest(*other)) == (one == other)


def test_a_digest_takes_text_and_bytes_alike() -> None:
    assert digest("a\N{GREEK SMALL LETTER MU}", b"b") == digest("aμ".encode(), "b")
    assert digest("ab", "") != digest("a", "b") != digest("", "ab")


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_a_digest_of_a_mapping_ignores_its_order(values: Mapping[str, object]) -> None:
    assert digest_mapping(values) == digest_mapping(dict(reversed(values.items())))


def test_a_mapping_with_nan_has_no_digest() -> None:
    with pytest.raises(ValueError, match="JSON"):
        digest_mapping({"a": float("nan")})


@given(st.text(max_size=200))
def test_any_text_has_a_safe_file_name(text: str) -> None:
    name = safe_name(text)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,79}", name) and name not in (".", "..")


@given(st.text(max_size=40), st.text(max_size=40))
def test_distinct_texts_have_distinct_file_names(one: str, other: str) -> None:
    assert (safe_name(one) == safe_name(other)) == (one == other)


def test_a_plain_name_stays_as_it_is() -> None:
    assert safe_name("sm_90a") == "sm_90a"
    assert safe_name("NVIDIA H200").startswith("NVIDIA-H200-")
