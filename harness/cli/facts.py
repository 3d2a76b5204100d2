"""What tables need to know of the studies: order, parts, and the texts that their templates render today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.answer.verdict import Verdict
from harness.cases import default_cases, make_case
from harness.chips import identify
from harness.cli.choose import load_story, load_studies
from harness.errors import AblationError
from harness.key import digest_mapping
from harness.model import Source, Study, Values
from harness.publish import Answer, Bound, Context, Current, PartCost, StudyFacts
from harness.publish.collect import find, read_all
from harness.publish.site import SOURCES
from harness.render import DEVICE_HEADERS, included_headers, render
from harness.sources import is_kept, keep
from harness.store import RecordFile


def study_facts(names: Sequence[str] = ()) -> dict[str, StudyFacts]:
    """Study name -> its cases in the order of a table's rows, over all its problems, and its parts."""
    studies = load_studies()
    return {
        name: StudyFacts(
            cases=tuple(
                dict.fromkeys(c.name for problem in study.problems for c in default_cases(study, problem))
            ),
            parts={switch.name: switch.strips for switch in study.switches if switch.is_part},
            expectation=expectation(study.question),
        )
        for name, study in studies.items()
        if not names or name in names
    }


def expectation(question: str) -> str:
    """The paragraph of a study's docstring that says what is expected, on one line; "" without one."""
    paragraphs = (" ".join(text.split()) for text in question.split("\n\n"))
    return next((text for text in paragraphs if text.startswith("Expectation: ")), "")


def context(names: Sequence[str] = ()) -> Context:
    """All that publishing is told: the studies, what their templates render today, answers, bounds."""
    return Context(
        known=study_facts(names), current=digest_today(), answers=answers, bounds=bound, story=load_story()
    )


def digest_today() -> Current:
    """Record -> digest of what its template renders today; "" when it cannot, None for an unknown study."""
    studies = load_studies()
    known: dict[str, str] = {}

    def current(record: Mapping[str, Any]) -> str | None:
        study = studies.get(str(record.get("study")))
        if study is None:
            return None
        asked = {name: record.get(name) for name in ("levels", "configuration", "problem", "perturbation")}
        key = digest_mapping({"study": study.name, **asked})
        if key not in known:
            source = _render(study, record)
            known[key] = source.digest if source else ""
        return known[key]

    return current


def _render(study: Study, record: Mapping[str, Any]) -> Source | None:
    """What the template makes of a record's case today; None when the study has no such case any more."""
    levels, configuration = Values(record.get("levels") or {}), Values(record.get("configuration") or {})
    try:
        case = make_case(study, levels, configuration, set_name="", problem=str(record.get("problem") or ""))
        return render(study, case, int(record.get("perturbation") or 0))
    except (AblationError, KeyError, TypeError, ValueError):
        return None


def keep_sources(results: Path) -> None:
    """Keep the text of every timed record whose template still renders it, where nobody has kept it yet."""
    studies = load_studies()
    files, _ = read_all(find(results))
    for record in (record for file in files for record in file.records):
        study, digest = studies.get(str(record.get("study"))), (record.get("source") or {}).get("digest")
        if study is None or not digest or record.get("type") != "measured":
            continue
        if is_kept(results / SOURCES, digest):
            continue
        source = _render(study, record)
        if source is not None and source.digest == digest:
            keep(results / SOURCES, source.text, included_headers(source.text, DEVICE_HEADERS))


def bound(header: Mapping[str, Any], record: Mapping[str, Any]) -> Bound | None:
    """What a measured record cannot beat on its GPU."""
    from harness.answer.counts import counts_of_record
    from harness.answer.predict import predict

    gpu = (header.get("environment") or {}).get("gpu")
    chip = identify(str(gpu["name"]), int(gpu["sms"])) if gpu else None
    counts = counts_of_record(record) if chip else None
    found = predict(counts, chip) if counts and chip else None
    if found is None:
        return None
    most = found.pipes[0]
    hard = next(use for use in found.pipes if not use.soft)
    return Bound(
        flop_clk_sm=found.flop_clk_sm,
        binding=found.binding,
        memory=most.pipe if most.soft else None,
        memory_flop_clk_sm=found.flop_clk_sm * hard.clk / most.clk if most.soft else None,
    )


def answers(files: Sequence[RecordFile]) -> list[Answer]:
    """The newest verdict of each GPU, study and axes."""
    from harness.answer import verdicts
    from harness.answer.explain import attribution_lines

    return [
        Answer(
            study=found.group.study,
            gpu=found.group.gpu,
            full=found.group.full,
            word=found.word,
            sentence=found.sentence,
            evidence=found.evidence_text,
            table=attribution_lines(found.attribution) if found.attribution else (),
            parts=_parts(found),
            floor_percent=_floor_percent(found),
            pipes=_pipes(found),
        )
        for found in verdicts(files, load_studies())
    ]


def _parts(found: Verdict) -> list[PartCost]:
    """The parts, none twice: single ones first, then groups of which no member stands by itself."""
    attribution = found.attribution
    if attribution is None or not attribution.full:
        return []
    chosen: list[PartCost] = []
    used: set[str] = set()
    for row in sorted(attribution.rows, key=lambda row: len(row.parts)):
        if (row.exposed is None and row.intrinsic is None) or used & set(row.parts):
            continue
        used |= set(row.parts)
        costs = (row.exposed, row.intrinsic)
        exposed, intrinsic = (100 * c.value / attribution.full if c else None for c in costs)
        chosen.append(PartCost(name=row.name, exposed=exposed, intrinsic=intrinsic))
    return chosen


def _floor_percent(found: Verdict) -> float | None:
    attribution = found.attribution
    if attribution is None or attribution.floor is None or not attribution.full:
        return None
    return 100 * attribution.floor / attribution.full


def _pipes(found: Verdict) -> list[tuple[str, float]]:
    """How long each pipe is busy, in percent of the time that full took."""
    prediction, measured = found.prediction, found.shares.flop_clk_sm
    if prediction is None or not measured:
        return []
    clocks = {use.pipe: use.clk for use in prediction.pipes}
    if not clocks.get(prediction.binding):
        return []
    whole = clocks[prediction.binding] * prediction.flop_clk_sm / measured
    return [(pipe, 100 * clk / whole) for pipe, clk in clocks.items()]
