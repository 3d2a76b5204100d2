"""What is known about GPUs: architectures, limits, peak and pipe rates, products. Unknown stays unknown.

Everything comes from the data files beside this module, each row with its source; no GPU, no driver is asked.
"""

from harness.chips.facts import Capability, Chip, Interval, Limits, Pipe, Rate, spell
from harness.chips.peaks import (
    ABOVE_PEAK,
    ABOVE_SPEC,
    Product,
    Share,
    Shares,
    chip,
    chip_peak,
    chips,
    identify,
    limits,
    mma_interval,
    peak,
    pipe,
    share,
    shares,
    slice_of,
    tflops,
)
from harness.chips.target import DEFAULT_ARCHS, Target, arch_of, parse_target, target_archs, usual_archs

__all__ = [
    "ABOVE_PEAK",
    "ABOVE_SPEC",
    "DEFAULT_ARCHS",
    "Capability",
    "Chip",
    "Interval",
    "Limits",
    "Pipe",
    "Product",
    "Rate",
    "Share",
    "Shares",
    "Target",
    "arch_of",
    "chip",
    "chip_peak",
    "chips",
    "identify",
    "limits",
    "mma_interval",
    "parse_target",
    "peak",
    "pipe",
    "share",
    "shares",
    "slice_of",
    "spell",
    "target_archs",
    "tflops",
    "usual_archs",
]
