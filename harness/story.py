"""A walk through somebody's question, as data: what they tried, and what was expected of each study.

A study package tells it; publishing finds the rows of the records that it names, and judges by rule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from harness.model import Level

Measure = Literal["change", "own_percent", "chip_percent", "flop_clk_sm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A row of the tables: the first of a study with exactly these levels."""

    study: str
    levels: Mapping[str, Level]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that was tried.

    Args:
        title: in a few words. text: why, in a sentence.
        spots: one for each of the story's columns; each is compared with its own full case, or with the spot
            of the same place in `against`.
    """

    title: str
    text: str
    spots: tuple[Spot, ...]
    against: tuple[Spot, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence of an expectation as a range that the numbers can leave.

    Args:
        text: the sentence, shortened. spot: of which row; `against`: compared with which, else with its full.
        measure: "change" is percent of FLOP per clock against the other row; else a number of the row.
        at_least, at_most: the range, in percent, or FLOP per clock and SM.
        below: (factor, spot, other spot): the range ends at so much of the change between those two instead.
        only: a compute capability ("9.0"), or "full rate" / "half rate" (of fp32 accumulators): on which GPUs
            the sentence says anything; empty: on all.
    """

    text: str
    spot: Spot
    against: Spot | None = None
    measure: Measure = "change"
    at_least: float = -math.inf
    at_most: float = math.inf
    below: tuple[float, Spot, Spot] | None = None
    only: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The whole walk.

    Args:
        name: file name of the page, without its ending. title, intro: its head. source: its address.
        columns: what the spots of a step are of. steps: the first is where it starts, everything kept.
        ceilings: accumulator -> the row of nothing but MMAs, for the table of peaks.
        peaks: what a profiler says, and of what.
        proposal: (title, text, spots with what each is): the change that was proposed, beside others.
        claims: study -> what its text expects.
        predicted: studies, and chips: products, that predictions are stored of.
    """

    name: str
    title: str
    source: str
    intro: str
    columns: tuple[str, ...]
    steps: tuple[Step, ...]
    ceilings: Mapping[str, Spot]
    peaks: str
    proposal: tuple[str, str, tuple[tuple[str, Spot], ...]]
    claims: Mapping[str, tuple[Claim, ...]]
    predicted: tuple[str, ...]
    chips: tuple[str, ...]
