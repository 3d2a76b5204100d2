"""Record files of a results folder: what is valid, what was only built, a line for each that is neither."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.errors import RecordError
from harness.store import RecordFile, read_valid

Built = frozenset[Path]  # record files of which nothing was timed or predicted


def find(results: Path) -> tuple[Path, ...]:
    """Every record file under `results/records`, in the order of their names."""
    return tuple(sorted((results / "records").rglob("*.jsonl")))


def is_built(file: RecordFile) -> bool:
    """Whether a run had no GPU and predicted none: kernels compiled and inspected, and nothing else."""
    gpu = (file.header.get("environment") or {}).get("gpu")
    return not gpu and all(record.get("type") == "built" for record in file.records)


def read_published(results: Path, *, built: bool) -> tuple[tuple[RecordFile, ...], tuple[str, ...], Built]:
    """The files that tables are made of, why others are not, and the paths of those that were only built.

    Those are what one machine's compiler made of the templates, and no result: they count with `built` only.
    """
    files, problems = read_all(find(results))
    left = frozenset() if built else frozenset(file.path for file in files if is_built(file))
    return tuple(file for file in files if file.path not in left), problems, left


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
