"""What a case has to do: opcodes a trip, MMAs, bytes, from a build or from the record of one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.model import Build, Contract, Launch, Work

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What a case has to do, per trip of one CTA's main loop and in all.

    `loop` is opcode -> number in one trip of one warp; `whole` says that it counts the whole loop, branches
    included, and not only what every trip runs.
    """

    study: str
    case: str
    arch: str
    path: str
    input: str
    acc: str
    loop: Mapping[str, int]
    whole: bool
    warps: int
    ctas: int
    trips: int
    flops: int
    flops_per_mma: int
    mma_per_cta: int
    gmem_bytes: int
    unique_bytes: int
    ctas_per_sm: int | None = None


def counts_of_build(build: Build, work: Work, launch: Launch, contract: Contract) -> Counts:
    """What a build has to do at the sizes of `work` and `launch`."""
    inspection = build.inspection
    return Counts(
        study=build.case.study,
        case=build.case.name,
        arch=build.arch,
        path=contract.path,
        input=contract.input,
        acc=contract.acc,
        loop=inspection.loop_minimum or inspection.loop,
        whole=not inspection.loop_minimum,
        warps=launch.block // 32,
        ctas=launch.ctas,
        trips=work.iterations,
        flops=work.flops,
        flops_per_mma=work.flops_per_mma,
        mma_per_cta=work.mma_per_cta,
        gmem_bytes=work.gmem_bytes,
        unique_bytes=work.unique_bytes,
        ctas_per_sm=build.ctas_per_sm,
    )


def counts_of_record(record: Json) -> Counts | None:
    """What a record's build has to do; None where it holds no build, work or launch."""
    build, work, launch = record.get("build"), record.get("work"), record.get("launch")
    needed = ("iterations", "mma_per_cta", "flops", "mma_path")
    if not build or not work or not launch or not build.get("loop") or not all(work.get(n) for n in needed):
        return None
    return Counts(
        study=record["study"],
        case=record["case"],
        arch=str(record["target"]["arch"]),
        path=work["mma_path"],
        input=work["input"],
        acc=work["acc"],
        loop=build.get("loop_minimum") or build["loop"],
        whole=not build.get("loop_minimum"),
        warps=launch["block"] // 32,
        ctas=math.prod(launch["grid"]),
        trips=work["iterations"],
        flops=work["flops"],
        flops_per_mma=work.get("flops_per_mma") or 4096,
        mma_per_cta=work["mma_per_cta"],
        gmem_bytes=work.get("gmem_bytes") or 0,
        unique_bytes=work.get("unique_bytes") or 0,
        ctas_per_sm=build.get("ctas_per_sm"),
    )
