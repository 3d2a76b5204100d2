"""Instructions -> main loop -> inspection: what the machine code of a kernel is."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.build.disassembler import (
    INSTRUCTION_BYTES,
    Instruction,
    Listing,
    disassemble,
    disassemble_all,
)
from harness.build.loops import always_run, closed_loops
from harness.errors import ToolError
from harness.key import digest
from harness.model import Inspection

__all__ = [
    "SCHEMA",
    "Instruction",
    "Listing",
    "Loop",
    "code_hash",
    "disassemble",
    "disassemble_all",
    "dump_inspection",
    "inspect_cubin",
    "inspect_listing",
    "loop_text",
    "main_loop",
    "parse_inspection",
]

# Raise it whenever the meaning of an inspection changes: cached ones of another number are not used.
SCHEMA = 4

# Predicates under which an instruction always runs.
_ALWAYS = ("", "@PT", "@UPT")
_REGISTERS = re.compile(r"Used ([0-9]+) registers")
_SHARED = re.compile(r"([0-9]+) bytes smem")
_FRAME = re.compile(r"([0-9]+) bytes stack frame")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop body without the instructions that do nothing; empty when there is no such loop.

    `always` are those that every trip runs: on each way through the loop, under no predicate.
    """

    instructions: tuple[Instruction, ...] = ()
    always: tuple[Instruction, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Full opcode -> number."""
        return _counted(self.instructions)

    @property
    def minimum(self) -> dict[str, int]:
        """Full opcode -> number that every trip runs, at least."""
        return _counted(self.always)


def _counted(instructions: Iterable[Instruction]) -> dict[str, int]:
    return dict(sorted(Counter(i.opcode for i in instructions).items()))


def main_loop(listing: Listing, prefix: str = "") -> Loop:
    """The loop that holds most tensor instructions, the shortest of equals; empty when no loop holds one.

    With an opcode prefix the instructions that match it stand for the tensor instructions.
    """
    instructions = listing.instructions
    # Instructions of that kind before each index, so that a range is counted by one subtraction.
    before = [0]
    for instruction in instructions:
        before.append(before[-1] + _is_counted(instruction, prefix))
    targets = {
        index: i.target // INSTRUCTION_BYTES for index, i in enumerate(instructions) if i.target is not None
    }
    ends = {index for index, i in enumerate(instructions) if _never_goes_on(i)}
    best: tuple[int, int, int, int] | None = None
    for first, last in closed_loops(len(instructions), targets, ends):
        rank = (before[last + 1] - before[first], first - last, first, last)
        if rank[0] and (best is None or rank > best):
            best = rank
    if best is None:
        return Loop()
    return Loop(
        instructions=tuple(i for i in instructions[best[2] : best[3] + 1] if not i.does_nothing),
        always=tuple(
            i
            for start, end in always_run(best[2], best[3], targets, ends)
            for i in instructions[start:end]
            if not i.does_nothing and i.predicate in _ALWAYS
        ),
    )


def inspect_cubin(path: Path, log: str, nvdisasm: Path | None = None) -> Inspection:
    """Disassemble a cubin and say what it is. ToolError when the file, the tool or the log is at fault."""
    return inspect_listing(disassemble(path, nvdisasm), log)


def _is_counted(instruction: Instruction, prefix: str) -> bool:
    if not prefix:
        return instruction.is_tensor
    return not instruction.does_nothing and f"{instruction.opcode}.".startswith(f"{prefix}.")


def inspect_listing(listing: Listing, log: str, prefix: str = "") -> Inspection:
    """What a disassembled kernel and its compile log show; ToolError when the log holds no resource line.

    `prefix` is that of the instruction to find the loop by, where it is no tensor instruction.
    """
    registers = _REGISTERS.search(log)
    if registers is None:
        raise ToolError(f"{listing.path}: the compiler's log does not say how many registers are used")
    shared, frame = _SHARED.search(log), _FRAME.search(log)
    loop = main_loop(listing, prefix)
    heads = Counter(i.opcode.partition(".")[0] for i in listing.instructions if not i.does_nothing)
    tensor = Counter(i.opcode for i in listing.instructions if _is_counted(i, prefix))
    return Inspection(
        registers=int(registers[1]),
        shared_bytes=int(shared[1]) if shared else 0,
        local_bytes=int(frame[1]) if frame else 0,
        spill_stores=heads["STL"],
        spill_loads=heads["LDL"],
        loop=loop.counts,
        loop_instructions=len(loop.instructions),
        loop_minimum=loop.minimum,
        kernel_mma=dict(sorted(tensor.items())),
        code_hash=code_hash(listing.instructions),
    )


def code_hash(instructions: Iterable[Instruction]) -> str:
    """SHA-256 of the instructions, without control bits and what does nothing: equal hashes, equal code."""
    return digest("\n".join(_hash_text(i) for i in instructions if not i.does_nothing))


def loop_text(listing: Listing, prefix: str = "") -> str:
    """The main loop for a reader: address, instruction, and a number on each tensor instruction.

    `prefix` as in `main_loop`.
    """
    loop = main_loop(listing, prefix)
    if not loop.instructions:
        return f"no loop of this kernel holds {prefix or 'a tensor instruction'}\n"
    counts = ", ".join(
        f"{number} {opcode}" for opcode, number in sorted(loop.counts.items(), key=_most_first)
    )
    lines = [f"// {len(loop.instructions)} instructions: {counts}"]
    number = 0
    for i in loop.instructions:
        is_counted = _is_counted(i, prefix)
        number += is_counted
        note = f"  // {prefix or 'MMA'} {number}" if is_counted else ""
        lines.append(f"/*{i.address:04x}*/ {i.predicate:>6} {i.opcode} {i.operands};{note}")
    return "\n".join(lines) + "\n"


def dump_inspection(inspection: Inspection) -> bytes:
    """An inspection as JSON."""
    return json.dumps(asdict(inspection), allow_nan=False).encode()


def parse_inspection(data: bytes) -> Inspection | None:
    """What `dump_inspection` wrote, or None when it is something else."""
    try:
        return Inspection(**json.loads(data))
    except (ValueError, TypeError):
        return None


def _most_first(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]


def _hash_text(instruction: Instruction) -> str:
    # A call's operand is a symbol or a number, depending on how the disassembler was given the code.
    if instruction.opcode.startswith(("CALL", "RET")):
        return f"{instruction.predicate} {instruction.opcode}"
    return instruction.text


def _never_goes_on(instruction: Instruction) -> bool:
    """Whether the next instruction is reached only by a branch from elsewhere."""
    head = instruction.opcode.partition(".")[0]
    if instruction.predicate not in _ALWAYS:
        return False
    if head == "BRA":  # `BRA P0, x` and `BRA.U UP0, x` carry their condition as an operand
        return "," not in instruction.operands
    return head in ("EXIT", "RET", "JMP", "BRX", "JMX")
