"""The frozen types of what is known about GPUs: limits, rates, products. None is unknown, never zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Capability = tuple[int, int]
"""Compute capability as (major, minor)."""


def spell(cc: Capability) -> str:
    """A compute capability as people write it: (9, 0) is "9.0"."""
    return f"{cc[0]}.{cc[1]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one SM and one CTA may use on a compute capability.

    Args:
        shared_per_sm_bytes: the largest carve-out of shared memory.
        shared_per_block_bytes: static plus dynamic shared memory of one CTA after opting in.
        carve_outs_bytes: sizes the driver may choose for an SM, ascending.
        shared_granularity_bytes: unit in which a CTA's shared memory is allocated.
        register_granularity: registers in which one warp's are allocated.
        reserved_shared_bytes: what the driver takes for each CTA on top of what the CTA asks for.
        target: whether the suite compiles for it at all.
        suffixes: "a" and "f" where NVRTC makes a cubin of sm_XXa, sm_XXf.
    """

    cc: Capability
    shared_per_sm_bytes: int
    shared_per_block_bytes: int
    carve_outs_bytes: tuple[int, ...]
    blocks_per_sm: int
    threads_per_sm: int
    registers_per_sm: int
    registers_per_thread: int
    shared_granularity_bytes: int
    register_granularity: int
    reserved_shared_bytes: int
    target: bool
    suffixes: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A peak: dense FLOP (OP) per clock and SM of one path, input type and accumulator on a class of product.

    `confidence` is vendor, measured, derived or unverified.
    """

    cc: Capability
    product_class: str
    path: str
    input: str
    acc: str
    flop_clk_sm: float
    confidence: str
    source: str

    @property
    def name(self) -> str:
        """Words a table can print: "mma.sync fp16 f32-acc"."""
        return f"{self.path} {self.input} {self.acc}-acc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """A product, named as the driver reports it, or a MIG slice of one.

    Args:
        boost_hz: boost clock of the specification.
        dram_bytes_s: nominal bandwidth of device memory; None for a slice.
        l2_bytes: size of the L2 cache; None for a slice.
        vendor_tflops: the vendor's dense figure for `vendor_mode` (input and accumulator).
        independent: whether that figure was not computed from this clock, nor the clock from it.
        whole_sms: SMs of the whole chip where this is a slice of it.
    """

    name: str
    aliases: tuple[str, ...]
    cc: Capability
    product_class: str
    sms: int
    boost_hz: float
    dram_bytes_s: float | None
    l2_bytes: int | None
    vendor_tflops: float | None
    vendor_mode: tuple[str, str]
    independent: bool
    source: str
    whole_sms: int | None = None

    @property
    def arch(self) -> str:
        """The architecture its kernels are compiled for, e.g. "sm_90a"."""
        return plain_arch(self.cc) + ("a" if self.cc >= (9, 0) else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipe:
    """Rate of one pipe per clock and SM, in `unit` (thread results, bytes, warp instructions)."""

    cc: Capability
    pipe: str
    rate: float
    unit: str
    meaning: str
    confidence: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Clocks of warp-level MMAs on one sub-partition.

    Args:
        issue_clk: (shape, input) -> clocks between independent MMAs as ptxas has it; the pipe may need more.
        dependent_clk: clocks that ptxas assumes from an MMA to the next one through its accumulator.
        measured_dependent_clk: what hardware showed, None where nobody looked.
    """

    cc: Capability
    issue_clk: Mapping[tuple[str, str], int]
    dependent_clk: int
    measured_dependent_clk: float | None
    confidence: str
    source: str


def plain_arch(cc: Capability) -> str:
    """(9, 0) as "sm_90"."""
    return f"sm_{cc[0]}{cc[1]}"
