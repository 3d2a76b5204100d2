"""Which peak a figure is taken of: looking products and rates up, percentages that name their denominator."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from harness.chips.data import all_chips, all_intervals, all_limits, all_pipes, all_rates
from harness.chips.facts import Capability, Chip, Interval, Limits, Pipe, Rate, spell
from harness.chips.target import parse_target
from harness.errors import UsageError

Product = Chip | tuple[Capability, str]
"""A chip, or the (compute capability, product class) that decides its rates."""

ABOVE_SPEC = "clock above spec"
ABOVE_PEAK = "above the peak at the clock run"
# Rounding, and clock jitter within a launch; more than this over 100 % at the clock run is a fault here.
SLACK_PERCENT = 0.5


def limits(target: str | Capability) -> Limits:
    """Limits of an architecture ("sm_90a", "9.0") or compute capability; UsageError where unknown."""
    if isinstance(target, str):
        return all_limits()[parse_target(target).cc]
    if target not in all_limits():
        known = ", ".join(map(spell, all_limits()))
        raise UsageError(f"nothing is known of compute capability {spell(target)}; known are {known}")
    return all_limits()[target]


def _plain(name: str) -> str:
    words = re.sub(r"\((tm|r)\)|[™®]", "", name.strip().lower()).split()
    return " ".join(words[1:] if words[:1] == ["nvidia"] else words)


def chip(name: str) -> Chip | None:
    """The product of this name, None where it is unknown: a laptop part or a 4090 D is not a 4090.

    Case, spaces and a leading "NVIDIA" do not matter. A MIG slice's name is not its chip's: see `identify`.
    """
    wanted = _plain(name)
    for one in all_chips():
        if wanted in map(_plain, (one.name, *one.aliases)):
            return one
    return None


def identify(name: str, sms: int) -> Chip | None:
    """The product or MIG slice a driver describes by name and SM count; None where the two do not fit.

    Some products share a name (RTX 3080 of 10 and 12 GB, the Orin modules): the SM count tells them apart.
    """
    whole, mig, _ = name.partition(" MIG ")
    found = chip(whole)
    if found is None or sms == found.sms:
        return found
    return slice_of(found, sms) if mig and 0 < sms < found.sms else None


def slice_of(whole: Chip, sms: int) -> Chip:
    """A MIG slice with `sms` of the chip's SMs: its peak is that share, its memory system's is unknown."""
    if not 0 < sms <= whole.sms:
        raise ValueError(f"a slice of {whole.name} has 1 to {whole.sms} SMs, not {sms}")
    return replace(
        whole,
        name=f"{whole.name} MIG slice {sms}/{whole.sms}",
        aliases=(),
        sms=sms,
        dram_bytes_s=None,
        l2_bytes=None,
        vendor_tflops=None,
        independent=False,
        whole_sms=whole.sms,
    )


def chips(arch: str) -> tuple[Chip, ...]:
    """Every product whose GPU runs cubins of this architecture's compute capability, in the table's order."""
    cc = parse_target(arch).cc
    return tuple(one for one in all_chips() if one.cc == cc)


def _key(product: Product) -> tuple[Capability, str]:
    return (product.cc, product.product_class) if isinstance(product, Chip) else product


def peak(product: Product, path: str, input: str, acc: str) -> Rate | None:
    """The peak of a path (mma.sync, wgmma, tcgen05), input type and accumulator (f32, f16, s32), if known."""
    return all_rates().get((*_key(product), path, input, acc))


def chip_peak(product: Product, input: str) -> Rate | None:
    """The highest peak for an input type over paths and accumulators, if known; of equals, f32 accumulate."""
    key = _key(product)
    same = (rate for rate in all_rates().values() if (rate.cc, rate.product_class) == key)
    rates = (rate for rate in same if rate.input == input)
    return max(rates, key=lambda rate: (rate.flop_clk_sm, rate.acc == "f32"), default=None)


def tflops(rate: Rate | float, sms: int, hz: float) -> float:
    """SMs x clock x rate, in TFLOP/s."""
    per_clock = rate.flop_clk_sm if isinstance(rate, Rate) else rate
    return per_clock * sms * hz / 1e12


def pipe(cc: Capability, name: str) -> Pipe | None:
    """Rate of a pipe (issue, fma, half2, mufu, alu, pack, conversion, shuffle, l2_bytes...), if known."""
    return all_pipes().get((cc, name))


def mma_interval(cc: Capability) -> Interval | None:
    """Issue intervals and dependent latency of warp-level MMAs; None if unknown."""
    return all_intervals().get(cc)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A figure as a percentage of one named peak; None where the peak or the clock is unknown."""

    peak: Rate | None
    at_spec_percent: float | None
    at_clock_percent: float | None
    note: str = ""

    @property
    def name(self) -> str:
        """The peak in words, "unknown" where there is none."""
        return self.peak.name if self.peak else "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The same figure against the peak of its own path and accumulator, and against the chip's highest."""

    own: Share
    chip: Share


def shares(
    product: Chip, path: str, input: str, acc: str, *, tflop_s: float, sm_hz: float | None = None
) -> Shares:
    """Both percentages of a throughput in TFLOP/s; `sm_hz` is the SM clock run, None or 0 where unknown.

    More than 100 % at spec is neither hidden nor clipped but noted: the clock ran above it.
    """
    own, highest = peak(product, path, input, acc), chip_peak(product, input)
    return Shares(
        own=share(own, product, tflop_s, sm_hz),
        chip=share(highest, product, tflop_s, sm_hz),
    )


def share(rate: Rate | None, product: Chip, tflop_s: float, sm_hz: float | None = None) -> Share:
    """A throughput in TFLOP/s as a percentage of one peak, at the spec's boost clock and at the clock run."""
    if rate is None:
        return Share(peak=None, at_spec_percent=None, at_clock_percent=None)
    at_spec = 100 * tflop_s / tflops(rate, product.sms, product.boost_hz)
    at_clock = 100 * tflop_s / tflops(rate, product.sms, sm_hz) if sm_hz and sm_hz > 0 else None
    note = ""
    if at_clock is not None and at_clock > 100 + SLACK_PERCENT:
        note = ABOVE_PEAK
    elif at_spec > 100:
        note = ABOVE_SPEC
    return Share(peak=rate, at_spec_percent=at_spec, at_clock_percent=at_clock, note=note)
