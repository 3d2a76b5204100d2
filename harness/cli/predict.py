"""`ablate predict`: what studies could reach at most on chips that are not here, as record files."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.chips import Chip, identify
from harness.chips.data import all_chips
from harness.cli.choose import check_folder, check_output, check_study, load_story, load_studies
from harness.cli.explain import compilable
from harness.cli.say import say, say_json, say_table
from harness.plan import FAILED

if TYPE_CHECKING:
    from harness.pipeline.predicting import Outcome


def predict(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Write a file for each study and chip whose prediction is new; 1 when a row could not be built."""
    studies, story = load_studies(), load_story()
    names = tuple(dict.fromkeys(arguments.studies)) or story.predicted
    wanted = [check_study(name, studies) for name in names]
    results = check_output(arguments.results, "records")
    products = _products(arguments.gpu, story.chips, results)
    from harness.build.cache import Cache
    from harness.pipeline.predicting import predict_study
    from harness.progress import choose

    cache, ui = Cache(check_folder(arguments.cache, "--cache")), choose(sys.stderr)
    command = shlex.join(["ablate", *argv])
    found = [
        predict_study(study, product, results, cache, ui, command=command)
        for product in products
        for study in wanted
    ]
    if arguments.json:
        say_json({"files": [_as_json(one) for one in found]})
    else:
        _say(found)
    return 1 if any(status in one.counts for one in found for status in FAILED) else 0


def _products(named: Sequence[str], usual: Sequence[str], results: Path) -> list[Chip]:
    """The products named; without any those of the story, and those that the records measured."""
    if named:
        return list(dict.fromkeys(compilable(name) for name in named))
    known = {product.name: product for product in map(compilable, usual)}
    known |= {product.name: product for product in _measured(results)}
    order = [product.name for product in all_chips()]
    return sorted(known.values(), key=lambda product: order.index(product.name))


def _measured(results: Path) -> list[Chip]:
    """Whole chips that the record files name as theirs; a slice is another product."""
    from harness.publish.collect import find, read_all

    files, _ = read_all(find(results))
    gpus = [gpu for file in files if (gpu := (file.header.get("environment") or {}).get("gpu"))]
    found = [identify(str(gpu["name"]), int(gpu["sms"])) for gpu in gpus]
    return [product for product in dict.fromkeys(found) if product and product.whole_sms is None]


def _as_json(one: Outcome) -> dict[str, object]:
    return {
        "study": one.study,
        "gpu": one.gpu,
        "path": str(one.path),
        "written": one.written,
        "counts": dict(one.counts),
    }


def _say(found: Sequence[Outcome]) -> None:
    say_table(
        (
            one.gpu,
            one.study,
            ", ".join(f"{number} {status}" for status, number in one.counts.items()),
            "" if one.written else "unchanged",
        )
        for one in found
    )
    for one in found:
        if one.written:
            say(f"wrote {one.path}")
    say("predicted from machine code and published rates, not measured; `ablate publish` shows them so")
