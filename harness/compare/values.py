"""A comparison as a frozen value, as JSON, and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from harness.stats import Interval, Word
from harness.store import plain

Metric = Literal["cycles", "seconds"]

# What the process ends with.
REGRESSED, NOTHING_MATCHED = 1, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """One case in both files. A is before, B is after; `ratio` is B over A, above 1 is slower.

    Args:
        a, b: medians in the metric, averaged over builds; None where there is no number.
        ratio, interval: None where one side has no number, and between different GPUs.
        word: what happened, or "failed" (a number in A only), "works" (in B only), "no number" (in neither).
        a_percent, b_percent: of each GPU's own peak, when the caller can say.
    """

    study: str
    case: str
    a: float | None
    b: float | None
    ratio: float | None = None
    interval: Interval | None = None
    p_holm: float | None = None
    word: Word | Literal["failed", "works", "no number"]
    a_percent: float | None = None
    b_percent: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All of it. `threshold` is a fraction, None when nothing is to fail; `unit` is what a and b are in.

    `gpus` are those that timed A and B; `predicted_for` names the product where a file only predicts.
    """

    a: str
    b: str
    gpus: tuple[str | None, str | None]
    metric: Metric
    unit: str
    threshold: float | None
    rows: tuple[ComparedRow, ...]
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    warnings: tuple[str, ...]
    side_by_side: bool
    predicted_for: tuple[str | None, str | None] = (None, None)

    @property
    def regressions(self) -> tuple[ComparedRow, ...]:
        """The rows that got slower beyond the threshold, or lost their number; none without a threshold."""
        if self.threshold is None:
            return ()
        return tuple(row for row in self.rows if row.word in ("slower", "failed"))

    @property
    def matched(self) -> int:
        """Rows of both files in which at least one has a number."""
        return sum(row.word != "no number" for row in self.rows)

    @property
    def exit_status(self) -> int:
        """3 when nothing matched, 1 on a regression beyond the threshold, else 0."""
        if not self.matched:
            return NOTHING_MATCHED
        return REGRESSED if self.regressions else 0

    @property
    def failed(self) -> bool:
        """Whether `exit_status` is not 0."""
        return self.exit_status != 0

    def as_json(self) -> dict[str, Any]:
        """The whole comparison in JSON types; an unknown bound of an interval is null."""
        value, _ = plain(asdict(self))
        found: dict[str, Any] = value
        found |= {"exit_status": self.exit_status, "matched": self.matched}
        return found | {"regressions": [f"{row.study}/{row.case}" for row in self.regressions]}

    def lines(self, width: int = 80) -> list[str]:
        """The comparison as lines of at most `width` (from 60) columns; a longer name wraps, none is cut."""
        return _Text(self, max(60, width)).lines()


class _Text:
    """Lays a comparison out."""

    def __init__(self, comparison: Comparison, width: int) -> None:
        self._of = comparison
        self._width = width

    def lines(self) -> list[str]:
        of = self._of
        found = []
        for letter, path, gpu, product in zip("AB", (of.a, of.b), of.gpus, of.predicted_for, strict=True):
            where = gpu or (f"predicted for {product}" if product else "no GPU")
            found += self._wrap(f"{letter}  {path}  ({where})", "   ")
        for warning in of.warnings:
            found += self._wrap(f"warning: {warning}", "   ")
        found += self._table()
        for letter, names in (("A", of.only_a), ("B", of.only_b)):
            if names:
                found += ["", f"only in {letter}: {len(names)}"]
                found += [line for name in names for line in self._wrap(f"  {name}", "    ")]
        return [*found, "", *self._wrap(self._summary(), "   ")]

    def _table(self) -> list[str]:
        if not self._of.rows:
            return []
        said = "side by side" if self._of.side_by_side else f"{self._of.metric}, B over A: above 1 is slower"
        found = ["", *self._wrap(f"{said} (A and B in {self._of.unit})", "   ")]
        found += [self._join("case", ("A", "B", *self._right_head()))]
        for row in self._of.rows:
            name = " ".join(f"{row.study}/{row.case}".split())
            cells = (_number(row.a), _number(row.b), *self._right(row))
            line = self._join(name, cells)
            found += [line] if len(line) <= self._width else [*self._wrap(name, "  "), self._join("", cells)]
            found += self._wrap(f"    {row.note}", "    ") if row.note else []
        return found

    def _right_head(self) -> tuple[str, str, str]:
        return ("A % peak", "B % peak", "") if self._of.side_by_side else ("ratio", "95 % interval", "word")

    def _right(self, row: ComparedRow) -> tuple[str, str, str]:
        if self._of.side_by_side:
            return _percent(row.a_percent), _percent(row.b_percent), row.word if row.ratio else ""
        ratio = "-" if row.ratio is None else f"{row.ratio:.4f}" if row.ratio < 100 else f"{row.ratio:.2g}"
        return ratio, _interval(row.interval), row.word

    def _join(self, name: str, cells: Sequence[str]) -> str:
        widths = (9, 9, 8, 13, 9)
        right = "".join(f" {cell:>{w}}" for cell, w in zip(cells, widths, strict=True))
        return f"{name:<{self._width - sum(widths) - len(widths)}}{right}".rstrip()

    def _summary(self) -> str:
        of = self._of
        if not of.matched:
            return "nothing matched: no measured case is in both"
        if of.side_by_side:
            return f"{of.matched} cases side by side; nothing is judged across GPUs"
        counts = Counter(row.word for row in of.rows if row.word != "no number")
        parts = [f"{count} {word}" for word, count in counts.items()]
        if len(of.rows) > of.matched:
            parts.append(f"{len(of.rows) - of.matched} without a number in either")
        limit = "" if of.threshold is None else f"; {len(of.regressions)} beyond {100 * of.threshold:g} %"
        cases = "1 case" if len(of.rows) == 1 else f"{len(of.rows)} cases"
        return f"{cases} in both: {', '.join(parts)}{limit}"

    def _wrap(self, text: str, indent: str) -> list[str]:
        """Breaks at spaces where it can, inside a word where it must."""
        import textwrap

        start = text[: len(text) - len(text.lstrip())]
        return textwrap.wrap(
            text.strip(), self._width, initial_indent=start, subsequent_indent=indent, break_on_hyphens=False
        )


def _number(value: float | None) -> str:
    """At most nine characters."""
    if value is None:
        return "-"
    return f"{value:.0f}" if 1e4 <= value < 1e9 else f"{value:.4g}"


def _interval(interval: Interval | None) -> str:
    """At most thirteen characters."""
    if interval is None:
        return "-"
    digits = ".4f" if interval.high < 10 else ".2g"
    return f"{interval.low:{digits}}-{interval.high:{digits}}"


def _percent(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} %"
