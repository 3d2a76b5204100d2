"""Of which peak: what an instruction can give on each chip, and the percentage that a profiler would show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.publish.columns import Row
from harness.publish.markdown import escape, markdown_table
from harness.publish.thread_rows import Rows
from harness.story import Spot

HEADER = (
    "GPU",
    "fp32-acc. peak (TFLOP/s)",
    "fp16-acc. peak (TFLOP/s)",
    "chip peak (TFLOP/s)",
    "MMAs alone, fp32 acc. (TFLOP/s)",
    "% of own peak",
    "% of chip peak",
    "MMAs alone, fp16 acc. (TFLOP/s)",
    "",
)


def peaks_table(gpus: Sequence[Rows], ceilings: Mapping[str, Spot]) -> list[str]:
    """Lines: one row per GPU, peaks at the boost clock of the specification; then who reads what."""
    cells: list[list[str]] = []
    reads: dict[int, list[str]] = {}
    alike: list[str] = []
    for rows in gpus:
        single, half = (rows.row(ceilings[acc]) if acc in ceilings else None for acc in ("f32", "f16"))
        if single is None:
            continue
        tera = _tera_per_flop_clk(rows)
        own, chip = share(single, "own"), share(single, "chip")
        cells.append(
            [
                escape(rows.name),
                _number(_times(single["own_peak"], tera)),
                _number(_times(half["own_peak"] if half else None, tera)),
                _number(_times(single["chip_peak"], tera)),
                _number(tflop_s(single)),
                _number(own, 1),
                _number(chip, 1),
                _number(tflop_s(half) if half else None),
                "*predicted*" if single["type"] == "predicted" else "measured",
            ]
        )
        if single["own_peak"] and single["own_peak"] == single["chip_peak"]:
            alike.append(escape(rows.name))
        if chip is not None:
            reads.setdefault(round(chip), []).append(escape(rows.name))
    if not cells:
        return []
    said = "; ".join(f"{percent} % on {', '.join(names)}" for percent, names in sorted(reads.items()))
    return [*markdown_table(HEADER, cells).splitlines(), "", *_reads(said, alike)]


def _reads(said: str, alike: Sequence[str]) -> list[str]:
    """Who reads what, and where 50 % must have another reason: on the GPUs of one peak."""
    if not said:
        return []
    text = (
        "So a loop that keeps the fp32-accumulate MMAs as busy as they can be shows, of the chip's peak: "
        f"{said}."
    )
    if alike:
        text += (
            f" On {', '.join(alike)} no peak is higher: 50 % of the FLOP rate, or of active cycles, is not a "
            "matter of the peak there, the MMAs wait for something."
        )
    return [text]


def share(row: Row, of: str) -> float | None:
    """The row's percentage of the "own" or "chip" peak, measured or predicted."""
    value = row[f"bound_{of}_percent"] if row["type"] == "predicted" else row[f"{of}_percent"]
    return None if value is None else float(value)


def tflop_s(row: Row) -> float | None:
    """TFLOP/s of a row: measured, at the clock run; predicted, at boost."""
    value = row["bound_tflop_s"] if row["type"] == "predicted" else row["tflop_s"]
    return None if value is None else float(value)


def _tera_per_flop_clk(rows: Rows) -> float | None:
    """TFLOP/s at boost for one FLOP per clock and SM."""
    product = rows.product
    return product.sms * product.boost_hz / 1e12 if product else None


def _times(value: float | None, factor: float | None) -> float | None:
    return None if value is None or factor is None else value * factor


def _number(value: float | None, digits: int = 0) -> str:
    return "unknown" if value is None else f"{value:.{digits}f}"
