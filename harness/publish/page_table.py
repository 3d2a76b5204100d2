"""A table of the page: whole without its script, sortable and filterable with it."""

from __future__ import annotations

from collections.abc import Sequence

from harness.publish.columns import (
    BUILT,
    MEASURED,
    PREDICTED,
    Column,
    Row,
    filled,
    name_of,
    notes_of,
    outcome,
)
from harness.publish.markup import escape
from harness.publish.section import Section, blocks_of
from harness.publish.texts import Texts

_WORDS = ("faster", "slower", "same", "unclear")


def cases_table(section: Section, rows: Sequence[Row], texts: Texts, name: str) -> str:
    """The rows with a filter above them; `name` is the table's id on the page."""
    whole = (PREDICTED if section.predicted else MEASURED) if section.gpu else BUILT
    columns = filled(whole, rows)
    digests = {row["case"]: str(row["digest"]) for row in section.rows if not row["perturbation"]}
    names = ["case", "kernel", *([] if section.gpu else ["target"]), *(c.label for c in columns), "notes"]
    heads = "".join(f'<th scope="col"><button type="button">{escape(n)}</button>' for n in names)
    body = []
    for subtitle, members in blocks_of(rows):
        if subtitle:
            body.append(f'<tr class="sub"><td colspan="{len(names)}">{escape(subtitle)}')
        body += [
            _row(row, columns, digests.get(row["full"], ""), texts, built=not section.gpu) for row in members
        ]
    return (
        f"{_tools(name, rows)}<div class='scroll' tabindex='0' role='region' "
        f'aria-label="{escape(section.title)}"><table id="{name}"><thead><tr>{heads}</thead>\n<tbody>\n'
        + "\n".join(body)
        + "\n</tbody></table></div>"
    )


def _tools(name: str, rows: Sequence[Row]) -> str:
    words = [word for word in _WORDS if any(row["effect"] == word for row in rows)]
    if any(row["status"] != "ok" for row in rows):
        words.append("failed or skipped")
    options = "".join(f'<option value="{word}">{word}' for word in words)
    return (
        f'<div class="tools" data-table="{name}"><label>filter<input type="search" '
        'placeholder="words, as in: smem floor"></label>'
        f'<label>word<select><option value="">all{options}</select></label>'
        f'<output class="soft">{len(rows)} rows</output></div>'
    )


def _row(row: Row, columns: Sequence[Column], full: str, texts: Texts, *, built: bool) -> str:
    ok = row["status"] == "ok"
    word = str(row["effect"] or "") if ok else "failed or skipped"
    digest = str(row["digest"])
    kernel = '<button type="button" data-show="text">text</button>' if texts.add(digest) else ""
    if full and texts.add_diff(full, digest):
        kernel += '<button type="button" data-show="diff">diff</button>'
    about = f' data-text="{digest}" data-full="{full}"' if kernel else ""
    cells = [escape(name_of(row)), kernel, *([escape(str(row["arch"]))] if built else [])]
    cells += [escape(column.cell(row)) for column in columns] if ok else []
    notes = notes_of(row) if ok else [outcome(row)]
    notes += [f"stale: refresh with {row['stale']}"] if row["stale"] else []
    # A reason stands where the numbers would.
    span = "" if ok else f' colspan="{len(columns) + 1}"'
    return (
        f'<tr data-case="{escape(str(row["case"]))}" data-word="{word}"{about}><td>'
        + "<td>".join(cells)
        + f'<td class="text"{span}>{escape("; ".join(notes))}'
    )
