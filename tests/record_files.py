"""Record files made by hand, for tests: small, valid, every field under control."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Json = dict[str, Any]
H200: Json = {
    "name": "NVIDIA H200",
    "uuid": "GPU-1",
    "pci": "0000:01:00.0",
    "cc": [9, 0],
    "sms": 132,
    "memory_bytes": 150_000_000_000,
    "l2_bytes": 60_000_000,
    "ecc": True,
    "mig": False,
    "persistence": True,
    "power_limit_w": 700.0,
    "clocks_locked": False,
}


def header(
    gpu: Json | None = H200, *, run: str = "a" * 32, started: str = "2026-11-30T13:20:00Z", **more: Any
) -> Json:
    """A header line."""
    return {
        "kind": "header",
        "schema": 1,
        "run": run,
        "started": started,
        "suite": {"version": "0.1.0", "commit": "1234567890abcdef", "dirty": False},
        "command": "ablate run demo",
        "seed": 0,
        "environment": {"gpu": gpu, "driver": "580.159" if gpu else None, "nvrtc": "13.5.37"},
        "reason_not_timed": None if gpu else "no driver",
        **more,
    }


def samples(
    rates: Iterable[float], *, seconds: float = 1e-3, spread: float = 0.001, gap: float = 0.0001
) -> Json:
    """Columns of samples, one launch a round, with these FLOP/clk/SM."""
    rates = list(rates)
    count = len(rates)
    return {
        "round": list(range(count)),
        "seconds": [seconds] * count,
        "busy_cycles": [1e6] * count,
        "wall_cycles": [1e6] * count,
        "flop_clk_sm": rates,
        "sm_hz": [1.8e9] * count,
        "spread": [spread] * count,
        "gap": [gap] * count,
        "watts": [600.0] * count,
        "temperature_c": [60.0] * count,
        "throttle": [""] * count,
        "reported_hz": [1.98e9] * count,
    }


def record(
    case: str = "full@m128",
    rates: Iterable[float] | None = (2000.0,),
    gpu: str | None = "NVIDIA H200",
    **more: Any,
) -> Json:
    """A record: measured with `rates`, built without."""
    measured = rates is not None and gpu is not None
    base: Json = {
        "kind": "record",
        "type": "measured" if gpu else "built",
        "status": "ok",
        "reason": "",
        "study": "demo",
        "case": case,
        "set": "full" if case.startswith("full") else "strips",
        "full": "full@m128",
        "levels": {"copy": "kept" if case.startswith("full") else "stripped"},
        "configuration": {"block_m": 128},
        "problem": "waves",
        "sizes": {"seqlen": 4096},
        "conditions": {"fill": "normal", "l2": "warm", "waves": 4.0, "ctas_per_sm": 2},
        "perturbation": 0,
        "source": {"digest": "d" * 64},
        "target": {"arch": "sm_90a", "gpu": gpu},
        "toolkit": "13.5.37",
        "options": [],
        "build": {
            "registers": 128,
            "shared_bytes": 0,
            "dynamic_bytes": 49152,
            "local_bytes": 0,
            "spill_stores": 0,
            "spill_loads": 0,
            "ctas_per_sm": 2,
            "natural_ctas": 2,
            "loop_instructions": 400,
            "loop": {"HMMA.16816.F32": 128},
            "mma": {"opcode": "HMMA.16816.F32", "count": 128},
            "code_hash": "c" * 64,
            "cubin_sha256": "e" * 64,
            "cached": False,
            "compile_seconds": 0.5,
            "notes": [],
        },
        "broken": [],
        "checks": [],
        "work": {"flops": 500_000_000_000, "mma_path": "mma.sync", "input": "fp16", "acc": "f32"},
        "launch": None,
        "samples": samples(rates) if measured and rates is not None else None,
        "exit": "narrow" if measured else None,
        "reproduce": f"ablate run demo --case '{case}'",
    }
    return {**base, **more}


def counters(tool: str = "Nsight Compute 2025.3.1", **values: float) -> Json:
    """Hardware counters as a record holds them."""
    return {"tool": tool, "values": values}


def failed(case: str, status: str, reason: str, **more: Any) -> Json:
    """A record that has a reason in place of numbers."""
    return record(case, None, **{"status": status, "reason": reason, "build": None, "work": None, **more})


def many(root: Path, *, gpus: int = 20, cases: int = 167, builds: int = 3) -> int:
    """Record files of several GPUs, each with so many cases in so many builds; the number of records."""
    for g in range(gpus):
        card = {**H200, "name": f"GPU {g}", "uuid": f"GPU-{g}"}
        rows = []
        for i in range(cases):
            name = "full@m128" if i == 0 else f"c={i}@m128"
            for b in range(builds):
                columns = samples(2000 + i + b + (7 * r + g) % 5 for r in range(12))
                columns["busy_cycles"] = [2e9 / rate for rate in columns["flop_clk_sm"]]
                rows.append(record(name, samples=columns, perturbation=b, gpu=card["name"], levels={"c": i}))
        write(root / f"records/demo/{g}/x.jsonl", header(card, run=f"{g:032d}"), rows)
    return gpus * cases * builds


def write(
    path: Path, head: Mapping[str, Any], records: Iterable[Mapping[str, Any]], *, complete: bool = True
) -> Path:
    """A record file on disk; without its footer when not complete."""
    lines = [head, *records]
    if complete:
        count = len(lines) - 1
        lines.append({"kind": "footer", "complete": True, "planned": count, "written": count})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(json.dumps(line, allow_nan=False, separators=(",", ":")) + "\n" for line in lines)
    )
    return path


def results(root: Path, *records: Json, gpu: Json | None = H200, name: str = "one", **head: Any) -> Path:
    """A results folder with one record file; the folder."""
    place = gpu["name"] if gpu else "sm_90a"
    write(root / "records" / "demo" / place.replace("/", "-") / f"{name}.jsonl", header(gpu, **head), records)
    return root
