"""The command line: what it hands on, what it says, and how it ends."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import record_files as made

import ablations
import harness
from harness import cli, progress
from harness.cases import default_cases
from harness.errors import AblationError, RecordError, ToolError, UsageError
from harness.model import Study
from harness.plan import Plan, RunResult, Step, cases_of

ROOT = Path(__file__).resolve().parent.parent
Run = Callable[[Plan, Mapping[str, Study], progress.Ui], RunResult]


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], list[Plan]]:
    """Puts a function in place of the pipeline; gives the list of plans that it is called with."""

    def install(run: Run) -> list[Plan]:
        plans: list[Plan] = []

        def record(plan: Plan, studies: Mapping[str, Study], ui: progress.Ui) -> RunResult:
            plans.append(plan)
            return run(plan, studies, ui)

        fake = types.ModuleType("harness.pipeline")
        fake.run = record  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "harness.pipeline", fake)
        monkeypatch.setattr(harness, "pipeline", fake, raising=False)
        return plans

    return install


@pytest.fixture
def study() -> Study:
    return next(iter(ablations.load().values()))


def nothing(plan: Plan, studies: Mapping[str, Study], ui: progress.Ui) -> RunResult:
    return RunResult(reason_not_timed="no driver")


def one_line(text: str) -> str:
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text


def test_every_option_reaches_the_plan(pipeline: Any, study: Study, tmp_path: Path) -> None:
    plans = pipeline(nothing)
    cut = made.write(tmp_path / "cut.jsonl", made.header(), [])
    name = default_cases(study)[0].name
    words = (
        f"run {study.name} --case {name} --target 9.0 --target sm_89 --problem {study.problems[0]} "
        f"--require-gpu --rounds 12 --perturbations 2 --width 0.5 --seconds 30 --cache {tmp_path}/c "
        f"--results {tmp_path}/r --resume {cut} --dry-run --force-busy --fill zeros --l2 cold --seed 7"
    ).split()
    cli.main(words)
    assert plans == [
        Plan(
            studies=(study.name,),
            patterns=(name,),
            targets=("sm_90a", "sm_89"),
            problem=study.problems[0],
            require_gpu=True,
            rounds=12,
            perturbations=2,
            width_percent=0.5,
            seconds=30.0,
            cache=tmp_path / "c",
            results=tmp_path / "r",
            resume=cut,
            dry_run=True,
            force_busy=True,
            fill="zeros",
            l2="cold",
            seed=7,
            command=" ".join(["ablate", *words]),
        )
    ]


def test_without_arguments_every_study_runs(pipeline: Any) -> None:
    plans = pipeline(nothing)
    assert cli.main(["run"]) == 0
    assert plans == [Plan(studies=tuple(ablations.load()), command="ablate run")]


def test_nothing_timed_is_said_and_is_no_error(pipeline: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline(nothing)
    assert cli.main(["run"]) == 0
    assert "Nothing was timed here: no driver" in capsys.readouterr().out


def test_where_nothing_is_timed_the_counters_asked_for_are_not_passed_over(
    pipeline: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline(nothing)
    assert cli.main(["run", "--counters"]) == 0
    assert (
        "\nNothing was counted either: --counters reads the cases that are timed" in capsys.readouterr().out
    )
    assert cli.main(["run"]) == 0
    assert "counted" not in capsys.readouterr().out
    pipeline(lambda *_: RunResult(planned=1, counts={"ok": 1}))
    assert cli.main(["run", "--counters"]) == 0
    assert "counted" not in capsys.readouterr().out


def test_require_gpu_makes_it_an_error_of_its_own(pipeline: Any, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline(nothing)
    assert cli.main(["run", "--require-gpu"]) == 3
    assert one_line(capsys.readouterr().err) == "ablate: nothing was timed: no driver\n"


def test_failed_rows_make_the_run_fail_and_skipped_ones_do_not(
    pipeline: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    counts = {"ok": 5, "skipped": 2, "not_supported": 1, "noisy": 1}
    pipeline(lambda *_: RunResult(planned=9, counts=counts))
    assert cli.main(["run"]) == 0
    pipeline(lambda *_: RunResult(planned=12, counts={**counts, "wrong": 2, "hung": 1}))
    assert cli.main(["run"]) == 1
    assert one_line(capsys.readouterr().err) == "ablate: 3 of 12 rows failed: 2 wrong, 1 hung\n"


def test_a_run_shows_its_table(pipeline: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = made.write(tmp_path / "a.jsonl", made.header(), [made.record()])
    pipeline(lambda *_: RunResult(files=(path,), planned=1, counts={"ok": 1}))
    assert cli.main(["run", "--results", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "demo on NVIDIA H200" in out
    assert f"recorded in {path}" in out


def test_json_is_one_document_with_the_records(
    pipeline: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = made.write(tmp_path / "a.jsonl", made.header(), [made.record()])

    def run(plan: Plan, studies: Mapping[str, Study], ui: progress.Ui) -> RunResult:
        ui.note("working")
        with ui.stage("compile", 1) as done:
            done("x")
        return RunResult(files=(path,), planned=1, counts={"ok": 1})

    pipeline(run)
    assert cli.main(["run", "--json"]) == 0
    captured = capsys.readouterr()
    answer = json.loads(captured.out)
    assert answer["timed"] is True
    assert answer["records"][0]["case"] == "full@m128"
    assert captured.err == "working\n"


def test_a_dry_run_says_what_and_how_long(pipeline: Any, capsys: pytest.CaptureFixture[str]) -> None:
    step = Step(study="s", case="c@m1", target="sm_90a", action="compile and time", seconds=2.5)
    pipeline(lambda *_: RunResult(planned=2, steps=(step, step)))
    assert cli.main(["run", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "sm_90a  compile and time  2.5 s  s/c@m1" in out
    assert "2 steps, about 5 s; nothing was done" in out


BAD = [
    ("", "COMMAND"),
    ("rn", "choose from"),
    ("run nosuch", "no study 'nosuch'; "),
    ("run --target sm_77", "sm_80"),
    ("run --target hopper", "is not an architecture"),
    ("run --rounds 0", "whole number from 1"),
    ("run --rounds x", "whole number from 1"),
    ("run --rounds ²", "whole number from 1"),
    ("run --width nan", "positive number"),
    ("run --width -1", "positive number"),
    ("run --seconds inf", "positive number"),
    ("run --seed -1", "whole number from 0"),
    ("run --fill ones", "choose from"),
    ("run --l2 hot", "choose from"),
    ("run --problem nope", "no study has a problem 'nope'; choose from waves"),
    ("run --case nosuch=x", "no switch 'nosuch'"),
    ("run --case zzzzzz", "no case matches 'zzzzzz'"),
    ("run --resume nowhere.jsonl", "there is no such record file"),
    ("run --case=", "an argument is empty"),
    ("publish --results=", "an argument is empty"),
    (f"run --resume {__file__}", "not a record file of this suite"),
    ("check --results none", "--results none: there is no such folder"),
    ("run --bogus", "unrecognized arguments: --bogus"),
    ("run --round 3", "unrecognized arguments"),
    ("list nosuch", "no study 'nosuch'"),
    ("list --case zzzzzz", "no case matches"),
    ("show zzzzzz", "no case matches"),
    ("show *", "matches several cases; name one: "),
    ("compare a.jsonl b.jsonl", "a.jsonl"),
    ("publish --readme nowhere.md --results none", "nowhere.md"),
]


@pytest.mark.parametrize(("words", "hint"), BAD, ids=[words or "nothing" for words, _ in BAD])
def test_bad_input_is_one_line_with_a_way_out(
    words: str, hint: str, pipeline: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: Any
) -> None:
    plans = pipeline(nothing)
    monkeypatch.chdir(tmp_path)
    assert cli.main(words.split()) == 2
    captured = capsys.readouterr()
    assert hint in one_line(captured.err)
    assert captured.err.startswith("ablate: ")
    assert plans == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["--version", "list", "nosuch"])
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-"])
def test_closed_streams_are_no_crash(closed: str, words: str) -> None:
    line = f"exec {sys.executable} -m harness {words} {closed}"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == (2 if words == "nosuch" else 0)


def test_a_full_disk_is_one_line(capfd: Any) -> None:
    line = f"exec {sys.executable} -m harness list >/dev/full"
    assert subprocess.run(["sh", "-c", line], check=False).returncode == 1
    assert capfd.readouterr().err == "ablate: output: No space left on device\n"


def test_a_file_where_a_folder_must_be_is_one_line(tmp_path: Path, capsys: Any) -> None:
    made.results(tmp_path, made.record())
    (tmp_path / "tables").write_text("mine")
    assert cli.main(["publish", "--results", str(tmp_path)]) == 2
    assert one_line(capsys.readouterr().err) == f"ablate: {tmp_path}/tables: File exists\n"
    assert (tmp_path / "tables").read_text() == "mine"


def test_an_unknown_level_names_the_levels(study: Study, pipeline: Any, capsys: Any) -> None:
    pipeline(nothing)
    switch = study.switches[0]
    assert cli.main(["run", "--case", f"*{switch.name}=zzz*"]) == 2
    assert f"its levels are {', '.join(map(str, switch.levels))}" in one_line(capsys.readouterr().err)


def test_a_near_miss_gets_a_suggestion(study: Study, pipeline: Any, capsys: Any) -> None:
    pipeline(nothing)
    assert cli.main(["run", study.name[:-1]]) == 2
    assert f"did you mean {study.name}" in one_line(capsys.readouterr().err)


@pytest.mark.parametrize("option", ["--cache", "--results"])
def test_a_folder_that_is_a_file_is_refused_and_kept(
    option: str, pipeline: Any, tmp_path: Path, capsys: Any
) -> None:
    plans = pipeline(nothing)
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert cli.main(["run", option, str(taken)]) == 2
    assert option in one_line(capsys.readouterr().err)
    assert taken.read_text() == "mine"
    assert plans == []


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which nothing can be made, whoever asks: permission bits do not stop root."""
    folder = tmp_path / "refused"
    folder.mkdir()
    ours = os.mkdir

    def mkdir(path: Any, *rest: Any, **named: Any) -> None:
        if folder in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        ours(path, *rest, **named)

    monkeypatch.setattr(os, "mkdir", mkdir)
    return folder


@pytest.mark.parametrize("inside", ["", "new", "new/deeper"])
@pytest.mark.parametrize(
    ("command", "option"),
    [
        ("run", "--cache"),
        ("run", "--results"),
        ("predict", "--results"),
        ("publish", "--results"),
        ("cache", "--cache"),
    ],
)
def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_done(
    command: str, option: str, inside: str, pipeline: Any, refused: Path, capsys: Any
) -> None:
    plans = pipeline(nothing)
    assert cli.main([command, option, str(refused / inside)]) == 2
    line = one_line(capsys.readouterr().err)
    assert line.startswith(f"ablate: {option} {refused / inside}: ")
    assert line.endswith("; name a folder that can be written\n")
    assert plans == [] and list(refused.iterdir()) == []


@pytest.mark.parametrize("command", ["run", "predict", "publish", "check"])
@pytest.mark.parametrize("inside", ["", "below"])
def test_results_that_are_a_file_are_refused_and_kept(
    command: str, inside: str, pipeline: Any, tmp_path: Path, capsys: Any
) -> None:
    plans = pipeline(nothing)
    taken = tmp_path / "taken"
    taken.write_text("mine")
    assert cli.main([command, "--results", str(taken / inside)]) == 2
    assert f"--results {taken}" in one_line(capsys.readouterr().err)
    assert taken.read_text() == "mine" and list(tmp_path.iterdir()) == [taken]
    assert plans == []


def test_records_that_are_a_file_are_refused_before_a_run(pipeline: Any, tmp_path: Path, capsys: Any) -> None:
    plans = pipeline(nothing)
    (tmp_path / "records").write_text("mine")
    assert cli.main(["run", "--results", str(tmp_path)]) == 2
    assert f"--results {tmp_path}: Not a directory" in one_line(capsys.readouterr().err)
    assert plans == []


def test_looking_whether_results_can_be_written_leaves_nothing(pipeline: Any, tmp_path: Path) -> None:
    plans = pipeline(nothing)
    assert cli.main(["run", "--results", str(tmp_path / "new" / "results")]) == 0
    assert len(plans) == 1 and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.ENOSPC, 1),
        (errno.EDQUOT, 1),
        *(
            (number, 2)
            for number in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENAMETOOLONG)
        ),
    ],
)
def test_a_path_at_fault_is_the_users_and_a_full_disk_is_not(
    number: int, status: int, pipeline: Any, capsys: Any
) -> None:
    def run(*_: Any) -> RunResult:
        raise OSError(number, os.strerror(number), "some/path")

    pipeline(run)
    assert cli.main(["run"]) == status
    assert one_line(capsys.readouterr().err) == f"ablate: some/path: {os.strerror(number)}\n"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UsageError("u"), 2),
        (RecordError("r"), 2),
        (ToolError("no NVRTC: pip install"), 2),
        (AblationError("a"), 1),
    ],
)
def test_errors_of_the_suite_are_their_message(
    error: AblationError, status: int, pipeline: Any, capsys: Any
) -> None:
    def run(*_: Any) -> RunResult:
        raise error

    pipeline(run)
    assert cli.main(["run"]) == status
    assert one_line(capsys.readouterr().err) == f"ablate: {error.message}\n"


def test_an_unexpected_error_is_a_line_and_a_file(
    pipeline: Any, capsys: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(*_: Any) -> RunResult:
        raise ZeroDivisionError("two\nlines")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    pipeline(run)
    assert cli.main(["run"]) == 1
    line = one_line(capsys.readouterr().err)
    (saved,) = tmp_path.iterdir()
    assert line == f"ablate: unexpected ZeroDivisionError: two lines (traceback in {saved})\n"
    assert "Traceback" in saved.read_text()


def test_ctrl_c_ends_with_130(pipeline: Any, capsys: Any) -> None:
    def run(*_: Any) -> RunResult:
        raise KeyboardInterrupt

    pipeline(run)
    assert cli.main(["run"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_warning_is_one_line(pipeline: Any, capsys: Any) -> None:
    import warnings

    def run(*_: Any) -> RunResult:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            cli._show_warning(RuntimeWarning("the cache\ncannot be written"), RuntimeWarning, "f.py", 1)
        return RunResult()

    pipeline(run)
    assert cli.main(["run"]) == 0
    assert one_line(capsys.readouterr().err) == "ablate: warning: the cache cannot be written\n"


def test_cases_of_a_plan_leave_out_studies_without_a_hit() -> None:
    studies = ablations.load()
    case = default_cases(next(iter(studies.values())))[0]
    found = cases_of(Plan(studies=tuple(studies), patterns=(str(case),)), studies)
    assert {name: [str(c) for c in cases] for name, cases in found.items()} == {case.study: [str(case)]}


def test_list_show_and_json(study: Study, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list"]) == 0
    assert study.name in capsys.readouterr().out
    assert cli.main(["list", study.name, "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["studies"][0]
    cases = default_cases(study)
    assert [case["name"] for case in listed["cases"]] == [case.name for case in cases]
    assert cli.main(["show", str(cases[0]), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["levels"] == dict(cases[0].levels)
    assert cli.main(["show", str(cases[0]), "--source"]) == 0
    assert "__global__" in capsys.readouterr().out


def test_diff_against_full_shows_the_stripped_part(capsys: pytest.CaptureFixture[str]) -> None:
    for study in ablations.load().values():
        stripped = [c for c in default_cases(study) if c.set_name != "full" and not c.skip]
        if not stripped:
            continue
        assert cli.main(["show", str(stripped[0]), "--diff"]) == 0
        out = capsys.readouterr().out
        assert out.startswith("--- ")
        assert "\n+" in out
    full = next(c for c in default_cases(study) if c.set_name == "full")
    assert cli.main(["show", str(full), "--diff"]) == 0
    assert capsys.readouterr().out == f"{full} is full, what others are compared with: name one of them\n"


@pytest.mark.parametrize(
    ("words", "gpu", "first"),
    [
        ((), "no driver", "// sm_120a: no GPU here, the newest usual target; --target names another\n"),
        ((), (9, 0), "// sm_90a: of NVIDIA X, the GPU here; --target names another\n"),
        (("--target", "8.9"), (9, 0), "// sm_89: asked for\n"),
    ],
)
def test_machine_code_says_first_what_it_was_compiled_for(
    words: tuple[str, ...], gpu: object, first: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from harness.gpu import facts

    found = gpu if isinstance(gpu, str) else types.SimpleNamespace(cc=gpu, name="NVIDIA X")
    monkeypatch.setattr(facts, "find_gpu", lambda: found)
    monkeypatch.setattr("harness.cli.show.machine_code", lambda study, case, arch, cache: f"code {arch}")
    case = str(default_cases(ablations.load()["instruction"])[0])
    assert cli.main(["show", case, "--sass", *words]) == 0
    arch = first[3:].partition(":")[0]
    assert capsys.readouterr().out == f"{first}code {arch}\n"
    assert cli.main(["show", case, "--sass", "--json", *words]) == 0
    assert json.loads(capsys.readouterr().out)["text"] == f"code {arch}"


def test_machine_code_is_shown_for_a_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    studies = ablations.load()
    case, other = (str(default_cases(studies[name])[0]) for name in ("instruction", "pipes"))
    assert cli.main(["show", case, "--target", "sm_90a"]) == 2
    one_line(capsys.readouterr().err)
    assert cli.main(["show", case, "--sass", "--target", "sm_90a", "--cache", str(tmp_path)]) == 0
    assert "HMMA.16816" in capsys.readouterr().out
    assert cli.main(["show", other, "--sass", "--target", "sm_90a", "--cache", str(tmp_path)]) == 0
    assert "// LDSM 16\n" in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["80", "120"])
def test_lists_fit_the_terminal(columns: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    names = max(len(c.name) for study in ablations.load().values() for c in default_cases(study))
    cli.main(["list"])
    cli.main(["list", next(iter(ablations.load()))])
    lines = capsys.readouterr().out.splitlines()
    # A case's name is never cut: it is what the user types next. Prose wraps.
    assert max(map(len, lines)) <= names + 11
    assert all(len(line) <= int(columns) for line in lines if "@" not in line)


def test_why_a_case_is_skipped_wraps_below_its_name(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    from harness.cli import listing

    monkeypatch.setenv("COLUMNS", "80")
    study = next(iter(ablations.load().values()))
    case = replace(default_cases(study)[0], skip="it cannot exist " * 10)
    monkeypatch.setattr(listing, "default_cases", lambda *_: (case,))
    assert cli.main(["list", study.name]) == 0
    name, first, *more = capsys.readouterr().out.partition("cases\n")[2].splitlines()
    assert name.endswith(case.name)
    assert first.strip().startswith("skipped: it cannot exist")
    assert more
    assert max(map(len, (first, *more))) <= 80


def test_cache_says_where_and_clears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from harness.build.cache import Cache

    Cache(tmp_path).put("log", "0" * 64, b"x" * 1000)
    assert cli.main(["cache", "--cache", str(tmp_path), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["folder"], answer["entries"], answer["bytes"]) == (str(tmp_path), 1, 1000)
    assert cli.main(["cache", "--cache", str(tmp_path), "--clear"]) == 0
    assert "freed" in capsys.readouterr().out
    assert Cache(tmp_path).size() == (0, 0)


def test_doctor_names_the_tools(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--json"]) == 0
    tools = json.loads(capsys.readouterr().out)["tools"]
    assert {"NVRTC", "nvdisasm", "CuPy", "driver", "ncu"} <= {tool["name"] for tool in tools}
    assert cli.main(["doctor"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_publish_then_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made.results(tmp_path, made.record())
    words = ["--results", str(tmp_path), "--readme", str(tmp_path / "R.md")]
    (tmp_path / "R.md").write_text("none\n")
    assert cli.main(["check", *words]) == 1
    assert "run `ablate publish`" in capsys.readouterr().err
    assert cli.main(["publish", *words]) == 0
    assert cli.main(["check", *words]) == 0
    built = made.record(rates=None, gpu=None, target={"arch": "sm_90a", "gpu": None})
    made.results(tmp_path, built, gpu=None, run="b" * 32)
    capsys.readouterr()
    assert cli.main(["publish", *words]) == 0
    assert "left out: 1 file of records made without a GPU" in capsys.readouterr().out
    assert cli.main(["check", *words]) == 0
    assert cli.main(["check", "--built", *words]) == 1
    assert cli.main(["publish", "--built", *words]) == 0
    assert cli.main(["check", "--built", *words]) == 0
    assert cli.main(["publish", *words]) == 0
    bad = tmp_path / "records" / "bad.jsonl"
    bad.write_text("foreign")
    capsys.readouterr()
    assert cli.main(["publish", *words]) == 2
    assert str(bad) in one_line(capsys.readouterr().err)
    assert cli.main(["check", *words]) == 1
    assert bad.read_text() == "foreign"


@pytest.mark.parametrize("command", ["", *cli.command_names()])
def test_help_has_examples_and_fits_a_terminal(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as stopped:
        cli.main([*command.split(), "--help"])
    assert stopped.value.code == 0
    out = capsys.readouterr().out
    assert f"examples:\n  ablate {command}".rstrip() in out
    assert max(map(len, out.splitlines())) <= 80


def start(*words: str, **more: Any) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "harness", *words]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)


def test_a_closed_pipe_is_no_error_message() -> None:
    process = start("list", "--json")
    assert process.stdout is not None
    process.stdout.close()
    _, err = process.communicate(timeout=30)
    assert err == b""
    assert process.returncode == 141


def test_a_real_ctrl_c_is_clean(tmp_path: Path) -> None:
    code = (
        "import sys, types, harness, time; from harness import cli\n"
        "def run(*_):\n print('ready', flush=True); time.sleep(60)\n"
        "harness.pipeline = sys.modules['harness.pipeline'] = types.SimpleNamespace(run=run)\n"
        "sys.exit(cli.main(['run']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_output_that_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    card = {**made.H200, "name": "NVIDIA RTX™"}
    path = made.write(tmp_path / "a.jsonl", made.header(card), [made.record(gpu=card["name"])])
    code = (
        "import sys, types, harness; from pathlib import Path\n"
        "from harness import cli; from harness.plan import RunResult\n"
        f"run = lambda *_: RunResult(files=(Path({str(path)!r}),))\n"
        "harness.pipeline = sys.modules['harness.pipeline'] = types.SimpleNamespace(run=run)\n"
        "sys.exit(cli.main(['run']))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "RTX\\u2122" in done.stdout


class Terminal:
    """A stream that says it is a terminal and keeps what it gets."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


def test_progress_shows_what_is_done_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    screen: Any = Terminal()
    ui = progress.choose(screen)
    with ui.stage("compile [x]", 2) as done:
        done("first [case]")
        ui.note("a note [not markup]")
        done("second")
    assert "compile [x]" in screen.text
    assert "a note [not markup]" in screen.text
    assert "second" in screen.text


def test_progress_is_silent_on_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    ui = progress.choose(sys.stderr)
    with ui.stage("compile", None) as done:
        done("x")
    assert capsys.readouterr().err == ""
    quiet = progress.Quiet()
    quiet.note("x")
    with quiet.stage("y", 1) as done:
        done("z")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in ("run", "explain", "publish", "--perturbations"))


def test_an_unknown_shell_is_one_line_with_the_choices(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", "fish"]) == 2
    assert "bash" in capsys.readouterr().err
