"""One rendered text for one architecture: from the cache, or compiled and put there."""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from harness.build.cache import Cache
from harness.build.nvrtc import BASE_OPTIONS, DEVICE_HEADERS, compile_cubin
from harness.build.sass import SCHEMA, Listing, dump_inspection, inspect_listing, parse_inspection
from harness.build.toolkit import nvdisasm_version, require_nvdisasm, toolkit
from harness.errors import ToolError
from harness.key import digest
from harness.model import Inspection, Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A rendered text, the file that holds it, and what to compile it for.

    `counted` is the opcode prefix that its main loop is found by; empty: the tensor instructions.
    """

    source: Source
    source_path: Path
    arch: str
    options: tuple[str, ...] = ()
    include_dir: Path | None = DEVICE_HEADERS
    counted: str = ""

    @property
    def key(self) -> str:
        """What decides the machine code: text and headers, options, architecture, compiler."""
        return digest("cubin", self.source.digest, self.arch, *BASE_OPTIONS, *self.options, toolkit().version)

    def __str__(self) -> str:
        return f"{self.source.case} for {self.arch}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A cubin on disk, and how it came about. `seconds` is what its compile took, whoever ran it."""

    request: Request
    path: Path
    sha256: str
    log: str
    cached: bool
    seconds: float


def save_source(source: Source, cache: Cache) -> Path:
    """The file that holds the rendered text. ToolError when nothing can be written anywhere."""
    return cache.find("source", source.digest) or _stored(
        cache, "source", source.digest, source.text.encode()
    )


def make_artifact(request: Request, cache: Cache) -> Artifact:
    """Look the cubin up, or compile it and put it into the cache. Raises what `compile_cubin` raises."""
    key = request.key
    found, story = cache.load("cubin", key), _parse_story(cache.get("log", key))
    if found and story:
        path, cubin = found
        sha256 = hashlib.sha256(cubin).hexdigest()
        log, seconds = story
        return Artifact(request=request, path=path, sha256=sha256, log=log, cached=True, seconds=seconds)
    start = time.perf_counter()
    made = compile_cubin(
        request.source,
        request.arch,
        options=request.options,
        include_dir=request.include_dir,
        saved=request.source_path,
    )
    seconds = round(time.perf_counter() - start, 4)
    # The log goes first: whoever sees the cubin then finds its log.
    _stored(cache, "log", key, json.dumps({"log": made.log, "seconds": seconds}, allow_nan=False).encode())
    path = _stored(cache, "cubin", key, made.cubin)
    sha256 = hashlib.sha256(made.cubin).hexdigest()
    return Artifact(request=request, path=path, sha256=sha256, log=made.log, cached=False, seconds=seconds)


def cached_inspection(artifact: Artifact, cache: Cache) -> Inspection | None:
    """What the disassembler said of this cubin earlier, or None."""
    data = cache.get("inspection", _inspection_key(artifact))
    return parse_inspection(data) if data else None


def store_inspection(artifact: Artifact, listing: Listing, cache: Cache) -> Inspection:
    """Inspect a listing of the artifact and keep the result."""
    inspection = inspect_listing(listing, artifact.log, artifact.request.counted)
    cache.put("inspection", _inspection_key(artifact), dump_inspection(inspection))
    return inspection


def _inspection_key(artifact: Artifact) -> str:
    version = nvdisasm_version(require_nvdisasm())
    counted = [artifact.request.counted] if artifact.request.counted else []
    return digest("inspection", str(SCHEMA), artifact.sha256, artifact.log, version, *counted)


def _parse_story(data: bytes | None) -> tuple[str, float] | None:
    try:
        story = json.loads(data or b"")
        return str(story["log"]), float(story["seconds"])
    except (ValueError, TypeError, KeyError):
        return None


def _stored(cache: Cache, kind: str, key: str, data: bytes) -> Path:
    path = cache.put(kind, key, data)
    if path is None:
        raise ToolError(
            f"nothing can be written to {cache.folder}, nor to a temporary folder: free some space"
        )
    return path
