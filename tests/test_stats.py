"""Words on samples: found when there, not found when not, and the order of rows never matters."""

from __future__ import annotations

import dataclasses
import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import bootstrap

from harness.stats import (
    Builds,
    Effect,
    Interval,
    Pair,
    Rule,
    Series,
    effects,
    holm,
    interval,
    intervals,
    is_bistable,
    median,
    relative_widths,
    series,
    summarise,
    unpaired,
)
from harness.stats.exact import drawn_means, drawn_medians

FULL = [99.0, 100.0, 101.0, 103.0, 97.0]
NO_GMEM = [100.0, 101.0, 102.0, 104.0, 98.0]
NO_SOFTMAX = [128.0, 130.0, 131.0, 129.0, 130.0]


def one(cycles: object, seconds: object = None, *, start: int = 0) -> Series:
    values = tuple(float(v) for v in np.asarray(cycles, dtype=float))
    others = values if seconds is None else tuple(float(v) for v in np.asarray(seconds, dtype=float))
    return Series(rounds=tuple(range(start, start + len(values))), cycles=values, seconds=others)


def times(tflops: list[float]) -> Series:
    return one([1e3 / v for v in tflops])


def noisy(rng: np.random.Generator, n: int, noise: float, scale: float = 1.0) -> Series:
    return one(scale * np.exp(rng.normal(0, noise, n)), scale * np.exp(rng.normal(0, noise, n)))


def effect(case: Builds, full: Builds, rule: Rule | None = None, *, same_source: bool = False) -> Effect:
    return effects([Pair(name="x", case=case, full=full, same_source=same_source)], rule)[0]


# ------------------------------------------------------------ C03


def test_c03_softmax_is_clear_and_the_copy_is_within_noise() -> None:
    full = {0: times(FULL)}
    pairs = [
        Pair(name="no_gmem", case={0: times(NO_GMEM)}, full=full),
        Pair(name="no_softmax", case={0: times(NO_SOFTMAX)}, full=full),
    ]
    for table in (pairs, pairs[::-1]):
        found = {e.name: e for e in effects(table)}
        assert found["no_softmax"].word == "faster"
        assert found["no_gmem"].word == "unclear"
        assert "within noise" in found["no_gmem"].note
        assert found["no_gmem"].ratio == pytest.approx(1 / 1.01, rel=1e-3)
    assert effects(pairs[:1])[0].word == "unclear"


def test_c03_holds_for_samples_without_rounds() -> None:
    _, gmem, p = unpaired(NO_GMEM, FULL)
    assert not gmem.excludes(1.0)
    assert p > 0.05
    ratio, softmax, p = unpaired(NO_SOFTMAX, FULL)
    assert ratio == pytest.approx(1.30)
    assert softmax.low > 1.2
    assert p < 0.01


@given(st.permutations(range(5)), st.integers(0, 2**31))
@settings(max_examples=20, deadline=None)
def test_the_order_of_the_rows_changes_no_effect(order: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    full = {p: noisy(rng, 10, 0.002) for p in range(2)}
    pairs = [
        Pair(name=str(i), case={p: noisy(rng, 10 + i % 2, 0.002, 1 + 0.004 * i) for p in range(2)}, full=full)
        for i in range(5)
    ]
    straight = {e.name: e for e in effects(pairs, Rule(resamples=299))}
    shuffled = {e.name: e for e in effects([pairs[i] for i in order], Rule(resamples=299))}
    assert {n: e.word for n, e in straight.items()} == {n: e.word for n, e in shuffled.items()}
    for name, found in straight.items():
        assert found.total == shuffled[name].total


# ------------------------------------------------------------ honest: A/A and an injected slowdown


def rounds_for(noise: float) -> int:
    """As many rounds as the engine's rule takes: an effect's interval of 0.5 %, at least 10."""
    return max(10, math.ceil((3.92 * noise * math.sqrt(2) * 1.25 / 0.005) ** 2))


@pytest.mark.parametrize("noise", [0.0005, 0.001, 0.003])
@pytest.mark.parametrize("drift", [0.0, 0.01])
def test_a_against_a_is_same_and_an_injected_percent_is_found(noise: float, drift: float) -> None:
    rng = np.random.default_rng(int(noise * 1e5) + int(drift * 1e3))
    n = rounds_for(noise)
    words: dict[str, list[str]] = {"a/a": [], "slow": []}
    for _ in range(6):
        # The clock drifts and hits the seconds of all alike; cycles do not feel it.
        clock = 1 + drift * np.linspace(0, 1, n)

        def sample(scale: float, clock: np.ndarray = clock) -> Series:
            cycles = scale * np.exp(rng.normal(0, noise, n))
            return one(cycles, cycles * clock * np.exp(rng.normal(0, noise / 2, n)))

        full = {0: sample(1.0)}
        pairs = [
            Pair(name="a/a", case={0: sample(1.0)}, full={0: sample(1.0)}, same_source=True)
            for _ in range(20)
        ]
        pairs += [Pair(name="slow", case={0: sample(1.01)}, full=full, same_source=True) for _ in range(10)]
        for found in effects(pairs):
            words[found.name].append(found.word)
    same = words["a/a"].count("same") / len(words["a/a"])
    claimed = sum(word in ("faster", "slower") for word in words["a/a"]) / len(words["a/a"])
    assert same >= 0.8
    assert claimed <= 0.05
    assert words["slow"].count("slower") / len(words["slow"]) >= 0.9
    assert "faster" not in words["slow"]


def test_a_long_table_can_still_claim_and_is_fast() -> None:
    rng = np.random.default_rng(3)
    full = {p: noisy(rng, 60, 0.001) for p in range(3)}
    pairs = [
        Pair(name=str(i), case={p: noisy(rng, 60, 0.001, 1.02) for p in range(3)}, full=full)
        for i in range(60)
    ]
    start = time.process_time()
    found = effects(pairs)
    assert time.process_time() - start < 6  # some 1.5 s on an idle core
    assert {e.word for e in found} == {"slower"}


def test_holm_takes_words_away_as_the_table_grows() -> None:
    # Five of twenty rounds on the other side: some 3 % by chance.
    ones = {0: one(np.ones(20))}
    weak = Pair(name="weak", case={0: one([1.012] * 15 + [0.99] * 5)}, full=ones)
    null = {0: one([1.003, 0.997] * 10)}
    others = [Pair(name=str(i), case=null, full=ones) for i in range(60)]
    alone = effects([weak])[0]
    assert alone.word == "slower"
    among = effects([weak, *others])[0]
    assert among.p_holm > alone.p_holm
    assert among.word == "unclear"


# ------------------------------------------------------------ power, code generation, unknown cycles


def test_where_seconds_disagree_the_word_comes_from_cycles_and_says_power() -> None:
    rng = np.random.default_rng(1)
    noise = np.exp(rng.normal(0, 0.001, (4, 12)))
    faster = effect({0: one(0.9 * noise[0], noise[1])}, {0: one(noise[2], noise[3])})
    assert (faster.word, faster.seconds_word, faster.note.split(";")[0]) == (
        "faster",
        "same",
        "seconds disagree: power",
    )
    opposite = effect({0: one(0.9 * noise[0], 1.1 * noise[1])}, {0: one(noise[2], noise[3])})
    assert "seconds disagree: power" in opposite.note
    same = effect({0: one(noise[0], 1.1 * noise[1])}, {0: one(noise[2], noise[3])})
    assert same.word == "same"
    assert "seconds disagree: power" in same.note
    agreed = effect({0: one(0.9 * noise[0], 0.9 * noise[1])}, {0: one(noise[2], noise[3])}, same_source=True)
    assert (agreed.word, agreed.note) == ("faster", "")


def test_an_effect_below_the_minimum_ratio_is_the_same_however_sure() -> None:
    tight = {0: one(1.003 + 1e-6 * np.arange(12))}
    found = effect(tight, {0: one(np.ones(12) + 1e-6 * np.arange(12))})
    assert (found.word, found.p_holm < 0.01) == ("same", True)
    assert effect(tight, {0: one(np.ones(12) + 1e-6 * np.arange(12))}, Rule(min_ratio=0.001)).word == "slower"


def test_a_difference_in_seconds_alone_is_called_power() -> None:
    wild = np.exp(np.random.default_rng(3).normal(0, 0.05, (2, 12)))
    seconds = 1 + 1e-4 * np.arange(12)
    found = effect({0: one(wild[0], 1.2 * seconds)}, {0: one(wild[1], seconds)})
    assert found.word == "unclear"
    assert "slower in seconds only: power" in found.note


def test_noisy_seconds_are_said_not_to_confirm() -> None:
    rng = np.random.default_rng(2)
    wild = np.exp(rng.normal(0, 0.3, (2, 12)))
    found = effect({0: one(0.9 * np.ones(12), wild[0])}, {0: one(np.ones(12), wild[1])})
    assert found.word == "faster"
    assert "not confirmed in seconds" in found.note


def test_an_effect_inside_the_spread_of_builds_is_not_claimed() -> None:
    rng = np.random.default_rng(4)
    full = {p: noisy(rng, 12, 0.0005, s) for p, s in enumerate((1.0, 1.0, 1.0))}
    spread = effect({p: noisy(rng, 12, 0.0005, s) for p, s in enumerate((1.005, 1.015, 1.028))}, full)
    assert spread.word == "unclear"
    assert "code generation: builds differ by 2.3 %" in spread.note
    assert spread.run is not None
    assert spread.codegen is not None
    assert spread.total is not None
    assert spread.run.width < 0.002
    assert spread.codegen.width > 0.015
    assert spread.total.width >= 0.9 * spread.codegen.width
    beyond = effect({p: noisy(rng, 12, 0.0005, s) for p, s in enumerate((1.08, 1.09, 1.10))}, full)
    assert beyond.word == "slower"
    assert beyond.builds == 3


def test_code_generation_alone_is_seldom_called_an_effect() -> None:
    rng = np.random.default_rng(12)

    def builds(sigma: float) -> Builds:
        return {p: noisy(rng, 10, 0.0005, float(np.exp(rng.normal(0, sigma)))) for p in range(3)}

    found = []
    for _ in range(8):
        pairs = [Pair(name=str(i), case=builds(0.01), full=builds(0.01)) for i in range(25)]
        found += [e.word for e in effects(pairs, Rule(resamples=1499))]
    assert found.count("faster") + found.count("slower") <= 0.07 * len(found)
    real = [Pair(name=str(i), case=builds(0.001), full={0: one(np.full(10, 1.1))}) for i in range(20)]
    assert {e.word for e in effects(real)} == {"faster"}


def test_a_build_that_one_side_lacks_is_its_first() -> None:
    rng = np.random.default_rng(11)
    full = {0: noisy(rng, 12, 0.0005)}
    case = {p: noisy(rng, 12, 0.0005, s) for p, s in enumerate((1.005, 1.015, 1.028))}
    for found in (effect(case, full), effect({0: full[0]}, {p: s for p, s in case.items()})):
        assert found.builds == 3
        assert found.word == "unclear"
        assert "builds differ by 2.3 %" in found.note


def test_one_build_of_another_source_says_that_code_generation_was_not_sampled() -> None:
    rng = np.random.default_rng(6)
    case, full = {0: noisy(rng, 12, 0.001, 1.1)}, {0: noisy(rng, 12, 0.001)}
    assert "code generation not sampled" in effect(case, full).note
    assert effect(case, full, same_source=True).note == ""


def test_unknown_cycles_are_judged_in_seconds_and_said() -> None:
    seconds = tuple(np.exp(np.random.default_rng(7).normal(0, 0.001, 12)))
    blank = Series(rounds=tuple(range(12)), cycles=(None,) * 12, seconds=tuple(1.1 * s for s in seconds))
    full = Series(rounds=tuple(range(12)), cycles=seconds, seconds=seconds[::-1])
    found = effect({0: blank}, {0: full})
    assert (found.metric, found.word) == ("seconds", "slower")
    assert "cycles unknown" in found.note


def test_without_common_rounds_or_with_too_few_nothing_is_said() -> None:
    far = effect({0: one([1, 1, 1], start=10)}, {0: one([2, 2, 2])})
    assert (far.word, far.ratio, far.total) == ("unclear", None, None)
    few = effect({0: one([1.0, 1.01, 1.02, 1.0])}, {0: one([2.0, 2.01, 2.0, 2.02])})
    assert few.word == "unclear"
    assert "only 4 common rounds" in few.note
    assert few.ratio == pytest.approx(0.5, rel=0.02)


def test_values_that_are_no_times_are_left_out_with_their_round() -> None:
    good = [1.0, 1.001, 1.002, 0.999, 1.0, 1.001]
    bad = Series(
        rounds=tuple(range(9)),
        cycles=(math.nan, None, 0.0, *good),
        seconds=(math.inf, -1.0, 0.0, *good),
    )
    found = effect({0: bad}, {0: one([5.0, 5.0, 5.0, *good])})
    assert (found.rounds, found.ratio, found.word) == (6, 1.0, "same")


# ------------------------------------------------------------ intervals


def test_intervals_are_scipys_percentile_bootstrap_row_by_row() -> None:
    values = np.random.default_rng(8).normal(1, 0.1, (3, 15))
    rule = Rule(resamples=500)
    found = intervals(values, rule)
    for row, (low, high) in zip(values, found, strict=True):
        direct = bootstrap(
            (row,),
            np.median,
            n_resamples=500,
            method="percentile",
            axis=-1,
            rng=np.random.default_rng(rule.seed),
        ).confidence_interval
        assert (low, high) == pytest.approx((direct.low, direct.high))


def test_ties_give_a_finite_interval_and_one_value_gives_none() -> None:
    assert interval([5.0] * 10) == Interval(low=5.0, high=5.0)
    assert interval([5.0]) == Interval(low=-math.inf, high=math.inf)
    assert not relative_widths([np.array([1.0]), np.ones(12)], Rule())[1]
    assert relative_widths([np.array([1.0])], Rule())[0] == math.inf


def test_coverage_of_the_interval_is_near_its_confidence() -> None:
    values = np.random.default_rng(9).normal(0, 1, (600, 20))
    found = intervals(values, Rule(resamples=599))
    hit = np.mean((found[:, 0] <= 0) & (found[:, 1] >= 0))
    assert 0.91 <= hit <= 0.985


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_keeps_the_order_and_never_helps(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    assert all(a >= p or a == 1.0 for a, p in zip(adjusted, p_values, strict=True))
    for i in range(len(p_values)):
        for j in range(len(p_values)):
            assert p_values[i] > p_values[j] or adjusted[i] <= adjusted[j]


def test_a_median_of_nothing_is_an_error() -> None:
    assert median([3.0, 1.0, 2.0, math.nan]) == 2.0
    with pytest.raises(ValueError, match="no finite value"):
        median([math.nan])


# ------------------------------------------------------------ rows


def launches(*pairs: tuple[float | None, float | None]) -> dict[str, list[float | None]]:
    """Samples that say how much the SMs differed, and the widest step between two of them."""
    return {"spread": [spread for spread, _ in pairs], "gap": [gap for _, gap in pairs]}


def test_bistable_are_two_groups_in_more_than_a_tenth_of_the_launches() -> None:
    groups, one = (0.046, 0.045), (0.0001, 0.0001)
    assert is_bistable(launches(*[groups] * 10))
    assert is_bistable(launches(*[one] * 8, groups, groups))
    assert not is_bistable(launches(*[one] * 9, groups))
    assert not is_bistable(launches(*[(0.005, 0.005)] * 10))
    assert not is_bistable(launches((None, None), (0.02, None)))
    assert not is_bistable(launches(*[(0.0, 0.0)] * 99, groups))


def test_sms_that_differ_by_small_steps_are_no_two_groups() -> None:
    assert not is_bistable(launches(*[(0.05, 0.01)] * 10))
    assert is_bistable(launches(*[(0.05, 0.03)] * 10))


def test_without_the_step_the_spread_alone_decides() -> None:
    assert is_bistable({"spread": [0.046] * 10})
    assert not is_bistable({"spread": [0.004, None]})
    assert not is_bistable({})


def test_c42_failed_rows_are_counted_and_are_no_numbers() -> None:
    found = summarise(
        [650.0, 1e20, math.nan, 0.0, None], ["ok", "compile_failed", "launch_failed", "not_supported", "ok"]
    )
    assert (found.best, found.mean, found.worst) == (650.0, 650.0, 650.0)
    assert found.counts == {"ok": 2, "compile_failed": 1, "launch_failed": 1, "not_supported": 1}
    assert summarise([0.0], ["hung"]).best is None
    assert summarise([1.0, 2.0], ["ok", "ok"], higher_is_better=False).best == 1.0


def test_a_record_without_cycles_is_a_series() -> None:
    found = series({"round": [0, 1], "seconds": [1e-3, 2e-3]})
    assert found == Series(rounds=(0, 1), cycles=(None, None), seconds=(1e-3, 2e-3))
    assert dataclasses.is_dataclass(found)


@pytest.mark.parametrize(("builds", "rounds"), [(1, 5), (1, 6), (2, 7), (3, 8)])
def test_the_exact_distribution_is_what_drawing_tends_to(builds: int, rounds: int) -> None:
    generator = np.random.default_rng(3)
    logs = generator.normal(size=(1, builds, rounds))
    exact = drawn_medians(logs, 4000)[0]
    picks = generator.integers(rounds, size=(40_000, rounds))
    chosen = generator.integers(builds, size=(40_000, builds))
    weights = (chosen[:, :, None] == np.arange(builds)).mean(axis=1)
    mixed = weights @ logs[0]
    drawn = np.median(np.take_along_axis(mixed, picks, axis=-1), axis=-1)
    levels = [0.025, 0.1, 0.5, 0.9, 0.975]
    for level in levels:
        at = np.quantile(exact, level)
        assert abs((drawn <= at + 1e-12).mean() - (exact <= at + 1e-12).mean()) < 0.012
    assert (np.diff(exact) >= 0).all()
    assert exact.size == 4000


def test_the_exact_mean_of_builds_lists_every_resample() -> None:
    found = drawn_means(np.array([0.0, 3.0]), 4000)
    assert np.unique(found).tolist() == [0.0, 1.5, 3.0]
    assert [(found == value).mean() for value in (0.0, 1.5, 3.0)] == pytest.approx(
        [0.25, 0.5, 0.25], abs=1e-3
    )
