"""Every default case on a real GPU: right at awkward lengths, in every perturbation, and each time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from harness import chips
from harness.build.build import Job, Result, build_all
from harness.build.cache import Cache
from harness.check.verify import compare
from harness.gpu.commands import Run, StudyInputs, Verified, make_entry
from harness.gpu.device import GpuDevice
from harness.gpu.facts import find_gpu
from harness.model import Build, Case, Study, Values, Where
from tests.studies import ATTENTION, MAIN, PAIRS, name_of

FOUND = find_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))]

EVERY_CASE = pytest.mark.parametrize(("study", "case"), MAIN, ids=name_of)
# One row and key, tiles but one, whole tiles, tiles and one, several and a few.
LENGTHS = (1, 2, 15, 17, 31, 33, 63, 64, 65, 127, 128, 129, 257, 300)
PERTURBATIONS = 3


class Bench:
    """The GPU, and all default cases built for it."""

    def __init__(self, device: GpuDevice) -> None:
        self.device = device
        arch = chips.arch_of(device.facts.cc)
        jobs = [
            Job(study=study, case=case, arch=arch, perturbation=perturbation)
            for study, case in PAIRS
            for perturbation in range(PERTURBATIONS if (study, case) in MAIN else 1)
        ]
        made = build_all(jobs, Cache(None), limits_of=chips.limits)
        self.built: dict[tuple[str, int], Result] = {
            (str(job.case), job.perturbation): result for job, result in zip(jobs, made, strict=True)
        }

    def run(
        self,
        study: Study,
        case: Case,
        sizes: Values,
        fill: str,
        *,
        perturbation: int = 0,
        slices: tuple[int, ...] | None = None,
    ) -> Verified:
        """One launch of a case at some sizes."""
        made = self.built[str(case), perturbation]
        assert isinstance(made, Build) and not made.broken, made
        run = Run(
            launch=study.launch(case, sizes),
            inputs=StudyInputs(study=study.name, case=case, sizes=sizes, fill=fill, seed=7),
            outputs=dict(study.outputs(case, sizes)),
        )
        entry_id = f"{case}#{perturbation}"
        self.device.prepare(make_entry(entry_id, made, study.name, run))
        try:
            return self.device.verify(entry_id, run, slices)
        finally:
            self.device.forget(entry_id)

    def objection(self, study: Study, case: Case, sizes: Values, *, perturbation: int = 0) -> str:
        """What is wrong with a case at some sizes; empty when nothing is."""
        fill = study.fill(case, "check")
        got = self.run(study, case, sizes, fill, perturbation=perturbation)
        inputs = study.inputs(case, sizes, fill, 7)
        message = compare(got.outputs, study.reference(case, sizes, inputs, None)).message
        unwritten = {name: scan.unwritten + scan.nan for name, scan in got.scans.items()}
        return message or ("" if not any(unwritten.values()) else f"unwritten or NaN: {unwritten}")


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    assert not isinstance(FOUND, str)
    with GpuDevice(FOUND) as device:
        yield Bench(device)


@pytest.mark.parametrize(("study", "case"), PAIRS, ids=name_of)
def test_a_case_is_right_at_its_check_sizes(bench: Bench, study: Study, case: Case) -> None:
    if case.skip:
        return
    for name, sizes in study.check_sizes(case).items():
        assert bench.objection(study, case, sizes) == "", name


@pytest.mark.parametrize("case", [case for study, case in MAIN if study is ATTENTION], ids=name_of)
def test_a_case_is_right_at_lengths_around_its_tiles(bench: Bench, case: Case) -> None:
    wrong = {
        seqlen: objection
        for seqlen in LENGTHS
        if (objection := bench.objection(ATTENTION, case, Values(batch=1, heads=2, seqlen=seqlen)))
    }
    assert wrong == {}


@EVERY_CASE
def test_a_perturbed_build_is_right_too(bench: Bench, study: Study, case: Case) -> None:
    for perturbation in range(1, PERTURBATIONS):
        sizes = study.check_sizes(case)["awkward"]
        assert bench.objection(study, case, sizes, perturbation=perturbation) == ""


@EVERY_CASE
def test_a_case_gives_the_same_bits_each_time_at_the_timed_size(
    bench: Bench, study: Study, case: Case
) -> None:
    assert not isinstance(FOUND, str)
    made = bench.built[str(case), 0]
    assert isinstance(made, Build)
    sizes = study.sizes(case, Where(sms=FOUND.sms, ctas_per_sm=made.ctas_per_sm or 1))
    fill = study.fill(case, "normal")
    first, second = (bench.run(study, case, sizes, fill, slices=(0, 1)) for _ in range(2))
    for name, array in first.outputs.items():
        assert np.array_equal(array.view(np.uint8), second.outputs[name].view(np.uint8)), name
        scan = first.scans[name]
        assert scan.unwritten == scan.nan == 0, name
