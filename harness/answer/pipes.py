"""Opcode counts of a loop -> clocks that each pipe of an SM is busy; rather too few than too many."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from harness.chips import pipe, spell
from harness.chips.facts import Capability

SUB_PARTITIONS = 4
# One pipe for the whole SM; every other has a quarter in each sub-partition.
WHOLE_SM = ("shared_bytes",)
MEMORY = ("l1_bytes", "l2_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeUse:
    """Clocks of an SM that one trip of one CTA keeps a pipe busy.

    `confidence` is that of the rate: vendor, measured, derived, unverified. A soft limit is no part of a
    bound: the highest rate somebody measured, which is no limit of the hardware.
    """

    pipe: str
    clk: float
    confidence: str
    soft: bool = False


@cache
def _table() -> tuple[dict[str, dict[tuple[str, ...], float]], dict[Capability, tuple[str, ...]]]:
    """Pipe -> {opcode prefix: amount}, and (cc) -> pipes that are one."""
    text = resources.files("harness.answer").joinpath("opcodes.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    amounts: dict[str, dict[tuple[str, ...], float]] = {}
    for row in data["opcodes"]:
        for prefix in row["prefixes"]:
            amounts.setdefault(row["pipe"], {})[tuple(prefix.split("."))] = float(row["amount"])
    merged = {}
    for row in data["merged"]:
        major, minor = row["cc"].split(".")
        merged[int(major), int(minor)] = tuple(row["names"])
    return amounts, merged


def amount_of(name: str, opcode: str) -> float:
    """How much of a pipe one warp instruction takes, in the unit of its rate; 0 when it takes none."""
    prefixes = _table()[0].get(name, {})
    words = tuple(opcode.split("."))
    for length in range(len(words), 0, -1):
        if words[:length] in prefixes:
            return prefixes[words[:length]]
    return 0.0


def pipe_names() -> tuple[str, ...]:
    """Every pipe that opcodes are counted for, issue first."""
    return ("issue", *_table()[0])


def is_pipe(name: str) -> bool:
    """Whether a record's path is such a pipe, or a memory level, and no tensor instruction."""
    return name in pipe_names() or name in MEMORY


def pipe_uses(
    counts: Mapping[str, int],
    cc: Capability,
    *,
    warps: int,
    resident_warps: int | None = None,
    rates: Mapping[str, float] | None = None,
    only: tuple[str, ...] = (),
) -> tuple[tuple[PipeUse, ...], tuple[str, ...]]:
    """Busy clocks of each pipe that the loop uses and whose rate is known, and the names of those unknown.

    Args:
        counts: opcode -> number in one trip of one warp.
        warps: of the CTA. resident_warps: warps an SM holds; fewer than four leave sub-partitions idle.
        rates: measured rates that stand above the table's, by pipe, in the table's unit.
        only: the pipes to look at; all without it.
    """
    uses: dict[str, PipeUse] = {}
    unknown = []
    used = min(SUB_PARTITIONS, resident_warps or SUB_PARTITIONS) / SUB_PARTITIONS
    for name in pipe_names():
        total = _total(name, counts)
        if not total or (only and name not in only):
            continue
        known, measured = pipe(cc, name), (rates or {}).get(name)
        rate = measured if measured is not None else known.rate if known else None
        if rate is None:
            unknown.append(name)
            continue
        confidence = "measured" if measured is not None or known is None else known.confidence
        share = 1.0 if name in WHOLE_SM else used
        uses[name] = PipeUse(pipe=name, clk=total * warps / (rate * share), confidence=confidence)
    together = [uses[name] for name in _table()[1].get(cc, ()) if name in uses]
    if len(together) > 1:
        for use in together:
            del uses[use.pipe]
        joined = "+".join(use.pipe for use in together)
        clk = sum(use.clk for use in together)
        uses[joined] = PipeUse(pipe=joined, clk=clk, confidence=together[0].confidence)
    return tuple(uses.values()), tuple(f"{name} on {spell(cc)}" for name in unknown)


def _total(name: str, counts: Mapping[str, int]) -> float:
    if name == "issue":
        return float(sum(counts.values()))
    return sum(number * amount_of(name, opcode) for opcode, number in counts.items())
