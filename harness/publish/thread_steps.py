"""What each step of the thread gave where it was measured, and what it can give at most where it was not."""

from __future__ import annotations

from collections.abc import Sequence

from harness.publish.caption import told_of_estimates
from harness.publish.columns import Row
from harness.publish.known import Answer
from harness.publish.markdown import escape, markdown_table
from harness.publish.thread_peaks import tflop_s
from harness.publish.thread_rows import Effect, Rows, effect_words
from harness.story import Step, Story

# A bound that rises by less than this, in percent, does not rise.
_NOTHING = 0.5
# Where a simulated loop stays under this share of its bound, the bound explains little.
_NEAR = 0.85
_PIPES = {"shared_bytes": "shared memory", "l2_bytes": "L2", "dram_bytes": "DRAM"}


def measured_steps(rows: Rows, story: Story, answers: Sequence[Answer]) -> list[str]:
    """Lines: a row per step, for each column the share of both peaks and the effect; then what follows."""
    places = range(len(story.columns))
    pairs = [
        (step.spots[i], step.against[i] if step.against else None) for step in story.steps for i in places
    ]
    found = rows.effects(pairs)
    effects = [found[len(places) * n : len(places) * (n + 1)] for n in range(len(story.steps))]
    header = ["step"]
    for name in story.columns:
        header += [f"{escape(name)}: % of path / chip peak", "against its full (95 % interval)"]
    cells = []
    for step, of in zip(story.steps, effects, strict=True):
        row = [escape(step.title)]
        for i in places:
            row += [_shares(rows.row(step.spots[i])), escape(effect_words(of[i]))]
        cells.append(row)
    lines = [_of_which_peaks(rows, story), "", *markdown_table(header, cells).splitlines()]
    return [*lines, "", *_what_follows(rows, story, effects), *_verdicts(rows, story, answers)]


def _of_which_peaks(rows: Rows, story: Story) -> str:
    found = [row for step in story.steps for spot in step.spots if (row := rows.row(spot))]
    said = []
    for word, key in (("path", "own_peak"), ("chip", "chip_peak")):
        peaks = {f"{row[f'{key}_name']} {row[key]:.0f}": None for row in found if row[key] is not None}
        said.append(
            f"% of {word} peak is of {', '.join(map(escape, peaks)) or 'an unknown peak'} FLOP/clk/SM"
        )
    return "; ".join(said) + "."


def _shares(row: Row | None) -> str:
    if row is None:
        return "not run"
    if row["status"] != "ok" or row["flop_clk_sm"] is None:
        return escape(str(row["status"]))
    shares = (row["own_percent"], row["chip_percent"])
    return " / ".join("unknown" if s is None else f"{s:.1f}" for s in shares)


def _what_follows(rows: Rows, story: Story, effects: Sequence[Sequence[Effect | None]]) -> list[str]:
    """Which step gave most, and which gave nothing that is clear of noise, in each column."""
    lines = []
    for i, name in enumerate(story.columns):
        start = rows.row(story.steps[0].spots[i])
        known = [
            (step, effect)
            for step, of in zip(story.steps, effects, strict=True)
            if (effect := of[i]) and not step.against and start and _is_of(rows, step, i, start)
        ]
        gains = [(step, effect) for step, effect in known if effect["effect"] == "faster"]
        text = f"{escape(name)}: "
        if gains:
            step, effect = max(gains, key=lambda found: found[1]["effect_percent"])
            text += f"*{escape(step.title)}* gives most ({effect['effect_percent']:+.1f} %)"
        else:
            text += "no step that starts from full is faster, clear of noise"
        rest = [
            f"*{escape(step.title)}* ({escape(str(of[i]['effect']))})"  # type: ignore[index]
            for step, of in zip(story.steps, effects, strict=True)
            if of[i] and of[i]["effect"] != "faster"  # type: ignore[index]
        ]
        lines.append(f"- {text}; not faster: {', '.join(rest) or 'none'}.")
    return lines


def _is_of(rows: Rows, step: Step, i: int, start: Row) -> bool:
    """Whether the step is compared with the case that the story starts from."""
    row = rows.row(step.spots[i])
    return row is not None and row["full"] == start["case"]


def _verdicts(rows: Rows, story: Story, answers: Sequence[Answer]) -> list[str]:
    starts = {str(row["case"]): name for name, row in _starts(rows, story)}
    study = story.steps[0].spots[0].study
    return [
        f"- Verdict, {escape(starts[answer.full])}: {escape(answer.sentence)}"
        for answer in answers
        if answer.gpu == rows.gpu and answer.study == study and answer.full in starts
    ]


def _starts(rows: Rows, story: Story) -> list[tuple[str, Row]]:
    found = zip(story.columns, (rows.row(spot) for spot in story.steps[0].spots), strict=True)
    return [(name, row) for name, row in found if row is not None]


def full_rows(rows: Rows, story: Story) -> list[Row]:
    """Where the story starts, in each of its columns that has a row."""
    return [row for _, row in _starts(rows, story)]


def predicted_steps(gpus: Sequence[Rows], story: Story) -> list[str]:
    """Lines: a row per step, a column per chip: by how much the bound rises at most, and the pipe that sets
    it; where columns of the story differ, a number for each."""
    known = [rows for rows in gpus if _starts(rows, story)]
    if not known:
        return []
    header = ["step", *(escape(rows.name) for rows in known), ""]
    cells: list[list[str]] = []
    for n, step in enumerate(story.steps):
        bounds = [*(_bound_cell(rows, step, first=not n) for rows in known), ""]
        if cells and bounds == cells[-1][1:]:  # steps that change nothing alike share a row
            cells[-1][0] += f"; {escape(step.title)}"
        else:
            cells.append([escape(step.title), *bounds])
    simulated = [_merged([_estimate(row) for _, row in _starts(rows, story)]) for rows in known]
    cells.append(["full, simulated (TFLOP/s)", *simulated, ""])
    return [*markdown_table(header, cells).splitlines(), "", *_what_binds(known, story)]


def _bound_cell(rows: Rows, step: Step, *, first: bool) -> str:
    texts, pipes = [], []
    for i, spot in enumerate(step.spots):
        row = rows.row(spot)
        if row is None or row["bound"] is None:
            texts.append("not known" if row is None or row["status"] == "ok" else str(row["status"]))
            continue
        pipe = str(row["binding"])
        pipes.append(_PIPES.get(pipe, pipe))
        gain = _rise(rows, step, i)
        tera = tflop_s(row)
        texts.append((f"{tera:.0f} TFLOP/s" if tera else "") if first or gain is None else f"{gain:+.0f} %")
    return escape(_merged(texts) + (f", {_merged(pipes)}" if pipes else ""))


def _rise(rows: Rows, step: Step, i: int) -> float | None:
    """By how many percent the bound of a step stands above that of what it is compared with."""
    row = rows.row(step.spots[i])
    base = None if row is None else rows.row(step.against[i]) if step.against else rows.full_of(row)
    if row is None or base is None or not row["bound"] or not base["bound"]:
        return None
    return 100 * (float(row["bound"]) / float(base["bound"]) - 1)


def _merged(texts: Sequence[str]) -> str:
    return " / ".join(texts if len(set(texts)) > 1 else dict.fromkeys(texts))


def _estimate(row: Row) -> str:
    return "-" if row["estimate_tflop_s"] is None else f"{row['estimate_tflop_s']:.0f}"


def is_stuck(rows: Rows, story: Story) -> bool:
    """Whether the tensor pipe sets the bound of full, and no strip raises it."""
    starts = [row for _, row in _starts(rows, story)]
    rises = [_rise(rows, step, i) or 0 for step in _strips(story) for i in range(len(step.spots))]
    return (
        bool(starts) and all(r["binding"] == "tensor" for r in starts) and max(rises, default=0) <= _NOTHING
    )


def _strips(story: Story) -> list[Step]:
    return [step for step in story.steps[1:] if not step.against]


def _what_binds(gpus: Sequence[Rows], story: Story) -> list[str]:
    """Chips by what their bounds say: nothing can be won, or more; and whether full comes near its bound."""
    stuck: list[str] = []
    rises: list[str] = []
    near: list[str] = []
    far: list[str] = []
    for rows in gpus:
        gains = {s.title: max(_rise(rows, s, i) or 0 for i in range(len(s.spots))) for s in _strips(story)}
        best = max(gains, key=lambda title: gains[title], default="")
        if is_stuck(rows, story):
            stuck.append(escape(rows.name))
        elif best:
            rises.append(f"{escape(rows.name)} ({escape(best)}, {gains[best]:+.0f} %)")
        starts = [row for _, row in _starts(rows, story)]
        shares = [row["estimate"] / row["bound"] for row in starts if row["estimate"] and row["bound"]]
        if shares:
            of = _merged([f"{100 * share:.0f}" for share in shares])
            (near if min(shares) >= _NEAR else far).append(f"{escape(rows.name)} ({of} %)")
    lines = []
    if stuck:
        lines.append(
            f"- On {', '.join(stuck)} the tensor pipe sets the bound of full, and no part that is taken away "
            "raises it: a loop near its bound must read the same after every strip."
        )
    lines += [f"- The bound rises most with: {', '.join(rises)}."] if rises else []
    if near:
        lines.append(f"- A simulated SM brings full near its bound on {', '.join(near)}.")
    if far:
        lines.append(
            f"- It stays under {100 * _NEAR:.0f} % of it on {', '.join(far)}: latency and overlap matter "
            "there, and strips can gain what the bound does not show."
        )
    return lines + simulations(gpus, story)


def simulations(gpus: Sequence[Rows], story: Story) -> list[str]:
    """How far off estimates were, as the records say."""
    found = [row["record"].get("predicted") or {} for rows in gpus for row in full_rows(rows, story)]
    told = next((said for one in found if (said := told_of_estimates(one))), "")
    return [f"- How far off a simulation is: on an H200 {told}."] if told else []
