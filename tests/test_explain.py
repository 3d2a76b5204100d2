"""`ablate explain`: verdicts from record files in words, tables, JSON; predictions for what was not timed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import main
from tests.answer_files import timed
from tests.record_files import H200, counters, header, write

PARTS = {"gmem_copy": 0.5, "smem_copy": 1.0, "softmax": 2.0}
FLOOR = 1.6


def levels_of(*stripped: str) -> dict[str, Any]:
    import ablations

    base = dict(ablations.load()["attention"].baseline)
    for name in stripped:
        base[name] = "pack_only" if name == "softmax" else "stripped"
    return base


def records(folder: Path, *, gpu: dict[str, Any] = H200, floor: float = FLOOR, **more: Any) -> Path:
    """A results folder of a study with three of its parts stripped singly, and its floor."""
    made = []
    total = sum(PARTS.values())
    for stripped in ((), *((name,) for name in PARTS), ("gmem_copy", "barriers"), (*PARTS, "barriers")):
        cost = floor + total - sum(PARTS.get(name, 0.0) for name in stripped)
        name = ",".join(f"{part}=stripped" for part in stripped) or "full"
        made += timed(name, max(cost, 0.1), levels_of(*stripped), study="attention", gpu=gpu["name"], **more)
    write(folder / "attention" / "gpu" / "one.jsonl", header(gpu), made)
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(["explain", *arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_a_verdict_comes_with_evidence_and_a_table_in_80_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = said(capsys, "--records", str(records(tmp_path)))
    assert status == 0
    words = " ".join(out.split())
    assert "Part-bound, by softmax, then smem_copy, then gmem_copy" in words
    assert "of the mma.sync fp32-accumulate peak of this GPU (2731 FLOP/clk/SM, table)" in words
    assert "Removed from full, one at a time, these save of its cycles: softmax 39.2 %" in words
    assert "gmem_copy + barriers" in words and "no shares: 6 of 12 sets were not measured" in words
    assert "one build a case, so code generation was not sampled" in words
    assert max(map(len, out.splitlines())) <= 80
    assert any(line.startswith("softmax ") and "39.2 %" in line for line in out.splitlines())


def test_json_holds_the_same_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = said(capsys, "attention", "--records", str(records(tmp_path)), "--json")
    (found,) = json.loads(out)["verdicts"]
    assert status == 0 and found["verdict"] == "part-bound"
    assert found["named"] == [["softmax"], ["smem_copy"], ["gmem_copy"]]
    rows = {tuple(row["parts"]): row for row in found["attribution"]["rows"]}
    assert rows["softmax",]["exposed"]["value"] == pytest.approx(2.0, abs=0.05)
    assert found["peaks"]["chip"]["name"].startswith("wgmma")


def test_counters_of_full_are_told_and_in_the_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    read = counters(tensor_active_percent=29.2, stalled_wait=1.14, stalled_math_pipe_throttle=0.52)
    folder = records(tmp_path / "with", counters=read)
    _, out, _ = said(capsys, "--records", str(folder))
    assert (
        "Nsight Compute 2025.3.1: tensor pipe active 29 % of the time; top stall wait, 1.14 clk per "
        "instruction issued, math pipe throttle 0.52. " in " ".join(out.split())
    )
    assert max(map(len, out.splitlines())) <= 80
    _, out, _ = said(capsys, "--records", str(folder), "--json")
    assert json.loads(out)["verdicts"][0]["counters"] == read
    without = str(records(tmp_path / "without"))
    _, out, _ = said(capsys, "--records", without)
    assert "Nsight" not in out
    _, out, _ = said(capsys, "--records", without, "--json")
    assert json.loads(out)["verdicts"][0]["counters"] is None


def test_a_named_gpu_shows_its_own_records_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = {**H200, "name": "NVIDIA GeForce RTX 4090", "sms": 128, "uuid": "GPU-2", "cc": [8, 9]}
    folder = records(tmp_path)
    made = timed("full", 8.12, levels_of(), study="attention", gpu=other["name"], noise=0.0005)
    write(folder / "attention" / "4090" / "two.jsonl", header(other, run="b" * 32), made)
    _, out, _ = said(capsys, "--records", str(folder), "--gpu", "geforce rtx 4090")
    words = " ".join(out.split())
    assert "on NVIDIA GeForce RTX 4090" in words and "H200" not in words
    assert "At ceiling: 98 % of the mma.sync fp32-accumulate peak" in words
    assert "that is 49 % of its fp16-accumulate peak, so a profiler percentage near 49 % is expected" in words


def test_a_chip_one_does_not_own_is_predicted_and_labelled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (
        "instruction",
        "--gpu",
        "RTX 4090",
        "--records",
        str(tmp_path),
        "--cache",
        str(tmp_path / "c"),
    )
    status, out, _ = said(capsys, *arguments)
    words = " ".join(out.split())
    assert status == 0 and max(map(len, out.splitlines())) <= 80
    assert "instruction on NVIDIA GeForce RTX 4090: predicted, not measured" in words
    assert "165 TFLOP/s" in words and "50 % of 330" in words and "of which peak" in words
    assert "No record of this GPU was found" in words
    _, out, _ = said(capsys, *arguments, "--json")
    made = json.loads(out)["predictions"]
    assert {row["type"] for row in made} == {"predicted"} and all(row["samples"] is None for row in made)
    assert made[0]["predicted"]["binding"] == "tensor"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--gpu", "RTX 4090 D"), "nothing is known of a GPU 'RTX 4090 D'"),
        (("--gpu", "Tesla T4"), "is not supported here"),
        (("nosuch",), "no study 'nosuch'"),
        ((), "no measured records under"),
    ],
)
def test_what_cannot_be_explained_is_one_line_and_status_2(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = said(capsys, *arguments, "--records", str(tmp_path))
    assert status == 2 and out == "" and message in err and err.count("\n") == 1


def test_a_file_that_cannot_be_read_is_named_and_the_others_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = records(tmp_path)
    (folder / "foreign.jsonl").write_text("{}\n")
    status, out, err = said(capsys, "--records", str(folder))
    assert status == 0 and "Part-bound" in out and "foreign.jsonl:1: not a record file" in err


def test_a_measurement_over_its_bound_is_called_an_error_of_the_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = {
        "flops": 132 * 1000 * 4096,
        "flops_per_mma": 4096,
        "mma_per_cta": 1000,
        "iterations": 10,
        "mma_path": "mma.sync",
        "input": "fp16",
        "acc": "f32",
    }
    launch = {"grid": [132, 1, 1], "block": 128, "shared_bytes": 0}
    folder = records(
        tmp_path, floor=-2.1, work=work, launch=launch
    )  # full: 1.4 cycles an MMA, 1.5 is the least
    _, out, _ = said(capsys, "--records", str(folder))
    assert "ERROR OF THE SUITE: it beats the bound" in " ".join(out.split())
