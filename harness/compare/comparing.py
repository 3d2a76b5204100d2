"""Matching the rows of two record files, refusing what is not comparable, and judging what is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.compare.values import ComparedRow, Comparison, Metric
from harness.errors import UsageError
from harness.stats import Rule, Word, holm, resamples_for, unpaired_builds
from harness.store import RecordFile, identity

Json = Mapping[str, Any]
Percent = Callable[[Json, Json], float | None]

# Follow from the build: another code may well change them, and that is no other condition.
DERIVED = ("waves", "ctas_per_sm")
# Driver versions report the memory of one board a little differently.
MEMORY_TOLERANCE = 0.02
SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """The builds of one case in one file, by perturbation; the newest record of each."""

    study: str
    case: str
    conditions: Json
    builds: Mapping[int, Json]


def compare(
    before: RecordFile,
    after: RecordFile,
    *,
    threshold_percent: float | None = None,
    across_gpus: bool = False,
    across_conditions: bool = False,
    metric: Metric = "cycles",
    own_percent: Percent | None = None,
    rule: Rule | None = None,
) -> Comparison:
    """Compare the measured rows of `before` (A) and `after` (B).

    Rows match by what was asked, whatever the source digest, toolkit or driver: where those differ, it warns.

    Args:
        threshold_percent: a case slower by more fails the comparison, and so does one that lost its number.
        across_gpus: allow different GPUs: the rates stand side by side and nothing is judged.
        across_conditions: match rows of other data fills or L2 states, too.
        own_percent: (header, record) -> percentage of that GPU's own peak, for the rows side by side.

    Raises:
        UsageError: the GPUs or the conditions differ and nobody asked for that.
    """
    threshold = None if threshold_percent is None else threshold_percent / 100
    rule = rule or Rule()
    if threshold is not None:
        rule = replace(rule, min_ratio=threshold)
    others = gpu_differences(before.header, after.header)
    if others and not across_gpus:
        raise UsageError(f"{'; '.join(others)}: not comparable; --across-gpus puts their rates side by side")
    side_by_side = bool(others)
    a, b = (_groups(file, loose_sizes=side_by_side) for file in (before, after))
    both = [name for name in a if name in b]
    conflicts = [text for name in both if (text := _conflict(a[name], b[name]))]
    if conflicts and not across_conditions:
        raise UsageError(f"conditions differ: {_some(conflicts)}; compare runs under the same conditions")
    if side_by_side:
        rows = [_side_by_side(before.header, a[n], after.header, b[n], own_percent) for n in both]
    else:
        rows = _judged([(a[name], b[name]) for name in both], metric, rule)
    return Comparison(
        a=before.path.name,
        b=after.path.name,
        gpus=(_gpu(before.header).get("name"), _gpu(after.header).get("name")),
        metric=metric,
        unit="FLOP/clk/SM" if side_by_side else {"cycles": "busy cycles", "seconds": "seconds"}[metric],
        threshold=None if side_by_side else threshold,
        rows=tuple(rows),
        only_a=tuple(f"{a[name].study}/{a[name].case}" for name in a if name not in b),
        only_b=tuple(f"{b[name].study}/{b[name].case}" for name in b if name not in a),
        warnings=(*others, *conflicts, *_warnings(before, after, [(a[n], b[n]) for n in both])),
        side_by_side=side_by_side,
        predicted_for=(_predicted_for(before), _predicted_for(after)),
    )


# ------------------------------------------------------------ what may be compared


def gpu_differences(a: Json, b: Json) -> list[str]:
    """In which ways two headers are of different GPUs; what one of them does not know is no difference."""
    one, two = _gpu(a), _gpu(b)
    found = []
    for name, label in (("name", "GPU"), ("cc", "compute capability"), ("sms", "SMs")):
        if one.get(name) is not None and two.get(name) is not None and one[name] != two[name]:
            found.append(f"{label} {_text(one[name])} and {_text(two[name])}")
    for name, label, tolerance in (
        ("memory_bytes", "memory bytes", MEMORY_TOLERANCE),
        ("power_limit_w", "power limit W", 1e-3),
    ):
        if one.get(name) and two.get(name) and not math.isclose(one[name], two[name], rel_tol=tolerance):
            found.append(f"{label} {_text(one[name])} and {_text(two[name])}")
    return found


def _gpu(header: Json) -> Json:
    return (header.get("environment") or {}).get("gpu") or {}


def _predicted_for(file: RecordFile) -> str | None:
    """The product that a file of predictions is of; None for any other file."""
    kinds = {record.get("type") for record in file.records}
    names = {str((record.get("target") or {}).get("gpu") or "") for record in file.records}
    return ", ".join(sorted(names)) if kinds == {"predicted"} and all(names) else None


def _text(value: object) -> str:
    return ".".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _conflict(a: _Group, b: _Group) -> str:
    """How the conditions that a user chooses differ between two matched groups."""
    names = sorted((set(a.conditions) | set(b.conditions)) - set(DERIVED))
    parts = [n for n in names if a.conditions.get(n) != b.conditions.get(n)]
    return ", ".join(f"{n} {a.conditions.get(n)} and {b.conditions.get(n)}" for n in parts)


def _warnings(before: RecordFile, after: RecordFile, pairs: list[tuple[_Group, _Group]]) -> list[str]:
    found = [f"{letter}: {file.partial}" for letter, file in (("A", before), ("B", after)) if file.partial]
    one, two = (file.header.get("environment") or {} for file in (before, after))
    for name, label in (("driver", "driver"), ("nvrtc", "NVRTC")):
        if one.get(name) != two.get(name):
            found.append(f"{label} {one.get(name)} and {two.get(name)}")
    for name, label in (("ecc", "ECC"), ("mig", "MIG"), ("clocks_locked", "clock lock")):
        if _gpu(before.header).get(name) != _gpu(after.header).get(name):
            found.append(f"{label} {_gpu(before.header).get(name)} and {_gpu(after.header).get(name)}")
    changed = sum(_digests(a) != _digests(b) for a, b in pairs)
    if changed:
        found.append(f"the source differs in {changed} of {len(pairs)} cases")
    return found


def _digests(group: _Group) -> set[object]:
    return {(record.get("source") or {}).get("digest") for record in group.builds.values()}


def _some(texts: list[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    return "; ".join(distinct[:SHOWN]) + ("; ..." if len(distinct) > SHOWN else "")


# ------------------------------------------------------------ matching


def _groups(file: RecordFile, *, loose_sizes: bool) -> dict[str, _Group]:
    """The measured cases of a file by what was asked, in its order; builds of one case together."""
    found: dict[str, _Group] = {}
    for record in file.records:
        if record.get("type") != "measured" or record.get("status") in ("skipped", "not_supported"):
            continue
        name = _loose_identity(record, loose_sizes=loose_sizes)
        builds = dict(found[name].builds) if name in found else {}
        builds[int(record.get("perturbation") or 0)] = record
        found[name] = _Group(
            study=str(record.get("study")),
            case=str(record.get("case")),
            conditions=record.get("conditions") or {},
            builds=builds,
        )
    return found


def _loose_identity(record: Json, *, loose_sizes: bool) -> str:
    """Identity without the conditions and the perturbation; between GPUs also without sizes and arch."""
    stripped: dict[str, Any] = {**record, "conditions": None, "perturbation": None}
    if loose_sizes:
        stripped |= {"sizes": None, "target": None, "options": None}
    return identity(stripped)


def _values(record: Json, column: str) -> list[float]:
    """The positive numbers of a column of samples; none where the status is not ok."""
    if record.get("status") != "ok":
        return []
    values: Iterable[float | None] = (record.get("samples") or {}).get(column) or ()
    return [float(v) for v in values if v is not None and math.isfinite(v) and v > 0]


# ------------------------------------------------------------ judging


def _judged(pairs: list[tuple[_Group, _Group]], metric: Metric, rule: Rule) -> list[ComparedRow]:
    column = "busy_cycles" if metric == "cycles" else "seconds"
    rule = replace(rule, resamples=resamples_for(len(pairs), rule))
    drawn = [_row(a, b, column, rule) for a, b in pairs]
    rows = [row for row, _ in drawn]
    adjusted = holm([p for _, p in drawn])
    return [
        replace(row, word=_word(row, p, rule), p_holm=p) if row.ratio is not None else row
        for row, p in zip(rows, adjusted, strict=True)
    ]


def _row(a: _Group, b: _Group, column: str, rule: Rule) -> tuple[ComparedRow, float]:
    """A row without its word, and its p."""
    one = {build: values for build, record in a.builds.items() if (values := _values(record, column))}
    two = {build: values for build, record in b.builds.items() if (values := _values(record, column))}
    common = sorted(set(one) & set(two))
    word: Literal["unclear", "failed", "works", "no number"] = "unclear"
    if not common:
        word = "failed" if one else "works" if two else "no number"
    row = ComparedRow(
        study=b.study,
        case=b.case,
        a=_level([one[build] for build in common or one]),
        b=_level([two[build] for build in common or two]),
        word=word,
        note=_row_note(a, b, common),
    )
    if not common:
        return row, 1.0
    ratio, interval, p = unpaired_builds([(two[build], one[build]) for build in common], rule)
    return replace(row, ratio=ratio, interval=interval), p


def _level(builds: list[list[float]]) -> float | None:
    import statistics

    return statistics.geometric_mean(statistics.median(values) for values in builds) if builds else None


def _row_note(a: _Group, b: _Group, common: list[int]) -> str:
    notes = []
    if not common:
        for letter, group in (("A", a), ("B", b)):
            bad = next((r for r in group.builds.values() if r.get("status") != "ok"), None)
            if bad is not None:
                notes.append(f"{letter}: {bad.get('status')}: {bad.get('reason')}")
    for name in DERIVED:
        if a.conditions.get(name) != b.conditions.get(name):
            notes.append(f"{name} {a.conditions.get(name)} and {b.conditions.get(name)}")
    if common and len(common) < max(len(a.builds), len(b.builds)):
        notes.append(f"{len(common)} builds in common")
    return "; ".join(notes)


def _word(row: ComparedRow, p_holm: float, rule: Rule) -> Word:
    if row.ratio is None or row.interval is None:
        return "unclear"
    most = 1 + rule.min_ratio
    if p_holm < 1 - rule.confidence and row.interval.excludes(1.0):
        if row.ratio > most:
            return "slower"
        if row.ratio < 1 / most:
            return "faster"
    return "same" if 1 / most <= row.interval.low and row.interval.high <= most else "unclear"


def _side_by_side(one: Json, a: _Group, two: Json, b: _Group, percent: Percent | None) -> ComparedRow:
    """Rates of two GPUs; nothing is said of them but the share of each one's own peak."""
    rates = []
    shares = []
    for header, group in ((one, a), (two, b)):
        record = next((r for r in group.builds.values() if _values(r, "flop_clk_sm")), None)
        rates.append(_level([_values(record, "flop_clk_sm")]) if record else None)
        shares.append(percent(header, record) if record and percent else None)
    word: Literal["unclear", "failed", "works", "no number"] = "unclear"
    if rates[0] is None or rates[1] is None:
        word = "no number" if rates[0] is rates[1] else "failed" if rates[1] is None else "works"
    return ComparedRow(
        study=b.study,
        case=b.case,
        a=rates[0],
        b=rates[1],
        word=word,
        a_percent=shares[0],
        b_percent=shares[1],
    )
