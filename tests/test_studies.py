"""Every default case of every study: what it is called, what it renders to, what it compiles to."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path
from typing import ClassVar

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import meta

import harness.render as rendering
from harness import chips
from harness.build.build import Job, build_all
from harness.cases import CEILING, default_cases, full_case, make_case
from harness.model import Build, Case, Study, Values, Where
from harness.render import TEMPLATES, context, environment, render
from tests.studies import (
    ARCH,
    ATTENTION,
    INSTRUCTION,
    MAIN,
    PAIRS,
    STUDIES,
    case_of,
    name_of,
    sampled_targets,
    user_cache,
)

GOLDEN = Path(__file__).parent / "golden"
EVERY_STUDY = pytest.mark.parametrize("study", STUDIES.values(), ids=name_of)
EVERY_CASE = pytest.mark.parametrize(("study", "case"), PAIRS, ids=name_of)
HALF_TYPES = re.compile(r"\b(?:__half2?|half2|__nv_bfloat16\w*|_Float16|__bf16|nv_bfloat16\w*)\b")
COMMENT = re.compile(r"//.*")


def bare(text: str) -> str:
    """A kernel without its opening comment, which names every level."""
    return text[text.index("#include") :]


# ---- names and numbers ---------------------------------------------------------------------------------


def test_names_of_all_default_cases_are_distinct() -> None:
    for problem in ("", "paper"):
        names = Counter(
            str(case)
            for study in STUDIES.values()
            if problem in ("", *study.problems)
            for case in default_cases(study, problem)
        )
        assert [name for name, number in names.items() if number > 1] == []


def test_the_default_stays_within_about_sixty_cases_and_fourteen_for_each_further_study() -> None:
    numbers = Counter(study.name for study, _ in MAIN)
    assert 45 <= numbers.pop("attention") + numbers.pop("instruction") <= 75
    assert not [name for name, number in numbers.items() if number > 14]


@EVERY_STUDY
def test_a_case_has_at_most_four_configurations_and_full_comes_first(study: Study) -> None:
    assert next(iter(study.sets())) == "full"
    for case in default_cases(study):
        configurations = study.configurations(case.levels)
        assert 1 <= len(configurations) <= 4 and len(set(configurations)) == len(configurations)
        if case.set_name != "full":  # the full of such a case shares its configuration
            assert case.configuration in configurations


@EVERY_CASE
def test_each_case_is_compared_with_a_full_that_is_among_the_cases(study: Study, case: Case) -> None:
    full = full_case(study, case)
    assert full.skip is None
    assert study.full_of(full.levels) == full.levels, "the full of a full is itself"
    named = {c.name: c for c in default_cases(study)}
    assert named[full.name].levels == full.levels and named[full.name].set_name == "full"
    stripped = {s.name: s.strips for s in study.switches if s.is_part and s.name != "softmax"}
    assert not [name for name, strips in stripped.items() if full.levels[name] in strips]


@EVERY_STUDY
def test_every_reason_against_a_combination_is_a_sentence(study: Study) -> None:
    reasons: Counter[str] = Counter()
    for levels in itertools.product(*(switch.levels for switch in study.switches)):
        values = Values(dict(zip((s.name for s in study.switches), levels, strict=True)))
        for configuration in study.configurations(values):
            reason = study.constraint(values, configuration)
            assert reason is None or isinstance(reason, str)
            reasons[reason or ""] += 1
    assert reasons.pop("") > 0
    for reason in reasons:
        assert len(reason.split()) >= 6 and not reason.endswith((".", " ")) and "\n" not in reason, reason


@EVERY_STUDY
def test_every_strip_has_its_meaning_for_the_reader(study: Study) -> None:
    for switch in study.switches:
        assert switch.label and len(switch.meaning.split()) >= 2
        for level in switch.strips:
            assert f"{switch.name}={level}" in study.legend
    for entry in study.legend:
        name, _, level = entry.partition("=")
        assert level in map(str, study.switch(name).levels)


# ---- rendered text -------------------------------------------------------------------------------------


class Recording(jinja2.runtime.Context):
    """A context that remembers which names were asked for, in includes and blocks too."""

    asked: ClassVar[set[str]] = set()

    def resolve_or_missing(self, key: str) -> object:
        Recording.asked.add(key)
        return super().resolve_or_missing(key)


@EVERY_CASE
def test_a_case_uses_its_levels_its_configuration_and_nothing_else(study: Study, case: Case) -> None:
    jinja = environment()
    jinja.context_class = Recording
    Recording.asked = set()
    jinja.get_template(study.template).render(context(study, case))
    given_names = {*case.levels, *case.configuration, "entry", "perturbation", "provenance"}
    assert given_names - Recording.asked == set(), "a level or number that changes nothing"
    assert Recording.asked - given_names == set(), "a name that no case gives"


@EVERY_STUDY
def test_no_template_of_a_study_reads_a_name_that_cases_lack(study: Study) -> None:
    jinja, waiting, seen, names = environment(), [study.template], set[str](), set[str]()
    while waiting:
        template = waiting.pop()
        seen.add(template)
        assert jinja.loader is not None
        tree = jinja.parse(jinja.loader.get_source(jinja, template)[0])
        names |= meta.find_undeclared_variables(tree)
        for found in meta.find_referenced_templates(tree):
            waiting += [found] if found and found not in seen else []
        for stem in re.findall(r'"(parts/\w+_)" ~ ', (TEMPLATES / template).read_text()):
            waiting += [
                str(path.relative_to(TEMPLATES))
                for path in TEMPLATES.glob(f"{stem}*.cuh")
                if str(path.relative_to(TEMPLATES)) not in seen
            ]
    case = default_cases(study)[0]
    assert names == {*case.levels, *case.configuration, "entry", "perturbation", "provenance"}


def test_every_part_belongs_to_a_case() -> None:
    used = {place for study, case in PAIRS for place, _ in render(study, case).line_map}
    parts = {f"parts/{path.name}" for path in (TEMPLATES / "parts").iterdir()}
    assert parts - used == set(), "a part that no default case includes"


@EVERY_STUDY
def test_two_levels_of_a_switch_are_two_texts(study: Study) -> None:
    for switch in study.switches:
        texts = {
            level: bare(
                render(study, case_of(study, **{switch.name: level}, configuration=first(study))).text
            )
            for level in switch.levels
        }
        assert len(set(texts.values())) == len(switch.levels), switch.name


def first(study: Study) -> Values:
    return study.configurations(study.baseline)[0]


@EVERY_STUDY
def test_every_number_of_a_configuration_is_in_the_text(study: Study) -> None:
    configuration = first(study)
    base = bare(render(study, case_of(study)).text)
    for name in configuration:
        other = configuration.replace(**{name: configuration.number(name) + 1})
        assert bare(render(study, case_of(study, configuration=other)).text) != base, name


@EVERY_STUDY
def test_a_perturbation_is_another_text(study: Study) -> None:
    case = case_of(study)
    assert len({render(study, case, n).text for n in range(3)}) == 3


@EVERY_CASE
def test_rendered_text_is_clean(study: Study, case: Case) -> None:
    source = render(study, case)
    text, lines = source.text, source.text.split("\n")
    assert text.endswith("}\n") and "\r" not in text and "\t" not in text and "\n\n\n" not in text
    assert [line for line in lines if line != line.rstrip()] == []
    assert [line for line in lines if len(line) > 120] == []
    assert not any(mark in text for mark in ("{{", "}}", "{%", "%}", "{#", "#}", "\x02", "\x03"))
    code = COMMENT.sub("", text)
    assert not re.search(r"\basm\b", code), "PTX belongs into templates/device/ptx.cuh"
    assert not HALF_TYPES.search(code), "16-bit floats travel in u32"
    assert re.findall(r'#include "([^"]*)"', text) == ["ptx.cuh"] and "#include <" not in text
    assert 'extern "C" __global__ void' in text and len(source.line_map) == text.count("\n")
    assert "None" not in code and "True" not in code and "__syncthreads" not in code


@EVERY_CASE
def test_the_text_begins_with_which_case_it_is(study: Study, case: Case) -> None:
    opening = render(study, case).text.partition("#include")[0]
    assert all(line.startswith("// ") for line in opening.splitlines())
    for name, level in {**case.levels, **case.configuration}.items():
        assert f"{name}={level}" in re.split(r"[\s,]+", opening)


@EVERY_STUDY
def test_the_text_of_full_is_the_committed_one(study: Study, request: pytest.FixtureRequest) -> None:
    path = GOLDEN / f"{study.name}.cu"
    text = render(study, default_cases(study)[0]).text
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), (
        "the kernel of full changed: look at `git diff` after `pytest tests/test_studies.py --update-golden`"
    )


def test_a_golden_file_without_a_study_is_a_leftover() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == set(STUDIES)


# ---- sizes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("study", "case"), MAIN, ids=name_of)
@settings(max_examples=20)
@given(sms=st.integers(1, 200), ctas=st.integers(1, 16))
def test_waves_gives_whole_full_waves(study: Study, case: Case, sms: int, ctas: int) -> None:
    where = Where(sms=sms, ctas_per_sm=ctas)
    launch = study.launch(case, study.sizes(case, where))
    if study is INSTRUCTION:  # one CTA per SM, whatever would fit
        assert launch.ctas == sms
        return
    assert launch.ctas % (sms * ctas) == 0
    assert launch.ctas // (sms * ctas) >= 4


@pytest.mark.parametrize("head_dim", [64, 128])
@given(sms=st.integers(1, 200), ctas=st.integers(1, 16))
def test_paper_is_sixteen_thousand_tokens_of_two_thousand_columns(head_dim: int, sms: int, ctas: int) -> None:
    levels = ATTENTION.baseline.replace(head_dim=head_dim)
    case = make_case(ATTENTION, levels, ATTENTION.configurations(levels)[0], set_name="full", problem="paper")
    sizes = ATTENTION.sizes(case, Where(sms=sms, ctas_per_sm=ctas))
    assert sizes.number("batch") * sizes.number("seqlen") == 16384
    assert sizes.number("heads") * head_dim == 2048
    launch = ATTENTION.launch(case, sizes)
    assert launch.ctas * case.configuration.number("block_m") == 16384 * sizes.number("heads")


@EVERY_CASE
def test_work_and_launch_agree_with_the_shapes(study: Study, case: Case) -> None:
    sizes = study.sizes(case, Where(sms=7, ctas_per_sm=1))
    work, launch, contract = study.work(case, sizes), study.launch(case, sizes), study.contract(case)
    # A warp-level MMA is issued mma_count times per iteration by every warp.
    assert work.mma_per_cta == work.iterations * contract.mma_count * launch.block // 32
    # The sizes are multiples of the tile here, so every FLOP is a useful one.
    assert work.flops == work.mma_per_cta * work.flops_per_mma * launch.ctas
    names = [argument for argument in launch.arguments if isinstance(argument, str)]
    given_names = {
        *study.inputs(case, study.check_sizes(case)["small"], "zeros", 0),
        *study.outputs(case, sizes),
    }
    assert set(names) == given_names | {"stamps"} and len(names) == len(set(names))
    assert 0 < launch.block <= 1024 and launch.block % 32 == 0 and launch.grid[1] < 65536


@EVERY_STUDY
def test_check_sizes_are_small_and_awkward(study: Study) -> None:
    for case in default_cases(study):
        sizes = study.check_sizes(case)
        assert list(sizes) == ["small", "awkward"]
        if study is ATTENTION:
            tile = case.configuration
            for name in ("block_m", "block_n"):
                assert sizes["small"].number("seqlen") % tile.number(name) == 0
                assert sizes["awkward"].number("seqlen") % tile.number(name) != 0


# ---- compiled ------------------------------------------------------------------------------------------


def test_every_default_case_compiles_and_keeps_its_contract(request: pytest.FixtureRequest) -> None:
    everywhere = bool(request.config.getoption("--all-targets"))
    study_of = {str(case): study for study, case in MAIN}
    targets = sampled_targets((case for _, case in MAIN), per_arch=4, everywhere=everywhere)
    jobs = [Job(study=study_of[str(case)], case=case, arch=arch) for case, arch in targets]
    assert {job.arch for job in jobs} == set(chips.DEFAULT_ARCHS)
    results = build_all(jobs, user_cache(), limits_of=chips.limits)
    faults = [
        f"{job}: {result.broken if isinstance(result, Build) else result}"
        for job, result in zip(jobs, results, strict=True)
        if not isinstance(result, Build) or result.broken
    ]
    assert faults == []
    for job, result in zip(jobs, results, strict=True):
        assert isinstance(result, Build)
        if job.arch == ARCH and job.study is ATTENTION and result.case.configuration.get("ctas"):
            assert (result.ctas_per_sm or 0) >= result.case.configuration.number("ctas"), job


def test_ceiling_cases_are_only_other_configurations_of_main_ones() -> None:
    for study in STUDIES.values():
        levels = {c.levels for c in default_cases(study) if c.set_name != CEILING}
        for case in default_cases(study):
            assert case.set_name != CEILING or (case.levels in levels and case.skip is None)


def test_the_shared_environment_is_the_one_that_is_tested() -> None:
    assert type(rendering._shared_environment()) is type(environment())
    assert rendering._shared_environment().undefined is jinja2.StrictUndefined
