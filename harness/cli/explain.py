"""`ablate explain`: what binds, in words, from records; for a chip one does not own, from machine code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.cases import default_cases, nearest
from harness.chips import Chip, chip, parse_target
from harness.chips.data import all_chips
from harness.cli.choose import check_folder, check_study, load_studies
from harness.cli.say import complain, say, say_json, say_text
from harness.errors import RecordError, UsageError
from harness.model import Study
from harness.store import RecordFile, read_valid


def explain(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Print verdicts, or predictions where the named GPU was not measured; 0."""
    from harness.answer.verdict import verdicts

    studies = load_studies()
    wanted = {arguments.study: check_study(arguments.study, studies)} if arguments.study else studies
    product = chip(arguments.gpu) if arguments.gpu else None
    files = _read(arguments.records)
    found = [
        v
        for v in verdicts(files, studies)
        if v.group.study in wanted and (not arguments.gpu or _is(v.group.gpu, arguments.gpu, product))
    ]
    if not found and not arguments.gpu:
        what = f" of study {arguments.study}" if arguments.study else ""
        raise UsageError(
            f"no measured records{what} under {arguments.records}; run `ablate run` on a GPU first, "
            "or name a chip with --gpu for a prediction"
        )
    if found:
        _say_verdicts(found, as_json=arguments.json)
    else:
        _say_predictions(wanted, compilable(arguments.gpu), arguments)
    return 0


def compilable(name: str) -> Chip:
    """The product a user named; UsageError when it is unknown, or too old for these kernels."""
    product = chip(name)
    if product is None:
        choices = nearest(name, [one.name for one in all_chips()])
        raise UsageError(f"nothing is known of a GPU {name!r}, and no record is of it; {choices}")
    parse_target(product.arch)
    return product


def _is(gpu: str, wanted: str, product: Chip | None) -> bool:
    known = chip(gpu)
    return gpu == wanted if product is None or known is None else known.name == product.name


def _read(folder: Path) -> list[RecordFile]:
    """Every record file under a folder; one that is not valid is named and left out."""
    if folder.is_file():
        return [read_valid(folder)]
    files = []
    for path in sorted(folder.rglob("*.jsonl")):
        try:
            files.append(read_valid(path))
        except RecordError as error:
            complain(error.message)
    return files


def _say_verdicts(found: Sequence[Any], *, as_json: bool) -> None:
    from harness.answer import verdict
    from harness.answer.explain import verdict_lines

    if as_json:
        say_json({"verdicts": [verdict.as_json(one) for one in found], "predictions": []})
        return
    for i, one in enumerate(found):
        if i:
            say("")
        say(*verdict_lines(one))


def _say_predictions(studies: Mapping[str, Study], product: Chip, arguments: argparse.Namespace) -> None:
    from harness.answer.explain import prediction_lines
    from harness.build.cache import Cache
    from harness.pipeline.predicted import predicted_records
    from harness.progress import choose

    cache, ui = Cache(check_folder(arguments.cache, "--cache")), choose(sys.stderr)
    rows: list[Mapping[str, Any]] = []
    texts = []
    for study in studies.values():
        cases = [c for c in default_cases(study) if c.set_name == "full"]
        made = predicted_records(study, cases, product, cache, ui)
        rows += [record for record, _ in made]
        lines = prediction_lines(product.name, [p for _, p in made if p is not None])
        refused = [f"  {r['case']}: {r['status']}: {r['reason']}" for r, p in made if p is None]
        texts.append("\n".join([*lines, *refused]))
    if arguments.json:
        say_json({"verdicts": [], "predictions": rows})
    else:
        say_text("\n\n".join(text for text in texts if text))
        say(
            "",
            "No record of this GPU was found: these are bounds from machine code, which no",
            "run can beat. Far below a bound it is latency or overlap, not a pipe.",
        )
