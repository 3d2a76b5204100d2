"""One SM driven by the control bits of a loop: an estimate of what it reaches, neither bound nor measurement.

Every resident warp walks the loop's instructions. It may issue when its stall count has run out, the barriers
it waits for are clear, and the pipe is free; each sub-partition issues one instruction a clock, the warp that
waited longest first. Shared memory is one queue per SM, special functions one per sub-partition, cp.async a
queue with a latency behind it that grows with the warps of the SM, as all SMs ask L2 at once. The latencies
were fitted by hand to 83 loops on H200s and need not hold elsewhere: use the estimate to choose what is worth
measuring, and say its spread, that of loops which were not fitted, with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from harness.answer.pipes import SUB_PARTITIONS, amount_of

Unit = Literal["tensor", "shared", "xu", "math", "copy", "commit", "copied", "barrier", "other"]
NEVER = float("inf")
TRIPS, WARM = 8, 2
# Warps of an SM from which on its copies come back no later.
LOADED_WARPS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One instruction on the loop's path, with its control bits.

    `write` and `read` are the barriers it sets (7: none), `waits` a bit per barrier it waits for. `groups` is
    how many groups of copies may be outstanding, for the instruction that waits for them.
    """

    opcode: str
    stall: int
    write: int = 7
    read: int = 7
    waits: int = 0
    groups: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Clocks of one SM: intervals from rates, latencies fitted to an H200.

    Args:
        tensor_clk: between MMAs of one sub-partition. xu_clk: between special functions.
        copy_latency: of a copy while nobody else copies; `copy_load_clk` more for each warp of the SM, up to
            `LOADED_WARPS` of them.
        contention_clk: that a math instruction waits after an MMA in its sub-partition, and the other way.
    """

    tensor_clk: float
    xu_clk: float = 8.0
    shared_bytes_clk: float = 128.0
    shared_latency: float = 36.0
    xu_latency: float = 20.0
    other_latency: float = 20.0
    copy_clk: float = 12.0
    copy_latency: float = 250.0
    copy_load_clk: float = 56.0
    barrier_latency: float = 20.0
    branch_clk: float = 0.0
    contention_clk: float = 3.0


@dataclass(slots=True)
class _Warp:
    cta: int
    part: int
    ready: float
    at: int = 0
    trip: int = 0
    barriers: list[float] = field(default_factory=lambda: [0.0] * 8)
    copies: float = 0.0
    groups: list[float] = field(default_factory=list)
    issued: float = -1.0
    ends: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Sm:
    """What the warps share; a list holds one value per sub-partition."""

    machine: Machine
    copy_latency: float
    issue: list[float] = field(default_factory=lambda: [0.0] * SUB_PARTITIONS)
    tensor: list[float] = field(default_factory=lambda: [0.0] * SUB_PARTITIONS)
    math: list[float] = field(default_factory=lambda: [0.0] * SUB_PARTITIONS)
    xu: list[float] = field(default_factory=lambda: [0.0] * SUB_PARTITIONS)
    shared: float = 0.0
    copy: float = 0.0


def unit_of(opcode: str) -> Unit:
    """Which unit executes an opcode."""
    head = opcode.partition(".")[0]
    if head.endswith("MMA"):
        return "tensor"
    if amount_of("shared_bytes", opcode):
        return "shared"
    if amount_of("mufu", opcode):
        return "xu"
    if head == "LDGSTS":
        return "copy"
    if head == "LDGDEPBAR":
        return "commit"
    if head == "DEPBAR":
        return "copied"
    if head == "BAR":
        return "barrier"
    return "math" if any(amount_of(name, opcode) for name in ("fma", "alu", "pack", "half2")) else "other"


def period_clk(steps: Sequence[Step], machine: Machine, *, warps: int, ctas: int) -> float:
    """Clocks in which each of `ctas` resident CTAs of `warps` warps makes one trip through the loop.

    Deterministic. The loop alone: what comes before and after it makes a whole kernel some percent slower.
    """
    if not steps:
        raise ValueError("a loop without instructions has no period")
    plan = [(step, unit_of(step.opcode)) for step in steps]
    load_clk = machine.copy_load_clk * min(LOADED_WARPS, warps * ctas)
    sm = _Sm(machine=machine, copy_latency=machine.copy_latency + load_clk)
    # CTAs do not start together; a few hundred clocks apart they neither march in step nor take turns.
    all_warps = [
        _Warp(cta=cta, part=(cta * warps + warp) % SUB_PARTITIONS, ready=311.0 * cta)
        for cta in range(ctas)
        for warp in range(warps)
    ]
    _run(plan, sm, all_warps)
    start = max(warp.ends[WARM - 1] for warp in all_warps)
    end = min(warp.ends[-1] for warp in all_warps)
    trips = sum(_trips_at(warp, end) - _trips_at(warp, start) for warp in all_warps)
    return (end - start) * len(all_warps) / trips


def _trips_at(warp: _Warp, clock: float) -> float:
    """Trips that a warp has made at a clock, the one under way in proportion."""
    done = sum(end <= clock for end in warp.ends)
    if done == len(warp.ends):
        return float(done)
    before = warp.ends[done - 1] if done else 0.0
    return done + (clock - before) / (warp.ends[done] - before)


def _run(plan: Sequence[tuple[Step, Unit]], sm: _Sm, warps: Sequence[_Warp]) -> None:
    parts = [[warp for warp in warps if warp.part == part] for part in range(SUB_PARTITIONS)]
    waiting: dict[int, list[_Warp]] = {}
    size = {cta: sum(w.cta == cta for w in warps) for cta in {w.cta for w in warps}}
    following = [_next(plan, sm, part, parts[part]) for part in range(SUB_PARTITIONS)]
    while True:
        part = min(range(SUB_PARTITIONS), key=lambda p: following[p][0])
        clock, warp = following[part]
        if warp is None:
            return
        if _issue(plan, sm, warp, clock):  # at a barrier of its CTA
            held = waiting.setdefault(warp.cta, [])
            held.append(warp)
            if len(held) == size[warp.cta]:
                for one in held:
                    one.ready = clock + sm.machine.barrier_latency
                held.clear()
                following = [_next(plan, sm, p, parts[p]) for p in range(SUB_PARTITIONS)]
                continue
        following[part] = _next(plan, sm, part, parts[part])


def _next(
    plan: Sequence[tuple[Step, Unit]], sm: _Sm, part: int, warps: Sequence[_Warp]
) -> tuple[float, _Warp | None]:
    """When the sub-partition issues next, and from which warp: of those ready the one that waited longest."""
    best: tuple[float, float] | None = None
    chosen: _Warp | None = None
    for warp in warps:
        if warp.trip < TRIPS and warp.ready < NEVER:
            rank = (max(_earliest(plan, sm, warp), sm.issue[part]), warp.issued)
            if best is None or rank < best:
                best, chosen = rank, warp
    return (best[0], chosen) if best else (NEVER, None)


def _earliest(plan: Sequence[tuple[Step, Unit]], sm: _Sm, warp: _Warp) -> float:
    step, unit = plan[warp.at]
    clock = warp.ready
    waits, index = step.waits, 0
    while waits:
        if waits & 1:
            clock = max(clock, warp.barriers[index])
        waits >>= 1
        index += 1
    if unit == "tensor":
        return max(clock, sm.tensor[warp.part], sm.math[warp.part])
    if unit in ("math", "xu"):
        return max(clock, sm.tensor[warp.part] - sm.machine.tensor_clk + sm.machine.contention_clk)
    if unit == "copied" and step.groups is not None and len(warp.groups) > step.groups:
        return max(clock, warp.groups[-step.groups - 1])
    return clock


def _issue(plan: Sequence[tuple[Step, Unit]], sm: _Sm, warp: _Warp, clock: float) -> bool:
    """Issue the warp's next instruction at `clock`; whether it now waits for its CTA."""
    step, unit = plan[warp.at]
    machine, part = sm.machine, warp.part
    sm.issue[part] = clock + 1
    warp.issued, warp.ready = clock, clock + max(1, step.stall)
    done = clock + machine.other_latency
    if unit == "tensor":
        sm.tensor[part] = clock + machine.tensor_clk
    elif unit == "math":
        sm.math[part] = clock + machine.contention_clk
    elif unit == "shared":
        sm.shared = max(sm.shared, clock) + amount_of("shared_bytes", step.opcode) / machine.shared_bytes_clk
        done = sm.shared + machine.shared_latency
    elif unit == "xu":
        sm.xu[part] = max(sm.xu[part], clock) + machine.xu_clk
        done = sm.xu[part] + machine.xu_latency
    elif unit == "copy":
        sm.copy = max(sm.copy, clock) + machine.copy_clk
        warp.copies = sm.copy + sm.copy_latency
    elif unit == "commit":
        warp.groups = [*warp.groups[-7:], max(warp.copies, *warp.groups[-1:], 0.0)]
    if step.write < 6:
        warp.barriers[step.write] = done
    if step.read < 6:  # operands are read long before a result is there
        warp.barriers[step.read] = min(done, clock + machine.other_latency)
    warp.at += 1
    if warp.at == len(plan):
        warp.at, warp.trip = 0, warp.trip + 1
        warp.ready += machine.branch_clk
        warp.ends.append(clock)
    if unit == "barrier":
        warp.ready = NEVER
        return True
    return False
