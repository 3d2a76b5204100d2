"""`ablate predict`: files of bounds that are written once, and shown as what they are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import record_files as made

import ablations
from harness import chips, cli, publish
from harness.build.cache import Cache
from harness.cli.choose import load_story
from harness.model import Study
from harness.pipeline.predicting import Outcome, predict_study
from harness.progress import Quiet
from harness.publish.collect import find, read_all
from harness.publish.columns import ESTIMATE
from harness.store import read, validate

CEILING_OF_F32 = {"NVIDIA GeForce RTX 4090": (165, 50), "NVIDIA A100-SXM4-40GB": (312, 100)}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def instruction() -> Study:
    return ablations.load()["instruction"]


def predict(study: Study, name: str, results: Path, cache: Cache) -> Outcome:
    product = chips.chip(name)
    assert product is not None
    return predict_study(study, product, results, cache, Quiet(), command="ablate predict", simulate=False)


def test_a_file_of_predictions_is_valid_and_small(instruction: Study, tmp_path: Path, cache: Cache) -> None:
    found = predict(instruction, "RTX 4090", tmp_path, cache)
    assert found.written
    assert validate(found.path) == []
    file = read(found.path)
    assert file.partial is None
    assert file.header["environment"]["gpu"] is None
    assert "predicted from machine code" in file.header["reason_not_timed"]
    assert {record["type"] for record in file.records} == {"predicted"}
    assert {record["target"]["gpu"] for record in file.records} == {"NVIDIA GeForce RTX 4090"}
    assert all(record["samples"] is None and record["checks"] == [] for record in file.records)
    assert all("loop" not in (record["build"] or {}) for record in file.records)
    assert found.path.stat().st_size < 4096 * len(file.records)


@pytest.mark.parametrize("name", list(CEILING_OF_F32))
def test_the_loop_of_mmas_alone_is_at_its_own_peak_and_says_of_which(
    instruction: Study, tmp_path: Path, cache: Cache, name: str
) -> None:
    records = read(predict(instruction, name, tmp_path, cache).path).records
    fulls = {(r["levels"]["dtype"], r["levels"]["acc_dtype"]): r for r in records if r["set"] == "full"}
    single, half = (fulls["fp16", acc]["predicted"] for acc in ("f32", "f16"))
    tera, of_chip = CEILING_OF_F32[name]
    assert single["tflop_s"] == pytest.approx(tera, abs=0.5)
    assert single["peaks"]["own"]["percent"] == pytest.approx(100)
    assert single["peaks"]["chip"]["percent"] == pytest.approx(of_chip)
    assert half["tflop_s"] == pytest.approx(100 * tera / of_chip, abs=0.5)


def test_an_unchanged_prediction_is_not_written_again(
    instruction: Study, tmp_path: Path, cache: Cache
) -> None:
    first = predict(instruction, "RTX 4090", tmp_path, cache)
    again = predict(instruction, "RTX 4090", tmp_path, Cache(tmp_path / "another cache"))
    assert (again.written, again.path) == (False, first.path)
    assert len(find(tmp_path)) == 1


def test_a_prediction_by_another_rate_or_text_is_written_beside(
    instruction: Study, tmp_path: Path, cache: Cache
) -> None:
    first = predict(instruction, "RTX 4090", tmp_path, cache)
    lines = first.path.read_text().splitlines()
    header = {**json.loads(lines[0]), "started": "2020-01-01T00:00:00Z"}
    changed = [json.loads(line) for line in lines[1:-1]]
    changed[0]["predicted"]["flop_clk_sm"] += 1
    made.write(first.path, header, changed)
    second = predict(instruction, "RTX 4090", tmp_path, cache)
    assert second.written
    assert len(find(tmp_path)) == 2
    assert not predict(instruction, "RTX 4090", tmp_path, cache).written


def test_a_cut_or_damaged_file_counts_for_nothing(instruction: Study, tmp_path: Path, cache: Cache) -> None:
    first = predict(instruction, "RTX 4090", tmp_path, cache)
    first.path.write_text("".join(line + "\n" for line in first.path.read_text().splitlines()[:-1]))
    (first.path.parent / "bad.jsonl").write_text("no record\n")
    assert predict(instruction, "RTX 4090", tmp_path, cache).written


def test_the_command_names_what_it_wrote_and_then_that_nothing_changed(
    tmp_path: Path, cache: Cache, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["predict", "instruction", "--gpu", "RTX 4090", "--results", str(tmp_path)]
    argv += ["--cache", str(cache.folder.parent)]
    assert cli.main(argv) == 0
    out = capsys.readouterr().out
    assert f"wrote {find(tmp_path)[0]}" in out
    assert "not measured" in out
    assert cli.main([*argv, "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)["files"]
    assert (answer["written"], answer["gpu"]) == (False, "NVIDIA GeForce RTX 4090")


@pytest.mark.parametrize(
    ("words", "says"), [(["--gpu", "RTX 9999"], "RTX 9999"), (["no such study"], "no study")]
)
def test_an_unknown_name_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert cli.main(["predict", *words, "--results", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_without_a_name_the_boards_of_the_story_and_the_measured_are_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.results(tmp_path, made.record())
    slice_of = {**made.H200, "name": "NVIDIA H200 MIG 1g.18gb", "sms": 16}
    made.write(tmp_path / "records/demo/mig/x.jsonl", made.header(slice_of, run="b" * 32), [made.record()])
    asked: list[tuple[str, str]] = []

    def instead(study: Study, product: chips.Chip, results: Path, *more: object, **words: object) -> Outcome:
        asked.append((study.name, product.name))
        return Outcome(study=study.name, gpu=product.name, path=results, written=False, counts={"ok": 1})

    monkeypatch.setattr("harness.pipeline.predicting.predict_study", instead)
    assert cli.main(["predict", "--results", str(tmp_path)]) == 0
    story = load_story()
    named = [found.name for name in story.chips if (found := chips.chip(name))]
    assert len(named) == 6
    assert {gpu for _, gpu in asked} == {*named, "NVIDIA H200"}
    assert {study for study, _ in asked} == set(story.predicted)


def test_a_row_that_cannot_be_built_is_told_by_the_exit_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def instead(study: Study, product: chips.Chip, results: Path, *more: object, **words: object) -> Outcome:
        counts = {"ok": 3, "compile_failed": 1}
        return Outcome(study=study.name, gpu=product.name, path=results, written=True, counts=counts)

    monkeypatch.setattr("harness.pipeline.predicting.predict_study", instead)
    argv = ["predict", "--gpu", "RTX 4090", "--results", str(tmp_path)]
    assert cli.main(argv) == 1


# ------------------------------------------------------------ as tables


def predicted(case: str, bound: float, gpu: str, **more: object) -> made.Json:
    peaks = {"own": {"name": "own", "flop_clk_sm": 512.0, "percent": 100 * bound / 512}, "chip": None}
    found = {"flop_clk_sm": bound, "tflop_s": bound / 4, "binding": "tensor", "boost_hz": 2e9}
    found |= {"second": "issue", "margin": 0.25, "estimate": bound / 2, "peaks": peaks}
    return made.record(case, None, gpu=gpu, type="predicted", predicted=found, **more)


def test_a_prediction_is_labelled_in_every_table(tmp_path: Path) -> None:
    rows = [predicted("full@m128", 512.0, "NVIDIA GeForce RTX 4090")]
    made.write(tmp_path / "records/demo/p/x.jsonl", made.header(None), rows)
    publish.publish(tmp_path)
    (table,) = (tmp_path / "tables").glob("demo*.md")
    assert "predicted, not measured" in table.read_text()
    for cell in ("| 128.0 |", "| 64.0 |", "| issue 25 % |", "| 100.0 |"):
        assert cell in table.read_text()
    assert "*predicted*" in (tmp_path / "tables/matrix.md").read_text()
    assert "*predicted*" in (tmp_path / "README.md").read_text()
    page = (tmp_path / "report/index.html").read_text()
    assert "<h2>NVIDIA GeForce RTX 4090, predicted, not measured</h2>" in page
    (line,) = (tmp_path / "tables/matrix.csv").read_text().splitlines()[1:]
    assert line.endswith(",predicted")


def test_a_measured_row_takes_the_prediction_of_its_own_text_into_its_columns(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[2000.0]))
    rows = [
        predicted("full@m128", 2500.0, "NVIDIA H200"),
        predicted("copy=stripped@m128", 2600.0, "NVIDIA H200"),
    ]
    made.write(tmp_path / "records/demo/p/x.jsonl", made.header(None, run="b" * 32), rows)
    files, _ = read_all(find(tmp_path))
    measured, rest = publish.sections(publish.frame(files), files)
    (row,) = measured.rows
    assert (row["bound"], row["of_bound"], row["estimate"]) == (2500.0, 80.0, 1250.0)
    said = "simulated SM running the code of NVRTC 13.5.37"
    assert any(said in line for line in publish.caption(measured, (ESTIMATE,)))
    assert not any(said in line for line in publish.caption(measured))
    assert [row["case"] for row in rest.rows] == ["copy=stripped@m128"]
    assert rest.predicted


def test_a_prediction_of_another_text_says_nothing_of_a_measured_row(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(rates=[2000.0]))
    rows = [predicted("full@m128", 2500.0, "NVIDIA H200", source={"digest": "0" * 64})]
    made.write(tmp_path / "records/demo/p/x.jsonl", made.header(None, run="b" * 32), rows)
    files, _ = read_all(find(tmp_path))
    (measured,) = publish.sections(publish.frame(files), files)
    assert [(row["bound"], row["estimate"]) for row in measured.rows] == [(None, None)]


def test_a_stale_prediction_names_the_command_that_refreshes_it(tmp_path: Path) -> None:
    rows = [predicted("full@m128", 512.0, "NVIDIA GeForce RTX 4090")]
    made.write(tmp_path / "records/demo/p/x.jsonl", made.header(None), rows)
    (line,) = publish.stale(tmp_path, lambda record: "another")
    assert "ablate predict demo --gpu 'NVIDIA GeForce RTX 4090'" in line
