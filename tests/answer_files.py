"""A study of four parts made by hand, and record files in which every cost is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from harness.model import Study, Switch, Values
from harness.store import RecordFile
from tests.record_files import H200, header, record, samples

Json = dict[str, Any]
SMS, FLOPS = 132, 132 * 1000 * 4096  # per SM a thousand MMAs: one unit of cost is one cycle per MMA
CLOCK = 1.8e9


def study(
    *parts: str, after: Mapping[str, str] | None = None, levels: Mapping[str, tuple[str, ...]] | None = None
) -> Study:
    """A study whose parts can be stripped, each only after the one that `after` names."""
    deeper = levels or {}

    def constraint(chosen: Values, configuration: Values) -> str | None:
        for part, first in (after or {}).items():
            if chosen[part] != "kept" and chosen[first] == "kept":
                return f"{part} needs {first} gone"
        return None

    switches = (
        *(
            Switch(
                name=name,
                levels=("kept", *deeper.get(name, ("stripped",))),
                baseline="kept",
                strips=deeper.get(name, ("stripped",)),
                label=name,
                meaning=name,
            )
            for name in parts
        ),
        Switch(name="chains", levels=(1, 2, 4), baseline=1, label="chains", meaning="chains"),
    )
    return bare(switches, constraint=constraint, parallel=("chains",))


def bare(switches: tuple[Switch, ...], *, name: str = "demo", **more: Any) -> Study:
    """A study of these switches that computes nothing."""

    def nothing(*_: object) -> Any:
        raise AssertionError("an answer asks a study for its constraint only")

    callables = (
        "sizes",
        "check_sizes",
        "fill",
        "inputs",
        "outputs",
        "reference",
        "launch",
        "work",
        "contract",
    )
    return Study(
        **{
            "name": name,
            "question": "?",
            "template": "none",
            "switches": switches,
            "problems": ("waves",),
            "configurations": lambda levels: (Values(),),
            "sets": dict,
            "constraint": lambda levels, configuration: None,
            "full_of": lambda levels: levels,
            **dict.fromkeys(callables, nothing),
            **more,
        }
    )


def case_name(stripped: Iterable[str]) -> str:
    return ",".join(f"{name}=stripped" for name in sorted(stripped)) or "full"


def timed(
    case: str,
    cycles: float,
    levels: Mapping[str, Any],
    *,
    rounds: int = 20,
    noise: float = 0.001,
    builds: Iterable[float] = (1.0,),
    drift: float = 0.02,
    **more: Any,
) -> list[Json]:
    """Records of a case that costs `cycles` per MMA, one per build; rounds drift together."""
    made = []
    for build, factor in enumerate(builds):
        seed = int.from_bytes(f"{case}#{build}".encode(), "little") % 2**63
        generator = np.random.default_rng(seed)
        shared = 1 + drift * np.sin(np.arange(rounds))
        cost = cycles * factor * shared * (1 + noise * generator.standard_normal(rounds))
        columns = samples([float(4096 / c) for c in cost])
        columns["busy_cycles"] = [float(1000 * c) for c in cost]
        columns["seconds"] = [float(1000 * c / CLOCK) for c in cost]
        work = {"flops": FLOPS, "flops_per_mma": 4096, "mma_path": "mma.sync", "input": "fp16", "acc": "f32"}
        base = {"full": "full", "levels": dict(levels), "configuration": {}, "samples": columns, "work": work}
        made.append(record(case, **{**base, "perturbation": build, **more}))
    return made


def lattice_records(
    parts: Iterable[str],
    cost: Callable[[frozenset[str]], float],
    *,
    allowed: Callable[[frozenset[str]], bool] = lambda stripped: True,
    **more: Any,
) -> list[Json]:
    """Records of every allowed set of stripped parts; `cost` is in cycles per MMA."""
    names = sorted(parts)
    made = []
    for size in range(len(names) + 1):
        for chosen in map(frozenset, combinations(names, size)):
            if allowed(chosen):
                levels = {name: "stripped" if name in chosen else "kept" for name in names} | {"chains": 1}
                made += timed(case_name(chosen), cost(chosen), levels, **more)
    return made


def file_of(records: Iterable[Json], gpu: Json | None = H200, **head: Any) -> RecordFile:
    """A record file in memory."""
    return RecordFile(path=Path("memory.jsonl"), header=header(gpu, **head), records=tuple(records))
