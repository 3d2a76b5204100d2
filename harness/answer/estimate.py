"""What a loop would reach on a chip, by simulation: never above its bound."""

from __future__ import annotations

from collections.abc import Sequence

from harness.answer.counts import Counts
from harness.answer.pipes import SUB_PARTITIONS
from harness.answer.predict import Prediction
from harness.answer.simulate import Machine, Step, period_clk
from harness.chips import Chip, pipe

# Measured over estimated, lowest, median and highest, on an H200: on 26 loops of two studies that the
# latencies were not fitted to, and on the 83 loops of the three that they were. A test works both out from
# the records. 60 more loops, of other configurations, of which no prediction is stored: 0.79, 0.90, 1.02.
SPREAD = (0.77, 0.91, 1.17)
FITTED = (0.78, 0.95, 1.16)
THREADS = 32


def machine_of(chip: Chip, tensor_flop_clk_sm: float, flops_per_mma: int) -> Machine:
    """A chip's SM: intervals from its rates, where they are known; latencies are the H200's."""
    mufu, shared = pipe(chip.cc, "mufu"), pipe(chip.cc, "shared_bytes")
    known = {}
    if mufu:
        known["xu_clk"] = SUB_PARTITIONS * THREADS / mufu.rate
    if shared:
        known["shared_bytes_clk"] = shared.rate
    return Machine(tensor_clk=SUB_PARTITIONS * flops_per_mma / tensor_flop_clk_sm, **known)


def estimate(steps: Sequence[Step], counts: Counts, chip: Chip, bound: Prediction) -> float | None:
    """FLOP per clock and SM that the loop would reach, never above its bound; None where it is unknown.

    What comes before and after the loop is not in it. `SPREAD` says how far off it was.
    """
    if not steps or not counts.ctas_per_sm or bound.own is None:
        return None
    ctas = min(counts.ctas_per_sm, -(-counts.ctas // chip.sms))
    machine = machine_of(chip, bound.own.flop_clk_sm, counts.flops_per_mma)
    clk = period_clk(steps, machine, warps=counts.warps, ctas=ctas)
    return min(bound.flop_clk_sm, ctas * counts.flops / (counts.ctas * counts.trips) / clk)
