"""`ablate list`: the studies, or the switches and cases of one."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from harness.cases import default_cases, full_case
from harness.cli.choose import check_problem, check_study, load_studies
from harness.cli.say import say, say_json, say_paragraphs, say_table
from harness.errors import UsageError
from harness.model import Case, Study
from harness.plan import matches, nearest_case


def list_studies(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """List studies, or cases when a study or a glob is given; 0."""
    studies = load_studies()
    names = (check_study(arguments.study, studies).name,) if arguments.study else tuple(studies)
    names = check_problem(names, arguments.problem, studies, named=bool(arguments.study))
    chosen = [studies[name] for name in names]
    found = {study.name: default_cases(study, arguments.problem) for study in chosen}
    cases = {name: _matching(members, arguments.case) for name, members in found.items()}
    for pattern in arguments.case:
        if not any(matches(case, pattern) for members in found.values() for case in members):
            known = [case.name for members in found.values() for case in members]
            raise UsageError(f"no case matches {pattern!r}; {nearest_case(pattern, known)}")
    if arguments.json:
        say_json({"studies": [_as_json(study, cases[study.name]) for study in chosen]})
    elif arguments.study or arguments.case:
        for study in chosen:
            _say_cases(study, cases[study.name], brief=not arguments.study)
    else:
        say_table((study.name, f"{len(cases[study.name])} cases", _headline(study)) for study in chosen)
    return 0


def _matching(cases: Sequence[Case], patterns: Sequence[str]) -> tuple[Case, ...]:
    return tuple(case for case in cases if not patterns or any(matches(case, p) for p in patterns))


def _headline(study: Study) -> str:
    return " ".join(study.question.strip().partition("\n\n")[0].split())


def _say_cases(study: Study, cases: Sequence[Case], *, brief: bool) -> None:
    if not brief:
        say_paragraphs(study.question)
        say("", "switches")
        say_table(((s.name, ", ".join(map(str, s.levels)), s.meaning) for s in study.switches), indent="  ")
        say("", "problems", f"  {', '.join(study.problems)}", "", "cases")
    indent = "" if brief else "  "
    room = max((len(case.set_name) for case in cases), default=0)
    for case in cases:
        # The name last: it may be longer than a line, and stays whole, to be copied.
        say(f"{indent}{case.set_name:<{room}}  {case if brief else case.name}")
        if case.skip:
            say_table([("", f"skipped: {case.skip}")], indent=indent + " " * (room + 2))


def _as_json(study: Study, cases: Sequence[Case]) -> dict[str, Any]:
    return {
        "name": study.name,
        "question": study.question.strip(),
        "problems": list(study.problems),
        "switches": [
            {
                "name": switch.name,
                "levels": list(switch.levels),
                "baseline": switch.baseline,
                "strips": list(switch.strips),
                "meaning": switch.meaning,
            }
            for switch in study.switches
        ],
        "cases": [case_as_json(study, case) for case in cases],
    }


def case_as_json(study: Study, case: Case) -> dict[str, Any]:
    """What a case is, in JSON types."""
    return {
        "name": case.name,
        "set": case.set_name,
        "full": full_case(study, case).name,
        "levels": dict(case.levels),
        "configuration": dict(case.configuration),
        "problem": case.problem,
        "skip": case.skip,
    }
