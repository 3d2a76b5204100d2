"""Record files -> groups: a full case and everything that one run timed to be compared with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from harness.chips import Chip, identify
from harness.model import Values
from harness.stats import Series, median
from harness.store import RecordFile

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One full case on one board, with the records of the same run, study, problem and conditions.

    `records` is in the file's order; nothing may depend on it. `partial` says what is missing of the run's
    file, None when it is whole.
    """

    study: str
    gpu: str
    board: str
    sms: int
    run: str
    started: str
    problem: str
    l2: str
    fill: str
    full: str
    records: tuple[Json, ...]
    partial: str | None = None

    @property
    def chip(self) -> Chip | None:
        """The product, None where it is unknown."""
        return identify(self.gpu, self.sms)

    @property
    def full_record(self) -> Json:
        """The unperturbed record of full."""
        return next(r for r in self.records if r["case"] == self.full and not r.get("perturbation"))

    @property
    def levels(self) -> Values:
        """The levels of full."""
        return Values(self.full_record["levels"])

    @property
    def configuration(self) -> Values:
        """The configuration of full."""
        return Values(self.full_record["configuration"])

    @property
    def key(self) -> tuple[str, ...]:
        """What a later run of the same question on the same board shares."""
        return self.study, self.board or self.gpu, self.problem, self.l2, self.fill, self.full

    def timed(self) -> tuple[Json, ...]:
        """Records with numbers."""
        return tuple(r for r in self.records if has_numbers(r))


def has_numbers(record: Json) -> bool:
    """Whether a record was timed and found right."""
    return bool(
        record.get("status") == "ok" and record.get("samples") and (record.get("work") or {}).get("flops")
    )


def groups(file: RecordFile) -> tuple[Group, ...]:
    """The groups of one file whose full case was timed, in the order of first mention."""
    gpu = (file.header.get("environment") or {}).get("gpu")
    if not gpu:
        return ()
    found: dict[tuple[str, str, str], list[Json]] = {}
    for record in file.records:
        if record.get("type") == "measured":
            key = (record["study"], str(record.get("full") or record["case"]), record["problem"])
            found.setdefault(key, []).append(record)
    made = []
    for (study, full, problem), records in found.items():
        own = [r for r in records if r["case"] == full and not r.get("perturbation") and has_numbers(r)]
        if not own:
            continue
        conditions = own[0].get("conditions") or {}
        made.append(
            Group(
                study=study,
                gpu=str(gpu["name"]),
                board=str(gpu.get("uuid") or ""),
                sms=int(gpu["sms"]),
                run=str(file.header["run"]),
                started=str(file.header["started"]),
                problem=problem,
                l2=str(conditions.get("l2") or ""),
                fill=str(conditions.get("fill") or ""),
                full=full,
                records=tuple(records),
                partial=file.partial,
            )
        )
    return tuple(made)


def latest_groups(files: Iterable[RecordFile]) -> tuple[Group, ...]:
    """The newest group of each question and board, in the order of first mention.

    A run of fewer cases does not replace an older one of the same kernel: a single case timed again must not
    take the table away.
    """
    newest: dict[tuple[str, ...], Group] = {}
    for file in sorted(files, key=lambda f: (str(f.header["started"]), str(f.header["run"]))):
        for group in groups(file):
            before = newest.get(group.key)
            if before is None or _digest(before) != _digest(group) or _cases(group) >= _cases(before):
                newest[group.key] = group
    return tuple(newest.values())


def _digest(group: Group) -> object:
    return (group.full_record.get("source") or {}).get("digest")


def _cases(group: Group) -> int:
    return len({record["case"] for record in group.timed()})


def rates_of(record: Json) -> Series:
    """FLOP per clock and SM of each sample, where a Series has its cycles."""
    samples = record["samples"]
    return Series(
        rounds=tuple(int(r) for r in samples["round"]),
        cycles=tuple(samples["flop_clk_sm"]),
        seconds=tuple(None for _ in samples["round"]),
    )


def median_of(record: Json, column: str) -> float | None:
    """The median of what is known of a column, None when nothing is."""
    known = [float(v) for v in (record.get("samples") or {}).get(column) or () if v is not None]
    return median(known) if known else None
