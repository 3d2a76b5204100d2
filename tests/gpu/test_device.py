"""The GPU package on a real GPU: what only a driver can confirm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from harness.errors import HungError, LaunchError, NotSupportedError
from harness.gpu.commands import Entry, FixedInputs, Run
from harness.gpu.device import GpuDevice
from harness.gpu.facts import GpuFacts, find_gpu, open_gpu_nvml
from harness.gpu.faults import StickyError
from harness.gpu.scan import scan_array
from harness.model import Launch, OutputSpec, Scalar

FOUND = find_gpu()
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(isinstance(FOUND, str), reason=str(FOUND))]

THREADS = 128
SOURCE = r"""
typedef unsigned long long u64;
__device__ u64 clock_now() { u64 t; asm volatile("mov.u64 %0, %%clock64;" : "=l"(t) :: "memory"); return t; }
__device__ u64 time_now() { u64 t; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)); return t; }

// y = x + 1, after `trips` dependent steps; stamps as the suite's kernels write them.
extern "C" __global__ void spin(const float* x, float* y, u64* stamps, int trips, int count)
{
    u64* mine = stamps + 5 * blockIdx.x;
    if (threadIdx.x == 0) {
        unsigned int sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        mine[0] = sm;
        mine[3] = time_now();
        mine[1] = clock_now();
    }
    float drift = 0.0f;
    for (int i = 0; i < trips; ++i) drift = fmaf(drift, 0.5f, 0.25f);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        y[i] = x[i] + (drift > 2.0f ? 0.0f : 1.0f);
    __syncthreads();
    if (threadIdx.x == 0) {
        mine[2] = clock_now();
        mine[4] = time_now();
    }
}

extern "C" __global__ void half_written(const float* x, float* y, u64* stamps, int trips, int count)
{
    for (int i = threadIdx.x; i < count / 2; i += blockDim.x) y[i] = x[i] + 1.0f;
}

extern "C" __global__ void illegal(const float* x, float* y, u64* stamps, int trips, int count)
{
    y[((u64)1 << 40) + threadIdx.x] = 0.0f;
}

extern "C" __global__ void forever(const float* x, float* y, u64* stamps, int trips, int count)
{
    volatile int* never = (volatile int*)y;
    *never = 0;
    while (*never != 12345) { }
}
"""


def compile_for(arch: str, path: Path) -> Path:
    from cuda.core import Program, ProgramOptions

    path.write_bytes(bytes(Program(SOURCE, "c++", ProgramOptions(arch=arch)).compile("cubin").code))
    return path


@pytest.fixture(scope="module")
def gpu() -> GpuFacts:
    assert not isinstance(FOUND, str)
    return FOUND


@pytest.fixture(scope="module")
def cubin(gpu: GpuFacts, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_for(f"sm_{gpu.cc[0]}{gpu.cc[1]}", tmp_path_factory.mktemp("cubin") / "kernels.cubin")


@pytest.fixture(scope="module")
def device(gpu: GpuFacts):
    with GpuDevice(gpu, watchdog_seconds=3.0) as device:
        yield device


def entry(
    cubin: Path,
    entry_id: str,
    kernel: str = "spin",
    *,
    trips: int = 100_000,
    ctas: int = 264,
    dynamic_bytes: int = 1024,
    count: int = 1 << 16,
) -> Entry:
    run = Run(
        launch=Launch(
            grid=(ctas, 1, 1),
            block=THREADS,
            shared_bytes=0,
            arguments=("x", "y", "stamps", Scalar(kind="i32", value=trips), Scalar(kind="i32", value=count)),
        ),
        inputs=FixedInputs(values={"x": np.arange(count, dtype=np.float32).reshape(8, -1)}),
        outputs={"y": OutputSpec(shape=(8, count // 8), dtype="float32")},
    )
    return Entry(
        id=entry_id,
        cubin_path=str(cubin),
        kernel=kernel,
        dynamic_bytes=dynamic_bytes,
        arch="sm_90",
        toolkit="test",
        run=run,
        flops=2 * trips * THREADS * ctas,
    )


def test_facts_and_nvml_speak_of_the_same_board(gpu: GpuFacts) -> None:
    board = open_gpu_nvml(gpu.index)
    assert gpu.sms > 0 and gpu.driver and gpu.cuda_driver and gpu.l2_bytes
    if board.found:
        assert board.facts().uuid == gpu.uuid
        state = board.sample()
        assert state.reported_hz is None or 1e8 < state.reported_hz < 4e9
        assert state.watts is None or 5 < state.watts < 2000


def test_a_kernel_is_loaded_with_its_resources(device: GpuDevice, cubin: Path, gpu: GpuFacts) -> None:
    loaded = device.prepare(entry(cubin, "spin"))
    assert 8 <= loaded.registers <= 64 and loaded.local_bytes == 0 and loaded.dynamic_bytes == 1024
    assert loaded.binary_version == 10 * gpu.cc[0] + gpu.cc[1]
    assert loaded.ctas_per_sm >= 8


def test_shared_memory_above_48_kib_is_opted_into_and_decides_residency(
    device: GpuDevice, cubin: Path, gpu: GpuFacts
) -> None:
    loaded = device.prepare(entry(cubin, "wide", dynamic_bytes=49153, ctas=gpu.sms))
    assert device.time("wide").sms_used == gpu.sms
    assert loaded.ctas_per_sm < device.prepare(entry(cubin, "slim", dynamic_bytes=0)).ctas_per_sm
    with pytest.raises(NotSupportedError, match="one CTA needs 1000000 bytes"):
        device.prepare(entry(cubin, "vast", dynamic_bytes=1_000_000))


def test_one_file_loaded_twice_is_two_modules(device: GpuDevice, cubin: Path) -> None:
    device.prepare(entry(cubin, "large", dynamic_bytes=90_000))
    device.prepare(entry(cubin, "small", dynamic_bytes=100))
    assert device.time("large").seconds > 0 and device.time("small").seconds > 0


def test_outputs_are_checked_whole(device: GpuDevice, cubin: Path) -> None:
    device.prepare(entry(cubin, "spin"))
    whole = device.verify("spin")
    assert np.array_equal(whole.outputs["y"].reshape(-1), np.arange(1 << 16, dtype=np.float32) + 1)
    assert (whole.scans["y"].unwritten, whole.scans["y"].nan, whole.scans["y"].first_bad) == (0, 0, None)
    some = device.verify("spin", slices=(7, 2))
    assert np.array_equal(some.outputs["y"], whole.outputs["y"][[7, 2]])
    device.prepare(entry(cubin, "half", "half_written"))
    half = device.verify("half", slices=(0,)).scans["y"]
    assert (half.unwritten, half.nan, half.first_bad) == (1 << 15, 0, 1 << 15)


@pytest.mark.parametrize(("dtype", "bits"), [("float16", "u2"), ("bfloat16", "u2"), ("float32", "u4")])
def test_device_and_host_scan_agree(gpu: GpuFacts, dtype: str, bits: str) -> None:
    from harness.gpu.cuda import Cuda

    cuda = Cuda(gpu)
    generator = np.random.default_rng(1)
    words = generator.integers(0, 2 ** (8 * int(bits[1])), 100_003, dtype=np.uint64).astype(bits)
    words[5000:5010] = np.iinfo(bits).max
    array = words.view({"float16": "f2", "bfloat16": "u2", "float32": "f4"}[dtype])
    on_device = cuda._scan_on_device(cuda.upload(array), array.size, dtype)
    assert on_device == scan_array(array, dtype)
    assert on_device.unwritten >= 10


def test_time_grows_with_work_in_seconds_and_cycles(device: GpuDevice, cubin: Path, gpu: GpuFacts) -> None:
    device.prepare(entry(cubin, "once", trips=200_000, ctas=gpu.sms))
    device.prepare(entry(cubin, "twice", trips=400_000, ctas=gpu.sms))
    device.warm_up(("twice",))
    once = [device.time("once", 2) for _ in range(5)]
    twice = [device.time("twice", 2) for _ in range(5)]
    for name, slack in (("seconds", 0.1), ("busy_cycles", 0.02)):
        ratio = np.median([getattr(s, name) for s in twice]) / np.median([getattr(s, name) for s in once])
        assert ratio == pytest.approx(2, abs=slack), name


def test_clock_from_stamps_explains_the_events(device: GpuDevice, cubin: Path, gpu: GpuFacts) -> None:
    device.prepare(entry(cubin, "long", trips=400_000, ctas=gpu.sms))
    warm = device.warm_up(("long",))
    assert warm.settled
    sample = device.time("long", 3)
    assert sample.sm_hz is not None and 1e8 < sample.sm_hz < 4e9
    assert sample.wall_cycles / sample.sm_hz == pytest.approx(sample.seconds, rel=0.03)
    assert sample.sms_used == gpu.sms


def test_a_flushed_l2_is_slower(device: GpuDevice, cubin: Path, gpu: GpuFacts) -> None:
    count = min(1 << 22, (gpu.l2_bytes or 1 << 24) // 16)
    device.prepare(entry(cubin, "reader", trips=1, count=count, ctas=8 * gpu.sms))
    warm = min(device.time("reader", 1).seconds for _ in range(20))
    cold = min(device.time("reader", 1, cold=True).seconds for _ in range(20))
    assert cold > warm


def test_a_bad_kernel_costs_only_itself(device: GpuDevice, cubin: Path) -> None:
    device.prepare(entry(cubin, "spin"))
    for name in ("illegal", "forever"):
        device.prepare(entry(cubin, name, name))
    with pytest.raises(StickyError, match="illegal"):
        device.time("illegal")
    assert device.time("spin").seconds > 0
    begin = time.monotonic()
    with pytest.raises(HungError, match="forever"):
        device.verify("forever")
    assert time.monotonic() - begin < 20
    assert device.time("spin").seconds > 0


def test_a_cubin_for_another_chip_is_refused_with_the_numbers(
    device: GpuDevice, gpu: GpuFacts, tmp_path: Path
) -> None:
    other = "sm_120" if gpu.cc[0] != 12 else "sm_80"
    with pytest.raises(LaunchError) as info:
        device.prepare(entry(compile_for(other, tmp_path / "other.cubin"), "other"))
    for number in (gpu.driver, gpu.cuda_driver, f"{gpu.cc[0]}.{gpu.cc[1]}"):
        assert str(number) in str(info.value)


def test_our_own_worker_does_not_make_the_gpu_busy(device: GpuDevice, cubin: Path) -> None:
    device.prepare(entry(cubin, "spin"))
    device.time("spin")
    with device.reserved():
        assert device.time("spin").seconds > 0


def test_a_sample_costs_little_more_than_its_launches(device: GpuDevice, cubin: Path) -> None:
    device.prepare(entry(cubin, "spin", trips=1000))
    device.time("spin")
    begin = time.perf_counter()
    for _ in range(50):
        device.time("spin", 1)
    assert (time.perf_counter() - begin) / 50 < 0.01, f"pid {os.getpid()}"
