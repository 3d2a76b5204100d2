"""Peaks, limits and products: the data agree with themselves and the vendors, unknown stays unknown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import chips
from harness.chips.data import CONFIDENCES, all_chips, all_intervals, all_limits, all_pipes, all_rates
from harness.errors import UsageError

# The datasheet of the H100 NVL implies 1544 MHz, that of the L40S 2490: neither is the specified boost clock.
EXCEPTIONS = {"NVIDIA H100 NVL": 0.156, "NVIDIA L40S": 0.012}
KIB = 1024


def known(name: str) -> chips.Chip:
    found = chips.chip(name)
    assert found is not None, name
    return found


def vendor_ratio(chip: chips.Chip) -> float:
    entry, acc = chip.vendor_mode
    rates = [chips.peak(chip, path, entry, acc) for path in ("mma.sync", "wgmma", "tcgen05")]
    best = max((rate for rate in rates if rate), key=lambda rate: rate.flop_clk_sm)
    assert chip.vendor_tflops is not None
    return chips.tflops(best, chip.sms, chip.boost_hz) / chip.vendor_tflops


INDEPENDENT = [chip for chip in all_chips() if chip.independent]


@pytest.mark.parametrize("chip", INDEPENDENT, ids=lambda chip: chip.name)
def test_sms_times_clock_times_rate_is_the_vendors_figure(chip: chips.Chip) -> None:
    off = vendor_ratio(chip) - 1
    if chip.name in EXCEPTIONS:
        assert off == pytest.approx(EXCEPTIONS[chip.name], abs=0.001)
        assert abs(off) > 0.01, "no exception any more: take it off the list"
    else:
        assert abs(off) < 0.01


def test_the_vendor_check_covers_every_class_and_target() -> None:
    assert len(INDEPENDENT) >= 27
    assert {chip.product_class for chip in INDEPENDENT} == {chip.product_class for chip in all_chips()}
    assert {chip.cc for chip in INDEPENDENT} == {chip.cc for chip in all_chips()} - {(10, 0)}


def test_a_clock_computed_back_from_the_figure_checks_nothing() -> None:
    assert not known("NVIDIA B200").independent
    assert not known("NVIDIA GB200").independent


def test_every_row_has_a_source_and_a_known_confidence() -> None:
    graded: list[chips.Rate | chips.Pipe | chips.Interval] = []
    graded += [*all_rates().values(), *all_pipes().values(), *all_intervals().values()]
    sources = [limits.source for limits in all_limits().values()] + [chip.source for chip in all_chips()]
    sources += [row.source for row in graded]
    assert len(sources) > 200
    assert min(len(source.strip()) for source in sources) > 5
    for row in graded:
        assert row.confidence in CONFIDENCES
        assert row.confidence != "vendor" or re.search("unverified|memory", row.source) is None, row


def test_every_chip_has_limits_rates_and_a_name_of_its_own() -> None:
    names = [
        name for chip in all_chips() for name in {chips.peaks._plain(n) for n in (chip.name, *chip.aliases)}
    ]
    assert len(names) == len(set(names))
    for chip in all_chips():
        assert chips.limits(chip.cc).cc == chip.cc
        assert chips.chip_peak(chip, "fp16") is not None


# C01: own peak and the other accumulator's; the 3090's vendor rounds 71.2 to 71, hence the tolerance.
@pytest.mark.parametrize(
    ("gpu", "acc", "tflop_s", "own", "other"),
    [
        ("NVIDIA GeForce RTX 4090", "f32", 160.0, 96.9, 48.4),
        ("NVIDIA GeForce RTX 3090", "f32", 66.0, 93.0, 46.5),
        ("NVIDIA GeForce RTX 3090", "f16", 66.0, 46.5, 93.0),
        ("NVIDIA A100-SXM4-40GB", "f32", 160.0, 51.3, 51.3),
    ],
)
def test_half_busy_is_the_ceiling_of_one_accumulator_and_half_of_the_other(
    gpu: str, acc: str, tflop_s: float, own: float, other: float
) -> None:
    chip = known(gpu)
    both = chips.shares(chip, "mma.sync", "fp16", acc, tflop_s=tflop_s)
    mirror = chips.peak(chip, "mma.sync", "fp16", "f16" if acc == "f32" else "f32")
    assert both.own.at_spec_percent == pytest.approx(own, abs=0.3)
    assert chips.share(mirror, chip, tflop_s).at_spec_percent == pytest.approx(other, abs=0.3)
    assert both.own.name == f"mma.sync fp16 {acc}-acc"


def test_the_chip_peak_is_named() -> None:
    geforce = chips.shares(known("rtx 4090"), "mma.sync", "fp16", "f32", tflop_s=160)
    hopper = chips.shares(known("NVIDIA H200"), "mma.sync", "fp16", "f32", tflop_s=645)
    assert (geforce.own.name, geforce.chip.name) == ("mma.sync fp16 f32-acc", "mma.sync fp16 f16-acc")
    assert (hopper.own.name, hopper.chip.name) == ("mma.sync fp16 f32-acc", "wgmma fp16 f32-acc")
    assert geforce.chip.at_spec_percent == pytest.approx(48.4, abs=0.1)


# C04: dense figures, never sparse, halved or vector ones.
@pytest.mark.parametrize(
    ("gpu", "acc", "expected"),
    [
        ("NVIDIA A100-SXM4-80GB", "f32", 312),
        ("NVIDIA H100 80GB HBM3", "f32", 989),
        ("NVIDIA GeForce RTX 3070 Ti", "f32", 43.5),
        ("NVIDIA GeForce RTX 3070 Ti", "f16", 87),
    ],
)
def test_dense_peaks_are_neither_sparse_nor_vector_figures(gpu: str, acc: str, expected: float) -> None:
    chip = known(gpu)
    path = "wgmma" if chip.cc == (9, 0) else "mma.sync"
    rate = chips.peak(chip, path, "fp16", acc)
    assert rate is not None
    assert chips.tflops(rate, chip.sms, chip.boost_hz) == pytest.approx(
        expected, abs=1 if expected > 900 else 0.2
    )


def test_hopper_reaches_two_thirds_through_mma_sync() -> None:
    for acc in ("f32", "f16"):
        warp = chips.peak(((9, 0), "datacenter"), "mma.sync", "fp16", acc)
        group = chips.peak(((9, 0), "datacenter"), "wgmma", "fp16", acc)
        assert warp is not None and group is not None
        assert warp.flop_clk_sm == pytest.approx(group.flop_clk_sm * 2 / 3)
        assert warp.confidence == "measured"


def test_blackwell_mma_sync_is_said_to_be_derived() -> None:
    rate = chips.peak(((10, 0), "datacenter"), "mma.sync", "fp16", "f32")
    assert rate is not None
    assert (rate.flop_clk_sm, rate.confidence) == (2048, "derived")


def test_bf16_has_no_f16_accumulator() -> None:
    assert not [rate for rate in all_rates().values() if rate.input == "bf16" and rate.acc != "f32"]


# C06
def test_above_spec_is_noted_and_the_clock_run_gives_the_true_share() -> None:
    own = chips.shares(
        known("NVIDIA GeForce RTX 4060"), "mma.sync", "fp16", "f32", tflop_s=31.0, sm_hz=2636e6
    ).own
    assert own.at_clock_percent == pytest.approx(95.7, abs=0.05)
    assert own.at_spec_percent == pytest.approx(102.6, abs=0.05)
    assert own.note == "clock above spec"


@pytest.mark.parametrize("hz", [None, 0, 0.0])
def test_a_missing_clock_leaves_only_the_figure_at_spec(hz: float | None) -> None:
    own = chips.shares(
        known("NVIDIA GeForce RTX 4060"), "mma.sync", "fp16", "f32", tflop_s=31.0, sm_hz=hz
    ).own
    assert own.at_clock_percent is None
    assert own.at_spec_percent == pytest.approx(102.6, abs=0.05)
    assert own.note == "clock above spec"


def test_above_the_peak_at_the_clock_run_is_not_excused_by_the_clock() -> None:
    own = chips.shares(
        known("NVIDIA GeForce RTX 4060"), "mma.sync", "fp16", "f32", tflop_s=40.0, sm_hz=2636e6
    ).own
    assert own.note == chips.ABOVE_PEAK


def test_an_unknown_peak_gives_no_percentage() -> None:
    own = chips.shares(known("NVIDIA GeForce RTX 4060"), "wgmma", "fp16", "f32", tflop_s=31.0).own
    assert (own.peak, own.at_spec_percent, own.at_clock_percent, own.name) == (None, None, None, "unknown")


# C17, second half
def test_a_mig_slice_has_its_share_of_the_peak() -> None:
    whole = known("NVIDIA H200")
    part = chips.identify("NVIDIA H200 MIG 1g.18gb", 16)
    assert part is not None
    assert part.sms / whole.sms == 16 / 132
    mine = chips.shares(part, "mma.sync", "fp16", "f32", tflop_s=10).own.at_spec_percent
    all_of_it = chips.shares(whole, "mma.sync", "fp16", "f32", tflop_s=10 * 132 / 16).own.at_spec_percent
    assert mine == pytest.approx(all_of_it)
    assert (part.dram_bytes_s, part.l2_bytes, part.vendor_tflops, part.independent) == (
        None,
        None,
        None,
        False,
    )
    assert "16/132" in part.name


@pytest.mark.parametrize(
    ("name", "sms"),
    [
        ("NVIDIA GeForce RTX 3080", 70),  # the 12 GB model goes by the same name
        ("Orin", 8),  # Orin NX and Nano
        ("NVIDIA H200", 16),  # fewer SMs without being a slice
        ("NVIDIA H200 MIG 9g.1gb", 133),
        ("NVIDIA H200 MIG 9g.1gb", 0),
        ("Some GPU", 132),
    ],
)
def test_a_name_with_the_wrong_number_of_sms_is_unknown(name: str, sms: int) -> None:
    assert chips.identify(name, sms) is None


def test_a_slice_larger_than_its_chip_is_refused() -> None:
    with pytest.raises(ValueError, match="1 to 132 SMs, not 133"):
        chips.slice_of(known("H200"), 133)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "NVIDIA H200 NVL",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA H20",
        "NVIDIA A10G",
        "A100",
        "NVIDIA",
        "",
    ],
)
def test_a_neighbour_of_a_known_chip_is_unknown(name: str) -> None:
    assert chips.chip(name) is None


@pytest.mark.parametrize(
    "name", ["nvidia geforce rtx 4090", "GeForce RTX™ 4090", " NVIDIA  GeForce RTX 4090 ", "RTX 4090"]
)
def test_names_are_read_without_case_brand_or_extra_spaces(name: str) -> None:
    assert known(name).name == "NVIDIA GeForce RTX 4090"


def test_chips_of_an_architecture_are_those_of_its_capability() -> None:
    assert {chip.name for chip in chips.chips("sm_87")} == {"Orin"}
    assert {chip.name for chip in chips.chips("sm_90a")} == {chip.name for chip in chips.chips("9.0")}
    assert chips.chips("sm_121a") == ()
    assert all(chips.arch_of(chip.cc) == chip.arch for chip in all_chips() if chip.cc >= (8, 0))


# C26: what fits is decided by these numbers.
@pytest.mark.parametrize(
    ("arch", "per_block"),
    [
        ("sm_80", 163),
        ("sm_86", 99),
        ("sm_87", 163),
        ("sm_89", 99),
        ("sm_90a", 227),
        ("sm_100a", 227),
        ("sm_120a", 99),
    ],
)
def test_shared_memory_of_a_cta_is_the_opt_in_maximum(arch: str, per_block: int) -> None:
    limits = chips.limits(arch)
    assert limits.shared_per_block_bytes == per_block * KIB
    assert limits.shared_per_sm_bytes == limits.shared_per_block_bytes + limits.reserved_shared_bytes


def test_limits_hold_together() -> None:
    for limits in all_limits().values():
        assert list(limits.carve_outs_bytes) == sorted(set(limits.carve_outs_bytes))
        assert limits.carve_outs_bytes[-1] == limits.shared_per_sm_bytes
        assert limits.shared_per_sm_bytes % limits.shared_granularity_bytes == 0
        assert limits.threads_per_sm in (1024, 1536, 2048)
        assert limits.registers_per_sm == 65536 and limits.registers_per_thread == 255


def test_limits_of_an_unknown_capability_are_an_error_not_a_guess() -> None:
    with pytest.raises(UsageError, match=r"8\.8.*known are 7\.5, 8\.0"):
        chips.limits((8, 8))


# C21, with what NVRTC 13.5 makes of each.
@pytest.mark.parametrize(
    ("text", "arch"),
    [
        ("90", "sm_90"),
        ("9.0", "sm_90a"),
        ("sm_90", "sm_90"),
        ("sm_90a", "sm_90a"),
        ("90a", "sm_90a"),
        ("9.0a", "sm_90a"),
        ("compute_90", "sm_90"),
        ("compute_90a", "sm_90a"),
        ("12.0", "sm_120a"),
        ("sm_120a", "sm_120a"),
        ("sm_120f", "sm_120f"),
        ("sm_121f", "sm_121f"),
        ("sm_103f", "sm_103f"),
        ("8.9", "sm_89"),
        (" SM_90A\n", "sm_90a"),
    ],
)
def test_an_architecture_keeps_what_it_was_given(text: str, arch: str) -> None:
    target = chips.parse_target(text)
    assert target.arch == str(target) == arch
    assert target.suffix == arch.lstrip("sm_0123456789")
    assert arch == f"sm_{target.cc[0]}{target.cc[1]}{target.suffix}"


@pytest.mark.parametrize(
    "text", ["sm_90f", "sm_86f", "sm_70", "sm_9.0", "", "sm_89a", "1.2", "12", "9", "sm_", "sm-90", "٩0"]
)
def test_a_bad_architecture_is_refused_with_the_valid_ones(text: str) -> None:
    with pytest.raises(UsageError, match=r"choose one of sm_80, .*sm_90a.*sm_120a") as caught:
        chips.parse_target(text)
    assert "\n" not in caught.value.message


# C12, second half
def test_turing_is_not_supported_and_says_why() -> None:
    with pytest.raises(UsageError, match=r"'sm_75' is not supported here: mma\.sync\.m16n8k16 and cp\.async"):
        chips.parse_target("sm_75")
    with pytest.raises(UsageError, match="not supported here"):
        chips.arch_of((7, 5))
    assert not chips.limits((7, 5)).target


def test_only_what_this_nvrtc_compiles_for_is_offered() -> None:
    assert chips.parse_target("90a", supported=("sm_80", "sm_90a")).arch == "sm_90a"
    with pytest.raises(UsageError, match="no architecture sm_120a; choose one of sm_80, sm_90a or"):
        chips.parse_target("sm_120a", supported=("sm_80", "sm_90a"))


def test_the_default_architectures_are_targets_gpus_are_compiled_for() -> None:
    for arch in chips.DEFAULT_ARCHS:
        assert chips.arch_of(chips.parse_target(arch).cc) == arch


@given(st.sampled_from(chips.target_archs()), st.sampled_from(["sm_", "compute_", "", "SM_"]))
def test_every_spelling_of_a_target_comes_back_as_itself(arch: str, prefix: str) -> None:
    assert chips.parse_target(prefix + arch.removeprefix("sm_")).arch == arch
    assert chips.parse_target(chips.spell(chips.parse_target(arch).cc)).arch in chips.target_archs()


@given(
    st.one_of(
        st.text(max_size=12), st.from_regex(r"(sm_|compute_)?[0-9]{1,4}\.?[0-9]?[a-z]?", fullmatch=True)
    )
)
def test_any_text_is_a_target_or_a_usage_error(text: str) -> None:
    try:
        target = chips.parse_target(text)
    except UsageError:
        return
    assert target.arch in chips.target_archs()


@given(st.text(max_size=40), st.integers(-1, 200))
def test_any_name_is_a_chip_or_unknown(name: str, sms: int) -> None:
    for found in (chips.chip(name), chips.identify(name, sms)):
        assert found is None or found.sms > 0


def test_issue_intervals_are_never_longer_than_the_peak_allows() -> None:
    flops = {"m16n8k16": 4096, "m16n8k8": 2048, "m16n8k32": 8192}
    compared = 0
    for (cc, _, path, entry, _), rate in all_rates().items():
        interval = chips.mma_interval(cc)
        if path != "mma.sync" or interval is None:
            continue
        shapes = [shape for shape, kind in interval.issue_clk if kind == entry]
        fastest = max((4 * flops[shape] / interval.issue_clk[shape, entry] for shape in shapes), default=None)
        if fastest is not None:
            assert fastest >= rate.flop_clk_sm * (1 - 1e-12), (cc, entry)
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("cc", [(8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("name", ["issue", "fma", "mufu", "alu", "pack"])
def test_the_pipes_a_bound_needs_are_known_for_every_default_target(cc: tuple[int, int], name: str) -> None:
    pipe = chips.pipe(cc, name)
    assert pipe is not None and pipe.rate > 0


def test_an_unknown_pipe_or_interval_is_none() -> None:
    assert chips.pipe((8, 8), "fma") is None
    assert chips.pipe((9, 0), "no such pipe") is None
    assert chips.mma_interval((7, 5)) is None
