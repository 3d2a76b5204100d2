"""Record -> the numbers a table shows: rates, shares of named peaks, ratio to full; from `ok` rows only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from harness.chips import Chip, Rate, chip_peak, identify, peak
from harness.counters import MATH_PIPE, MOST, TENSOR_ACTIVE, counters_of
from harness.publish.known import Bound, Bounds
from harness.stats import BISTABLE, is_bistable

Json = Mapping[str, Any]

FLOP = "FLOP"
# From here on a level of memory may be what holds a loop back: its best known rate is no sharp limit.
NEAR_MEMORY = 0.75
# Pipes that do not run at the SM clock, by what a reader calls them.
MEMORY = {"l2_bytes": "L2", "dram_bytes": "DRAM"}
# Counters that are a column as they were read.
_READ = (
    TENSOR_ACTIVE,
    "issue_active_percent",
    "mufu_active_percent",
    "shared_active_percent",
    "l2_hit_percent",
)
# All columns of counters: they belong to one launch, and are taken together.
COUNTED = ("profiler", *_READ, "math_throttle", "top_stall")


def median(values: Sequence[Any] | None) -> float | None:
    """The median of what is known; None when nothing is."""
    known = [float(value) for value in values or () if value is not None]
    return statistics.median(known) if known else None


def measured_numbers(record: Json, product: Chip | None) -> dict[str, Any]:
    """Throughput and its shares of the two peaks, for a record with samples; empty for every other.

    Where a study counts another work than FLOP, its rate stands apart, with its unit and no peak.
    """
    samples = record.get("samples")
    if record.get("status") != "ok" or not samples:
        return {}
    rate, work = median(samples.get("flop_clk_sm")), record.get("work") or {}
    unit = str(work.get("unit") or FLOP)
    common = {
        "samples": len(samples.get("seconds") or ()),
        "seconds": median(samples.get("seconds")),
        "sm_mhz": _mega(median(samples.get("sm_hz"))),
        "reported_mhz": _mega(median(samples.get("reported_hz"))),
        "spread_percent": _hundred(median(samples.get("spread"))),
    }
    if unit != FLOP:
        return {**common, "work_clk_sm": rate, "unit": unit}
    flops, seconds = work.get("flops"), common["seconds"]
    own, highest = _peaks(record, product)
    return {
        **common,
        "tflop_s": flops / seconds / 1e12 if flops and seconds else None,
        "flop_clk_sm": rate,
        "own_peak": own.flop_clk_sm if own else None,
        "own_peak_name": own.name if own else "unknown",
        "own_percent": _percent(rate, own),
        "chip_peak": highest.flop_clk_sm if highest else None,
        "chip_peak_name": highest.name if highest else "unknown",
        "chip_percent": _percent(rate, highest),
    }


def bound_numbers(header: Json, record: Json, rate: float | None, bounds: Bounds | None) -> dict[str, Any]:
    """The bound of a record that holds its prediction, or of one whose machine code is known."""
    if record.get("predicted"):
        return _predicted_numbers(record["predicted"])
    found = None
    if bounds is not None and record.get("status") == "ok":
        found = bounds(header, record)
    if found is None or not found.flop_clk_sm or (record.get("work") or {}).get("unit", FLOP) != FLOP:
        return {}
    return {
        "bound": found.flop_clk_sm,
        "binding": found.binding,
        **_memory_numbers(rate, found),
        "of_bound": None if rate is None else 100 * rate / found.flop_clk_sm,
    }


def _memory_numbers(rate: float | None, found: Bound) -> dict[str, Any]:
    """The memory level and the percentage that a rate is of what it leaves, where that is near."""
    most = found.memory_flop_clk_sm
    if rate is None or not most or rate < NEAR_MEMORY * most:
        return {}
    return {"memory": found.memory, "of_memory": 100 * rate / most}


def _predicted_numbers(predicted: Json) -> dict[str, Any]:
    """A stored prediction: bound, estimate, and the peaks that the bound is a share of."""
    if predicted.get("unit", FLOP) != FLOP:
        return {}
    bound, estimate = predicted.get("flop_clk_sm"), predicted.get("estimate")
    tera = predicted["tflop_s"] / bound if bound and predicted.get("tflop_s") else None
    peaks = predicted.get("peaks") or {}
    own, highest = (peaks.get(name) or {} for name in ("own", "chip"))
    return {
        "bound": bound,
        "bound_tflop_s": tera and bound * tera,
        "estimate": estimate,
        "estimate_tflop_s": tera and estimate and estimate * tera,
        **{name: predicted.get(name) for name in ("binding", "second", "margin")},
        "own_peak": own.get("flop_clk_sm"),
        "own_peak_name": own.get("name", "unknown"),
        "bound_own_percent": own.get("percent"),
        "chip_peak": highest.get("flop_clk_sm"),
        "chip_peak_name": highest.get("name", "unknown"),
        "bound_chip_percent": highest.get("percent"),
    }


def working_set(header: Json, record: Json) -> dict[str, Any]:
    """What a launch touches at least once, and whether all of it fits L2; empty where either is unknown."""
    unique = (record.get("work") or {}).get("unique_bytes")
    l2_bytes = ((header.get("environment") or {}).get("gpu") or {}).get("l2_bytes")
    if not (_is_size(unique) and _is_size(l2_bytes)):
        return {}
    fits = "L2-resident" if unique <= l2_bytes else "larger than L2"
    return {"unique_bytes": unique, "l2_bytes": l2_bytes, "working_set": fits}


def _is_size(value: Any) -> TypeGuard[float]:
    """Whether it is a number of bytes that there can be."""
    return isinstance(value, int | float) and 0 < value < MOST


def _mega(hz: float | None) -> float | None:
    return None if hz is None else hz / 1e6


def _hundred(fraction: float | None) -> float | None:
    return None if fraction is None else 100 * fraction


def _percent(rate: float | None, of: Rate | None) -> float | None:
    """In FLOP per clock, so that the clock that was run does not matter."""
    return None if rate is None or of is None else 100 * rate / of.flop_clk_sm


def _peaks(record: Json, product: Chip | None) -> tuple[Rate | None, Rate | None]:
    """The peak of the record's own path, input and accumulator, and the chip's highest for that input."""
    work = record.get("work") or {}
    path, read, acc = work.get("mma_path"), work.get("input"), work.get("acc")
    if product is None or not read:
        return None, None
    return (peak(product, path, read, acc) if path and acc else None), chip_peak(product, read)


def product_of(header: Json) -> Chip | None:
    """The product that a run's GPU is, None when it is unknown or there was none."""
    gpu = (header.get("environment") or {}).get("gpu")
    return identify(str(gpu["name"]), int(gpu["sms"])) if gpu else None


def build_numbers(record: Json) -> dict[str, Any]:
    """What the compiler made of the case: also for rows that were built and then refused."""
    build = record.get("build")
    if not build:
        return {}
    mma = build.get("mma") or {}
    return {
        "mma": mma.get("count"),
        "mma_opcode": mma.get("opcode"),
        "registers": build.get("registers"),
        "spills": _sum(build.get("spill_stores"), build.get("spill_loads")),
        "shared_bytes": _sum(build.get("shared_bytes"), build.get("dynamic_bytes")),
        "ctas_per_sm": build.get("ctas_per_sm"),
        "verified_on": _verified_on(record),
    }


def counter_numbers(record: Json) -> dict[str, Any]:
    """What a profiler read of a case that was timed and found right; empty where nothing was read."""
    found = counters_of(record) if record.get("status") == "ok" and record.get("samples") else None
    if found is None:
        return {}
    top = found.top_stall
    return {
        "profiler": found.tool,
        **{name: found.values.get(name) for name in _READ},
        "math_throttle": found.stalls.get(MATH_PIPE),
        "top_stall": None if top is None else f"{top[0]} {top[1]:.2f}",
    }


def _sum(*parts: int | None) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def notes_of(record: Json, memory: str | None = None) -> tuple[str, ...]:
    """What a reader of the row must know; `memory` is a level of memory whose best known rate is near, where
    it is not the one that the record's own path names."""
    notes = [str(note) for note in (record.get("build") or {}).get("notes") or ()]
    notes += [str(c["message"]) for c in record.get("checks") or () if c.get("passed") and c.get("message")]
    if is_bistable(record.get("samples") or {}):
        notes.append(f"bistable: the SMs of one launch fall into two groups, over {100 * BISTABLE:g} % apart")
    own = MEMORY.get(str((record.get("work") or {}).get("mma_path")))
    other = MEMORY.get(memory or "")
    clock = "has a clock of its own: at another SM clock the cycles differ"
    if own and record.get("samples"):
        notes.append(f"limited by {own}, which {clock}")
    elif other:
        notes.append(f"near the most that {other} is known to give, which may be the limit, and {clock}")
    return tuple(notes)


def ratio_to_full(record: Json, full: Json | None) -> float | None:
    """FLOP/clk/SM over full's, as the median of the ratios within each round.

    None where either has no number, no round is shared, or the configuration is not full's.
    """
    if full is None or record.get("configuration") != full.get("configuration"):
        return None
    if record.get("status") != "ok" or full.get("status") != "ok":
        return None
    mine, others = _by_round(record), _by_round(full)
    return median([rate / others[number] for number, rate in mine.items() if others.get(number)])


def _by_round(record: Json) -> dict[int, float]:
    samples = record.get("samples") or {}
    rounds: dict[int, list[float]] = {}
    for number, rate in zip(samples.get("round") or (), samples.get("flop_clk_sm") or (), strict=False):
        if rate is not None:
            rounds.setdefault(number, []).append(rate)
    return {number: statistics.median(rates) for number, rates in rounds.items()}


def _verified_on(record: Json) -> str:
    """Where the numbers were compared with the reference, and held: GPU, CPU, or a dash for nowhere."""
    passed = [str(check["size"]) for check in record.get("checks") or () if check["passed"]]
    return "-" if not passed else "CPU" if passed == ["cpu"] else "GPU"
