"""A record file against its JSON schema, and against the rules that a schema cannot say."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.model import STATUSES
from harness.store.read import read

SCHEMA_PATH = Path(__file__).parent.parent / "record.schema.json"


def validate(path: Path) -> list[str]:
    """What is wrong with a record file, one line each; a partial file can be right."""
    try:
        file = read(path)
    except RecordError as error:
        return [error.message]
    definitions = json.loads(SCHEMA_PATH.read_text())["$defs"]
    lines = path.read_bytes().split(b"\n")[: 1 + len(file.records)]
    problems = []
    for number, text in enumerate(lines, start=1):
        line = json.loads(text)
        found = [_schema_problem(error) for error in _schema_errors(definitions, line)]
        if line["kind"] == "record":
            found += broken_rules(line)
        problems += [f"{path.name}:{number}: {problem}" for problem in found]
    return problems


def _schema_errors(definitions: Mapping[str, Any], line: Mapping[str, Any]) -> list[Any]:
    """The schema errors of a line, judged by the definition of its own kind (not "matches none of three")."""
    from jsonschema import Draft202012Validator  # slow to import, and only validation needs it

    validator = Draft202012Validator({"$ref": f"#/$defs/{line.get('kind')}", "$defs": definitions})
    return sorted(validator.iter_errors(line), key=lambda error: error.json_path)


def _schema_problem(error: Any) -> str:
    place = error.json_path.removeprefix("$.").removeprefix("$")
    message = error.message if len(error.message) <= 160 else error.message[:157] + "..."
    return f"{place}: {message}" if place else message


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
