"""Starting the tools that the suite calls by the hundred: compiler, disassembler, compiled kernels."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

TRIES = 4


def run_tool(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run`, started again where exec fails with EFAULT; raises what that raises.

    Where several threads start tools at once, some machines fail an exec in some thousand that way. Nothing
    has run then.
    """
    for last in (*[False] * (TRIES - 1), True):
        try:
            return subprocess.run(command, check=False, **options)
        except OSError as error:
            if last or error.errno != errno.EFAULT:
                raise
    raise AssertionError("the last try returns or raises")
