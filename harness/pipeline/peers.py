"""What a user would run instead, timed by the same engine in the same rounds as the full case it stands
beside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harness import engine
from harness.errors import AblationError
from harness.gpu.commands import Entry, Peer
from harness.gpu.device import GpuDevice
from harness.pipeline.rows import Record, failed
from harness.pipeline.timed import Bench, Candidate

SET_NAME = "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """One peer of one full case."""

    name: str
    function: str
    full: Candidate

    @property
    def id(self) -> str:
        """Unique among the study's entries."""
        return f"{self.full.case.study}/{self.case_name}"

    @property
    def case_name(self) -> str:
        """The name of its row."""
        return f"{self.full.case.name}~{self.name}"

    def record(self) -> Record:
        """A row like full's, of a kernel that the suite did not build or check."""
        ours = self.full.record
        return {
            **ours,
            "case": self.case_name,
            "set": SET_NAME,
            "peer": self.name,
            "source": {"digest": None},
            "build": None,
            "checks": [],
            "launch": None,
            "counters": None,
            "options": [],
        }


def beside(bench: Bench, verified: Iterable[Candidate]) -> list[Beside]:
    """The peers of every full case among the verified; they do not depend on our tile, so one is enough."""
    fulls = [
        c
        for c in verified
        if c.perturbation == 0
        and c.case.name == c.record["full"]
        and c.case.configuration == bench.study.configurations(c.case.levels)[0]
    ]
    return [
        Beside(name=name, function=function, full=candidate)
        for candidate in fulls
        for name, function in bench.study.peers(candidate.case).items()
    ]


def prepared(
    bench: Bench, rows: Iterable[Beside], device: GpuDevice
) -> Iterator[tuple[Beside, AblationError | None]]:
    """Each peer, launched once; the error of one that cannot run here."""
    for row in rows:
        full = row.full
        try:
            device.prepare(
                Entry(
                    id=row.id,
                    cubin_path="",
                    kernel=row.name,
                    dynamic_bytes=0,
                    arch=bench.arch,
                    toolkit="",
                    run=bench.run(full.case, full.sizes, full.fill),
                    flops=bench.study.work(full.case, full.sizes).flops,
                    peer=Peer(function=row.function, case=full.case, sizes=full.sizes),
                )
            )
        except AblationError as error:
            device.forget(row.id)
            yield row, error
        else:
            yield row, None


def entries(rows: Iterable[Beside], *, cold: bool) -> list[engine.Entry]:
    """The engine's entries: compared with full, in seconds, for want of stamps."""
    return [engine.Entry(id=row.id, full=row.full.id, cold=cold, paces=False) for row in rows]


def measured_record(row: Beside, session: engine.Session) -> Record:
    """The record of a peer after the rounds."""
    measured = session.results[row.id]
    if measured.status != "ok":
        return failed(row.record(), AblationError(measured.reason), measured.status)
    return {**row.record(), "samples": engine.columns(measured), "exit": measured.exit}
