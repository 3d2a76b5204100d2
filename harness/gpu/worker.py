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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from harness.errors import AblationError, HungError, LaunchError
from harness.gpu.commands import resolve
from harness.gpu.faults import StickyError

READY, DONE, FAILED, LIMIT = "ready", "done", "failed", "limit"
END_SECONDS = 10.0


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
        self._process = context.Process(
            target=_child, args=(theirs, self._server, self._arguments), name="ablate-gpu-worker", daemon=True
        )
        with _interrupts_ignored():
            self._process.start()
        theirs.close()
        self._is_ready = False
        self._starts += 1

    def ensure(self) -> int:
        """A child that is up; its generation. LaunchError or HungError when it does not come up."""
        if self._process is not None and not self._process.is_alive():
            self.kill()
        self.start()
        if not self._is_ready:
            self._receive("starting the GPU worker", self._start_seconds)
            self._is_ready = True
        return self._starts

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
            raise LaunchError(f"{doing}: {self._post_mortem()}") from None
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
                raise LaunchError(f"{doing}: {self._post_mortem()}") from None
            if kind != LIMIT:
                return kind, value
            seconds = float(value)
            deadline = time.monotonic() + seconds

    def _post_mortem(self) -> str:
        """How the child ended, once its pipe has closed."""
        process = self._process
        process.join(END_SECONDS)
        code = process.exitcode
        self.kill()
        if code is None:
            return "the worker closed its pipe and does not end"
        if code < 0:
            with suppress(ValueError):
                return f"the worker was ended by {signal.Signals(-code).name}"
        return f"the worker ended with status {code}"


def _child(pipe: Connection, server: str, arguments: tuple[Any, ...]) -> None:
    """The child's main: one server, calls in order, until the parent closes the pipe or dies."""
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


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
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
