"""What exposed and intrinsic cost say of each other, and what else a removal changed."""

from __future__ import annotations

from dataclasses import replace

from harness.answer.costs import Costs
from harness.answer.group import Group
from harness.answer.result import Row


def related(costs: Costs, row: Row, out: tuple[str, str], alone: tuple[str, str]) -> Row:
    """The row with what exposed and intrinsic say of each other."""
    exposed, intrinsic = row.exposed, row.intrinsic
    assert exposed is not None and intrinsic is not None
    weights: dict[str, float] = {}
    for case, weight in ((out[0], 1.0), (out[1], -1.0), (alone[0], -1.0), (alone[1], 1.0)):
        weights[case] = weights.get(case, 0.0) + weight
    difference = costs.amount(weights)
    if (exposed.clear and exposed.value < 0) or (intrinsic.clear and intrinsic.value < 0):
        return replace(row, difference=difference, relation="code generation")
    if row.confounded and difference.clear:
        return replace(row, difference=difference, relation="code generation")
    if exposed.clear and intrinsic.clear and 0 <= exposed.value <= intrinsic.value:
        drawn = [costs.draws[a] - costs.draws[b] for a, b in (out, alone)]
        overlap = costs.between(1 - exposed.value / intrinsic.value, 1 - drawn[0] / drawn[1])
        return replace(row, overlap=overlap, relation="overlap")
    if difference.clear and difference.value > 0:
        return replace(row, difference=difference, relation="synergy")
    return replace(row, difference=difference, relation="within noise")


def confounded(group: Group, case: str) -> str:
    """Which spills or residency removing it changed against full, over the builds of both."""
    full, other = (_states(group, name) for name in (group.full, case))
    if full[0] != other[0] and not full[0] & other[0]:
        return "also removes spills" if max(other[0]) < min(full[0]) else "also changes spills"
    if full[1] != other[1] and not full[1] & other[1]:
        return "also changes the CTAs per SM"
    return ""


def _states(group: Group, case: str) -> tuple[set[int], set[int]]:
    """Spill instructions, and CTAs per SM, that the builds of a case have; empty sets where unknown."""
    builds = [r.get("build") or {} for r in group.timed() if r["case"] == case]
    spills = {
        (b.get("spill_stores") or 0) + (b.get("spill_loads") or 0) for b in builds if "spill_stores" in b
    }
    return spills, {b["ctas_per_sm"] for b in builds if b.get("ctas_per_sm")}
