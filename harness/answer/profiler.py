"""What a profiler read of full, and whether it agrees with the rate that the kernel counted itself."""

from __future__ import annotations

from typing import Any

from harness.answer.evidence import mode_of
from harness.answer.group import Group, Json, median_of
from harness.answer.pipes import is_pipe
from harness.answer.predict import other_peak
from harness.chips import peak
from harness.counters import MATH_PIPE, TENSOR_ACTIVE, Counters, counters_of

# The tensor pipe's active cycles, and FLOP per clock as a share of the path's peak, say the same of a loop of
# MMAs; shares of the cycles that are further apart than these points are a fault in one of the two.
AGREE_POINTS = 2.0
_PATH = "mma.sync"


def counters_of_full(group: Group) -> tuple[Json, Counters] | None:
    """The first text of full that was counted, and what was read of it; None where none was."""
    texts = sorted(
        (r for r in group.timed() if r["case"] == group.full), key=lambda r: r.get("perturbation") or 0
    )
    return next(((record, found) for record in texts if (found := counters_of(record))), None)


def counters_text(group: Group) -> str:
    """The counters of full in a sentence, and another where they contradict its rate; "" without any."""
    known = counters_of_full(group)
    if known is None:
        return ""
    record, found = known
    if is_pipe(mode_of(record)[0]):
        # A loop of another instruction: its tensor pipe is idle by intent.
        return ""
    active, stall = found.values.get(TENSOR_ACTIVE), _stall_text(found)
    said = [] if active is None else [f"tensor pipe active {active:.0f} % of the time"]
    if stall:
        said.append(stall)
    if not said:
        return ""
    return " ".join([f"{found.tool}: {'; '.join(said)}.", *_contradiction(group, record, active)])


def _stall_text(found: Counters) -> str:
    """What most warps wait for, and how many for the math pipe, by their names in the profiler."""
    top, math = found.top_stall, found.stalls.get(MATH_PIPE)
    if top is None:
        return ""
    rest = "" if math is None or top[0] == MATH_PIPE else f", math pipe throttle {math:.2f}"
    return f"top stall {top[0].replace('_', ' ')}, {top[1]:.2f} clk per instruction issued{rest}"


def _contradiction(group: Group, record: Json, active: float | None) -> list[str]:
    """Where the pipe's active cycles are not the record's rate, as a share of the peak of its path.

    Only where both accumulators have one peak: elsewhere nobody knows of which rate the counter is a share.
    """
    chip, mode, rate = group.chip, mode_of(record), median_of(record, "flop_clk_sm")
    if chip is None or mode[0] != _PATH or rate is None or active is None:
        return []
    own, other = peak(chip, *mode), other_peak(chip, *mode)
    if own is None or (other is not None and other.flop_clk_sm != own.flop_clk_sm):
        return []
    share = 100 * rate / own.flop_clk_sm
    apart = share - active
    if abs(apart) <= AGREE_POINTS:
        return []
    return [
        f"That contradicts its rate: {rate:.0f} FLOP/clk/SM are {share:.1f} % of the {own.name} peak, "
        f"{abs(apart):.1f} points {'above' if apart > 0 else 'below'} the counter's {active:.1f} %; "
        "one of the two deserves distrust."
    ]


def counters_json(group: Group) -> dict[str, Any] | None:
    """The counters of full as JSON types; None where none were read."""
    known = counters_of_full(group)
    return None if known is None else {"tool": known[1].tool, "values": dict(known[1].values)}
