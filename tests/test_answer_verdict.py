"""The decision rule on evidence, and verdicts from whole record files, without a GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.answer import Amount, Evidence, Exposed, Gain, Verdict, as_json, decide, verdicts
from harness.chips import chip
from harness.model import Study, Switch
from tests.answer_files import FLOPS, bare, file_of, lattice_records, study, timed
from tests.record_files import H200, counters

WGMMA_THIRD = 8192 / 3
PARTS = ("copy", "read", "exp")


def amount(value: float, half: float = 0.01, *, clear: bool | None = None) -> Amount:
    low, high = value - half, value + half
    return Amount(value=value, low=low, high=high, clear=low * high > 0 if clear is None else clear)


def exposed(**parts: float) -> tuple[Exposed, ...]:
    return tuple(Exposed(parts=(name,), fraction=amount(value)) for name, value in parts.items())


def verdict_of(
    records: list[dict[str, Any]], of: Study, *more: Any, gpu: dict[str, Any] | None = None
) -> Verdict:
    (found,) = verdicts([file_of(records, gpu or H200), *more], {of.name: of})
    return found


def test_at_ceiling_needs_the_lower_end() -> None:
    assert decide(Evidence(ratio=Amount(value=0.95, low=0.92, high=0.97))).word == "at-ceiling"
    assert decide(Evidence(ratio=Amount(value=0.95, low=0.9199, high=0.97))).word == "unclear"


def test_at_ceiling_comes_before_parts() -> None:
    found = decide(Evidence(ratio=amount(0.96), exposed=exposed(copy=0.2)))
    assert found.word == "at-ceiling" and not found.power_limited


def test_a_low_clock_at_the_ceiling_is_the_power_limit() -> None:
    assert decide(Evidence(ratio=amount(0.96), clock=0.9699)).power_limited
    assert not decide(Evidence(ratio=amount(0.96), clock=0.97)).power_limited


def test_parts_are_named_most_first_and_ties_together() -> None:
    ties = frozenset({frozenset(("copy", "read"))})
    found = decide(
        Evidence(ratio=amount(0.5), exposed=exposed(copy=0.1, exp=0.3, read=0.11, x=0.04), ties=ties)
    )
    assert found.word == "part-bound" and found.named == (("exp",), ("copy", "read"))


def test_a_part_under_five_percent_or_within_noise_is_never_named() -> None:
    low_floor = amount(0.6)
    small = Evidence(ratio=amount(0.5), floor_ratio=low_floor, exposed=exposed(copy=0.0499))
    assert decide(small).word == "latency-bound"
    noisy = Exposed(parts=("copy",), fraction=amount(0.2, clear=False))
    found = decide(Evidence(ratio=amount(0.5), floor_ratio=low_floor, exposed=(noisy,)))
    assert found.word == "unclear" and found.named == () and found.doubtful == ("copy",)


def test_a_gain_that_may_be_a_spill_is_not_booked() -> None:
    row = Exposed(parts=("copy",), fraction=amount(0.2), booked=False)
    assert decide(Evidence(ratio=amount(0.5), exposed=(row,))).word == "unclear"


def test_latency_needs_a_gain_or_a_low_floor() -> None:
    more = Gain(what="chains 2", case="chains=2", fraction=amount(0.2))
    assert decide(Evidence(ratio=amount(0.5), floor_ratio=amount(0.95))).word == "unclear"
    assert (
        decide(Evidence(ratio=amount(0.5), floor_ratio=amount(0.95), gains=(more,))).word == "latency-bound"
    )
    assert decide(Evidence(ratio=amount(0.5), floor_ratio=amount(0.8))).low_floor
    little = Gain(what="chains 2", case="chains=2", fraction=amount(0.04))
    assert decide(Evidence(ratio=amount(0.5), floor_ratio=amount(0.95), gains=(little,))).word == "unclear"


def test_latency_is_not_claimed_while_a_part_is_unmeasured() -> None:
    assert decide(Evidence(ratio=amount(0.5), floor_ratio=amount(0.5), unmeasured=("exp",))).word == "unclear"


def test_a_group_is_named_only_where_it_clearly_costs_more_than_its_part() -> None:
    def named(joint: float, *ties: str) -> tuple[tuple[str, ...], ...]:
        rows = (*exposed(copy=0.1), Exposed(parts=("copy", "barrier"), fraction=amount(joint)))
        tied = frozenset({frozenset(("copy", "copy + barrier"))}) if ties else frozenset()
        return decide(Evidence(ratio=amount(0.5), exposed=rows, ties=tied)).named

    assert named(0.2) == (("copy + barrier",),)
    assert named(0.12) == (("copy",),)
    assert named(0.2, "tied") == (("copy",),)


fractions = st.floats(-0.3, 0.6)
names = st.sampled_from(["a", "b", "c", "d"])


@given(
    rows=st.dictionaries(names, st.tuples(fractions, st.floats(0, 0.2), st.booleans()), max_size=4),
    ratio=st.floats(0.1, 1.0),
    seed=st.randoms(),
)
@settings(max_examples=200, deadline=None)
def test_order_never_matters_and_noise_is_never_named(
    rows: dict[str, tuple[float, float, bool]], ratio: float, seed: Any
) -> None:
    made = [
        Exposed(parts=(name,), fraction=amount(value, half), booked=booked)
        for name, (value, half, booked) in rows.items()
    ]
    first = decide(Evidence(ratio=amount(ratio), floor_ratio=amount(ratio), exposed=tuple(made)))
    seed.shuffle(made)
    assert decide(Evidence(ratio=amount(ratio), floor_ratio=amount(ratio), exposed=tuple(made))) == first
    by_name = {row.name: row for row in made}
    for name in (name for group in first.named for name in group):
        fraction = by_name[name].fraction
        assert fraction.value >= 0.05 and fraction.low > 0 and by_name[name].booked


@pytest.mark.parametrize("severity", np.random.default_rng(5).uniform(0.0, 0.3, 12).round(3))
@pytest.mark.parametrize("part", ["copy", "read"])
def test_a_handicapped_part_crosses_over_where_the_rule_says(part: str, severity: float) -> None:
    """A kernel at 90 % whose one part is slowed down: named exactly when it costs 5 % of full or more."""
    ideal = 4096 / WGMMA_THIRD
    floor = ideal / 0.9

    def cost(stripped: frozenset[str]) -> float:
        return floor * (1 + (severity if part not in stripped else 0.0))

    found = verdict_of(lattice_records(("copy", "read"), cost, noise=0.0005), study("copy", "read"))
    fraction = severity / (1 + severity)
    if abs(fraction - 0.05) < 0.002:
        pytest.skip("on the edge, within noise")
    if fraction > 0.05:
        assert found.word == "part-bound" and found.decision.named == ((part,),)
    else:
        assert found.word == "latency-bound" and found.decision.low_floor


@pytest.mark.parametrize("ratio", [0.7, 0.9, 0.93, 0.99])
def test_a_bare_kernel_is_at_the_ceiling_or_latency_bound(ratio: float) -> None:
    records = timed("full", 4096 / WGMMA_THIRD / ratio, {"chains": 1}, noise=0.0005)
    found = verdict_of(records, study())
    assert found.word == ("at-ceiling" if ratio > 0.92 else "latency-bound")


def test_more_chains_that_help_are_the_reason() -> None:
    records = timed("full", 4.0, {"chains": 1}) + timed("chains=2", 3.0, {"chains": 2})
    found = verdict_of(records, study())
    assert found.word == "latency-bound" and found.decision.gains[0].what == "chains 2"
    assert "more chains 2 saves 25 %" in found.sentence


def test_a_kernel_without_wgmma_is_held_against_its_own_path() -> None:
    records = timed("full", 4096 / WGMMA_THIRD / 0.985, {"chains": 1}, noise=0.0005)
    text = verdict_of(records, study()).sentence
    assert text.startswith("at ceiling: 98 % of the mma.sync fp32-accumulate peak of this GPU")
    assert "66 % of its wgmma peak, which no mma.sync kernel can reach" in text and "lost" not in text


def test_the_measured_ceiling_of_that_gpu_comes_before_the_table() -> None:
    path = bare(
        (Switch(name="w", levels=(1, 2), baseline=1, label="w", meaning="w"),), name="bare", is_ceiling=True
    )
    ceiling = file_of(timed("w=2", 1.7, {"w": 2}, study="bare", full="w=2"), run="b" * 32)
    other_gpu = file_of(
        timed("w=2", 1.2, {"w": 2}, study="bare", full="w=2"), {**H200, "name": "NVIDIA A100", "sms": 108}
    )
    demo = study()
    found = verdicts(
        [file_of(timed("full", 1.75, {"chains": 1})), ceiling, other_gpu], {"demo": demo, "bare": path}
    )
    assert found[0].group.study == "demo" and found[0].ceiling is not None
    assert found[0].ceiling.case == "bare/w=2" and found[0].ceiling.value == pytest.approx(
        4096 / 1.7, rel=0.01
    )
    assert found[0].word == "at-ceiling"


def test_seconds_bound_by_power_are_said() -> None:
    at_top = timed("full", 1.52, {"chains": 1}, noise=0.0005)
    for made in at_top:
        made["samples"]["sm_hz"] = [1.5e9] * len(made["samples"]["sm_hz"])
    light = timed("chains=2", 40.0, {"chains": 2})
    found = verdict_of([*at_top, *light], study())
    assert found.decision.power_limited and "power-limited" in found.sentence


def test_records_in_any_order_give_the_same_verdict() -> None:
    records = lattice_records(PARTS, lambda s: 2 + 0.3 * ("exp" not in s) + 0.2 * (3 - len(s)))
    first = as_json(verdict_of(records, study(*PARTS)))
    assert first["verdict"] == "part-bound"
    assert as_json(verdict_of(records[::-1], study(*PARTS))) == first


def test_a_newer_run_replaces_an_older_one() -> None:
    old = file_of(timed("full", 4.0, {"chains": 1}))
    new = file_of(
        timed("full", 1.55, {"chains": 1}, noise=0.0005), run="b" * 32, started="2026-12-01T00:00:00Z"
    )
    (found,) = verdicts([new, old], {"demo": study()})
    assert found.group.run == "b" * 32 and found.word == "at-ceiling"


# Field case C01: one number, two peaks. (GPU, accumulator, TFLOP/s, own %, other accumulator's %)
C01 = [
    ("NVIDIA GeForce RTX 4090", "f32", 160.0, 96.9, 48.4, "at-ceiling"),
    ("NVIDIA GeForce RTX 3090", "f32", 66.0, 93.0, 46.5, "at-ceiling"),
    ("NVIDIA GeForce RTX 3090", "f16", 66.0, 46.5, 93.0, "latency-bound"),
    ("NVIDIA A100-SXM4-40GB", "f32", 160.0, 51.3, 51.3, "latency-bound"),
]


@pytest.mark.parametrize(("name", "acc", "tflops", "own", "other", "word"), C01)
def test_fifty_percent_is_asked_of_which_peak(
    name: str, acc: str, tflops: float, own: float, other: float, word: str
) -> None:
    product = chip(name)
    assert product is not None
    rate = tflops * 1e12 / product.sms / product.boost_hz
    gpu = {**H200, "name": name, "sms": product.sms, "cc": list(product.cc)}
    records = timed("full", 4096 / rate, {"chains": 1}, gpu=name, noise=0.0005, drift=0.0)
    for made in records:
        made["work"]["acc"] = acc
    found = verdict_of(records, study(), gpu=gpu)
    assert found.word == word
    assert found.shares.percent(found.shares.own) == pytest.approx(own, abs=0.5)
    assert found.shares.percent(found.shares.other) == pytest.approx(other, abs=0.5)
    accumulate = {"f32": "fp32-accumulate", "f16": "fp16-accumulate"}[acc]
    assert f"{own:.0f} % of the mma.sync {accumulate} peak" in found.sentence
    if "GeForce" in name and acc == "f32":
        assert f"near {other:.0f} % is expected" in found.sentence
        assert f"{other:.0f} % of its fp16-accumulate peak" in found.sentence


# Field case C03: TFLOP/s of five rounds.
C03 = {
    "full": [99, 100, 101, 103, 97],
    "gmem=stripped": [100, 101, 102, 104, 98],
    "softmax=stripped": [128, 130, 131, 129, 130],
}


def c03(*cases: str) -> Verdict:
    records = []
    for case in cases:
        levels = {n: "stripped" if case == f"{n}=stripped" else "kept" for n in ("gmem", "softmax")}
        (made,) = timed(case, 1.0, {**levels, "chains": 1}, rounds=5)
        flops = made["work"]["flops"]
        made["samples"]["seconds"] = [flops / (t * 1e12) for t in C03[case]]
        made["samples"]["busy_cycles"] = [None] * 5
        made["samples"]["flop_clk_sm"] = [t * 1e12 / 132 / 1.8e9 for t in C03[case]]
        records.append(made)
    return verdict_of(records, study("gmem", "softmax"))


@pytest.mark.parametrize(
    "order", [("full", "gmem=stripped", "softmax=stripped"), ("softmax=stripped", "gmem=stripped", "full")]
)
def test_softmax_is_the_bottleneck_and_the_copy_is_noise(order: tuple[str, ...]) -> None:
    found = c03(*order)
    assert found.word == "part-bound" and found.decision.named == (("softmax",),)
    copy = next(row for row in found.evidence.exposed if row.name == "gmem")
    assert copy.fraction.value == pytest.approx(0.01, abs=0.002) and not copy.fraction.clear
    assert "gmem 1.0 %" in found.evidence_text and "(within noise)" in found.evidence_text


@pytest.mark.parametrize("order", [("full", "gmem=stripped"), ("gmem=stripped", "full")])
def test_none_of_the_removed_parts_matters(order: tuple[str, ...]) -> None:
    found = c03(*order)
    assert found.word == "unclear" and found.decision.named == ()
    assert "none of the removed parts matters here" in found.sentence
    assert "not measured: softmax" in found.sentence


@pytest.mark.parametrize("seed", range(6))
def test_pure_noise_names_no_part(seed: int) -> None:
    """Sets that all cost the same, but for noisy rounds and builds that differ by some percent."""
    generator = np.random.default_rng(seed)
    records = []
    for made in lattice_records(PARTS, lambda s: 3.0, noise=0.02):
        levels, name = made["levels"], made["case"]
        jitter = tuple(1 + 0.03 * generator.standard_normal(3))
        records += timed(name, 3.0, levels, noise=0.02, builds=jitter)
    found = verdict_of(records, study(*PARTS))
    assert found.decision.named == () and found.word in ("unclear", "latency-bound")


def test_a_kernel_with_nothing_to_strip_is_told_so() -> None:
    records = timed("full", 6.0, {"chains": 1}) + timed("chains=2", 3.2, {"chains": 2})
    text = verdict_of(records, study()).sentence
    assert text.startswith("latency-bound (more chains 2 saves 47 %; the study strips nothing from it,")


def test_a_single_case_run_again_does_not_take_the_table_away() -> None:
    whole = file_of(lattice_records(PARTS, lambda s: 2 + 0.3 * (3 - len(s))))
    again = lattice_records(PARTS, lambda s: 2 + 0.3 * (3 - len(s)))[:2]
    later = {"run": "b" * 32, "started": "2026-12-01T00:00:00Z"}
    (found,) = verdicts([whole, file_of(again, **later)], {"demo": study(*PARTS)})
    assert found.group.run == "a" * 32
    for made in again:
        made["source"] = {"digest": "f" * 64}
    (found,) = verdicts([whole, file_of(again, **later)], {"demo": study(*PARTS)})
    assert found.group.run == "b" * 32  # another kernel: the old table is not of it


def test_a_partial_run_is_told() -> None:
    file = replace(file_of(timed("full", 4.0, {"chains": 1})), partial="one.jsonl: partial, 1 of 9 records")
    (found,) = verdicts([file], {"demo": study()})
    assert found.evidence_text.endswith("The run is not whole (one.jsonl: partial, 1 of 9 records).")


def test_a_study_of_ceilings_is_not_its_own_ceiling() -> None:
    path = bare(
        (Switch(name="w", levels=(1, 2), baseline=1, label="w", meaning="w"),), name="bare", is_ceiling=True
    )
    records = timed("full", 4096 / WGMMA_THIRD / 0.7, {"w": 1}, study="bare")
    found = verdict_of(records, path)
    assert found.word == "latency-bound" and found.ceiling is not None and found.ceiling.case is None


def test_predictions_are_no_measurements() -> None:
    measured = timed("full", 4.0, {"chains": 1})
    predicted = [{**r, "type": "predicted"} for r in timed("full", 1.5, {"chains": 1})]
    assert verdict_of([*measured, *predicted], study()).word == "latency-bound"
    assert verdicts([file_of(predicted)], {"demo": study()}) == ()


def test_a_measured_pipe_rate_reaches_the_bound_of_other_studies() -> None:
    loop = {"HMMA.16816.F32": 8, "MUFU.EX2": 64}
    work = {
        "flops": FLOPS,
        "flops_per_mma": 4096,
        "mma_per_cta": 1000,
        "iterations": 125,
        "mma_path": "mma.sync",
    }
    work |= {"input": "fp16", "acc": "f32"}
    launch = {"grid": [132, 1, 1], "block": 128, "shared_bytes": 0}
    (full,) = timed("full", 40.0, {"chains": 1}, work=work, launch=launch)
    full["build"] = {**full["build"], "loop": loop, "loop_minimum": loop}
    exp = timed(
        "exp", 4096 / 12.0, {"w": 1}, study="exps", full="exp", work={"flops": FLOPS, "mma_path": "mufu"}
    )
    one = Switch(name="w", levels=(1,), baseline=1, label="w", meaning="w")
    both = {"demo": study(), "exps": bare((one,), name="exps")}
    found = verdicts([file_of([full]), file_of(exp, run="b" * 32)], both)
    assert found[0].prediction is not None and found[0].prediction.binding == "mufu"
    # 64 exponentials of 32 threads in 4 warps at 12 per clock, for 8 MMAs a CTA
    assert found[0].prediction.flop_clk_sm == pytest.approx(8 * 4096 / (64 * 32 * 4 / 12.0), rel=0.03)
    assert "set by the mufu pipe at the rates measured here)" in found[0].evidence_text
    assert "measured here" not in verdicts([file_of([full])], both)[0].evidence_text
    assert (
        found[1].sentence.startswith("latency-bound")
        and "75 % of the mufu pipe (16 per clock" in found[1].sentence
    )


def counted(
    share: float, *, work: dict[str, Any] | None = None, gpu: dict[str, Any] | None = None, **values: float
) -> str:
    """The evidence on a full case at this share of its path's peak, with these counters."""
    records = timed("full", 4096 / WGMMA_THIRD / share, {"chains": 1}, noise=0.0, drift=0.0)
    for made in records:
        made["counters"] = counters("ncu 1", **values)
        made["work"].update(work or {})
    return verdict_of(records, study(), gpu=gpu).evidence_text


@pytest.mark.parametrize(
    ("read", "side"), [(53.0, ""), (51.1, ""), (54.9, ""), (50.9, "above"), (55.1, "below")]
)
def test_a_counter_that_contradicts_the_rate_is_told(read: float, side: str) -> None:
    text = counted(0.53, tensor_active_percent=read)
    assert ("That contradicts its rate" in text) == bool(side)
    if side:
        assert (
            f"1447 FLOP/clk/SM are 53.0 % of the mma.sync fp16 f32-acc peak, 2.1 points {side} the "
            f"counter's {read} %; one of the two deserves distrust." in text
        )


def test_the_pipe_of_another_path_is_held_against_no_peak() -> None:
    assert "contradicts" in counted(0.53, tensor_active_percent=10.0)
    assert "contradicts" not in counted(0.53, tensor_active_percent=10.0, work={"mma_path": "wgmma"})


def test_of_a_loop_that_fills_another_pipe_the_tensor_pipe_is_not_told() -> None:
    assert "ncu" in counted(0.53, tensor_active_percent=0.0)
    assert "ncu" not in counted(0.53, tensor_active_percent=0.0, work={"mma_path": "mufu"})


def test_the_counter_of_a_chip_with_two_rates_is_held_against_neither() -> None:
    half_rate = {**H200, "name": "NVIDIA GeForce RTX 4090", "sms": 128, "cc": [8, 9]}
    assert "contradicts" not in counted(0.1, gpu=half_rate, tensor_active_percent=50.0)
    one_rate = {**H200, "name": "NVIDIA A100-SXM4-40GB", "sms": 108, "cc": [8, 0]}
    assert "contradicts" in counted(0.1, gpu=one_rate, tensor_active_percent=50.0)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"stalled_wait": 1.0}, "ncu 1: top stall wait, 1.00 clk per instruction issued."),
        ({"tensor_active_percent": 53.0}, "ncu 1: tensor pipe active 53 % of the time."),
        (
            {"tensor_active_percent": 53.0, "stalled_math_pipe_throttle": 2.0, "stalled_wait": 1.0},
            "of the time; top stall math pipe throttle, 2.00 clk per instruction issued.",
        ),
        ({"tensor_active_percent": 53.0, "stalled_wait": 0.0}, "ncu 1: tensor pipe active 53 %"),
    ],
)
def test_counters_are_told_as_far_as_they_were_read(values: dict[str, float], said: str) -> None:
    text = counted(0.53, **values)
    assert said in text
    assert text.count("top stall") == said.count("top stall")


@pytest.mark.parametrize("values", [{}, {"l2_hit_percent": 90.0}])
def test_counters_that_say_nothing_of_the_pipe_make_no_sentence(values: dict[str, float]) -> None:
    assert "ncu" not in counted(0.53, **values)


def test_counters_may_be_of_another_text_of_full_and_are_held_against_its_own_rate() -> None:
    records = timed("full", 3.0, {"chains": 1}, builds=(1.0, 2.0), noise=0.0, drift=0.0)
    records[0]["counters"] = None
    records[1]["counters"] = counters("ncu 1", tensor_active_percent=25.0)
    text = verdict_of(records, study()).evidence_text
    assert "tensor pipe active 25 %" in text and "contradicts" not in text
    others = timed("chains=2", 3.0, {"chains": 2})
    others[0]["counters"] = records[1].pop("counters")
    assert "ncu" not in verdict_of(records + others, study()).evidence_text
