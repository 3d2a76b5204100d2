"""Any value as JSON types: numbers that JSON has no word for become null, and the line says which."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.errors import AblationError


def plain(value: object) -> tuple[Any, dict[str, str]]:
    """`value` as JSON types only, and which nulls were numbers: {dotted path: "nan" | "inf" | "-inf"}.

    NumPy and device scalars become Python numbers, arrays lists, dataclasses and mappings objects.
    Anything else raises AblationError with its place.
    """
    reasons: dict[str, str] = {}
    return _plain(value, "", reasons), reasons


def _plain(value: object, place: str, reasons: dict[str, str]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        number = float(value)
        if math.isfinite(number):
            return number
        reasons[place or "value"] = str(number)
        return None
    if isinstance(value, (str, Path)):
        return str(value)
    if isinstance(value, Mapping):
        return {_text(name, place): _plain(item, _join(place, name), reasons) for name, item in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name), _join(place, f.name), reasons) for f in fields(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(item, _join(place, i), reasons) for i, item in enumerate(value)]
    if hasattr(
        value, "tolist"
    ):  # NumPy arrays and bools, and device arrays, which copy themselves to the host
        return _plain(value.tolist(), place, reasons)
    raise AblationError(f"a record cannot hold a {type(value).__name__} at {place or 'its top'}")


def _text(name: object, place: str) -> str:
    if not isinstance(name, str):
        raise AblationError(f"a record's names are text, not {name!r}, at {place or 'its top'}")
    return name


def _join(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def encode(line: Mapping[str, Any]) -> bytes:
    """One line of a record file. nan and inf become null; `not_numbers` then names them."""
    value, reasons = plain(line)
    if reasons:
        value["not_numbers"] = {**value.get("not_numbers", {}), **reasons}
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
