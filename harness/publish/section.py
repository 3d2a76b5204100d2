"""DataFrame -> sections: the rows that stand in one table together, with what its caption must say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from harness.key import safe_name
from harness.publish.contrast import contrasts
from harness.publish.derive import median, product_of
from harness.publish.fold import fold
from harness.publish.frame import section_key
from harness.publish.known import Known, StudyFacts
from harness.publish.labels import OTHER_CONFIGURATIONS, labels
from harness.publish.stale import refresh_command
from harness.store import RecordFile

Row = Mapping[str, Any]


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
        return safe_name(f"{self.study}-{self.gpu}") if self.gpu else safe_name(f"{self.study}-built")

    @property
    def title(self) -> str:
        """What the table is of, in one line."""
        return (
            f"{self.study} on {self.gpu}" if self.gpu else f"{self.study}, compiled and inspected, not timed"
        )

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
    for row in rows_of(data):
        if row["latest"]:
            groups.setdefault(section_key(row), []).append(row)
    by_run = {str(file.header["run"])[:12]: file for file in files}
    facts = {study: found for study, found in (known or {}).items()}
    made = [_section(rows, by_run, facts.get(rows[0]["study"], StudyFacts())) for rows in groups.values()]
    return tuple(sorted(made, key=lambda section: section.gpu is None))


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


def caption(section: Section) -> tuple[str, ...]:
    """What must be known to read the table, and to make it again; one sentence a line."""
    lines = [_machine(section), _clocks(section), _conditions(section), *_peaks(section), *_words(section)]
    lines += _runs(section.headers)
    lines += [f"PARTIAL: {reason}" for reason in section.partial]
    lines += _stale(section)
    return tuple(line for line in lines if line)


def _machine(section: Section) -> str:
    environment = section.headers[-1].get("environment") or {}
    gpu = environment.get("gpu") or {}
    parts = []
    if section.gpu:
        cc = ".".join(map(str, gpu.get("cc") or ()))
        parts += [f"{section.gpu}, {gpu.get('sms', '?')} SMs" + (f", compute capability {cc}" if cc else "")]
        parts += [f"board {gpu['uuid']}"] if gpu.get("uuid") else []
    parts += [f"driver {environment['driver']}"] if environment.get("driver") else []
    parts += [
        "NVRTC " + ", ".join(dict.fromkeys(str(row["toolkit"]) for row in section.rows if row["toolkit"]))
    ]
    for name, word in (("power_limit_w", "power limit {} W"), ("ecc", "ECC {}"), ("mig", "MIG {}")):
        if gpu.get(name) is not None:
            parts.append(word.format(_word(gpu[name])))
    if gpu.get("clocks_locked") is not None:
        parts.append("clocks locked" if gpu["clocks_locked"] else "clocks not locked")
    return "; ".join(parts)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _clocks(section: Section) -> str:
    """The three clocks, told apart; empty where nothing was timed."""
    run = [row["sm_mhz"] for row in section.rows if row["sm_mhz"] is not None]
    if not run:
        return ""
    product = product_of(section.headers[-1])
    reported = median([row["reported_mhz"] for row in section.rows])
    parts = [f"{product.boost_hz / 1e6:.0f} MHz boost by specification"] if product else []
    parts += [f"{reported:.0f} MHz reported by the driver"] if reported is not None else []
    parts += [f"{_range(min(run), max(run))} MHz run, counted in the kernels"]
    return "SM clock: " + ", ".join(parts)


def _range(low: float, high: float) -> str:
    texts = dict.fromkeys((f"{low:.0f}", f"{high:.0f}"))
    return " to ".join(texts)


def _conditions(section: Section) -> str:
    fills = dict.fromkeys(str(row["fill"]) for row in section.rows if row["fill"])
    l2 = next((str(row["l2"]) for row in section.rows if row["l2"]), "")
    parts = [f"problem {section.problem}"]
    parts += [f"inputs {', '.join(fills)}"] if fills and section.gpu else []
    parts += [f"L2 {l2}"] if l2 else []
    samples = [row["samples"] for row in section.rows if row["samples"]]
    parts += [f"medians of {_range(min(samples), max(samples))} launches"] if samples else []
    return "; ".join(parts)


def _words(section: Section) -> list[str]:
    """How the words of a table of effects are to be read."""
    if not any(row["effect"] for row in section.rows):
        return []
    builds = [row["builds"] for row in section.rows if row["builds"]]
    most = max(builds, default=1)
    spread = (
        f"; codegen is half the range over {most} trivially different texts of a case" if most > 1 else ""
    )
    return [
        "vs full: FLOP/clk/SM against the full case of the same axes at its configuration, within rounds, "
        f"95 % intervals, words corrected for the number of rows{spread}"
    ]


def _peaks(section: Section) -> list[str]:
    """Which peaks the percentages are of: a percentage without a name misleads."""
    lines = []
    for word, name, value in (("path", "own_peak_name", "own_peak"), ("chip", "chip_peak_name", "chip_peak")):
        peaks = {row[name]: row[value] for row in section.rows if row["flop_clk_sm"] is not None}
        known = [f"{peak} {rate:g} FLOP/clk/SM" for peak, rate in sorted(peaks.items()) if rate is not None]
        if known:
            lines.append(f"% of {word} peak is of: " + ", ".join(known))
        elif peaks:
            lines.append(f"% of {word} peak: the peak is not known for this GPU")
    return lines


def _stale(section: Section) -> list[str]:
    stale = [row for row in section.rows if row["stale"]]
    if not stale:
        return []
    commands = dict.fromkeys(
        str(row["stale"]) if len(stale) <= 3 else refresh_command(row["record"]) for row in stale
    )
    return [
        f"STALE: {len(stale)} of {len(section.rows)} rows were made from another text than the template "
        f"renders today; refresh with: {'; '.join(commands)}"
    ]


def _runs(headers: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per command that was run; it writes a file per study and target."""
    ids: dict[str, list[str]] = {}
    for header in headers:
        suite = header.get("suite") or {}
        commit = str(suite.get("commit") or "unknown")[:12] + (" with changes" if suite.get("dirty") else "")
        made = f"{header['started']}, suite {suite.get('version', '?')}, commit {commit}"
        ids.setdefault(f"{made}: {header.get('command', '')}", []).append(str(header["run"])[:12])
    return [f"run {', '.join(runs)} of {made}" for made, runs in ids.items()]
