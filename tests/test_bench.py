"""Benchmarks of cases: saved by GPU with plain numbers, compared on cycles, refused where they differ."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness import bench
from harness.bench.saved import load
from harness.cli import main
from harness.errors import RecordError, UsageError

ROOT = Path(__file__).resolve().parent.parent
CASES = tuple(
    f"instruction/{name}"
    for name in ("full", "chains=1,warps=1", "chains=1,warps=4", "chains=8", "chains=1,warps=16", "warps=16")
)


def run_bench(storage: Path, *cases: str, **asked: Any) -> subprocess.CompletedProcess[str]:
    chosen = [f"tests/bench/bench_device.py::test_case[{case}]" for case in cases]
    command = [sys.executable, "-m", "pytest", "-p", "fake_bench", "-q", *chosen]
    saving = ["--benchmark-autosave", "--benchmark-save-data", f"--benchmark-storage={storage}"]
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [*command, "-o", "python_files=bench_*.py", "-p", "no:cacheprovider", *saving],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths, "FAKE_BENCH": json.dumps(asked), "HOME": str(storage)},
        capture_output=True,
        text=True,
        timeout=120,
    )


def refuse(text: str) -> float:
    raise AssertionError(text)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two whole runs of one GPU, the second 3 % slower in one case."""
    folder = tmp_path_factory.mktemp("saved")
    done = run_bench(folder, *CASES)
    assert done.returncode == 0, done.stdout + done.stderr
    (first,) = saved(folder)
    edited(first, first.with_name("0002_later.json"), slow_down)
    return folder


def edited(path: Path, to: Path, edit: Callable[[dict[str, Any]], Any]) -> str:
    data = json.loads(path.read_text())
    edit(data)
    to.write_text(json.dumps(data))
    return str(to)


def slow_down(data: dict[str, Any]) -> None:
    for benchmark in data["benchmarks"]:
        info = benchmark["extra_info"]
        if info["case"] == "chains=1,warps=16":
            info["cycles_by_round"] = [1.03 * cycles for cycles in info["cycles_by_round"]]


def saved(storage: Path) -> list[Path]:
    return sorted(storage.glob("NVIDIA-H200-132-SMs*/*.json"))


def test_runs_are_saved_by_gpu_with_plain_numbers(storage: Path) -> None:
    first = saved(storage)[0]
    data = json.loads(first.read_text(), parse_constant=refuse)
    assert data["machine_info"]["gpu"]["name"] == "NVIDIA H200"
    assert data["machine_info"]["driver"]
    assert data["machine_info"]["nvrtc"]
    assert data["planned_benchmarks"] == len(data["benchmarks"]) > 3
    info = data["benchmarks"][0]["extra_info"]
    numbers = ("cycles", "flop_clk_sm", "tflop_s", "sm_hz", "registers", "threshold_percent", "flops")
    assert all(type(info[name]) in (int, float) for name in numbers)
    assert re.fullmatch("d{64}", info["source"])
    assert "UNSERIALIZABLE" not in first.read_text()


def test_seconds_are_those_of_the_gpu(storage: Path) -> None:
    for benchmark in json.loads(saved(storage)[0].read_text())["benchmarks"]:
        info, stats = benchmark["extra_info"], benchmark["stats"]
        assert stats["rounds"] == 20
        assert stats["median"] == pytest.approx(info["cycles"] / 1.8e9, rel=1e-9)
        assert len(stats["data"]) == 20


def test_its_own_compare_reads_the_files(storage: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_benchmark", f"--storage={storage}", "compare", "*/0001", "*/0002"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test_case[instruction/") >= 6


def test_a_three_percent_longer_loop_fails_and_is_named(
    storage: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--bench", str(storage)]) == 1
    text = capsys.readouterr().out
    assert re.search(
        r"regression: instruction/chains=1,warps=16: busy cycles rose by (2\.9\d|3\.0\d) %, "
        r"more than the 1 % allowed \(more is slower\)",
        text,
    )
    assert text.count("regression:") == 1
    assert max(map(len, text.splitlines()[:-2])) <= 80


def test_the_same_again_is_the_same(storage: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = str(saved(storage)[0])
    assert main(["compare", first, first]) == 0
    assert "same" in capsys.readouterr().out


def test_a_threshold_of_one_case_counts_for_it_alone(storage: Path) -> None:
    run = ["compare", "--bench", str(storage), "--case-threshold"]
    assert main([*run, "*chains=1,warps=16:3.5"]) == 0
    assert main([*run, "*chains=8*:3.5"]) == 1
    assert main(["compare", "--bench", str(storage), "--threshold", "3.5"]) == 0


def rename(data: dict[str, Any]) -> None:
    for benchmark in data["benchmarks"]:
        benchmark["extra_info"]["case"] += "_v2"
        benchmark["extra_info"]["cycles_by_round"] = [
            c * 10 for c in benchmark["extra_info"]["cycles_by_round"]
        ]


def test_c32_a_comparison_of_nothing_is_a_failure(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = saved(storage)[0]
    other = edited(first, tmp_path / "b.json", rename)
    assert main(["compare", str(first), other]) == 3
    text = capsys.readouterr().out
    assert "0 benchmarks matched" in text
    assert "only in A" in text
    assert "only in B" in text


def test_c32_a_subset_compares_on_what_both_have(
    storage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = saved(storage)[0]
    part = edited(first, tmp_path / "b.json", lambda data: data["benchmarks"].pop())
    assert main(["compare", str(first), part]) == 0
    assert "only in A: 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        (lambda info: info["cpu"].update(hz_actual=[2.5987e9, 0]), 0, ""),
        (lambda info: info["gpu"].update(name="NVIDIA A100", cc=[8, 0]), 2, "different GPUs"),
        (lambda info: info["gpu"].update(power_limit_w=350.0), 2, "power limit"),
        (lambda info: info.update(nvrtc="13.0.1"), 0, "NVRTC"),
    ],
    ids=["CPU clock", "GPU", "power limit", "NVRTC"],
)
def test_c33_only_what_matters_is_refused(
    storage: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[dict[str, Any]], None],
    status: int,
    words: str,
) -> None:
    first = saved(storage)[0]
    other = edited(first, tmp_path / "b.json", lambda data: change(data["machine_info"]))
    assert main(["compare", str(first), other]) == status
    shown = capsys.readouterr()
    assert words in shown.out + shown.err
    assert ("warning" in shown.out) == (words == "NVRTC")


def test_c35_a_stopped_run_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run_bench(tmp_path, CASES[1], CASES[4], CASES[2], fail=CASES[4], interrupt=CASES[2])
    assert done.returncode == 2, done.stdout + done.stderr
    assert "wrong: off by one" in done.stdout
    (path,) = saved(tmp_path)
    assert main(["compare", str(path), str(path)]) == 0
    assert "1 of 3 benchmarks" in " ".join(capsys.readouterr().out.split())


def test_without_two_runs_there_is_nothing_to_compare(tmp_path: Path, storage: Path) -> None:
    with pytest.raises(UsageError, match="no saved run"):
        bench.newest(tmp_path)
    folder = tmp_path / "gpu"
    folder.mkdir()
    (folder / "0001_x.json").write_bytes(saved(storage)[0].read_bytes())
    with pytest.raises(UsageError, match="only one saved run"):
        bench.newest(tmp_path)


@pytest.mark.parametrize("text", ["", "{}", '{"benchmarks": 1, "machine_info": {}}', "[1]"])
def test_a_foreign_or_cut_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=re.escape(str(path))):
        load(path)


def test_host_benchmarks_compare_on_seconds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(name: str, seconds: float) -> str:
        stats = {"data": [seconds * (1 + 0.01 * i) for i in range(6)], "q1": 1, "median": 1, "q3": 1}
        rows = [{"name": "test_render", "stats": stats, "extra_info": {}}]
        path = tmp_path / name
        path.write_text(json.dumps({"benchmarks": rows, "machine_info": {"gpu": None}, "datetime": "now"}))
        return str(path)

    assert main(["compare", run("a.json", 1.0), run("b.json", 1.1)]) == 0
    assert main(["compare", run("a.json", 1.0), run("c.json", 2.0)]) == 1
    assert "regression: host/test_render: seconds rose by 100.00 %" in capsys.readouterr().out


def test_cases_are_timed_by_the_pipeline_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from harness import pipeline
    from harness.cases import default_cases
    from tests.test_pipeline import GPU, STUDY, FakeGpu

    monkeypatch.setattr(pipeline, "find_gpu", lambda: GPU)
    monkeypatch.setattr(pipeline, "GpuDevice", lambda facts: FakeGpu(facts, {}))
    chosen = [case for case in default_cases(STUDY) if case.name == "chains=1,warps=4"]
    found = bench.measure({STUDY.name: STUDY}, chosen, rounds=6, cache=tmp_path)
    (name,) = (str(case) for case in chosen)
    assert {name, f"{STUDY.name}/full"} <= set(found.records)  # full comes along: its rounds are shared
    info = found.info(name)
    assert info["verdict"] in ("at-ceiling", "part-bound", "latency-bound", "unclear")
    assert len(info["cycles_by_round"]) == 6
    assert info["registers"] > 0
    assert info["flops"] > 0
    json.dumps(info, allow_nan=False)


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    from harness import pipeline
    from harness.errors import AblationError
    from tests.test_pipeline import STUDY

    monkeypatch.setattr(pipeline, "find_gpu", lambda: "there is no NVIDIA driver")
    with pytest.raises(AblationError, match="nothing was timed: there is no NVIDIA driver"):
        bench.measure({STUDY.name: STUDY}, [])


def test_the_timeline_counts_each_round_once() -> None:
    timeline = bench.DeviceTimeline()
    assert timeline.load([0.5, 0.25]) == 2
    seen = [timeline.read()]
    for _ in range(3):
        timeline.advance()
        seen.append(timeline.read())
    assert seen == [0.0, 0.5, 0.75, 0.75]


def test_machines_without_a_gpu_keep_their_own_folder() -> None:
    assert bench.machine_id("Linux-x", "no driver") == "Linux-x"
    assert bench.machine_info("no driver") == {"gpu": None, "no_gpu": "no driver"}
