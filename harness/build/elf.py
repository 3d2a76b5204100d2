"""The little of ELF that a cubin needs: is the file whole, and where is the kernel's machine code."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from harness.errors import ToolError

_HEADER_BYTES = 64
_SECTION_BYTES = 64
_NO_BITS = 8


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    offset: int
    size_bytes: int


def kernel_code(cubin: bytes, name: str) -> bytes | None:
    """The machine code of a cubin's only kernel; None when it has several functions or relocations.

    `name` names the file in errors. ToolError when the bytes are no whole 64-bit ELF file.
    """
    sections = _sections(cubin, name)
    code = [section for section in sections if section.name.startswith(".text.")]
    relocated = any(s.size_bytes and s.name.startswith((".rela.text.", ".rel.text.")) for s in sections)
    if len(code) != 1 or relocated:
        return None
    return cubin[code[0].offset : code[0].offset + code[0].size_bytes]


def _sections(cubin: bytes, name: str) -> list[_Section]:
    if cubin[:5] != b"\x7fELF\x02" or len(cubin) < _HEADER_BYTES:
        raise ToolError(f"{name} is no cubin: {len(cubin)} bytes that do not start as a 64-bit ELF file")
    program_offset, section_offset = struct.unpack_from("<QQ", cubin, 32)
    program_bytes, programs, section_bytes, count, names_index = struct.unpack_from("<HHHHH", cubin, 54)
    end = max(section_offset + section_bytes * count, program_offset + program_bytes * programs)
    if section_bytes != _SECTION_BYTES or names_index >= count:
        raise ToolError(f"{name} is no cubin: its section table cannot be read")
    if end > len(cubin):
        raise ToolError(f"{name} is cut: {len(cubin)} bytes, but its tables end at {end}")
    headers = [
        struct.unpack_from("<IIQQQQ", cubin, section_offset + _SECTION_BYTES * index)
        for index in range(count)
    ]
    end = max((h[4] + h[5] for h in headers if h[1] != _NO_BITS), default=0)
    if end > len(cubin):
        raise ToolError(f"{name} is cut: {len(cubin)} bytes, but its sections end at {end}")
    names_offset = headers[names_index][4]
    return [
        _Section(_string(cubin, names_offset + start), kind, offset, size)
        for start, kind, _, _, offset, size in headers
    ]


def _string(cubin: bytes, offset: int) -> str:
    end = cubin.find(b"\0", offset)
    return cubin[offset:end].decode("ascii", "replace")
