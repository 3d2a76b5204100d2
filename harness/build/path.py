"""The way a trip through the main loop usually takes: what is skipped when nothing special happens."""

from __future__ import annotations

from collections.abc import Sequence

from harness.build.control import Control
from harness.build.disassembler import INSTRUCTION_BYTES, Instruction, Listing
from harness.build.sass import main_loop


def usual_path(listing: Listing, found: Sequence[Control]) -> tuple[tuple[Instruction, Control], ...]:
    """The instructions of one trip with their control bits, those that do nothing included.

    A conditional branch forward is taken, as what it skips is the rare case (a mask, a rescale), unless it
    skips copies: all but the last trips make them. Branches out of the loop are not taken.
    """
    loop = main_loop(listing).instructions
    if not loop:
        return ()
    first, last = (i.address // INSTRUCTION_BYTES for i in (loop[0], loop[-1]))
    path = []
    at = first
    while at <= last:
        instruction = listing.instructions[at]
        path.append((instruction, found[at]))
        target = None if instruction.target is None else instruction.target // INSTRUCTION_BYTES
        if target is None or not at < target <= last or _copies(listing, at + 1, target):
            at += 1
        else:
            at = target
    return tuple(path)


def _copies(listing: Listing, start: int, end: int) -> bool:
    return any(i.opcode.startswith("LDGSTS") for i in listing.instructions[start:end])
