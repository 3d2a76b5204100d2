"""The engine against NVBench (PyPI: cuda-bench): the same cubins, cold L2, alternating in one process.

Seconds depend on the clock that power leaves, and NVBench launches back to back for most of a second where
the engine takes a launch at a time for some tens of milliseconds: on normal data their clocks differ by some
percent. So the data are zeros, which draw too little power to move the clock.
"""

from __future__ import annotations

import json
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

from ablations import load
from harness import chips, engine
from harness.build.build import Job, build_all
from harness.build.cache import Cache
from harness.cases import CEILING, default_cases
from harness.gpu.commands import Run, StudyInputs, make_entry
from harness.gpu.facts import find_gpu, open_gpu_nvml
from harness.gpu.launch import arguments
from harness.gpu.server import DeviceServer
from harness.model import Build, Where

FOUND = find_gpu()
nvbench = pytest.importorskip("cuda.bench", reason="cuda-bench is not installed: pip install cuda-bench")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))]
CASES = 8
FILL = "zeros"
TAGS = ("nv/cold/time/gpu/median", "nv/cold/time/gpu/mean")


class InProcess:
    """The engine's device without a worker, so that both sides share one context."""

    def __init__(self) -> None:
        self.server = DeviceServer(lambda seconds: None, FOUND, 60.0)  # type: ignore[arg-type]
        self.nvml = open_gpu_nvml(FOUND.index)  # type: ignore[union-attr]

    def time(self, entry_id: str, repeats: int = 1, *, cold: bool = False):
        return self.server.time(entry_id, repeats, cold)

    def warm_up(self, entry_ids=None, seconds: float = 5.0):
        return self.server.warm_up(entry_ids or (), seconds)

    def state(self):
        return self.nvml.sample()


def test_medians_agree_and_ours_takes_no_longer(tmp_path: Path) -> None:
    import cupy

    arch, studies = chips.arch_of(FOUND.cc), load()  # type: ignore[union-attr]
    every = [
        (study, case)
        for study in studies.values()
        for case in default_cases(study)
        if case.set_name != CEILING and not case.skip
    ]
    chosen = every[:: max(1, len(every) // CASES)][:CASES]
    jobs = [Job(study=s, case=c, arch=arch) for s, c in chosen]
    builds = build_all(jobs, Cache(tmp_path / "cache"), limits_of=chips.limits)
    device = InProcess()
    runs: dict[str, Run] = {}
    for (study, case), made in zip(chosen, builds, strict=True):
        assert isinstance(made, Build), made
        sizes = study.sizes(case, Where(sms=FOUND.sms, ctas_per_sm=made.ctas_per_sm or 1))  # type: ignore[union-attr]
        provider = StudyInputs(study=study.name, case=case, sizes=sizes, fill=study.fill(case, FILL), seed=0)
        run = Run(launch=study.launch(case, sizes), inputs=provider, outputs=dict(study.outputs(case, sizes)))
        runs[str(case)] = run
        device.server.prepare(make_entry(str(case), made, study.name, run, study.work(case, sizes)))
    ours: dict[str, list[float]] = {name: [] for name in runs}
    clocks: dict[str, list[float]] = {name: [] for name in runs}
    our_seconds: dict[str, float] = dict.fromkeys(runs, 0.0)
    their_seconds: dict[str, float] = {}

    def measure(name: str) -> None:
        begin = time.perf_counter()
        plan = engine.Plan(warm_up_seconds=0.0)
        session = engine.measure(device, [engine.Entry(id=name, cold=True)], plan)
        our_seconds[name] = max(our_seconds[name], time.perf_counter() - begin)
        clocks[name] += [sample.sm_hz for sample in session.results[name].samples if sample.sm_hz]
        ours[name] += [sample.seconds for sample in session.results[name].samples]

    faults: list[str] = []

    def case_benchmark(state) -> None:
        try:
            compared(state)
        except BaseException:
            faults.append(traceback.format_exc())
            raise

    def compared(state) -> None:
        name = state.get_string("case")
        measure(name)
        held, run = device.server._held[name], runs[name]
        values = tuple(arguments(run, device.server._buffers))
        shared = max(held.loaded.dynamic_bytes, run.launch.shared_bytes)

        def launcher(launch) -> None:
            stream = cupy.cuda.Stream.from_external(launch.get_stream())
            held.kernel(run.launch.grid, (run.launch.block, 1, 1), values, shared_mem=shared, stream=stream)

        begin = time.perf_counter()
        state.exec(launcher, batched=False)
        their_seconds[name] = time.perf_counter() - begin
        measure(name)

    benchmark = nvbench.register(case_benchmark)
    benchmark.add_string_axis("case", list(runs))
    begin = time.perf_counter()
    device.warm_up(list(runs)[:2])
    warm_up_seconds = time.perf_counter() - begin
    found = tmp_path / "nvbench.json"
    nvbench.run_all_benchmarks(["suite", "--json", str(found)])
    assert not faults, faults[0]
    theirs = medians(json.loads(found.read_text()))
    for name, samples in ours.items():
        ratio = float(np.median(samples)) / theirs[name]
        print(
            f"{name}: ours {1e6 * np.median(samples):.2f} us in {our_seconds[name]:.2f} s, "
            f"NVBench {1e6 * theirs[name]:.2f} us in {their_seconds[name]:.2f} s, ratio {ratio:.4f}, "
            f"SM clock {np.median(clocks[name]) / 1e6:.0f} MHz"
        )
    worst = max(abs(float(np.median(samples)) / theirs[name] - 1) for name, samples in ours.items())
    print(
        f"apart by at most {100 * worst:.2f} %; in all {sum(our_seconds.values()):.2f} s "
        f"after {warm_up_seconds:.2f} s of warm-up, NVBench {sum(their_seconds.values()):.2f} s"
    )
    assert worst <= 0.01
    assert warm_up_seconds + sum(our_seconds.values()) <= sum(their_seconds.values())


def medians(report: dict) -> dict[str, float]:
    """Case -> NVBench's median cold GPU time in seconds, its mean where it gives no median."""
    found = {}
    for state in report["benchmarks"][0]["states"]:
        name = next(axis["value"] for axis in state["axis_values"] if axis["name"] == "case")
        values = {
            summary["tag"]: data["value"]
            for summary in state["summaries"] or ()
            for data in summary.get("data") or ()
            if data["name"] == "value"
        }
        times = [values[tag] for tag in TAGS if tag in values]
        assert times, f"NVBench gave no time for {name}: {json.dumps(state)[:1500]}"
        found[name] = float(times[0])
    return found
