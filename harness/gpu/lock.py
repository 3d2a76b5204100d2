"""One run at a time on a GPU, and none on a busy one.

Two locks, because neither reaches everywhere: a locked file named after the GPU's UUID in the temporary
folder, and an abstract socket of the same name, which containers that share the network see although their
folders differ. The kernel drops both when the holder dies.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.errors import UsageError
from harness.key import safe_name


class BusyError(UsageError):
    """The GPU is in use: by another run that holds its lock, or by anything else."""


@contextmanager
def gpu_lock(key: str, *, folder: Path | None = None) -> Iterator[None]:
    """Hold the GPU named by `key` (its UUID); BusyError names the holder's pid when another run has it."""
    name = safe_name(f"ablate-gpu-{key}")
    descriptor = _lock_file((folder or Path(tempfile.gettempdir())) / f"{name}.lock", key)
    try:
        listener = _lock_socket(name, key)
        try:
            yield
        finally:
            if listener is not None:
                listener.close()
    finally:
        if descriptor is not None:
            # Emptied, not removed: removing it would let two runs lock two files of one name.
            with suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


def _lock_file(path: Path, key: str) -> int | None:
    """The locked descriptor with our pid in it; None where files cannot be locked: the socket must do."""
    try:
        import fcntl
    except ImportError:
        return None
    descriptor = _open(path)
    if descriptor is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            return None
        raise _held(key, holder) from None
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _open(path: Path) -> int | None:
    """The lock file, made for everyone; one that another user made is opened as far as it lets us."""
    follow = getattr(os, "O_NOFOLLOW", 0)
    for flags in (os.O_RDWR | follow, os.O_RDWR | os.O_CREAT | os.O_EXCL | follow, os.O_RDONLY | follow):
        with suppress(OSError):
            descriptor = os.open(path, flags, 0o666)
            if flags & os.O_CREAT:
                with suppress(OSError):
                    os.fchmod(descriptor, 0o666)
            return descriptor
    return None


def _lock_socket(name: str, key: str) -> socket.socket | None:
    if not sys.platform.startswith("linux"):
        return None
    address = f"\0{name}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(address)
        listener.listen(8)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise _held(key, _socket_holder(address)) from None
        return None
    return listener


def _socket_holder(address: str) -> str:
    """The pid behind the socket; empty when it lives where we cannot see it (another container)."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1)
        client.connect(address)
        pid = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]
        return str(pid) if pid else ""
    return ""


def _held(key: str, holder: str) -> BusyError:
    who = f"pid {holder}" if holder else "a process whose pid cannot be seen from here"
    return BusyError(f"GPU {key} is being timed by {who}: wait for it, or end it")
