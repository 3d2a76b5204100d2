"""Effects of the rows of one table: each case against its full in the same rounds, all builds of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from harness.stats import Pair, Series, effects, series

Row = Mapping[str, Any]


def contrasts(rows: Sequence[Row]) -> dict[int, dict[str, Any]]:
    """Row number -> effect columns, for rows that have a number and a full at the same configuration.

    Cycles and seconds are taken per FLOP, for cases may do other amounts of work. The words are corrected
    for the number of rows (Holm).
    """
    builds: dict[tuple[str, str], dict[int, Row]] = {}
    for row in rows:
        if _samples(row):
            builds.setdefault((str(row["run"]), str(row["case"])), {})[int(row["perturbation"])] = row
    pairs: dict[int, Pair] = {}
    for number, row in enumerate(rows):
        mine = builds.get((str(row["run"]), str(row["case"])), {})
        full = builds.get((str(row["run"]), str(row["full"])), {})
        if not full or row["case"] == row["full"] or mine.get(min(mine, default=0)) is not row:
            continue
        first = full[min(full)]
        if first["slug"] == row["slug"]:
            pairs[number] = Pair(
                name=str(row["case"]),
                case={build: _per_flop(member) for build, member in mine.items()},
                full={build: _per_flop(member) for build, member in full.items()},
                same_source=bool(row["digest"]) and row["digest"] == first["digest"],
            )
    found = effects(list(pairs.values()))
    return {number: _columns(effect) for number, effect in zip(pairs, found, strict=True)}


def between(rows: Sequence[Row], pairs: Sequence[tuple[str, str]]) -> list[dict[str, Any] | None]:
    """Effect columns of each (case, other case) that one run timed; None where none timed both.

    The words are corrected for the number of pairs (Holm).
    """
    builds: dict[str, dict[str, dict[int, Row]]] = {}
    for row in rows:
        if _samples(row):
            of = builds.setdefault(f"{row['started']} {row['run']}", {})
            of.setdefault(str(row["case"]), {})[int(row["perturbation"])] = row
    asked: dict[int, Pair] = {}
    for number, (case, other) in enumerate(pairs):
        run = max((name for name, of in builds.items() if case in of and other in of), default=None)
        if run is not None:
            mine, base = (builds[run][name] for name in (case, other))
            asked[number] = Pair(
                name=case,
                case={build: _per_flop(row) for build, row in mine.items()},
                full={build: _per_flop(row) for build, row in base.items()},
            )
    found = dict(zip(asked, effects(list(asked.values())), strict=True))
    return [_columns(found[number]) if number in found else None for number in range(len(pairs))]


def _samples(row: Row) -> Any:
    return (row["record"] or {}).get("samples") if row["status"] == "ok" else None


def _per_flop(row: Row) -> Series:
    found = series(row["record"]["samples"])
    flops = (row["record"].get("work") or {}).get("flops") or 1
    return Series(rounds=found.rounds, cycles=_over(found.cycles, flops), seconds=_over(found.seconds, flops))


def _over(values: Sequence[float | None], flops: float) -> tuple[float | None, ...]:
    return tuple(None if value is None else value / flops for value in values)


def _columns(effect: Any) -> dict[str, Any]:
    """The change of FLOP per clock in percent: above zero is faster."""
    total = effect.total
    return {
        "effect": effect.word,
        "effect_percent": _gain(effect.ratio),
        "effect_low": _gain(total.high) if total else None,
        "effect_high": _gain(total.low) if total else None,
        "effect_note": effect.note,
    }


def _gain(ratio: float | None) -> float | None:
    return 100 * (1 / ratio - 1) if ratio and math.isfinite(ratio) else None
