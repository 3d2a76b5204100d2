"""The cache: atomic, self-checking, shared by processes, harmless where it cannot be written."""

from __future__ import annotations

import multiprocessing
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.build.cache import Cache, default_root

KEY = "ab" * 32


def test_what_is_put_is_got_from_a_plain_file(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    path = cache.put("cubin", KEY, b"\x7fELF rest")
    assert path is not None
    assert path.suffix == ".cubin"
    assert path.read_bytes() == b"\x7fELF rest"
    assert cache.get("cubin", KEY) == b"\x7fELF rest"
    assert cache.find("cubin", KEY) == path
    assert cache.load("cubin", KEY) == (path, b"\x7fELF rest")


def test_kinds_and_keys_do_not_mix(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("log", KEY, b"log")
    assert cache.get("cubin", KEY) is None
    assert cache.get("log", KEY[:-1]) is None
    assert cache.get("log", "ac" * 32) is None


@settings(max_examples=25, deadline=None)
@given(data=st.binary(max_size=400), cut=st.integers(0, 400), flip=st.integers(0, 399))
def test_a_damaged_entry_is_a_miss_and_can_be_replaced(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int, flip: int
) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    path = cache.put("cubin", KEY, data)
    assert path is not None
    damaged = data[:cut] if cut < len(data) else data + b"x"
    if len(data) > flip:
        damaged = data[:flip] + bytes([data[flip] ^ 1]) + data[flip + 1 :]
    path.write_bytes(damaged)
    assert cache.get("cubin", KEY) is None
    assert cache.put("cubin", KEY, data) == path
    assert cache.get("cubin", KEY) == data


def test_truncated_entry_is_a_miss(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    path = cache.put("cubin", KEY, bytes(3000))
    assert path is not None
    path.write_bytes(path.read_bytes()[:100])
    assert cache.get("cubin", KEY) is None


def test_file_in_place_of_the_folder_gives_one_warning_and_goes_on(tmp_path: Path) -> None:
    blocked = tmp_path / "cache"
    blocked.write_text("not a folder")
    cache = Cache(blocked)
    with pytest.warns(RuntimeWarning, match="cannot be written") as caught:
        paths = [cache.put(kind, KEY, kind.encode()) for kind in ("cubin", "log")]
    assert len(caught) == 1
    assert all(path is not None and not path.is_relative_to(blocked) for path in paths)
    assert cache.get("cubin", KEY) == b"cubin"
    assert cache.get("log", KEY) == b"log"
    assert blocked.read_text() == "not a folder"


def test_read_only_root_is_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Cache(tmp_path).put("cubin", KEY, b"kept")

    original = tempfile.mkstemp

    def refuse(*, prefix: str, dir: Path) -> tuple[int, str]:
        if tmp_path in dir.parents:
            raise PermissionError(13, "Permission denied")
        return original(prefix=prefix, dir=dir)

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    cache = Cache(tmp_path)
    with pytest.warns(RuntimeWarning, match="Permission denied"):
        assert cache.put("cubin", "cd" * 32, b"new") is not None
    assert cache.get("cubin", KEY) == b"kept"
    assert cache.get("cubin", "cd" * 32) == b"new"


def _fill(root: str, number: int) -> bool:
    cache = Cache(Path(root))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(40):
            data = bytes([i]) * 2000
            if cache.get("cubin", f"{i:064x}") not in (None, data):
                return False
            cache.put("cubin", f"{i:064x}", data)
    return all(cache.get("cubin", f"{i:064x}") == bytes([i]) * 2000 for i in range(40))


def test_eight_processes_share_an_empty_cache(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(8) as pool:
        assert pool.starmap(_fill, [(str(tmp_path), n) for n in range(8)]) == [True] * 8
    assert Cache(tmp_path).size() == (40, 40 * 2000)
    assert not list(tmp_path.rglob(".new-*"))


def test_clear_removes_entries_and_nothing_else(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    cache.put("cubin", KEY, b"12345")
    foreign = tmp_path / "cubin" / "ab" / "notes.txt"
    foreign.write_text("mine")
    (tmp_path / "elsewhere.cubin").write_text("mine too")
    assert cache.size() == (1, 5)
    assert cache.clear() == 5
    assert cache.size() == (0, 0)
    assert foreign.exists()
    assert (tmp_path / "elsewhere.cubin").exists()


def test_default_root_follows_the_desktop_convention(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_root() == Path("/somewhere/ablate")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_root() == Path("/home/someone/.cache/ablate")
