r"""Tables for a paper: booktabs in LaTeX, any text as text. Needs \usepackage{booktabs,longtable}."""

from __future__ import annotations

from collections.abc import Sequence

from harness.printable import printable
from harness.publish.caption import caption
from harness.publish.columns import (
    BUILT,
    CEILING,
    CHIP,
    CODEGEN,
    COUNTERS,
    EFFECT,
    FLOP_CLK,
    INTERVAL,
    MHZ,
    OWN,
    PREDICTED,
    TFLOPS,
    UNIT,
    WORK,
    Column,
    Row,
    filled,
    name_of,
    outcome,
)
from harness.publish.section import Section, blocks_of

COLUMNS = (TFLOPS, FLOP_CLK, WORK, UNIT, MHZ, OWN, CHIP, *COUNTERS, EFFECT, INTERVAL, CODEGEN, CEILING)
_SPECIAL = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "%": r"\%",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "`": r"\textasciigrave{}",
    "'": r"\textquotesingle{}",
    "±": r"$\pm$",
    "-": "{-}",
    "[": "{[}",
    "]": "{]}",
}


def tex(value: object) -> str:
    """Any text as it reads, on one line: nothing in it is a command, a comment, a column or a ligature."""
    text = printable(str(value))
    return "".join(_SPECIAL.get(c, c) for c in " ".join(text.split()))


def tex_table(header: Sequence[str], body: Sequence[str], *, about: str, label: str) -> str:
    """A long table of lines that are already escaped; the first column reads from the left."""
    columns = "l" + "r" * (len(header) - 1)
    head = " & ".join(rf"\textbf{{{name}}}" for name in header) + r" \\"
    lines = [
        r"\begin{longtable}{" + columns + "}",
        rf"\caption{{{about}}}\label{{{label}}}\\",
        r"\toprule",
        head,
        r"\midrule",
        r"\endfirsthead",
        r"\toprule",
        head,
        r"\midrule",
        r"\endhead",
        r"\bottomrule",
        r"\endfoot",
        *body,
        r"\end{longtable}",
    ]
    return "\n".join(lines) + "\n"


def tex_section(section: Section) -> str:
    """The table of a section: its main rows, or of one that was only built, a row per case and target."""
    whole = (PREDICTED if section.predicted else COLUMNS) if section.gpu else BUILT
    columns = filled(whole, section.main)
    body = []
    for i, (subtitle, rows) in enumerate(blocks_of(section.main)):
        body += [r"\addlinespace"] if i else []
        if subtitle:
            body.append(rf"\multicolumn{{{len(columns) + 1}}}{{l}}{{\textit{{{tex(subtitle)}}}}} \\")
        body += [_line(row, columns, built=section.gpu is None) for row in rows]
    header = ["case", *(tex(column.label) for column in columns)]
    about = " ".join(f"{tex(line)}." for line in (section.title, *caption(section, columns)))
    return tex_table(header, body, about=about, label=f"tab:{section.stem}")


def _line(row: Row, columns: Sequence[Column], *, built: bool) -> str:
    name = tex(f"{name_of(row)}, {row['arch']}" if built else name_of(row))
    mark = r"\textsuperscript{stale}" if row["stale"] else ""
    if row["status"] != "ok":
        reason = rf"\multicolumn{{{max(len(columns), 1)}}}{{l}}{{{tex(outcome(row))}}}"
        return f"{name}{mark} & {reason} \\\\" if columns else rf"{name}{mark}: {tex(outcome(row))} \\"
    return f"{name}{mark} & " + " & ".join(tex(column.cell(row)) for column in columns) + r" \\"
