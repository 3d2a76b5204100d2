"""The real studies, their default cases, and what compiles texts of theirs, for the tests."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np

import ablations
from harness.build.artifact import Request, save_source
from harness.build.batch import make_all
from harness.build.cache import Cache
from harness.build.toolkit import nvrtc_module
from harness.cases import CEILING, default_cases, make_case
from harness.check.verify import round_to
from harness.chips import DEFAULT_ARCHS
from harness.errors import AblationError
from harness.floats import to_bfloat16
from harness.key import digest
from harness.model import Array, Case, Expected, Inspection, Level, Source, Study, Values
from harness.render import source_digest

STUDIES = ablations.load()
ATTENTION, INSTRUCTION = STUDIES["attention"], STUDIES["instruction"]
# Where merging of equal MMAs happens.
ARCH = "sm_90a"

Pair = tuple[Study, Case]
PAIRS: tuple[Pair, ...] = tuple((study, case) for study in STUDIES.values() for case in default_cases(study))
# What is compiled where nothing is timed.
MAIN: tuple[Pair, ...] = tuple((s, c) for s, c in PAIRS if c.set_name != CEILING and c.skip is None)


def name_of(value: object) -> str | None:
    """The id of a study, a case or a text in a parametrised test."""
    if isinstance(value, Study):
        return value.name
    return str(value) if isinstance(value, Case | str) else None


@cache
def user_cache() -> Cache:
    """The user's own build cache: its keys hold all that decides the machine code, so it may be warm."""
    return Cache(None)


def case_of(study: Study, *, configuration: Values | None = None, **changes: Level) -> Case:
    """The baseline with some levels changed, at its first configuration if none is given."""
    levels = study.baseline.replace(**changes)
    return make_case(study, levels, configuration or study.configurations(levels)[0], set_name="test")


def with_text(source: Source, text: str) -> Source:
    """The same case with another text; its line map is cut or padded to the new number of lines."""
    lines = text.count("\n")
    places = (*source.line_map, *[source.line_map[-1]] * lines)[:lines]
    return replace(source, text=text, line_map=places, digest=source_digest(text))


def changed(source: Source, *changes: tuple[str, str]) -> Source:
    """The kernel with texts replaced everywhere; each must be there."""
    text = source.text
    for old, new in changes:
        assert old in text, f"the kernel of {source.case} holds no {old!r}"
        text = text.replace(old, new)
    return with_text(source, text)


def stored(expected: Mapping[str, Expected], study: Study, case: Case, sizes: Values) -> dict[str, Array]:
    """What a kernel that computes these values exactly would write."""
    found = {}
    for name, spec in study.outputs(case, sizes).items():
        kind = "uint16" if spec.dtype == "bfloat16" else spec.dtype
        rounded = round_to(expected[name].values, kind)
        found[name] = to_bfloat16(rounded.astype(np.float32)) if kind == "uint16" else rounded.astype(kind)
    return found


def inspections(
    sources: Sequence[Source], *, arch: str = ARCH, options: Sequence[tuple[str, ...]] = ()
) -> list[Inspection]:
    """What the compiler makes of each text, with its own options if given; raises the first refusal."""
    cache = user_cache()
    requests = [
        Request(source=source, source_path=save_source(source, cache), arch=arch, options=chosen)
        for source, chosen in zip(sources, options or [()] * len(sources), strict=True)
    ]
    nvrtc_module()  # not by several threads at once
    made = make_all(requests, cache)
    found = []
    for request in requests:
        result = made[request.key]
        if isinstance(result, AblationError):
            raise result
        found.append(result[1])
    return found


def sampled_targets(cases: Iterable[Case], *, per_arch: int, everywhere: bool) -> list[tuple[Case, str]]:
    """Every case for ARCH and, unless `everywhere`, a sample of them for each other default architecture.

    The sample is drawn from the names of the cases, so that it is the same from run to run."""
    cases = list(cases)
    chosen = [(case, ARCH) for case in cases]
    for arch in DEFAULT_ARCHS:
        if arch == ARCH:
            continue
        generator = random.Random(digest(arch, *map(str, cases)))
        some = cases if everywhere else generator.sample(cases, min(per_arch, len(cases)))
        chosen += [(case, arch) for case in some]
    return chosen
