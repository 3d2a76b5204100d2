"""The command line's grammar: every command, its options, its examples. Decides nothing else."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

import harness
from harness.errors import UsageError

SHELLS = ("bash", "zsh", "tcsh")

# Of the lines of --help that argparse leaves as they are.
_COLUMNS = 80

_EXAMPLES = {
    "": (
        "ablate list",
        "ablate run",
        "ablate show STUDY/CASE --diff",
        "ablate publish",
    ),
    "run": (
        "ablate run                                    every study, on the GPU here",
        "ablate run STUDY --target sm_89 --target 9.0  build for two architectures",
        "ablate run STUDY --case 'full*' --rounds 20   one case, twenty rounds",
        "ablate run --dry-run                          what it would do, how long",
        "ablate run --resume results/records/.../x.jsonl",
    ),
    "list": ("ablate list", "ablate list STUDY", "ablate list --case '*head_dim=128*' --json"),
    "show": (
        "ablate show STUDY/CASE",
        "ablate show 'full@m128n64*' --source",
        "ablate show CASE --diff",
        "ablate show CASE --sass                    for the GPU here, or the newest",
        "ablate show CASE --sass --diff --target sm_90a",
    ),
    "publish": ("ablate publish", "ablate publish --results elsewhere --built"),
    "check": ("ablate check", "ablate check --release"),
    "cache": ("ablate cache", "ablate cache --clear"),
    "doctor": ("ablate doctor", "ablate doctor --json"),
    "explain": (
        "ablate explain",
        "ablate explain STUDY --records results/records",
        "ablate explain --gpu 'NVIDIA GeForce RTX 4090'  a chip not here: predicted",
    ),
    "predict": (
        "ablate predict                the studies and chips of results/thread.md",
        "ablate predict STUDY --gpu 'RTX 4090' --gpu 'A100 SXM 40GB'",
    ),
    "completion": (
        "ablate completion zsh > ~/.zfunc/_ablate",
        'eval "$(ablate completion bash)"  for this shell; in ~/.bashrc for every one',
    ),
    "compare": (
        "ablate compare before.jsonl after.jsonl",
        "ablate compare before.jsonl after.jsonl --threshold 0.5",
        "ablate compare h200.jsonl a100.jsonl --across-gpus",
        "ablate compare --bench        the last two runs of `make bench`",
        "ablate compare --bench --case-threshold '*@m64*:2.5'",
    ),
}


class _Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.replace(chr(10), ' ')} (see {self.prog} --help)")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The arguments of one command; `command` names it. Raises UsageError, and SystemExit(0) for --help."""
    if any(not word or (word.startswith("--") and word.endswith("=")) for word in argv):
        raise UsageError("an argument is empty (a shell variable that is not set?): leave it out, or fill it")
    return build_parser().parse_args(argv)


def build_parser() -> argparse.ArgumentParser:
    """The whole grammar."""
    parser = _Parser(
        prog="ablate",
        description="Ablations of GPU kernels: strip one part, prove the rest right, time it.",
        epilog=_examples(""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"ablate {harness.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=text,
            description=textwrap.fill(text[0].upper() + text[1:] + ".", _COLUMNS),
            epilog=_examples(name),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    _add_run(add("run", "build, check and, where there is a GPU, time the cases of studies"))
    _add_list(add("list", "list the studies, or the cases of one"))
    _add_show(
        add("show", "show one case: what it is, its source, its machine code, its difference from full")
    )
    _add_tables(add("publish", "write the tables of all records, and those between markers in README files"))
    check = add("check", "validate the records and compare the written tables with fresh ones")
    check.add_argument(
        "--release", action="store_true", help="fail on records of another text than templates render today"
    )
    _add_tables(check)
    _add_cache(add("cache", "say where the build cache is and how large, or clear it"))
    _json(add("doctor", "say which tools are here, in which version, and what to do about the others"))
    _add_explain(add("explain", "say in words what binds: from records, or predicted for a chip one has not"))
    _add_predict(add("predict", "store what studies could reach at most on chips that are not here"))
    _add_compare(add("compare", "compare two record files, case by case"))
    completion = add("completion", "print what makes a shell complete commands, options and studies")
    completion.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    return parser


def _examples(command: str) -> str:
    return "examples:\n" + "\n".join(f"  {line}" for line in _EXAMPLES[command])


def _add_run(run: argparse.ArgumentParser) -> None:
    run.add_argument("studies", nargs="*", metavar="STUDY", help="which studies; all without one")
    run.add_argument(
        "--case", action="append", default=[], metavar="GLOB", help="only cases that match; repeatable"
    )
    run.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="ARCH",
        help="sm_90a, 9.0, ...: build for it; repeatable",
    )
    run.add_argument("--problem", default="", metavar="NAME", help="a named problem of the study")
    run.add_argument("--require-gpu", action="store_true", help="fail, status 3, when nothing can be timed")
    run.add_argument("--rounds", type=_whole(1), metavar="N", help="a fixed number of rounds")
    run.add_argument(
        "--perturbations",
        type=_whole(1),
        default=3,
        metavar="N",
        help="texts of each case that differ in nothing that matters: what code generation alone does (3)",
    )
    run.add_argument(
        "--width", type=_positive, metavar="PCT", help="stop at this interval width of the effects"
    )
    run.add_argument("--seconds", type=_positive, metavar="S", help="longest time to spend on timing a study")
    run.add_argument(
        "--fill", choices=("normal", "zeros", "uniform", "integers"), default="normal", help="of inputs"
    )
    run.add_argument(
        "--l2", choices=("warm", "cold"), default="warm", help="state of the L2 cache at each launch"
    )
    run.add_argument(
        "--counters", action="store_true", help="read hardware counters, too, each case once under ncu"
    )
    run.add_argument("--seed", type=_whole(0), default=0, metavar="N", help="of inputs, order and slices")
    run.add_argument("--cache", type=Path, metavar="DIR", help="folder of the build cache")
    run.add_argument("--resume", type=Path, metavar="FILE", help="go on with a run that was cut")
    run.add_argument("--dry-run", action="store_true", help="say what would be done, do nothing")
    run.add_argument("--force-busy", action="store_true", help="time even on a GPU that others are using")
    _results(run)
    _json(run)


def _add_list(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", nargs="?", metavar="STUDY", help="list its switches and cases")
    command.add_argument("--problem", default="", metavar="NAME", help="cases of that problem, not the first")
    command.add_argument("--case", action="append", default=[], metavar="GLOB", help="only cases that match")
    _json(command)


def _add_show(command: argparse.ArgumentParser) -> None:
    command.add_argument("case", metavar="CASE", help="STUDY/CASE, CASE, or a glob that matches one case")
    text = command.add_mutually_exclusive_group()
    text.add_argument("--source", action="store_true", help="the rendered kernel")
    text.add_argument("--sass", action="store_true", help="the machine code of its main loop")
    command.add_argument(
        "--diff", action="store_true", help="only what differs from full (of source, or --sass)"
    )
    command.add_argument(
        "--target", default="", metavar="ARCH", help="of --sass; else the GPU's here, or the newest"
    )
    command.add_argument("--cache", type=Path, metavar="DIR", help="folder of the build cache")
    _json(command)


def _add_tables(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--built", action="store_true", help="also what was only built, on a machine without a GPU"
    )
    command.add_argument(
        "--readme", type=Path, action="append", metavar="FILE", help="file with table markers (README.md)"
    )
    _results(command)
    _json(command)


def _add_cache(command: argparse.ArgumentParser) -> None:
    command.add_argument("--clear", action="store_true", help="remove every entry")
    command.add_argument("--cache", type=Path, metavar="DIR", help="folder of the build cache")
    _json(command)


def _add_explain(command: argparse.ArgumentParser) -> None:
    command.add_argument("study", nargs="?", default="", metavar="STUDY", help="only this study")
    command.add_argument("--gpu", default="", metavar="NAME", help="only this GPU; predicted if not measured")
    command.add_argument(
        "--records",
        type=Path,
        default=Path("results/records"),
        metavar="DIR",
        help="record files, or one (default: results/records)",
    )
    command.add_argument("--cache", type=Path, metavar="DIR", help="folder of the build cache")
    _json(command)


def _add_predict(command: argparse.ArgumentParser) -> None:
    command.add_argument("studies", nargs="*", metavar="STUDY", help="which studies; the usual without one")
    command.add_argument(
        "--gpu",
        action="append",
        default=[],
        metavar="NAME",
        help="a product by name; repeatable; without one the usual, and those that were measured",
    )
    command.add_argument("--cache", type=Path, metavar="DIR", help="folder of the build cache")
    _results(command)
    _json(command)


def _add_compare(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "before", type=Path, nargs="?", metavar="A", help="record file, or a saved benchmark"
    )
    command.add_argument("after", type=Path, nargs="?", metavar="B", help="the same of a later run")
    command.add_argument(
        "--bench",
        type=Path,
        nargs="?",
        const=Path(".benchmarks"),
        metavar="DIR",
        help="compare the last two runs that `make bench` saved of one GPU (in .benchmarks)",
    )
    command.add_argument("--threshold", type=_positive, metavar="PCT", help="smallest difference that fails")
    command.add_argument(
        "--case-threshold",
        type=_case_threshold,
        action="append",
        default=[],
        metavar="GLOB:PCT",
        help="the same for cases that match, of saved benchmarks; repeatable",
    )
    command.add_argument(
        "--across-gpus", action="store_true", help="allow different GPUs: shares of own peaks"
    )
    _json(command)


def _results(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--results", type=Path, default=Path("results"), metavar="DIR", help="default: results"
    )


def _json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="answer as one JSON document on standard output")


def _case_threshold(text: str) -> tuple[str, float]:
    pattern, _, percent = text.rpartition(":")
    if not pattern:
        raise argparse.ArgumentTypeError(f"{text!r} is not GLOB:PCT, like 'attention/floor*:0.5'")
    return pattern, _positive(percent)


def _whole(least: int) -> Callable[[str], int]:
    def convert(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} up")
        return int(text)

    return convert


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return number
