"""Reads the data files beside this module into frozen values, once per process."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from harness.chips.facts import Capability, Chip, Interval, Limits, Pipe, Rate

Row = dict[str, Any]
CONFIDENCES = ("vendor", "measured", "derived", "unverified")


def _rows(table: str) -> list[Row]:
    name = "pipes" if table == "intervals" else table
    text = resources.files("harness.chips").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    rows: list[Row] = tomllib.loads(text)[table]
    return rows


def _capability(text: str) -> Capability:
    major, minor = text.split(".")
    return int(major), int(minor)


def _sourced(row: Row) -> dict[str, str]:
    if row["confidence"] not in CONFIDENCES:
        raise ValueError(f"confidence {row['confidence']!r} is none of {', '.join(CONFIDENCES)}")
    return {"confidence": row["confidence"], "source": row["source"]}


@cache
def all_limits() -> dict[Capability, Limits]:
    """Limits by compute capability, in ascending order."""
    return {limits.cc: limits for limits in map(_limits, _rows("limits"))}


def _limits(row: Row) -> Limits:
    return Limits(
        cc=_capability(row["cc"]),
        shared_per_sm_bytes=max(row["carve_outs_kb"]) * 1024,
        shared_per_block_bytes=row["shared_per_block_kb"] * 1024,
        carve_outs_bytes=tuple(kb * 1024 for kb in row["carve_outs_kb"]),
        blocks_per_sm=row["blocks_per_sm"],
        threads_per_sm=row["threads_per_sm"],
        # The same on every compute capability from 7.5 to 12.1 (cuda_occupancy.h).
        registers_per_sm=65536,
        registers_per_thread=255,
        register_granularity=256,
        shared_granularity_bytes=row["shared_granularity_bytes"],
        reserved_shared_bytes=row["reserved_shared_kb"] * 1024,
        target=row["target"],
        suffixes=tuple(row["suffixes"]),
        source=f"{row['source']}; threads per SM: {row['threads_source']}",
    )


@cache
def all_rates() -> dict[tuple[Capability, str, str, str, str], Rate]:
    """Rates by (cc, product class, path, input, accumulator)."""
    rates: dict[tuple[Capability, str, str, str, str], Rate] = {}
    for rate in (rate for row in _rows("rates") for rate in _rates(row)):
        key = (rate.cc, rate.product_class, rate.path, rate.input, rate.acc)
        if key in rates:
            raise ValueError(f"two rates for {key}")
        rates[key] = rate
    return rates


def _rates(row: Row) -> Iterator[Rate]:
    for product_class in row["classes"]:
        for mode, value in row["flop_clk_sm"].items():
            entry, acc = mode.split()
            yield Rate(
                cc=_capability(row["cc"]),
                product_class=product_class,
                path=row["path"],
                input=entry,
                acc=acc,
                flop_clk_sm=float(Fraction(value)),  # "8192/3" where a decimal would be a rounding
                **_sourced(row),
            )


@cache
def all_chips() -> tuple[Chip, ...]:
    """Every product known, in the order of the data file."""
    return tuple(map(_chip, _rows("chips")))


def _chip(row: Row) -> Chip:
    entry, acc = row.get("vendor_mode", "fp16 f32").split()
    return Chip(
        name=row["name"],
        aliases=tuple(row["aliases"]),
        cc=_capability(row["cc"]),
        product_class=row["class"],
        sms=row["sms"],
        boost_hz=row["boost_mhz"] * 1e6,
        dram_bytes_s=row["dram_gb_s"] * 1e9,
        l2_bytes=round(row["l2_mb"] * 2**20),
        vendor_tflops=row.get("vendor_tflops"),
        vendor_mode=(entry, acc),
        independent=row.get("independent", False),
        source=row["source"],
    )


@cache
def all_pipes() -> dict[tuple[Capability, str], Pipe]:
    """Pipe rates by (cc, pipe)."""
    pipes: dict[tuple[Capability, str], Pipe] = {}
    for row in _rows("pipes"):
        for text, rate in row["rate"].items():
            cc = _capability(text)
            if (cc, row["pipe"]) in pipes:
                raise ValueError(f"two rates of pipe {row['pipe']} for {text}")
            pipes[cc, row["pipe"]] = Pipe(
                cc=cc,
                pipe=row["pipe"],
                rate=float(rate),
                unit=row["unit"],
                meaning=row["meaning"],
                **_sourced(row),
            )
    return pipes


@cache
def all_intervals() -> dict[Capability, Interval]:
    """MMA intervals by compute capability."""
    return {
        _capability(text): Interval(
            cc=_capability(text),
            issue_clk={(key.split()[0], key.split()[1]): clk for key, clk in row["issue_clk"].items()},
            dependent_clk=row["dependent_clk"],
            measured_dependent_clk=row.get("measured_dependent_clk"),
            **_sourced(row),
        )
        for row in _rows("intervals")
        for text in row["cc"]
    }
