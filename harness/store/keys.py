"""Keys that say whether two records are the same thing; resuming, and the latest of repeats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.key import digest_mapping
from harness.store.plain import plain
from harness.store.read import RecordFile

Json = dict[str, Any]

# What need not be run again; every other status is a failure, and failures are retried.
DONE = ("ok", "skipped", "not_supported")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A record with the header of its run; `replaced` counts the earlier repeats that it stands for."""

    header: Mapping[str, Any]
    record: Mapping[str, Any]
    replaced: int = 0


def key(header: Mapping[str, Any], record: Mapping[str, Any]) -> str:
    """Digest of all that two records must share to be the same thing, whatever the run.

    GPU product (name, compute capability, SMs: a MIG slice is another product), study, levels, configuration,
    problem, sizes, conditions, perturbation, source digest, architecture, toolkit, options.
    """
    source = record.get("source") or {}
    exact = {
        "source": source.get("digest"),
        "toolkit": record.get("toolkit"),
        "gpu": _product(header, record),
    }
    return digest_mapping(_settled({**_identity(record), **exact}))


def identity(record: Mapping[str, Any]) -> str:
    """Digest of what was asked, whoever ran it: `key` without the GPU, the source digest and the toolkit."""
    return digest_mapping(_settled(_identity(record)))


def _identity(record: Mapping[str, Any]) -> Json:
    target = record.get("target") or {}
    asked = ("study", "levels", "configuration", "problem", "sizes", "conditions", "perturbation", "options")
    return {name: record.get(name) for name in asked} | {"arch": target.get("arch")}


def _product(header: Mapping[str, Any], record: Mapping[str, Any]) -> Json | None:
    name = (record.get("target") or {}).get("gpu")
    if name is None:
        return None
    gpu = (header.get("environment") or {}).get("gpu") or {}
    return {"name": name, "cc": gpu.get("cc"), "sms": gpu.get("sms")}


def _settled(value: object) -> Any:
    """JSON types in which 4 and 4.0 are the same number, so that a planned and a stored record agree."""
    return _whole(plain(value)[0])


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value


def resume(files: Iterable[RecordFile], wanted: Collection[str]) -> dict[str, Mapping[str, Any]]:
    """key -> record of what is done among the wanted keys; whatever is absent has to be run.

    The newest record of a key decides. Failures, predictions, rows cut short are not done.
    """
    newest: dict[str, Mapping[str, Any]] = {}
    for file in _by_time(files):
        for record in file.records:
            if record.get("type") != "predicted":
                newest[key(file.header, record)] = record
    return {name: record for name, record in newest.items() if name in wanted and _is_done(record)}


def _is_done(record: Mapping[str, Any]) -> bool:
    if record.get("status") == "ok" and (record.get("target") or {}).get("gpu") is not None:
        return record.get("type") == "measured" and record.get("exit") is not None
    return record.get("status") in DONE


def latest(
    files: Iterable[RecordFile],
    *,
    by: Callable[[Mapping[str, Any], Mapping[str, Any]], str] = key,
) -> tuple[Row, ...]:
    """One row per key and type, the newest run's, in the order of first mention; nothing is averaged.

    `Row.replaced` and `repeats_note` say that there were earlier ones.
    """
    rows: dict[tuple[str, str], Row] = {}
    for file in _by_time(files):
        for record in file.records:
            name = (str(record.get("type")), by(file.header, record))
            before = rows.get(name)
            rows[name] = Row(
                header=file.header, record=record, replaced=0 if before is None else before.replaced + 1
            )
    return tuple(rows.values())


def repeats_note(rows: Sequence[Row]) -> str:
    """One line for a table whose rows stand for repeats, else an empty string."""
    count = sum(row.replaced > 0 for row in rows)
    return f"{count} rows were run more than once: the latest run is shown" if count else ""


def _by_time(files: Iterable[RecordFile]) -> list[RecordFile]:
    return sorted(files, key=lambda file: (str(file.header["started"]), str(file.header["run"])))
