"""What is published of how far off estimates are, against the records it is said of."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from harness.answer.estimate import FITTED, SPREAD
from harness.store import read

RECORDS = Path(__file__).resolve().parent.parent / "results" / "records"
HELD_OUT, FITTED_TO = ("chains", "pipelining"), ("attention", "instruction", "occupancy")


def ratios(studies: tuple[str, ...]) -> list[float]:
    """Measured FLOP/clk/SM over the estimate, of every first text that has both, on an H200."""
    measured: dict[tuple[str, str], float] = {}
    estimated: dict[tuple[str, str], float] = {}
    for path in sorted(RECORDS.rglob("*.jsonl")):
        for record in read(path).records:
            name = (str(record["study"]), str(record["case"]))
            gpu = (record["target"] or {}).get("gpu")
            if gpu != "NVIDIA H200" or record["perturbation"] or record.get("peer") or name[0] not in studies:
                continue
            if record["type"] == "predicted" and (record.get("predicted") or {}).get("estimate"):
                estimated[name] = record["predicted"]["estimate"]
            elif record["samples"]:
                measured[name] = statistics.median(record["samples"]["flop_clk_sm"])
    return [measured[name] / estimated[name] for name in estimated if name in measured]


@pytest.mark.parametrize(("studies", "published"), [(HELD_OUT, SPREAD), (FITTED_TO, FITTED)])
def test_the_published_spread_is_that_of_the_records(
    studies: tuple[str, ...], published: tuple[float, ...]
) -> None:
    found = ratios(studies)
    assert len(found) > 20
    assert (min(found), statistics.median(found), max(found)) == pytest.approx(published, abs=0.006)
