"""What a child process is born with: deaf to Ctrl-C, and heard until it can speak for itself."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import IO

# Of what a child said before it came up, the end: there an error names itself.
MOST_BYTES = 4000


@contextmanager
def interrupts_ignored() -> Iterator[None]:
    """A child started here is born ignoring Ctrl-C: it would else die of it, with a traceback, before it can
    say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def errors_kept() -> Iterator[tuple[IO[bytes] | None, Connection | None]]:
    """A child started here writes its errors into the file, until it calls `errors_back` with the other.

    One that dies while it imports the main module has no other way to say why. What another thread of this
    process writes in these milliseconds goes there, too. Both are None, and nothing is kept, where this
    process has no standard error or no room for a file.
    """
    file = _new_file() if sys.__stderr__ is not None else None
    if file is None:
        yield None, None
        return
    # A connection, since that is what travels to a child with the descriptor in it.
    real = Connection(os.dup(2), readable=False)
    os.dup2(file.fileno(), 2)
    try:
        yield file, real
    finally:
        os.dup2(real.fileno(), 2)
        real.close()


def _new_file() -> IO[bytes] | None:
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return None


def errors_back(real: Connection | None) -> None:
    """In the child: from here on errors go where the parent's go."""
    if real is not None:
        os.dup2(real.fileno(), 2)
        real.close()


def last_words(file: IO[bytes] | None) -> str:
    """The end of what a child wrote into `file`, whole lines; nothing where none was kept."""
    if file is None:
        return ""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - MOST_BYTES))
    text = file.read().decode(errors="replace")
    return (text.partition("\n")[2] if size > MOST_BYTES else text).strip("\n")
