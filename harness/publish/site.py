"""What is published of a results folder: every file as text, made from the records and nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.publish.collect import find, read_all
from harness.publish.columns import Row
from harness.publish.csv_table import csv_text
from harness.publish.frame import Order, frame
from harness.publish.index import index
from harness.publish.markdown import fill_markers, markdown_section, marker_problems
from harness.publish.section import Section, rows_of, sections
from harness.publish.text import text_table
from harness.store import validate

GENERATED = "<!-- written by `ablate publish` from the records: do not edit -->\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What publishing did: files whose text changed or went, and one line for each file at fault."""

    written: tuple[Path, ...]
    problems: tuple[str, ...]


def publish(results: Path, *, readmes: Sequence[Path] = (), order: Order | None = None) -> Published:
    """Write tables/, README.md and the marked tables of `readmes`; equal records give equal bytes.

    A record file that cannot be read is named in the answer and left out; the others are published.
    """
    wanted, problems = _fresh(results, readmes, order)
    written = [path for path, text in wanted.items() if _write(path, text)]
    stale = _unwanted(results, wanted)
    for path in stale:
        path.unlink()
    return Published(written=(*written, *stale), problems=tuple(problems))


def check(results: Path, *, readmes: Sequence[Path] = (), order: Order | None = None) -> tuple[str, ...]:
    """One line per fault: an invalid record, a table that is missing, left over or unlike a fresh one."""
    wanted, problems = _fresh(results, readmes, order)
    files, _ = read_all(find(results))
    for file in files:
        problems += [f"{file.path.parent}/{line}" for line in validate(file.path)]
    for path, text in wanted.items():
        if not path.is_file():
            problems.append(f"{path} is missing: run `ablate publish`")
        elif path.read_bytes() != text.encode():
            problems.append(f"{path} is out of date: run `ablate publish`")
    problems += [f"{path} belongs to no record: run `ablate publish`" for path in _unwanted(results, wanted)]
    return tuple(problems)


def terminal(files: Iterable[Path], results: Path, *, columns: int = 80, order: Order | None = None) -> str:
    """The tables of some record files for a terminal, with what other machines recorded beside built ones."""
    own, problems = read_all(files)
    data = frame(own, order)
    others: list[Row] = []
    if any(section.gpu is None for section in sections(data, own)):
        known, _ = read_all(find(results))
        others = rows_of(frame(known, order))
    tables = [text_table(section, columns=columns, others=others) for section in sections(data, own)]
    return "\n".join([*tables, *problems])


def _fresh(results: Path, readmes: Sequence[Path], order: Order | None) -> tuple[dict[Path, str], list[str]]:
    """Path -> text of everything that is published, and what is at fault."""
    files, found = read_all(find(results))
    problems = list(found)
    data = frame(files, order)
    made, others = sections(data, files), rows_of(data)
    by_stem = _by_stem(made)
    wanted = _tables(results / "tables", by_stem, others)
    if made or (results / "README.md").exists():
        wanted[results / "README.md"] = GENERATED + index(made)
    for path in readmes:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        problems += [f"{path}: {line}" for line in marker_problems(text, by_stem)]
        wanted[path] = fill_markers(text, lambda stem, brief: _joined(by_stem.get(stem, ()), others, brief))
    return wanted, problems


def _tables(folder: Path, by_stem: Mapping[str, Sequence[Section]], others: Sequence[Row]) -> dict[Path, str]:
    wanted = {}
    for stem, members in by_stem.items():
        wanted[folder / f"{stem}.md"] = GENERATED + "\n" + (_joined(members, others, False) or "")
        wanted[folder / f"{stem}.csv"] = csv_text(row for section in members for row in section.rows)
    return wanted


def _by_stem(made: Sequence[Section]) -> dict[str, tuple[Section, ...]]:
    stems: dict[str, tuple[Section, ...]] = {}
    for section in made:
        stems[section.stem] = (*stems.get(section.stem, ()), section)
    return stems


def _joined(members: Sequence[Section], others: Sequence[Row], brief: bool) -> str | None:
    if not members:
        return None
    return "\n".join(markdown_section(section, others, brief=brief) for section in members)


def _unwanted(results: Path, wanted: Mapping[Path, str]) -> list[Path]:
    """Tables of earlier records: only files that say themselves that they are generated, and their CSV."""
    extra = [path for path in sorted((results / "tables").glob("*.md")) if path not in wanted]
    old = [path for path in extra if path.read_text(encoding="utf-8", errors="replace").startswith(GENERATED)]
    return [*old, *(path.with_suffix(".csv") for path in old if path.with_suffix(".csv").is_file())]


def _write(path: Path, text: str) -> bool:
    """Replace a file in one step; whether its bytes changed."""
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(name).chmod(path.stat().st_mode & 0o777 if path.exists() else 0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return True
