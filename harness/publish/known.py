"""What the caller knows of the studies today: the order of their cases, their parts, their present texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.story import Story

# Record -> digest of the text its template renders today; "" when it renders none any more; None when nobody
# can say (a study that is not here).
Current = Callable[[Mapping[str, Any]], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyFacts:
    """One study as tables need it.

    Args:
        cases: names in the order of the rows. parts: switch that strips -> its stripping levels, the least
        removed first; every other switch is an axis. expectation: what was expected beforehand.
    """

    cases: Sequence[str] = ()
    parts: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    expectation: str = ""


Known = Mapping[str, StudyFacts]
# File under the results folder, and title, of a page that others point to.
Link = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCost:
    """What a part costs, in percent of full's cycles: `exposed` when it alone is stripped from full,
    `intrinsic` when it alone stands on the floor. None where it was not measured."""

    name: str
    exposed: float | None
    intrinsic: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The verdict on one full case, as the page shows it.

    Args:
        study, gpu, full: what it is about. word: the verdict in a word; sentence, evidence: in words.
        table: lines of fixed width. parts: none overlaps another. floor_percent: of full's cycles.
        pipes: (pipe, clocks it is busy in percent of full's cycles), most first.
    """

    study: str
    gpu: str
    full: str
    word: str
    sentence: str
    evidence: str
    table: Sequence[str] = ()
    parts: Sequence[PartCost] = ()
    floor_percent: float | None = None
    pipes: Sequence[tuple[str, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What no run can beat, in FLOP/clk/SM, and the pipe that sets it.

    `memory` is the memory level that is busy longer than that pipe at the highest rate known of it, if one
    is, and `memory_flop_clk_sm` what it leaves at that rate: no part of the bound, since that rate is no
    limit of the hardware.
    """

    flop_clk_sm: float
    binding: str
    memory: str | None = None
    memory_flop_clk_sm: float | None = None


# Record files -> answers, in their order.
Answers = Callable[[Sequence[Any]], Sequence[Answer]]
# (header, record) -> what no run can beat; None where unknown.
Bounds = Callable[[Mapping[str, Any], Mapping[str, Any]], Bound | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """All that publishing may be told besides the records; every part may be absent."""

    known: Known = field(default_factory=dict)
    current: Current | None = None
    answers: Answers | None = None
    bounds: Bounds | None = None
    story: Story | None = None
