"""What each part costs: exposed in full, intrinsic at the floor, how much overlaps, and its fair share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from harness.answer.costs import Amount, Costs, costs_of, series_of, tile_flops
from harness.answer.group import Group, has_numbers
from harness.answer.lattice import Lattice, Parts, Shape, orders, removable, share_weights
from harness.answer.relate import confounded, related
from harness.answer.result import Attribution, Marginal, Row
from harness.model import Level, Values
from harness.stats import Effect, Pair, Rule, Series, effects

Json = Mapping[str, Any]


def attribute(group: Group, shape: Shape, rule: Rule | None = None) -> Attribution | None:
    """The attribution of a group; None when full has fewer than two rounds. The records' order is nothing."""
    rule = rule or Rule()
    records = _by_levels(group)
    # Other configurations may have other rounds, and do not matter here.
    timed = {r["case"] for found in records.values() for r in found if has_numbers(r)}
    flops, unit = tile_flops(group.full_record)
    series = _series(group, flops)
    costs = costs_of({case: series[case] for case in sorted(timed)}, group.full, unit, rule)
    if costs is None:
        return None
    lattice, sets = _chosen(shape, records, costs)
    work = _Work(group=group, shape=shape, records=records, series=series, costs=costs, sets=sets, rule=rule)
    return _attribution(work, lattice)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """What attributing needs at hand: `sets` are the measured members of the chosen lattice, by case."""

    group: Group
    shape: Shape
    records: Mapping[Values, list[Json]]
    series: Mapping[str, Mapping[int, Series]]
    costs: Costs
    sets: Mapping[Parts, str]
    rule: Rule


def _attribution(work: _Work, lattice: Lattice) -> Attribution:
    costs, sets, everything = work.costs, work.sets, lattice.floor
    steps = _steps(work)
    wanted = _wanted(lattice, sets) | {(a, b) for _, _, a, _, b in steps}
    words = _words(work, wanted)
    floor = sets.get(everything)
    total = _saved(costs, words, sets[frozenset()], floor) if floor and everything else None
    missing = tuple(
        f"{' + '.join(sorted(parts))}: {_status(work.records.get(levels, ()))}"
        for parts, levels in lattice.members.items()
        if parts not in sets
    )
    no_share = _no_share(lattice, missing, total)
    weights = {} if no_share else share_weights(frozenset(lattice.members))
    rows = [_row(work, lattice, words, parts) for parts in removable(frozenset(lattice.members))]
    rows = [
        replace(row, share=costs.amount({sets[s]: w for s, w in weights[row.parts[0]].items()}))
        if len(row.parts) == 1 and row.parts[0] in weights
        else row
        for row in rows
    ]
    return Attribution(
        unit=costs.unit,
        full=costs.value(work.group.full),
        floor=costs.value(floor) if floor else None,
        floor_case=floor,
        total=total,
        depth=lattice.depth,
        rows=tuple(sorted(rows, key=lambda row: _place(work.shape, row))),
        marginals=tuple(
            Marginal(part=part, before=x, after=y, cost=_saved(costs, words, a, b))
            for part, x, a, y, b in steps
        ),
        ties=_ties(costs, sets, rows),
        missing=missing,
        no_share=no_share,
        rounds=costs.rounds,
        builds_sampled=costs.builds_sampled,
    )


def _by_levels(group: Group) -> dict[Values, list[Json]]:
    """Levels -> the records at full's configuration, full's own first."""
    found: dict[Values, list[Json]] = {}
    for record in sorted(group.records, key=lambda r: (str(r["case"]), r.get("perturbation") or 0)):
        if Values(record["configuration"]) == group.configuration:
            found.setdefault(_key(record["levels"]), []).append(record)
    return found


def _key(levels: Mapping[str, Level]) -> Values:
    return Values({name: levels[name] for name in sorted(levels)})


def _series(group: Group, flops: float) -> dict[str, dict[int, Series]]:
    """Case -> perturbation -> samples per `flops` of work."""
    found: dict[str, dict[int, Series]] = {}
    for record in group.timed():
        found.setdefault(record["case"], {})[record.get("perturbation") or 0] = series_of(
            record, group.sms, flops
        )
    return found


def _measured(lattice: Lattice, records: Mapping[Values, list[Json]], costs: Costs) -> dict[Parts, str]:
    found = {}
    for parts, levels in lattice.members.items():
        cases = {r["case"] for r in records.get(_key(levels), ()) if r["case"] in costs.relative}
        if cases:
            found[parts] = min(cases)
    return found


def _chosen(
    shape: Shape, records: Mapping[Values, list[Json]], costs: Costs
) -> tuple[Lattice, dict[Parts, str]]:
    """The lattice to attribute over: a complete one before an incomplete, then the one with the lowest floor.

    Stripping deeper can make slower code; the floor is what is left at best, not what is left at most.
    """
    ranked = []
    for depth, lattice in enumerate(shape.lattices):
        sets = _measured(lattice, records, costs)
        floor = costs.relative[sets[lattice.floor]] if lattice.floor in sets else float("inf")
        complete = len(sets) == len(lattice.members)
        ranked.append((not complete, floor, -len(sets), depth, lattice, sets))
    *_, lattice, sets = min(ranked, key=lambda entry: entry[:4])
    return lattice, sets


def _wanted(lattice: Lattice, sets: Mapping[Parts, str]) -> set[tuple[str, str]]:
    """(dearer, cheaper) cases of every difference that gets a word."""
    full, floor, everything = sets[frozenset()], sets.get(lattice.floor), lattice.floor
    pairs = {(full, sets[parts]) for parts in removable(frozenset(lattice.members)) if parts in sets}
    if floor:
        groups = removable(frozenset(lattice.members))
        pairs |= {(sets[everything - parts], floor) for parts in groups if everything - parts in sets}
        pairs.add((full, floor))
    return {(dear, cheap) for dear, cheap in pairs if dear != cheap}


def _words(work: _Work, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Effect]:
    """(dearer, cheaper) -> the effect of cheaper over dearer; one table, corrected for its length."""
    pairs = sorted(wanted)
    found = effects(
        [Pair(name=cheap, case=work.series[cheap], full=work.series[dear]) for dear, cheap in pairs],
        work.rule,
    )
    return dict(zip(pairs, found, strict=True))


def _saved(costs: Costs, words: Mapping[tuple[str, str], Effect], dear: str, cheap: str) -> Amount:
    """What going from `dear` to `cheap` saves; clear only where the word of the effect is, too."""
    amount = costs.amount({dear: 1.0, cheap: -1.0})
    effect = words.get((dear, cheap))
    clear = amount.clear and effect is not None and effect.word in ("faster", "slower")
    return replace(amount, clear=clear)


def _row(work: _Work, lattice: Lattice, words: Mapping[tuple[str, str], Effect], parts: Parts) -> Row:
    sets, everything = work.sets, lattice.floor
    floor, kept = sets.get(everything), everything - parts
    names = tuple(name for name in work.shape.parts if name in parts)
    exposed = _saved(work.costs, words, sets[frozenset()], sets[parts]) if parts in sets else None
    intrinsic = _saved(work.costs, words, sets[kept], floor) if floor and kept in sets else None
    side_effect = confounded(work.group, sets[parts]) if parts in sets else ""
    row = Row(parts=names, exposed=exposed, intrinsic=intrinsic, confounded=side_effect)
    if exposed is None or intrinsic is None or floor is None:
        return row
    return related(work.costs, row, (sets[frozenset()], sets[parts]), (sets[kept], floor))


def _no_share(lattice: Lattice, missing: tuple[str, ...], total: Amount | None) -> str:
    if len(lattice.members) < 2:
        return "nothing can be stripped"
    if not orders(frozenset(lattice.members)):
        return "no order of removal is admissible throughout"
    if missing:
        return f"{len(missing)} of {len(lattice.members)} sets were not measured"
    if total is None or not total.clear:
        return "full minus floor is within noise"
    return ""


def _status(records: Iterable[Json]) -> str:
    return next((str(r["status"]) for r in records if r["status"] != "ok"), "not run")


def _steps(work: _Work) -> list[tuple[str, Level, str, Level, str]]:
    """(part, level, case, next level, case) of every step of a sweep whose ends were measured."""
    steps = []
    for part, levels in work.shape.sweeps.items():
        before: tuple[Level, str] = (work.shape.full[part], work.group.full)
        for level, values in levels:
            cases = {r["case"] for r in work.records.get(_key(values), ())} & set(work.costs.relative)
            if cases:
                steps.append((part, *before, level, min(cases)))
                before = (level, min(cases))
    return steps


def _ties(costs: Costs, sets: Mapping[Parts, str], rows: Iterable[Row]) -> frozenset[frozenset[str]]:
    """Pairs of rows whose exposed costs do not differ clear of noise."""
    known = {row.name: sets[frozenset(row.parts)] for row in rows if row.exposed is not None}
    names = sorted(known)
    return frozenset(
        frozenset((a, b))
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if not costs.amount({known[a]: 1.0, known[b]: -1.0}).clear
    )


def _place(shape: Shape, row: Row) -> tuple[int, list[int]]:
    return len(row.parts), [shape.parts.index(name) for name in row.parts]
