"""Cases as pytest benchmarks: timed by the suite's own loop, saved by GPU, compared on cycles."""

from harness.bench.gate import Gate, gate, newest
from harness.bench.measured import (
    Measured,
    extra_info,
    machine_id,
    machine_info,
    measure,
    not_measurable,
)
from harness.bench.timeline import DeviceTimeline

__all__ = [
    "DeviceTimeline",
    "Gate",
    "Measured",
    "extra_info",
    "gate",
    "machine_id",
    "machine_info",
    "measure",
    "newest",
    "not_measurable",
]
