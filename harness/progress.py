"""What a long run tells its user: one-line notes, and a progress bar on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from harness.printable import printable

Advance = Callable[[str], None]


class Ui(Protocol):
    """What the pipeline may say while it works."""

    def note(self, text: str) -> None:
        """Say one line now, above any bar."""

    def stage(self, title: str, total: int | None) -> AbstractContextManager[Advance]:
        """Open a stage of `total` pieces (None: unknown).

        Call what it gives once per finished piece, from any thread, with a word on what is being done.
        """


class Quiet:
    """Says nothing."""

    def note(self, text: str) -> None:
        """Drop the line."""

    @contextmanager
    def stage(self, title: str, total: int | None) -> Iterator[Advance]:
        """A stage that shows nothing."""
        yield lambda what: None


class Lines:
    """Notes as plain lines, for a pipe or a log; no bar."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def note(self, text: str) -> None:
        """Write one line."""
        self._stream.write(printable(text) + "\n")
        self._stream.flush()

    @contextmanager
    def stage(self, title: str, total: int | None) -> Iterator[Advance]:
        """A stage that shows nothing."""
        yield lambda what: None


class Bars:
    """A rich progress bar on a terminal; it leaves no trace when the stage ends."""

    def __init__(self, stream: TextIO) -> None:
        from rich.console import Console

        self._console = Console(file=stream)

    def note(self, text: str) -> None:
        """Write one line above the bar."""
        self._console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    @contextmanager
    def stage(self, title: str, total: int | None) -> Iterator[Advance]:
        """A bar with the title, the count, the time left and what is being done."""
        from rich.markup import escape
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[what]}"),
        )
        with Progress(*columns, console=self._console, transient=True) as progress:
            task = progress.add_task(escape(printable(title)), total=total, what="")
            yield lambda what: progress.update(task, advance=1, what=escape(printable(what)))


def choose(stream: TextIO) -> Ui:
    """Bars when the stream is a terminal, plain lines otherwise."""
    return Bars(stream) if stream.isatty() else Lines(stream)
