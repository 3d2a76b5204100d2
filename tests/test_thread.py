"""The page that answers the thread: a pure function of the records, judged by rule, every number sourced."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import record_files as made
from hypothesis import given
from hypothesis import strategies as st

import ablations
from harness import publish
from harness.cases import default_cases
from harness.cli.choose import load_story
from harness.cli.facts import expectation
from harness.publish.thread_claims import FAILED, HELD, OPEN, judge
from harness.story import Claim, Spot, Step, Story

GEFORCE, A100 = "NVIDIA GeForce RTX 4090", "NVIDIA A100-SXM4-40GB"


def spot(study: str = "demo", **levels: Any) -> Spot:
    return Spot(study=study, levels=levels)


FULL, BARE = spot(copy="kept"), spot(copy="stripped")
STORY = Story(
    name="thread",
    title="Why",
    source="https://example.org",
    intro="Somebody asked.",
    columns=("one",),
    steps=(
        Step(title="full", text="All.", spots=(FULL,)),
        Step(title="no copies", text="None.", spots=(BARE,)),
    ),
    ceilings={"f32": spot("bare", acc="f32"), "f16": spot("bare", acc="f16")},
    peaks="Of which?",
    proposal=("Proposal", "Try it.", (("first", FULL), ("none", BARE))),
    claims={"demo": (Claim(text="copies cost little", spot=BARE, at_most=5),)},
    predicted=("demo",),
    chips=(GEFORCE, A100),
)
CONTEXT = publish.Context(
    story=STORY, known={"demo": publish.StudyFacts(expectation="Expectation: copies cost little.")}
)


def timed(case: str, cycles: float, copy: str) -> made.Json:
    """Ten rounds of these busy cycles, a little apart."""
    columns = made.samples([1e9 / cycles] * 10)
    columns["busy_cycles"] = [cycles * (1 + 1e-4 * (i % 3)) for i in range(10)]
    columns["seconds"] = [value / 2e9 for value in columns["busy_cycles"]]
    return made.record(case, samples=columns, levels={"copy": copy})


def measured(root: Path, bare_cycles: float = 0.8e6) -> Path:
    rows = [timed("full@m128", 1e6, "kept"), timed("copy=stripped@m128", bare_cycles, "stripped")]
    return made.results(root, *rows)


def predicted(root: Path, gpu: str, peaks: Mapping[str, float], bound: float, *, stripped: float) -> None:
    """Bounds of the loop and of its strip, and of nothing but MMAs, for one chip."""

    def row(study: str, case: str, levels: Any, flop: float, own: float) -> made.Json:
        chip = max(peaks.values())
        of = {
            "own": {"name": "own", "flop_clk_sm": own, "percent": 100 * flop / own},
            "chip": {"name": "chip", "flop_clk_sm": chip, "percent": 100 * flop / chip},
        }
        sms, hz = {GEFORCE: (128, 2520e6), A100: (108, 1410e6)}[gpu]
        found = {"flop_clk_sm": flop, "tflop_s": flop * sms * hz / 1e12, "binding": "tensor", "peaks": of}
        found |= {"boost_hz": hz, "second": "issue", "margin": 0.1, "estimate": 0.9 * flop}
        more = {"study": study, "levels": levels, "full": "full@m128", "predicted": found}
        return made.record(case, None, gpu=gpu, type="predicted", **more)

    rows = [
        row("demo", "full@m128", {"copy": "kept"}, bound, peaks["f32"]),
        row("demo", "copy=stripped@m128", {"copy": "stripped"}, stripped, peaks["f32"]),
    ]
    bare = [row("bare", f"full@{acc}", {"acc": acc}, rate, rate) for acc, rate in peaks.items()]
    for study, members in (("demo", rows), ("bare", bare)):
        run = f"{study}{gpu}".encode().hex()[:32].ljust(32, "0")
        made.write(root / f"records/{study}/{gpu}/p.jsonl", made.header(None, run=run), members)


def text_of(root: Path, context: publish.Context = CONTEXT) -> str:
    assert publish.publish(root, context=context).problems == ()
    return (root / "thread.md").read_text()


def everything(root: Path) -> str:
    measured(root)
    predicted(root, A100, {"f32": 2048.0, "f16": 2048.0}, 1024.0, stripped=2048.0)
    predicted(root, GEFORCE, {"f32": 512.0, "f16": 1024.0}, 512.0, stripped=512.0)
    return text_of(root)


def test_equal_records_give_equal_bytes_and_check_covers_the_page(tmp_path: Path) -> None:
    text = everything(tmp_path / "a")
    assert everything(tmp_path / "b") == text
    assert publish.check(tmp_path / "a", context=CONTEXT) == ()
    (tmp_path / "a/thread.md").write_text(text.replace("165", "330", 1))
    (problem,) = publish.check(tmp_path / "a", context=CONTEXT)
    assert problem == f"{tmp_path / 'a/thread.md'} is out of date: run `ablate publish`"
    (tmp_path / "a/thread.md").unlink()
    assert "is missing" in publish.check(tmp_path / "a", context=CONTEXT)[0]


def test_each_chip_reads_of_which_peak(tmp_path: Path) -> None:
    lines = everything(tmp_path).splitlines()
    rows = {line.split(" | ")[0]: line for line in lines if "*predicted* |" in line}
    assert rows["| RTX 4090"] == ("| RTX 4090 | 165 | 330 | 330 | 165 | 100.0 | 50.0 | 330 | *predicted* |")
    assert rows["| A100 40GB SXM"] == (
        "| A100 40GB SXM | 312 | 312 | 312 | 312 | 100.0 | 100.0 | 312 | *predicted* |"
    )
    assert any("50 % on RTX 4090; 100 % on A100 40GB SXM" in line for line in lines)


def test_steps_that_cannot_gain_are_told_from_those_that_can(tmp_path: Path) -> None:
    text = everything(tmp_path)
    assert "On RTX 4090 the tensor pipe sets the bound of full" in text
    assert "The bound rises most with: A100 40GB SXM (no copies, +100 %)" in text
    assert "| no copies | +0 %, tensor | +100 %, tensor |  |" in text


def test_a_measured_step_has_its_word_and_interval(tmp_path: Path) -> None:
    text = everything(tmp_path)
    assert "| no copies | 45.8 / 30.5 | +25.0 % faster (+25.0 to +25.0) |" in text
    assert "*no copies* gives most (+25.0 %)" in text


@pytest.mark.parametrize(("cycles", "word"), [(0.8e6, FAILED), (1.0e6, HELD), (0.97e6, HELD)])
def test_a_judgement_follows_from_the_numbers(tmp_path: Path, cycles: float, word: str) -> None:
    measured(tmp_path, cycles)
    text = text_of(tmp_path)
    (line,) = (line for line in text.splitlines() if line.startswith("| demo | copies cost little"))
    assert line.endswith(f"| *{word}* |")
    assert f"On H200 SXM: 1 {word}." in text
    assert "> **demo**: Expectation: copies cost little." in text


def test_every_table_is_sourced_by_run_and_date(tmp_path: Path) -> None:
    text = everything(tmp_path)
    sources = text[text.index("## Where the numbers are from") :]
    for path in (tmp_path / "records").rglob("*.jsonl"):
        head = path.read_text().splitlines()[0]
        run = head[head.index('"run":"') + 7 :][:12]
        assert f"run {run} of 2026-11-30" in sources
    for link in (part.split(")")[0] for part in text.split("](tables/")[1:]):
        assert (tmp_path / "tables" / link).is_file()


def test_other_pages_point_to_it_and_it_goes_with_its_records(tmp_path: Path) -> None:
    everything(tmp_path)
    assert "(thread.md)" in (tmp_path / "README.md").read_text()
    assert 'href="../thread.md"' in (tmp_path / "report/index.html").read_text()
    own = tmp_path / "own.md"
    own.write_text("by hand\n")
    for path in (tmp_path / "records").rglob("*.jsonl"):
        path.unlink()
    assert any("thread.md belongs to no record" in line for line in publish.check(tmp_path, context=CONTEXT))
    publish.publish(tmp_path, context=CONTEXT)
    assert not (tmp_path / "thread.md").exists()
    assert own.exists()


def test_records_of_other_studies_make_no_page(tmp_path: Path) -> None:
    made.results(tmp_path, made.record(study="other"))
    publish.publish(tmp_path, context=CONTEXT)
    assert not (tmp_path / "thread.md").exists()


def test_a_cut_run_and_a_stale_row_are_said_where_the_numbers_are_from(tmp_path: Path) -> None:
    measured(tmp_path)
    (path,) = (tmp_path / "records").rglob("*.jsonl")
    path.write_text("".join(line + "\n" for line in path.read_text().splitlines()[:-1]))
    context = publish.Context(story=STORY, current=lambda record: "another")
    text = text_of(tmp_path, context)
    assert "(**partial**) (*stale* rows)" in text


# ------------------------------------------------------------ counters


def counted(root: Path, full: made.Json | None, floor: made.Json | None) -> str:
    """The page on a loop of two parts, whose full case and floor have these counters."""
    levels = {"full@m128": ("kept", "kept"), "a@m128": ("stripped", "kept"), "b@m128": ("kept", "stripped")}
    levels["floor@m128"] = ("stripped", "stripped")
    rows = []
    for case, (copy, softmax) in levels.items():
        read = {"full@m128": full, "floor@m128": floor}.get(case, made.counters(stalled_wait=7.0))
        row = timed(case, 1e6, copy)
        rows.append({**row, "levels": {"copy": copy, "softmax": softmax}, "counters": read})
    made.results(root, *rows)
    start = spot(copy="kept", softmax="kept")
    story = replace(STORY, steps=(Step(title="full", text="All.", spots=(start,)),), claims={})
    return text_of(root, publish.Context(story=story))


def test_where_a_profiler_was_quoted_it_says_what_it_read_of_full_and_floor(tmp_path: Path) -> None:
    full = made.counters(tensor_active_percent=53.21, stalled_wait=1.14, stalled_math_pipe_throttle=0.52)
    text = counted(tmp_path, full, made.counters(tensor_active_percent=88.4, stalled_barrier=0.3))
    section = text[text.index("## Why the profiler said 50 %") :]
    assert "| H200 SXM | full, one | 1000.0 | 36.6 | 53.2 | 0.52 | wait 1.14 |" in section
    assert "| H200 SXM | floor, one | 1000.0 | 36.6 | 88.4 |  | barrier 0.30 |" in section
    assert section.count("| H200 SXM | ") == 2 and "7.00" not in section
    assert "- counters: Nsight Compute 2025.3.1 read one launch" in section


def test_a_row_that_was_not_counted_is_left_out_and_without_any_nothing_is_said(tmp_path: Path) -> None:
    text = counted(tmp_path / "one", None, made.counters(tensor_active_percent=88.4))
    assert "floor, one" in text and "full, one" not in text
    assert "counters" not in counted(tmp_path / "none", None, None)
    assert "counters" not in everything(tmp_path / "old")


# ------------------------------------------------------------ judging


@given(st.floats(-50, 50), st.floats(0, 50), st.floats(-50, 50), st.floats(0, 50))
def test_a_range_is_held_failed_or_open_and_never_two(
    low: float, wide: float, least: float, room: float
) -> None:
    found, most = (low, low + wide), least + room
    word = judge(found, (least, least), (most, most))
    inside = least <= found[0] and found[1] <= most
    apart = found[1] < least or found[0] > most
    assert word == (HELD if inside else FAILED if apart else OPEN)


def test_no_direction_is_taken_from_an_unclear_word() -> None:
    from harness.publish.thread_claims import _of_change

    effect = {"effect": "unclear", "effect_percent": -2.0, "effect_low": -4.1, "effect_high": -1.7}
    gain = Claim(text="gains", spot=BARE, at_least=0)
    assert _of_change(gain, effect, None).word == OPEN
    assert _of_change(gain, {**effect, "effect": "slower"}, None).word == FAILED
    assert _of_change(Claim(text="little", spot=BARE, at_least=-5, at_most=5), effect, None).word == HELD


def test_a_range_may_end_at_a_share_of_another_change() -> None:
    from harness.publish.thread_claims import _of_change

    claim = Claim(text="half", spot=BARE, below=(0.5, BARE, FULL))
    other = {"effect": "faster", "effect_percent": 40.0, "effect_low": 38.0, "effect_high": 42.0}
    for low, high, word in ((10, 18, HELD), (18, 20, OPEN), (22, 23, FAILED)):
        effect = {"effect": "faster", "effect_percent": low, "effect_low": low, "effect_high": high}
        assert _of_change(claim, effect, other).word == word


# ------------------------------------------------------------ the story itself


def test_every_row_the_story_names_is_a_default_case() -> None:
    story, studies = load_story(), ablations.load()
    spots = [s for step in story.steps for s in (*step.spots, *step.against)]
    spots += [*story.ceilings.values(), *(s for _, s in story.proposal[2])]
    for claim in (claim for of in story.claims.values() for claim in of):
        spots += [claim.spot, *([claim.against] if claim.against else []), *(claim.below or ())[1:]]
        assert claim.below or not (math.isinf(claim.at_least) and math.isinf(claim.at_most))
    known = {
        name: {tuple(sorted(c.levels.items())) for c in default_cases(study) if c.skip is None}
        for name, study in studies.items()
    }
    for one in spots:
        assert tuple(sorted(one.levels.items())) in known[one.study], one
    assert all(len(step.spots) == len(story.columns) for step in story.steps)


def test_every_study_of_the_story_states_its_expectation() -> None:
    for name in load_story().claims:
        assert expectation(ablations.load()[name].question).startswith("Expectation: ")
    assert expectation("What?\n\nNothing is expected.") == ""
