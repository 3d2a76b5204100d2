"""From a study's sets to cases: order, fulls, skips, ceilings, and selection by glob."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cases import CEILING, default_cases, full_case, make_case, nearest, select
from harness.errors import StudyError, UsageError
from harness.model import Study, Switch, Values
from tests.studies import ATTENTION, INSTRUCTION

COPY = Switch(
    name="copy",
    levels=("kept", "stripped"),
    baseline="kept",
    strips=("stripped",),
    label="c",
    meaning="a copy",
)
WIDTH = Switch(name="width", levels=(1, 2, 3), baseline=1, label="w", meaning="a width")
SMALL, LARGE = Values(tile=16), Values(tile=32)


def study_of(*levels: Values, **more: object) -> Study:
    """Two switches, two configurations, one set with these levels."""
    made = {
        "name": "s",
        "switches": (COPY, WIDTH),
        "problems": ("waves", "paper"),
        "configurations": lambda _: (SMALL, LARGE),
        "sets": lambda: {"full": levels},
        "constraint": lambda values, c: "three is too wide for this" if values["width"] == 3 else None,
        "full_of": lambda values: values.replace(copy="kept"),
    }
    return replace(INSTRUCTION, **{**made, **more})  # type: ignore[arg-type]


BASE = Values(copy="kept", width=1)


def names(study: Study, problem: str = "") -> list[tuple[str, str]]:
    return [(case.set_name, case.name) for case in default_cases(study, problem)]


def test_a_full_that_nobody_asked_for_comes_before_its_case_and_ceilings_come_last() -> None:
    stripped = BASE.replace(copy="stripped")
    study = study_of(sets=lambda: {"strips": (stripped,), "sweep": (stripped.replace(width=2),)})
    assert names(study) == [
        ("full", "full@t16"),
        ("strips", "copy=stripped@t16"),
        ("full", "width=2@t16"),
        ("sweep", "copy=stripped,width=2@t16"),
        (CEILING, "copy=stripped@t32"),
        (CEILING, "copy=stripped,width=2@t32"),
    ]


def test_the_first_mention_of_a_case_decides_its_set() -> None:
    study = study_of(sets=lambda: {"full": (BASE,), "again": (BASE, BASE.replace(width=2))})
    assert names(study)[:2] == [("full", "full@t16"), ("full", "width=2@t16")]


def test_a_combination_that_cannot_exist_is_a_row_but_no_ceiling() -> None:
    cases = default_cases(study_of(BASE, BASE.replace(width=3)))
    assert [(c.name, c.skip) for c in cases] == [
        ("full@t16", None),
        ("width=3@t16", "three is too wide for this"),
        ("full@t32", None),
    ]


def test_the_full_of_a_ceiling_case_is_that_of_the_case_whose_ceiling_it_is() -> None:
    study = study_of(BASE.replace(copy="stripped"))
    ceiling = default_cases(study)[-1]
    assert ceiling.configuration == LARGE and full_case(study, ceiling).configuration == SMALL


def test_another_problem_is_in_the_name_and_in_the_full() -> None:
    study = study_of(BASE.replace(copy="stripped"))
    assert names(study, "paper")[0] == ("full", "full@t16+paper")
    assert {case.problem for case in default_cases(study, "paper")} == {"paper"}
    assert {case.problem for case in default_cases(study)} == {"waves"}


def test_an_unknown_level_is_named_with_the_known_ones() -> None:
    with pytest.raises(StudyError, match="s: width has no level 4; its levels are 1, 2, 3"):
        make_case(study_of(), BASE.replace(width=4), SMALL, set_name="full")


def test_globs_match_names_and_whole_names_and_keep_the_order() -> None:
    cases = default_cases(ATTENTION)
    chosen = select(cases, ["gemms=*", "attention/full@m128*"])
    assert [c for c in cases if c in chosen] == list(chosen)
    assert {c.name.partition("@")[0].partition("=")[0] for c in chosen} == {"full", "gemms"}
    assert select(cases, ["*", "full*"]) == cases and select(cases, []) == ()


def test_a_glob_that_matches_nothing_gets_the_nearest_names() -> None:
    with pytest.raises(UsageError, match=r"no case matches 'ful1@\*'; choose from full@m128n64"):
        select(default_cases(ATTENTION), ["full*", "ful1@*"])
    with pytest.raises(
        UsageError, match=r"no case matches 'chain=1,warps=1'; did you mean .*chains=1,warps=1"
    ):
        select(default_cases(INSTRUCTION), ["chain=1,warps=1"])


@given(st.text(max_size=12), st.lists(st.text(min_size=1, max_size=8), max_size=30))
def test_advice_names_only_choices(word: str, choices: list[str]) -> None:
    advice = nearest(word, choices)
    assert advice.startswith(("did you mean ", "choose from "))
    assert any(choice in advice for choice in choices) or not choices
