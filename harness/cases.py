"""Study -> cases: the sets a study names, its constraints as skip reasons, and selection by glob."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from harness.errors import StudyError, UsageError
from harness.key import case_name
from harness.model import Case, Study, Values

# The alternatives that only a measurement can rank: built where something is timed.
CEILING = "ceiling"


def make_case(
    study: Study, levels: Values, configuration: Values, *, set_name: str, problem: str = ""
) -> Case:
    """One case of a study, validated; a combination the study rules out carries its reason in `skip`."""
    for switch in study.switches:
        if levels[switch.name] not in switch.levels:
            raise StudyError(
                f"{study.name}: {switch.name} has no level {levels[switch.name]!r}; "
                f"its levels are {', '.join(map(str, switch.levels))}"
            )
    problem = problem or study.problems[0]
    return Case(
        study=study.name,
        levels=levels,
        configuration=configuration,
        problem=problem,
        name=case_name(study, levels, configuration, problem),
        set_name=set_name,
        skip=study.constraint(levels, configuration),
    )


def default_cases(study: Study, problem: str = "") -> tuple[Case, ...]:
    """Every case of the study's sets at its first configuration, with the full case each is compared with,
    then the ceiling cases (the other declared configurations). First mention wins."""
    cases: dict[str, Case] = {}
    ceilings: list[Case] = []
    for set_name, members in study.sets().items():
        for levels in members:
            first, *others = study.configurations(levels)
            case = make_case(study, levels, first, set_name=set_name, problem=problem)
            full = full_case(study, case)
            cases.setdefault(full.name, full)
            cases.setdefault(case.name, case)
            ceilings += [make_case(study, levels, c, set_name=CEILING, problem=problem) for c in others]
    for case in ceilings:
        if case.skip is None:
            cases.setdefault(case.name, case)
    return tuple(cases.values())


def full_case(study: Study, case: Case) -> Case:
    """The case that `case` is compared with: nothing stripped, same axes, at the first configuration of the
    case's levels (a ceiling case is compared with the same full as the case whose ceiling it is)."""
    first = study.configurations(case.levels)[0]
    return make_case(study, study.full_of(case.levels), first, set_name="full", problem=case.problem)


def select(cases: Sequence[Case], patterns: Iterable[str]) -> tuple[Case, ...]:
    """The cases whose `study/name` or `name` matches a glob, in the given order.

    A pattern that matches nothing raises UsageError with the nearest names.
    """
    wanted: set[str] = set()
    for pattern in patterns:
        hits = {
            str(c)
            for c in cases
            if fnmatch.fnmatchcase(c.name, pattern) or fnmatch.fnmatchcase(str(c), pattern)
        }
        if not hits:
            raise UsageError(f"no case matches {pattern!r}; {nearest(pattern, [c.name for c in cases])}")
        wanted |= hits
    return tuple(c for c in cases if str(c) in wanted)


def nearest(word: str, choices: Sequence[str]) -> str:
    """`did you mean ...` with the closest choices, or the choices themselves when few."""
    import difflib

    close = difflib.get_close_matches(word, choices, n=3, cutoff=0.4)
    if close:
        return "did you mean " + ", ".join(close) + "?"
    return "choose from " + ", ".join(choices[:12]) + (", ..." if len(choices) > 12 else "")
