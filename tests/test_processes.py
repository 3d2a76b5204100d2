"""Starting tools: an exec that the machine's memory got in the way of is started again, nothing else is."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from harness import processes
from harness.processes import TRIES, run_tool


def failing(times: int, number: int) -> tuple[list[int], object]:
    calls: list[int] = []
    real = subprocess.run

    def run(*arguments: object, **options: object) -> object:
        calls.append(1)
        if len(calls) <= times:
            raise OSError(number, "refused")
        return real(*arguments, **options)  # type: ignore[call-overload]

    return calls, run


def test_an_exec_with_a_bad_address_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, run = failing(TRIES - 1, errno.EFAULT)
    monkeypatch.setattr(processes.subprocess, "run", run)
    done = run_tool([sys.executable, "-c", "print(7)"], capture_output=True, text=True)
    assert (done.stdout, len(calls)) == ("7\n", TRIES)


@pytest.mark.parametrize(
    ("times", "number", "tries"), [(TRIES, errno.EFAULT, TRIES), (1, errno.ENOENT, 1), (1, errno.EACCES, 1)]
)
def test_any_other_failure_and_the_last_one_are_raised(
    monkeypatch: pytest.MonkeyPatch, times: int, number: int, tries: int
) -> None:
    calls, run = failing(times, number)
    monkeypatch.setattr(processes.subprocess, "run", run)
    with pytest.raises(OSError, match="refused"):
        run_tool([sys.executable, "-c", ""])
    assert len(calls) == tries


def test_a_status_that_is_not_zero_is_no_error() -> None:
    assert run_tool([sys.executable, "-c", "raise SystemExit(3)"]).returncode == 3
