"""The CPU twin against the GPU: same text, same inputs; its wavefronts against those of Nsight Compute."""

from __future__ import annotations

import csv
import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from twin_cases import kernel, run_kernel

from ablations import load
from harness import chips
from harness.build.build import build
from harness.build.cache import Cache
from harness.build.nvrtc import compile_cubin
from harness.cases import CEILING, default_cases
from harness.check.twin import run_twin, twin_available
from harness.floats import as_float64
from harness.gpu.commands import Run, StudyInputs, make_entry
from harness.gpu.device import GpuDevice
from harness.gpu.facts import find_gpu
from harness.model import Case, Study
from harness.render import render

FOUND = find_gpu()
STUDIES = load()
CASES = [
    (study, case)
    for study in STUDIES.values()
    for case in default_cases(study)
    if case.set_name != CEILING and not case.skip
]
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND)),
    pytest.mark.skipif(twin_available() is not None, reason=str(twin_available())),
]


@pytest.fixture(scope="module")
def device():
    with GpuDevice(FOUND) as device:  # type: ignore[arg-type]
        yield device


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize(("study", "case"), CASES, ids=[str(case) for _, case in CASES])
def test_twin_is_nearer_to_the_gpu_than_the_gpu_is_to_float64(
    study: Study, case: Case, device: GpuDevice, cache: Cache
) -> None:
    arch = chips.arch_of(FOUND.cc)  # type: ignore[union-attr]
    sizes, fill = study.check_sizes(case)["awkward"], study.fill(case, "check")
    inputs, outputs, launch = (
        study.inputs(case, sizes, fill, 0),
        study.outputs(case, sizes),
        study.launch(case, sizes),
    )
    made = build(study, case, arch, cache, limits=chips.limits(arch))
    provider = StudyInputs(study=study.name, case=case, sizes=sizes, fill=fill, seed=0)
    run = Run(launch=launch, inputs=provider, outputs=dict(outputs))
    device.prepare(make_entry(str(case), made, study.name, run))
    gpu = device.verify(str(case)).outputs
    device.forget(str(case))
    twin = run_twin(render(study, case), launch, inputs, outputs, cache)
    assert not twin.faults
    reference = study.reference(case, sizes, inputs, None)
    for name in outputs:
        on_gpu, on_cpu = as_float64(gpu[name]), as_float64(twin.outputs[name])
        apart = np.linalg.norm(on_gpu - on_cpu)
        off = np.linalg.norm(on_gpu - reference[name].values)
        print(f"{case} {name}: twin - GPU {apart:.3g}, GPU - float64 {off:.3g}")
        # Where the GPU is right to the last bit of fp32, the last bit of its lg2 and ex2 is all that is left.
        last_bit = 2.0**-23 * np.linalg.norm(reference[name].values) if gpu[name].dtype == np.float32 else 0
        assert apart <= max(off, last_bit)


# Eight rows of 16 bytes, this many bytes apart: all banks once, half of them twice, one group eight times.
STRIDES = {"conflict-free": 144, "2-way": 32, "8-way": 128}
ROUNDS = 64
BODY = """
    DYN_SMEM(shared);
    for (u32 i = thread_idx(); i < {bytes} / 4; i += 32) {{
        reinterpret_cast<u32*>(shared)[i] = i;
    }}
    barrier();
    const u32 row = shared_address(shared) + thread_idx() % 8 * {stride} + thread_idx() / 8 * 16;
    u32 sum = 0;
#pragma unroll 1
    for (int round = 0; round < {rounds}; ++round) {{
        u32 m0, m1, m2, m3;
        load_matrix_x4(m0, m1, m2, m3, row);
        sum += m0 ^ m1 ^ m2 ^ m3;
    }}
    out[thread_idx()] = static_cast<float>(sum);
"""
LAUNCHER = """
import sys
import cupy
out = cupy.zeros(32, cupy.float32)
for path in sys.argv[1:]:
    kernel = cupy.RawModule(path=path).get_function("probe")
    kernel((1,), (32,), (out,), shared_mem=8192)
cupy.cuda.Device().synchronize()
"""
METRIC = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"


@pytest.mark.skipif(shutil.which("ncu") is None, reason="Nsight Compute (ncu) is not on the PATH")
def test_wavefronts_are_those_that_nsight_compute_counts(tmp_path: Path) -> None:
    cubins, counted = [], []
    for name, stride in STRIDES.items():
        body = BODY.format(stride=stride, bytes=8 * 144 + 64, rounds=ROUNDS)
        source = kernel(body)
        path = tmp_path / f"{name}.cubin"
        path.write_bytes(compile_cubin(source, chips.arch_of(FOUND.cc)).cubin)  # type: ignore[union-attr]
        cubins.append(str(path))
        twin = run_kernel(body, shared_bytes=8192)
        assert not twin.faults
        counted.append(twin.wavefronts_by_access["matrix_loads"][0])
    script = tmp_path / "launch.py"
    script.write_text(LAUNCHER.replace('"probe"', f'"{source.entry}"'))
    command = ["ncu", "--clock-control", "none", "--metrics", METRIC, "--csv", sys.executable, str(script)]
    done = subprocess.run([*command, *cubins], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    text = done.stdout[done.stdout.index('"ID"') :]
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["Kernel Name"].startswith(source.entry)]
    measured = [float(row["Metric Value"].replace(",", "")) for row in rows]
    print(f"twin {counted}, Nsight Compute {measured}")
    assert measured == pytest.approx(counted, rel=0.02)
