"""Running cases and small kernels on the CPU twin, for the tests of the twin."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from harness.check.twin import TwinResult, run_twin
from harness.check.verify import compare
from harness.key import digest
from harness.model import Array, Case, Launch, OutputSpec, Scalar, Source, Study, Values
from harness.render import render


class Memory:
    """A cache that lives as long as the tests do."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, str], bytes] = {}

    def get(self, kind: str, key: str) -> bytes | None:
        return self.entries.get((kind, key))

    def put(self, kind: str, key: str, data: bytes) -> None:
        self.entries[kind, key] = data


CACHE = Memory()

P = ParamSpec("P")
T = TypeVar("T")


class Ahead:
    """Runs jobs on all cores while the tests wait for the first: the work is in other processes."""

    def __enter__(self) -> Ahead:
        self._pool = ThreadPoolExecutor(os.cpu_count())
        # The runtime is compiled once, not by every thread.
        self.submit(run_kernel, "    out[thread_idx()] = 1.0f;").result()
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def submit(self, job: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> Future[T]:
        return self._pool.submit(job, *arguments, **named)


def run_case(
    study: Study,
    case: Case,
    sizes: Values,
    *,
    source: Source | None = None,
    launch: Launch | None = None,
) -> tuple[TwinResult, list[str]]:
    """A case at some sizes, and every objection to it: faults, bank conflicts, and numbers out of bounds."""
    inputs = study.inputs(case, sizes, study.fill(case, "check"), 1)
    result = run_twin(
        source or render(study, case),
        launch or study.launch(case, sizes),
        inputs,
        study.outputs(case, sizes),
        CACHE,
    )
    numbers = compare(result.outputs, study.reference(case, sizes, inputs, None)).message
    objections = [fault.message for fault in result.faults] + list(result.conflicts)
    return result, objections + ([numbers] if numbers else [])


def mutate(source: Source, *changes: tuple[str, str]) -> Source:
    """The kernel with texts replaced everywhere; each must be there, and no line is added or lost."""
    text = source.text
    for old, new in changes:
        assert old in text, f"the kernel holds no {old!r}"
        assert old.count("\n") == new.count("\n"), "the line map must stay true"
        text = text.replace(old, new)
    return dataclasses.replace(source, text=text, digest=digest(text))


def kernel(body: str, parameters: str = "float* out") -> Source:
    """A kernel of its own text; `body` begins at line 3."""
    text = f'#include "ptx.cuh"\nextern "C" __global__ void small({parameters}) {{\n{body}\n}}\n'
    places = tuple(("small.cu.j2", line + 1) for line in range(text.count("\n")))
    case = Case(
        study="t", levels=Values(), configuration=Values(), problem="p", name="small", set_name="full"
    )
    return Source(case=case, entry="small", text=text, line_map=places, digest=digest(text))


def run_kernel(
    body: str,
    *,
    parameters: str = "float* out",
    inputs: Mapping[str, Array] | None = None,
    outputs: Mapping[str, OutputSpec] | None = None,
    scalars: tuple[Scalar, ...] = (),
    block: int = 32,
    grid: tuple[int, int, int] = (1, 1, 1),
    shared_bytes: int = 0,
    seconds: float = 20.0,
    chip: str = "hopper",
) -> TwinResult:
    """Run a small kernel; its arguments are the inputs, the outputs, then the scalars."""
    if outputs is None:
        outputs = {"out": OutputSpec(shape=(grid[0] * block,), dtype="float32")}
    launch = Launch(
        grid=grid,
        block=block,
        shared_bytes=shared_bytes,
        arguments=(*(inputs or {}), *outputs, *scalars),
    )
    source = kernel(body, parameters)
    return run_twin(source, launch, inputs or {}, outputs, CACHE, seconds=seconds, chip=chip)  # type: ignore[arg-type]
