"""Record files: nothing is lost, nothing half-written passes for whole, no failure is a number."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness import store
from harness.errors import AblationError, RecordError, UsageError
from harness.model import STATUSES, Values

H200 = {"name": "NVIDIA H200", "cc": [9, 0], "sms": 132}
A100 = {"name": "NVIDIA A100-SXM4-40GB", "cc": [8, 0], "sms": 108}


def header(
    gpu: Mapping[str, Any] | None = H200, run: str = "a" * 32, started: str = "2026-11-30T13:20:00Z"
) -> dict[str, Any]:
    return {
        "run": run,
        "started": started,
        "suite": {"version": "0.1", "commit": None, "dirty": None},
        "command": "ablate run attention",
        "seed": 7,
        "environment": {"gpu": gpu, "nvrtc": "13.5.37"},
        "reason_not_timed": None,
    }


def record(
    case: str = "full",
    *,
    gpu: Mapping[str, Any] | None = H200,
    seconds: tuple[float, ...] = (1e-3, 1.1e-3),
    **more: Any,
) -> dict[str, Any]:
    n = len(seconds)
    samples = {
        "round": list(range(n)),
        "seconds": list(seconds),
        "busy_cycles": [1e6] * n,
        "sm_hz": [None] * n,
    }
    line = {
        "type": "measured",
        "status": "ok",
        "reason": "",
        "study": "attention",
        "case": case,
        "set": "strips",
        "full": "full",
        "levels": {"gmem_copy": "kept", "head_dim": 128, "name": case},
        "configuration": {"block_m": 128},
        "problem": "waves",
        "sizes": {"seqlen": 4096},
        "conditions": {"fill": "normal", "l2": "warm", "waves": 4.0, "ctas_per_sm": 2},
        "perturbation": 0,
        "source": {"digest": "d" * 64},
        "target": {"arch": "sm_90a", "gpu": None if gpu is None else gpu["name"]},
        "toolkit": "13.5.37",
        "options": [],
        "build": None,
        "broken": [],
        "checks": [],
        "work": None,
        "launch": None,
        "samples": dict.fromkeys(
            ("wall_cycles", "flop_clk_sm", "spread", "watts", "temperature_c", "throttle", "reported_hz"),
            [None] * n,
        )
        | samples,
        "exit": "narrow",
        "reproduce": "ablate run attention --case full",
    }
    return line | more


def failed(status: str, case: str = "full", **more: Any) -> dict[str, Any]:
    return record(case, status=status, reason="because", samples=None, exit=None, **more)


def write(path: Path, *records: Mapping[str, Any], head: Mapping[str, Any] | None = None) -> store.RecordFile:
    with store.create(path, head or header(), planned=len(records)) as writer:
        for line in records:
            writer.append(line)
        writer.finish()
    return store.read(path)


# ------------------------------------------------------------ round trip


def test_a_completed_run_reads_back_whole_and_valid(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", record(), failed("compile_failed", "b"))
    assert file.partial is None
    assert [r["case"] for r in file.records] == ["full", "b"]
    assert store.validate(file.path) == []


def test_the_name_holds_study_place_time_and_run_as_safe_names(tmp_path: Path) -> None:
    path = store.record_path(tmp_path, "attention", "NVIDIA H200", header())
    assert path.name == "20261130T132000Z-aaaaaaaaaaaa.jsonl"
    assert path.parent.parent == tmp_path / "attention"
    assert " " not in str(path.relative_to(tmp_path))


def test_two_runs_at_once_write_two_files(tmp_path: Path) -> None:
    heads = [header(run=run, started=started) for run, started in (store.new_run(), store.new_run())]
    paths = [store.record_path(tmp_path, "attention", "H200", head) for head in heads]
    with store.create(paths[0], heads[0]) as one, store.create(paths[1], heads[1]) as two:
        for _ in range(5):
            one.append(record("one"))
            two.append(record("two"))
    assert {r["case"] for r in store.read(paths[0]).records} == {"one"}
    assert {r["case"] for r in store.read(paths[1]).records} == {"two"}


def test_a_second_writer_of_the_same_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "r.jsonl", record())
    before = (tmp_path / "r.jsonl").read_bytes()
    with pytest.raises(AblationError, match="exists already"):
        store.create(tmp_path / "r.jsonl", header())
    assert (tmp_path / "r.jsonl").read_bytes() == before


# ------------------------------------------------------------ numbers, C36


class DeviceScalar:
    """A 0-d array of a device library: it copies itself to the host."""

    def tolist(self) -> float:
        return 2.5


def test_scalars_become_json_numbers_and_nan_and_inf_a_reason(tmp_path: Path) -> None:
    extra = {
        "tflops": np.float32(1.5),
        "n": np.int64(3),
        "x": float("nan"),
        "y": float("inf"),
        "z": DeviceScalar(),
        "flag": np.bool_(True),
        "list": np.array([1.0, -np.inf]),
        "levels": Values(a=1),
    }
    file = write(tmp_path / "r.jsonl", record(extra=extra))
    text = file.path.read_text()
    assert "NaN" not in text
    assert "Infinity" not in text
    line = file.records[0]
    assert line["extra"] == {
        "tflops": 1.5,
        "n": 3,
        "x": None,
        "y": None,
        "z": 2.5,
        "flag": True,
        "list": [1.0, None],
        "levels": {"a": 1},
    }
    assert line["not_numbers"] == {"extra.x": "nan", "extra.y": "inf", "extra.list.1": "-inf"}
    assert store.validate(file.path) == []


@pytest.mark.parametrize("value", [object(), {1: 2}, 1j, {1, 2}])
def test_what_json_cannot_hold_is_refused_with_its_place_and_nothing_is_written(
    tmp_path: Path, value: object
) -> None:
    with store.create(tmp_path / "r.jsonl", header()) as writer:
        with pytest.raises(AblationError, match=r"extra\.deep"):
            writer.append(record(extra={"deep": value}))
        writer.append(record())
        writer.finish()
    assert store.read(writer.path).partial is None


numbers = st.floats() | st.integers() | st.floats(width=32).map(np.float32)
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), values))
@settings(max_examples=150, deadline=None)
def test_any_line_is_strict_json_on_one_line(content: dict[str, Any]) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    text = store.encode({"extra": content})
    assert text.count(b"\n") == 1
    assert text.endswith(b"\n")
    json.loads(text, parse_constant=refuse)


# ------------------------------------------------------------ kills, C35


SHORT = {"type": "measured", "status": "ok", "samples": {"seconds": [1e-3]}}


def test_a_file_cut_at_any_byte_is_readable_and_says_that_it_is_partial(tmp_path: Path) -> None:
    whole = write(tmp_path / "r.jsonl", SHORT | {"case": "a"}, SHORT | {"status": "hung"}, SHORT)
    data = whole.path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(data) if byte == ord("\n")]
    cut = tmp_path / "cut.jsonl"
    cut.write_bytes(data)
    for size in reversed(range(len(data))):
        os.truncate(cut, size)
        if size < ends[0] - 1:
            with pytest.raises(RecordError, match=r"cut\.jsonl:1: .*(header is cut|no header)"):
                store.read(cut)
            continue
        file = store.read(cut)
        done = sum(end - 1 <= size for end in ends) - 1
        assert list(file.records) == list(whole.records[:done])
        # The footer lacks only its newline in the last cut: it is whole.
        if size < len(data) - 1:
            assert file.partial is not None
            assert f"{min(done, 3)} of 3 records" in file.partial
            is_cut = size not in ends and size + 1 not in ends
            assert (f"line {done + 2} is cut" in file.partial) == is_cut


def test_kill_minus_nine_in_the_second_of_two_says_one_of_two(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import os, sys, json, pathlib\n"
        "from harness import store\n"
        "head, line = json.loads(sys.argv[1])\n"
        "writer = store.create(pathlib.Path(sys.argv[2]), head, planned=2)\n"
        "writer.append(line)\n"
        "os.write(writer._descriptor, store.encode(line)[:99])\n"
        f"os.kill(os.getpid(), {int(signal.SIGKILL)})\n"
    )
    path = tmp_path / "r.jsonl"
    arguments = [sys.executable, str(script), json.dumps([header(), record()]), str(path)]
    root = str(Path(store.__file__).parents[2])
    done = subprocess.run(arguments, env={**os.environ, "PYTHONPATH": root}, check=False)
    assert done.returncode == -signal.SIGKILL
    file = store.read(path)
    assert len(file.records) == 1
    assert file.partial == "r.jsonl: partial, 1 of 2 records; line 3 is cut and was skipped"


def test_an_interrupted_run_names_what_is_missing(tmp_path: Path) -> None:
    with store.create(tmp_path / "r.jsonl", header(), planned=2) as writer:
        writer.append(record("a"))
        writer.finish(missing=["b"])
    assert store.read(writer.path).partial == "r.jsonl: partial, 1 of 2 records; not run: b"
    assert store.validate(writer.path) == []


def test_without_a_plan_the_missing_ones_are_counted_in(tmp_path: Path) -> None:
    with store.create(tmp_path / "r.jsonl", header()) as writer:
        writer.append(record("a"))
        writer.finish(missing=["b"])
    footer = json.loads(writer.path.read_bytes().splitlines()[-1])
    assert (footer["complete"], footer["planned"], footer["written"]) == (False, 2, 1)


# ------------------------------------------------------------ disk full


def test_a_full_disk_is_one_clear_line_and_the_record_can_be_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    full = False

    def write_some(descriptor: int, data: bytes) -> int:
        if full:
            if len(data) > 50:
                return real(descriptor, data[:50])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write_some)
    with store.create(tmp_path / "r.jsonl", header(), planned=2) as writer:
        writer.append(record("a"))
        full = True
        with pytest.raises(
            AblationError, match="No space left on device; the 1 records before are safe"
        ) as caught:
            writer.append(record("b"))
        assert "\n" not in caught.value.message
        assert writer.path.read_bytes().endswith(b"}\n")
        kept = store.read(writer.path)
        assert [r["case"] for r in kept.records] == ["a"]
        full = False
        writer.append(record("b"))
        writer.finish()
    assert [r["case"] for r in store.read(writer.path).records] == ["a", "b"]
    assert store.read(writer.path).partial is None


def test_a_disk_that_refuses_even_to_cut_back_leaves_a_readable_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = store.create(tmp_path / "r.jsonl", header())
    writer.append(record("a"))

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    os.write(writer._descriptor, b'{"kind":"rec')
    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(AblationError, match="Input/output error"):
        writer.append(record("b"))
    writer.close()
    assert [r["case"] for r in store.read(writer.path).records] == ["a"]


def test_an_unwritable_folder_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="cannot create"):
        store.create(tmp_path / "file" / "r.jsonl", header())


def test_a_disk_too_full_for_a_new_file_is_not_the_users_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(AblationError, match="No space left") as caught:
        store.create(tmp_path / "r.jsonl", header())
    assert not isinstance(caught.value, UsageError)


# ------------------------------------------------------------ foreign files


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "no header"),
        (b"\n\n", "no header"),
        (b"case,seconds\nfull,1\n", "not a record file"),
        (b"[1, 2]\n", "not a record file"),
        (b"\xff\xfe\x00binary", "not a record file"),
        (b"[" * 100000, "not a record file"),
        (b'{"kind":"record"}\n', "first line is no header"),
        (b'{"kind":"header","sch', "header is cut"),
        (b'{"kind":"header"}\n', "names no schema"),
        (b'{"kind":"header","schema":true}\n', "names no schema"),
        (b'{"kind":"header","schema":1}\n', "no run id"),
        (
            b'{"kind":"header","schema":2,"run":"x","started":"y"}\n',
            "a newer schema (2; this suite reads 1): update",
        ),
        (
            b'{"kind":"header","schema":0,"run":"x","started":"y"}\n',
            "an older schema (0; this suite reads 1)",
        ),
    ],
)
def test_a_foreign_file_is_refused_in_one_line(tmp_path: Path, text: bytes, words: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(text)
    with pytest.raises(RecordError) as caught:
        store.read(path)
    assert words in caught.value.message
    assert "\n" not in caught.value.message
    assert str(path) in caught.value.message
    assert store.validate(path) == [caught.value.message]


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="No such file"):
        store.read(tmp_path / "none.jsonl")


@pytest.mark.parametrize(
    "damage",
    [
        b'{"kind":"record","x":"\\ud800"}\n',
        b"{cut\n",
        b'{"kind":"record","x":NaN}\n',
        b'{"kind":"record","x":1e999}\n',
        b"\n",
    ],
)
def test_damage_before_the_end_is_an_error_with_its_line(tmp_path: Path, damage: bytes) -> None:
    path = write(tmp_path / "r.jsonl", record("a"), record("b")).path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], damage, *lines[2:]]))
    with pytest.raises(RecordError, match=r"r\.jsonl:3: not a record"):
        store.read(path)


def test_lines_after_the_footer_and_a_footer_that_miscounts_are_seen(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", record("a"), record("b")).path
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines, lines[1]]))
    with pytest.raises(RecordError, match="after the footer"):
        store.read(path)
    path.write_bytes(b"".join([*lines[:2], lines[3]]))
    assert "footer counts 2 records" in (store.read(path).partial or "")


@given(st.binary(max_size=400))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_give_a_traceback(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "r.jsonl"
    start = store.encode({"kind": "header", "schema": 1, **header()})
    for text in (data, start + data):
        path.write_bytes(text)
        with contextlib.suppress(RecordError):
            store.read(path)


# ------------------------------------------------------------ validation


def test_the_schema_lists_exactly_the_statuses_of_the_model() -> None:
    schema = json.loads(store.SCHEMA_PATH.read_text())
    assert tuple(schema["$defs"]["record"]["properties"]["status"]["enum"]) == STATUSES
    assert schema["$defs"]["header"]["properties"]["schema"] == {"const": store.SCHEMA}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": "fine"}, "'fine'"),
        ({"type": "guessed"}, "'guessed'"),
        ({"status": "hung"}, "status hung has no reason"),
        ({"status": "hung", "reason": "watchdog"}, "holds samples"),
        ({"type": "predicted"}, "holds samples"),
        ({"samples": None}, "no samples"),
        ({"samples": record()["samples"] | {"watts": [1.0]}}, "unequal length"),
        ({"samples": record(seconds=(1e-3, 0.0))["samples"]}, "no positive number"),
        ({"samples": record(seconds=(1e-3, -1.0))["samples"]}, "no positive number"),
        ({"samples": record()["samples"] | {"sm_hz": [0, 1e9]}}, "samples.sm_hz"),
        ({"broken": ["no LDGSTS expected"]}, "contract is broken"),
        ({"checks": [{"size": "small", "passed": False}]}, "a check failed"),
        ({"exit": "bored"}, "'bored'"),
        ({"options": "-O3"}, "options"),
        ({"levels": {"a": 1.5}}, "levels"),
    ],
)
def test_a_broken_rule_is_named_with_its_line(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    file = write(tmp_path / "r.jsonl", record(), record() | change)
    problems = store.validate(file.path)
    assert problems
    assert all(problem.startswith("r.jsonl:3: ") for problem in problems)
    assert any(words in problem for problem in problems)


@pytest.mark.parametrize("name", ["case", "samples", "conditions", "exit"])
def test_a_missing_field_is_named(tmp_path: Path, name: str) -> None:
    line = record()
    del line[name]
    file = write(tmp_path / "r.jsonl", line)
    assert any(f"'{name}' is a required property" in problem for problem in store.validate(file.path))


# ------------------------------------------------------------ keys and resuming


@pytest.mark.parametrize(
    "change",
    [
        {"study": "instruction"},
        {"levels": {"head_dim": 64}},
        {"configuration": {"block_m": 64}},
        {"problem": "paper"},
        {"sizes": {"seqlen": 1}},
        {"conditions": {"fill": "zeros"}},
        {"perturbation": 1},
        {"source": {"digest": "e"}},
        {"target": {"arch": "sm_90", "gpu": "NVIDIA H200"}},
        {"target": {"arch": "sm_90a", "gpu": "NVIDIA H20"}},
        {"toolkit": "13.0"},
        {"options": ["-G"]},
    ],
)
def test_whatever_makes_another_thing_changes_the_key(change: dict[str, Any]) -> None:
    assert store.key(header(), record()) != store.key(header(), record() | change)


def test_the_key_ignores_the_run_the_samples_and_how_a_number_is_written() -> None:
    other = record(seconds=(2e-3,), exit="out of time", case="renamed")
    other["levels"] = record()["levels"]
    other["conditions"] = {**record()["conditions"], "waves": 4, "ctas_per_sm": np.int64(2)}
    other["levels"] = Values(other["levels"])
    assert store.key(header(), record()) == store.key(header(run="b" * 32), other)


def test_a_slice_of_a_gpu_is_another_product_and_the_key_survives_the_file(tmp_path: Path) -> None:
    assert store.key(header(), record()) != store.key(header({**H200, "sms": 16}), record())
    file = write(tmp_path / "r.jsonl", record())
    assert store.key(file.header, file.records[0]) == store.key(header(), record())


def test_identity_ignores_gpu_source_and_toolkit_only() -> None:
    other = record(gpu=A100, source={"digest": "x"}, toolkit="13.0")
    assert store.identity(record()) == store.identity(other)
    assert store.identity(record()) != store.identity(record() | {"perturbation": 1})


def test_resume_takes_only_what_is_done_and_reruns_failures(tmp_path: Path) -> None:
    lines = [failed(status, case=status) for status in STATUSES if status != "ok"]
    interrupted = record("interrupted", exit=None)
    predicted = failed("skipped", case="guess") | {"type": "predicted"}
    file = write(tmp_path / "r.jsonl", record("ok"), interrupted, predicted, *lines)
    wanted = [store.key(file.header, line) for line in file.records]
    done = store.resume([file], wanted)
    assert {line["case"] for line in done.values()} == {"ok", "skipped", "not_supported"}


def test_resume_reruns_everything_on_another_gpu_and_after_a_changed_level(tmp_path: Path) -> None:
    file = write(tmp_path / "r.jsonl", record("full"), record("no_softmax"))
    here = [store.key(header(), record(case)) for case in ("full", "no_softmax")]
    assert len(store.resume([file], here)) == 2
    there = [store.key(header(A100), record(case, gpu=A100)) for case in ("full", "no_softmax")]
    assert store.resume([file], there) == {}
    changed = [
        store.key(header(), record(levels={"head_dim": 64, "name": c})) for c in ("full", "no_softmax")
    ]
    assert store.resume([file], changed) == {}


def test_the_newest_run_decides_what_is_done(tmp_path: Path) -> None:
    old = write(tmp_path / "1.jsonl", record("full"))
    new = write(
        tmp_path / "2.jsonl", failed("hung"), head=header(run="b" * 32, started="2026-12-01T00:00:00Z")
    )
    wanted = [store.key(header(), record("full"))]
    assert store.resume([new, old], wanted) == {}


def test_repeats_keep_the_latest_and_say_so(tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", record("full", tflops=600), record("no_softmax", tflops=700))
    two = write(
        tmp_path / "2.jsonl",
        record("full", tflops=610),
        head=header(run="b" * 32, started="2026-12-01T00:00:00Z"),
    )
    for files in ([one, two], [two, one]):
        rows = store.latest(files)
        assert [(row.record["case"], row.record["tflops"]) for row in rows] == [
            ("full", 610),
            ("no_softmax", 700),
        ]
        assert [row.replaced for row in rows] == [1, 0]
        assert rows[0].header["run"] == "b" * 32
        assert store.repeats_note(rows) == "1 rows were run more than once: the latest run is shown"
    assert store.repeats_note(store.latest([one])) == ""


def test_rows_of_another_board_are_no_repeats(tmp_path: Path) -> None:
    one = write(tmp_path / "1.jsonl", record("full"))
    two = write(tmp_path / "2.jsonl", record("full", gpu=A100), head=header(A100, run="b" * 32))
    assert len(store.latest([one, two])) == 2
    assert len(store.latest([one, two], by=lambda head, line: store.identity(line))) == 1
