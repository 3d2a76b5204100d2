"""Pure arithmetic on samples: intervals, effects within rounds, their words, and what a table may claim."""

from harness.stats.effects import Effect, Word, effects
from harness.stats.paired import Builds, Metric, Pair, Series
from harness.stats.resampling import (
    Interval,
    Rule,
    holm,
    interval,
    intervals,
    median,
    relative_widths,
    resamples_for,
    unpaired,
    unpaired_builds,
)
from harness.stats.rows import BISTABLE, Summary, is_bistable, series, summarise

__all__ = [
    "BISTABLE",
    "Builds",
    "Effect",
    "Interval",
    "Metric",
    "Pair",
    "Rule",
    "Series",
    "Summary",
    "Word",
    "effects",
    "holm",
    "interval",
    "intervals",
    "is_bistable",
    "median",
    "relative_widths",
    "resamples_for",
    "series",
    "summarise",
    "unpaired",
    "unpaired_builds",
]
