"""Hardware counters of prepared entries, read by Nsight Compute around a process that launches each once.

Never during timing: a profiled launch is replayed several times, and its seconds mean nothing.
"""

from __future__ import annotations

import csv
import io
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from harness.errors import ToolError
from harness.gpu.commands import Entry
from harness.gpu.facts import GpuFacts

CHILD = "harness.gpu.profiled"
ROOT = Path(__file__).resolve().parents[2]
# The start of ncu and of CUDA in the child, then the replays of one entry, generously.
START_SECONDS, ENTRY_SECONDS = 120.0, 10.0
# "Sustained" rates are typical ones: a little more than all of one can be.
MOST_PERCENT = 101.0
HOPPER, BLACKWELL = (9, 0), (10, 0)

# As ncu writes one where numbers are written as in English: 34,603,008 or 53.21.
_NUMBER = re.compile(r"-?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][-+]?\d+)?")

Run = Callable[[Sequence[str], float], tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """One number of a launch: its name here and ncu's, on compute capabilities `since` to before `until`."""

    name: str
    metric: str
    since: tuple[int, int] = (7, 5)
    until: tuple[int, int] = (99, 0)


def _active(unit: str) -> str:
    return f"{unit}.avg.pct_of_peak_sustained_active"


def _stalled(reason: str) -> Counter:
    metric = f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio"
    return Counter(name=f"stalled_{reason}", metric=metric)


def _ops(types: str, spelling: str) -> tuple[Counter, ...]:
    """From Hopper on the warp-level instructions are counted apart from the others."""
    name, end = f"ops_{types}_percent", f"{spelling}_sparsity_off"
    return (
        Counter(name=name, metric=_active(f"sm__ops_path_tensor_{end}"), until=HOPPER),
        Counter(name=name, metric=_active(f"sm__ops_path_tensor_op_hmma_{end}"), since=HOPPER),
    )


# Percentages are of the cycles that an SM was active, against what the unit sustains. `stalled_...` are
# clocks that warps stalled for that reason, summed over the warps, for each instruction issued. `ops_...`
# knows the dense rate of its types, where tensor_active is of the pipe, whatever runs on it. Names as ncu
# 2025.3 lists them for each chip.
COUNTERS = (
    Counter(name="tensor_active_percent", metric=_active("sm__pipe_tensor_cycles_active"), until=BLACKWELL),
    Counter(
        name="tensor_active_percent",
        metric=_active("sm__pipe_tensor_subpipe_hmma_cycles_active"),
        since=BLACKWELL,
    ),
    Counter(name="tensor_instructions", metric="sm__inst_executed_pipe_tensor.sum", until=BLACKWELL),
    *_ops("fp16_f32", "src_fp16_dst_fp32"),
    *_ops("fp16_f16", "src_fp16_dst_fp16"),
    *_ops("bf16_f32", "src_bf16_dst_fp32"),
    Counter(name="issue_active_percent", metric=_active("smsp__issue_active")),
    Counter(name="mufu_active_percent", metric=_active("sm__inst_executed_pipe_xu")),
    Counter(name="shared_active_percent", metric=_active("l1tex__data_pipe_lsu_wavefronts_mem_shared")),
    Counter(name="shared_conflicts", metric="l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"),
    Counter(name="l2_hit_percent", metric="lts__t_sector_hit_rate.pct"),
    _stalled("math_pipe_throttle"),
    _stalled("wait"),
    _stalled("short_scoreboard"),
    _stalled("long_scoreboard"),
    _stalled("mio_throttle"),
    _stalled("barrier"),
    _stalled("lg_throttle"),
    _stalled("no_instruction"),
    _stalled("dispatch_stall"),
    _stalled("branch_resolving"),
)


def counters_of(cc: tuple[int, int]) -> tuple[Counter, ...]:
    """What is asked of a GPU of this compute capability."""
    return tuple(one for one in COUNTERS if one.since <= cc < one.until)


def read_counters(
    entries: Sequence[Entry], facts: GpuFacts, program: str, *, run: Run | None = None
) -> dict[str, dict[str, float]]:
    """Entry id -> counter -> value, of one launch each; what ncu does not give is left out.

    Raises ToolError when ncu fails, may not read counters, or counted other launches than these.
    """
    if not entries:
        return {}
    asked = counters_of(facts.cc)
    with tempfile.TemporaryDirectory(prefix="ablate-") as folder:
        plan, log = Path(folder, "entries"), Path(folder, "ncu.csv")
        plan.write_bytes(pickle.dumps((tuple(entries), facts)))
        kernels = "|".join(sorted({re.escape(entry.kernel) for entry in entries}))
        command = [
            program,
            "--clock-control=none",
            "--cache-control=none",
            f"--metrics={','.join(one.metric for one in asked)}",
            f"--kernel-name=regex:^({kernels})$",
            "--csv",
            "--page=raw",
            "--print-units=base",
            f"--log-file={log}",
            sys.executable,
            "-m",
            CHILD,
            str(plan),
        ]
        status, said = (run or _run)(command, START_SECONDS + ENTRY_SECONDS * len(entries))
        text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    _refuse_failure(status, f"{text}\n{said}")
    rows = table_of(text)
    names = [(row.get("Kernel Name") or "").split("(")[0] for row in rows]
    if names != [entry.kernel for entry in entries]:
        raise ToolError(
            f"ncu counted {len(rows)} launches of {len(entries)}", detail=f"{text}\n{said}"[-2000:]
        )
    return {entry.id: _values(row, asked) for entry, row in zip(entries, rows, strict=True)}


def table_of(text: str) -> list[dict[str, str]]:
    """The rows of ncu's raw CSV page, by column. ToolError when it is no CSV.

    Lines before its head, the line of units and a row that was cut are left out.
    """
    lines = text.splitlines()
    heads = [number for number, line in enumerate(lines) if line.startswith('"ID"')]
    if not heads:
        return []
    try:
        rows = list(csv.DictReader(io.StringIO("\n".join(lines[heads[0] :])), strict=True))
    except csv.Error as error:
        raise ToolError(f"ncu's page is no CSV: {error}", detail=text[-2000:]) from None
    return [row for row in rows if (row["ID"] or "").isdigit() and None not in row.values()]


def _values(row: Mapping[str, str], asked: Sequence[Counter]) -> dict[str, float]:
    found = {}
    for one in asked:
        text = row.get(one.metric) or ""
        if not _NUMBER.fullmatch(text):  # "n/a", or a metric that this ncu does not know
            continue
        value = float(text.replace(",", ""))
        # Numerator and denominator may come from different replays of a launch that touches little.
        if not (one.name.endswith("_percent") and value > MOST_PERCENT):
            found[one.name] = value
    return found


def _refuse_failure(status: int, said: str) -> None:
    """ToolError with ncu's own first complaint, from its log or its output, when it failed."""
    if "ERR_NVGPUCTRPERM" in said:
        raise ToolError("the driver keeps hardware counters from this user (ERR_NVGPUCTRPERM)", detail=said)
    if status:
        complaint = next((line for line in said.splitlines() if line.startswith("==ERROR==")), "")
        why = f": {complaint.removeprefix('==ERROR==').strip()}" if complaint else ""
        raise ToolError(f"ncu ended with exit status {status}{why}", detail=said[-2000:])


def _run(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Exit status and output; its children end with it. ToolError when it hangs or does not start."""
    environment = {
        **os.environ,
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(f"ncu does not start: {error}") from None
    with process:
        try:
            said, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ToolError(f"ncu did not end within {seconds:.0f} s") from None
        finally:
            # Also on Ctrl-C: what ncu watches would go on using the GPU.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, said
