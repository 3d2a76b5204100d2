"""Records -> the evidence of the decision rule: ratios to ceilings, exposed costs, gains, clocks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.answer.costs import Amount, costs_of, series_of, tile_flops
from harness.answer.decide import Evidence, Exposed, Gain
from harness.answer.group import Group, has_numbers, median_of, rates_of
from harness.answer.lattice import Shape
from harness.answer.pipes import MEMORY, is_pipe
from harness.answer.result import Attribution
from harness.chips import identify, peak, pipe
from harness.stats import Pair, Rule, Series, effects
from harness.store import RecordFile

Json = Mapping[str, Any]
Mode = tuple[str, str, str]
"""Path, input type, accumulator."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The most that a path and its types give, in FLOP per clock and SM; `case` measured it, None: the table.

    `table` is the table's figure beside a measured one, None where unknown.
    """

    value: float
    case: str | None
    table: float | None


def gpu_of(file: RecordFile) -> Json:
    """What the file's header says of the GPU; empty where there was none."""
    found: Json = (file.header.get("environment") or {}).get("gpu") or {}
    return found


def mode_of(record: Json) -> Mode:
    """Path, input and accumulator of a record's MMAs."""
    work = record.get("work") or {}
    return str(work.get("mma_path")), str(work.get("input")), str(work.get("acc"))


def ceilings(files: Iterable[RecordFile], studies: Collection[str]) -> dict[tuple[str, int, Mode], Ceiling]:
    """(GPU name, SMs, mode) -> the best measured case of the studies that measure ceilings."""
    best: dict[tuple[str, int, Mode], tuple[float, str]] = {}
    for file in files:
        gpu = gpu_of(file)
        for record in file.records if gpu else ():
            if record.get("study") not in studies or not has_numbers(record):
                continue
            value = median_of(record, "flop_clk_sm")
            if value is not None:
                key = (str(gpu["name"]), int(gpu["sms"]), mode_of(record))
                best[key] = max(best.get(key, (0.0, "")), (value, f"{record['study']}/{record['case']}"))
    return {
        key: Ceiling(value=value, case=case, table=_table(key[0], key[1], key[2]))
        for key, (value, case) in best.items()
    }


def _table(gpu: str, sms: int, mode: Mode) -> float | None:
    chip = identify(gpu, sms)
    if chip is None:
        return None
    rate, known = peak(chip, *mode), pipe(chip.cc, mode[0])
    return rate.flop_clk_sm if rate else known.rate if known else None


def pipe_rates(files: Iterable[RecordFile]) -> dict[tuple[str, int], dict[str, float]]:
    """(GPU name, SMs) -> pipe -> the best rate that a loop of that pipe's own instruction reached, per clock
    and SM in the pipe's unit. They stand above the table's for that GPU. A memory level has a clock of its
    own: its rate is the chip's in seconds, per SM clock at boost, as in the table."""
    best: dict[tuple[str, int], dict[str, float]] = {}
    for file in files:
        gpu = gpu_of(file)
        for record in file.records if gpu else ():
            name = mode_of(record)[0]
            if not is_pipe(name) or not has_numbers(record):
                continue
            value = _chip_rate(gpu, record) if name in MEMORY else median_of(record, "flop_clk_sm")
            if value is not None:
                rates = best.setdefault((str(gpu["name"]), int(gpu["sms"])), {})
                rates[name] = max(rates.get(name, 0.0), value)
    return best


def _chip_rate(gpu: Json, record: Json) -> float | None:
    """Work per second of the whole chip, per SM and clock at boost; None where the chip is unknown."""
    chip, seconds = identify(str(gpu["name"]), int(gpu["sms"])), median_of(record, "seconds")
    return record["work"]["flops"] / seconds / chip.sms / chip.boost_hz if chip and seconds else None


def ceiling_of(group: Group, measured: Mapping[tuple[str, int, Mode], Ceiling]) -> Ceiling | None:
    """The ceiling of a group's path: measured on that GPU, else the table's, else None.

    A study that measures ceilings is held against the table: against itself it would always be at the top.
    """
    mode = mode_of(group.full_record)
    found = measured.get((group.gpu, group.sms, mode))
    table = _table(group.gpu, group.sms, mode)
    itself = found is not None and str(found.case).startswith(f"{group.study}/")
    if found and not (itself and table):
        return found
    return None if table is None else Ceiling(value=table, case=None, table=table)


def light_clocks(files: Iterable[RecordFile]) -> dict[str, float]:
    """Board -> the highest median SM clock of any case on it: what a light kernel runs at, in Hz."""
    found: dict[str, float] = {}
    for file in files:
        gpu = gpu_of(file)
        for record in file.records if gpu else ():
            hz = median_of(record, "sm_hz") if has_numbers(record) else None
            if hz:
                board = str(gpu.get("uuid") or gpu["name"])
                found[board] = max(found.get(board, 0.0), hz)
    return found


def evidence_of(
    group: Group,
    shape: Shape,
    attribution: Attribution | None,
    ceiling: Ceiling | None,
    light_hz: float | None,
    rule: Rule | None = None,
) -> Evidence:
    """All that the rule looks at for one group."""
    rule = rule or Rule()
    ratio = _ratio(group, group.full, ceiling, rule)
    if not shape.parts:
        floor_ratio = ratio
    elif attribution and attribution.floor_case:
        floor_ratio = _ratio(group, attribution.floor_case, ceiling, rule)
    else:
        floor_ratio = None
    exposed = _exposed(attribution) if attribution else ()
    seen = {name for row in exposed for name in row.parts}
    hz = median_of(group.full_record, "sm_hz")
    return Evidence(
        ratio=ratio,
        floor_ratio=floor_ratio,
        exposed=exposed,
        unmeasured=tuple(name for name in shape.parts if name not in seen),
        ties=attribution.ties if attribution else frozenset(),
        gains=_gains(group, shape, rule),
        clock=hz / light_hz if hz and light_hz else None,
    )


def _ratio(group: Group, case: str, ceiling: Ceiling | None, rule: Rule) -> Amount | None:
    """A case's throughput over the ceiling, with both its noises."""
    builds = {
        r.get("perturbation") or 0: rates_of(r)
        for r in sorted(group.timed(), key=lambda r: r.get("perturbation") or 0)
        if r["case"] == case
    }
    if ceiling is None or not builds:
        return None
    rounds = sorted({number for series in builds.values() for number in series.rounds})
    constant = Series(
        rounds=tuple(rounds), cycles=(ceiling.value,) * len(rounds), seconds=(None,) * len(rounds)
    )
    effect = effects([Pair(name=case, case=builds, full={0: constant})], rule)[0]
    if effect.ratio is None or effect.total is None:
        value = median_of(next(r for r in group.timed() if r["case"] == case), "flop_clk_sm")
        return Amount(value=value / ceiling.value, low=0.0, high=float("inf")) if value else None
    return Amount(value=effect.ratio, low=effect.total.low, high=effect.total.high, clear=True)


def _exposed(attribution: Attribution) -> tuple[Exposed, ...]:
    return tuple(
        Exposed(
            parts=row.parts,
            fraction=row.exposed.scaled(1 / attribution.full),
            booked=not row.confounded,
        )
        for row in attribution.rows
        if row.exposed is not None
    )


def _gains(group: Group, shape: Shape, rule: Rule) -> tuple[Gain, ...]:
    """What cases with more independent work than full save per work done."""
    flops, unit = tile_flops(group.full_record)
    more = {what[1]: what[0] for record in group.timed() if (what := _more(group, shape, record))}
    gains = []
    cases: dict[str, dict[int, Series]] = {}
    for record in group.timed():
        if record["case"] in more or record["case"] == group.full:
            build = record.get("perturbation") or 0
            cases.setdefault(record["case"], {})[build] = series_of(record, group.sms, flops)
    names = sorted(more)
    words = effects([Pair(name=n, case=cases[n], full=cases[group.full]) for n in names], rule)
    for name, effect in zip(names, words, strict=True):
        costs = costs_of({n: cases[n] for n in (group.full, name)}, group.full, unit, rule)
        if costs is None:
            continue
        amount = costs.amount({group.full: 1.0, name: -1.0}).scaled(1 / costs.full)
        clear = amount.clear and effect.word in ("faster", "slower")
        gains.append(Gain(what=more[name], case=name, fraction=replace(amount, clear=clear)))
    return tuple(gains)


def _more(group: Group, shape: Shape, record: Json) -> tuple[str, str] | None:
    """What a record has more of than full, and its case; None unless that is all that sets them apart."""
    full, case = group.full_record, str(record["case"])
    if case == group.full:
        return None
    changed = [n for n, level in record["levels"].items() if level != full["levels"].get(n)]
    if not changed:
        here, there = _resident_warps(record), _resident_warps(full)
        return (f"warps per SM ({here}, full has {there})", case) if here > there > 0 else None
    if any(name not in shape.parallel for name in changed):
        return None
    pairs = [(record["levels"][name], full["levels"][name]) for name in changed]
    if all(isinstance(a, int) and isinstance(b, int) and a > b for a, b in pairs):
        what = ", ".join(f"{name} {record['levels'][name]}" for name in sorted(changed))
        return what, case
    return None


def _resident_warps(record: Json) -> int:
    """Warps that an SM holds at once, 0 where unknown."""
    ctas = (record.get("build") or {}).get("ctas_per_sm")
    block = (record.get("launch") or {}).get("block")
    return int(ctas * block // 32) if ctas and block else 0
