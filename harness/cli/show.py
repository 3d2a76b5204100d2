"""`ablate show`: one case, its rendered kernel, its machine code, and how either differs from full's."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from harness.build.build import build
from harness.build.cache import Cache
from harness.build.contract import counted_prefix
from harness.build.sass import disassemble, loop_text
from harness.cases import full_case
from harness.cli.choose import check_folder, find_case, load_studies
from harness.cli.listing import case_as_json
from harness.cli.say import say, say_json, say_table, say_text
from harness.errors import UsageError
from harness.model import Case, Study
from harness.render import render

# One instruction more moves every address after it: no difference worth showing.
_ADDRESS = re.compile(r"^/\*[0-9a-f]+\*/ *", re.MULTILINE)


def show(arguments: argparse.Namespace, argv: Sequence[str]) -> int:
    """Show one case; 0."""
    study, case = find_case(arguments.case, load_studies())
    full, (arch, why) = full_case(study, case), _arch(arguments)
    if arguments.diff:
        text = _diff(_text(study, full, arch, arguments), _text(study, case, arch, arguments), full, case)
    elif arguments.source or arguments.sass:
        text = _text(study, case, arch, arguments)
    else:
        text = None
    if arguments.json:
        extra = {} if text is None else {"arch": arch, "text": text}
        say_json({"study": study.name, **case_as_json(study, case), **extra})
    elif text is None:
        _describe(study, case)
    elif arguments.diff and full.name == case.name:
        say(f"{case} is full, what others are compared with: name one of them")
    else:
        said = text.rstrip("\n") or f"{case}: no difference from {full.name}"
        say_text(f"// {arch}: {why}\n{said}" if arch else said)
    return 0


def _arch(arguments: argparse.Namespace) -> tuple[str | None, str]:
    """The architecture of the machine code to show, None for source; and whose choice it is.

    That of --target, else of the GPU here, else the newest that a run builds for.
    """
    from harness.build.toolkit import supported_archs
    from harness.chips import arch_of, parse_target, usual_archs
    from harness.gpu.facts import find_gpu

    if not arguments.sass:
        if arguments.target:
            raise UsageError("--target chooses the machine code: give --sass with it")
        return None, ""
    if arguments.target:
        return parse_target(arguments.target).arch, "asked for"
    gpu = find_gpu()
    if not isinstance(gpu, str):
        return arch_of(gpu.cc), f"of {gpu.name}, the GPU here; --target names another"
    return usual_archs(supported_archs())[-1], "no GPU here, the newest usual target; --target names another"


def _text(study: Study, case: Case, arch: str | None, arguments: argparse.Namespace) -> str:
    if case.skip:
        raise UsageError(f"{case} cannot exist: {case.skip}")
    if arch is None:
        return render(study, case).text
    return machine_code(study, case, arch, Cache(check_folder(arguments.cache, "--cache")))


def machine_code(study: Study, case: Case, arch: str, cache: Cache) -> str:
    """The instructions of a case's main loop, one a line, compiled for `arch`."""
    listing = disassemble(Path(build(study, case, arch, cache).cubin_path))
    return loop_text(listing, counted_prefix(study.contract(case)))


def _diff(before: str, after: str, full: Case, case: Case) -> str:
    old, new = (_ADDRESS.sub("", text).splitlines() for text in (before, after))
    return "\n".join(difflib.unified_diff(old, new, full.name, case.name, lineterm="", n=3))


def _describe(study: Study, case: Case) -> None:
    say(str(case))
    say_table(
        (
            ("set", case.set_name),
            ("compared with", full_case(study, case).name),
            ("problem", case.problem),
            ("configuration", ", ".join(f"{k}={v}" for k, v in case.configuration.items()) or "none"),
            ("skipped", case.skip or "no"),
        ),
        indent="  ",
    )
    say("", "levels (* differs from full)")
    say_table(
        (
            (
                ("* " if case.levels[switch.name] != switch.baseline else "  ") + switch.name,
                str(case.levels[switch.name]),
                study.legend.get(f"{switch.name}={case.levels[switch.name]}", switch.meaning),
            )
            for switch in study.switches
        ),
        indent="  ",
    )
