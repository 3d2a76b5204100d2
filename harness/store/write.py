"""Writing a record file: one new file per run, every line on the disk before the next case starts."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.errors import AblationError, path_error
from harness.key import safe_name
from harness.store.plain import encode
from harness.store.read import SCHEMA


def new_run() -> tuple[str, str]:
    """A fresh run id (32 hex digits) and the present UTC time as `2026-11-30T13:20:00Z`, for a header."""
    return uuid.uuid4().hex, datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def record_path(root: Path, study: str, where: str, header: Mapping[str, Any]) -> Path:
    """`<root>/<study>/<gpu or arch>/<UTC time>-<run id>.jsonl`, every part a safe file name."""
    time = str(header["started"]).replace("-", "").replace(":", "")
    name = safe_name(f"{time}-{str(header['run'])[:12]}")
    return root / safe_name(study) / safe_name(where) / f"{name}.jsonl"


class Writer:
    """Appends to one new record file; use as a context manager. Made by `create`."""

    def __init__(self, path: Path, descriptor: int, planned: int | None) -> None:
        self.path = path
        self.written = 0
        self._planned = planned
        self._descriptor = descriptor
        self._size = 0

    def append(self, record: Mapping[str, Any]) -> None:
        """Write one record and wait until the disk has it.

        Raises AblationError when the disk refuses (full, gone). The file then ends with the record before,
        and the same record may be appended again.
        """
        self._write({"kind": "record", **record})
        self.written += 1

    def finish(self, missing: Sequence[str] = ()) -> None:
        """Write the footer. `missing` names what was planned and did not run."""
        planned = self.written + len(missing) if self._planned is None else self._planned
        complete = not missing and self.written >= planned
        footer = {"kind": "footer", "complete": complete, "planned": planned, "written": self.written}
        self._write({**footer, "missing": list(missing)} if missing else footer)

    def close(self) -> None:
        """Close the file; without `finish` before, it reads as partial."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        data = encode(line)
        if self._descriptor < 0:
            raise AblationError(f"{self.path} is closed: nothing more can be written to it")
        try:
            # What a failed write left behind goes first; then the line is whole or absent.
            os.ftruncate(self._descriptor, self._size)
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
            os.fsync(self._descriptor)
        except BaseException as error:
            self._cut_back()
            if isinstance(error, OSError):
                raise _disk_error(f"cannot write to {self.path}", error, self.written) from error
            raise
        self._size += len(data)

    def _cut_back(self) -> None:
        # Where even this fails, the cut last line is readable, and the next write tries again.
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self._size)


def create(path: Path, header: Mapping[str, Any], *, planned: int | None = None) -> Writer:
    """Open a new file and write its header, with `kind`, `schema` and the number of records `planned`.

    Raises UsageError when the folder cannot be written, AblationError when the disk is full or the file is
    there already.
    """
    line = {"kind": "header", "schema": SCHEMA, **header}
    if planned is not None:
        line["planned"] = planned
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
    except OSError as error:
        if isinstance(error, FileExistsError) and path.exists():
            raise AblationError(f"{path} exists already; every run writes a file of its own") from error
        raise path_error(f"cannot create {path}: {error.strerror or error}", error) from error
    writer = Writer(path, descriptor, planned)
    try:
        writer._write(line)
        _sync_folder(path.parent)
    except BaseException:
        writer.close()
        raise
    return writer


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the file system can."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _disk_error(what: str, error: OSError, written: int) -> AblationError:
    safe = f"; the {written} records before are safe: make room, then --resume" if written else ""
    return AblationError(f"{what}: {error.strerror or error}{safe}")
