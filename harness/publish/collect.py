"""Record files of a results folder: what is valid, and one line for each that is not."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.errors import RecordError
from harness.store import RecordFile, read_valid


def find(results: Path) -> tuple[Path, ...]:
    """Every record file under `results/records`, in the order of their names."""
    return tuple(sorted((results / "records").rglob("*.jsonl")))


def read_all(paths: Iterable[Path]) -> tuple[tuple[RecordFile, ...], tuple[str, ...]]:
    """The files, the oldest run first, and why others are left out."""
    files: list[RecordFile] = []
    problems: list[str] = []
    for path in paths:
        try:
            files.append(read_valid(path))
        except RecordError as error:
            problems.append(error.message)
    files.sort(key=lambda file: (str(file.header["started"]), str(file.header["run"])))
    return tuple(files), tuple(problems)
