"""The GPU package without a GPU: stamps, NVML, facts, faults, buffers, the order of a sample, the lock."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from fake_gpu import SMS, CUDARuntimeError, FakeCuda, FakeNvml, FakeRuntime, entry, facts, fake_cupy
from hypothesis import given
from hypothesis import strategies as st

import harness.gpu
from harness.errors import LaunchError, NotSupportedError
from harness.gpu import faults, launch, nvml, scan, stamps
from harness.gpu.commands import FixedInputs, Run, StudyInputs
from harness.gpu.facts import driver_version, find_gpu, format_uuid
from harness.gpu.load import aliased, load_fault, refuse_too_much_shared
from harness.gpu.lock import BusyError, gpu_lock
from harness.gpu.server import DeviceServer, settled
from harness.model import Case, OutputSpec, Scalar, Values

# ---- stamps


def rows(*ctas: tuple[int, int, int, int, int]) -> np.ndarray:
    return np.array([[value % 2**64 for value in cta] for cta in ctas], dtype=np.uint64)


def test_two_ctas_of_one_sm_are_one_span() -> None:
    found = stamps.reduce(rows((0, 100, 300, 0, 0), (0, 200, 500, 0, 0), (1, 1000, 1200, 0, 0)), 800.0)
    assert (found.busy_cycles, found.wall_cycles) == (300.0, 400.0)
    assert found.flop_clk_sm == pytest.approx((1600 / 400 + 800 / 200) / 2)
    assert found.wall_flop_clk_sm == pytest.approx(2400 / (400 * 2))
    assert found.ctas_per_sm == (1, 2) and found.sms_used == 2


def test_wall_rate_counts_idle_sms() -> None:
    found = stamps.reduce(rows((5, 0, 100, 0, 0)), 1000.0, sms=10)
    assert found.flop_clk_sm == 10.0 and found.wall_flop_clk_sm == 1.0


def test_each_cta_may_have_its_own_work() -> None:
    one_order = rows((1, 0, 100, 0, 0), (0, 0, 100, 0, 0))
    found = stamps.reduce(one_order, np.array([300.0, 100.0]))
    assert found.spread == pytest.approx((3 - 1) / 2)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_a_wrapped_counter_changes_nothing(clock: int, nanoseconds: int) -> None:
    spans = [(0, 0, 900_000), (0, 700, 1_000_000), (1, 3, 1_000_003)]
    plain = stamps.reduce(rows(*[(s, a, b, a, b) for s, a, b in spans]), 10.0)
    moved = [(s, a + clock, b + clock, a + nanoseconds, b + nanoseconds) for s, a, b in spans]
    if any(value % 2**64 == 2**64 - 1 for row in moved for value in row):
        return
    shifted = stamps.reduce(rows(*moved), 10.0)
    assert (shifted.busy_cycles, shifted.spread) == (plain.busy_cycles, plain.spread)


def test_clock_is_cycles_over_nanoseconds() -> None:
    ctas = [(sm, 10 * sm, 10 * sm + 1_800_000, 32 * sm, 32 * sm + 1_000_000) for sm in range(8)]
    assert stamps.reduce(rows(*ctas), 1.0).sm_hz == pytest.approx(1.8e9)


@pytest.mark.parametrize("nanoseconds", [0, 32, 3_000, 90_000])
def test_clock_is_unknown_when_the_launch_is_short_for_the_tick(nanoseconds: int) -> None:
    ctas = [(sm, 0, 1000, 0, nanoseconds) for sm in range(8)]
    assert stamps.reduce(rows(*ctas), 1.0).sm_hz is None


def test_tick_is_read_off_the_stamps() -> None:
    assert stamps.tick_ns(np.array([0, 64, 96, 1000 * 32], dtype=np.uint64)) == 32
    assert stamps.tick_ns(np.array([7, 7], dtype=np.uint64)) == 1024


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (rows((0, 300, 100, 0, 0)), "not monotonic"),
        (rows((0, 100, 100, 0, 0)), "not monotonic"),
        (rows((0, 1, 2, 0, 0), (0, 100, 200, 50, 40)), "CTA 1 ended 10 ns before"),
        (rows((0, 1, 2, 0, 0), (-1, -1, -1, -1, -1)), "1 of 2 CTAs wrote no stamps; the first is CTA 1"),
        (rows((0, 1, 2, 0, -1)), "1 of 1 CTAs wrote no stamps"),
        (rows((70_000, 1, 2, 0, 0)), "SM 70000"),
        (np.zeros((0, 5), dtype=np.uint64), "not uint64"),
        (np.zeros((3, 5), dtype=np.int64), "not uint64"),
        (np.zeros((3, 4), dtype=np.uint64), "not uint64"),
    ],
)
def test_bad_stamps_are_refused_with_the_reason(bad: np.ndarray, words: str) -> None:
    with pytest.raises(LaunchError, match=words):
        stamps.reduce(bad, 1.0)


def test_two_groups_of_sms_show_as_one_wide_step() -> None:
    two = stamps.reduce(rows(*[(sm, 0, 1000 + sm % 2 * 50, 0, 0) for sm in range(20)]), 1e3)
    assert two.gap == pytest.approx(two.spread)
    graded = stamps.reduce(rows(*[(sm, 0, 1000 + sm, 0, 0) for sm in range(20)]), 1e3)
    assert graded.gap < graded.spread / 15
    assert stamps.reduce(rows((0, 0, 100, 0, 0)), 1.0).gap == 0


def test_equal_sms_have_no_spread_and_unequal_ones_do() -> None:
    assert stamps.reduce(rows((0, 0, 100, 0, 0), (1, 5, 105, 0, 0)), 1.0).spread == 0
    assert stamps.reduce(rows((0, 0, 100, 0, 0), (1, 5, 106, 0, 0)), 0.0).spread == pytest.approx(1 / 100.5)


# ---- NVML and facts


@pytest.mark.parametrize(
    ("visible", "index", "hz"),
    [
        ("3", 0, 1815e6),
        ("2,0", 1, 210e6),
        ("2,0", 0, 1980e6),
        (None, 1, 1410e6),
        ("GPU-00000001-0000-0000-0000-000000000000", 0, 1410e6),
        ("MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", 0, 1980e6),
    ],
)
def test_nvml_is_asked_about_the_gpu_that_is_timed(
    visible: str | None, index: int, hz: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    board = FakeNvml()
    runtime = FakeRuntime(visible)
    found = find_gpu(index, cupy=fake_cupy(runtime), nvml=board)
    assert not isinstance(found, str)
    assert nvml.open_nvml(found.pci, None, module=board).sample().reported_hz == hz
    assert found.uuid == board.uuids[runtime.order[index]]


def test_no_visible_gpu_is_the_path_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    reason = find_gpu(cupy=fake_cupy(FakeRuntime("")), nvml=FakeNvml())
    assert reason == "CUDA sees no GPU: CUDA_VISIBLE_DEVICES is '', which hides every one"


def test_a_mig_slice_has_its_own_sms_and_its_parents_clock() -> None:
    found = find_gpu(
        cupy=fake_cupy(FakeRuntime("MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", slice_sms=16)), nvml=FakeNvml()
    )
    assert not isinstance(found, str)
    assert (found.sms, found.mig) == (16, True)
    by_uuid = nvml.open_nvml(None, "MIG-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee", module=FakeNvml())
    assert by_uuid.sample().reported_hz == 1980e6


def test_an_unmatched_gpu_has_no_nvml_facts() -> None:
    lost = nvml.open_nvml("0000:99:00.0", "GPU-none", module=FakeNvml())
    assert not lost.found
    assert lost.sample() == nvml.GpuState() and lost.load() == nvml.GpuState()
    assert lost.facts().uuid is None


def test_what_nvml_refuses_is_unknown_not_zero() -> None:
    refusing = FakeNvml(
        refuse=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetClockInfo", "nvmlDeviceGetCurrentClocksEventReasons")
    )
    state = nvml.open_nvml("0000:10:00.0", None, module=refusing).sample()
    assert (state.watts, state.reported_hz, state.throttle) == (None, None, None)
    assert state.temperature_c == 40


def test_a_clock_of_zero_is_unknown() -> None:
    board = FakeNvml()
    board.CLOCKS = (0, 0, 0, 0)
    assert nvml.open_nvml("0000:10:00.0", None, module=board).sample().reported_hz is None


def test_throttle_reasons_have_names() -> None:
    state = nvml.open_nvml("0000:13:00.0", None, module=FakeNvml()).sample()
    assert state.throttle == ("sw_power_cap", "hw_slowdown")
    assert nvml.decode_reasons(0) == () and nvml.decode_reasons(None) is None
    assert nvml.decode_reasons(0x1000) == ("bit_0x1000",)


def test_facts_become_a_record() -> None:
    found = find_gpu(2, cupy=fake_cupy(FakeRuntime()), nvml=FakeNvml())
    assert not isinstance(found, str)
    record = found.as_record()
    assert record["cc"] == [9, 0] and record["power_limit_w"] == 700.0 and record["clocks_locked"] is None
    assert (found.driver, found.cuda_driver, found.pci) == ("580.159.03", "13.0", "0000:12:00.0")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("runtime", "words"),
    [
        (FakeRuntime(error=35, driver=0), "there is no NVIDIA driver on this machine"),
        (FakeRuntime(error=35, driver=12040), "supports CUDA 12.4 and this CuPy needs CUDA 13.2"),
        (FakeRuntime(error=999), "CUDA does not start .cudaErrorSomething"),
        (FakeRuntime(error=100), "sees no GPU"),
    ],
)
def test_no_gpu_is_a_sentence(runtime: FakeRuntime, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    reason = find_gpu(cupy=fake_cupy(runtime), nvml=FakeNvml())
    assert isinstance(reason, str)
    assert "\n" not in reason
    assert re.search(words, reason)


def test_an_index_beyond_the_last_gpu_is_a_sentence() -> None:
    assert (
        find_gpu(4, cupy=fake_cupy(FakeRuntime()), nvml=FakeNvml())
        == "there is no GPU 4: CUDA sees 4, numbered from 0"
    )


def test_this_machine_gives_facts_or_a_sentence() -> None:
    found = find_gpu()
    assert found
    assert not isinstance(found, str) or "\n" not in found


def test_cupy_that_cannot_be_imported_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    reason = find_gpu()
    assert isinstance(reason, str) and reason.startswith("CuPy cannot be imported")


def test_importing_the_package_needs_no_cupy() -> None:
    names = [path.stem for path in Path(harness.gpu.__file__).parent.glob("*.py")]
    assert len(names) > 10
    text = "import sys\nsys.modules['cupy'] = sys.modules['pynvml'] = None\n" + "".join(
        f"import harness.gpu.{name}\n" for name in names
    )
    subprocess.run([sys.executable, "-c", text], check=True)


def test_driver_version_is_read_from_either_kernel_module() -> None:
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version: gcc 12"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build\n"
    assert driver_version(closed) == "550.54.15" and driver_version(opened) == "580.159.03"
    assert driver_version("nothing here") is None


def test_uuid_is_written_as_nvml_writes_it() -> None:
    assert format_uuid(bytes(range(16))) == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


# ---- busy or not


def test_others_make_a_gpu_busy_and_we_do_not() -> None:
    state = nvml.GpuState(processes=(10, 20), utilisation=0)
    assert nvml.busy_reason(state, own={10}, before=(20,)) == "other processes use the GPU: pid 20"
    assert nvml.busy_reason(state, own={10, 20}) is None
    assert (
        nvml.busy_reason(nvml.GpuState(utilisation=11)) == "the GPU is 11 % busy (at most 10 % is let pass)"
    )
    assert nvml.busy_reason(nvml.GpuState(utilisation=10)) is None
    assert nvml.busy_reason(nvml.GpuState()) is None


def test_our_worker_under_a_pid_of_another_namespace_is_no_stranger() -> None:
    assert nvml.strangers((900,), {5}, before=()) == ()
    assert nvml.strangers((900, 901), {5}, before=(900,)) == (900,)
    assert nvml.strangers((900,), set(), before=()) == (900,)
    assert nvml.strangers((5, 900), {5}, before=()) == (900,)


def test_a_gpu_that_calms_down_is_waited_for() -> None:
    answers = ["busy", "busy", None]
    naps: list[float] = []
    assert nvml.wait_idle(lambda: answers.pop(0), sleep=naps.append) is None
    assert len(naps) == 2
    assert nvml.wait_idle(lambda: "busy", seconds=1, sleep=naps.append) == "busy"


# ---- faults


def test_two_refusals_of_the_driver_have_two_answers_with_all_numbers() -> None:
    old = facts(driver="550.54", cuda_driver="12.4", cc=(8, 9))
    case = entry()
    ptx = str(load_fault(CUDARuntimeError(222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"), case, old))
    binary = str(load_fault(CUDARuntimeError(209, "CUDA_ERROR_NO_BINARY_FOR_GPU"), case, old))
    for text in (ptx, binary):
        assert all(number in text for number in ("550.54", "12.4", "13.5", "8.9", "sm_90a"))
    assert "update the driver" in ptx and "compile for sm_89" in binary


def test_faults_know_whether_the_context_is_lost() -> None:
    assert isinstance(faults.as_fault(CUDARuntimeError(700, "illegal"), "timing"), faults.StickyError)
    assert not isinstance(faults.as_fault(CUDARuntimeError(2, "memory"), "timing"), faults.StickyError)
    assert "not enough memory" in str(faults.as_fault(MemoryError("x"), "timing"))
    kept = NotSupportedError("no")
    assert faults.as_fault(kept, "timing") is kept
    assert faults.cuda_status(ValueError("x")) is None


def test_shared_memory_beyond_the_limit_names_both_numbers() -> None:
    refuse_too_much_shared("case", 16, 101360, 101376)
    with pytest.raises(NotSupportedError, match=r"101377 bytes.*allows 101376"):
        refuse_too_much_shared("case", 17, 101360, 101376)


def test_a_second_load_of_a_file_has_another_spelling(tmp_path) -> None:
    file = tmp_path / "k.cubin"
    file.write_bytes(b"x")
    spellings = {aliased(str(file), copy) for copy in range(3)}
    assert len(spellings) == 3
    assert {os.stat(path).st_size for path in spellings} == {1}  # noqa: PTH116 (a Path would unify them)


# ---- arguments, buffers, order


@pytest.mark.parametrize(
    ("kind", "value", "type_"),
    [("i32", -1, np.int32), ("u32", 2**32 - 1, np.uint32), ("f32", 0.1, np.float32)],
)
def test_scalars_have_their_c_type(kind: str, value: float, type_: type) -> None:
    assert type(launch.scalar_value(Scalar(kind=kind, value=value))) is type_


@pytest.mark.parametrize(("kind", "value"), [("i32", 2**31), ("u32", -1), ("i32", 1.5)])
def test_a_scalar_that_does_not_fit_is_refused(kind: str, value: float) -> None:
    with pytest.raises(LaunchError, match="does not fit"):
        launch.scalar_value(Scalar(kind=kind, value=value))


def test_an_unknown_argument_is_named_with_the_known_ones() -> None:
    run = Run(launch=entry().run.launch, inputs=FixedInputs(values={}), outputs={})
    with pytest.raises(LaunchError, match="names x, y; there are stamps"):
        launch.arguments(run, launch.Buffers(FakeCuda(), 1 << 20))


class Shared:
    """A provider that gives one array under any key, and counts how often it is asked."""

    def __init__(self, key: str, array: np.ndarray) -> None:
        self.key, self.array, self.asked = key, array, 0

    def arrays(self):
        self.asked += 1
        return {"x": self.array}


def run_with(provider: Shared) -> Run:
    return Run(launch=entry().run.launch, inputs=provider, outputs={})


def test_the_same_array_is_uploaded_once_for_all_cases() -> None:
    cuda, array = FakeCuda(), np.ones(8, np.float32)
    buffers = launch.Buffers(cuda, 1 << 20)
    first, second = Shared("a", array), Shared("b", array)
    one, two = buffers.inputs(run_with(first)), buffers.inputs(run_with(second))
    buffers.inputs(run_with(first))
    assert one["x"] is two["x"] and cuda.uploads == 1
    assert (first.asked, second.asked) == (1, 1)


def test_an_array_that_died_is_never_taken_for_another() -> None:
    cuda = FakeCuda()
    buffers = launch.Buffers(cuda, 1 << 20)
    for value in range(20):
        array = np.full(8, value, np.float32)
        seen = buffers.inputs(run_with(Shared(f"key {value}", array)))["x"]
        assert seen.bytes.view(np.float32)[0] == value
        gone = weakref.ref(array)
        del array
    assert cuda.uploads == 20 and gone() is None


def test_the_longest_unused_inputs_leave_a_full_device() -> None:
    cuda = FakeCuda()
    buffers = launch.Buffers(cuda, 64)
    providers = [Shared(name, np.ones(8, np.float32)) for name in "abc"]
    for provider in (providers[0], providers[1], providers[0], providers[2], providers[0]):
        buffers.inputs(run_with(provider))
    assert [p.asked for p in providers] == [1, 1, 1]
    buffers.inputs(run_with(providers[1]))
    assert providers[1].asked == 2


def test_a_full_gpu_gives_up_inputs_and_tries_again() -> None:
    cuda = FakeCuda(room=100)
    buffers = launch.Buffers(cuda, 1 << 20)
    assert buffers.scratch("big", 1000).bytes.size == 1000
    assert "trim" in cuda.trace


def test_flush_is_larger_than_l2_and_known_without_it() -> None:
    assert launch.flush_bytes(60 << 20) == 120 << 20
    assert launch.flush_bytes(1 << 20) == 64 << 20
    assert launch.flush_bytes(None) == 256 << 20


def sampled(cuda: FakeCuda, *, cold: bool, repeats: int = 1, **changes):
    server = DeviceServer(lambda _: None, facts(**changes), 5.0, cuda=cuda)
    server.prepare(entry())
    return server, server.time("full", repeats, cold)


def test_a_cold_sample_is_flushed_last_thing_before_its_event() -> None:
    cuda = FakeCuda()
    _, sample = sampled(cuda, cold=True, repeats=2)
    assert cuda.trace == [
        *("upload", "launch", "fill"),
        *("flush", "event", "launch", "event"),
        *("flush", "event", "launch", "event"),
        "synchronize",
    ]
    assert sample.cold and sample.seconds == pytest.approx(1e-3)


def test_a_warm_sample_has_an_untimed_launch_first_and_nothing_between_its_events() -> None:
    cuda = FakeCuda()
    _, sample = sampled(cuda, cold=False, repeats=3)
    assert cuda.trace == [
        "upload",
        "launch",
        "fill",
        "event",
        "launch",
        "launch",
        "launch",
        "event",
        "synchronize",
    ]
    assert sample.seconds == pytest.approx(1e-3) and sample.launches == 3


def test_flush_makes_the_next_sample_cold_and_only_that() -> None:
    server, _ = sampled(FakeCuda(), cold=False)
    server.flush()
    assert [server.time("full", 1, False).cold for _ in range(2)] == [True, False]


def test_a_sample_holds_what_the_stamps_say() -> None:
    _, sample = sampled(FakeCuda(), cold=False)
    assert sample.busy_cycles == sample.wall_cycles == 1_500_000
    assert sample.flop_clk_sm == pytest.approx(8000 / 4 / 1_500_000)
    assert sample.sm_hz == pytest.approx(1.5e9, rel=1e-3)
    assert sample.waves == 8 / (SMS * 2)


def test_a_kernel_that_stamps_nothing_is_refused() -> None:
    cuda = FakeCuda()
    server, _ = sampled(cuda, cold=False)
    cuda.launch = lambda *_: None  # type: ignore[method-assign]
    with pytest.raises(LaunchError, match="full: 8 of 8 CTAs wrote no stamps"):
        server.time("full", 1, False)


def test_a_cuda_error_while_timing_is_sticky_and_names_the_case() -> None:
    cuda = FakeCuda()
    server, _ = sampled(cuda, cold=False)
    cuda.error = CUDARuntimeError(700, "cudaErrorIllegalAddress")
    with pytest.raises(faults.StickyError, match="full: timing: cudaErrorIllegalAddress"):
        server.time("full", 1, False)


def test_verified_outputs_are_slices_and_the_scan_is_of_everything() -> None:
    cuda = FakeCuda()
    server, _ = sampled(cuda, cold=False)
    found = server.verify("full", entry().run, (0, 3))
    assert np.array_equal(found.outputs["y"], 2 * np.arange(16).reshape(4, 4)[[0, 3]])
    assert found.scans["y"].elements == 16 and found.scans["y"].unwritten == 0
    assert server.verify("full", entry().run, None).outputs["y"].shape == (4, 4)
    cuda.unwritten = True
    assert server.verify("full", entry().run, (0,)).scans["y"].unwritten == 16


def test_the_watchdog_of_a_launch_starts_after_its_inputs() -> None:
    limits: list[float] = []
    server = DeviceServer(limits.append, facts(), 5.0, cuda=FakeCuda())
    server.prepare(entry())
    server.time("full", 1, False)
    assert limits[-2:] == [300.0, 5.0]


def test_warm_up_ends_when_the_clock_has_settled() -> None:
    server, _ = sampled(FakeCuda(), cold=False)
    result = server.warm_up(("full",), 30.0)
    assert result.settled and len(result.sm_hz) == 4 and result.seconds < 10
    assert (
        not settled([1.0, 1.0, 1.0])
        and not settled([1.0, 1.0, 1.0, 1.1])
        and settled([9.0, 1.0, 1.0, 1.0, 1.004])
    )


# ---- scan


@pytest.mark.parametrize(("dtype", "type_"), [("float16", np.float16), ("float32", np.float32)])
def test_scan_tells_poison_from_nan(dtype: str, type_: type) -> None:
    array = np.ones((3, 5), dtype=type_)
    assert scan.scan_array(array, dtype).first_bad is None
    array[1, 1], array[2, 0] = np.nan, -np.inf
    array.reshape(-1).view(f"u{array.itemsize}")[14] = -1 % 2 ** (8 * array.itemsize)
    found = scan.scan_array(array, dtype)
    assert (found.unwritten, found.nan, found.inf, found.first_bad) == (1, 1, 1, 6)


def test_scan_reads_bfloat16_bits() -> None:
    found = scan.scan_array(np.array([0x3F80, 0x7F80, 0x7FC0, 0xFFFF, 0xFF80], dtype=np.uint16), "bfloat16")
    assert (found.unwritten, found.nan, found.inf, found.first_bad) == (1, 1, 2, 2)


def test_the_scan_kernel_compiles() -> None:
    core = pytest.importorskip("cuda.core")
    options = core.ProgramOptions(arch="sm_90")
    names = core.Program(scan.KERNELS, "c++", options).compile("cubin").code
    assert b"scan_2" in names and b"scan_4" in names


# ---- providers


def test_study_inputs_travel_as_a_name_and_arrive_as_arrays() -> None:
    case = Case(
        study="s", levels=Values(a=1), configuration=Values(), problem="waves", name="full", set_name="full"
    )
    provider = StudyInputs(
        study="s", case=case, sizes=Values(n=4), fill="normal", seed=1, studies="test_gpu_pure:studies"
    )
    again = pickle.loads(pickle.dumps(provider))
    assert again.key == provider.key and hash(again.key) == hash(provider.key)
    assert len(pickle.dumps(provider)) < 2000
    assert np.array_equal(again.arrays()["x"], np.full(4, 1.0))


def studies():
    class Fake:
        @staticmethod
        def inputs(case, sizes, fill, seed):
            return {"x": np.full(sizes["n"], float(seed))}

    return {"s": Fake}


def test_fixed_inputs_with_other_bytes_have_another_key() -> None:
    keys = {FixedInputs(values={"x": np.full(3, value)}).key for value in (1.0, 1.0, 2.0)}
    assert len(keys) == 2


def test_entries_travel() -> None:
    copy = pickle.loads(pickle.dumps(entry()))
    assert copy.run.outputs == {"y": OutputSpec(shape=(4, 4), dtype="float32")} and copy.flops == 8000


# ---- lock

HOLDER = """
import sys, pathlib
from harness.gpu.lock import gpu_lock
with gpu_lock(sys.argv[1], folder=pathlib.Path(sys.argv[2])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def held(tmp_path):
    key = f"GPU-test-{os.getpid()}-{tmp_path.name}"
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, key, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield key, tmp_path, process
        process.kill()


def test_a_held_lock_names_its_holder_and_is_free_when_it_dies(held) -> None:
    key, folder, process = held
    with pytest.raises(BusyError, match=f"pid {process.pid}"), gpu_lock(key, folder=folder):
        pass
    process.kill()
    process.wait()
    with gpu_lock(key, folder=folder):
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="abstract sockets exist on Linux only")
def test_the_socket_holds_where_the_folders_differ(held, tmp_path_factory) -> None:
    key, _, process = held
    other = tmp_path_factory.mktemp("other")
    with pytest.raises(BusyError, match=f"pid {process.pid}"), gpu_lock(key, folder=other):
        pass


def test_the_file_holds_where_there_is_no_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.gpu.lock._lock_socket", lambda *_: None)
    with gpu_lock("GPU-f", folder=tmp_path), pytest.raises(BusyError, match=f"pid {os.getpid()}"):
        gpu_lock("GPU-f", folder=tmp_path).__enter__()
    with gpu_lock("GPU-f", folder=tmp_path):
        pass


def test_a_lock_is_held_against_its_own_process_too_and_others_are_free(tmp_path) -> None:
    with gpu_lock("GPU-a", folder=tmp_path), gpu_lock("GPU-b", folder=tmp_path), pytest.raises(BusyError):
        gpu_lock("GPU-a", folder=tmp_path).__enter__()
    with gpu_lock("GPU-a", folder=tmp_path):
        pass


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="abstract sockets exist on Linux only")
def test_an_unwritable_folder_leaves_the_socket(tmp_path) -> None:
    with gpu_lock("GPU-c", folder=tmp_path / "missing"), pytest.raises(BusyError):
        gpu_lock("GPU-c", folder=tmp_path / "missing").__enter__()
