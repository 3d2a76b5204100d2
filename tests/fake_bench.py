"""A pytest plugin: the device benchmarks on a GPU that is not there; cycles follow FAKE_BENCH.

FAKE_BENCH is JSON: {"gpu": name, "factor": {glob: factor}, "interrupt": glob}.
"""

from __future__ import annotations

import fnmatch
import json
import os
import zlib
from typing import Any

import fake_gpu
import numpy as np
import record_files as made

from harness import bench
from harness.bench import measured as module

ASKED = json.loads(os.environ["FAKE_BENCH"])
FACTS = fake_gpu.facts(name=ASKED.get("gpu", "NVIDIA H200"), sms=132, power_limit_w=700.0, driver="580.159")
module.find_gpu = lambda: FACTS  # type: ignore[assignment]


def measure(studies: Any, cases: Any, *, rounds: int = 20, ui: Any = None) -> bench.Measured:
    records = {}
    for case in cases:
        rng = np.random.default_rng(zlib.crc32(f"{case} {ASKED.get('run', 1)}".encode()))
        factor = next((f for g, f in ASKED.get("factor", {}).items() if fnmatch.fnmatch(str(case), g)), 1.0)
        cycles = 1.5e6 * factor * np.exp(rng.normal(0, 1e-4, rounds))
        columns = made.samples([2e9 / c for c in cycles])
        columns["busy_cycles"] = [np.float64(c) for c in cycles]
        columns["seconds"] = [float(c / 1.8e9) for c in cycles]
        record = made.record(case.name, samples=columns, study=case.study)
        if fnmatch.fnmatch(str(case), ASKED.get("fail", "")):
            record = made.failed(case.name, "wrong", "off by one", study=case.study)
        records[str(case)] = record
    header = made.header({**made.H200, **FACTS.as_record()})
    return bench.Measured(records=records, headers=dict.fromkeys(records, header))


bench.measure = measure  # type: ignore[assignment]


def pytest_runtest_setup(item: Any) -> None:
    if ASKED.get("interrupt") and ASKED["interrupt"] in item.nodeid:
        raise KeyboardInterrupt
