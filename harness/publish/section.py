"""DataFrame -> sections: the rows that stand in one table together, with what its caption must say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from harness.key import safe_name
from harness.publish.contrast import contrasts
from harness.publish.fold import fold
from harness.publish.frame import section_key
from harness.publish.known import Known, StudyFacts
from harness.publish.labels import OTHER_CONFIGURATIONS, labels
from harness.store import RecordFile

Row = Mapping[str, Any]

# How the file names of tables end that hold no GPU.
_BUILT_ENDING = "-built"


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One table: its rows in order, and the headers of the runs they come from, the oldest first.

    `rows` holds one row per case, all its builds in one; `records` one per record. `gpu` is None where
    nothing was timed: rows are then one per case and architecture.
    """

    study: str
    gpu: str | None
    problem: str
    rows: tuple[Row, ...]
    records: tuple[Row, ...]
    headers: tuple[Mapping[str, Any], ...]
    partial: tuple[str, ...]

    @property
    def stem(self) -> str:
        """File name of the table, without its ending."""
        return safe_name(f"{self.study}-{self.gpu}") if self.gpu else safe_name(self.study + _BUILT_ENDING)

    @property
    def title(self) -> str:
        """What the table is of, in one line."""
        if not self.gpu:
            return f"{self.study}, compiled and inspected, not timed"
        return f"{self.study} on {self.gpu}" + (", predicted, not measured" if self.predicted else "")

    @property
    def predicted(self) -> bool:
        """Whether no row was timed: bounds from machine code stand in place of numbers."""
        return all(row["type"] == "predicted" for row in self.rows)

    @property
    def main(self) -> tuple[Row, ...]:
        """The rows at the configurations of full, and others that failed or stand for no such row."""
        shown = {row["levels"] for row in self.rows if row["set"] != OTHER_CONFIGURATIONS}
        return tuple(row for row in self.rows if not _is_alternative(row, shown))

    @property
    def alternatives(self) -> tuple[Row, ...]:
        """The rows at other configurations, of which a main row's ceiling is the best."""
        main = {id(row) for row in self.main}
        return tuple(row for row in self.rows if id(row) not in main)


def is_of_built(path: Path) -> bool:
    """Whether a file is a table of what was only built, by its name."""
    return path.stem.endswith(_BUILT_ENDING)


def _is_alternative(row: Row, shown: set[Any]) -> bool:
    return row["set"] == OTHER_CONFIGURATIONS and row["status"] == "ok" and row["levels"] in shown


def blocks_of(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """(subtitle, rows) of each block of a table, in the order of first mention."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["block"] or ""), []).append(row)
    return list(found.items())


def sections(
    data: pd.DataFrame, files: Iterable[RecordFile], known: Known | None = None
) -> tuple[Section, ...]:
    """Every table of the frame that `files` gave, in the order of its rows; replaced rows are left out."""
    groups: dict[tuple[str, ...], list[Row]] = {}
    for row in _beside([row for row in rows_of(data) if row["latest"]]):
        groups.setdefault((str(row["type"] == "predicted"), *section_key(row)), []).append(row)
    by_run = {str(file.header["run"])[:12]: file for file in files}
    facts = {study: found for study, found in (known or {}).items()}
    made = [_section(rows, by_run, facts.get(rows[0]["study"], StudyFacts())) for rows in groups.values()]
    return tuple(sorted(made, key=lambda section: (section.gpu is None, section.predicted)))


def largest_sections(made: Iterable[Section]) -> dict[tuple[str, str], Section]:
    """(study, GPU) -> its largest table, measured before predicted; those of no GPU are left out."""
    found: dict[tuple[str, str], Section] = {}
    for section in made:
        if section.gpu:
            best = found.setdefault((section.study, section.gpu), section)
            if (not section.predicted, len(section.rows)) > (not best.predicted, len(best.rows)):
                found[section.study, section.gpu] = section
    return found


def _beside(rows: Sequence[Row]) -> list[Row]:
    """Predictions of cases that were measured on the same product stand in their rows, not in rows of theirs.

    Only of the same text: what the machine code of another one allows says nothing of it.
    """
    predicted = {_where(row): row for row in rows if row["type"] == "predicted"}
    measured = {_where(row) for row in rows if row["type"] == "measured"}
    found = []
    for row in rows:
        if row["type"] == "predicted" and _where(row) in measured:
            continue
        of = predicted.get(_where(row)) if row["type"] == "measured" and row["status"] == "ok" else None
        if of is not None and of["digest"] == row["digest"]:
            row = {**row, **_from_prediction(row, of)}
        found.append(row)
    return found


def _where(row: Row) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in ("study", "gpu", "arch", "problem", "case"))


def _from_prediction(row: Row, of: Row) -> dict[str, Any]:
    """The columns that a prediction adds to a measured row: its own bound stays where it has one."""
    added: dict[str, Any] = {name: of[name] for name in ("estimate", "second", "margin")}
    added["prediction"] = of["record"]
    if row["bound"] is None and of["bound"]:
        rate = row["flop_clk_sm"]
        added |= {"bound": of["bound"], "binding": of["binding"]}
        added["of_bound"] = None if rate is None else 100 * rate / of["bound"]
    return added


def rows_of(data: pd.DataFrame) -> list[Row]:
    """The rows of a frame as mappings."""
    names = [str(name) for name in data.columns]
    return [dict(zip(names, row, strict=True)) for row in data.itertuples(index=False, name=None)]


def _section(rows: Sequence[Row], by_run: Mapping[str, RecordFile], facts: StudyFacts) -> Section:
    runs = sorted({(row["started"], row["run"]) for row in rows})
    used = [by_run[run] for _, run in runs]
    named = labels(rows, facts)
    effects = contrasts(rows)
    records = [
        {**row, "block": label.subtitle, "label": label.text, **effects.get(number, {})}
        for number, (row, label) in enumerate(zip(rows, named, strict=True))
    ]
    ceilings = _ceilings(folded := fold(records))
    return Section(
        study=str(rows[0]["study"]),
        gpu=rows[0]["gpu"] or None,
        problem=str(rows[0]["problem"]),
        rows=tuple({**row, **ceilings.get(row["levels"], {})} if _rate(row) else row for row in folded),
        records=tuple({**row, **ceilings.get(row["levels"], {})} if _rate(row) else row for row in records),
        headers=tuple(file.header for file in used),
        partial=tuple(file.partial for file in used if file.partial),
    )


def _rate(row: Row) -> float:
    return float(row["flop_clk_sm"] or 0.0)


def _ceilings(rows: Sequence[Row]) -> dict[Any, dict[str, Any]]:
    """Levels -> the best rate over all configurations, and the configuration that reaches it."""
    best: dict[Any, Row] = {}
    for row in rows:
        if _rate(row) > (_rate(best[row["levels"]]) if row["levels"] in best else 0.0):
            best[row["levels"]] = row
    return {levels: {"ceiling": _rate(row), "ceiling_at": row["slug"]} for levels, row in best.items()}
