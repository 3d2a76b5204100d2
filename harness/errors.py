"""Typed errors. Each is raised once, where the fault is seen, and says what is wrong and what would be
right."""

from __future__ import annotations

import errno
from typing import ClassVar


class AblationError(Exception):
    """Base of every error that the suite raises on purpose.

    Args:
        message: what is wrong and, where it can be said, what would be right; one line.
        detail: longer text (a compiler's log, the lines around a fault), shown below the message.
    """

    status: ClassVar[str] = "launch_failed"

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.detail))


def _rebuild(kind: type[AblationError], message: str, detail: str) -> AblationError:
    return kind(message, detail=detail)


class UsageError(AblationError):
    """The user asked for something that does not exist or cannot be: exit status 2."""


class StudyError(AblationError):
    """A study's definition contradicts itself (an unknown level, a switch no template uses)."""


class RenderError(AblationError):
    """A template cannot be rendered; the message holds template file and line."""

    status = "render_failed"


class CompileError(AblationError):
    """NVRTC refused the text; places are given in the template and in the saved rendered file."""

    status = "compile_failed"


class ToolError(AblationError):
    """A tool is missing or failed (NVRTC, nvdisasm, a driver): the message says which and what to install."""

    status = "compile_failed"


class ContractError(AblationError):
    """The machine code of a case is not what the case says it is."""

    status = "contract_broken"


class NotSupportedError(AblationError):
    """The case cannot run on this target (shared memory, architecture); the others go on."""

    status = "not_supported"


class VerifyError(AblationError):
    """A kernel's output differs from its NumPy reference by more than the derived bound."""

    status = "wrong"


class LaunchError(AblationError):
    """The driver refused or aborted a launch."""

    status = "launch_failed"


class HungError(AblationError):
    """A kernel did not come back before the watchdog's limit."""

    status = "hung"


class RecordError(AblationError):
    """A record file is foreign, cut, or of another schema; names the file and the line."""


def path_error(message: str, error: OSError) -> AblationError:
    """The typed error for a path that cannot be written: the user can change that, but no full disk."""
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    return AblationError(message) if is_full else UsageError(message)
