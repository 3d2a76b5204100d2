"""Handicapped kernels on a GPU: at random severities, the verdict must cross over where the rule says.

The handicap is put into a copy of the templates, so that it sits in the part itself: a case that strips the
part is the case it always was. Every kernel is still right, and is checked before it is timed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from ablations import load
from harness import answer, chips, engine
from harness.build.build import Job, build_all
from harness.build.cache import Cache
from harness.cases import CEILING, default_cases
from harness.check.verify import compare
from harness.gpu.commands import make_entry
from harness.gpu.device import GpuDevice
from harness.gpu.facts import find_gpu
from harness.model import Case
from harness.pipeline import timed
from harness.pipeline.setting import header
from harness.plan import Plan
from harness.render import TEMPLATES
from harness.store import RecordFile

FOUND = find_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))]
STUDIES = load()
ATTENTION = STUDIES["attention"]
SEED = random.Random()


def lattice_cases() -> list[Case]:
    """The lattice of stripped sets at head_dim 64, fp16 in, fp32 accumulators."""
    base = ATTENTION.baseline
    axes = ("dtype", "head_dim", "acc_dtype", "gemms", "accumulators")
    first = ATTENTION.configurations(base)[0]
    return [
        case
        for case in default_cases(ATTENTION)
        if case.set_name != CEILING
        and not case.skip
        and case.configuration == first
        and all(case.levels[name] == base[name] for name in axes)
    ]


def handicapped(folder: Path, file: str, *changes: tuple[str, str]) -> Path:
    """A copy of the templates with texts of one part replaced."""
    shutil.copytree(TEMPLATES, folder)
    path = folder / "parts" / file
    text = path.read_text(encoding="utf-8")
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")
    return folder


def copies_without_overlap(folder: Path, times: int) -> Path:
    """Each tile's copies are waited for on the spot, and made `times` times over."""
    old = "        const bool wanted = tiles_left > 0;\n"
    again = f"#pragma unroll 1\n        for (int again = 0; again < {times}; ++again) {{\n"
    end = "copy_tile_if<BLOCK_N, HEAD_DIM, THREADS>(wanted, to + TILE_BYTES, v);\n        }\n"
    close = "            commit_copies();\n            wait_copies<0>();\n        }\n"
    return handicapped(folder, "gmem_copy_kept.cuh", (old, again + old), (end, end + close))


def bank_conflicts(folder: Path, ways: int) -> Path:
    """The swizzle uses fewer bits of the row: `ways` rows of an ldmatrix share a group of banks."""
    return handicapped(folder, "tile.cuh", ("(row & 7)", f"(row & {8 // ways - 1})"))


def verdict_of(device: GpuDevice, templates: Path, cache: Cache) -> answer.Verdict:
    """Build, check at the small size, time, and judge the lattice of a folder of templates."""
    arch, plan = chips.arch_of(FOUND.cc), Plan(studies=("attention",))  # type: ignore[union-attr]
    bench = timed.Bench(study=ATTENTION, facts=FOUND, arch=arch, plan=plan)  # type: ignore[arg-type]
    cases = lattice_cases()
    wanted = [(case, p) for case in cases for p in range(plan.perturbations)]
    jobs = [
        Job(study=ATTENTION, case=case, arch=arch, perturbation=p, templates=templates) for case, p in wanted
    ]
    built = build_all(jobs, cache, limits_of=chips.limits)
    results = {(case.name, p): made for (case, p), made in zip(wanted, built, strict=True)}
    chosen: list[timed.Candidate] = []
    for made in timed.candidates(bench, cases, results):
        assert isinstance(made, timed.Candidate), made["reason"]
        case, small = made.case, made.checks[0]
        run = bench.run(case, made.sizes, made.fill)
        device.prepare(make_entry(made.id, made.build, ATTENTION.name, run, ATTENTION.work(case, made.sizes)))
        got = device.verify(made.id, bench.run(case, small.sizes, small.fill))
        inputs = ATTENTION.inputs(case, small.sizes, small.fill, small.seed)
        checked = compare(got.outputs, ATTENTION.reference(case, small.sizes, inputs, None))
        assert checked.passed, f"{case}: {checked.message}"
        chosen.append(made)
    session = engine.measure(device, timed.entries_of(bench, chosen), engine.Plan(rounds=12))
    records = tuple({"kind": "record", **timed.measured_record(c, session)} for c in chosen)
    for made in chosen:
        device.forget(made.id)
    head = {"kind": "header", "schema": 1, **header(plan, FOUND, None)}  # type: ignore[arg-type]
    file = RecordFile(path=Path("memory"), header=head, records=records)
    return answer.verdicts([file], STUDIES)[0]


def exposed(verdict: answer.Verdict, part: str) -> float:
    """The exposed cost of one part, as a fraction of full."""
    return next(e.fraction.value for e in verdict.evidence.exposed if e.parts == (part,))


@pytest.mark.parametrize(
    ("part", "make", "severities"),
    [
        ("gmem_copy", copies_without_overlap, sorted(SEED.sample(range(1, 8), 3))),
        ("smem_copy", bank_conflicts, sorted(SEED.sample((2, 4, 8), 3))),
    ],
    ids=["copy without overlap", "bank conflicts"],
)
def test_a_handicapped_part_is_named(part, make, severities, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    with GpuDevice(FOUND) as device, device.reserved():  # type: ignore[arg-type]
        plain = verdict_of(device, TEMPLATES, cache)
        print(f"\nplain: {plain.sentence} ({part} exposed {exposed(plain, part):.3f})")
        costs = [exposed(plain, part)]
        for severity in severities:
            verdict = verdict_of(device, make(tmp_path / f"{part}-{severity}", severity), cache)
            cost = exposed(verdict, part)
            print(f"severity {severity}: {verdict.sentence} ({part} exposed {cost:.3f})")
            named = any(part in name for names in verdict.decision.named for name in names)
            row = next(e for e in verdict.evidence.exposed if e.parts == (part,))
            assert named or not row.counts
            costs.append(cost)
    assert verdict.word == "part-bound"
    assert any(part in name for name in verdict.decision.named[0])
    assert costs == sorted(costs)
