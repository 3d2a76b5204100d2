"""The generated results/README.md: studies by GPUs, what each table holds, what the numbers do not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from harness.publish.known import Link
from harness.publish.markdown import escape, markdown_table
from harness.publish.matrix import entries, matrix_markdown
from harness.publish.section import Section

_LIMITS = """
## How to read them

- Numbers are medians over the launches of one run; a row shows the newest run of its case.
- FLOP/clk/SM counts SM cycles inside the kernel, so the clock does not enter; TFLOP/s depends on it.
- *Predicted* numbers are bounds from machine code and published rates: nobody timed them.
- A percentage is of the peak that the caption names, taken in FLOP/clk/SM.
- A case is compared with full within rounds, at the configuration of full; the ceiling is the best over the
  configurations that the study declares.
- Where a case was timed as several trivially different texts, its numbers are medians over them.
- A row that failed or was skipped stands with its reason and has no number.
- Rows of a table that says PARTIAL come from a run that was cut; a *stale* row was made from another text
  than its template renders today.

## What they do not say

- A stripped case is another kernel: the compiler may schedule what remains differently, and the difference
  to full holds that too.
- Boards of one product differ, and so do drivers: compare within one table.
- Rows bound by L2 or DRAM depend on clocks that SM cycles do not count.
"""


def index(made: Sequence[Section], link: Link | None = None) -> str:
    """The page: a matrix of studies and GPUs with links, then one line per table; `link` stands above all."""
    studies = list(dict.fromkeys(section.study for section in made))
    places = sorted({section.gpu for section in made if section.gpu})
    built = any(not section.gpu for section in made)
    header = ["study", *map(escape, places), *(["built, not timed"] if built else [])]
    columns = (*places, None) if built else places
    rows = [[escape(study), *(_cell(made, study, gpu) for gpu in columns)] for study in studies]
    lines = [_line(section) for section in made]
    body = markdown_table(header, rows) if rows else "No records yet.\n"
    tables = "\n## Tables\n\n" + "\n".join(lines) + "\n" if lines else ""
    matrix = matrix_markdown(entries(made))
    above = f"The question it all began with: [{escape(link[1])}]({link[0]})\n\n" if link else ""
    return f"\n# Results\n\n{above}{body}" + (f"\n{matrix}" if matrix else "") + f"{tables}{_LIMITS}"


def _cell(made: Sequence[Section], study: str, gpu: str | None) -> str:
    members = [section for section in made if section.study == study and section.gpu == gpu]
    if not members:
        return ""
    ok = sum(row["status"] == "ok" for section in members for row in section.rows)
    total = sum(len(section.rows) for section in members)
    label = " *predicted*" if all(section.predicted for section in members) else ""
    return f"[{ok} of {total} rows](tables/{members[0].stem}.md){label}"


def _line(section: Section) -> str:
    counts = Counter(str(row["status"]) for row in section.rows)
    states = ", ".join(f"{count} {escape(status)}" for status, count in sorted(counts.items()))
    date = str(section.headers[-1]["started"])[:10]
    partial = "; **partial**" if section.partial else ""
    stale = "; *stale*" if any(row["stale"] for row in section.rows) else ""
    name = escape(f"{section.title}, problem {section.problem}")
    return (
        f"- [{name}](tables/{section.stem}.md) ([CSV](tables/{section.stem}.csv), "
        f"[LaTeX](tables/{section.stem}.tex)), {date}: {states}{partial}{stale}"
    )
