"""The worker process: whatever its server does, the parent goes on and no child is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_gpu import FakeNvml, entry, facts

from harness.errors import HungError, LaunchError, NotSupportedError
from harness.gpu import nvml
from harness.gpu.device import GpuDevice
from harness.gpu.faults import StickyError
from harness.gpu.lock import BusyError
from harness.gpu.starting import last_words
from harness.gpu.worker import Worker


@pytest.fixture
def moody():
    worker = Worker("fake_gpu:Moody", call_seconds=10)
    yield worker
    worker.close()


def is_running(pid: int) -> bool:
    with suppress(ChildProcessError):
        # A child whose first thread is gone already can have others that are still ending.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_one_child_answers_many_calls_and_errors_do_not_end_it(moody: Worker) -> None:
    first = moody.call("echo", {"a": 1})
    with pytest.raises(LaunchError, match="ZeroDivisionError: nothing to divide by") as info:
        moody.call("fail")
    assert "fail" in info.value.detail
    with pytest.raises(NotSupportedError, match="needs 2 bytes"):
        moody.call("unsupported")
    with pytest.raises(LaunchError, match="AttributeError"):
        moody.call("no_such_method")
    with pytest.raises(LaunchError, match=r"pickle|lambda"):
        moody.call("unpicklable")
    second = moody.call("echo", 2)
    assert first[0] == {"a": 1} and second[1] == 2 and first[2] == second[2] != os.getpid()
    assert moody.generation == 1
    pid = moody.pid
    assert pid is not None
    moody.close()
    assert not is_running(pid) and moody.pid is None


@pytest.mark.parametrize(
    ("method", "words"),
    [("die", "ended with status 9"), ("abort", "ended by SIGABRT")],
)
def test_a_crash_is_an_error_and_the_next_call_has_a_fresh_child(
    moody: Worker, method: str, words: str
) -> None:
    moody.call("echo", 1)
    with pytest.raises(LaunchError, match=rf"case 7.*{words}"):
        moody.call(method, doing="case 7")
    assert moody.call("echo", 1)[1] == 1
    assert moody.generation == 2


def test_a_sticky_error_and_a_hang_end_the_child(moody: Worker) -> None:
    pid = moody.call("echo", 1)[2]
    with pytest.raises(StickyError):
        moody.call("stick")
    assert not is_running(pid)
    pid = moody.call("echo", 1)[2]
    with pytest.raises(HungError, match=r"case 8: no answer within 0\.2 s"):
        moody.call("hang", doing="case 8", seconds=0.2)
    assert not is_running(pid)


def test_a_method_may_move_its_own_limit(moody: Worker) -> None:
    moody.ensure()
    assert moody.call("slow", 0.6, 30.0, seconds=0.3) == "done"
    with pytest.raises(HungError, match=r"within 0\.1 s"):
        moody.call("slow", 30.0, 0.1, seconds=30.0)


def test_a_child_that_was_killed_between_calls_is_replaced(moody: Worker) -> None:
    pid = moody.call("echo", 1)[2]
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert moody.call("echo", 1)[1] == 1


def test_a_slow_start_is_waited_for_up_to_its_limit() -> None:
    worker = Worker("fake_gpu:Moody", (30.0,), start_seconds=0.5)
    with pytest.raises(HungError, match=r"starting the GPU worker: no answer within 0\.5 s"):
        worker.call("echo", 1)
    assert worker.pid is None


def test_a_server_that_cannot_start_says_why() -> None:
    worker = Worker("fake_gpu:stillborn")
    with pytest.raises(LaunchError, match="ValueError: no GPU in this child"):
        worker.call("echo", 1)
    assert worker.pid is None


def test_a_worker_that_never_comes_up_is_given_up_after_three_starts() -> None:
    worker = Worker("fake_gpu:stillborn")
    with pytest.raises(LaunchError, match=r"did not come up in 3 starts: .*no GPU in this child") as info:
        worker.come_up()
    assert "stillborn" in info.value.detail
    assert worker.generation == 3 and worker.pid is None


def test_a_worker_that_comes_up_is_not_started_again(moody: Worker) -> None:
    moody.come_up()
    moody.come_up()
    assert moody.call("echo", 1)[1] == 1 and moody.generation == 1


def test_a_run_on_a_device_without_a_worker_starts_three_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness import cli, pipeline

    workers = [Worker("fake_gpu:stillborn")]
    board = nvml.open_nvml("0000:10:00.0", None, module=FakeNvml())
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(pipeline, "find_gpu", facts)
    monkeypatch.setattr(pipeline, "GpuDevice", lambda found: GpuDevice(found, worker=workers[0], nvml=board))
    words = ["run", "instruction", "--results", str(tmp_path / "r"), "--cache", str(tmp_path / "c")]
    assert cli.main([*words, "--case", "full", "--perturbations", "1", "--force-busy"]) == 1
    first, *detail = capsys.readouterr().err.splitlines()
    assert first.startswith("ablate: the GPU worker did not come up in 3 starts: ")
    assert first.endswith("ValueError: no GPU in this child")
    assert any("stillborn" in line for line in detail)
    assert workers[0].generation == 3 and not (tmp_path / "r" / "records").exists()


UNGUARDED = """
import sys
from harness.errors import LaunchError
from harness.gpu.worker import Worker
worker = Worker("fake_gpu:Moody")
try:
    worker.come_up()
except LaunchError as error:
    print(error.message, error.detail, sep="\\n")
print("still here", file=sys.stderr)
"""


def test_a_script_without_the_guard_is_told_so_with_the_workers_own_words(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(UNGUARDED)
    path = os.pathsep.join([str(Path(__file__).parent.parent), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, str(script)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, *detail = done.stdout.splitlines()
    assert "did not come up in 3 starts" in first and 'below `if __name__ == "__main__":`' in first
    assert any("start a new process before" in line for line in detail)
    # What the workers wrote is in the error, once, and this process's own errors go where they went.
    assert done.stderr == "still here\n"


def test_a_worker_that_is_up_writes_its_errors_where_ours_go(moody: Worker, capfd: Any) -> None:
    moody.call("shout", "heard")
    assert capfd.readouterr().err == "heard\n"


def test_a_disk_without_room_for_last_words_is_no_obstacle(
    moody: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert moody.call("echo", 1)[1] == 1
    with pytest.raises(LaunchError, match="ended with status 9"):
        moody.call("die")


def test_only_the_end_of_long_last_words_is_kept(tmp_path: Path) -> None:
    with (tmp_path / "words").open("w+b") as file:
        file.write(b"".join(b"line %d\n" % i for i in range(5000)))
        kept = last_words(file).splitlines()
    assert kept[-1] == "line 4999" and len(kept) < 500
    assert kept == [f"line {i}" for i in range(5000 - len(kept), 5000)]


def test_a_closed_standard_error_is_no_obstacle() -> None:
    code = (
        "from harness.gpu.worker import Worker\nif __name__ == '__main__': Worker('fake_gpu:Moody').come_up()"
    )
    path = os.pathsep.join([str(Path(__file__).parent.parent), str(Path(__file__).parent)])
    line = f'exec {sys.executable} -c "{code}" 2>&-'
    subprocess.run(["sh", "-c", line], env={**os.environ, "PYTHONPATH": path}, check=True, timeout=60)


def test_ctrl_c_in_the_parent_leaves_no_child(moody: Worker) -> None:
    pid = moody.call("echo", 1)[2]
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        moody.call("hang", seconds=30)
    timer.join()
    assert not is_running(pid)


PARENT = """
import sys
from harness.gpu.worker import Worker
if __name__ == "__main__":
    worker = Worker("fake_gpu:Moody")
    print(worker.call("echo", 1)[2], flush=True)
    worker.call("hang", seconds=600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_child_ends_with_its_parent(tmp_path: Path, number: int) -> None:
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    path = os.pathsep.join([str(Path(__file__).parent.parent), str(Path(__file__).parent)])
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_running(child)
        parent.send_signal(number)
        parent.wait(10)
    deadline = time.monotonic() + 5
    while is_running(child) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not is_running(child)


# ---- the device over the worker


@pytest.fixture
def device():
    worker = Worker("fake_gpu:FakeServer", (facts(), 5.0), call_seconds=10)
    with GpuDevice(
        facts(), worker=worker, nvml=nvml.open_nvml("0000:10:00.0", None, module=FakeNvml())
    ) as device:
        yield device


def test_a_bad_kernel_costs_one_row(device: GpuDevice) -> None:
    for name, kernel in (("full", "ok"), ("a", "dies"), ("b", "illegal"), ("c", "hangs")):
        assert device.prepare(entry(name, kernel)).registers == 32
    seconds = [device.time("full", 2).seconds]
    for name, error in (("a", LaunchError), ("b", StickyError), ("c", HungError)):
        with pytest.raises(error, match=name if name != "b" else "illegal"):
            device.time(name)
        # A fresh worker gets full again when it is asked for.
        seconds.append(device.time("full", 2).seconds)
    assert seconds == pytest.approx([1e-3] * 4)
    assert device.verify("full", slices=(1,)).outputs["y"].shape == (1, 4)
    assert device.warm_up(seconds=5).settled
    device.flush()
    assert device.time("full").cold
    assert device.state().reported_hz == 210e6


def test_an_entry_that_cannot_run_here_is_not_kept(device: GpuDevice) -> None:
    with pytest.raises(NotSupportedError):
        device.prepare(entry("big", "too big"))
    with pytest.raises(LaunchError, match="big: was never prepared"):
        device.time("big")


def test_a_busy_gpu_is_refused_unless_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("harness.gpu.device.wait_idle", lambda ask: ask())
    busy = nvml.open_nvml("0000:11:00.0", None, module=FakeNvml())
    device = GpuDevice(facts(uuid=f"GPU-busy-{os.getpid()}"), worker=Worker("fake_gpu:Moody"), nvml=busy)
    with pytest.raises(BusyError, match="pid 4242"), device.reserved():
        pass
    with device.reserved(allow_busy=True), pytest.raises(BusyError, match=f"pid {os.getpid()}"):
        device.reserved(allow_busy=True).__enter__()


def test_the_engine_measures_on_the_device(device: GpuDevice) -> None:
    engine = pytest.importorskip("harness.engine")
    for name, kernel in (("full", "ok"), ("bad", "dies"), ("other", "ok")):
        device.prepare(entry(name, kernel))
    entries = [engine.Entry(id=name, full="full") for name in ("full", "bad", "other")]
    session = engine.measure(device, entries, engine.Plan(rounds=3, warm_up_seconds=1.0))
    assert [session.results[name].status for name in ("full", "bad", "other")] == [
        "ok",
        "launch_failed",
        "ok",
    ]
    assert session.results["full"].samples[0].busy_cycles == 1_500_000
