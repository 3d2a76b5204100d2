"""From how many warps on does the attention loop stop being bound by latency?

One warp waits for its copies, its ldmatrix, its MMAs and its exponentials in turn; others can use what it
leaves idle. The warps of a CTA (1, 2, 4, 8) and the CTAs of an SM (1 to 4, held by padding shared memory)
are varied, and a second set of accumulators gives each warp more independent MMAs. Each warp has 16 rows of
Q, 32 keys a tile and 128 registers. Fewer warps share out the copies of a tile, so that each of them issues
more. Each number of warps per CTA is compared with a single CTA per SM; head_dim 128 has twice the MMAs per
softmax.

Expectation: with fewer than 4 warps an SM leaves sub-partitions empty, so throughput grows in step with the
warps. From 4 to 8 (two per sub-partition) it grows by a third or more, from 8 to 16 by less than half of
that. 8 warps reach much the same as two CTAs of 4 and as one of 8, where the barrier ties more warps
together. A second set gains only where a sub-partition has a single warp, and little there."""

from __future__ import annotations

from collections.abc import Mapping

from ablations import _attention as common
from ablations._attention_switches import legend, resident, restricted
from harness.model import Study, Switch, Values

SWITCHES = (
    *restricted(head_dim=(64, 128), accumulators=(1, 2)),
    Switch(name="warps", levels=(1, 2, 4, 8), baseline=4, label="warps/CTA", meaning="warps per CTA"),
    resident((1, 2, 3, 4), baseline=1),
)

LEGEND = legend("accumulators=2")

# Warps of one SM that the compiler leaves registers for, whatever their CTAs: 128 registers a thread.
_WARPS_PER_SM = 16


def configurations(levels: Values) -> tuple[Values, ...]:
    """16 rows per warp and 32 keys."""
    warps = levels.number("warps")
    return (Values(block_m=16 * warps, block_n=32, stages=2, rescale=0, ctas=_WARPS_PER_SM // warps),)


def constraint(levels: Values, configuration: Values) -> str | None:
    """Why a combination cannot exist."""
    if levels.number("warps") * levels.number("resident") > _WARPS_PER_SM:
        return "more than 16 warps of 128 registers do not fit into the registers of an SM"
    return None


def full_of(levels: Values) -> Values:
    """One CTA per SM of the same warps, one set of accumulators: the least parallel of its kind."""
    return levels.replace(accumulators=1, resident=1)


def sets() -> Mapping[str, tuple[Values, ...]]:
    """One CTA of each size alone; more of them; a second set of accumulators; the longer head."""
    base = Values({s.name: s.baseline for s in SWITCHES})
    alone = {warps: base.replace(warps=warps) for warps in (4, 1, 2, 8)}
    wide = base.replace(head_dim=128)
    return {
        "full": (*alone.values(), wide),
        "residency": (
            *(base.replace(resident=n) for n in (2, 3, 4)),
            alone[1].replace(resident=4),
            alone[2].replace(resident=4),
            alone[8].replace(resident=2),
            wide.replace(resident=2),
        ),
        "chains": (
            base.replace(accumulators=2),
            alone[1].replace(accumulators=2),
        ),
    }


STUDY = Study(
    name="occupancy",
    question=__doc__,
    template="occupancy.cu.j2",
    switches=SWITCHES,
    problems=("waves",),
    configurations=configurations,
    sets=sets,
    constraint=constraint,
    full_of=full_of,
    sizes=common.sizes,
    check_sizes=common.check_sizes,
    fill=common.fill,
    inputs=common.inputs,
    outputs=common.outputs,
    reference=common.reference,
    reference_key=common.reference_key,
    launch=common.launch,
    work=common.work,
    contract=common.contract_without_spills,
    legend=LEGEND,
    parallel=("warps", "resident", "accumulators"),
    residency=common.resident,
)
