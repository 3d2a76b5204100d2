"""Hardware counters on a GPU: all tensor instructions that the work promises, at the rate that stamps say."""

from __future__ import annotations

import pytest

from ablations import load
from harness import chips
from harness.build.build import Job, build_all
from harness.build.cache import Cache
from harness.cases import CEILING, default_cases
from harness.gpu.commands import Run, StudyInputs, make_entry
from harness.gpu.counters import read_counters
from harness.gpu.device import GpuDevice
from harness.gpu.facts import find_gpu
from harness.model import Build, Where
from harness.pipeline.counting import require_counters
from harness.plan import Plan
from harness.probes import ncu_program

FOUND = find_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))]


def test_the_counters_agree_with_work_and_stamps() -> None:
    assert not isinstance(FOUND, str)
    try:
        require_counters(Plan(studies=(), counters=True))
    except Exception as error:
        pytest.skip(str(error))
    arch, study = chips.arch_of(FOUND.cc), load()["instruction"]
    cases = [case for case in default_cases(study) if case.set_name != CEILING and not case.skip]
    jobs = [Job(study=study, case=case, arch=arch) for case in cases]
    builds = build_all(jobs, Cache(None), limits_of=chips.limits)
    entries, promised = [], {}
    for case, made in zip(cases, builds, strict=True):
        assert isinstance(made, Build), made
        sizes = study.sizes(case, Where(sms=FOUND.sms, ctas_per_sm=made.ctas_per_sm or 1))
        inputs = StudyInputs(study=study.name, case=case, sizes=sizes, fill="normal", seed=0)
        run = Run(launch=study.launch(case, sizes), inputs=inputs, outputs=dict(study.outputs(case, sizes)))
        work = study.work(case, sizes)
        entries.append(make_entry(case.name, made, study.name, run, work))
        promised[case.name] = work.mma_per_cta * run.launch.ctas
    found = read_counters(entries, FOUND, ncu_program())
    assert {name: values["tensor_instructions"] for name, values in found.items()} == promised
    chip = chips.identify(FOUND.name, FOUND.sms)
    peak = chip and chips.peak(chip, "mma.sync", "fp16", "f32")
    if peak is None or FOUND.cc != (9, 0):
        return
    # On Hopper the pipe is busy at the same rate whatever it accumulates in.
    with GpuDevice(FOUND) as device:
        for entry in entries:
            device.prepare(entry)
            rate = device.time(entry.id).flop_clk_sm
            assert rate is not None
            active, share = found[entry.id]["tensor_active_percent"], 100 * rate / peak.flop_clk_sm
            print(f"{entry.id}: tensor pipe active {active:.2f} %, {share:.2f} % of the peak")
            assert active == pytest.approx(share, abs=2.0)
