"""Many requests at once: compiled and disassembled by threads, equal requests once, errors as values."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from functools import partial
from typing import TypeVar

from harness.build.artifact import Artifact, Request, cached_inspection, make_artifact, store_inspection
from harness.build.cache import Cache
from harness.build.disassembler import disassemble_all
from harness.errors import AblationError
from harness.model import Inspection

# Kernels for one run of the disassembler: enough to hide its start-up, few enough to use all cores.
_BATCH = 24

Progress = Callable[[int, int, str], None]
Made = tuple[Artifact, Inspection]
_K = TypeVar("_K", bound=Hashable)
_T = TypeVar("_T")


class Report:
    """Counts finished steps and tells the caller: (done, total, what was done)."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0

    def step(self, what: str) -> None:
        """One step is finished."""
        self._done += 1
        if self._progress:
            self._progress(self._done, self._total, what)


def make_all(
    requests: Iterable[Request], cache: Cache, *, workers: int | None = None, progress: Progress | None = None
) -> dict[str, Made | AblationError]:
    """Compile and inspect every request; by Request.key, the artifact and its inspection or the error.

    `progress` is called in this thread, two steps a distinct request. `workers` is the number of threads, by
    default one per core: NVRTC and nvdisasm leave the interpreter free.
    """
    tasks = {request.key: partial(make_artifact, request, cache) for request in requests}
    report = Report(progress, 2 * len(tasks))
    pool = ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1)
    try:
        artifacts = _run_all(pool, tasks, lambda made: report.step(_compiled(made)))
        inspections = _inspect_all(pool, artifacts, cache, report)
    finally:
        pool.shutdown(cancel_futures=True)
    return {key: _joined(artifacts[key], inspections.get(key)) for key in tasks}


def attempt(task: Callable[[], _T]) -> _T | AblationError:
    """What the task returns, or the AblationError that it raises."""
    try:
        return task()
    except AblationError as error:
        return error


def _run_all(
    pool: ThreadPoolExecutor, tasks: Mapping[_K, Callable[[], _T]], done: Callable[[_T | AblationError], None]
) -> dict[_K, _T | AblationError]:
    """Every task's result or AblationError, in the order of the tasks; `done` is called as they end."""
    futures: dict[Future[_T | AblationError], _K] = {
        pool.submit(attempt, task): key for key, task in tasks.items()
    }
    results: dict[_K, _T | AblationError] = {}
    for future in as_completed(futures):
        results[futures[future]] = future.result()
        done(future.result())
    return {key: results[key] for key in tasks}


def _inspect_all(
    pool: ThreadPoolExecutor,
    artifacts: Mapping[str, Artifact | AblationError],
    cache: Cache,
    report: Report,
) -> dict[str, Inspection | AblationError]:
    """Inspections by key: from the cache, the others through the disassembler in batches."""
    found: dict[str, Inspection | AblationError] = {}
    waiting: dict[str, list[tuple[str, Artifact]]] = {}
    for key, artifact in artifacts.items():
        if isinstance(artifact, AblationError):
            report.step(artifact.message)
        elif (inspection := cached_inspection(artifact, cache)) is not None:
            found[key] = inspection
            report.step(f"{artifact.request}: inspected before")
        else:
            waiting.setdefault(artifact.request.arch, []).append((key, artifact))
    tasks = {
        (arch, start): partial(_inspect_batch, rows[start : start + _BATCH], cache)
        for arch, rows in waiting.items()
        for start in range(0, len(rows), _BATCH)
    }

    def tell(made: dict[str, Inspection | AblationError] | AblationError) -> None:
        for key in made if isinstance(made, dict) else ():
            report.step(f"{_request_of(artifacts[key])}: inspected")

    for made in _run_all(pool, tasks, tell).values():
        if isinstance(made, AblationError):
            raise made
        found |= made
    return found


def _inspect_batch(
    rows: Sequence[tuple[str, Artifact]], cache: Cache
) -> dict[str, Inspection | AblationError]:
    listings = disassemble_all([artifact.path for _, artifact in rows], rows[0][1].request.arch)
    return {
        key: listing
        if isinstance(listing, AblationError)
        else attempt(partial(store_inspection, artifact, listing, cache))
        for (key, artifact), listing in zip(rows, listings, strict=True)
    }


def _joined(
    artifact: Artifact | AblationError, inspection: Inspection | AblationError | None
) -> Made | AblationError:
    if isinstance(artifact, AblationError):
        return artifact
    if isinstance(inspection, AblationError):
        return inspection
    assert inspection is not None  # _inspect_all covers every artifact
    return artifact, inspection


def _compiled(made: Artifact | AblationError) -> str:
    if isinstance(made, AblationError):
        return made.message
    return f"{made.request}: {'from the cache' if made.cached else f'compiled in {made.seconds:.1f} s'}"


def _request_of(made: Artifact | AblationError) -> str:
    return made.message if isinstance(made, AblationError) else str(made.request)
