"""What the user asks of a run, and what a run answers: values between the command line and the pipeline."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.cases import default_cases, nearest
from harness.errors import UsageError
from harness.model import Case, Level, Study

FAILED = (
    "render_failed",
    "compile_failed",
    "contract_broken",
    "wrong",
    "launch_failed",
    "hung",
    "below_floor",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run, as asked for. Empty tuples and None mean the default of whoever uses the value.

    Args:
        studies: names of the studies, all of them existing, in order.
        patterns: globs over case names; empty selects every default case.
        targets: architectures or compute capabilities as typed, not yet parsed; empty: the GPU here, else the
            default list.
        problem: name of a problem that each of `studies` has; "" is each study's first.
        require_gpu: nothing to time on is an error instead of a sentence.
        rounds: fixed number of interleaved rounds; None lets the interval decide.
        perturbations: texts of each case, the plain one first, that differ in nothing that matters: what code
            generation alone does.
        width_percent: interval width of the effects, in cycles, at which timing stops.
        seconds: longest time for timing one study.
        cache: folder of the build cache; None is the user's.
        results: folder that holds records/ and tables/.
        resume: record file of a cut run to go on with.
        dry_run: say what would be done, do nothing.
        force_busy: time on a GPU that others are using.
        fill: values of the inputs where the case leaves the choice.
        l2: whether the L2 cache is left warm between launches.
        counters: whether each case is also launched under Nsight Compute, for its hardware counters.
        seed: of inputs, order of rounds and slices to check.
        command: the command line that asks for the same again.
    """

    studies: tuple[str, ...]
    patterns: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    problem: str = ""
    require_gpu: bool = False
    rounds: int | None = None
    perturbations: int = 3
    width_percent: float | None = None
    seconds: float | None = None
    cache: Path | None = None
    results: Path = Path("results")
    resume: Path | None = None
    dry_run: bool = False
    force_busy: bool = False
    fill: Literal["normal", "zeros", "uniform", "integers"] = "normal"
    l2: Literal["warm", "cold"] = "warm"
    counters: bool = False
    seed: int = 0
    command: str = "ablate run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One line of a dry run: what would be done with a case, and an estimate of how long that takes."""

    study: str
    case: str
    target: str
    action: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """What a run left behind.

    Args:
        files: the record files written, in order; empty for a dry run.
        reason_not_timed: why nothing was timed, in one sentence; None when something was.
        planned: rows the plan asked for.
        counts: status -> rows of this run.
        reached: rows that were compiled, whose numbers were verified, that were timed.
        steps: what a dry run would do.
    """

    files: tuple[Path, ...] = ()
    reason_not_timed: str | None = None
    planned: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    reached: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Step, ...] = ()

    @property
    def failed(self) -> int:
        """Rows that were asked for, could have been, and are not."""
        return sum(self.counts.get(status, 0) for status in FAILED)


def cases_of(plan: Plan, studies: Mapping[str, Study]) -> dict[str, tuple[Case, ...]]:
    """Study name -> the cases that the plan asks for, in the study's order; studies without one are left out.

    Raises UsageError for a pattern that matches nothing in any of the plan's studies.
    """
    found = {name: default_cases(studies[name], plan.problem) for name in plan.studies}
    if not plan.patterns:
        return found
    for pattern in plan.patterns:
        if not any(matches(case, pattern) for cases in found.values() for case in cases):
            raise UsageError(_missed(pattern, [studies[name] for name in plan.studies], found))
    chosen = {
        name: tuple(case for case in cases if any(matches(case, pattern) for pattern in plan.patterns))
        for name, cases in found.items()
    }
    return {name: cases for name, cases in chosen.items() if cases}


def matches(case: Case, pattern: str) -> bool:
    """Whether a glob matches `name` or `study/name` of a case."""
    return fnmatch.fnmatchcase(case.name, pattern) or fnmatch.fnmatchcase(str(case), pattern)


def _missed(pattern: str, studies: Sequence[Study], cases: Mapping[str, Sequence[Case]]) -> str:
    """Why a pattern matches nothing: an unknown switch or level in it, else the nearest names."""
    levels: dict[str, dict[Level, None]] = {}
    for known in (switch for study in studies for switch in study.switches):
        levels.setdefault(known.name, {}).update(dict.fromkeys(known.levels))
    named = pattern.rpartition("/")[2].partition("@")[0]
    for part in named.split(","):
        switch, equals, level = part.partition("=")
        switch = switch.lstrip("*")
        if not equals or set(switch) & set("*?["):
            continue
        if switch not in levels:
            return f"no case matches {pattern!r}: no switch {switch!r}; {nearest(switch, list(levels))}"
        if not any(fnmatch.fnmatchcase(str(one), level) for one in levels[switch]):
            choices = ", ".join(map(str, levels[switch]))
            asked = level.rstrip("*")
            return f"no case matches {pattern!r}: {switch} has no level {asked!r}; its levels are {choices}"
    names = [case.name for members in cases.values() for case in members]
    return f"no case matches {pattern!r}; {nearest_case(pattern, names)}"


def nearest_case(word: str, names: Sequence[str]) -> str:
    """The nearest names; where none is near, how to see them all."""
    advice = nearest(word, names)
    return advice if advice.startswith("did you mean") else "`ablate list STUDY` shows the cases"
