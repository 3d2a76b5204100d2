"""A folder of finished work, shared by any number of processes: cubins, logs, sources, inspections.

An entry is one plain file `<root>/<kind>/<2 digits>/<key>-<checksum><suffix>`, so that nvdisasm, a driver or
a reader can open it. The checksum of the content is part of the name: one rename publishes both together, and
an entry that was cut, overwritten or half copied no longer matches its name and counts as absent.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = {
    "cubin": ".cubin",
    "source": ".cu",
    "log": ".json",
    "inspection": ".json",
    "twin": ".bin",
    "check": ".json",
}
_CHECKSUM_DIGITS = 16
_ENTRY = re.compile(r"^[0-9a-f]{8,}-[0-9a-f]{16}(\.[a-z]+)?$")
_TEMPORARY = ".new-"


def default_root() -> Path:
    """`$XDG_CACHE_HOME/ablate`, else `~/.cache/ablate`; created on the first write."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else Path("~/.cache").expanduser()) / "ablate"


class Cache:
    """Bytes by (kind, key). Safe for threads and processes at once; reading never raises for a bad entry.

    A root that cannot be written gives one warning (RuntimeWarning) and a temporary folder instead, which is
    removed when the process ends; entries that the root already holds are still read.

    Args:
        root: the folder; None means `default_root()`.
    """

    def __init__(self, root: Path | None = None) -> None:
        self.root = (root or default_root()).expanduser().absolute()
        self._spare: Path | None = None
        self._lock = threading.Lock()

    def get(self, kind: str, key: str) -> bytes | None:
        """The content of an entry, or None when there is none whose content matches its checksum."""
        found = self._read(kind, key)
        return found[1] if found else None

    def find(self, kind: str, key: str) -> Path | None:
        """The file of an intact entry, or None."""
        found = self._read(kind, key)
        return found[0] if found else None

    def load(self, kind: str, key: str) -> tuple[Path, bytes] | None:
        """File and content of an intact entry in one read, or None."""
        return self._read(kind, key)

    def put(self, kind: str, key: str, data: bytes) -> Path | None:
        """Store `data`; its file, or None when not even a temporary folder can be written."""
        if self._spare is None:
            try:
                return self._write(self.root, kind, key, data)
            except OSError as error:
                self._use_spare(error)
        try:
            return self._write(self._spare, kind, key, data) if self._spare else None
        except OSError:
            return None

    def size(self) -> tuple[int, int]:
        """Entries and their bytes in the folder that is written to."""
        sizes = [_bytes_of(path) for path in self._entries()]
        return len(sizes), sum(sizes)

    def clear(self) -> int:
        """Remove every entry, and nothing that is no entry; the number of bytes freed."""
        freed = 0
        for path in [*self._entries(), *self._leftovers()]:
            size = _bytes_of(path)
            if _remove(path):
                freed += size
        return freed

    @property
    def folder(self) -> Path:
        """Where entries are written: the root, or the temporary folder that stands in for it."""
        return self._spare or self.root

    def _read(self, kind: str, key: str) -> tuple[Path, bytes] | None:
        for root in (self._spare, self.root):
            if root is None:
                continue
            for path in _candidates(root, kind, key):
                try:
                    data = path.read_bytes()
                except OSError:
                    continue
                if path.name == _entry_name(kind, key, data):
                    return path, data
                _remove(path)
        return None

    def _write(self, root: Path, kind: str, key: str, data: bytes) -> Path:
        path = _shelf(root, kind, key) / _entry_name(kind, key, data)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(temporary).replace(path)
        except BaseException:
            _remove(Path(temporary))
            raise
        return path

    def _use_spare(self, error: OSError) -> None:
        with self._lock:
            if self._spare is not None:
                return
            warnings.warn(
                f"cache folder {self.root} cannot be written ({error.strerror or error}); "
                "going on with a temporary folder, so nothing is kept for the next run",
                RuntimeWarning,
                stacklevel=4,
            )
            try:
                self._spare = Path(tempfile.mkdtemp(prefix="ablate-"))
            except OSError:
                return
            # Builds point into this folder for as long as the process lives, longer than the Cache itself.
            atexit.register(shutil.rmtree, self._spare, ignore_errors=True)

    def _files(self) -> Iterator[Path]:
        for kind in SUFFIXES:
            shelf = self.folder / kind
            if shelf.is_dir():
                yield from (path for path in shelf.glob("*/*") if path.is_file())

    def _entries(self) -> list[Path]:
        return [path for path in self._files() if _ENTRY.match(path.name)]

    def _leftovers(self) -> list[Path]:
        return [path for path in self._files() if path.name.startswith(_TEMPORARY)]


def _entry_name(kind: str, key: str, data: bytes) -> str:
    return f"{key}-{hashlib.sha256(data).hexdigest()[:_CHECKSUM_DIGITS]}{SUFFIXES[kind]}"


def _shelf(root: Path, kind: str, key: str) -> Path:
    return root / kind / key[:2]


def _candidates(root: Path, kind: str, key: str) -> list[Path]:
    shelf = _shelf(root, kind, key)
    try:
        return sorted(path for path in shelf.iterdir() if path.name.startswith(key + "-"))
    except OSError:
        return []


def _bytes_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except OSError:
        return False
    return True
