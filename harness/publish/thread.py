"""The page that answers a thread: its steps again, measured and predicted, from the records alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.chips import chip
from harness.publish.known import Answer, Known
from harness.publish.markdown import escape, markdown_table
from harness.publish.section import Section
from harness.publish.thread_claims import expectations, judge_all, tally
from harness.publish.thread_counters import counters_table
from harness.publish.thread_peaks import peaks_table, share
from harness.publish.thread_rows import Rows, effect_words
from harness.publish.thread_steps import full_rows, is_stuck, measured_steps, predicted_steps, simulations
from harness.story import Story

_HOW_PREDICTED = (
    "Nobody timed these. A bound follows from the machine code and the rates of the chip's pipes, and no run "
    "can beat it. A step's number is how far its bound stands above that of its full, with the pipe that "
    "sets it; the last row is what a simulation of one SM makes of full, an estimate and no bound. Two "
    "numbers are for the two columns above, one for both."
)


def thread(story: Story, made: Sequence[Section], answers: Sequence[Answer], known: Known) -> str:
    """The page as Markdown; empty where no record is of a study that the story tells of."""
    every = _gpus(story, made)
    if not every:
        return ""
    measured = [rows for rows in every if not rows.predicted]
    predicted = [rows for rows in every if rows.predicted]
    lines = ["", f"# {story.title}", "", f"{story.intro} The thread: <{story.source}>.", ""]
    lines += [_where(measured, predicted), "", "## In short", "", *_in_short(every, story, answers)]
    lines += ["", "## What was taken away", ""]
    lines += [f"{n}. **{escape(step.title)}**: {step.text}" for n, step in enumerate(story.steps, 1)]
    for rows in measured:
        if story.steps[0].spots[0].study in rows.sections:
            lines += ["", f"### Measured: {escape(rows.name)}", "", *measured_steps(rows, story, answers)]
    bounds = predicted_steps(predicted, story)
    if bounds:
        lines += ["", "### Predicted: what each step can give at most", "", _HOW_PREDICTED, "", *bounds]
    peaks, counted = peaks_table(every, story.ceilings), counters_table(measured, story)
    if peaks or counted:
        lines += ["", "## Why the profiler said 50 %", "", story.peaks]
    lines += [line for table in (peaks, counted) if table for line in ("", *table)]
    for rows in measured:
        lines += _proposal(rows, story)
    for rows in measured:
        judged = expectations(rows, story, known)
        lines += (
            ["", f"## What was expected, and what came: {escape(rows.name)}", "", *judged] if judged else []
        )
    return "\n".join([*lines, *_sources(every)]) + "\n"


def _gpus(story: Story, made: Sequence[Section]) -> list[Rows]:
    """Every GPU with rows of the story: the measured first, the others in the story's order."""
    studies = studies_of(story)
    names = dict.fromkeys(section.gpu for section in made if section.gpu)
    found = [rows for gpu in names if (rows := Rows(gpu, made, studies)).sections]
    order = [known.name if (known := chip(name)) else name for name in story.chips]

    def place(rows: Rows) -> tuple[bool, int, str]:
        return (rows.predicted, order.index(rows.place) if rows.place in order else len(order), rows.gpu)

    return sorted(found, key=place)


def _in_short(every: Sequence[Rows], story: Story, answers: Sequence[Answer]) -> list[str]:
    """The answer in a line for each kind of chip, and what the expectations came to."""
    lines: list[str] = []
    stuck: dict[str, list[Rows]] = {}
    for rows in every:
        if not rows.predicted:
            lines += _measured_in_short(rows, story, answers)
        elif is_stuck(rows, story):
            of_chip = share(full_rows(rows, story)[0], "chip")
            stuck.setdefault("an unknown share" if of_chip is None else f"{of_chip:.0f} %", []).append(rows)
    for percent, members in stuck.items():
        lines.append(
            f"- {', '.join(escape(rows.name) for rows in members)}, predicted: the MMAs alone bound full, at "
            f"{percent} of the chip's peak, and no strip raises that{_simulated(members, story)}."
        )
    if stuck:
        lines += simulations([rows for members in stuck.values() for rows in members], story)
    return lines or ["Nothing of the thread's own loop was measured or predicted yet."]


def _measured_in_short(rows: Rows, story: Story, answers: Sequence[Answer]) -> list[str]:
    found = full_rows(rows, story)
    shares = [f"{value:.0f}" for row in found if (value := share(row, "own")) is not None]
    said = [(a.study, a.full, a.word) for a in answers if a.gpu == rows.gpu]
    words = [word for study, full, word in said for r in found if (study, full) == (r["study"], r["case"])]
    of = f": {', '.join(dict.fromkeys(words))}" if words else ""
    name, judged = escape(rows.name), judge_all(rows, story)
    lines = (
        [f"- {name}, measured: full reaches {' / '.join(shares)} % of its path's peak{of}."] if shares else []
    )
    return lines + ([f"- What was expected of {name}: {tally(judged)}."] if judged else [])


def _simulated(members: Sequence[Rows], story: Story) -> str:
    found = [row for rows in members for row in full_rows(rows, story) if row["estimate"] and row["bound"]]
    shares = [100 * row["estimate"] / row["bound"] for row in found]
    if not shares:
        return ""
    return f"; a simulated SM reaches {min(shares):.0f} to {max(shares):.0f} % of that bound"


def studies_of(story: Story) -> tuple[str, ...]:
    """Every study that the story has a row of."""
    steps = [spot.study for step in story.steps for spot in (*step.spots, *step.against)]
    others = [spot.study for spot in story.ceilings.values()] + [spot.study for _, spot in story.proposal[2]]
    return tuple(dict.fromkeys([*steps, *others, *story.claims]))


def _where(measured: Sequence[Rows], predicted: Sequence[Rows]) -> str:
    parts = []
    if measured:
        parts.append(f"Measured on {', '.join(escape(rows.name) for rows in measured)}")
    if predicted:
        parts.append(f"*predicted*, not measured, for {', '.join(escape(rows.name) for rows in predicted)}")
    return "; ".join(parts) + ". Every percentage names its peak."


def _proposal(rows: Rows, story: Story) -> list[str]:
    """What each arrangement gives against the first, and which of them, if any, is clearly faster."""
    title, text, arrangements = story.proposal
    found = [(name, row) for name, spot in arrangements if (row := rows.row(spot))]
    if len(found) < 2:
        return []
    effects = rows.effects([(spot, None) for _, spot in arrangements])
    of = {name: effect for (name, _), effect in zip(arrangements, effects, strict=True)}
    cells = [
        [
            escape(name),
            *(_cell(row[column], digits) for column, digits in (("tflop_s", 0), ("flop_clk_sm", 0))),
            _cell(row["own_percent"], 1),
            escape(effect_words(of[name]) or str(row["status"] if row["status"] != "ok" else "")),
        ]
        for name, row in found
    ]
    header = ["arrangement", "TFLOP/s", "FLOP/clk/SM", "% of path peak", "against the first (95 % interval)"]
    stripped = arrangements[-1][0]
    tried = [name for name, _ in found[1:] if name != stripped]
    words = {n: str(effect["effect"]) for n in tried if (effect := of[n]) and effect["effect"]}
    return [
        "",
        f"## {title}: {escape(rows.name)}",
        "",
        text,
        "",
        *markdown_table(header, cells).splitlines(),
        "",
    ] + [f"- {line}" for line in _who_gains(words)]


def _who_gains(words: Mapping[str, str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for name, word in words.items():
        groups.setdefault(word, []).append(f"*{escape(name)}*")
    if not groups:
        return []
    faster = groups.pop("faster", [])
    first = (
        f"Faster than the first: {', '.join(faster)}" if faster else "No arrangement is faster than the first"
    )
    rest = "; ".join(f"{word}: {', '.join(names)}" for word, names in groups.items())
    return [first + (f"; {rest}." if rest else ".")]


def _cell(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _sources(every: Sequence[Rows]) -> list[str]:
    """Which run every number is of: a line per study, measured and predicted apart."""
    found: dict[tuple[bool, str], list[str]] = {}
    for rows in every:
        for study, section in rows.sections.items():
            runs = ", ".join(
                f"run {str(header['run'])[:12]} of {str(header['started'])[:10]}"
                for header in section.headers
            )
            link = f"[{escape(rows.name)}](tables/{section.stem}.md): {runs}"
            link += " (**partial**)" if section.partial else ""
            link += " (*stale* rows)" if any(row["stale"] for row in section.rows) else ""
            found.setdefault((section.predicted, study), []).append(link)
    lines = ["", "## Where the numbers are from", ""]
    for (predicted, study), links in sorted(found.items()):
        kind = "predicted" if predicted else "measured"
        lines.append(f"- {escape(study)}, {kind}: " + "; ".join(links))
    return lines
