"""Effects within rounds, and the words that a table of them may claim.

An effect is a ratio of cost, case over full: below 1 is faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from harness.stats.paired import Judged, Metric, Pair, judge
from harness.stats.resampling import Interval, Rule, holm

Word = Literal["faster", "slower", "same", "unclear"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Case over full, in `metric`, and the one word that may be said of it.

    Args:
        ratio: median over rounds of the ratio within a round, averaged over builds; None: nothing common.
        run: interval from resampling the rounds.
        codegen: interval from resampling the builds; None with one build or one source.
        total: interval from resampling both; equals `run` where `codegen` is None.
        p: two-sided, of a ratio of 1; `p_holm` corrected for the table.
        seconds: the ratio in seconds, with `seconds_total` and `seconds_word` by the same rule.
        note: what the reader must know of the word; empty when nothing.
    """

    name: str
    word: Word
    metric: Metric
    ratio: float | None
    run: Interval | None
    codegen: Interval | None
    total: Interval | None
    p: float
    p_holm: float
    rounds: int
    builds: int
    seconds: float | None
    seconds_total: Interval | None
    seconds_word: Word
    note: str = ""


def effects(pairs: Sequence[Pair], rule: Rule | None = None) -> tuple[Effect, ...]:
    """The effect of every pair of one table, in order; the order never matters to a word.

    The word is decided in cycles (in seconds where cycles are unknown) and checked in seconds. Words start
    at "unclear". faster/slower needs all of: the p value corrected for the table, an interval that excludes
    1, an effect beyond `min_ratio`, separated intervals of the two cases, and, between sources, an effect
    beyond what their builds differ by. "same" needs the interval within `min_ratio`.
    """
    rule = rule or Rule()
    in_cycles = judge(pairs, "cycles", rule, detail=True)
    in_seconds = judge(pairs, "seconds", rule, detail=any(found is None for found in in_cycles))
    primary = [c or s for c, s in zip(in_cycles, in_seconds, strict=True)]
    adjusted = holm([1.0 if j is None else j.p for j in primary])
    adjusted_seconds = holm([1.0 if j is None else j.p for j in in_seconds])
    found = []
    for i, pair in enumerate(pairs):
        word, why = _word(primary[i], adjusted[i], rule, separation=True)
        seconds_word, _ = _word(in_seconds[i], adjusted_seconds[i], rule, separation=in_cycles[i] is None)
        notes = [why, *_notes(pair, in_cycles[i], in_seconds[i], word, seconds_word)]
        found.append(
            _effect(
                pair.name, primary[i], in_cycles[i], in_seconds[i], word, seconds_word, adjusted[i], notes
            )
        )
    return tuple(found)


def _effect(
    name: str,
    judged: Judged | None,
    in_cycles: Judged | None,
    in_seconds: Judged | None,
    word: Word,
    seconds_word: Word,
    p_holm: float,
    notes: Sequence[str],
) -> Effect:
    return Effect(
        name=name,
        word=word,
        metric="seconds" if in_cycles is None and in_seconds is not None else "cycles",
        ratio=math.exp(judged.theta) if judged else None,
        run=judged.run if judged else None,
        codegen=judged.codegen if judged else None,
        total=judged.total if judged else None,
        p=judged.p if judged else 1.0,
        p_holm=p_holm,
        rounds=judged.rounds if judged else 0,
        builds=judged.builds if judged else 0,
        seconds=math.exp(in_seconds.theta) if in_seconds else None,
        seconds_total=in_seconds.total if in_seconds else None,
        seconds_word=seconds_word,
        note="; ".join(note for note in notes if note),
    )


def _word(judged: Judged | None, p: float, rule: Rule, *, separation: bool) -> tuple[Word, str]:
    """The word of one effect in one metric, and why it is no stronger one."""
    if judged is None:
        return "unclear", "fewer than two common rounds"
    if judged.rounds < rule.min_rounds:
        return "unclear", f"only {judged.rounds} common rounds"
    bound = math.log1p(rule.min_ratio)
    if p < 1 - rule.confidence and abs(judged.theta) > bound and judged.total.excludes(1.0):
        if judged.margin >= abs(judged.theta):
            return "unclear", f"within code generation: builds differ by {100 * judged.spread:.1f} %"
        if separation and not judged.separated:
            return "unclear", "within noise: the intervals of the two overlap"
        return ("faster" if judged.theta < 0 else "slower"), ""
    if math.exp(-bound) <= judged.total.low and judged.total.high <= math.exp(bound):
        return "same", ""
    return "unclear", "within noise"


def _notes(
    pair: Pair, cycles: Judged | None, seconds: Judged | None, word: Word, seconds_word: Word
) -> list[str]:
    notes = []
    claimed = word in ("faster", "slower")
    if cycles is None and seconds is not None:
        notes.append("cycles unknown: judged in seconds")
    elif seconds_word != word and (
        seconds_word in ("faster", "slower") or (claimed and seconds_word == "same")
    ):
        notes.append(
            "seconds disagree: power" if word != "unclear" else f"{seconds_word} in seconds only: power"
        )
    elif claimed and seconds_word == "unclear":
        notes.append("not confirmed in seconds")
    if claimed and not pair.same_source and cycles is not None and cycles.codegen is None:
        notes.append("one build each: code generation not sampled")
    return notes
