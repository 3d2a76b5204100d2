"""The measurement loop: interleaved rounds over entries on a device, guarded, and stopped when it is enough.

Knows no CUDA and no study: anything with the methods of `Device` is timed.
"""

from harness.engine.guards import growth_problem, sample_problem
from harness.engine.rounds import measure
from harness.engine.values import Device, Entry, Exit, Measured, Plan, Session, State, Timing, columns

__all__ = [
    "Device",
    "Entry",
    "Exit",
    "Measured",
    "Plan",
    "Session",
    "State",
    "Timing",
    "columns",
    "growth_problem",
    "measure",
    "sample_problem",
]
