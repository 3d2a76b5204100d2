"""The texts that were timed, kept by their digest: `<folder>/<digest>.cu.gz`, and the headers they include.

Equal texts are one file. A kept text ends in one comment line per included header, naming the file that holds
it, so that the digest of a record can be checked years later.
"""

from __future__ import annotations

import gzip
import os
import re
import tempfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from harness.key import digest

_HEADER = re.compile(r"^// kept header (?P<name>\S+) (?P<digest>[0-9a-f]{64})$")
_DIGEST = re.compile(r"[0-9a-f]{64}")


def keep(folder: Path, text: str, headers: Mapping[str, str]) -> Path:
    """Store a rendered text with the headers it includes (name -> text, in the order of `render`).

    Returns the file; one that is there already is left alone. Safe while others write the same.
    """
    own = digest(text, *(part for name, body in headers.items() for part in (name, body)))
    lines = []
    for name, body in headers.items():
        kept = digest(body)
        _write(_path(folder, kept, "cuh"), body)
        lines.append(f"// kept header {name} {kept}\n")
    ending = "" if text.endswith("\n") or not text else "\n// no newline at the end of the text\n"
    return _write(_path(folder, own, "cu"), text + ending + "".join(lines))


def load(folder: Path, wanted: str) -> str | None:
    """The text with this digest; None where it is not kept, or where it or a header is not what it was."""
    if not _DIGEST.fullmatch(wanted):
        return None
    try:
        lines = _read(_path(folder, wanted, "cu")).splitlines(keepends=True)
        headers: dict[str, str] = {}
        while lines and (found := _HEADER.match(lines[-1].rstrip("\n"))):
            headers[found["name"]] = _read(_path(folder, found["digest"], "cuh"))
            lines.pop()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error):
        return None
    text = "".join(lines).removesuffix("\n// no newline at the end of the text\n")
    parts = [part for name, body in reversed(headers.items()) for part in (name, body)]
    return text if digest(text, *parts) == wanted else None


def is_kept(folder: Path, wanted: str) -> bool:
    """Whether a text with this digest is there; `load` says whether it is whole."""
    return _path(folder, wanted, "cu").is_file()


def _path(folder: Path, own: str, suffix: str) -> Path:
    # Texts of one study differ in a few lines: packed, a few hundred of them are a few megabytes.
    return folder / f"{own}.{suffix}.gz"


def _read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def _write(path: Path, text: str) -> Path:
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".kept-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return path
