"""Every case at the configuration of full, in GPU seconds; the numbers of the harness stand in extra_info.

The rounds of all selected cases are interleaved by the harness's own loop, after each case was verified;
a benchmark plays its own rounds back on a clock that counts GPU time only.
"""

from __future__ import annotations

from typing import Any

import pytest

import ablations
from harness import bench
from harness.cases import CEILING, default_cases

TIMELINE = bench.DeviceTimeline()
CASES = [
    str(case)
    for study in ablations.load().values()
    for case in default_cases(study)
    if case.set_name != CEILING and case.skip is None
]


@pytest.mark.gpu
@pytest.mark.benchmark(timer=TIMELINE.read, group="device", disable_gc=True)
@pytest.mark.parametrize("case", CASES)
def test_case(case: str, measured: bench.Measured, benchmark: Any) -> None:
    record = measured.records.get(case)
    if record is None:
        pytest.fail("not run: the run ended before it")
    if record["status"] in ("skipped", "not_supported"):
        pytest.skip(record["reason"])
    assert record["status"] == "ok", f"{record['status']}: {record['reason']}"
    benchmark.extra_info.update(measured.info(case))
    benchmark.pedantic(TIMELINE.advance, rounds=TIMELINE.load(record["samples"]["seconds"]))
