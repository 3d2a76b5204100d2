"""The columns of the tables: label, unit and number format, each written once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column: `short` heads it at a terminal, `label` on a page; both name the unit."""

    key: str
    short: str
    label: str
    digits: int = 0

    def cell(self, row: Row) -> str:
        """The value as text; empty where there is none."""
        value = row.get(self.key)
        if value is None:
            return ""
        return f"{value:.{self.digits}f}" if isinstance(value, float) else str(value)


FLOP_CLK = Column(key="flop_clk_sm", short="FLOP/clk/SM", label="FLOP/clk/SM", digits=1)
TFLOPS = Column(key="tflop_s", short="TFLOP/s", label="TFLOP/s", digits=1)
OWN = Column(key="own_percent", short="% path", label="% of path peak", digits=1)
RATIO = Column(key="ratio", short="/ full", label="ratio to full (FLOP/clk/SM)", digits=3)
CHIP = Column(key="chip_percent", short="% chip", label="% of chip peak", digits=1)
MHZ = Column(key="sm_mhz", short="SM MHz", label="SM clock run (MHz)")
CEILING = Column(key="ceiling", short="ceiling", label="ceiling over configurations (FLOP/clk/SM)", digits=1)
CEILING_AT = Column(key="ceiling_at", short="at", label="ceiling at")
MMA = Column(key="mma", short="MMA", label="MMA per iteration")
REGISTERS = Column(key="registers", short="regs", label="registers per thread")
SPILLS = Column(key="spills", short="spill", label="spill instructions")
SHARED = Column(key="shared_bytes", short="smem B", label="shared memory per CTA (bytes)")
CTAS = Column(key="ctas_per_sm", short="CTA/SM", label="CTAs per SM")

# What a terminal shows, the most needed first; more of them where it is wider.
BY_NEED = (FLOP_CLK, TFLOPS, OWN, RATIO, CHIP, MHZ, CEILING, CEILING_AT, REGISTERS, SPILLS, SHARED, CTAS, MMA)
# The order in which they stand.
MEASURED = (
    TFLOPS,
    FLOP_CLK,
    MHZ,
    OWN,
    CHIP,
    RATIO,
    CEILING,
    CEILING_AT,
    REGISTERS,
    SPILLS,
    SHARED,
    CTAS,
    MMA,
)
BRIEF = (TFLOPS, FLOP_CLK, MHZ, OWN, CHIP, RATIO)
BUILT = (MMA, REGISTERS, SPILLS, SHARED, CTAS)


def outcome(row: Row) -> str:
    """`ok`, or the status with its reason."""
    status = str(row["status"])
    return status if status == "ok" else f"{status}: {row['reason']}"


def name_of(row: Row) -> str:
    """The case, with the number of its text variant where it is not the first."""
    variant = row.get("perturbation")
    return f"{row['case']} (text {variant})" if variant else str(row["case"])


def foreign(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """GPU -> case -> FLOP/clk/SM of its newest measured row: what machines recorded of the cases."""
    found: dict[str, dict[str, tuple[str, float]]] = {}
    for row in rows:
        rate = row["flop_clk_sm"]
        if row["gpu"] and rate is not None and row["latest"] and not row["perturbation"]:
            cases = found.setdefault(str(row["gpu"]), {})
            newest = cases.get(str(row["case"]), ("", 0.0))
            cases[str(row["case"])] = max(newest, (str(row["started"]), rate))
    return {gpu: {case: rate for case, (_, rate) in cases.items()} for gpu, cases in sorted(found.items())}
