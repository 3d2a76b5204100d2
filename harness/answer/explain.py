"""Answers as lines of at most 80 columns: a verdict with its evidence and table, and predictions."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

from harness.answer.costs import Amount
from harness.answer.estimate import FITTED, SPREAD
from harness.answer.predict import Prediction
from harness.answer.result import Attribution, Row
from harness.answer.verdict import Verdict
from harness.answer.words import peak_words
from harness.chips import Rate
from harness.estimates import how_far_off

WIDTH = 80
_SHORT = {"code generation": "codegen", "within noise": "noise"}
_PIPES = {"shared_bytes": "smem", "l2_bytes": "L2", "dram_bytes": "DRAM", "conversion": "convert"}


def verdict_lines(verdict: Verdict) -> list[str]:
    """One verdict: heading, sentence, paragraph, table."""
    group = verdict.group
    conditions = ", ".join(word for word in (group.problem, group.fill, f"L2 {group.l2}") if word)
    lines = [*_wrapped(f"{group.study}/{group.full} on {group.gpu} ({conditions})"), ""]
    lines += _wrapped(verdict.sentence[0].upper() + verdict.sentence[1:], indent="  ")
    lines += ["", *_wrapped(verdict.evidence_text, indent="  ")]
    table = attribution_lines(verdict.attribution) if verdict.attribution else []
    return [*lines, *(["", *table] if table else [])]


def attribution_lines(found: Attribution) -> list[str]:
    """The table of parts, in at most 80 columns; empty where no part was measured."""
    rows = [row for row in found.rows if row.exposed or row.intrinsic]
    if not rows:
        return []
    head = ("part", "exposed [95 %]", "full", "intrinsic [95 %]", "overlap", "share")
    cells = [
        (
            row.name,
            _range(row.exposed),
            f"{100 * row.exposed.value / found.full:.1f} %" if row.exposed else "-",
            _range(row.intrinsic),
            _relation(row),
            f"{row.share.value:.0f}" if row.share else "-",
        )
        for row in rows
    ]
    floor = "" if found.floor is None else f", floor {found.floor:.0f}"
    lines = [f"  {found.unit}: full {found.full:.0f}{floor}"]
    lines += _table([head, *cells], (20, 17, 6, 17, 7, 5))
    lines += [f"  {text}" for text in _notes(found, rows)]
    if found.marginals:
        lines += _wrapped("Step by step: " + "; ".join(_marginals(found)) + ".", indent="  ")
    return lines


def _notes(found: Attribution, rows: Sequence[Row]) -> list[str]:
    notes = []
    if any(a and not a.clear for row in rows for a in (row.exposed, row.intrinsic)):
        notes.append("~ within noise")
    notes += [f"{row.name}: removing it {row.confounded}" for row in rows if row.confounded]
    if found.no_share:
        notes.append(f"no shares: {found.no_share}")
    return [line for note in notes for line in textwrap.wrap(note, WIDTH - 2)]


def _marginals(found: Attribution) -> list[str]:
    return [
        f"{m.part} {m.before} to {m.after} saves {_range(m.cost)} "
        f"({100 * m.cost.value / found.full:.1f} % of full)"
        for m in found.marginals
    ]


def _range(amount: Amount | None) -> str:
    if amount is None:
        return "-"
    digits = 0 if max(abs(amount.low), abs(amount.high)) >= 100 else 1
    low, high = (f"{value:.{digits}f}" for value in (amount.low, amount.high))
    return f"{amount.value:.{digits}f}{'' if amount.clear else '~'} [{low}, {high}]"


def _relation(row: Row) -> str:
    if row.overlap is not None:
        return f"{100 * row.overlap.value:.0f} %"
    return _SHORT.get(row.relation, row.relation) or "-"


def prediction_lines(gpu: str, predictions: Iterable[Prediction]) -> list[str]:
    """Bounds of the cases of one study on a chip, honestly labelled; empty without any."""
    found = list(predictions)
    if not found:
        return []
    head = ("case", "/clk/SM", "TFLOP/s", "est.", "binds", "next", "of own", "of chip")
    cells = [
        (
            p.case.replace(",", ", ").replace("@", " @"),
            f"{p.flop_clk_sm:.0f}",
            f"{p.tflop_s:.0f}" if p.unit == "FLOP" else "-",
            "-" if p.estimate is None else f"{p.tflop_s * p.estimate / p.flop_clk_sm:.0f}",
            _PIPES.get(p.binding, p.binding),
            "-"
            if p.second is None or p.margin is None
            else f"{_PIPES.get(p.second, p.second)} {100 * p.margin:.0f} %",
            _share(p, p.own),
            _share(p, p.chip),
        )
        for p in found
    ]
    mhz = found[0].boost_hz / 1e6
    title = f"{found[0].study} on {gpu}: predicted, not measured; at most, at {mhz:.0f} MHz ({found[0].arch})"
    lines = [*_wrapped(title), *_table([head, *cells], (22, 8, 7, 4, 8, 11, 6, 7)), ""]
    for sentence in dict.fromkeys(prediction_sentence(p) for p in found):
        lines += _wrapped(sentence, indent="  ")
    if any(p.estimate is not None for p in found):
        lines += _wrapped(
            "est.: TFLOP/s of a simulated SM, an estimate and no bound: on an H200 "
            f"{how_far_off(SPREAD, FITTED)}; other chips were never compared.",
            indent="  ",
        )
    unknown = sorted({name for p in found for name in p.unknown})
    if unknown:
        lines += _wrapped(f"Not in these bounds, as no rate is known: {', '.join(unknown)}.", indent="  ")
    return lines


def prediction_sentence(found: Prediction) -> str:
    """Which peak the bound is a share of, and what a profiler would show at it."""
    if found.unit != "FLOP":
        return (
            f"The {found.binding} pipe gives at most {found.flop_clk_sm:.0f} {found.unit} per clock and SM."
        )
    if found.own is None:
        return f"A bound of {found.tflop_s:.0f} TFLOP/s by the {found.binding} pipe; its peak is unknown."
    tera = found.tflop_s / found.flop_clk_sm
    text = (
        f"{peak_words(found.own)} {found.own.input} can give at most {found.tflop_s:.0f} TFLOP/s here, "
        f"{found.percent(found.own):.0f} % of its own peak ({found.own.flop_clk_sm * tera:.0f})"
    )
    if found.chip is None:
        return text + "."
    of_chip = f"{found.percent(found.chip):.0f} % of {found.chip.flop_clk_sm * tera:.0f}"
    if found.chip.path != found.own.path:
        return (
            f"{text} and {of_chip} ({peak_words(found.chip)}), which {found.own.path} cannot reach; "
            "always ask of which peak a percentage is."
        )
    if found.chip.flop_clk_sm > found.own.flop_clk_sm:
        return (
            f"{text} and {of_chip} ({peak_words(found.chip)}): a profiler near "
            f"{found.percent(found.chip):.0f} % may be all there is; ask of which peak."
        )
    if found.other is not None and found.other.flop_clk_sm == found.own.flop_clk_sm:
        return f"{text}; the other accumulator has the same peak."
    return f"{text}; no other peak of this GPU is higher for {found.own.input} input."


def _share(found: Prediction, rate: Rate | None) -> str:
    percent = found.percent(rate)
    return "-" if percent is None else f"{percent:.0f} %"


def _table(rows: Sequence[Sequence[str]], widths: Sequence[int]) -> list[str]:
    """Rows in columns; a first cell that is too long goes on in the next line."""
    lines = []
    for row in rows:
        first, *more = textwrap.wrap(row[0], widths[0], break_on_hyphens=False) or [""]
        rest = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        lines.append(f"{first:<{widths[0]}} " + " ".join(rest))
        lines += [f"  {text}" for text in more]
    return lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    """Text in lines that never part a number from its percent sign."""
    lines = textwrap.wrap(
        text.replace(" %", "\xa0%"),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]
