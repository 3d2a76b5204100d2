"""How many CTAs of a kernel fit on one SM, and how much shared memory holds it at fewer. Arithmetic only.

The rules are those of the CUDA occupancy calculator for compute capability 8.0 and newer: registers are given
out per warp in units of `register_granularity`, from four equal parts of the register file; shared memory per
CTA is what was asked plus the system's reserve, rounded up; the SM is taken at its largest shared-memory
carve-out, which is what a launch has to ask for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from harness.errors import NotSupportedError

WARP = 32
PARTITIONS = 4
# cp.async moves 16 bytes to 16-byte addresses: dynamic shared memory comes in that unit.
SHARED_UNIT_BYTES = 16


class Limits(Protocol):
    """What residency must know of a compute capability; bytes, registers and CTAs as its name says."""

    @property
    def cc(self) -> tuple[int, int]: ...  # noqa: D102
    @property
    def shared_per_sm_bytes(self) -> int: ...  # noqa: D102
    @property
    def shared_per_block_bytes(self) -> int: ...  # noqa: D102
    @property
    def blocks_per_sm(self) -> int: ...  # noqa: D102
    @property
    def threads_per_sm(self) -> int: ...  # noqa: D102
    @property
    def registers_per_sm(self) -> int: ...  # noqa: D102
    @property
    def registers_per_thread(self) -> int: ...  # noqa: D102
    @property
    def shared_granularity_bytes(self) -> int: ...  # noqa: D102
    @property
    def register_granularity(self) -> int: ...  # noqa: D102
    @property
    def reserved_shared_bytes(self) -> int: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Residency:
    """CTAs that fit on one SM, and the resources that allow no more (registers, shared, threads, blocks)."""

    ctas: int
    limited_by: tuple[str, ...]


def ctas_per_sm(limits: Limits, *, threads: int, registers: int, shared_bytes: int) -> Residency:
    """CTAs per SM of a kernel.

    Args:
        limits: of the compute capability.
        threads: per CTA.
        registers: per thread.
        shared_bytes: static plus dynamic, per CTA.

    Raises:
        NotSupportedError: not even one CTA fits; the message has what is asked and what there is.
    """
    check_shared(limits, shared_bytes)
    if registers > limits.registers_per_thread:
        raise NotSupportedError(
            f"{registers} registers per thread asked, "
            f"{limits.registers_per_thread} are the limit of {_name(limits)}"
        )
    warps = -(-threads // WARP)
    fits = {
        "registers": _warps_by_registers(limits, registers) // warps,
        "shared": limits.shared_per_sm_bytes // _allocated(limits, shared_bytes),
        "threads": limits.threads_per_sm // (warps * WARP),
        "blocks": limits.blocks_per_sm,
    }
    ctas = min(fits.values())
    # The hardware checks a launch as if every part of the register file took the same number of warps.
    assumed = _round_up(warps, PARTITIONS) * _round_up(registers * WARP, limits.register_granularity)
    if ctas == 0 or assumed > limits.registers_per_sm:
        raise NotSupportedError(
            f"no CTA of {threads} threads, {registers} registers each and {shared_bytes} bytes of shared "
            f"memory fits: {_name(limits)} has {limits.threads_per_sm} threads, {limits.registers_per_sm} "
            f"registers and {limits.shared_per_sm_bytes} bytes per SM"
        )
    return Residency(ctas=ctas, limited_by=tuple(name for name, number in fits.items() if number == ctas))


def check_shared(limits: Limits, shared_bytes: int) -> None:
    """NotSupportedError, with both numbers, when a CTA asks for more shared memory than it may have."""
    if shared_bytes > limits.shared_per_block_bytes:
        raise NotSupportedError(
            f"{shared_bytes} bytes of shared memory per CTA asked, "
            f"{limits.shared_per_block_bytes} are the limit of {_name(limits)}"
        )


def check_dynamic(dynamic_bytes: int) -> None:
    """NotSupportedError for an amount of dynamic shared memory that no launch should ask for."""
    if dynamic_bytes < 0 or dynamic_bytes % SHARED_UNIT_BYTES:
        raise NotSupportedError(
            f"{dynamic_bytes} bytes of dynamic shared memory asked; "
            f"it must be a multiple of {SHARED_UNIT_BYTES}"
        )


def padded_shared(
    limits: Limits, *, threads: int, registers: int, static_bytes: int, dynamic_bytes: int, want: int
) -> int:
    """The smallest dynamic shared size >= `dynamic_bytes` at which at most `want` CTAs are resident.

    Where no more than `want` fit anyhow, that is `dynamic_bytes` itself. Multiple of 16 when it had to grow.
    NotSupportedError as `ctas_per_sm`, and when `want` < 1.
    """
    if want < 1:
        raise NotSupportedError(f"{want} CTAs per SM asked; it must be at least 1")
    natural = ctas_per_sm(
        limits, threads=threads, registers=registers, shared_bytes=static_bytes + dynamic_bytes
    )
    if natural.ctas <= want:
        return dynamic_bytes
    # Allocated bytes of which want + 1 no longer fit: one granule above the share of each.
    granule = limits.shared_granularity_bytes
    largest_that_fits_more = limits.shared_per_sm_bytes // (want + 1) // granule * granule
    total = largest_that_fits_more - limits.reserved_shared_bytes + 1
    padded = _round_up(total - static_bytes, SHARED_UNIT_BYTES)
    check_shared(limits, static_bytes + padded)
    return padded


def _warps_by_registers(limits: Limits, registers: int) -> int:
    """Warps whose registers fit on an SM; a warp lives in one part of the register file."""
    per_warp = _round_up(max(registers, 1) * WARP, limits.register_granularity)
    return limits.registers_per_sm // PARTITIONS // per_warp * PARTITIONS


def _allocated(limits: Limits, shared_bytes: int) -> int:
    return _round_up(shared_bytes + limits.reserved_shared_bytes, limits.shared_granularity_bytes)


def _round_up(number: int, unit: int) -> int:
    return -(-number // unit) * unit


def _name(limits: Limits) -> str:
    return f"compute capability {limits.cc[0]}.{limits.cc[1]}"
