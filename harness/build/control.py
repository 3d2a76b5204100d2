"""Control bits: what the compiler wrote into each instruction about when the next one may issue.

The disassembler's JSON does not show them; they lie in the 16 bytes of the instruction itself. ptxas writes
the issue interval of its architecture's tensor pipe into the stall counts between independent MMAs, so that
any new architecture tells its own mma.sync ceiling. It is a lower bound of the interval: where the pipe is
slower than ptxas knows (product classes of half rate), the hardware pushes back.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from harness.build.disassembler import INSTRUCTION_BYTES, Listing, disassemble
from harness.build.elf import kernel_code
from harness.build.sass import main_loop
from harness.errors import ToolError

# One tensor instruction keeps one sub-partition's pipe; an SM has four.
SUB_PARTITIONS = 4


class Control(NamedTuple):
    """Scheduling of one instruction: clocks until the next may issue, barriers set (7: none), barriers
    waited for (a bit each)."""

    stall: int
    yields: bool
    write_barrier: int
    read_barrier: int
    waits: int
    reuse: int


def control_of(instruction: bytes) -> Control:
    """The control bits of one 16-byte instruction."""
    bits = struct.unpack_from("<Q", instruction, 8)[0] >> 41
    return Control(
        stall=bits & 15,
        yields=bool(bits >> 4 & 1),
        write_barrier=bits >> 5 & 7,
        read_barrier=bits >> 8 & 7,
        waits=bits >> 11 & 63,
        reuse=bits >> 17 & 15,
    )


def controls(code: bytes) -> tuple[Control, ...]:
    """The control bits of every instruction of a kernel's machine code, in order."""
    return tuple(
        control_of(code[at : at + INSTRUCTION_BYTES]) for at in range(0, len(code), INSTRUCTION_BYTES)
    )


def mma_issue_clk(cubin: Path, nvdisasm: Path | None = None) -> int:
    """Clocks between independent warp-level MMAs of one sub-partition, as the compiler has it.

    The kernel's main loop has to hold independent MMAs one after another, several chains of them. ToolError
    when it does not, or the cubin cannot be read.
    """
    listing = disassemble(cubin, nvdisasm)
    code = kernel_code(cubin.read_bytes(), str(cubin))
    if code is None or len(code) != INSTRUCTION_BYTES * len(listing.instructions):
        raise ToolError(
            f"{cubin}: its machine code is not one kernel of {len(listing.instructions)} instructions"
        )
    return issue_clk(listing, controls(code))


def issue_clk(listing: Listing, found: Sequence[Control]) -> int:
    """The commonest sum of stall counts from one MMA of the main loop to the next with nothing between.

    NOPs between them count: where a stall count cannot hold the interval, ptxas adds one.
    """
    loop = {i.address for i in main_loop(listing).instructions}
    sums: Counter[int] = Counter()
    clocks: int | None = None
    for instruction, control in zip(listing.instructions, found, strict=True):
        inside = instruction.address in loop
        if instruction.is_tensor and inside:
            if clocks is not None:
                sums[clocks] += 1
            clocks = control.stall
        elif instruction.does_nothing and clocks is not None:
            clocks += control.stall
        else:
            clocks = None
    if not sums:
        raise ToolError(f"{listing.path}: its main loop has no two tensor instructions in a row")
    # Dependent MMAs wait longer: of the commonest the shortest is the interval of independent ones.
    most = max(sums.values())
    return min(clk for clk, number in sums.items() if 2 * number >= most)


def ceiling_flop_clk_sm(issue: int, flops_per_mma: int = 4096) -> float:
    """FLOP per clock and SM that an issue interval allows: the path's ceiling on an unknown architecture."""
    return SUB_PARTITIONS * flops_per_mma / issue
