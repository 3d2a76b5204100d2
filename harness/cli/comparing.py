"""`ablate compare`: two record files, or two runs that pytest-benchmark saved."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from harness.cli.say import say, say_json, width
from harness.errors import UsageError


def compare(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Compare two runs; 1 when something got slower than the threshold allows, 3 when nothing matched."""
    pair = _files(arguments)
    if arguments.bench is not None or all(path.suffix == ".json" for path in pair):
        return _compare_saved(arguments, *pair)
    if arguments.case_threshold:
        raise UsageError(
            "--case-threshold is for saved benchmarks: give --bench, or two of their .json files"
        )
    from harness.compare import compare as compare_records
    from harness.store import read_valid

    found = compare_records(
        *map(read_valid, pair), threshold_percent=arguments.threshold, across_gpus=arguments.across_gpus
    )
    if arguments.json:
        say_json(found.as_json())
    else:
        say(*found.lines(width()))
    return found.exit_status


def _files(arguments: argparse.Namespace) -> tuple[Path, Path]:
    before, after = arguments.before, arguments.after
    if arguments.bench is not None:
        if before is not None:
            raise UsageError("--bench chooses the two runs itself: give it, or two files")
        from harness.bench import newest

        return newest(arguments.bench)
    if before is None or after is None:
        raise UsageError("name two record files, or give --bench for the last two saved benchmarks")
    return before, after


def _compare_saved(arguments: argparse.Namespace, before: Path, after: Path) -> int:
    from harness.bench import gate

    if arguments.across_gpus:
        raise UsageError("--across-gpus is for record files: benchmarks of different GPUs are not compared")
    found = gate(before, after, threshold_percent=arguments.threshold, by_case=dict(arguments.case_threshold))
    if arguments.json:
        say_json(found.as_json())
    else:
        say(*found.lines(width()))
    return found.exit_status
