"""The SASS contract: does the main loop hold what the case says, and nothing of what it stripped?

An opcode prefix is a list of dot-separated components: BAR matches BAR.SYNC and not DEPBAR, LDS matches
LDS.128 and not LDSM. The tensor instruction is compared whole: HMMA.16816.F32.BF16 is not HMMA.16816.F32.
A study may count another instruction instead, by a prefix: its loop then holds no MMA at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from harness.model import Contract, Inspection

_TENSOR = re.compile(r"^(?:UTC)?[A-Z]*MMA$")


def matches(opcode: str, prefix: str) -> bool:
    """Whether the first components of `opcode` are those of `prefix`."""
    wanted = prefix.split(".")
    return opcode.split(".")[: len(wanted)] == wanted


def count(counts: Mapping[str, int], prefix: str) -> int:
    """How many instructions match a prefix."""
    return sum(number for opcode, number in counts.items() if matches(opcode, prefix))


def counted_prefix(contract: Contract) -> str:
    """The prefix of the instruction that a contract counts and finds the loop by; empty: it is an MMA."""
    return "" if _TENSOR.match(contract.mma.partition(".")[0]) else contract.mma


def counted(contract: Contract, counts: Mapping[str, int]) -> int:
    """How many of the instruction that a contract counts there are."""
    return count(counts, contract.mma) if counted_prefix(contract) else counts.get(contract.mma, 0)


def broken_rules(contract: Contract, inspection: Inspection) -> tuple[str, ...]:
    """One sentence per rule that the code breaks, with the number expected and found; empty: it holds."""
    broken = _broken_tensor(contract, inspection)
    if inspection.loop:
        broken += _broken_parts(contract, inspection.loop)
    if contract.spill_free and _spills(inspection):
        broken.append(f"no register spill is allowed here, found {_spill_state(inspection)}")
    return tuple(broken)


def notes(inspection: Inspection, full: Inspection, kept: Iterable[str] = ()) -> tuple[str, ...]:
    """What else changed against full, so that a gain is not booked on the part that was stripped.

    Args:
        inspection: of the case.
        full: of the case that it is compared with.
        kept: opcode prefixes of parts that both have and whose number the compiler may choose.
    """
    found: list[str] = []
    if (inspection.spill_stores, inspection.spill_loads) != (full.spill_stores, full.spill_loads):
        verb = "also removes spills" if _spilled(inspection) < _spilled(full) else "also adds spills"
        if _spilled(inspection) == _spilled(full):
            verb = "also changes spills"
        found.append(f"{verb}: full has {_spill_state(full)}, this case {_spill_state(inspection)}")
    for prefix in kept:
        here, there = count(inspection.loop, prefix), count(full.loop, prefix)
        if here != there and here and there:
            found.append(f"kept part differs: full has {there} {prefix} per iteration, this case {here}")
    return tuple(found)


def _broken_tensor(contract: Contract, inspection: Inspection) -> list[str]:
    """The rules about the tensor instruction."""
    expected = f"expected {contract.mma_count} {contract.mma} per iteration"
    inside = counted(contract, inspection.loop)
    outside = counted(contract, inspection.kernel_mma) - inside
    others = {
        opcode: number
        for opcode, number in inspection.loop.items()
        if _TENSOR.match(opcode.partition(".")[0]) and opcode != contract.mma
    }
    if counted_prefix(contract) and inside != contract.mma_count:
        return [f"another number of the counted instruction: {expected}, found {inside} ({outside} outside)"]
    if not inspection.kernel_mma:
        return [f"no tensor instruction: {expected}, found 0 in the whole kernel"]
    if not inspection.loop:
        all_mma = _listed(inspection.kernel_mma)
        return [
            f"tensor instructions only outside the loop: {expected}, found 0 inside and {all_mma} outside"
        ]
    broken = []
    if inside != contract.mma_count:
        reason = _mma_reason(inside, contract.mma_count, others)
        more = f" ({outside} more outside the loop)" if outside else ""
        broken.append(f"{reason}: {expected}, found {inside}{more}")
    if others:
        broken.append(f"another tensor instruction: {expected} and no other, found {_listed(others)}")
    return broken


def _mma_reason(inside: int, expected: int, others: Mapping[str, int]) -> str:
    if inside > expected:
        return "more tensor instructions than the tile needs"
    if sum(others.values()) + inside == expected:
        return "wrong tensor instruction"
    return "tensor instructions are lost (merged, or dropped as dead)"


def _broken_parts(contract: Contract, loop: Mapping[str, int]) -> list[str]:
    """The rules about kept and stripped parts."""
    broken = []
    for prefix, number in contract.counts.items():
        found = count(loop, prefix)
        if found != number:
            broken.append(f"a kept part changed: expected {number} {prefix} per iteration, found {found}")
    for prefix in contract.present:
        if not count(loop, prefix):
            broken.append(f"a kept part is gone: expected at least 1 {prefix} per iteration, found 0")
    for prefix in contract.absent:
        left = {opcode: number for opcode, number in loop.items() if matches(opcode, prefix)}
        if left:
            broken.append(
                f"a stripped part is left: expected 0 {prefix} per iteration, found {_listed(left)}"
            )
    return broken


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {opcode}" for opcode, number in sorted(counts.items()))


def _spilled(inspection: Inspection) -> int:
    return inspection.spill_stores + inspection.spill_loads


def _spills(inspection: Inspection) -> bool:
    # ptxas's own count of spilled bytes can be far too low: instructions and frame tell.
    return bool(_spilled(inspection) or inspection.local_bytes)


def _spill_state(inspection: Inspection) -> str:
    return (
        f"{inspection.spill_stores} STL and {inspection.spill_loads} LDL "
        f"in a frame of {inspection.local_bytes} bytes"
    )
