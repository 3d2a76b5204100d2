"""The columns of the tables: label, unit and number format, each written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.printable import printable

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: `short` heads it at a terminal (a bar breaks its line), `label` on a page; both name
    the unit."""

    key: str
    short: str
    label: str
    digits: int = 0

    def cell(self, row: Row) -> str:
        """The value as text; empty where there is none."""
        value = row.get(self.key)
        if value is None:
            return ""
        return f"{value:.{self.digits}f}" if isinstance(value, float) else printable(str(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectColumn(Column):
    """The word against full, with the change that it names."""

    def cell(self, row: Row) -> str:
        """`+4.3 % faster`, `same`, `unclear`; empty for full itself."""
        word, percent = row.get("effect"), row.get("effect_percent")
        if word in ("faster", "slower") and percent is not None:
            return f"{percent:+.1f} % {word}"
        return str(word or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalColumn(Column):
    """The interval of the effect."""

    def cell(self, row: Row) -> str:
        """`+3.4 to +7.5`; empty where there is none."""
        low, high = row.get("effect_low"), row.get("effect_high")
        return "" if low is None or high is None else f"{low:+.1f} to {high:+.1f}"


@dataclass(frozen=True, slots=True, kw_only=True)
class NextColumn(Column):
    """The pipe after the binding one, with how full it is when that is full."""

    def cell(self, row: Row) -> str:
        """`issue 84 %`; empty where there is none."""
        pipe, margin = row.get("second"), row.get("margin")
        return "" if pipe is None or margin is None else f"{printable(str(pipe))} {100 * margin:.0f} %"


FLOP_CLK = Column(key="flop_clk_sm", short="FLOP/|clk/SM", label="FLOP/clk/SM", digits=1)
WORK = Column(key="work_clk_sm", short="work/|clk/SM", label="work/clk/SM", digits=2)
UNIT = Column(key="unit", short="unit", label="unit of work")
TFLOPS = Column(key="tflop_s", short="TFLOP/s", label="TFLOP/s", digits=1)
OWN = Column(key="own_percent", short="% of|path", label="% of path peak", digits=1)
CHIP = Column(key="chip_percent", short="% of|chip", label="% of chip peak", digits=1)
TENSOR = Column(key="tensor_active_percent", short="tensor|active %", label="tensor active %", digits=1)
MATH_THROTTLE = Column(
    key="math_throttle", short="math thr.|/issue", label="math throttle (clk per issue)", digits=2
)
TOP_STALL = Column(key="top_stall", short="top stall|/issue", label="top stall (clk per issue)")
# What a profiler read, beside what the kernels counted themselves.
COUNTERS = (TENSOR, MATH_THROTTLE, TOP_STALL)
MHZ = Column(key="sm_mhz", short="SM|MHz", label="SM clock run (MHz)")
EFFECT = EffectColumn(key="effect", short="vs full", label="vs full")
INTERVAL = IntervalColumn(key="effect_low", short="95 %|interval", label="95 % interval (%)")
CODEGEN = Column(key="codegen_percent", short="codegen|±%", label="codegen (± %)", digits=1)
SPREAD = Column(key="spread_percent", short="SMs|differ %", label="SMs of a launch differ by (%)", digits=1)
CEILING = Column(key="ceiling", short="ceiling", label="ceiling (FLOP/clk/SM)", digits=1)
CEILING_AT = Column(key="ceiling_at", short="at", label="ceiling at")
BOUND = Column(key="bound", short="bound", label="bound, predicted (FLOP/clk/SM)", digits=1)
OF_BOUND = Column(key="of_bound", short="% of|bound", label="% of bound", digits=1)
BOUND_TFLOPS = Column(
    key="bound_tflop_s", short="at most|TFLOP/s", label="at most, predicted (TFLOP/s at boost)", digits=1
)
BOUND_OWN = Column(key="bound_own_percent", short="bound %|of path", label="bound, % of path peak", digits=1)
BOUND_CHIP = Column(
    key="bound_chip_percent", short="bound %|of chip", label="bound, % of chip peak", digits=1
)
ESTIMATE = Column(key="estimate", short="estimate", label="estimate, simulated (FLOP/clk/SM)", digits=1)
ESTIMATE_TFLOPS = Column(
    key="estimate_tflop_s", short="est.|TFLOP/s", label="estimate, simulated (TFLOP/s at boost)", digits=1
)
NEXT = NextColumn(key="second", short="next|pipe", label="next pipe")
BINDING = Column(key="binding", short="binds", label="bound set by")
MMA = Column(key="mma", short="MMA", label="MMA per iteration")
REGISTERS = Column(key="registers", short="regs", label="registers per thread")
SPILLS = Column(key="spills", short="spill", label="spill instructions")
SHARED = Column(key="shared_bytes", short="smem B", label="shared memory per CTA (bytes)")
CTAS = Column(key="ctas_per_sm", short="CTA/|SM", label="CTAs per SM")
VERIFIED = Column(key="verified_on", short="check", label="numbers verified on")

# What a terminal shows, the most needed first; more of them where it is wider.
BY_NEED = (
    FLOP_CLK,
    WORK,
    UNIT,
    EFFECT,
    OWN,
    TFLOPS,
    *COUNTERS,
    CODEGEN,
    CEILING,
    CEILING_AT,
    INTERVAL,
    CHIP,
    OF_BOUND,
    BINDING,
    MHZ,
    REGISTERS,
    SPILLS,
    CTAS,
    SPREAD,
    SHARED,
    MMA,
    BOUND,
    ESTIMATE,
)
# The same of rows that were only predicted.
PREDICTED_BY_NEED = (
    BOUND_TFLOPS,
    BOUND,
    BINDING,
    BOUND_CHIP,
    ESTIMATE_TFLOPS,
    NEXT,
    BOUND_OWN,
    REGISTERS,
    SPILLS,
    CTAS,
    SHARED,
    MMA,
)
# The order in which they stand.
MEASURED = (
    TFLOPS,
    FLOP_CLK,
    WORK,
    UNIT,
    OWN,
    CHIP,
    *COUNTERS,
    EFFECT,
    INTERVAL,
    CODEGEN,
    CEILING,
    CEILING_AT,
    BOUND,
    OF_BOUND,
    BINDING,
    ESTIMATE,
    MHZ,
    SPREAD,
    REGISTERS,
    SPILLS,
    SHARED,
    CTAS,
    MMA,
)
PREDICTED = (
    BOUND_TFLOPS,
    BOUND,
    BOUND_OWN,
    BOUND_CHIP,
    BINDING,
    NEXT,
    ESTIMATE_TFLOPS,
    REGISTERS,
    SPILLS,
    SHARED,
    CTAS,
    MMA,
)
BRIEF = (TFLOPS, FLOP_CLK, WORK, UNIT, OWN, CHIP, EFFECT, CODEGEN, CEILING)
ALTERNATIVE = (TFLOPS, FLOP_CLK, OWN, CHIP, *COUNTERS, MHZ, SPREAD, REGISTERS, SPILLS, SHARED, CTAS)
BUILT = (MMA, REGISTERS, SPILLS, SHARED, CTAS, VERIFIED)


def filled(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """The columns that hold anything of the rows with numbers: a table leaves the others out."""
    return [c for c in columns if any(row["status"] == "ok" and c.cell(row) for row in rows)]


def outcome(row: Row) -> str:
    """`ok`, or the status with its reason."""
    status = str(row["status"])
    return status if status == "ok" else f"{status}: {row['reason']}"


def name_of(row: Row) -> str:
    """What the row is called in its block, with the number of its text where it is not the first."""
    variant, name = row.get("perturbation"), row.get("label") or row["case"]
    return f"{name} (text {variant})" if variant else str(name)


def notes_of(row: Row) -> list[str]:
    """The notes of a row that shows numbers."""
    if row["status"] != "ok":
        return []
    notes = [note for note in str(row["notes"] or "").split("; ") if note]
    said = [note for note in str(row.get("effect_note") or "").split("; ") if note]
    if said and row.get("effect") == "unclear":
        said[0] = f"unclear: {said[0]}"
    return notes + said
