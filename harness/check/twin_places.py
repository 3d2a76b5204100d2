"""Addresses in a twin's program -> places in the rendered kernel and in the templates it came from."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from harness.model import Source
from harness.processes import run_tool

_TOOLS = ("addr2line", "llvm-addr2line")
_CALLERS = 3  # how many levels of inlining a place names


class Locator:
    """Names places; the debug information is asked once, for all addresses, and only when there are some.

    Args:
        program: the executable, linked at a fixed address.
        addresses: return addresses; 0 stands for no place.
    """

    def __init__(self, program: Path, source: Source, addresses: Iterable[int]) -> None:
        self._source = source
        wanted = sorted({address for address in addresses if address})
        self._frames = _frames(program, wanted) if wanted else {}

    def place(self, address: int) -> str:
        """`templates/parts/tile.cuh:35 (attention.cu:140) <- ...`: innermost first, then its callers."""
        if not address:
            return ""
        name = f"{self._source.entry}.cu"
        lines = [line for file, line in self._frames.get(address, ()) if Path(file).name == name and line > 0]
        if not lines:
            return f"address {address:#x}"
        callers = [self._template_place(line) for line in lines[1:_CALLERS]]
        return " <- ".join([f"{self._template_place(lines[0])} ({name}:{lines[0]})", *callers])

    def _template_place(self, line: int) -> str:
        if line > len(self._source.line_map):
            return f"{self._source.entry}.cu:{line}"
        template, template_line = self._source.line_map[line - 1]
        return f"templates/{template}:{template_line}"


def _frames(program: Path, addresses: list[int]) -> dict[int, list[tuple[str, int]]]:
    """File and line of each address, innermost inlined function first; empty when no tool can say."""
    tool = next((path for path in map(shutil.which, _TOOLS) if path), None)
    if tool is None:
        return {}
    # A return address is the instruction after the call: one byte before lies in the call.
    command = [tool, "-a", "-i", "-e", str(program), *(hex(address - 1) for address in addresses)]
    said = run_tool(command, capture_output=True, text=True).stdout
    frames: dict[int, list[tuple[str, int]]] = {}
    current: list[tuple[str, int]] = []
    for line in said.splitlines():
        if line.startswith("0x"):
            current = frames.setdefault(int(line, 16) + 1, [])
            continue
        file, _, number = line.partition(" ")[0].rpartition(":")
        current.append((file, int(number) if number.isdigit() else 0))
    return frames
