"""From words to things: which studies, which plan, which case. Every refusal names the valid choices."""

from __future__ import annotations

import argparse
import os
import shlex
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness.cases import default_cases, nearest
from harness.errors import UsageError, path_error
from harness.model import Case, Study
from harness.plan import Plan, cases_of, matches, nearest_case
from harness.store import read
from harness.story import Story


def load_studies() -> dict[str, Study]:
    """Every study there is; UsageError when there is none."""
    import ablations

    studies = ablations.load()
    if not studies:
        raise UsageError("there is no study: ablations/ holds no module with a STUDY")
    return studies


def load_story() -> Story:
    """The thread that the studies answer, told by their package."""
    from ablations._thread import STORY

    return STORY


def check_study(name: str, studies: Mapping[str, Study]) -> Study:
    """The study called `name`; UsageError with the nearest names."""
    if name not in studies:
        raise UsageError(f"no study {name!r}; {nearest(name, list(studies))}")
    return studies[name]


def make_plan(arguments: argparse.Namespace, argv: Sequence[str], studies: Mapping[str, Study]) -> Plan:
    """The plan that `ablate run ...` asks for, every name in it existing. Raises UsageError."""
    names = tuple(dict.fromkeys(arguments.studies)) or tuple(studies)
    for name in names:
        check_study(name, studies)
    plan = Plan(
        studies=check_problem(names, arguments.problem, studies, named=bool(arguments.studies)),
        patterns=tuple(arguments.case),
        targets=_targets(arguments.target),
        problem=arguments.problem,
        require_gpu=arguments.require_gpu,
        rounds=arguments.rounds,
        perturbations=arguments.perturbations,
        width_percent=arguments.width,
        seconds=arguments.seconds,
        results=check_output(arguments.results, "records"),
        cache=check_folder(arguments.cache, "--cache"),
        resume=_existing(arguments.resume),
        dry_run=arguments.dry_run,
        force_busy=arguments.force_busy,
        fill=arguments.fill,
        l2=arguments.l2,
        counters=arguments.counters,
        seed=arguments.seed,
        command=shlex.join(["ablate", *argv]),
    )
    cases_of(plan, studies)
    return plan


def check_problem(
    names: tuple[str, ...], problem: str, studies: Mapping[str, Study], *, named: bool
) -> tuple[str, ...]:
    """The studies that have the problem; UsageError when none has, or one that the user named has not."""
    having = tuple(name for name in names if not problem or problem in studies[name].problems)
    if having and (len(having) == len(names) or not named):
        return having
    lacking = next(name for name in names if name not in having)
    known = dict.fromkeys(known for name in names for known in studies[name].problems)
    where = f"study {lacking} has" if named else "no study has"
    raise UsageError(f"{where} {'no' if named else 'a'} problem {problem!r}; choose from {', '.join(known)}")


def _targets(words: Sequence[str]) -> tuple[str, ...]:
    from harness.chips import parse_target

    return tuple(dict.fromkeys(parse_target(word).arch for word in words))


def check_folder(path: Path | None, option: str) -> Path | None:
    """The folder a user named, made where it is absent; UsageError when it cannot be written."""
    if path is None:
        return None
    with _written(path, option):
        path.mkdir(parents=True, exist_ok=True)
        _try_to_write(path)
    return path


def check_results(path: Path) -> Path:
    """The results folder, to be read; UsageError when the name is taken by something else."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"--results {path} is a file; name a folder")
    return path


def check_output(path: Path, part: str = "") -> Path:
    """The results folder, with a `part` of it to be written; neither need exist, and neither is made.

    Found out now, and not after everything was built. UsageError when it cannot be written.
    """
    with _written(path, "--results"):
        check_results(path)
        there = next(one for one in (path / part, *(path / part).parents) if os.path.lexists(one))
        _try_to_write(there)
    return path


@contextmanager
def _written(path: Path, option: str) -> Iterator[None]:
    """What the system says of a folder becomes one line that names the option."""
    try:
        yield
    except OSError as error:
        line = f"{option} {path}: {error.strerror or error}; name a folder that can be written"
        raise path_error(line, error) from error


def _try_to_write(folder: Path) -> None:
    # Permission bits do not tell: root passes them all, and a mount may be read-only.
    with tempfile.TemporaryDirectory(dir=folder, prefix=".ablate-"):
        pass


def _existing(path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise UsageError(f"--resume {path}: there is no such record file")
    if path is not None:
        read(path)  # refused now, with file and line, and not after everything was built
    return path


def all_cases(study: Study) -> tuple[Case, ...]:
    """The default cases of a study over all its problems, the first problem's first."""
    cases = {case.name: case for problem in study.problems for case in default_cases(study, problem)}
    return tuple(cases.values())


def find_case(word: str, studies: Mapping[str, Study]) -> tuple[Study, Case]:
    """The one case that `study/case`, a case's name or a glob names; UsageError when none or several.

    A glob that matches one case of a study's first problem means that one.
    """
    found = [(study, case) for study in studies.values() for case in all_cases(study)]
    hits = [(study, case) for study, case in found if word in (case.name, str(case))]
    hits = hits or [(study, case) for study, case in found if matches(case, word)]
    if len(hits) > 1:
        first = [(study, case) for study, case in hits if case.problem == study.problems[0]]
        hits = first if len(first) == 1 else hits
    if len(hits) == 1:
        return hits[0]
    if hits:
        names = [str(case) for _, case in hits]
        more = f", ... ({len(names)} in all)" if len(names) > 6 else ""
        raise UsageError(f"{word!r} matches several cases; name one: {', '.join(names[:6])}{more}")
    raise UsageError(f"no case matches {word!r}; {nearest_case(word, [str(case) for _, case in found])}")
