"""Studies by GPUs: one number for each pair, the best ceiling, and full as a share of its path's peak."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

from harness.publish.columns import Row
from harness.publish.latex import tex, tex_table
from harness.publish.markdown import escape, markdown_table
from harness.publish.section import Section, largest_sections


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a study says of a GPU, from its largest table there; None where there is no number.

    `ceiling` is in FLOP/clk/SM, reached by `ceiling_case`; `full_percent` is of the peak of full's path. Both
    are bounds where nothing was timed, and `predicted` says so.
    """

    study: str
    gpu: str
    stem: str
    ceiling: float | None
    ceiling_case: str
    full_percent: float | None
    full_case: str
    predicted: bool = False


def entries(made: Sequence[Section]) -> tuple[Entry, ...]:
    """One entry per study and GPU, studies in the order of the tables, GPUs by name."""
    largest = largest_sections(made)
    studies = list(dict.fromkeys(study for study, _ in largest))
    order = sorted(largest, key=lambda name: (studies.index(name[0]), name[1]))
    return tuple(_entry(largest[name]) for name in order)


def _entry(section: Section) -> Entry:
    rate, share = ("bound", "bound_own_percent") if section.predicted else ("flop_clk_sm", "own_percent")
    known = [row for row in section.rows if row[rate] is not None]
    best: Row | None = max(known, key=lambda row: row[rate], default=None)
    full = next((row for row in section.rows if row["set"] == "full"), None)
    return Entry(
        study=section.study,
        gpu=str(section.gpu),
        stem=section.stem,
        ceiling=best[rate] if best else None,
        ceiling_case=str(best["case"]) if best else "",
        full_percent=full[share] if full else None,
        full_case=str(full["case"]) if full else "",
        predicted=section.predicted,
    )


_VIEWS = (
    ("Best ceiling over all cases and configurations, FLOP/clk/SM", "ceiling"),
    ("The first full case, % of the peak of its path", "full_percent"),
)


def matrix_markdown(found: Sequence[Entry], folder: str = "tables/") -> str:
    """A table for either number, GPUs across; cells link to the tables in `folder`."""
    gpus = sorted({entry.gpu for entry in found})
    texts = []
    for title, name in _VIEWS if found else ():
        rows = []
        for study in dict.fromkeys(entry.study for entry in found):
            cells = {
                e.gpu: f"[{_number(e, name)}]({folder}{e.stem}.md)" + (" *predicted*" if e.predicted else "")
                for e in found
                if e.study == study
            }
            rows.append([escape(study), *(cells.get(gpu, "") for gpu in gpus), ""])
        texts.append(f"{escape(title)}\n\n" + markdown_table(["study", *map(escape, gpus), ""], rows))
    return "\n".join(texts)


def matrix_tex(found: Sequence[Entry]) -> str:
    """The same for LaTeX."""
    gpus = sorted({entry.gpu for entry in found})
    texts = []
    for title, name in _VIEWS:
        body = []
        for study in dict.fromkeys(entry.study for entry in found):
            cells = {
                e.gpu: _number(e, name) + (" predicted" if e.predicted else "")
                for e in found
                if e.study == study
            }
            body.append(" & ".join([tex(study), *(tex(cells.get(gpu, "")) for gpu in gpus)]) + r" \\")
        label = f"tab:matrix-{name.replace('_', '-')}"
        texts.append(tex_table(["study", *map(tex, gpus)], body, about=f"{tex(title)}.", label=label))
    return "\n".join(texts)


def matrix_csv(found: Sequence[Entry]) -> str:
    """One line per study and GPU."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["study", "gpu", "ceiling_flop_clk_sm", "ceiling_case", "full_percent", "full_case", "type"]
    )
    for e in found:
        numbers = ["" if value is None else f"{value:.9g}" for value in (e.ceiling, e.full_percent)]
        kind = "predicted" if e.predicted else "measured"
        writer.writerow([e.study, e.gpu, numbers[0], e.ceiling_case, numbers[1], e.full_case, kind])
    return out.getvalue()


def _number(entry: Entry, name: str) -> str:
    value = getattr(entry, name)
    return "none" if value is None else f"{value:.1f}"
