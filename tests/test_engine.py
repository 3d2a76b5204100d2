"""The measurement loop on a fake device: what is believed, what is refused, and when it ends."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from fake_device import FakeDevice, FakeKernel, FakeState, FakeTiming, FakeWarmth, always, raising, total
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import engine
from harness.engine import Entry, Measured, Plan, Session, columns, growth_problem, measure, sample_problem
from harness.engine.guards import size_sample
from harness.errors import AblationError, HungError, LaunchError, NotSupportedError, ToolError
from harness.model import STATUSES

FIVE = Plan(rounds=5)


def run(device: FakeDevice, plan: Plan = FIVE, entries: list[Entry] | None = None) -> Session:
    entries = entries if entries is not None else [Entry(id=name) for name in device.kernels]
    return measure(device, entries, plan, now=device.now, sleep=device.sleep)


def lone(kernel: FakeKernel, plan: Plan = FIVE, **more: Any) -> Measured:
    device = FakeDevice(kernels={"a": kernel})
    return run(device, plan, [Entry(id="a", **more)]).results["a"]


def orders(device: FakeDevice) -> list[list[object]]:
    """The entries of each round, in order: what was timed between two looks at the state."""
    rounds: list[list[object]] = [[]]
    for call in device.trace:
        if call[0] == "state":
            rounds.append([])
        elif call[0] == "time":
            rounds[-1].append(call[1])
    return rounds[1:-1]


# ------------------------------------------------------------ rounds


def test_every_round_times_every_entry_once_in_an_order_of_its_own() -> None:
    device = FakeDevice(kernels={name: FakeKernel() for name in "abcdef"})
    session = run(device, Plan(rounds=12, seed=3))
    rounds = orders(device)
    assert all(sorted(map(str, names)) == list("abcdef") for names in rounds)
    assert len({tuple(names) for names in rounds}) == len(rounds)
    assert session.exit == "fixed rounds"
    assert [sample.round for sample in session.results["a"].samples] == list(range(12))


def test_the_recorded_seed_gives_the_same_orders_again() -> None:
    found = []
    for seed in (5, 5, 6):
        device = FakeDevice(kernels={name: FakeKernel() for name in "abcdef"})
        assert run(device, Plan(rounds=6, seed=seed)).seed == seed
        found.append(orders(device))
    assert found[0] == found[1] != found[2]


def test_c19_the_first_launch_is_no_sample_and_its_time_is_kept_apart() -> None:
    slow_first = lambda timing, number, launches: replace(timing, seconds=2.5) if number == 0 else timing  # noqa: E731
    found = lone(FakeKernel(first_seconds=2.5, fault=slow_first), Plan(rounds=5, warm_up_seconds=0))
    assert [sample.seconds for sample in found.samples] == pytest.approx([1e-3] * 5)
    assert found.first_seconds == pytest.approx(2.5, abs=0.01)


def test_the_warm_up_comes_after_the_first_launches_and_before_the_samples() -> None:
    device = FakeDevice(
        kernels={"a": FakeKernel(fault=raising(LaunchError("bad"))), "b": FakeKernel(), "c": FakeKernel()}
    )
    session = run(device)
    calls = [call[0] for call in device.trace]
    assert device.trace[calls.index("warm_up")][1] == ("b", "c")
    assert calls.index("warm_up") == 3
    assert session.settled


def test_a_warm_up_that_fails_or_does_not_settle_is_said_and_costs_nothing() -> None:
    for device in (
        FakeDevice(kernels={"a": FakeKernel()}, warm_up_error=LaunchError("gone")),
        FakeDevice(kernels={"a": FakeKernel()}, warmth=FakeWarmth(settled=False)),
    ):
        session = run(device)
        assert not session.settled
        assert session.results["a"].status == "ok"


def test_two_entries_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="share an id"):
        run(FakeDevice(kernels={"a": FakeKernel()}), FIVE, [Entry(id="a"), Entry(id="a")])


# ------------------------------------------------------------ size of a sample, C18


@pytest.mark.parametrize("seconds", [1e-6, 17e-6, 0.29e-3, 0.7e-3, 4.9e-3, 30e-3])
def test_samples_are_whole_launches_of_a_length_the_clock_can_tell(seconds: float) -> None:
    plan = Plan(rounds=5)
    found = lone(FakeKernel(seconds=seconds), plan)
    length = found.launches * seconds
    assert length >= 1000 * plan.tick_seconds
    assert length >= plan.sample_seconds[0]
    assert found.launches == 1 or length <= plan.sample_seconds[1]
    assert [sample.seconds for sample in found.samples] == pytest.approx([seconds] * 5)


@given(st.floats(1e-9, 1.0), st.floats(1e-9, 1e-4))
def test_a_sample_is_never_sized_to_nothing(seconds: float, tick: float) -> None:
    assert size_sample(seconds, Plan(tick_seconds=tick)) >= 1


def test_the_launches_that_the_caller_gives_are_kept() -> None:
    assert lone(FakeKernel(), launches=7).launches == 7


@pytest.mark.parametrize(
    "milliseconds", [[0.0, 0.0, 0.001024], [0.0005], [-0.1], [math.nan], [math.inf], [0.0]]
)
def test_c18_a_sample_too_short_or_no_time_at_all_is_an_error_row(milliseconds: list[float]) -> None:
    found = lone(FakeKernel(fault=total(*(1e-3 * ms for ms in milliseconds))))
    assert found.status == "noisy"
    assert found.reason
    assert found.samples == ()
    assert columns(found) is None


def test_a_given_number_of_launches_that_is_too_short_is_named_with_its_ticks() -> None:
    found = lone(FakeKernel(seconds=1e-5), launches=2)
    assert (found.status, found.rejected) == ("noisy", 15)
    assert "too short: 20 us is 40 ticks of the clock, not 1000" in found.reason


# ------------------------------------------------------------ a time that grows with the work, C15


def test_c15_the_words_of_a_constant_time() -> None:
    assert growth_problem(64, 1.0) == "time does not scale with work (x64 work, x1.0 time)"
    assert growth_problem(64, math.nan) is not None
    assert growth_problem(2, 1.9) is None


@given(st.floats(1.5, 1000), st.floats(0, 0.2))
def test_work_that_takes_its_time_passes_and_constant_time_does_not(work: float, overhead: float) -> None:
    assert growth_problem(work, (work + overhead) / (1 + overhead)) is None
    assert growth_problem(work, 1.0) is not None


@pytest.mark.parametrize("seconds", [20e-6, 2e-3])
def test_c15_a_launcher_that_returns_at_once_gets_no_number(seconds: float) -> None:
    found = lone(FakeKernel(fault=total(seconds)))
    assert found.status == "noisy"
    assert "time does not scale with work" in found.reason
    assert found.samples == ()


def test_c15_a_kernel_whose_time_ignores_its_trips_gets_no_number() -> None:
    device = FakeDevice(kernels={"a": FakeKernel(), "a/small": FakeKernel()})
    found = run(device, FIVE, [Entry(id="a", smaller=("a/small", 64))]).results["a"]
    assert (found.status, found.reason) == ("noisy", "time does not scale with work (x64 work, x1.0 time)")
    device = FakeDevice(kernels={"a": FakeKernel(), "a/small": FakeKernel(seconds=1e-3 / 60)})
    assert run(device, FIVE, [Entry(id="a", smaller=("a/small", 64))]).results["a"].status == "ok"


def test_one_slow_sample_while_sizing_is_no_constant_time() -> None:
    hiccup = lambda timing, number, launches: replace(timing, seconds=9e-3) if number in (1, 3) else timing  # noqa: E731
    assert lone(FakeKernel(fault=hiccup)).status == "ok"


# ------------------------------------------------------------ samples that cannot be


GOOD = FakeTiming(
    seconds=1e-3, busy_cycles=1.8e6, wall_cycles=1.81e6, flop_clk_sm=2e3, sm_hz=1.8e9, spread=0.0, gap=0.0
)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seconds": 0.0}, "time is 0 s"),
        ({"seconds": -1e-4}, "time is -0.0001 s"),
        ({"seconds": math.nan}, "time is nan"),
        ({"seconds": math.inf}, "time is inf"),
        ({"busy_cycles": -5.0}, "not monotonic"),
        ({"wall_cycles": 0.0}, "not monotonic"),
        ({"busy_cycles": math.nan}, "not monotonic"),
        ({"busy_cycles": 2.0**64 - 5, "wall_cycles": 2.0**64}, "counter wrapped"),
        ({"wall_cycles": 2.0**32}, "counter wrapped"),
        ({"wall_cycles": 1.7e6}, "contradict"),
    ],
)
def test_an_impossible_sample_is_thrown_away_and_taken_again(fields: dict[str, float], words: str) -> None:
    assert words in (sample_problem(replace(GOOD, **fields), 1, 0.5e-6) or "")
    once = lambda timing, number, launches: replace(timing, **fields) if number == 8 else timing  # noqa: E731
    found = lone(FakeKernel(fault=once))
    assert (found.status, len(found.samples), found.rejected) == ("ok", 5, 1)
    assert any(words in note for note in found.notes)
    assert all(math.isfinite(s.seconds) and s.busy_cycles > 0 for s in found.samples)
    always_bad = lone(
        FakeKernel(fault=lambda timing, n, launches: replace(timing, **fields) if n > 4 else timing)
    )
    assert (always_bad.status, always_bad.samples) == ("noisy", ())
    assert words in always_bad.reason


def test_a_good_sample_is_believed() -> None:
    assert sample_problem(GOOD, 1, 0.5e-6) is None
    assert sample_problem(FakeTiming(seconds=1e-3), 1, 0.5e-6) is None


def test_an_entry_that_never_gives_a_sample_is_given_up_and_costs_no_other_its_rounds() -> None:
    bad = FakeKernel(fault=lambda timing, n, launches: replace(timing, busy_cycles=-1.0) if n > 4 else timing)
    device = FakeDevice(kernels={"bad": bad, "good": FakeKernel()})
    session = run(device, Plan(rounds=30))
    assert session.results["bad"].status == "noisy"
    assert len(session.results["good"].samples) == 30
    assert bad.calls < 30


@pytest.mark.parametrize("hz", [None, 0.0, -1.0, math.nan, 9e9])
def test_c06_an_unknown_clock_is_null_and_said_and_never_zero(hz: float | None) -> None:
    found = lone(FakeKernel(fault=always(sm_hz=hz)))
    assert found.status == "ok"
    assert [sample.sm_hz for sample in found.samples] == [None] * 5
    assert "SM clock unknown" in found.notes


def test_a_kernel_without_stamps_is_timed_in_seconds() -> None:
    found = lone(FakeKernel(stamped=False))
    assert found.status == "ok"
    assert "cycles unknown" in found.notes
    table = columns(found)
    assert table is not None
    assert table["busy_cycles"] == table["flop_clk_sm"] == table["sm_hz"] == [None] * 5


@pytest.mark.parametrize("floor", [{"floor_seconds": 1.1e-3}, {"floor_cycles": 1.9e6}])
def test_a_time_that_nothing_can_reach_is_refused(floor: dict[str, Any]) -> None:
    found = lone(FakeKernel(), **floor)
    assert found.status == "below_floor"
    assert "below the" in found.reason
    assert found.samples == ()
    assert lone(FakeKernel(), **{name: value * 0.9 for name, value in floor.items()}).status == "ok"


# ------------------------------------------------------------ faults of one entry


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LaunchError("illegal access"), "launch_failed"),
        (HungError("no answer"), "hung"),
        (NotSupportedError("x"), "not_supported"),
    ],
)
@pytest.mark.parametrize("at", [0, 1, 2, 3, 9])
def test_a_bad_kernel_costs_one_row(error: AblationError, status: str, at: int) -> None:
    device = FakeDevice(kernels={"bad": FakeKernel(fault=raising(error, at=at)), "good": FakeKernel()})
    session = run(device, Plan(rounds=12), [Entry(id="bad"), Entry(id="good", full="bad")])
    bad = session.results["bad"]
    assert (bad.status, bad.reason, bad.samples) == (status, error.message, ())
    assert len(session.results["good"].samples) == 12
    assert session.exit == "fixed rounds"
    assert device.kernels["bad"].calls == at + 1


def test_a_full_case_that_fails_leaves_the_others_an_end() -> None:
    device = FakeDevice(
        kernels={"full": FakeKernel(fault=raising(LaunchError("x"), at=6)), "a": FakeKernel(noise=0.001)}
    )
    session = run(device, Plan(), [Entry(id="full"), Entry(id="a", full="full")])
    assert session.exit == "narrow"
    assert session.results["a"].status == "ok"


def test_nothing_to_time_is_no_error() -> None:
    assert run(FakeDevice(kernels={})).results == {}
    session = run(FakeDevice(kernels={"a": FakeKernel(fault=raising(LaunchError("x")))}))
    assert (session.results["a"].status, session.exit) == ("launch_failed", None)


def test_an_error_that_is_none_of_ours_passes_through() -> None:
    with pytest.raises(ZeroDivisionError):
        run(FakeDevice(kernels={"a": FakeKernel(fault=raising(ZeroDivisionError()))}))


# ------------------------------------------------------------ the state of the GPU


def test_without_nvml_everything_of_the_state_is_unknown() -> None:
    found = lone(FakeKernel())
    table = columns(found)
    assert table is not None
    for name in ("watts", "temperature_c", "throttle", "reported_hz"):
        assert table[name] == [None] * 5
    assert {len(column) for column in table.values()} == {5}


def test_an_nvml_that_refuses_is_unknown_too() -> None:
    def refuse(look: int) -> FakeState:
        raise ToolError("insufficient permissions")

    session = run(FakeDevice(kernels={"a": FakeKernel()}, states=refuse))
    assert session.results["a"].status == "ok"
    assert [state.watts for state in session.results["a"].states] == [None] * 5


def test_the_state_of_a_round_stands_with_its_samples() -> None:
    states = lambda look: FakeState(watts=100.0 + look, throttle=() if look else ("gpu_idle", "sw_power_cap"))  # noqa: E731
    table = columns(run(FakeDevice(kernels={"a": FakeKernel()}, states=states)).results["a"])
    assert table is not None
    assert table["watts"] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert table["throttle"] == ["gpu_idle+sw_power_cap", "", "", "", ""]


def test_a_throttled_round_is_taken_again_after_a_growing_pause() -> None:
    states = lambda look: FakeState(throttle=("hw_thermal_slowdown",) if look in (1, 2) else ())  # noqa: E731
    device = FakeDevice(kernels={"a": FakeKernel()}, states=states)
    session = run(device, Plan(rounds=5, pause_seconds=0.1))
    found = session.results["a"]
    assert (found.status, len(found.samples), found.rejected) == ("ok", 5, 2)
    assert [sample.round for sample in found.samples] == [0, 3, 4, 5, 6]
    assert device.slept == pytest.approx([0.1, 0.2])
    assert "2 throttled rounds thrown away: hw_thermal_slowdown" in found.notes


@pytest.mark.parametrize("plan", [Plan(rounds=5), Plan()])
def test_if_all_samples_are_throttled_the_row_says_so_after_bounded_retries(plan: Plan) -> None:
    states = lambda look: FakeState(throttle=("hw_slowdown", "sw_thermal_slowdown"))  # noqa: E731
    device = FakeDevice(kernels={"a": FakeKernel(), "b": FakeKernel()}, states=states)
    session = run(device, plan)
    assert device.looks == plan.retries + 1
    assert session.exit is None
    for found in session.results.values():
        assert found.status == "noisy"
        assert found.reason == "all 5 samples throttled: hw_slowdown, sw_thermal_slowdown"
        assert found.samples == ()


def test_throttling_that_begins_later_keeps_what_was_good() -> None:
    states = lambda look: FakeState(throttle=("hw_power_brake",) if look >= 4 else ())  # noqa: E731
    session = run(FakeDevice(kernels={"a": FakeKernel()}, states=states), Plan())
    assert (session.exit, session.rounds) == ("out of time", 4)
    assert session.results["a"].status == "ok"


# ------------------------------------------------------------ exits


def test_it_ends_when_every_effect_is_narrow_and_not_before_the_least_rounds() -> None:
    device = FakeDevice(kernels={"full": FakeKernel(noise=1e-5), "a": FakeKernel(seconds=0.9e-3, noise=1e-5)})
    session = run(device, Plan(), [Entry(id="full"), Entry(id="a", full="full")])
    assert (session.exit, session.rounds) == ("narrow", 10)
    noisy = FakeDevice(kernels={"full": FakeKernel(noise=0.006), "a": FakeKernel(noise=0.006)})
    session = run(noisy, Plan(), [Entry(id="full"), Entry(id="a", full="full")])
    assert session.exit == "narrow"
    assert session.rounds > 20
    assert all(0 < (found.width or 1) <= 0.005 for found in session.results.values())


def test_a_group_rests_when_all_its_intervals_are_narrow_and_the_others_go_on() -> None:
    kernels = {
        "quiet": FakeKernel(noise=1e-5),
        "quiet a": FakeKernel(noise=1e-5),
        "noisy": FakeKernel(noise=1e-5),
        "noisy a": FakeKernel(noise=0.02),
        "noisy b": FakeKernel(noise=1e-5),
        "peer": FakeKernel(stamped=False, noise=0.5),
    }
    fulls = {"quiet a": "quiet", "noisy a": "noisy", "noisy b": "noisy", "peer": "quiet"}
    entries = [Entry(id=name, full=fulls.get(name), paces=name != "peer") for name in kernels]
    session = run(FakeDevice(kernels=kernels), Plan(seconds=1e6), entries)
    assert session.exit == "narrow"
    taken = {name: [s.round for s in found.samples] for name, found in session.results.items()}
    assert taken["quiet"] == taken["quiet a"] == taken["peer"] == list(range(20))
    # Within a group every round holds every entry, the quiet one too.
    assert taken["noisy"] == taken["noisy a"] == taken["noisy b"] == list(range(session.rounds))
    assert session.rounds > 40
    assert {found.exit for found in session.results.values()} == {"narrow"}


def test_a_full_with_a_full_of_its_own_goes_on_with_those_compared_with_it() -> None:
    kernels = {
        "full": FakeKernel(noise=1e-4),
        "other full": FakeKernel(noise=1e-4),
        "sets": FakeKernel(noise=0.01),
        "lone": FakeKernel(noise=0.01),
    }
    fulls = {"other full": "full", "sets": "other full"}
    entries = [Entry(id=name, full=fulls.get(name)) for name in kernels]
    session = run(FakeDevice(kernels=kernels), Plan(seconds=1e6), entries)
    assert session.exit == "narrow"
    rounds = {name: len(found.samples) for name, found in session.results.items()}
    assert rounds["full"] == rounds["other full"] == rounds["sets"] > 40
    assert all((found.width or 1) <= 0.005 for found in session.results.values())


def test_fulls_that_name_each_other_end_the_run_too() -> None:
    kernels = {"a": FakeKernel(noise=1e-4), "b": FakeKernel(noise=1e-4)}
    entries = [Entry(id="a", full="b"), Entry(id="b", full="a")]
    assert run(FakeDevice(kernels=kernels), Plan(seconds=1e6), entries).exit == "narrow"


def test_a_group_of_rare_samples_does_not_rest() -> None:
    def rarely(timing: FakeTiming, number: int, launches: int) -> FakeTiming:
        return timing if number < 5 or number % 3 == 0 else replace(timing, seconds=math.nan)

    kernels = {"rare": FakeKernel(noise=1e-5, fault=rarely), "noisy": FakeKernel(noise=0.03)}
    session = run(FakeDevice(kernels=kernels), Plan(seconds=1e6, retries=0))
    assert len(session.results["rare"].samples) >= 20


def test_a_group_at_rest_is_told_no_throttling_of_later_rounds() -> None:
    def states(look: int) -> FakeState:
        return FakeState(throttle=("hw_thermal_slowdown",) if 25 <= look < 28 else ())

    kernels = {"quiet": FakeKernel(noise=1e-4), "noisy": FakeKernel(noise=0.02)}
    session = run(FakeDevice(kernels=kernels, states=states), Plan(seconds=1e6))
    assert not any("throttled" in note for note in session.results["quiet"].notes)
    assert "3 throttled rounds thrown away: hw_thermal_slowdown" in session.results["noisy"].notes


def test_a_group_that_rests_says_narrow_where_another_ran_out_of_time() -> None:
    kernels = {"quiet": FakeKernel(noise=1e-5), "noisy": FakeKernel(noise=0.2)}
    session = run(FakeDevice(kernels=kernels), Plan(seconds=0.3))
    assert session.exit == "out of time"
    assert {name: found.exit for name, found in session.results.items()} == {
        "quiet": "narrow",
        "noisy": "out of time",
    }


def test_what_paces_nothing_does_not_keep_the_run_going_alone() -> None:
    full = FakeKernel(fault=always(seconds=math.nan))
    kernels = {"full": full, "peer": FakeKernel(stamped=False, noise=0.5)}
    entries = [Entry(id="full"), Entry(id="peer", full="full", paces=False)]
    session = run(FakeDevice(kernels=kernels), Plan(seconds=1e6), entries)
    assert (session.exit, session.rounds) == ("narrow", 10)


def test_the_width_that_counts_is_that_of_the_effect_in_cycles_not_of_the_drifting_seconds() -> None:
    device = FakeDevice(kernels={"full": FakeKernel(noise=1e-4), "a": FakeKernel(noise=1e-4)}, drift=5.0)
    session = run(device, Plan(), [Entry(id="full"), Entry(id="a", full="full")])
    seconds = [sample.seconds for sample in session.results["a"].samples]
    assert max(seconds) > 1.1 * min(seconds)
    assert (session.exit, session.rounds) == ("narrow", 10)


def test_it_ends_when_the_interval_shrinks_no_longer() -> None:
    # Noise that grows with the calls: more rounds never help.
    grow = lambda timing, n, launches: replace(  # noqa: E731
        timing,
        busy_cycles=(timing.busy_cycles or 0) * (1 + 0.002 * n * (-1) ** (n // 2)) or None,
        wall_cycles=None,
    )
    session = run(FakeDevice(kernels={"a": FakeKernel(fault=grow)}), Plan(seconds=1e6))
    assert session.exit == "no longer shrinking"
    assert session.results["a"].status == "ok"
    assert session.results["a"].width is not None
    assert session.results["a"].width > 0.005


def test_honest_noise_is_not_taken_for_a_stall() -> None:
    exits = [
        run(FakeDevice(kernels={"a": FakeKernel(noise=0.01)}, seed=seed), Plan(seconds=1e6)).exit
        for seed in range(12)
    ]
    assert exits.count("narrow") >= 10


def test_it_ends_when_the_time_is_out_with_at_least_a_few_rounds() -> None:
    device = FakeDevice(kernels={"a": FakeKernel(noise=0.05)})
    session = run(device, Plan(seconds=0.05))
    assert session.exit == "out of time"
    assert 10 < session.rounds < 40
    slow = run(FakeDevice(kernels={"a": FakeKernel(seconds=2.0, noise=0.05)}), Plan(seconds=0.05))
    assert (slow.exit, slow.rounds, slow.results["a"].status) == ("out of time", 3, "ok")


def test_progress_hears_of_every_round_and_the_widest_interval() -> None:
    heard: list[tuple[int, float | None]] = []
    device = FakeDevice(kernels={"a": FakeKernel(noise=0.004)})
    session = measure(
        device,
        [Entry(id="a")],
        now=device.now,
        sleep=device.sleep,
        progress=lambda n, width: heard.append((n, width)),
    )
    assert [n for n, _ in heard] == list(range(1, session.rounds + 1))
    assert heard[-1][1] is not None
    assert heard[-1][1] <= 0.005


# ------------------------------------------------------------ interrupts, cold, misc


@pytest.mark.parametrize("at", range(0, 40, 3))
def test_ctrl_c_at_any_time_returns_the_whole_rounds_marked_partial(at: int) -> None:
    kernels = {"a": FakeKernel(), "b": FakeKernel(fault=raising(KeyboardInterrupt(), at=at))}
    session = run(FakeDevice(kernels=kernels), Plan(rounds=1000))
    assert session.partial
    assert session.exit is None
    done = max(0, at - 4)
    assert session.rounds <= done
    if session.rounds >= 3:
        assert session.missing == ()
        assert {len(found.samples) for found in session.results.values()} == {session.rounds}
    else:
        assert set(session.missing) == {"a", "b"}
        assert session.results == {}


def test_c14_cold_means_a_flush_right_before_the_event_and_no_fill_in_between() -> None:
    device = FakeDevice(kernels={"a": FakeKernel(seconds=0.2e-3)})
    device.prepare("a")
    found = run(device, FIVE, [Entry(id="a", cold=True)]).results["a"]
    assert (found.status, found.launches) == ("ok", 1)
    names = [str(call[0]) for call in device.trace]
    assert names.count("fill") == 1
    assert names[0] == "fill"
    for i, name in enumerate(names):
        if name == "launch":
            assert names[i - 2 : i + 2] == ["flush", "event", "launch", "event"]
    assert all(call[3] is True for call in device.trace if call[0] == "time")
    assert "cold launches of under 1000 ticks of the clock" in found.notes


def test_warm_samples_are_never_flushed() -> None:
    device = FakeDevice(kernels={"a": FakeKernel()})
    run(device)
    assert not any(call[0] == "flush" for call in device.trace)


@given(
    st.dictionaries(st.sampled_from("abcd"), st.floats(1e-7, 0.1), min_size=1),
    st.integers(0, 2**32),
    st.integers(1, 6),
)
@settings(max_examples=40, deadline=None)
def test_every_entry_gets_exactly_one_result_with_a_status(
    times: dict[str, float], seed: int, rounds: int
) -> None:
    device = FakeDevice(kernels={name: FakeKernel(seconds=s, noise=0.01) for name, s in times.items()})
    session = run(device, Plan(rounds=rounds, seed=seed))
    assert list(session.results) == list(times)
    for found in session.results.values():
        assert found.status in STATUSES
        assert (found.status == "ok") == bool(found.samples)
        assert bool(found.reason) == (found.status != "ok")
        assert {len(found.samples), len(found.states), len(found.wall_flop_clk_sm)} == {len(found.samples)}
        assert found.status == "ok"


def test_the_gpu_device_is_a_device_to_the_type_checker() -> None:
    """mypy reads this; it runs no GPU."""
    from harness.gpu.device import GpuDevice

    def accepts(device: engine.Device) -> engine.Device:
        return device

    def check(device: GpuDevice) -> engine.Device:
        return accepts(device)

    assert callable(check)
