"""The command line: `ablate`, the same as `python -m harness`.

Exit status: 0 done; 1 something that was asked for failed; 2 the request or a file is at fault, or a tool is
missing; 3 nothing could be timed although --require-gpu; 130 stopped by Ctrl-C; 141 the reader went away.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Sequence
from pathlib import Path

from harness.cli.say import complain
from harness.errors import AblationError, RecordError, ToolError, UsageError, path_error

FAILURE, USAGE, NO_GPU, INTERRUPTED, NO_READER = 1, 2, 3, 130, 141
# Faults of a disk or a path: the line says enough, no traceback would say more.
_OF_THE_MACHINE = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; whatever goes wrong is one line on standard error."""
    warnings.showwarning = _show_warning
    _open_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a GPU's name may hold what a terminal cannot
    try:
        return _run(sys.argv[1:] if argv is None else list(argv))
    except (UsageError, RecordError, ToolError) as error:
        return _fail(error, USAGE)
    except AblationError as error:
        return _fail(error, FAILURE)
    except KeyboardInterrupt:
        sys.stderr.write("\nablate: stopped; what was recorded so far is kept\n")
        return INTERRUPTED
    except BrokenPipeError:
        _drop_output()
        return NO_READER
    except OSError as error:
        if error.errno not in _OF_THE_MACHINE:
            return _crash(error)
        if error.filename is None:
            _drop_output()
        fault = path_error(f"{error.filename or 'output'}: {error.strerror}", error)
        return _fail(fault, USAGE if isinstance(fault, UsageError) else FAILURE)
    except Exception as error:  # the last resort: whatever it is, the user gets one line and a file to send
        return _crash(error)


def _open_streams() -> None:
    """Where the shell closed a stream (`>&-`), what is said there goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115


def _run(argv: list[str]) -> int:
    from harness.cli import arguments, commands

    arguments_of = arguments.parse(argv)
    status = commands.COMMANDS[arguments_of.command](arguments_of, argv)
    sys.stdout.flush()
    return status


def command_names() -> tuple[str, ...]:
    """Every command there is."""
    from harness.cli.commands import COMMANDS

    return tuple(COMMANDS)


def _fail(error: AblationError, status: int) -> int:
    complain(error.message, error.detail)
    return status


def _crash(error: Exception) -> int:
    what = " ".join(str(error).split()) or type(error).__name__
    descriptor, path = tempfile.mkstemp(prefix="ablate-", suffix=".txt")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(traceback.format_exception(error))
    complain(f"unexpected {type(error).__name__}: {what} (traceback in {path})")
    return FAILURE


def _drop_output() -> None:
    """Let the interpreter's last flush go nowhere instead of failing once more."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    complain(f"warning: {' '.join(str(message).split())}")
