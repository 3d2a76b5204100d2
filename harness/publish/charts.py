"""Plots as SVG: text stays text and takes the page's colour, so that they read in the dark and in print.

Colours are those of Okabe and Ito, told apart by colour-blind readers; no meaning rests on colour alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from typing import Any

from harness.publish.columns import Row, name_of
from harness.publish.known import Answer

BLUE, ORANGE, GREEN, GREY, SKY = "#0072b2", "#e69f00", "#009e73", "#8c8c8c", "#56b4e9"
INK = "#010203"  # stands for the page's own text colour
_WIDTH_INCHES = 7.2
_MOST_BARS = 60  # more are read in the table
_INKED = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")


def costs_chart(rows: Sequence[Row], title: str) -> str:
    """Cycles per unit of work of each row, full = 100 %, with the 95 % interval of its effect; as SVG."""
    shown = [row for row in rows if row["effect_percent"] is not None or row["case"] == row["full"]]
    if not 3 <= len(shown) <= _MOST_BARS:
        return ""

    def draw(axes: Any) -> None:
        costs = [100 / (1 + (row["effect_percent"] or 0) / 100) for row in shown]
        places = range(len(shown))
        colours = [GREY if row["case"] == row["full"] else _kind(row) for row in shown]
        axes.barh(places, costs, color=colours, height=0.72)
        for place, row, cost in zip(places, shown, costs, strict=True):
            if row["effect_low"] is not None and row["effect_low"] > -100:
                ends = [100 / (1 + row[name] / 100) for name in ("effect_high", "effect_low")]
                axes.plot(ends, [place, place], color=INK, linewidth=1.6)
            word = row["effect"] or "full"
            axes.text(
                max(cost, 100 / (1 + (row["effect_low"] or 0) / 100)) + 1,
                place,
                f"{cost:.0f}, {word}",
                va="center",
            )
        axes.axvline(100, color=INK, linewidth=0.8, linestyle=":")
        axes.set_yticks(places, [name_of(row) for row in shown])
        axes.invert_yaxis()
        axes.set_xlim(0, max(*costs, 100) * 1.22)
        axes.set_xlabel("SM cycles per unit of work, % of full (line: 95 % interval)")

    return _svg(draw, 0.27 * len(shown) + 0.7, title)


def _kind(row: Row) -> str:
    name = name_of(row)
    return GREEN if name.startswith("floor") else BLUE if name.startswith("-") else SKY


def waterfall_chart(answer: Answer, title: str) -> str:
    """From full to floor: what the absence of each part saves alone, and what only all together saves."""
    parts = [part for part in answer.parts if part.exposed is not None]
    if not parts or answer.floor_percent is None:
        return ""

    def draw(axes: Any) -> None:
        names = ["full", *(part.name for part in parts), "hidden together", "floor"]
        axes.barh(0, 100, color=GREY, height=0.7)
        level = 100.0
        for place, part in enumerate(parts, 1):
            _step(axes, place, level, part.exposed or 0.0, BLUE, "")
            hidden = None if part.intrinsic is None else part.intrinsic - (part.exposed or 0.0)
            note = f"{part.exposed:+.1f} exposed" + ("" if hidden is None else f", {hidden:+.1f} hidden")
            axes.text(102, place, note, va="center")
            level -= part.exposed or 0.0
        rest = level - (answer.floor_percent or 0.0)
        _step(axes, len(parts) + 1, level, rest, ORANGE, "//")
        axes.text(102, len(parts) + 1, f"{rest:+.1f}", va="center")
        axes.barh(len(parts) + 2, answer.floor_percent, color=GREEN, height=0.7)
        axes.text(102, len(parts) + 2, f"{answer.floor_percent:.1f}", va="center")
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlim(0, 150)
        axes.set_xticks(range(0, 101, 20))
        axes.set_xlabel("SM cycles, % of full")

    return _svg(draw, 0.3 * (len(parts) + 3) + 0.7, title)


def _step(axes: Any, place: int, level: float, saved: float, colour: str, hatch: str) -> None:
    axes.barh(
        place,
        abs(saved),
        left=min(level, level - saved),
        color=colour,
        height=0.7,
        hatch=hatch,
        edgecolor=INK,
    )


def pipes_chart(answer: Answer, title: str) -> str:
    """How busy each pipe is while full runs: at 100 % a pipe binds."""
    used = [(name, percent) for name, percent in answer.pipes if percent >= 0.5]
    if not used:
        return ""

    def draw(axes: Any) -> None:
        places = range(len(used))
        axes.barh(places, [percent for _, percent in used], color=BLUE, height=0.7)
        for place, (_, percent) in zip(places, used, strict=True):
            axes.text(percent + 1, place, f"{percent:.0f} %", va="center")
        axes.axvline(100, color=INK, linewidth=0.8, linestyle=":")
        axes.set_yticks(places, [name for name, _ in used])
        axes.invert_yaxis()
        axes.set_xlim(0, 115)
        axes.set_xlabel("busy, % of the cycles that full took (from its machine code and the chip's rates)")

    return _svg(draw, 0.27 * len(used) + 0.7, title)


def heat_chart(rows: Sequence[Row], title: str) -> str:
    """Rate over two numeric axes that a sweep varies, the others as in full; empty without a sweep."""
    found = _sweep(rows)
    if found is None:
        return ""
    first, second, values = found
    columns = sorted({pair[0] for pair in values})
    lines = sorted({pair[1] for pair in values})

    def draw(axes: Any) -> None:
        top = max(values.values())
        for (x, y), value in values.items():
            shade = value / top
            axes.add_patch(_cell(columns.index(x), lines.index(y), shade))
            ink = "#000000" if shade > 0.55 else "#ffffff"
            axes.text(columns.index(x), lines.index(y), f"{value:.0f}", ha="center", va="center", color=ink)
        axes.set_xlim(-0.5, len(columns) - 0.5)
        axes.set_ylim(-0.5, len(lines) - 0.5)
        axes.set_xticks(range(len(columns)), columns)
        axes.set_yticks(range(len(lines)), lines)
        axes.set_xlabel(f"{first} (cells: FLOP/clk/SM)")
        axes.set_ylabel(second)

    return _svg(draw, 0.45 * len(lines) + 1.0, title)


def _sweep(rows: Sequence[Row]) -> tuple[str, str, dict[tuple[int, int], float]] | None:
    """The two numeric axes with the most values, and the rate at each pair of them."""
    timed = [row for row in rows if row["flop_clk_sm"]]
    full = next((row for row in timed if row["case"] == row["full"]), None)
    if full is None:
        return None
    base = dict(full["levels"])
    numeric = {
        name: {dict(r["levels"]).get(name) for r in timed} for name, v in base.items() if isinstance(v, int)
    }
    axes = sorted((name for name in numeric if len(numeric[name]) > 2), key=lambda name: -len(numeric[name]))[
        :2
    ]
    if len(axes) < 2:
        return None
    values: dict[tuple[int, int], float] = {}
    for row in timed:
        levels = dict(row["levels"])
        if all(levels.get(name) == level for name, level in base.items() if name not in axes):
            values.setdefault((levels[axes[0]], levels[axes[1]]), row["flop_clk_sm"])
    return (axes[0], axes[1], values) if len(values) > 3 else None


def _cell(x: int, y: int, shade: float) -> Any:
    from matplotlib import colormaps
    from matplotlib.patches import Rectangle

    return Rectangle((x - 0.48, y - 0.48), 0.96, 0.96, facecolor=colormaps["cividis"](shade), edgecolor=INK)


def bound_chart(rows: Sequence[Row], title: str) -> str:
    """Measured rate against the bound from the machine code; a point on the line would be at its bound."""
    points = [row for row in rows if row["bound"] is not None and row["flop_clk_sm"] is not None]
    if len(points) < 3:
        return ""

    def draw(axes: Any) -> None:
        top = 1.08 * max(max(row["bound"], row["flop_clk_sm"]) for row in points)
        axes.plot([0, top], [0, top], color=INK, linewidth=0.8, linestyle=":")
        for colour, marker, kind in ((BLUE, "o", False), (GREEN, "s", True)):
            some = [row for row in points if name_of(row).endswith("floor") is kind]
            if not some:
                continue
            axes.plot(
                [row["bound"] for row in some],
                [row["flop_clk_sm"] for row in some],
                linestyle="none",
                marker=marker,
                color=colour,
                label="floor" if kind else "other cases",
            )
        axes.set_xlim(0, top)
        axes.set_ylim(0, top)
        axes.set_xlabel("bound, predicted from the machine code (FLOP/clk/SM)")
        axes.set_ylabel("measured (FLOP/clk/SM)")
        axes.legend(frameon=False, labelcolor=INK)

    return _svg(draw, 3.6, title)


def _svg(draw: Callable[[Any], None], inches: float, title: str) -> str:
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    settings: dict[Any, Any] = dict.fromkeys(_INKED, INK)
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "ablate", "font.size": 9}
    with rc_context({**settings, "font.family": "DejaVu Sans"}):
        figure = Figure(figsize=(_WIDTH_INCHES, inches))
        FigureCanvasSVG(figure)
        axes = figure.subplots()
        axes.spines[["top", "right"]].set_visible(False)
        draw(axes)
        out = io.StringIO()
        figure.savefig(
            out,
            format="svg",
            transparent=True,
            bbox_inches="tight",
            pad_inches=0.04,
            metadata={"Date": None, "Creator": None, "Format": None, "Type": None},
        )
    return _on_page(out.getvalue(), title)


def _on_page(text: str, title: str) -> str:
    """The drawing alone, named for readers that do not see it, in the page's colours, free to shrink."""
    from html import escape

    body = text[text.index("<svg") :]
    body = re.sub(r"\s*<metadata>.*?</metadata>", "", body, flags=re.DOTALL).replace(INK, "currentColor")
    body = re.sub(r'<g id="[^"]*"', "<g", body)  # several drawings share one page
    size = re.search(r'width="([\d.]+)pt" height="([\d.]+)pt"', body)
    width = f' style="max-width:{float(size[1]):.0f}pt"' if size else ""
    body = re.sub(r'(<svg[^>]*?) width="[\d.]+pt" height="[\d.]+pt"', rf'\1{width} role="img"', body, count=1)
    body = re.sub(r"(<svg[^>]*>)", rf"\1<title>{_safe(escape(title))}</title>", body, count=1)
    return re.sub(r"\n\s*", "\n", body).strip()


def _safe(text: str) -> str:
    return text.replace("\\", r"\\")
