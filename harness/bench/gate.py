"""The regression gate: two saved runs of the same GPU, cases on cycles, host work on seconds."""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.bench.measured import THRESHOLD_PERCENT
from harness.bench.saved import SavedRun, load
from harness.compare import ComparedRow, Comparison, compare
from harness.compare.comparing import gpu_differences
from harness.compare.values import NOTHING_MATCHED, REGRESSED
from harness.errors import UsageError

# What the host does shares its cores with others.
HOST_THRESHOLD_PERCENT = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """What came out. `thresholds` are fractions by `study/case`, those that differ from `default`."""

    device: Comparison
    host: Comparison
    thresholds: Mapping[str, float]
    default: float

    @property
    def matched(self) -> int:
        """Benchmarks of both runs with a number."""
        return self.device.matched + self.host.matched

    @property
    def exit_status(self) -> int:
        """3 when nothing matched, 1 on a regression, else 0."""
        if not self.matched:
            return NOTHING_MATCHED
        return REGRESSED if self.device.regressions or self.host.regressions else 0

    def as_json(self) -> dict[str, Any]:
        """Both comparisons in JSON types."""
        return {
            "device": self.device.as_json(),
            "host": self.host.as_json(),
            "exit_status": self.exit_status,
            "matched": self.matched,
            "regressions": self.sentences(),
        }

    def lines(self, width: int = 80) -> list[str]:
        """Both comparisons as text, then one sentence for each regression."""
        found = []
        for part in (self.device, self.host):
            if part.rows or part.only_a or part.only_b:
                found += [*part.lines(width), ""]
        if not self.matched:
            found += [f"0 benchmarks matched between {self.device.a} and {self.device.b}"]
        return [*found, *self.sentences()]

    def sentences(self) -> list[str]:
        """Every regression with its case, metric and direction."""
        parts = ((self.device, "busy cycles"), (self.host, "seconds"))
        return [self._sentence(row, part, name) for part, name in parts for row in part.regressions]

    def _sentence(self, row: ComparedRow, part: Comparison, metric: str) -> str:
        name = f"{row.study}/{row.case}"
        if row.ratio is None:
            return f"regression: {name}: had {metric} before and has none now"
        allowed = self.thresholds.get(name, part.threshold or self.default)
        return (
            f"regression: {name}: {metric} rose by {100 * (row.ratio - 1):.2f} %, more than the "
            f"{100 * allowed:g} % allowed (more is slower)"
        )


def gate(
    before: Path,
    after: Path,
    *,
    threshold_percent: float | None = None,
    by_case: Mapping[str, float] | None = None,
    host_percent: float = HOST_THRESHOLD_PERCENT,
) -> Gate:
    """Compare two saved runs.

    Args:
        threshold_percent: for every case; without it each case's own, as `before` saved it.
        by_case: glob over `study/case` -> percent, for the cases it matches; the last that matches counts.

    Raises:
        UsageError: the GPUs differ. RecordError: a file is no saved run.
    """
    a, b = load(before), load(after)
    differences = gpu_differences(a.device.header, b.device.header)
    if differences:
        raise UsageError(f"{'; '.join(differences)}: benchmarks of different GPUs are not compared")
    default = (THRESHOLD_PERCENT if threshold_percent is None else threshold_percent) / 100
    names = {f"{r['study']}/{r['case']}" for file in (a.device, b.device) for r in file.records}
    allowed = {name: _allowed(name, a, threshold_percent, by_case or {}) / 100 for name in names}
    least = min(allowed.values(), default=default)
    found = compare(a.device, b.device, threshold_percent=100 * least)
    device = replace(
        found,
        rows=tuple(_relaxed(row, allowed[f"{row.study}/{row.case}"]) for row in found.rows),
        warnings=(*found.warnings, *_work_differs(a, b)),
    )
    host = compare(a.host, b.host, threshold_percent=host_percent, metric="seconds")
    if a.cpu != b.cpu:
        host = replace(host, warnings=(*host.warnings, f"CPU {a.cpu or '?'} and {b.cpu or '?'}"))
    return Gate(device=device, host=host, thresholds=allowed, default=default)


def newest(folder: Path, machine: str | None = None) -> tuple[Path, Path]:
    """The last two saved runs of one machine's folder under `folder`: of the newest run, unless named.

    Raises UsageError when there are not two.
    """
    runs = sorted(folder.glob(f"{machine or '*'}/[0-9]*_*.json"), key=lambda path: path.stat().st_mtime_ns)
    if not runs:
        raise UsageError(f"no saved run under {folder}: `make bench` saves one")
    same = sorted(path for path in runs if path.parent == runs[-1].parent)
    if len(same) < 2:
        raise UsageError(
            f"only one saved run in {same[0].parent}: run `make bench` again to have one to compare with"
        )
    return same[-2], same[-1]


def _allowed(
    name: str, before: SavedRun, threshold_percent: float | None, by_case: Mapping[str, float]
) -> float:
    own = before.thresholds.get(name, THRESHOLD_PERCENT) if threshold_percent is None else threshold_percent
    for pattern, percent in by_case.items():
        if fnmatch.fnmatchcase(name, pattern):
            own = percent
    return own


def _relaxed(row: ComparedRow, allowed: float) -> ComparedRow:
    """The row judged with its own threshold, which is no smaller than the one it was judged with."""
    if row.ratio is None or row.interval is None or row.word not in ("slower", "faster", "unclear"):
        return row
    if row.word != "unclear" and not 1 / (1 + allowed) <= row.ratio <= 1 + allowed:
        return row
    within = 1 / (1 + allowed) <= row.interval.low and row.interval.high <= 1 + allowed
    return replace(row, word="same" if within else "unclear")


def _work_differs(a: SavedRun, b: SavedRun) -> Sequence[str]:
    """Cases whose launches do another amount of work: their cycles say little."""
    before = {r["case"]: r.get("flops") for r in a.device.records}
    names = [r["case"] for r in b.device.records if before.get(r["case"], r.get("flops")) != r.get("flops")]
    return [f"{len(names)} cases launch another amount of work: {', '.join(names[:3])}"] if names else []
