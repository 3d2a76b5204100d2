"""Records -> numbers -> tables: what is derived, what is shown, what stays empty."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import record_files as made

from harness import publish
from harness.publish.collect import find, read_all
from harness.publish.section import rows_of


def rows(root: Path, known: dict[str, publish.StudyFacts] | None = None) -> list[dict[str, Any]]:
    files, problems = read_all(find(root))
    assert problems == ()
    return [dict(row) for row in rows_of(publish.frame(files, known))]


def by_case(found: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["case"]: row for row in found if row["latest"]}


def tables(root: Path, known: dict[str, publish.StudyFacts] | None = None) -> tuple[Any, ...]:
    files, _ = read_all(find(root))
    return publish.sections(publish.frame(files, known), files, known)


def table(root: Path, columns: int = 80, **more: Any) -> str:
    return publish.terminal(find(root), root, columns=columns, **more)


def test_shares_are_taken_in_flop_per_clock_of_named_peaks(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[2048.0]))
    (row,) = rows(tmp_path)
    assert row["chip_peak"] == 4096
    assert row["chip_peak_name"] == "wgmma fp16 f32-acc"
    assert row["chip_percent"] == pytest.approx(50.0)
    assert row["own_peak_name"] == "mma.sync fp16 f32-acc"
    assert row["own_percent"] == pytest.approx(75.0, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "sms", "cc", "acc", "tflops", "own", "other"),
    [
        ("NVIDIA GeForce RTX 4090", 128, [8, 9], "f32", 160.0, 96.9, 48.4),
        ("NVIDIA GeForce RTX 3090", 82, [8, 6], "f32", 66.0, 93.0, 46.5),
        ("NVIDIA A100-SXM4-40GB", 108, [8, 0], "f32", 160.0, 51.3, 51.3),
    ],
)
def test_half_rate_chips_show_both_percentages(
    tmp_path: Path, gpu: str, sms: int, cc: list[int], acc: str, tflops: float, own: float, other: float
) -> None:
    from harness.chips import identify

    chip = identify(gpu, sms)
    assert chip is not None
    rate = tflops * 1e12 / sms / chip.boost_hz
    card = {**made.H200, "name": gpu, "sms": sms, "cc": cc}
    work = {"flops": 1, "mma_path": "mma.sync", "input": "fp16", "acc": acc}
    made.results(tmp_path, made.record(rates=[rate], gpu=gpu, work=work), gpu=card)
    (row,) = rows(tmp_path)
    assert row["own_percent"] == pytest.approx(own, abs=0.3)
    assert row["chip_percent"] == pytest.approx(other, abs=0.3)


def test_an_unknown_gpu_has_no_percentage(tmp_path: Path) -> None:
    card = {**made.H200, "name": "NVIDIA X9000"}
    made.results(tmp_path, made.record(gpu="NVIDIA X9000"), gpu=card)
    (row,) = rows(tmp_path)
    assert row["own_percent"] is None
    assert row["chip_percent"] is None
    assert row["flop_clk_sm"] == 2000
    assert "the peak is not known for this GPU" in table(tmp_path)


def test_tflops_come_from_the_median_time(tmp_path: Path) -> None:
    times = made.samples([2000.0, 2000.0, 2000.0])
    times["seconds"] = [1e-3, 2e-3, 9e-3]
    made.results(tmp_path, made.record(samples=times, work={"flops": 4 * 10**12}))
    (row,) = rows(tmp_path)
    assert row["tflop_s"] == pytest.approx(2000.0)


def test_ratio_is_the_median_of_ratios_within_rounds(tmp_path: Path) -> None:
    # The ratio of the medians would be 1.0: the drift over the rounds hits both cases alike.
    made.results(
        tmp_path,
        made.record(rates=[100.0, 200.0, 300.0]),
        made.record("copy=stripped@m128", [200.0, 200.0, 330.0]),
    )
    assert by_case(rows(tmp_path))["copy=stripped@m128"]["ratio"] == pytest.approx(1.1)


def test_ratio_needs_the_configuration_and_the_run_of_full(tmp_path: Path) -> None:
    other = made.record("copy=stripped@m64", [2100.0], configuration={"block_m": 64}, set="ceiling")
    made.results(tmp_path, made.record(), other)
    late = made.header(run="b" * 32, started="2026-12-01T00:00:00Z")
    made.write(tmp_path / "records/demo/x/two.jsonl", late, [made.record("copy=stripped@m128", [2500.0])])
    found = by_case(rows(tmp_path))
    assert found["copy=stripped@m64"]["ratio"] is None
    assert found["copy=stripped@m128"]["ratio"] is None


def test_ceiling_is_the_best_over_configurations_of_ok_rows(tmp_path: Path) -> None:
    stripped = {"copy": "stripped"}
    made.results(
        tmp_path,
        made.record("copy=stripped@m128", [2400.0], levels=stripped),
        made.record("copy=stripped@m64", [2600.0], levels=stripped, configuration={"block_m": 64}),
        made.failed("copy=stripped@m32", "wrong", "off", levels=stripped, configuration={"block_m": 32}),
    )
    (section,) = tables(tmp_path)
    row = by_case(list(section.rows))["copy=stripped@m128"]
    assert row["ceiling"] == 2600
    assert row["ceiling_at"] == "m64"


def test_failures_have_a_reason_and_never_a_number(tmp_path: Path) -> None:
    statuses = ["compile_failed", "launch_failed", "not_supported", "hung", "noisy", "below_floor"]
    bad = [made.failed(f"{s}=1@m128", s, f"because of {s}") for s in statuses]
    made.results(tmp_path, made.record(rates=[650.0]), *bad)
    data = publish.frame(read_all(find(tmp_path))[0])
    rates = data["flop_clk_sm"].dropna().astype(float)
    assert list(rates) == [650.0]
    assert (rates.max(), rates.mean(), rates.min()) == (650.0, 650.0, 650.0)
    text = table(tmp_path)
    for status in statuses:
        assert f"{status}: because of {status}" in text


def test_a_bistable_row_is_marked(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(samples=made.samples([2000.0], spread=0.046, gap=0.03)))
    assert "bistable: the SMs of one launch fall into two groups" in table(tmp_path)


def test_a_repeat_shows_the_newest_and_never_a_mean(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[600.0]))
    late = made.header(run="b" * 32, started="2026-12-01T00:00:00Z")
    made.write(tmp_path / "records/demo/NVIDIA H200/two.jsonl", late, [made.record(rates=[610.0])])
    text = table(tmp_path)
    assert "610.0" in text
    assert "600.0" not in text
    assert "605" not in text
    assert len(rows(tmp_path)) == 2


def test_boards_of_one_product_stay_apart(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[600.0]))
    head = made.header({**made.H200, "uuid": "GPU-2"}, run="b" * 32, started="2026-12-01T00:00:00Z")
    made.write(tmp_path / "records/demo/NVIDIA H200/two.jsonl", head, [made.record(rates=[610.0])])
    text = table(tmp_path)
    assert "600.0" in text
    assert "610.0" in text
    assert text.count("demo on NVIDIA H200\n") == 2


def test_other_fill_is_another_table(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[600.0]))
    zeros = made.record(rates=[640.0], conditions={"fill": "zeros", "l2": "warm"})
    head = made.header(run="b" * 32, started="2026-12-01T00:00:00Z")
    made.write(tmp_path / "records/demo/NVIDIA H200/two.jsonl", head, [zeros])
    text = table(tmp_path)
    assert "inputs normal" in text
    assert "inputs zeros" in text


def test_rows_stand_in_the_order_of_the_study(tmp_path: Path) -> None:
    names = ["c@m128", "a@m128", "b@m128"]
    made.results(tmp_path, *(made.record(name, [100.0]) for name in names))
    assert [row["case"] for row in rows(tmp_path)] == names
    known = {"demo": publish.StudyFacts(cases=["b@m128", "c@m128"])}
    assert [row["case"] for row in rows(tmp_path, known)] == ["b@m128", "c@m128", "a@m128"]


def test_a_partial_file_is_labelled_everywhere(tmp_path: Path) -> None:
    root = tmp_path / "results"
    made.write(root / "records/demo/g/cut.jsonl", made.header(planned=2), [made.record()], complete=False)
    assert "PARTIAL" in table(root)
    assert "1 of 2" in table(root)
    publish.publish(root)
    (page,) = (root / "tables").glob("demo*.md")
    assert "**PARTIAL" in page.read_text()
    assert "**partial**" in (root / "README.md").read_text()


LONG = "head_dim=128,gmem_copy=stripped,smem_copy=stripped,softmax=pack_only@m128n32w4s2r8+paper"


def wide_table(root: Path) -> None:
    notes = {**made.record()["build"], "notes": ["a long note " * 12, "short"]}
    made.results(
        root,
        made.record(rates=[12345.678]),
        made.record(LONG, [2.0], build=notes),
        made.failed("x|y@m128", "skipped", "why " * 40),
        made.failed(LONG + "2", "wrong", "w" * 200),
    )
    built = []
    for arch in ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_120a"):
        for case in ("full@m128", LONG):
            build = {**made.record()["build"], "registers": len(arch) * 40, "dynamic_bytes": 232448}
            target = {"arch": arch, "gpu": None}
            built.append(made.record(case, None, gpu=None, build=build, target=target))
    made.write(root / "records/demo/sm/b.jsonl", made.header(None, run="c" * 32), built)


@pytest.mark.parametrize("columns", [60, 80, 100, 132, 200, 400])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, columns: int) -> None:
    wide_table(tmp_path)
    lines = table(tmp_path, columns).splitlines()
    assert max(map(len, lines)) <= columns
    assert "12345.7" in "\n".join(lines)


def test_a_wider_terminal_shows_more_columns(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(), made.record("copy=stripped@m128", [2400.0]))
    narrow, wide = table(tmp_path, 80), table(tmp_path, 180)
    for head in ("clk/SM", "TFLOP/s", "% of", "vs full"):
        assert head in narrow
    assert "smem B" not in table(tmp_path, 60)
    for head in ("MHz", "chip", "ceiling", "regs", "spill", "smem B", "CTA/", "MMA"):
        assert head in wide


def test_a_wrapped_name_loses_nothing(tmp_path: Path) -> None:
    wide_table(tmp_path)
    text = "".join(line.split("  ")[0].strip() or line.strip() for line in table(tmp_path, 70).splitlines())
    assert LONG.partition("@")[0].split(",")[2] in text
    assert "pack_only" in text


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    made.results(tmp_path, made.failed("a\x1b[31mb@m128", "wrong", "bell \x07 and\nline"))
    text = table(tmp_path)
    assert "\x1b" not in text
    assert "\x07" not in text


def test_the_built_table_shows_each_architecture_and_other_machines(tmp_path: Path) -> None:
    wide_table(tmp_path)
    text = publish.terminal([tmp_path / "records/demo/sm/b.jsonl"], tmp_path, columns=80)
    for arch in ("sm_80", "sm_87", "sm_90a", "sm_100a", "sm_120a"):
        assert arch in text
    assert "sm_80, sm_86, sm_87, sm_89" in " ".join(text.split())
    assert "[A] FLOP/clk/SM recorded on NVIDIA H200" in text
    assert "12345.7" in text
    for head in ("MMA", "regs", "spill", "smem B", "CTA/SM"):
        assert head in text


def built_for(root: Path, *archs: str) -> Path:
    """A file of a case that was only built, as often differently as there are architectures."""
    rows = []
    for i, arch in enumerate(archs):
        build = {**made.record()["build"], "registers": 100 + i}
        rows.append(made.record("full@m128", None, gpu=None, build=build, target={"arch": arch, "gpu": None}))
    return made.write(root / "records/demo/sm/b.jsonl", made.header(None, run="c" * 32), rows)


@pytest.mark.parametrize("columns", [70, 80, 200])
def test_what_a_gpu_recorded_stands_in_the_block_of_its_architecture(tmp_path: Path, columns: int) -> None:
    made.results(tmp_path, made.record(rates=[1234.5]))
    file = built_for(tmp_path, "sm_80", "sm_90a", "sm_120a")
    text = publish.terminal([file], tmp_path, columns=columns)
    strip = next(part for part in text.split("\n\n") if "1234.5" in part).splitlines()
    row = next(line for line in strip if "1234.5" in line)
    assert re.search(r" 101 .* 1234\.5( +128|$)", row)
    assert (row.find(" 102 ") == -1) == (columns < 200)
    assert columns < 200 or row.index("1234.5") < row.index(" 102 ")
    assert strip[0].startswith("[A] FLOP/clk/SM recorded on NVIDIA H200 (sm_90a)")
    assert text.count("[A] FLOP") == 1


def test_what_a_gpu_of_no_block_recorded_is_left_out(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[1234.5]))
    text = publish.terminal([built_for(tmp_path, "sm_80", "sm_90")], tmp_path)
    assert "recorded on" not in text
    assert "1234.5" not in text


def test_what_a_gpu_recorded_is_the_median_over_the_texts_of_its_newest_run(tmp_path: Path) -> None:
    made.results(
        tmp_path, *(made.record(rates=[rate], perturbation=i) for i, rate in enumerate((9e3, 9e3, 9e3)))
    )
    texts = [made.record(rates=[rate], perturbation=i) for i, rate in enumerate((1300.0, 1100.0, 1200.0))]
    made.results(tmp_path, *texts, name="two", run="f" * 32, started="2026-11-30T14:20:00Z")
    file = built_for(tmp_path, "sm_90a")
    (measured,) = (section for section in tables(tmp_path) if section.gpu)
    assert measured.rows[0]["flop_clk_sm"] == 1200.0
    text = publish.terminal([file], tmp_path)
    assert "1200.0" in text
    assert not re.search("9000|1300|1100", text)
    publish.publish(tmp_path, built=True)
    assert "1200.0" in (tmp_path / "tables/demo-built.md").read_text()


def test_a_column_that_leads_a_strip_says_which_block_it_is_of(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[12345678901.5]))
    text = publish.terminal([built_for(tmp_path, "sm_80", "sm_90a")], tmp_path, columns=63)
    (strip,) = (part for part in text.split("\n\n") if "12345678901.5" in part)
    title, head, _, row = strip.splitlines()[-4:]
    assert "sm_90a), median" in strip
    assert (title.split(), head.split(), row.split()) == (
        ["sm_90a"],
        ["case", "[A]"],
        ["full", "12345678901.5"],
    )


def test_the_caption_says_how_the_table_came_about(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())
    text = " ".join(table(tmp_path).split())
    for fact in (
        "NVIDIA H200, 132 SMs, compute capability 9.0",
        "driver 580.159",
        "NVRTC 13.5.37",
        "1980 MHz reported by the driver",
        "1800 MHz run",
        "problem waves",
        "inputs normal",
        "L2 warm",
        "2026-11-30T13:20:00Z",
        "commit 1234567890ab",
        "ablate run demo",
        "2730.67 FLOP/clk/SM",
    ):
        assert fact in text, fact


def test_csv_numbers_are_plain(tmp_path: Path) -> None:
    wide_table(tmp_path)
    publish.publish(tmp_path)
    for path in (tmp_path / "tables").glob("*.csv"):
        assert not {"nan", "inf", "None", "-inf"} & set(path.read_text().replace("\n", ",").split(","))


def test_records_are_json_without_nan(tmp_path: Path) -> None:
    made.results(tmp_path, made.record())

    def refuse(text: str) -> float:
        raise AssertionError(text)

    for path in find(tmp_path):
        for line in path.read_text().splitlines():
            json.loads(line, parse_constant=refuse)
    assert all(not isinstance(v, float) or math.isfinite(v) for row in rows(tmp_path) for v in row.values())
