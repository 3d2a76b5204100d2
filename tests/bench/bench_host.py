"""What the host does around a measurement: render, compile cold and warm, inspect, publish many records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import record_files as made

import ablations
from harness import publish
from harness.build.build import build
from harness.build.cache import Cache
from harness.build.sass import inspect_cubin
from harness.cases import default_cases
from harness.model import Case, Study
from harness.render import render

ARCH = "sm_90a"


@pytest.fixture
def first() -> tuple[Study, Case]:
    """The first case of the first study."""
    study = next(iter(ablations.load().values()))
    return study, next(case for case in default_cases(study) if not case.skip)


def test_render_every_default_case(benchmark: Any) -> None:
    pairs = [(s, c) for s in ablations.load().values() for c in default_cases(s) if not c.skip]
    texts = benchmark(lambda: [render(study, case).text for study, case in pairs])
    assert all("__global__" in text for text in texts)


def test_compile_a_case_cold(benchmark: Any, first: tuple[Study, Case], tmp_path: Path) -> None:
    caches = iter(Cache(tmp_path / str(i)) for i in range(100))
    made_build = benchmark.pedantic(lambda: build(*first, ARCH, next(caches)), rounds=5)
    assert not made_build.cached


def test_compile_a_case_warm(benchmark: Any, first: tuple[Study, Case], tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    build(*first, ARCH, cache)
    assert benchmark(lambda: build(*first, ARCH, cache)).cached


def test_inspect_a_cubin(benchmark: Any, first: tuple[Study, Case], tmp_path: Path) -> None:
    compiled = build(*first, ARCH, Cache(tmp_path))
    inspection = benchmark.pedantic(
        lambda: inspect_cubin(Path(compiled.cubin_path), compiled.log), rounds=5, warmup_rounds=1
    )
    assert inspection.code_hash == compiled.inspection.code_hash


def test_publish_ten_thousand_records_of_twenty_gpus(benchmark: Any, tmp_path: Path) -> None:
    assert made.many(tmp_path) >= 10_000
    published = benchmark.pedantic(lambda: publish.publish(tmp_path), rounds=3)
    assert published.problems == ()
