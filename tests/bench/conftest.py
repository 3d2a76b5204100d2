"""pytest-benchmark taught about the GPU: runs are saved by GPU, and the cases are timed in one go."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import pytest_benchmark.logger
import pytest_benchmark.session
import pytest_benchmark.utils

from harness import bench
from harness.cases import default_cases
from harness.errors import AblationError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The folder of saved runs is that of the GPU; a run in which nothing succeeded says so and ends."""
    # Twice: the second is for what pytest-benchmark says after pytest's own filters have ended.
    config.addinivalue_line("filterwarnings", "default::pytest_benchmark.logger.PytestBenchmarkWarning")
    warnings.filterwarnings("default", category=pytest_benchmark.logger.PytestBenchmarkWarning)
    name = bench.machine_id(pytest_benchmark.utils.get_machine_id())
    pytest_benchmark.session.get_machine_id = lambda: name


def pytest_addoption(parser: pytest.Parser) -> None:
    """Rounds of the device benchmarks."""
    parser.addoption("--rounds", type=int, default=bench.measured.ROUNDS, help="interleaved rounds per case")


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    """The GPU, its driver, the compiler."""
    from harness.build.toolkit import toolkit

    machine_info.update(bench.machine_info())
    try:
        machine_info["nvrtc"] = toolkit().version
    except AblationError:
        machine_info["nvrtc"] = None


PLANNED = pytest.StashKey[set[str]]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Which benchmarks are to run."""
    chosen = {item.nodeid for item in session.items if "benchmark" in getattr(item, "fixturenames", ())}
    session.config.stash[PLANNED] = chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    """A benchmark that skips was not to run after all."""
    report = yield
    if report.skipped:
        item.config.stash[PLANNED].discard(item.nodeid)
    return report


def pytest_benchmark_update_json(config: pytest.Config, benchmarks: Any, output_json: dict[str, Any]) -> None:
    """How many benchmarks there should be: a stopped run must not pass for a whole one."""
    output_json["planned_benchmarks"] = len(config.stash[PLANNED])


@pytest.fixture(scope="session")
def measured(request: pytest.FixtureRequest) -> bench.Measured:
    """Every device benchmark that was selected, timed in interleaved rounds."""
    import ablations

    reason = bench.not_measurable()
    if reason:
        pytest.skip(reason)
    items = [item for item in request.session.items if "measured" in getattr(item, "fixturenames", ())]
    names = {item.callspec.params["case"] for item in items}  # type: ignore[attr-defined]
    studies = ablations.load()
    cases = [case for study in studies.values() for case in default_cases(study) if str(case) in names]
    return bench.measure(studies, cases, rounds=request.config.getoption("rounds"))
