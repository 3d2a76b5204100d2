"""Hardware counters: what is asked of ncu, what is read from its page, and what a run makes of them."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness import probes
from harness.counters import counters_of as counters_of_record
from harness.errors import ToolError, UsageError
from harness.gpu import counters
from harness.gpu.commands import Entry, FixedInputs, Run
from harness.gpu.counters import COUNTERS, counters_of, read_counters, table_of
from harness.model import Launch
from harness.pipeline import counting
from harness.plan import Plan
from tests.fake_gpu import facts

TENSOR = "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"
COUNT = "sm__inst_executed_pipe_tensor.sum"
HIT = "lts__t_sector_hit_rate.pct"
WAIT = "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio"
HEAD = f'"ID","Process ID","Kernel Name","{TENSOR}","{COUNT}","{HIT}","{WAIT}"'
PAGE = f"""\
==WARNING== Note: Running with unmodified GPU clocks.
==PROF== Connected to process 613 (/usr/bin/python3.12)
{HEAD}
"","","","%","inst","%",""
"0","613","attention","53.21","34,603,008","90.03","1.14"
"1","613","attention","71.16","69,206,016","186.78","n/a"
"""


def entry(number: int) -> Entry:
    launch = Launch(grid=(2, 1, 1), block=32, shared_bytes=0, arguments=())
    return Entry(
        id=f"case {number}",
        cubin_path="x.cubin",
        kernel="attention",
        dynamic_bytes=0,
        arch="sm_90a",
        toolkit="13.0",
        run=Run(launch=launch, inputs=FixedInputs(values={}), outputs={}),
    )


class Ncu:
    """Stands in for ncu: keeps the command, writes a page where it says."""

    def __init__(self, page: str = PAGE) -> None:
        self.page = page
        self.command: list[str] = []
        self.entries: tuple[Entry, ...] = ()

    def __call__(self, command: Sequence[str], seconds: float) -> tuple[int, str]:
        self.command = list(command)
        self.entries = pickle.loads(Path(command[-1]).read_bytes())[0]
        log = next(word for word in command if word.startswith("--log-file="))
        Path(log.partition("=")[2]).write_text(self.page)
        return 0, ""


def test_each_entry_gets_the_values_of_its_own_launch() -> None:
    ncu = Ncu()
    found = read_counters([entry(0), entry(1)], facts(), "ncu", run=ncu)
    assert found["case 0"] == {
        "tensor_active_percent": 53.21,
        "tensor_instructions": 34603008.0,
        "l2_hit_percent": 90.03,
        "stalled_wait": 1.14,
    }
    # What ncu does not give, or gives as more than all, is left out.
    assert found["case 1"] == {"tensor_active_percent": 71.16, "tensor_instructions": 69206016.0}
    assert [one.id for one in ncu.entries] == ["case 0", "case 1"]


def test_clocks_and_caches_are_left_alone_and_only_our_kernels_are_counted() -> None:
    ncu = Ncu()
    read_counters([entry(0), entry(1)], facts(), "/opt/ncu", run=ncu)
    assert ncu.command[0] == "/opt/ncu"
    assert {"--clock-control=none", "--cache-control=none", "--kernel-name=regex:^(attention)$"} <= set(
        ncu.command
    )


@pytest.mark.parametrize("page", ["", HEAD + "\n", PAGE.replace('"attention","71', '"other","71')])
def test_other_launches_than_those_asked_for_are_refused(page: str) -> None:
    with pytest.raises(ToolError, match="launches of 2"):
        read_counters([entry(0), entry(1)], facts(), "ncu", run=Ncu(page))


def test_nothing_to_count_starts_nothing() -> None:
    assert read_counters([], facts(), "no such program") == {}


def test_a_program_that_does_not_start_is_a_tool_error() -> None:
    with pytest.raises(ToolError, match="ncu does not start"):
        read_counters([entry(0)], facts(), "/no/such/ncu")


def test_refused_counters_are_named(tmp_path: Path) -> None:
    refusing = program(tmp_path, "echo '==ERROR== ERR_NVGPUCTRPERM - no permission'; exit 1")
    with pytest.raises(ToolError, match="keeps hardware counters from this user"):
        read_counters([entry(0)], facts(), refusing)


LOG = 'for word; do case $word in --log-file=*) log="${word#*=}";; esac; done; '


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - no permission", "keeps hardware counters from this user"),
        ("==ERROR== Failed to find metric x", "exit status 1: Failed to find metric x"),
    ],
)
def test_what_ncu_complains_of_in_its_log_is_told(tmp_path: Path, line: str, words: str) -> None:
    failing = program(tmp_path, f"{LOG} echo '{line}' > $log; exit 1")
    with pytest.raises(ToolError, match=words):
        read_counters([entry(0)], facts(), failing)


def program(folder: Path, text: str) -> str:
    """A stand-in for ncu that does what a shell script says."""
    path = folder / "ncu"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("exit 137", "exit status 137"),
        ("printf 'caf\\351'; exit 1", "exit status 1"),
        ("exit 0", "counted 0 launches of 1"),
        ('for word; do case $word in --log-file=*) mkdir "${word#*=}";; esac; done', "counted 0 launches"),
    ],
)
def test_an_ncu_that_misbehaves_is_a_tool_error(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        read_counters([entry(0)], facts(), program(tmp_path, text))


def test_an_ncu_that_hangs_takes_its_children_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counters, "START_SECONDS", 0.3)
    monkeypatch.setattr(counters, "ENTRY_SECONDS", 0.0)
    mark = tmp_path / "alive"
    with pytest.raises(ToolError, match="did not end within"):
        read_counters([entry(0)], facts(), program(tmp_path, f"(sleep 1; touch {mark}) & wait"))
    time.sleep(1.2)
    assert not mark.exists()


@pytest.mark.parametrize(
    "page",
    [PAGE[: PAGE.index("71.16") + 1], PAGE.replace('"71.16"', '"71'), PAGE[: PAGE.index('"1","613"') + 9]],
)
def test_a_page_that_was_cut_gives_no_number(page: str) -> None:
    with pytest.raises(ToolError, match=r"launches of 2|no CSV"):
        read_counters([entry(0), entry(1)], facts(), "ncu", run=Ncu(page))


def test_a_number_that_is_not_written_in_english_is_left_out() -> None:
    page = PAGE.replace("1.14", "1,14").replace("53.21", "0,95")
    found = read_counters([entry(0), entry(1)], facts(), "ncu", run=Ncu(page))
    assert found["case 0"] == {"tensor_instructions": 34603008.0, "l2_hit_percent": 90.03}


@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)])
def test_every_capability_is_asked_for_each_name_once(cc: tuple[int, int]) -> None:
    names = [one.name for one in counters_of(cc)]
    assert len(set(names)) == len(names)
    missing = {one.name for one in COUNTERS} - set(names)
    assert missing <= ({"tensor_instructions"} if cc >= (10, 0) else set())


def test_the_line_of_units_is_no_row() -> None:
    assert [row["ID"] for row in table_of(PAGE)] == ["0", "1"]
    assert table_of("no table") == []


def test_counters_without_ncu_are_refused_before_anything_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> str:
        raise FileNotFoundError("not on PATH")

    monkeypatch.setattr(probes, "ncu_program", absent)
    with pytest.raises(UsageError, match="put ncu on PATH, or leave --counters out"):
        counting.require_counters(Plan(studies=(), counters=True))
    counting.require_counters(Plan(studies=()))


def test_counters_that_only_root_may_read_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "ncu_program", lambda: "ncu")
    monkeypatch.setattr(probes, "counters_are_closed", lambda: True)
    with pytest.raises(UsageError, match="only root may read them"):
        counting.require_counters(Plan(studies=(), counters=True))


def test_the_package_of_the_child_exists() -> None:
    assert counters.CHILD == "harness.gpu.profiled"
    assert (counters.ROOT / "harness/gpu/profiled.py").is_file()


def test_values_that_no_launch_gives_are_not_read_from_a_record() -> None:
    found = counters_of_record({"counters": {"tool": "x", "values": {"a": 10**400, "b": "1", "c": 2.5}}})
    assert found is not None and found.values == {"c": 2.5}
    assert counters_of_record({"counters": None}) is None
