"""A child process that does what may crash, hang or poison its state, and a parent that outlives it.

Knows nothing of GPUs: the child builds a server object and calls its methods by name. The parent gets each
result, or a typed error; after a crash, a hang or a StickyError the child is gone and the next call starts a
fresh one. The child ignores Ctrl-C and ends with its parent, however that ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from typing import IO, Any

from harness.errors import AblationError, HungError, LaunchError
from harness.gpu.commands import resolve
from harness.gpu.faults import StickyError
from harness.gpu.starting import errors_back, errors_kept, interrupts_ignored, last_words

READY, DONE, FAILED, LIMIT = "ready", "done", "failed", "limit"
END_SECONDS = 10.0
# A worker that never came up in so many starts will not do so for the next kernel.
MOST_STARTS = 3
# How multiprocessing says that the child ran the script of its parent anew.
_UNGUARDED = "bootstrapping phase"


class Worker:
    """Starts on the first call, or ahead of it with `start`; calls are answered one at a time.

    Args:
        server: "module:name" of a callable; in the child `server(limit, *arguments)` makes the object whose
            methods are called. `limit(seconds)` may be called by a method: from then on it has that long.
        arguments: picklable.
        start_seconds: how long the child may take to come up.
        call_seconds: how long a call may take that names no limit of its own.
    """

    def __init__(
        self,
        server: str,
        arguments: tuple[Any, ...] = (),
        *,
        start_seconds: float = 120.0,
        call_seconds: float = 30.0,
    ) -> None:
        self._server = server
        self._arguments = arguments
        self._start_seconds = start_seconds
        self._call_seconds = call_seconds
        self._process: Any = None
        self._pipe: Any = None
        self._said: IO[bytes] | None = None
        self._is_ready = False
        self._starts = 0

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is no child."""
        return self._process.pid if self._process is not None else None

    @property
    def generation(self) -> int:
        """How many children there have been: what was set up in an earlier one is gone."""
        return self._starts

    def start(self) -> None:
        """Start the child if there is none; does not wait for it."""
        if self._process is not None:
            return
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        with errors_kept() as (self._said, real), interrupts_ignored():
            self._process = context.Process(
                target=_child,
                args=(theirs, real, self._server, self._arguments),
                name="ablate-gpu-worker",
                daemon=True,
            )
            self._process.start()
        theirs.close()
        self._is_ready = False
        self._starts += 1

    def ensure(self) -> int:
        """A child that is up; its generation. LaunchError or HungError when it does not come up."""
        # One that died before it came up has said why: its words are read below.
        if self._process is not None and self._is_ready and not self._process.is_alive():
            self.kill()
        self.start()
        if not self._is_ready:
            self._receive("starting the GPU worker", self._start_seconds)
            self._is_ready = True
        return self._starts

    def come_up(self) -> None:
        """A child that is up, after several starts if need be.

        Raises:
            LaunchError: none came up; the message ends with why the last one did not, the detail is what it
            wrote.
        """
        for start in range(1, MOST_STARTS + 1):
            try:
                self.ensure()
                return
            except AblationError as error:
                if start == MOST_STARTS:
                    message = f"the GPU worker did not come up in {MOST_STARTS} starts: {error.message}"
                    raise LaunchError(message, detail=error.detail) from error

    def call(self, method: str, *arguments: Any, doing: str = "", seconds: float | None = None) -> Any:
        """Call a method of the server in the child.

        Raises:
            HungError: no answer in time; the child was killed.
            StickyError: the server's state is lost; the child was killed.
            LaunchError: the child died.
            AblationError: whatever typed error the method raised.
        """
        doing = doing or method
        self.ensure()
        try:
            self._pipe.send((method, arguments))
        except (OSError, ValueError):
            raise self._died(doing) from None
        return self._receive(doing, seconds if seconds is not None else self._call_seconds)

    def close(self) -> None:
        """End the child: let it finish by itself, then kill it."""
        if self._process is None:
            return
        with suppress(OSError):
            self._pipe.close()
        self._process.join(END_SECONDS if self._is_ready else 0)
        self.kill()

    def kill(self) -> None:
        """End the child now. One that the kernel of the machine cannot end at once is left to it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            self._pipe.close()
        if self._said is not None:
            self._said.close()
        process.kill()
        process.join(END_SECONDS)
        if not process.is_alive():
            process.close()

    def _receive(self, doing: str, seconds: float) -> Any:
        """The answer to what was sent. Whatever goes wrong, and Ctrl-C, leaves no child behind with an answer
        to come."""
        try:
            kind, value = self._answer(doing, seconds)
        except BaseException:
            self.kill()
            raise
        if kind == FAILED:
            if isinstance(value, StickyError) or not self._is_ready:
                self.kill()
            raise value
        return value

    def _answer(self, doing: str, seconds: float) -> tuple[str, Any]:
        deadline = time.monotonic() + seconds
        while True:
            if not wait([self._pipe], max(0.0, deadline - time.monotonic())):
                raise HungError(f"{doing}: no answer within {seconds:g} s; the worker was ended")
            try:
                kind, value = self._pipe.recv()
            except (EOFError, OSError):
                raise self._died(doing) from None
            if kind != LIMIT:
                return kind, value
            seconds = float(value)
            deadline = time.monotonic() + seconds

    def _died(self, doing: str) -> LaunchError:
        """The error of a child whose pipe has closed: how it ended, and what it wrote before it came up."""
        process = self._process
        process.join(END_SECONDS)
        how = _ending(process.exitcode)
        words = "" if self._is_ready else last_words(self._said)
        self.kill()
        if _UNGUARDED in words:
            how += '; a script must start runs below `if __name__ == "__main__":`, which its workers skip'
        return LaunchError(f"{doing}: the worker {how}", detail=words)


def _ending(code: int | None) -> str:
    """What the exit status of a child says."""
    if code is None:
        return "closed its pipe and does not end"
    if code < 0:
        with suppress(ValueError):
            return f"was ended by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def _child(pipe: Connection, real: Connection | None, server: str, arguments: tuple[Any, ...]) -> None:
    """The child's main: one server, calls in order, until the parent closes the pipe or dies."""
    errors_back(real)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _end_with_parent()

    def limit(seconds: float) -> None:
        pipe.send((LIMIT, seconds))

    target = _attempt(lambda: resolve(server)(limit, *arguments), pipe, READY)
    if target is None:
        return
    while True:
        try:
            method, values = pipe.recv()
        except (EOFError, OSError):
            return
        # The lambda is called at once, before the loop goes on.
        _attempt(lambda: getattr(target, method)(*values), pipe, DONE)  # noqa: B023


def _attempt(work: Callable[[], Any], pipe: Connection, kind: str) -> Any:
    """Do the work and send how it went; an object that is made once stays here, only its readiness is
    sent."""
    try:
        result = work()
        pipe.send((kind, None if kind == READY else result))
        return result
    except AblationError as error:
        pipe.send((FAILED, error))
    except Exception as error:
        fault = LaunchError(f"{type(error).__name__}: {error}", detail=traceback.format_exc())
        pipe.send((FAILED, fault))
    return None


def _end_with_parent() -> None:
    """End this process when its parent ends, even while the main thread waits for a kernel that hangs."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()
