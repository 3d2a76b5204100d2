"""Whether an expectation held: its sentences are ranges, and the judgement follows from intervals alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from harness.chips import spell
from harness.publish.known import Known
from harness.publish.markdown import escape, markdown_table
from harness.publish.thread_rows import Effect, Rows, effect_words
from harness.story import Claim, Story

HELD, FAILED, OPEN, MISSING = "held", "did not hold", "open", "not measured"
_UNITS = {
    "own_percent": "% of its path's peak",
    "chip_percent": "% of the chip's peak",
    "flop_clk_sm": "FLOP/clk/SM",
}
_HEADER = ["study", "sentence", "that is", "measured (95 % interval)", "judgement"]

RULE = (
    "Each study's text says beforehand what it expects. Its sentences stand below as ranges: one *held* "
    "where the whole 95 % interval lies inside, *did not hold* where the whole interval lies outside, else "
    "it is *open*, as it is where only a direction is claimed and the word against the other row is unclear."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What came of a claim: the range, and the number, in words, and the word that follows."""

    claim: Claim
    wanted: str
    number: str
    word: str


def expectations(rows: Rows, story: Story, known: Known) -> list[str]:
    """Lines: each study's expectation as it stood beforehand, then what the numbers say of its sentences."""
    judged = judge_all(rows, story)
    if not judged:
        return []
    studies = dict.fromkeys(one.claim.spot.study for one in judged)
    quotes = [f"> **{s}**: {known[s].expectation}" for s in studies if s in known and known[s].expectation]
    cells = [
        [escape(one.claim.spot.study), one.claim.text, one.wanted, escape(one.number), f"*{one.word}*"]
        for one in judged
    ]
    quoted = "\n>\n".join(quotes).splitlines()
    head = f"{RULE} On {escape(rows.name)}: {tally(judged)}."
    return [
        head,
        "",
        *quoted,
        *([""] if quoted else []),
        *markdown_table(_HEADER, cells, left=3).splitlines(),
    ]


def tally(judged: Sequence[Judgement]) -> str:
    """`3 held, 1 did not hold`."""
    words = [one.word for one in judged]
    return ", ".join(f"{words.count(w)} {w}" for w in (HELD, FAILED, OPEN, MISSING) if w in words)


def judge_all(rows: Rows, story: Story) -> list[Judgement]:
    """Every claim that says anything of this GPU, where its study was measured on it."""
    claims = [
        claim
        for study, of in story.claims.items()
        for claim in of
        if (section := rows.sections.get(study)) and not section.predicted and concerns(claim, rows)
    ]
    effects = rows.effects([(claim.spot, claim.against) for claim in claims])
    others = rows.effects([claim.below[1:] if claim.below else (claim.spot, claim.spot) for claim in claims])
    return [
        _of_change(claim, effect, other) if claim.measure == "change" else _of_number(claim, rows)
        for claim, effect, other in zip(claims, effects, others, strict=True)
    ]


def concerns(claim: Claim, rows: Rows) -> bool:
    """Whether the sentence says anything of this GPU."""
    product = rows.product
    return not claim.only or claim.only in (rows.rate, spell(product.cc) if product else "")


def _of_number(claim: Claim, rows: Rows) -> Judgement:
    row = rows.row(claim.spot)
    value = None if row is None else row[claim.measure]
    unit, wanted = _UNITS[claim.measure], range_words(claim)
    if value is None:
        return Judgement(claim=claim, wanted=wanted, number="", word=MISSING)
    word = judge((value, value), (claim.at_least,) * 2, (claim.at_most,) * 2)
    return Judgement(claim=claim, wanted=wanted, number=f"{value:.1f} {unit}", word=word)


def _of_change(claim: Claim, effect: Effect | None, other: Effect | None) -> Judgement:
    """No direction is taken from a word that is unclear."""
    wanted, most = range_words(claim), (claim.at_most,) * 2
    found, than = _interval(effect), _interval(other)
    if found is None or effect is None or (claim.below and than is None):
        return Judgement(claim=claim, wanted=wanted, number=effect_words(effect), word=MISSING)
    if claim.below and than and other:
        most = (claim.below[0] * than[0], claim.below[0] * than[1])
        wanted = f"under {100 * claim.below[0]:.0f} % of {other['effect_percent']:+.1f} %"
    unclear = effect["effect"] == "unclear" and 0 in (claim.at_least, claim.at_most)
    word = OPEN if unclear else judge(found, (claim.at_least,) * 2, most)
    return Judgement(claim=claim, wanted=wanted, number=effect_words(effect), word=word)


def _interval(effect: Effect | None) -> tuple[float, float] | None:
    if not effect or effect["effect_low"] is None or effect["effect_high"] is None:
        return None
    return effect["effect_low"], effect["effect_high"]


def judge(found: tuple[float, float], least: tuple[float, float], most: tuple[float, float]) -> str:
    """Inside, outside, or across a range whose ends may be intervals themselves."""
    if least[1] <= found[0] and found[1] <= most[0]:
        return HELD
    return FAILED if found[1] < least[0] or found[0] > most[1] else OPEN


def range_words(claim: Claim) -> str:
    """The range of a claim as it stands in the table."""
    change = claim.measure == "change"
    unit, sign = ("%", "+") if change else (_UNITS[claim.measure], "")
    low, high = claim.at_least, claim.at_most
    if change and (low, high) in ((0, float("inf")), (-float("inf"), 0)):
        return "a gain" if low == 0 else "no gain"
    if low == -float("inf"):
        return f"at most {high:{sign}g} {unit}"
    if high == float("inf"):
        return f"at least {low:{sign}g} {unit}"
    return f"{low:{sign}g} to {high:{sign}g} {unit}"
