"""What is published of a results folder: every file as text, made from the records and nothing else."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from harness.publish.collect import Built, find, read_all, read_published
from harness.publish.columns import Row
from harness.publish.csv_table import csv_text
from harness.publish.frame import frame
from harness.publish.index import index
from harness.publish.known import Answer, Context, Current, Link
from harness.publish.latex import tex_section
from harness.publish.markdown import fill_markers, markdown_section, marker_problems
from harness.publish.matrix import entries, matrix_csv, matrix_markdown, matrix_tex
from harness.publish.page import page
from harness.publish.section import Section, is_of_built, rows_of, sections
from harness.publish.stale import as_marked, marked, stale_lines
from harness.publish.text import text_table
from harness.publish.thread import thread
from harness.sources import load
from harness.store import RecordFile, validate

GENERATED = "<!-- written by `ablate publish` from the records: do not edit -->\n"
TEX_GENERATED = (
    "% written by `ablate publish` from the records: do not edit\n% \\usepackage{booktabs,longtable}\n"
)
# Under the results folder: the page, and the texts that were timed.
PAGE = "report/index.html"
SOURCES = "sources"


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What publishing did: files whose text changed or went, one line for each file at fault, and how many
    record files of machines without a GPU were left out."""

    written: tuple[Path, ...]
    problems: tuple[str, ...]
    left_out: int = 0


def publish(
    results: Path,
    *,
    readmes: Sequence[Path] = (),
    context: Context | None = None,
    built: bool = False,
) -> Published:
    """Write tables/, README.md and the marked tables of `readmes`; equal records give equal bytes.

    A record file that cannot be read is named in the answer and left out; the others are published.
    Rows of another text than `context.current` says are labelled stale. What was only built, on a machine
    without a GPU, is published with `built` only: it is nobody else's, and its records are not committed.
    """
    wanted, problems, left = _fresh(results, readmes, context or Context(), built=built)
    written = [path for path, text in wanted.items() if _write(path, text)]
    extra = _unwanted(results, wanted)
    for path in extra:
        path.unlink()
    return Published(written=(*written, *extra), problems=tuple(problems), left_out=len(left))


def check(
    results: Path,
    *,
    readmes: Sequence[Path] = (),
    context: Context | None = None,
    built: bool = False,
) -> tuple[str, ...]:
    """One line per fault: an invalid record, a table that is missing, left over or unlike a fresh one.

    Which rows are stale is taken from the written tables: a template that changed makes none of them wrong.
    Without `built`, records and tables of what was only built are as if they were not there.
    """
    tables = [path for path in sorted((results / "tables").glob("*.csv")) if built or not is_of_built(path)]
    as_written = replace(context or Context(), current=as_marked(marked(tables)))
    wanted, problems, left = _fresh(results, readmes, as_written, built=built)
    for path in find(results):
        if path not in left:
            problems += [line for text in validate(path) if (line := _placed(path, text)) not in problems]
    extra = _unwanted(results, wanted)
    remedy = "run `ablate publish`"
    if not built and any(map(is_of_built, extra)):
        # They tell of an `ablate publish --built`, which changed the index and the page, too.
        extra = [path for path in extra if not is_of_built(path)]
        remedy += ", or `ablate check --built` where it was published with --built"
    for path, text in wanted.items():
        if not path.is_file():
            problems.append(f"{path} is missing: {remedy}")
        elif path.read_bytes() != text.encode():
            problems.append(f"{path} is out of date: {remedy}")
    return (*problems, *(f"{path} belongs to no record: {remedy}" for path in extra))


def _placed(path: Path, problem: str) -> str:
    """A problem of a file with the folder of the file before its name, where it is not there yet."""
    return problem if problem.startswith(str(path)) else f"{path.parent}/{problem}"


def stale(results: Path, current: Current, *, built: bool = False) -> tuple[str, ...]:
    """One line per study and machine with shown rows whose source is not what its template renders today."""
    files, _, _ = read_published(results, built=built)
    return stale_lines(row for row in rows_of(frame(files, None, current)) if row["latest"])


def terminal(
    files: Iterable[Path],
    results: Path,
    *,
    columns: int = 80,
    context: Context | None = None,
) -> str:
    """The tables of some record files for a terminal, with what other machines recorded beside built ones."""
    own, problems = read_all(files)
    context = context or Context()
    made = sections(_frame(own, context), own, context.known)
    others: list[Row] = []
    if any(section.gpu is None for section in made):
        everything, _ = read_all(find(results))
        others = rows_of(_frame(everything, context))
    tables = [text_table(section, columns=columns, others=others) for section in made]
    return "\n".join([*tables, *problems])


def _frame(files: Sequence[RecordFile], context: Context) -> pd.DataFrame:
    return frame(files, context.known, context.current, context.bounds)


def _fresh(
    results: Path, readmes: Sequence[Path], context: Context, *, built: bool
) -> tuple[dict[Path, str], list[str], Built]:
    """Path -> text of everything that is published, what is at fault, and the record files left out."""
    files, found, left = read_published(results, built=built)
    problems = list(found)
    data = _frame(files, context)
    made, others = sections(data, files, context.known), rows_of(data)
    by_stem = _by_stem(made)
    wanted = _tables(results / "tables", by_stem, others)
    answers = tuple(context.answers(files)) if context.answers and made else ()
    link = _add_thread(results, context, made, answers, wanted)
    if made or _is_generated(results / "README.md"):
        wanted[results / "README.md"] = GENERATED + index(made, link)
    if made:
        wanted[results / PAGE] = page(made, answers, lambda digest: load(results / SOURCES, digest), link)
    for path in [path for path in wanted if path.exists() and not _is_generated(path)]:
        problems.append(f"{path} was not written by publish and is kept: move it, or name another --results")
        del wanted[path]
    for path in readmes:
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            problems.append(f"{path}: {error.strerror}")
            continue
        problems += [f"{path}: {line}" for line in marker_problems(text, by_stem)]
        wanted[path] = fill_markers(text, lambda stem, brief: _joined(by_stem.get(stem, ()), others, brief))
    return wanted, problems, left


def _add_thread(
    results: Path,
    context: Context,
    made: Sequence[Section],
    answers: Sequence[Answer],
    wanted: dict[Path, str],
) -> Link | None:
    """Add the page that tells the story, where records are of it; its name and title."""
    story = context.story
    text = thread(story, made, answers, context.known) if story else ""
    if story is None or not text:
        return None
    wanted[results / f"{story.name}.md"] = GENERATED + text
    return f"{story.name}.md", story.title


def _tables(folder: Path, by_stem: Mapping[str, Sequence[Section]], others: Sequence[Row]) -> dict[Path, str]:
    wanted = {}
    for stem, members in by_stem.items():
        wanted[folder / f"{stem}.md"] = GENERATED + "\n" + (_joined(members, others, False) or "")
        wanted[folder / f"{stem}.tex"] = TEX_GENERATED + "\n".join(map(tex_section, members))
        wanted[folder / f"{stem}.csv"] = csv_text(row for section in members for row in section.records)
    found = entries([section for members in by_stem.values() for section in members])
    if found:
        matrix = matrix_markdown(found, folder="")
        wanted[folder / "matrix.md"] = f"{GENERATED}\n{matrix}"
        wanted[folder / "matrix.csv"] = matrix_csv(found)
        wanted[folder / "matrix.tex"] = TEX_GENERATED + matrix_tex(found)
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
    """Tables of earlier records: only files that say themselves that they are generated, and theirs."""
    found = [*sorted((results / "tables").glob("*.md")), *sorted(results.glob("*.md"))]
    extra = [path for path in found if path not in wanted]
    if results / PAGE not in wanted and _is_generated(results / PAGE):
        return [results / PAGE, *_unwanted_tables(extra)]
    return _unwanted_tables(extra)


def _unwanted_tables(extra: Sequence[Path]) -> list[Path]:
    old = [path for path in extra if _is_generated(path)]
    theirs = (path.with_suffix(ending) for path in old for ending in (".csv", ".tex"))
    return [*old, *(path for path in theirs if path.is_file())]


def _is_generated(path: Path) -> bool:
    """Whether a file says at its start that publish wrote it; a CSV, which cannot say so, is believed."""
    if not path.is_file():
        return False
    start = path.read_text(encoding="utf-8", errors="replace").splitlines()[:2]
    return path.suffix == ".csv" or any("written by `ablate publish`" in line for line in start)


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
