"""CUDA errors in words, and which of them poison a context. Pure: works on status numbers and names."""

from __future__ import annotations

from harness.errors import AblationError, LaunchError

# Errors after which the context still works. Everything else (illegal access, trap, ECC, timeout, unknown) is
# taken as sticky: a fresh worker costs seconds, a poisoned context costs every later row.
HARMLESS = frozenset({1, 2, 9, 98, 200, 209, 218, 221, 222, 223, 300, 301, 302, 500, 600, 701, 720, 801})
# By name: the classes are CuPy's, which is not imported here. (Its compiler's errors have a `status`, too.)
CUDA_ERRORS = ("CUDARuntimeError", "CUDADriverError")


class StickyError(LaunchError):
    """A CUDA error that left the context unusable: the worker that met it must end."""


def cuda_status(error: BaseException) -> int | None:
    """The CUDA status number of an exception raised by CuPy; None for any other exception."""
    if type(error).__name__ not in CUDA_ERRORS:
        return None
    status = getattr(error, "status", None)
    return int(status) if status is not None else None


def cuda_name(error: BaseException) -> str:
    """The name with which the text of a CuPy error begins, or "CUDA error 209" where it begins with none."""
    name, *_ = str(error).split(":", 1)
    return name if name.isidentifier() else f"CUDA error {cuda_status(error)}"


def is_sticky(status: int) -> bool:
    """Whether nothing more can be done in the context that returned this status."""
    return status not in HARMLESS


def as_fault(error: BaseException, doing: str) -> AblationError:
    """The typed error for an exception met while `doing` something on the device; a typed one is kept."""
    if isinstance(error, AblationError):
        return error
    status = cuda_status(error)
    if status is not None:
        kind = StickyError if is_sticky(status) else LaunchError
        return kind(f"{doing}: {error}")
    if isinstance(error, MemoryError):
        return LaunchError(f"{doing}: not enough memory: {error}")
    return LaunchError(f"{doing}: {type(error).__name__}: {error}")


def cuda_level(version: int | None) -> str | None:
    """13020 -> "13.2"; None or 0 (no driver) -> None."""
    if not version:
        return None
    return f"{version // 1000}.{version % 1000 // 10}"
