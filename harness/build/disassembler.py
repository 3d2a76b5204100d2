"""Cubin -> instructions, through nvdisasm.

nvdisasm spends almost all its time on start-up, so `disassemble_all` hands it the code of many kernels as one
raw image; `disassemble` gives it one cubin as it is. Both read its JSON, where instruction i lies at 16 i.
"""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from harness.build.elf import kernel_code
from harness.build.toolkit import require_nvdisasm
from harness.errors import ToolError
from harness.processes import run_tool

INSTRUCTION_BYTES = 16

_TENSOR = re.compile(r"^(?:UTC)?[A-Z]*MMA$")
_TARGET = re.compile(r"(?:^|,)0x([0-9a-f]+)$")
# What may name an instruction's address. A bare WARPSYNC names a mask of lanes.
_HOLDS_ADDRESS = re.compile(r"^(?:BRA|BRX|BSSY|CALL|JMP|JMX|RET|WARPSYNC\.COLLECTIVE)(?:\.|$)")
_INTERNAL = "$__internal_"
_TIMEOUT_SECONDS = 120


class Instruction(NamedTuple):
    """One machine instruction; `address` in bytes from the kernel's start."""

    address: int
    predicate: str
    opcode: str
    operands: str

    @property
    def text(self) -> str:
        """Predicate, opcode and operands as the disassembler spells them."""
        return " ".join(part for part in (self.predicate, self.opcode, self.operands) if part)

    @property
    def does_nothing(self) -> bool:
        """A NOP, or an instruction whose predicate is never true: ptxas spaces with dead LDS and UIADD3."""
        return self.opcode == "NOP" or self.predicate in ("@!PT", "@!UPT")

    @property
    def is_tensor(self) -> bool:
        """Whether it multiplies matrices (HMMA, HGMMA, IMMA, QMMA, UTCHMMA, ...)."""
        return not self.does_nothing and bool(_TENSOR.match(self.opcode.partition(".")[0]))

    @property
    def target(self) -> int | None:
        """The address a branch goes to, None for what is no branch or has no fixed target."""
        if self.opcode.partition(".")[0] not in ("BRA", "JMP"):
            return None
        found = _TARGET.search(self.operands)
        return int(found[1], 16) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """The instructions of one kernel, in order, NOPs included."""

    path: Path
    instructions: tuple[Instruction, ...]


def disassemble(path: Path, nvdisasm: Path | None = None) -> Listing:
    """The instructions of the only kernel in a cubin. ToolError when the file or the tool is at fault."""
    functions = _run(nvdisasm or require_nvdisasm(), ["-json", str(path)], str(path))
    # Some compilers put a slow path (a division's, say) into a function of its own: it is no kernel.
    functions = [f for f in functions if not str(f.get("function-name")).startswith(_INTERNAL)] or functions
    if len(functions) != 1:
        names = ", ".join(str(f.get("function-name")) for f in functions) or "none"
        raise ToolError(f"{path}: one kernel is expected, the disassembler found {len(functions)} ({names})")
    return Listing(path=path, instructions=_instructions(functions[0]["sass-instructions"], 0, str(path)))


def disassemble_all(
    paths: Sequence[Path], arch: str, nvdisasm: Path | None = None
) -> list[Listing | ToolError]:
    """As `disassemble`, for many cubins of one architecture at the price of one; errors are values."""
    tool = nvdisasm or require_nvdisasm()
    codes: dict[Path, bytes] = {}
    for path in paths:
        try:
            code = kernel_code(path.read_bytes(), str(path))
        except (OSError, ToolError):
            continue  # the single disassembly below says what is wrong with it
        if code and len(code) % INSTRUCTION_BYTES == 0:
            codes[path] = code
    try:
        listings = _disassemble_raw(codes, arch, tool)
    except ToolError:
        listings = {}
    return [listings.get(path) or _attempt(path, tool) for path in paths]


def _attempt(path: Path, nvdisasm: Path) -> Listing | ToolError:
    try:
        return disassemble(path, nvdisasm)
    except ToolError as error:
        return error


def _disassemble_raw(codes: dict[Path, bytes], arch: str, nvdisasm: Path) -> dict[Path, Listing]:
    """One run over the concatenated code; each kernel's addresses are counted from its own start again."""
    if len(codes) < 2:
        return {}
    with tempfile.NamedTemporaryFile(suffix=".bin") as image:
        image.write(b"".join(codes.values()))
        image.flush()
        functions = _run(nvdisasm, ["-json", "-b", arch.replace("sm_", "SM"), image.name], f"code for {arch}")
    rows = [row for function in functions for row in function["sass-instructions"]]
    if len(rows) * INSTRUCTION_BYTES != sum(map(len, codes.values())):
        raise ToolError(f"code for {arch}: the disassembler lost instructions")
    listings: dict[Path, Listing] = {}
    start = 0
    for path, code in codes.items():
        end = start + len(code) // INSTRUCTION_BYTES
        base = start * INSTRUCTION_BYTES
        listings[path] = Listing(path=path, instructions=_instructions(rows[start:end], base, str(path)))
        start = end
    return listings


def _instructions(rows: list[dict[str, Any]], base: int, name: str) -> tuple[Instruction, ...]:
    """JSON rows as instructions; addresses, and the targets of branches, less `base`."""
    made = []
    for index, row in enumerate(rows):
        operands = str(row.get("operands", ""))
        opcode = str(row["opcode"])
        if base and _HOLDS_ADDRESS.match(opcode):
            operands = _TARGET.sub(lambda hit: _moved(hit, base), operands)
        made.append(Instruction(index * INSTRUCTION_BYTES, str(row.get("predicate", "")), opcode, operands))
    if not made:
        raise ToolError(f"{name}: the disassembler found no instructions")
    return tuple(made)


def _moved(hit: re.Match[str], base: int) -> str:
    comma = "," if hit[0].startswith(",") else ""
    return f"{comma}{max(int(hit[1], 16) - base, 0):#x}"


def _run(nvdisasm: Path, arguments: list[str], what: str) -> list[dict[str, Any]]:
    """The functions nvdisasm finds. ToolError with its message when it fails or answers nothing."""
    try:
        done = run_tool([str(nvdisasm), *arguments], capture_output=True, timeout=_TIMEOUT_SECONDS)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ToolError(f"{what}: {nvdisasm} cannot be run: {error}") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().replace("\n", " ")
        raise ToolError(f"{what}: {nvdisasm} failed with exit status {done.returncode}: {said}")
    try:
        _, functions = json.loads(done.stdout)
    except ValueError as error:
        raise ToolError(f"{what}: {nvdisasm} wrote no listing ({len(done.stdout)} bytes)") from error
    return list(functions)
