"""Running the pipeline for benchmarks, and what each benchmark says of its case."""

from __future__ import annotations

import glob
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import AblationError
from harness.gpu.facts import GpuFacts, find_gpu
from harness.key import safe_name
from harness.model import Case, Study
from harness.plan import Plan
from harness.progress import Quiet, Ui
from harness.publish.derive import measured_numbers, product_of
from harness.stats import is_bistable
from harness.store import plain, read

Json = Mapping[str, Any]

ROUNDS = 20
# A change of cycles, in percent, that fails the comparison; where the SMs of one launch disagree, the larger.
THRESHOLD_PERCENT = 1.0
BISTABLE_THRESHOLD_PERCENT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The records of one run by `study/case`, with the header of each one's file.

    `verdicts` holds the word on each full case by `study/full`.
    """

    records: Mapping[str, Json]
    headers: Mapping[str, Json]
    verdicts: Mapping[str, str] = field(default_factory=dict)

    def info(self, name: str) -> dict[str, Any]:
        """`extra_info` of a record that is ok, with the verdict on its full."""
        record = self.records[name]
        verdict = self.verdicts.get(f"{record['study']}/{record['full']}")
        return {**extra_info(self.headers[name], record), "verdict": verdict}


def not_measurable() -> str | None:
    """Why no case can be timed on this machine, in one sentence; None when it can."""
    found = find_gpu()
    return found if isinstance(found, str) else None


def measure(
    studies: Mapping[str, Study],
    cases: Sequence[Case],
    *,
    rounds: int = ROUNDS,
    cache: Path | None = None,
    ui: Ui | None = None,
) -> Measured:
    """Build, verify and time the cases in interleaved rounds, as `ablate run` does.

    Raises AblationError when nothing could be timed.
    """
    from harness import pipeline
    from harness.answer import verdicts

    with tempfile.TemporaryDirectory(prefix="ablate-bench-") as folder:
        plan = Plan(
            studies=tuple(dict.fromkeys(case.study for case in cases)),
            patterns=tuple(glob.escape(str(case)) for case in cases),
            require_gpu=True,
            rounds=rounds,
            results=Path(folder),
            cache=cache,
            command="make bench",
        )
        result = pipeline.run(plan, studies, ui or Quiet())
        if result.reason_not_timed:
            raise AblationError(f"nothing was timed: {result.reason_not_timed}")
        files = [read(path) for path in result.files]
    records = {f"{r['study']}/{r['case']}": (file, r) for file in files for r in file.records}
    return Measured(
        records={name: record for name, (_, record) in records.items()},
        headers={name: file.header for name, (file, _) in records.items()},
        verdicts={f"{v.group.study}/{v.group.full}": v.word for v in verdicts(files, studies)},
    )


def extra_info(header: Json, record: Json) -> dict[str, Any]:
    """Plain JSON numbers of an ok record, for a benchmark's `extra_info`.

    `cycles` is the median over rounds of the cycles an SM was busy in a launch, the mean over SMs;
    `cycles_by_round` holds what it is the median of. `threshold_percent` is what a comparison allows.
    """
    samples, build = record["samples"], record.get("build") or {}
    numbers = measured_numbers(record, product_of(header))
    cycles = [value for value in samples.get("busy_cycles") or () if value is not None]
    bistable = is_bistable(samples)
    info = {
        "study": record["study"],
        "case": record["case"],
        "cycles": statistics.median(cycles) if cycles else None,
        "cycles_by_round": cycles,
        "flop_clk_sm": numbers.get("flop_clk_sm"),
        "tflop_s": numbers.get("tflop_s"),
        "sm_hz": _median(samples.get("sm_hz")),
        "percent_of_path_peak": numbers.get("own_percent"),
        "path_peak": numbers.get("own_peak_name"),
        "flops": (record.get("work") or {}).get("flops"),
        "registers": build.get("registers"),
        "source": (record.get("source") or {}).get("digest"),
        "arch": (record.get("target") or {}).get("arch"),
        "toolkit": record.get("toolkit"),
        "bistable": bistable,
        "threshold_percent": BISTABLE_THRESHOLD_PERCENT if bistable else THRESHOLD_PERCENT,
        "rounds_ended_by": record.get("exit"),
    }
    made: dict[str, Any] = plain(info)[0]
    return made


def _median(values: Sequence[Any] | None) -> float | None:
    known = [value for value in values or () if value is not None]
    return statistics.median(known) if known else None


def machine_info(facts: GpuFacts | str | None = None) -> dict[str, Any]:
    """What to add to pytest-benchmark's machine_info: the GPU, or the reason why there is none."""
    found = find_gpu() if facts is None else facts
    if isinstance(found, str):
        return {"gpu": None, "no_gpu": found}
    made: dict[str, Any] = plain(
        {"gpu": found.as_record(), "driver": found.driver, "cuda_driver": found.cuda_driver}
    )[0]
    return made


def machine_id(default: str, facts: GpuFacts | str | None = None) -> str:
    """The folder that runs are saved in: one for each GPU product, and the default without a GPU."""
    found = find_gpu() if facts is None else facts
    return default if isinstance(found, str) else safe_name(f"{found.name}-{found.sms}-SMs")
