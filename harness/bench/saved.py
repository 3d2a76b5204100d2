"""Files that pytest-benchmark saved, read as record files: device rows in cycles, host rows in seconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import RecordError
from harness.store import RecordFile

Json = Mapping[str, Any]

HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedRun:
    """One saved run. `thresholds` are percent by `study/case`, as the run itself set them."""

    path: Path
    device: RecordFile
    host: RecordFile
    thresholds: Mapping[str, float]
    cpu: str


def load(path: Path) -> SavedRun:
    """Read a file of pytest-benchmark. Raises RecordError, naming the file, for another or a cut one."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        benchmarks, machine = list(data["benchmarks"]), dict(data["machine_info"])
        device = [_device_record(b) for b in benchmarks if "cycles_by_round" in (b["extra_info"] or {})]
        host = [_host_record(b) for b in benchmarks if "cycles_by_round" not in (b["extra_info"] or {})]
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{path}: not a file that pytest-benchmark saved, or a cut one") from error
    environment = {name: machine.get(name) for name in ("gpu", "driver", "nvrtc")}
    header = {"run": path.stem, "started": str(data.get("datetime")), "environment": environment}
    no_gpu = {**header, "environment": {}}
    partial = _partial(path, data, len(benchmarks))
    return SavedRun(
        path=path,
        device=RecordFile(path=path, header=header, records=tuple(device), partial=partial),
        host=RecordFile(path=path, header=no_gpu, records=tuple(host)),
        thresholds=_thresholds(benchmarks),
        cpu=str((machine.get("cpu") or {}).get("brand_raw") or machine.get("processor") or ""),
    )


def _partial(path: Path, data: Json, count: int) -> str | None:
    """What is missing of a run that was stopped or failed in part; its file says what was planned."""
    planned = data.get("planned_benchmarks")
    if not isinstance(planned, int) or count >= planned:
        return None
    return f"{path.name}: partial, {count} of {planned} benchmarks"


def _thresholds(benchmarks: list[Json]) -> dict[str, float]:
    found = {}
    for benchmark in benchmarks:
        extra = benchmark["extra_info"] or {}
        if isinstance(extra.get("threshold_percent"), (int, float)):
            found[f"{extra.get('study')}/{extra.get('case')}"] = float(extra["threshold_percent"])
    return found


def _device_record(benchmark: Json) -> dict[str, Any]:
    extra = benchmark["extra_info"]
    samples = {"busy_cycles": list(extra["cycles_by_round"])}
    return {
        **_record(str(extra["study"]), str(extra["case"]), samples),
        "source": {"digest": extra.get("source")},
        "flops": extra.get("flops"),
    }


def _host_record(benchmark: Json) -> dict[str, Any]:
    stats = benchmark["stats"]
    seconds = stats.get("data") or [stats[name] for name in ("q1", "median", "q3")]
    return _record(HOST, str(benchmark["name"]), {"seconds": list(seconds)})


def _record(study: str, case: str, samples: Json) -> dict[str, Any]:
    """A measured record with the fields that a comparison matches by: the name alone."""
    return {
        "type": "measured",
        "status": "ok",
        "study": study,
        "case": case,
        "levels": {"name": case},
        "configuration": {},
        "problem": "",
        "sizes": {},
        "conditions": {},
        "perturbation": 0,
        "options": [],
        "target": {},
        "samples": samples,
    }
