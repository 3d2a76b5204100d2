"""Reading a record file: what a kill cut is named and skipped, what is not ours is refused in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError

SCHEMA = 1
START = b'{"kind":"header"'  # how the first line begins, as the writer writes it

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """What one file holds. `partial` is None for a run that ended by itself, else says what is missing."""

    path: Path
    header: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    partial: str | None = None


def read(path: Path) -> RecordFile:
    """The records of a file. A last line that a kill cut is skipped and named in `partial`.

    Raises RecordError, naming file and line, for a foreign file, another schema, a cut header, or damage
    before the last line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    first, newline, rest = data.partition(b"\n")
    header = _header(path, first, whole=bool(newline))
    lines = rest.split(b"\n")
    ended = lines[-1] == b""
    if ended:
        lines.pop()
    records: list[Json] = []
    footer: Json | None = None
    for number, text in enumerate(lines, start=2):
        if footer is not None:
            raise RecordError(f"{path}:{number}: a line after the footer; a record file ends there")
        line = _parse(text)
        if line is None or line.get("kind") not in ("record", "footer"):
            if number == len(lines) + 1 and not ended:
                return _file(path, header, records, f"line {number} is cut and was skipped")
            raise RecordError(f"{path}:{number}: not a record; take the line out to read the others")
        if line["kind"] == "footer":
            footer = line
        else:
            records.append(line)
    return _file(path, header, records, _incomplete(footer, len(records)))


def _file(path: Path, header: Json, records: list[Json], why: str | None) -> RecordFile:
    if why is not None:
        planned = header.get("planned")
        of = f" of {planned}" if isinstance(planned, int) else ""
        why = f"{path.name}: partial, {len(records)}{of} records; {why}"
    return RecordFile(path=path, header=header, records=tuple(records), partial=why)


def _incomplete(footer: Json | None, count: int) -> str | None:
    if footer is None:
        return "no footer: the run was cut off"
    if footer.get("written") != count:
        return f"its footer counts {footer.get('written')} records"
    if footer.get("complete") is not True:
        missing = footer.get("missing") or []
        return "not run: " + ", ".join(map(str, missing)) if missing else "the run was stopped early"
    return None


def _header(path: Path, text: bytes, *, whole: bool) -> Json:
    if not text:
        raise RecordError(f"{path}:1: no header: the file is empty, or not a record file of this suite")
    line = _parse(text)
    if line is None and not whole and (text.startswith(START) or START.startswith(text)):
        raise RecordError(f"{path}:1: the header is cut: nothing was recorded; the file can be deleted")
    if line is None or line.get("kind") != "header":
        raise RecordError(f"{path}:1: not a record file of this suite: its first line is no header")
    schema = line.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool):
        raise RecordError(f"{path}:1: the header names no schema; this suite reads schema {SCHEMA}")
    if schema != SCHEMA:
        age = "a newer" if schema > SCHEMA else "an older"
        remedy = "update the suite" if schema > SCHEMA else "run the study again"
        raise RecordError(
            f"{path}:1: written by {age} schema ({schema}; this suite reads {SCHEMA}): {remedy}"
        )
    if not isinstance(line.get("run"), str) or not isinstance(line.get("started"), str):
        raise RecordError(f"{path}:1: the header names no run id and start time")
    return line


def _parse(text: bytes) -> Json | None:
    """The JSON object of a line, else None: also for NaN, Infinity, a number too large for a float, or half
    of a surrogate pair, which no text file can hold."""
    try:
        value = json.loads(text.decode(), parse_constant=_refuse, parse_float=_finite)
        if b"\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _refuse(text)
