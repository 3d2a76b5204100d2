"""A record file against its JSON schema, and against the rules that a schema cannot say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.model import STATUSES
from harness.store.read import RecordFile, read

SCHEMA_PATH = Path(__file__).parent.parent / "record.schema.json"


def validate(path: Path) -> list[str]:
    """What is wrong with a record file, one line each; a partial file can be right."""
    try:
        file = read(path)
    except RecordError as error:
        return [error.message]
    return [f"{path.name}:{problem}" for problem in faults(file)]


def read_valid(path: Path) -> RecordFile:
    """The records of a file; RecordError also where a line has not the shape of one, or breaks a rule.

    Quicker than `validate`, which judges every sample by the schema.
    """
    file = read(path)
    shape = _record_shape()
    for number, line in enumerate(file.records, start=2):
        fault = shape.fault(line).lstrip(".: ") or next(iter(broken_rules(line)), "")
        if fault:
            raise RecordError(
                f"{path}:{number}: {fault}; `ablate check` lists all that is wrong with the file"
            )
    return file


@dataclass(frozen=True, slots=True)
class _Shape:
    """What a schema says of types and of names that must be there, and nothing else: quick to ask."""

    types: tuple[type, ...]
    required: tuple[str, ...]
    parts: Mapping[str, _Shape]
    item: _Shape | None

    def fault(self, value: Any) -> str:
        """Where a value is of another shape, and how; empty where it is of this one."""
        if self.types and not isinstance(value, self.types):
            return f": {str(value)[:80]!r} is of type {type(value).__name__}"
        if isinstance(value, dict):
            for name in self.required:
                if name not in value:
                    return f": {name!r} is required"
            for name, part in self.parts.items():
                if name in value and (found := part.fault(value[name])):
                    return f".{name}{found}"
        elif isinstance(value, list) and self.item is not None:
            return next(
                (f"[{i}]{found}" for i, one in enumerate(value) if (found := self.item.fault(one))), ""
            )
        return ""


_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int, float),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def _shape(schema: Mapping[str, Any], *, items: bool = True) -> _Shape:
    types = schema.get("type", ())
    names = (types,) if isinstance(types, str) else types
    parts = schema.get("properties", {})
    return _Shape(
        types=tuple(one for name in names for one in _TYPES[name]),
        required=tuple(schema.get("required", ())),
        parts={name: _shape(part, items=name != "samples" and items) for name, part in parts.items()},
        item=_shape(schema["items"]) if items and "items" in schema else None,
    )


@cache
def _record_shape() -> _Shape:
    """The shape of a record; its samples, which the rules judge, only as columns."""
    return _shape(_definitions()["record"])


def faults(file: RecordFile) -> list[str]:
    """What is wrong with the lines of a file that could be read, one line each, after its line number."""
    judges = _judges()
    problems = []
    for number, line in enumerate((file.header, *file.records), start=1):
        errors = sorted(judges[line["kind"]].iter_errors(line), key=lambda error: error.json_path)
        found = [_schema_problem(error) for error in errors]
        if line["kind"] == "record" and _has_shape(line):
            found += broken_rules(line)
        problems += [f"{number}: {problem}" for problem in found]
    return problems


@cache
def _definitions() -> Mapping[str, Any]:
    return dict(json.loads(SCHEMA_PATH.read_text())["$defs"])


@cache
def _judges() -> Mapping[str, Any]:
    """The schema of each kind of line (a line is judged by its own, not by "matches none of three")."""
    from jsonschema import Draft202012Validator  # slow to import, and only validation needs it

    definitions = _definitions()
    return {
        kind: Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": definitions})
        for kind in ("header", "record")
    }


def _schema_problem(error: Any) -> str:
    place = error.json_path.removeprefix("$.").removeprefix("$")
    message = error.message if len(error.message) <= 160 else error.message[:157] + "..."
    return f"{place}: {message}" if place else message


def _has_shape(record: Mapping[str, Any]) -> bool:
    """Whether samples are columns and checks objects, so that the rules can be asked."""
    samples, checks = record.get("samples") or {}, record.get("checks") or []
    if not isinstance(samples, dict) or not isinstance(checks, list):
        return False
    return all(isinstance(column, list) for column in samples.values()) and all(
        isinstance(check, dict) for check in checks
    )


def broken_rules(record: Mapping[str, Any]) -> list[str]:
    """The rules of a record that it breaks: a failure has a reason and no number, columns are whole."""
    status, kind, samples = record.get("status"), record.get("type"), record.get("samples")
    problems = []
    if status not in STATUSES:
        problems.append(f"status {status!r} is none of {', '.join(STATUSES)}")
    if status != "ok" and not record.get("reason"):
        problems.append(f"status {status} has no reason")
    if samples is not None and (status != "ok" or kind != "measured"):
        problems.append(f"a {kind} record with status {status} holds samples")
    if status == "ok" and kind == "measured":
        problems += _sample_problems(samples)
    if status == "ok" and record.get("broken"):
        problems.append("status ok, yet its contract is broken")
    if status == "ok" and not all(check.get("passed") for check in record.get("checks") or ()):
        problems.append("status ok, yet a check failed")
    return problems


def _sample_problems(samples: Mapping[str, Any] | None) -> list[str]:
    if not samples or not samples.get("seconds"):
        return ["a measured record holds no samples"]
    lengths = {name: len(column) for name, column in samples.items()}
    problems = []
    if len(set(lengths.values())) > 1:
        problems.append(
            "samples of unequal length: " + ", ".join(f"{n} {count}" for n, count in lengths.items())
        )
    if not all(_is_positive(seconds) for seconds in samples["seconds"]):
        problems.append("samples.seconds holds a time that is no positive number")
    for name in ("busy_cycles", "wall_cycles", "flop_clk_sm", "sm_hz"):
        if not all(value is None or _is_positive(value) for value in samples.get(name, ())):
            problems.append(f"samples.{name} holds a value that is neither positive nor null")
    return problems


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0
