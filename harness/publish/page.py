"""The page: one HTML file that needs nothing else, with verdicts, plots, tables and kernels of every GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources

from harness.publish.caption import caption
from harness.publish.charts import bound_chart, costs_chart, heat_chart, pipes_chart, waterfall_chart
from harness.publish.columns import MEASURED, filled
from harness.publish.known import Answer, Link
from harness.publish.markup import escape
from harness.publish.page_table import cases_table
from harness.publish.section import Section, blocks_of
from harness.publish.texts import Kept, Texts

# Nothing is fetched, whatever a record says.
PREDICTED = ", predicted, not measured"
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(made: Sequence[Section], answers: Sequence[Answer], kept: Kept, link: Link | None = None) -> str:
    """The whole file. `kept` gives the text of a digest, None where it was not kept; `link`: another page."""
    texts = Texts(kept)
    gpus = list(dict.fromkeys(section.gpu for section in made if section.gpu))
    parts = [_gpu(i, gpu, made, answers, texts) for i, gpu in enumerate(gpus)]
    built = [section for section in made if section.gpu is None]
    if built:
        parts.append(_built(built, texts))
    timed = {section.gpu for section in made if not section.predicted}
    links = [
        f'<li><a href="#gpu{i}">{escape(gpu + ("" if gpu in timed else PREDICTED))}</a>'
        for i, gpu in enumerate(gpus)
    ]
    links += [f'<li><a href="../{escape(link[0])}">{escape(link[1])}</a>'] if link else []
    links += ['<li><a href="#built">built, not timed</a>'] if built else []
    return "\n".join(
        [
            "<!doctype html>",
            "<!-- written by `ablate publish` from the records: do not edit -->",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<link rel="icon" href="data:,">',
            f"<title>What limits these kernels</title><style>{_asset('page.css')}</style></head><body>",
            "<header><h1>What limits these kernels</h1>",
            '<p class="soft">Measured ablations: every case verified before it was timed, every percentage '
            "of a named peak. Numbers are medians; an effect has its 95 % interval and one word.</p>",
            f"<nav aria-label='GPUs'><ul>{''.join(links)}</ul></nav></header><main>",
            *parts,
            "</main>",
            '<dialog id="kernel" aria-labelledby="kernel-title"><header><h2 id="kernel-title"></h2>'
            '<button type="button">close</button></header><p class="soft"></p>'
            '<pre tabindex="0"></pre></dialog>',
            f'<script type="application/json" id="texts">{_json(texts)}</script>',
            f"<script>{_asset('page.js')}</script></body></html>",
            "",
        ]
    )


def _asset(name: str) -> str:
    return resources.files("harness.publish").joinpath(name).read_text(encoding="utf-8")


def _json(texts: Texts) -> str:
    """JSON that cannot end the script element that holds it."""
    text = json.dumps(texts.as_json(), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _gpu(number: int, gpu: str, made: Sequence[Section], answers: Sequence[Answer], texts: Texts) -> str:
    """Verdicts of every study first, then each study's plots and table."""
    own = [section for section in made if section.gpu == gpu]
    said = [answer for answer in answers if answer.gpu == gpu]
    label = PREDICTED if all(section.predicted for section in own) else ""
    parts = [f'<section id="gpu{number}"><h2>{escape(gpu + label)}</h2>']
    parts += _verdicts(said) or [_summary(section) for section in own]
    for i, section in enumerate(own):
        mine = [answer for answer in said if answer.study == section.study]
        parts.append(_study(section, mine, texts, f"t{number}-{i}"))
    return "\n".join([*parts, "</section>"])


def _verdicts(said: Sequence[Answer]) -> list[str]:
    """What is clear, open; what is not, folded away, unless nothing is clear."""
    clear = [answer for answer in said if answer.word != "unclear"]
    vague = [answer for answer in said if answer.word == "unclear"]
    if not clear:
        return [_verdict(answer) for answer in said]
    parts = [_verdict(answer) for answer in clear]
    if vague:
        title = f"{len(vague)} more of which no part was measured, or none is clear"
        parts.append(f"<details><summary>{title}</summary>{''.join(map(_verdict, vague))}</details>")
    return parts


def _verdict(answer: Answer) -> str:
    table = "<pre>" + chr(10).join(map(escape, answer.table)) + "</pre>" if answer.table else ""
    more = f"<details><summary>costs of the parts</summary>{table}</details>" if table else ""
    return (
        f'<div class="verdict"><p class="about">{escape(answer.study)}, {escape(answer.full)}: '
        f'{escape(answer.word)}<p class="sentence">{escape(answer.sentence)}'
        f"<p>{escape(answer.evidence)}{more}</div>"
    )


def _summary(section: Section) -> str:
    """Where nobody judged: what full reaches, and the largest effects."""
    full = next((r for r in section.main if r["case"] == r["full"] and r["flop_clk_sm"]), None)
    if full is None:
        return ""
    share = f", {full['own_percent']:.1f} % of {full['own_peak_name']}" if full["own_percent"] else ""
    effects = [r for r in section.main if r["effect"] in ("faster", "slower")]
    largest = sorted(effects, key=lambda row: -abs(row["effect_percent"]))[:3]
    named = "; ".join(f"{r['label']} {r['effect_percent']:+.1f} %" for r in largest) or "none clear of noise"
    return (
        f'<div class="verdict"><p class="about">{escape(section.study)}, {escape(str(full["case"]))}'
        f'<p class="sentence">{full["flop_clk_sm"]:.0f} FLOP/clk/SM{escape(share)}'
        f"<p>Largest effects: {escape(named)}.</div>"
    )


def _study(section: Section, answers: Sequence[Answer], texts: Texts, name: str) -> str:
    label = PREDICTED if section.predicted else ""
    parts = [f"<h3>{escape(section.study)}, problem {escape(section.problem + label)}</h3>"]
    parts += [
        f'<p class="warn">{escape(line)}'
        for line in caption(section)
        if line.startswith(("PARTIAL", "STALE"))
    ]
    drawn = "".join(_figure(*made) for made in _charts(section, answers))
    parts += [f'<div class="plots">{drawn}</div>'] if drawn else []
    parts.append(cases_table(section, section.main, texts, name))
    if section.alternatives:
        table = cases_table(section, section.alternatives, texts, f"{name}-more")
        count = len(section.alternatives)
        parts.append(f"<details><summary>{count} rows at other configurations</summary>{table}</details>")
    about = caption(section, filled(MEASURED, section.rows))
    facts = "".join(f"<li>{escape(line)}" for line in about)
    parts.append(f'<details><summary>how this was measured</summary><ul class="facts">{facts}</ul></details>')
    return "\n".join(parts)


def _charts(section: Section, answers: Sequence[Answer]) -> list[tuple[str, str]]:
    """(title, drawing) of every plot that the rows allow."""
    made = []
    split = [answer for answer in answers if answer.parts and answer.floor_percent is not None]
    for answer in split or answers[:1]:
        title = f"From full to floor: {answer.full}"
        made.append((title, waterfall_chart(answer, title)))
        title = f"How busy each pipe is: {answer.full}"
        made.append((title, pipes_chart(answer, title)))
    heat = heat_chart(section.rows, f"{section.study}: rate over the sweep")
    made.append((f"{section.study}: rate over the sweep", heat))
    for subtitle, rows in blocks_of(section.main):
        if not heat:
            title = f"Cost of each case{': ' + subtitle if subtitle else ''}"
            made.append((title, costs_chart(rows, title)))
    title = f"{section.study}: measured against predicted"
    made.append((title, bound_chart(section.main, title)))
    return [(title, drawing) for title, drawing in made if drawing]


def _figure(title: str, drawing: str) -> str:
    return f"<figure><figcaption>{escape(title)}</figcaption>{drawing}</figure>"


def _built(sections: Sequence[Section], texts: Texts) -> str:
    """What was compiled and inspected only."""
    parts = ['<section id="built"><h2>Built, not timed</h2>']
    for i, section in enumerate(sections):
        table = cases_table(section, section.rows, texts, f"b{i}")
        title = f"{section.study}, {len(section.rows)} rows"
        parts.append(f"<details><summary>{escape(title)}</summary>{table}</details>")
    return "\n".join([*parts, "</section>"])
