"""What a record or a GPU's name says is shown as text: it commands no terminal and forges no line."""

from __future__ import annotations

import io
import json
import sys
import types
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import answer_files
import pytest
import record_files as made
from hypothesis import given
from hypothesis import strategies as st

import ablations
import harness
from harness import cli, progress
from harness.cli import say
from harness.plan import RunResult
from harness.printable import printable

# Colours, a line of its own, a bell, the one-byte CSI, and a mark that turns the text around.
HOSTILE = "NVIDIA \x1b[31mH200\nablate: all is well\x07\x9b2J\u202e"


def seen(capsys: pytest.CaptureFixture[str]) -> str:
    """All that a command wrote; fails where a terminal would obey it."""
    captured = capsys.readouterr()
    text = captured.out + captured.err
    wild = {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp")} - {"\n"}
    assert wild == set()
    assert not any(line.startswith("ablate: all is well") for line in text.splitlines())
    return text


@given(st.text())
def test_what_is_printable_stays_and_nothing_else_does(text: str) -> None:
    shown = printable(text)
    assert shown.isprintable()
    assert len(shown) == len(text)
    assert all(a == b or (b == " " and not a.isprintable()) for a, b in zip(text, shown, strict=True))


def test_some_characters_may_be_kept_and_halves_of_pairs_are_escaped() -> None:
    assert printable("a\nb\tc\x1bd", keep="\n\t") == "a\nb\tc d"
    assert printable("/tmp/\udcff/é") == "/tmp/\\udcff/é"


def card() -> dict[str, Any]:
    return {**made.H200, "name": HOSTILE}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A results folder whose one file is of a GPU with that name, and says more of the kind."""
    rows = [
        made.record(gpu=HOSTILE),
        made.failed(f"a{HOSTILE}@m128", "wrong", f"differs {HOSTILE}", gpu=HOSTILE),
    ]
    made.write(tmp_path / "records" / "demo" / "gpu" / "a.jsonl", made.header(card()), rows)
    return tmp_path


def file_of(results: Path) -> str:
    return str(results / "records" / "demo" / "gpu" / "a.jsonl")


def test_compare_of_two_gpus_is_one_line(results: Path, tmp_path: Path, capsys: Any) -> None:
    other = made.write(tmp_path / "b.jsonl", made.header(), [made.record()])
    assert cli.main(["compare", file_of(results), str(other)]) == 2
    text = seen(capsys)
    assert text.count("\n") == 1
    assert "NVIDIA  [31mH200 ablate: all is well" in text


@pytest.mark.parametrize("option", ["--across-gpus", "--json"])
def test_compare_shows_names_as_text(option: str, results: Path, capsys: Any) -> None:
    assert cli.main(["compare", file_of(results), file_of(results), option]) == 0
    assert "H200" in seen(capsys)


def test_publish_and_check_name_files_and_gpus_as_text(results: Path, capsys: Any) -> None:
    lines = Path(file_of(results)).read_text().splitlines()
    broken = json.loads(lines[1]) | {"status": HOSTILE}
    bad = results / "records" / "demo" / f"b{HOSTILE}.jsonl"
    bad.write_text("\n".join([lines[0], json.dumps(broken)]) + "\n")
    words = ["--results", str(results)]
    assert cli.main(["publish", *words]) == 2
    assert "H200" in seen(capsys)
    assert cli.main(["check", *words]) == 1
    assert "H200" in seen(capsys)
    assert cli.main(["check", "--release", "--json", *words]) == 1
    assert "H200" in seen(capsys)


def test_a_file_to_resume_that_is_foreign_is_named_as_text(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / f"r{HOSTILE}.jsonl"
    path.write_text("{}\n")
    assert cli.main(["run", "--resume", str(path)]) == 2
    assert seen(capsys).count("\n") == 1


@pytest.mark.parametrize("option", [[], ["--json"]])
def test_explain_shows_names_as_text(option: list[str], tmp_path: Path, capsys: Any) -> None:
    base = dict(ablations.load()["attention"].baseline)
    rows = answer_files.timed("full", 1.0, base, study="attention", gpu=HOSTILE)
    made.write(tmp_path / "one.jsonl", made.header(card()), rows)
    (tmp_path / f"b{HOSTILE}.jsonl").write_text("foreign")
    assert cli.main(["explain", "--records", str(tmp_path), *option]) == 0
    assert "H200" in seen(capsys)


def test_a_gpu_that_a_user_names_is_shown_as_text(tmp_path: Path, capsys: Any) -> None:
    assert cli.main(["explain", "--records", str(tmp_path), "--gpu", HOSTILE]) == 2
    assert seen(capsys).count("\n") == 1


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Callable[[RunResult], None]:
    def install(result: RunResult) -> None:
        fake = types.ModuleType("harness.pipeline")
        fake.run = lambda *_: result  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "harness.pipeline", fake)
        monkeypatch.setattr(harness, "pipeline", fake, raising=False)

    return install


def test_a_run_shows_names_as_text(results: Path, pipeline: Any, capsys: Any) -> None:
    pipeline(RunResult(files=(Path(file_of(results)),), reason_not_timed=f"the GPU here ({HOSTILE}) is not"))
    assert cli.main(["run", "--results", str(results)]) == 0
    assert "H200" in seen(capsys)
    assert cli.main(["run", "--results", str(results), "--json"]) == 0
    assert "H200" in seen(capsys)
    assert cli.main(["run", "--results", str(results), "--require-gpu"]) == 3
    assert "H200" in seen(capsys)


def test_json_keeps_every_character_of_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    value = {HOSTILE: ["é ™ 𝄞", "\x7f\udcff\U000e0001"]}
    say.say_json(value)
    assert json.loads(seen(capsys)) == value


def test_errors_warnings_and_tables_are_shown_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    say.complain(HOSTILE, "\x1b[1mdetail\n  kept\n")
    assert capsys.readouterr().err.splitlines()[1:] == [" [1mdetail", "  kept"]
    cli._show_warning(HOSTILE)
    say.say_table([(HOSTILE, HOSTILE), ("a", "b")])
    say.complain(HOSTILE)
    say.say(HOSTILE)
    say.say_paragraphs(HOSTILE)
    assert "H200" in seen(capsys)


@pytest.mark.parametrize("ui", [progress.Lines, progress.Bars])
def test_progress_shows_names_as_text(ui: Any) -> None:
    stream = io.StringIO()
    shown = ui(stream)
    shown.note(HOSTILE)
    assert "\x1b" not in stream.getvalue() and stream.getvalue().count("\n") == 1
    assert stream.getvalue().isascii()
