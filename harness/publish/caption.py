"""What a table's caption must say: machine, clocks, conditions, peaks, runs, what is missing or stale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.counters import counters_of
from harness.estimates import how_far_off
from harness.publish.columns import ESTIMATE, MATH_THROTTLE, TENSOR, TOP_STALL, Column, Row
from harness.publish.derive import median, product_of
from harness.publish.section import Section
from harness.publish.stale import refresh_command

# Column -> what its numbers are of.
_COUNTED = {
    TENSOR: "tensor active is of an SM's active cycles and of the tensor pipe, whichever the accumulator, to "
    "be read beside % of path peak",
    MATH_THROTTLE: "math throttle is the clocks that warps stalled for a math pipe, summed over the warps, "
    "per instruction issued",
    TOP_STALL: "top stall is the reason of those read with most such clocks: wait is the fixed latency of "
    "an instruction, and leads beside a full pipe, too",
}


def caption(section: Section, shown: Sequence[Column] = ()) -> tuple[str, ...]:
    """What must be known to read the table, and to make it again; one sentence a line.

    `shown` are the columns of the table, where some need a line of their own.
    """
    lines = [_machine(section), _clocks(section), _conditions(section), *_peaks(section)]
    lines += counters_words(section.rows, shown)
    lines += _words(section, shown)
    lines += _runs(section.headers)
    lines += [f"PARTIAL: {reason}" for reason in section.partial]
    lines += _stale(section)
    return tuple(line for line in lines if line)


def counters_words(rows: Sequence[Row], shown: Sequence[Column]) -> list[str]:
    """Who read the counters among these columns, and what they are of; none where there are none."""
    words = [text for column, text in _COUNTED.items() if column in shown]
    if not words:
        return []
    tools = dict.fromkeys(str(row["profiler"]) for row in rows if row["profiler"])
    read = (
        f"{', '.join(tools)} read one launch of one text of a case, replayed for its passes with the caches "
        "left alone, outside the timing"
    )
    if TOP_STALL in shown:
        words.append(f"reasons read: {', '.join(_reasons(rows))}")
    return [f"counters: {'; '.join([read, *words])}"]


def _reasons(rows: Sequence[Row]) -> list[str]:
    found = [counters_of(row["record"]) for row in rows]
    return sorted({reason for counters in found if counters for reason in counters.stalls})


def _machine(section: Section) -> str:
    environment = section.headers[-1].get("environment") or {}
    gpu = environment.get("gpu") or {}
    parts = []
    if section.gpu:
        cc = ".".join(map(str, gpu.get("cc") or ()))
        sms = f", {gpu['sms']} SMs" if gpu.get("sms") else ""
        parts += [f"{section.gpu}{sms}" + (f", compute capability {cc}" if cc else "")]
        parts += [f"board {gpu['uuid']}"] if gpu.get("uuid") else []
    parts += [f"driver {environment['driver']}"] if environment.get("driver") else []
    parts += [
        "NVRTC " + ", ".join(dict.fromkeys(str(row["toolkit"]) for row in section.rows if row["toolkit"]))
    ]
    for name, word in (("power_limit_w", "power limit {} W"), ("ecc", "ECC {}"), ("mig", "MIG {}")):
        if gpu.get(name) is not None:
            parts.append(word.format(_word(gpu[name])))
    if gpu.get("clocks_locked") is not None:
        parts.append("clocks locked" if gpu["clocks_locked"] else "clocks not locked")
    return "; ".join(parts)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _clocks(section: Section) -> str:
    """The three clocks, told apart; empty where nothing was timed."""
    run = [row["sm_mhz"] for row in section.rows if row["sm_mhz"] is not None]
    if not run:
        return ""
    product = product_of(section.headers[-1])
    reported = median([row["reported_mhz"] for row in section.rows])
    parts = [f"{product.boost_hz / 1e6:.0f} MHz boost by specification"] if product else []
    parts += [f"{reported:.0f} MHz reported by the driver"] if reported is not None else []
    parts += [f"{_range(min(run), max(run))} MHz run, counted in the kernels"]
    return "SM clock: " + ", ".join(parts)


def _range(low: float, high: float) -> str:
    texts = dict.fromkeys((f"{low:.0f}", f"{high:.0f}"))
    return " to ".join(texts)


def _conditions(section: Section) -> str:
    fills = dict.fromkeys(str(row["fill"]) for row in section.rows if row["fill"])
    l2 = next((str(row["l2"]) for row in section.rows if row["l2"]), "")
    parts = [f"problem {section.problem}"]
    parts += [f"inputs {', '.join(fills)}"] if fills and section.gpu else []
    parts += [f"L2 {l2}{_working_sets(section)}"] if l2 else []
    samples = [row["samples"] for row in section.rows if row["samples"]]
    parts += [f"medians of {_range(min(samples), max(samples))} launches"] if samples else []
    return "; ".join(parts)


def _working_sets(section: Section) -> str:
    """How much a launch touches against what L2 holds: warm means little for what does not fit."""
    known = [row for row in section.rows if row["unique_bytes"] and row["samples"]]
    if not known:
        return ""
    sizes = [row["unique_bytes"] / 1e6 for row in known]
    fits = dict.fromkeys(row["working_set"] for row in known)
    return (
        f" (working sets of {_range(min(sizes), max(sizes))} MB, {' or '.join(fits)}: "
        f"{known[0]['l2_bytes'] / 1e6:.0f} MB)"
    )


def _words(section: Section, shown: Sequence[Column]) -> list[str]:
    """How the words of a table of effects are to be read, and what a bound is."""
    if section.predicted:
        return [_bounds(section)]
    lines = _estimates(section) if ESTIMATE in shown else []
    if not any(row["effect"] for row in section.rows):
        return lines
    builds = [row["builds"] for row in section.rows if row["builds"]]
    most = max(builds, default=1)
    spread = (
        f"; codegen is half the range over {most} trivially different texts of a case" if most > 1 else ""
    )
    return [
        *lines,
        "vs full: FLOP/clk/SM against the full case of the same axes at its configuration, within rounds, "
        f"95 % intervals, words corrected for the number of rows{spread}",
    ]


def _estimates(section: Section) -> list[str]:
    """Where measured rows have the estimate of a stored prediction: whose code that is of."""
    found = [
        row["prediction"] for row in section.rows if row.get("prediction") and row["estimate"] is not None
    ]
    if not found:
        return []
    toolkits = dict.fromkeys(str(record.get("toolkit")) for record in found)
    told = told_of_estimates(found[0].get("predicted") or {})
    return [f"estimate: of a simulated SM running the code of NVRTC {', '.join(toolkits)}{_no_bound(told)}"]


def _no_bound(told: str) -> str:
    return f"; it is no bound: on an H200 {told}; other chips were never compared" if told else ""


def told_of_estimates(predicted: Mapping[str, Any]) -> str:
    """What a stored prediction says of how far off estimates were; "" where it says nothing."""
    spread = predicted.get("estimate_spread")
    return how_far_off(spread, predicted.get("estimate_fitted") or ()) if spread else ""


def _bounds(section: Section) -> str:
    text = "predicted from the machine code and the rates of the chip: what no run can beat, not a time"
    found = [row["record"].get("predicted") or {} for row in section.rows]
    hz = next((p["boost_hz"] for p in found if p.get("boost_hz")), None)
    text += f"; TFLOP/s at {hz / 1e6:.0f} MHz boost by specification" if hz else ""
    told = next((said for p in found if (said := told_of_estimates(p))), "")
    return f"{text}; estimate: of a simulated SM{_no_bound(told)}" if told else text


def _peaks(section: Section) -> list[str]:
    """Which peaks the percentages are of: a percentage without a name misleads."""
    lines, rate = [], "bound" if section.predicted else "flop_clk_sm"
    for word, name, value in (("path", "own_peak_name", "own_peak"), ("chip", "chip_peak_name", "chip_peak")):
        peaks = {row[name]: row[value] for row in section.rows if row[rate] is not None}
        known = [
            f"{peak} {value:g} FLOP/clk/SM" for peak, value in sorted(peaks.items()) if value is not None
        ]
        if known:
            lines.append(f"% of {word} peak is of: " + ", ".join(known))
        elif peaks:
            lines.append(f"% of {word} peak: the peak is not known for this GPU")
    return lines


def _stale(section: Section) -> list[str]:
    stale = [row for row in section.rows if row["stale"]]
    if not stale:
        return []
    commands = dict.fromkeys(
        str(row["stale"]) if len(stale) <= 3 else refresh_command(row["record"]) for row in stale
    )
    return [
        f"STALE: {len(stale)} of {len(section.rows)} rows were made from another text than the template "
        f"renders today; refresh with: {'; '.join(commands)}"
    ]


def _runs(headers: Sequence[Mapping[str, Any]]) -> list[str]:
    """One line per command that was run; it writes a file per study and target."""
    ids: dict[str, list[str]] = {}
    for header in headers:
        suite = header.get("suite") or {}
        commit = str(suite.get("commit") or "unknown")[:12] + (" with changes" if suite.get("dirty") else "")
        made = f"{header['started']}, suite {suite.get('version', '?')}, commit {commit}"
        ids.setdefault(f"{made}: {header.get('command', '')}", []).append(str(header["run"])[:12])
    return [f"run {', '.join(runs)} of {made}" for made, runs in ids.items()]
