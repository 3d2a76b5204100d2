"""What each command does with its arguments; each returns an exit status."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness import progress
from harness.cli.choose import check_folder, check_output, check_results, load_studies, make_plan
from harness.cli.comparing import compare
from harness.cli.explain import explain
from harness.cli.listing import list_studies
from harness.cli.predict import predict
from harness.cli.say import complain, say, say_json, say_table, say_text, width
from harness.cli.show import show
from harness.errors import ToolError, UsageError
from harness.plan import FAILED, Plan, RunResult

_FAILURE, _USAGE, _NO_GPU = 1, 2, 3


def run(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run the pipeline and show what it recorded."""
    studies = load_studies()
    plan = make_plan(arguments, argv, studies)
    from harness import pipeline

    result = pipeline.run(plan, studies, progress.choose(sys.stderr))
    if arguments.json:
        say_json(_result_as_json(result))
    elif plan.dry_run:
        _say_steps(result)
    else:
        _say_tables(plan, result)
    return _run_status(plan, result)


def _run_status(plan: Plan, result: RunResult) -> int:
    if plan.require_gpu and result.reason_not_timed:
        complain(f"nothing was timed: {result.reason_not_timed}")
        return _NO_GPU
    if result.failed:
        parts = ", ".join(f"{result.counts[s]} {s}" for s in FAILED if result.counts.get(s))
        complain(f"{result.failed} of {result.planned} rows failed: {parts}")
        return _FAILURE
    return 0


def _result_as_json(result: RunResult) -> dict[str, Any]:
    from harness.store import read

    return {
        "files": [str(path) for path in result.files],
        "timed": result.reason_not_timed is None and not result.steps,
        "reason_not_timed": result.reason_not_timed,
        "planned": result.planned,
        "counts": dict(result.counts),
        "steps": [
            {"study": s.study, "case": s.case, "target": s.target, "action": s.action, "seconds": s.seconds}
            for s in result.steps
        ],
        "records": [dict(record) for path in result.files for record in read(path).records],
    }


def _say_steps(result: RunResult) -> None:
    say_table(
        (
            step.target,
            step.action,
            "" if step.seconds is None else f"{step.seconds:.1f} s",
            f"{step.study}/{step.case}",
        )
        for step in result.steps
    )
    known = [step.seconds for step in result.steps if step.seconds is not None]
    total = f", about {sum(known):.0f} s" if known else ""
    say(f"{len(result.steps)} steps{total}; nothing was done (dry run)")


def _say_tables(plan: Plan, result: RunResult) -> None:
    from harness import publish
    from harness.cli.facts import context

    say_text(publish.terminal(result.files, plan.results, columns=width(), context=context(plan.studies)))
    if result.reached:
        fates = ", ".join(f"{word} {number}" for word, number in result.reached.items())
        say(f"requested {result.planned}, {fates}")
    if result.reason_not_timed:
        say(f"Nothing was timed here: {result.reason_not_timed}")
        if plan.counters:
            say("Nothing was counted either: --counters reads the cases that are timed here.")
    for path in result.files:
        say(f"recorded in {path}")


def publish(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Write the tables; 2 when a record file cannot be read (the others are published)."""
    from harness import publish as tables
    from harness.cli.facts import context, keep_sources

    results, readmes = check_output(arguments.results), _readmes(arguments.readme, arguments.results)
    keep_sources(results)
    published = tables.publish(results, readmes=readmes, context=context(), built=arguments.built)
    if arguments.json:
        say_json(
            {
                "written": [str(path) for path in published.written],
                "problems": list(published.problems),
                "left_out": published.left_out,
            }
        )
    else:
        for path in published.written:
            say(f"wrote {path}")
        if not published.written:
            say("every table is up to date")
        if published.left_out:
            files = "file" if published.left_out == 1 else "files"
            say(f"left out: {published.left_out} {files} of records made without a GPU (--built: these, too)")
    for problem in published.problems:
        complain(problem)
    return _USAGE if published.problems else 0


def check(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Validate records and tables; 1 when something is wrong. Stale records fail a release only."""
    from harness import publish as tables
    from harness.cli.facts import context, digest_today

    results, readmes = check_results(arguments.results), _readmes(arguments.readme, arguments.results)
    if not results.is_dir():
        raise UsageError(f"--results {results}: there is no such folder, so nothing to check")
    problems = tables.check(results, readmes=readmes, context=context(), built=arguments.built)
    stale = tables.stale(results, digest_today(), built=arguments.built)
    if arguments.release:
        problems, stale = (*problems, *stale), ()
    if arguments.json:
        say_json({"problems": list(problems), "stale": list(stale)})
    for line in problems:
        complain(line)
    if stale:
        complain(f"warning: stale rows in {len(stale)} places; --release lists them")
    if not problems and not arguments.json:
        say("records are valid, tables are up to date")
    return _FAILURE if problems else 0


def _readmes(named: Sequence[Path] | None, results: Path) -> tuple[Path, ...]:
    """The files with table markers: those named, else README.md here for the results that are here."""
    if named is not None:
        return tuple(named)
    # realpath, unlike Path.resolve, ends for links that form a loop.
    if os.path.realpath(results) != os.path.realpath("results"):
        return ()
    here = Path("README.md")
    return (here,) if here.is_file() else ()


def cache(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Say where the build cache is and how large, or clear it; 0."""
    from harness.build.cache import Cache

    store = Cache(check_folder(arguments.cache, "--cache"))
    freed = store.clear() if arguments.clear else 0
    entries, size = store.size()
    if arguments.json:
        say_json({"folder": str(store.folder), "entries": entries, "bytes": size, "freed_bytes": freed})
    elif arguments.clear:
        say(f"{store.folder}: freed {freed / 1e6:.1f} MB")
    else:
        say(f"{store.folder}: {entries} entries, {size / 1e6:.1f} MB")
    return 0


def doctor(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Say what is installed; 1 when studies cannot even be built here."""
    from harness import doctor as tools

    findings = tools.diagnose()
    if arguments.json:
        say_json(tools.render_json(findings))
    else:
        say_text(tools.render_text(findings).rstrip("\n"))
    return 0 if tools.can_build(findings) else _FAILURE


def completion(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Print the shell's completion script, made from the grammar itself."""
    try:
        import shtab
    except ImportError as error:
        raise ToolError("shell completion needs shtab, which is not installed: pip install shtab") from error
    from harness.cli.arguments import build_parser

    say_text(shtab.complete(build_parser(), arguments.shell))
    return 0


Command = Callable[[argparse.Namespace, Sequence[str]], int]

COMMANDS: Mapping[str, Command] = {
    "run": run,
    "list": list_studies,
    "show": show,
    "publish": publish,
    "check": check,
    "cache": cache,
    "doctor": doctor,
    "explain": explain,
    "predict": predict,
    "compare": compare,
    "completion": completion,
}
