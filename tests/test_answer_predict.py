"""Bounds from machine code: the pipe table, every GPU of the data file, and the impossible-time floor."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ablations
from harness import chips
from harness.answer.counts import Counts
from harness.answer.explain import prediction_sentence
from harness.answer.pipes import amount_of, pipe_names, pipe_uses
from harness.answer.predict import Prediction, floor_cycles, of_bound, predict
from harness.build.build import Job, build_all
from harness.build.cache import Cache
from harness.build.control import Control, ceiling_flop_clk_sm, control_of, issue_clk, mma_issue_clk
from harness.build.disassembler import Instruction, Listing
from harness.build.loops import always_run
from harness.build.sass import main_loop
from harness.cases import make_case
from harness.chips.data import all_chips
from harness.errors import ToolError
from harness.model import Build
from harness.pipeline.predicted import predicted_records
from harness.progress import Quiet
from harness.store import encode
from tests.test_sass import listing

NEWER = [one for one in all_chips() if one.cc >= (8, 0)]
# The vendor's figure is of another clock, or another type than these kernels have.
VENDOR_EXCEPTIONS = {
    "NVIDIA H100 NVL": "835 implies 1544 MHz, the boost clock is 1785",
    "NVIDIA L40S": "362 implies 2490 MHz, the boost clock is 2520",
}
HALF = ("sm_80", "sm_90a", "sm_100a")  # where the fp16 accumulator is compiled, too: its loop is the same
ARCHS = ("sm_80", "sm_86", "sm_87", "sm_89", "sm_90a", "sm_100a", "sm_120a")


def counts(loop: dict[str, int] | None = None, **more: object) -> Counts:
    """One CTA of 4 warps per SM on 108 SMs, 64 MMAs per warp and trip, a hundred trips."""
    base = Counts(
        study="demo",
        case="full",
        arch="sm_80",
        path="mma.sync",
        input="fp16",
        acc="f32",
        loop={"HMMA.16816.F32": 64} if loop is None else loop,
        whole=False,
        warps=4,
        ctas=108,
        trips=100,
        flops=108 * 100 * 4 * 64 * 4096,
        flops_per_mma=4096,
        mma_per_cta=100 * 4 * 64,
        gmem_bytes=0,
        unique_bytes=0,
        ctas_per_sm=1,
    )
    return replace(base, **more)


def predicted(made: Counts, name: str, **more: object) -> Prediction:
    product = chips.chip(name)
    assert product is not None
    found = predict(made, product, **more)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pipe", "opcode", "amount"),
    [
        ("shared_bytes", "LDSM.16.M88.4", 512),
        ("shared_bytes", "LDSM.16.MT88.2", 256),
        ("shared_bytes", "LDSM.16.M88", 128),
        ("shared_bytes", "LDS.128", 512),
        ("shared_bytes", "LDS.U.64", 128),
        ("shared_bytes", "LDGSTS.E.BYPASS.128", 0),
        ("shared_bytes", "SHFL.BFLY", 128),
        ("mufu", "MUFU.EX2", 32),
        ("pack", "F2FP.F16.F32.PACK_AB", 32),
        ("conversion", "F2FP.F16.F32.PACK_AB", 0),
        ("fma", "IMAD.MOV.U32", 32),
        ("alu", "FMNMX", 32),
        ("alu", "LEA.HI", 32),
        ("alu", "BAR.SYNC.DEFER_BLOCKING", 0),
    ],
)
def test_an_opcode_takes_what_its_longest_prefix_says(pipe: str, opcode: str, amount: float) -> None:
    assert amount_of(pipe, opcode) == amount


def test_a_bare_loop_is_bound_by_the_tensor_pipe() -> None:
    found = predicted(counts(), "NVIDIA A100-SXM4-80GB")
    assert found.flop_clk_sm == pytest.approx(2048) and found.binding == "tensor"
    assert found.tflop_s == pytest.approx(312, rel=0.001)
    assert found.second == "issue" and found.margin == pytest.approx(64 * 4 / 4 / 512)


def test_too_many_exponentials_bind_by_mufu() -> None:
    loop = {"HMMA.16816.F32": 64, "MUFU.EX2": 128}
    found = predicted(counts(loop), "NVIDIA A100-SXM4-80GB")
    assert found.binding == "mufu" and found.second == "tensor"
    assert found.flop_clk_sm == pytest.approx(2048 * 512 / 1024)  # 128 x 4 warps x 32 / 16 = 1024 clk


def test_sixteen_rows_a_warp_are_bound_by_shared_memory_on_hopper() -> None:
    # Two shared-memory clocks for 1.5 of MMA: what an earlier prototype ran into.
    loop = {"HMMA.16816.F32": 64, "LDSM.16.M88.4": 32}
    found = predicted(counts(loop), "NVIDIA H200")
    assert found.binding == "shared_bytes"
    assert found.flop_clk_sm == pytest.approx(8192 / 3 * 0.75)


def test_fewer_than_four_warps_leave_sub_partitions_idle() -> None:
    one = counts(warps=1, flops=108 * 100 * 64 * 4096, mma_per_cta=100 * 64, ctas_per_sm=16)
    assert predicted(one, "NVIDIA A100-SXM4-80GB").flop_clk_sm == pytest.approx(512)
    # As many CTAs as fit, where the grid has them.
    four = replace(one, ctas=4 * 108, flops=4 * one.flops)
    assert predicted(four, "NVIDIA A100-SXM4-80GB").flop_clk_sm == pytest.approx(2048)


def test_without_a_minimum_path_only_what_is_certain_counts() -> None:
    loop = {"HMMA.16816.F32": 64, "MUFU.EX2": 4096, "LDSM.16.M88.4": 8}
    found = predicted(counts(loop, whole=True), "NVIDIA A100-SXM4-80GB")
    assert found.whole_loop and {use.pipe for use in found.pipes} == {"tensor", "shared_bytes"}


def test_alu_and_pack_are_one_pipe_on_hopper_only() -> None:
    loop = {"F2FP.F16.F32.PACK_AB": 10, "FMNMX": 10}
    assert {u.pipe for u in pipe_uses(loop, (9, 0), warps=4)[0]} == {"issue", "alu+pack"}
    assert {u.pipe for u in pipe_uses(loop, (8, 0), warps=4)[0]} == {"issue", "alu", "pack"}


def test_an_unknown_rate_is_named_and_counted_nowhere() -> None:
    uses, unknown = pipe_uses({"MUFU.EX2": 1000}, (11, 0), warps=4)
    assert {u.pipe for u in uses} == {"issue"} and unknown == ("mufu on 11.0",)


def test_a_measured_rate_stands_above_the_table() -> None:
    loop = {"HMMA.16816.F32": 64, "MUFU.EX2": 128}
    assert predicted(counts(loop), "NVIDIA H200", rates={"mufu": 8.0}).flop_clk_sm == pytest.approx(512)
    assert predicted(counts(), "NVIDIA H200", tensor=2700.0).flop_clk_sm == pytest.approx(2700)


def test_the_highest_l2_rate_seen_is_no_bound() -> None:
    found = predicted(counts(gmem_bytes=10**12), "NVIDIA H200")
    assert found.binding == "tensor" and found.pipes[0].pipe == "l2_bytes" and found.pipes[0].soft


def test_a_measurement_over_the_bound_is_an_error_of_the_suite() -> None:
    found = predicted(counts(), "NVIDIA H200")
    assert of_bound(found.flop_clk_sm * 1.0049, found)[1] is False
    assert of_bound(found.flop_clk_sm * 1.0051, found) == (pytest.approx(1.0051), True)


def test_the_floor_is_the_bound_in_cycles() -> None:
    product = chips.chip("NVIDIA A100-SXM4-80GB")
    assert product is not None
    assert floor_cycles(counts(), product) == pytest.approx(0.995 * 100 * 512)
    assert floor_cycles(counts(path="tcgen05"), product) == 0.0


opcodes = st.sampled_from(
    [
        "HMMA.16816.F32",
        "MUFU.EX2",
        "FMUL",
        "LDSM.16.M88.4",
        "FMNMX",
        "F2FP.F16.F32.PACK_AB",
        "SHFL.BFLY",
        "BAR.SYNC",
        "XYZ",
    ]
)


@given(loop=st.dictionaries(opcodes, st.integers(1, 400), min_size=1), more=opcodes)
@settings(max_examples=100, deadline=None)
def test_more_work_never_raises_a_bound(loop: dict[str, int], more: str) -> None:
    before = predicted(counts(loop), "NVIDIA H200")
    after = predicted(counts({**loop, more: loop.get(more, 0) + 1}), "NVIDIA H200")
    assert after.flop_clk_sm <= before.flop_clk_sm * (1 + 1e-12)
    assert all(use.clk >= 0 for use in after.pipes) and len(pipe_names()) == len(set(pipe_names()))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Build]:
    """The register-only kernel, both accumulators, for every architecture, by (arch, accumulator)."""
    study = ablations.load()["instruction"]
    cache = Cache(tmp_path_factory.mktemp("cache"))
    jobs = []
    for arch in ARCHS:
        for acc in ("f32", "f16") if arch in HALF else ("f32",):
            levels = study.baseline.replace(acc_dtype=acc)
            jobs.append(
                Job(
                    study=study,
                    case=make_case(study, levels, study.configurations(levels)[0], set_name="full"),
                    arch=arch,
                )
            )
    built = build_all(jobs, cache, limits_of=chips.limits)
    made = {}
    for job, result in zip(jobs, built, strict=True):
        assert isinstance(result, Build), result
        made[job.arch, str(job.case.levels["acc_dtype"])] = result
    return made


@cache
def interval_of(cubin: str) -> int:
    return mma_issue_clk(Path(cubin))


def bound(bare: dict[tuple[str, str], Build], product: chips.Chip, acc: str) -> Prediction:
    loop = bare[product.arch, acc if product.arch in HALF else "f32"].inspection.loop_minimum
    number = sum(n for opcode, n in loop.items() if opcode.startswith("HMMA"))
    made = counts(
        dict(loop),
        arch=product.arch,
        acc=acc,
        warps=8,
        ctas=product.sms,
        flops=product.sms * 100 * 8 * number * 4096,
        mma_per_cta=100 * 8 * number,
    )
    found = predict(made, product)
    assert found is not None
    return found


@pytest.mark.parametrize("product", NEWER, ids=lambda product: product.name)
def test_every_chip_is_predicted_at_its_peak_and_its_vendor_agrees(
    bare: dict[tuple[str, str], Build], product: chips.Chip
) -> None:
    for acc in ("f32", "f16"):
        own = chips.peak(product, "mma.sync", "fp16", acc)
        if own is None:
            continue
        found = bound(bare, product, acc)
        assert found.binding == "tensor"
        assert found.tflop_s == pytest.approx(chips.tflops(own, product.sms, product.boost_hz))
    paths = (chips.peak(product, path, *product.vendor_mode) for path in ("mma.sync", "wgmma", "tcgen05"))
    best = max(rate.flop_clk_sm for rate in paths if rate)
    if product.name in VENDOR_EXCEPTIONS:
        assert chips.tflops(best, product.sms, product.boost_hz) != pytest.approx(
            product.vendor_tflops, rel=0.01
        )
    elif product.vendor_tflops is not None:
        assert chips.tflops(best, product.sms, product.boost_hz) == pytest.approx(
            product.vendor_tflops, rel=0.01
        )
        mma = chips.peak(product, "mma.sync", *product.vendor_mode)
        if product.vendor_mode == ("fp16", "f32") and mma and mma.flop_clk_sm == best:
            assert bound(bare, product, "f32").tflop_s == pytest.approx(product.vendor_tflops, rel=0.01)


def test_fifty_percent_of_a_4090_is_all_there_is(bare: dict[tuple[str, str], Build]) -> None:
    product = chips.chip("NVIDIA GeForce RTX 4090")
    assert product is not None
    single, half = bound(bare, product, "f32"), bound(bare, product, "f16")
    assert round(single.tflop_s) == 165 and round(half.tflop_s) == 330
    assert single.percent(single.chip) == pytest.approx(50)
    text = prediction_sentence(single)
    assert "165 TFLOP/s" in text and "50 % of 330" in text and "of which peak" in text


def test_an_a100_gives_312_with_either_accumulator(bare: dict[tuple[str, str], Build]) -> None:
    product = chips.chip("NVIDIA A100-SXM4-80GB")
    assert product is not None
    assert {round(bound(bare, product, acc).tflop_s) for acc in ("f32", "f16")} == {312}
    assert "the other accumulator has the same peak" in prediction_sentence(bound(bare, product, "f32"))


@pytest.mark.parametrize(("arch", "clk"), [("sm_80", 8), ("sm_90a", 6), ("sm_100a", 8)])
@pytest.mark.parametrize("acc", ["f32", "f16"])
def test_the_issue_interval_is_in_the_control_bits(
    bare: dict[tuple[str, str], Build], arch: str, clk: int, acc: str
) -> None:
    assert interval_of(bare[arch, acc].cubin_path) == clk
    known = chips.mma_interval(chips.parse_target(arch).cc)
    assert known is not None and known.issue_clk["m16n8k16", "fp16"] == clk


@pytest.mark.parametrize("arch", ARCHS)
def test_the_interval_never_promises_less_than_the_table(
    bare: dict[tuple[str, str], Build], arch: str
) -> None:
    # On 12.0 ptxas 13.0 wrote 16, 13.5 writes 11: a lower bound of the interval, the pipe pushes back.
    clk = interval_of(bare[arch, "f32"].cubin_path)
    cc = chips.parse_target(arch).cc
    rates = [chips.peak(one, "mma.sync", "fp16", "f32") for one in NEWER if one.cc == cc]
    best = max((rate.flop_clk_sm for rate in rates if rate), default=0.0)
    assert ceiling_flop_clk_sm(clk) >= best * 0.999
    assert 6 <= clk <= 16


def test_control_bits_are_where_they_are() -> None:
    bits = 5 | 1 << 4 | 3 << 5 | 7 << 8 | 0b100001 << 11 | 9 << 17
    code = bytes(8) + (bits << 41).to_bytes(8, "little")
    assert control_of(code) == Control(5, True, 3, 7, 0b100001, 9)


def test_an_interval_counts_nops_and_only_mmas_in_a_row() -> None:
    rows = (
        "MOV R1",
        "HMMA.16816.F32 R0",
        "NOP",
        "HMMA.16816.F32 R4",
        "IADD3 R1",
        "HMMA.16816.F32 R8",
        "BRA 0x10",
    )
    made = listing(*rows)
    stalls = [1, 15, 1, 15, 2, 9, 5]
    assert issue_clk(made, [Control(s, False, 7, 7, 0, 0) for s in stalls]) == 16
    with pytest.raises(ToolError, match="no two tensor instructions in a row"):
        issue_clk(listing("HMMA.16816.F32 R0", "BRA 0x0"), [Control(6, False, 7, 7, 0, 0)] * 2)


def test_what_a_branch_may_skip_is_not_in_the_minimum() -> None:
    loop = main_loop(
        listing(
            "MOV R1",
            "HMMA.16816.F32 R0",  # 1: head
            "@P0 BRA 0x50",
            "FMUL R1",
            "FMUL R2",
            "MUFU.EX2 R3",  # 5: both ways meet
            "@P1 FADD R4",
            "@P2 BRA 0x10",
            "EXIT",
        )
    )
    assert loop.counts["FMUL"] == 2 and loop.counts["FADD"] == 1
    assert loop.minimum == {"HMMA.16816.F32": 1, "MUFU.EX2": 1}


def test_a_loop_without_branches_runs_all_of_it() -> None:
    made: Listing = listing("HMMA.16816.F32 R0", "FMUL R1", "@P0 BRA 0x0", "EXIT")
    loop = main_loop(made)
    assert loop.minimum == {"HMMA.16816.F32": 1, "FMUL": 1}
    assert isinstance(loop.always[0], Instruction)


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=6))
@settings(max_examples=200, deadline=None)
def test_a_walk_round_any_loop_passes_what_always_runs(branches: list[tuple[int, int]]) -> None:
    targets = {**dict(branches), 19: 0}
    always = {i for start, end in always_run(0, 19, targets, set()) for i in range(start, end)}
    for taken in range(4):  # a few walks: never, always, or now and then take a branch
        at, seen = 0, set()
        for step in range(200):
            seen.add(at)
            jump = at in targets and (at == 19 or taken == 1 or (taken > 1 and step % taken == 0))
            at = targets[at] if jump else at + 1
            if at == 0:
                break
        if at == 0:
            assert always <= seen


def test_a_predicted_record_is_valid_json_with_no_samples(tmp_path: Path) -> None:
    study, product = ablations.load()["instruction"], chips.chip("NVIDIA GeForce RTX 4090")
    assert product is not None
    case = make_case(study, study.baseline, study.configurations(study.baseline)[0], set_name="full")
    none = make_case(
        study, study.baseline.replace(dtype="bf16", acc_dtype="f16"), case.configuration, set_name="full"
    )
    found = predicted_records(study, [case, none], product, Cache(tmp_path), Quiet(), simulate=False)
    (record, prediction), (skipped, nothing) = found
    assert prediction is not None and nothing is None and skipped["status"] == "skipped"
    assert (
        record["type"] == "predicted"
        and record["samples"] is None
        and record["target"]["gpu"] == product.name
    )
    assert record["predicted"]["flop_clk_sm"] == pytest.approx(512)
    assert encode({"kind": "record", **record})


def test_a_loop_that_fills_another_pipe_is_bound_by_it_in_its_unit() -> None:
    # 64 exponentials a trip, 16 warps: results are what is counted.
    results = 108 * 100 * 16 * 64 * 32
    made = counts({"MUFU.EX2": 64, "BRA": 1}, path="mufu", input="fp32", warps=16, flops=results)
    found = predicted(made, "NVIDIA A100-SXM4-80GB")
    assert (
        found.flop_clk_sm == pytest.approx(16) and found.binding == "mufu" and found.unit == "thread results"
    )
    assert prediction_sentence(found) == "The mufu pipe gives at most 16 thread results per clock and SM."
    assert predicted(made, "NVIDIA A100-SXM4-80GB", rates={"mufu": 15.9}).flop_clk_sm == pytest.approx(15.9)
