"""Two record files: like is compared with like, the direction is said, a regression has an exit status."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.compare import Comparison, compare
from harness.errors import UsageError
from harness.stats import Rule
from harness.store import RecordFile

GPU: Mapping[str, Any] = {
    "name": "NVIDIA H200",
    "cc": [9, 0],
    "sms": 132,
    "memory_bytes": 150_000_000_000,
    "power_limit_w": 700.0,
}
QUICK = Rule(resamples=299)


def row(
    case: str, cost: float = 1e6, *, status: str = "ok", noise: float = 5e-4, seed: int = 0, **more: Any
) -> Any:
    rng = np.random.default_rng([seed, len(case), int(cost)])
    cycles = [float(v) for v in cost * np.exp(rng.normal(0, noise, 12))]
    ok = status == "ok"
    samples = {
        "seconds": [c / 1.8e9 for c in cycles],
        "busy_cycles": cycles,
        "flop_clk_sm": [2e9 / c for c in cycles],
    }
    record: dict[str, Any] = {
        "type": "measured",
        "status": status,
        "reason": "" if ok else "watchdog",
        "study": "attention",
        "case": case,
        "levels": {"name": case},
        "configuration": {},
        "problem": "waves",
        "sizes": {"seqlen": 4096},
        "conditions": {"fill": "normal", "l2": "warm", "waves": 4.0, "ctas_per_sm": 2},
        "perturbation": 0,
        "source": {"digest": "d"},
        "target": {"arch": "sm_90a", "gpu": GPU["name"]},
        "toolkit": "13.5",
        "options": [],
        "samples": samples if ok else None,
    }
    return record | more


def file(
    *records: Any, name: str = "a.jsonl", gpu: Any = GPU, partial: str | None = None, **env: Any
) -> RecordFile:
    environment = {"gpu": gpu, "driver": "610.1", "nvrtc": "13.5", **env}
    header = {"run": name, "started": "2026-11-30T13:20:00Z", "environment": environment}
    return RecordFile(path=Path("/somewhere") / name, header=header, records=records, partial=partial)


def words(found: Comparison) -> dict[str, str]:
    return {r.case: r.word for r in found.rows}


# ------------------------------------------------------------ what matched, and its word


def test_rows_match_by_what_was_asked_and_the_rest_is_listed() -> None:
    a = file(row("full"), row("x"), row("gone"))
    b = file(row("new"), row("full", seed=1), row("x", 1.02e6, seed=1), name="b.jsonl")
    found = compare(a, b)
    assert words(found) == {"full": "same", "x": "slower"}
    assert (found.only_a, found.only_b) == (("attention/gone",), ("attention/new",))
    assert found.rows[1].ratio == pytest.approx(1.02, rel=1e-3)
    assert (found.exit_status, found.failed, found.warnings) == (0, False, ())


def test_the_direction_is_b_over_a_and_said() -> None:
    fast = compare(file(row("full")), file(row("full", 0.9e6, seed=1)))
    assert words(fast) == {"full": "faster"}
    assert any("B over A: above 1 is slower" in line for line in fast.lines())
    slow = compare(file(row("full", 0.9e6, seed=1)), file(row("full")))
    assert words(slow) == {"full": "slower"}


def test_a_regression_beyond_the_threshold_is_exit_status_one() -> None:
    a, b = file(row("full"), row("x")), file(row("full", seed=1), row("x", 1.02e6, seed=1))
    for percent, status, names in ((0.3, 1, ["x"]), (1.0, 1, ["x"]), (2.5, 0, []), (None, 0, [])):
        found = compare(a, b, threshold_percent=percent)
        assert found.exit_status == status
        assert [r.case for r in found.regressions] == names


def test_noise_is_no_regression_however_large_the_point_difference() -> None:
    a, b = file(row("full", noise=0.2)), file(row("full", 1.03e6, noise=0.2, seed=1))
    found = compare(a, b, threshold_percent=0.5)
    assert (words(found), found.exit_status) == ({"full": "unclear"}, 0)


def test_cycles_are_the_metric_unless_seconds_are_asked() -> None:
    slower = row("full", seed=1)
    slower["samples"]["seconds"] = [1.3 * s for s in slower["samples"]["seconds"]]
    assert words(compare(file(row("full")), file(slower))) == {"full": "same"}
    assert words(compare(file(row("full")), file(slower), metric="seconds")) == {"full": "slower"}


def test_nothing_matched_is_exit_status_three() -> None:
    for a, b in (
        (file(row("x")), file(row("y"))),
        (file(), file()),
        (file(row("x", status="hung")), file(row("x", status="hung"))),
        (
            file(row("x") | {"type": "built", "samples": None}),
            file(row("x") | {"type": "built", "samples": None}),
        ),
        (file(row("x")), file(row("x") | {"problem": "paper"})),
    ):
        found = compare(a, b, threshold_percent=1)
        assert (found.exit_status, found.failed) == (3, True)
        assert any("nothing matched" in line for line in found.lines())


def test_a_case_that_lost_its_number_is_a_regression_and_has_none_in_place() -> None:
    found = compare(file(row("full")), file(row("full", status="hung")), threshold_percent=1)
    assert (words(found), found.exit_status) == ({"full": "failed"}, 1)
    assert (found.rows[0].b, found.rows[0].ratio) == (None, None)
    assert found.rows[0].note == "B: hung: watchdog"
    back = compare(file(row("full", status="hung")), file(row("full")), threshold_percent=1)
    assert (words(back), back.exit_status) == ({"full": "works"}, 0)


def test_builds_of_one_case_make_one_row() -> None:
    def builds(factor: float, seed: int) -> list[Any]:
        return [row("x", 1e6 * factor * s, perturbation=p, seed=seed) for p, s in enumerate((1.0, 1.1, 1.2))]

    found = compare(file(*builds(1.0, 0)), file(*builds(1.03, 1)[:2]))
    assert len(found.rows) == 1
    assert found.rows[0].ratio == pytest.approx(1.03, rel=1e-3)
    assert found.rows[0].note == "2 builds in common"


def test_a_repeat_in_one_file_counts_with_its_latest() -> None:
    found = compare(file(row("x", 2e6), row("x")), file(row("x", seed=1)))
    assert words(found) == {"x": "same"}


def test_one_sample_is_never_a_claim() -> None:
    a, b = row("x"), row("x", 2e6)
    for line in (a, b):
        line["samples"] = {"busy_cycles": line["samples"]["busy_cycles"][:1]}
    found = compare(file(a), file(b), threshold_percent=1)
    assert (words(found), found.exit_status) == ({"x": "unclear"}, 0)
    json.dumps(found.as_json(), allow_nan=False)


# ------------------------------------------------------------ C33: same name, different machine


def test_c33_clock_jitter_and_the_device_ordinal_are_silent() -> None:
    one, two = {**GPU, "ordinal": 4}, {**GPU, "ordinal": 0}
    fast, slow = row("full"), row("full", seed=1)
    fast["samples"]["sm_hz"], slow["samples"]["sm_hz"] = [2.5961e9] * 12, [2.5987e9] * 12
    found = compare(file(fast, gpu=one, cpu_hz=1), file(slow, gpu=two, cpu_hz=2))
    assert (found.warnings, found.exit_status) == ((), 0)


@pytest.mark.parametrize(
    ("change", "words_"),
    [
        ({"name": "NVIDIA H100 PCIe"}, "GPU NVIDIA H100 PCIe and NVIDIA H200"),
        ({"sms": 114}, "SMs 114 and 132"),
        ({"cc": [8, 0]}, "compute capability 8.0 and 9.0"),
        ({"memory_bytes": 85_000_000_000}, "memory bytes"),
        ({"power_limit_w": 350.0}, "power limit W 350.0 and 700.0"),
    ],
)
def test_c33_another_gpu_is_refused_unless_asked(change: Mapping[str, Any], words_: str) -> None:
    a, b = file(row("full"), gpu={**GPU, **change}), file(row("full", 2e6))
    with pytest.raises(UsageError, match="not comparable") as caught:
        compare(a, b)
    assert words_ in caught.value.message
    assert "\n" not in caught.value.message
    asked = compare(a, b, across_gpus=True, threshold_percent=1)
    assert asked.side_by_side
    assert (asked.exit_status, asked.rows[0].ratio) == (0, None)
    assert any(words_ in warning for warning in asked.warnings)


def test_between_gpus_rates_and_shares_of_own_peaks_stand_side_by_side() -> None:
    a = file(row("full", sizes={"seqlen": 1}), gpu={**GPU, "name": "NVIDIA A100", "sms": 108, "cc": [8, 0]})
    b = file(row("full", 2e6))
    found = compare(
        a, b, across_gpus=True, own_percent=lambda header, record: 91.25 if header is a.header else None
    )
    assert [found.rows[0].a, found.rows[0].b] == pytest.approx([2000, 1000], rel=1e-2)
    text = "\n".join(found.lines())
    assert "91.2 %" in text
    assert "unknown" in text
    assert "FLOP/clk/SM" in text
    assert "slower" not in text


def test_across_gpus_changes_nothing_for_one_gpu() -> None:
    a, b = file(row("full")), file(row("full", 1.1e6))
    assert compare(a, b, across_gpus=True, threshold_percent=1).exit_status == 1


def test_what_one_file_does_not_know_of_its_gpu_is_no_difference() -> None:
    bare = {"name": GPU["name"], "power_limit_w": None}
    slightly = {**GPU, "memory_bytes": 150_100_000_000}
    assert compare(file(row("full"), gpu=bare), file(row("full"), gpu=slightly)).matched == 1


def test_c33_toolkit_driver_and_source_only_warn() -> None:
    a = file(row("full", toolkit="13.0"), nvrtc="13.0", driver="590.0")
    found = compare(a, file(row("full", source={"digest": "e"}, seed=1)))
    assert found.warnings == (
        "driver 590.0 and 610.1",
        "NVRTC 13.0 and 13.5",
        "the source differs in 1 of 1 cases",
    )
    assert words(found) == {"full": "same"}


@pytest.mark.parametrize(("name", "value"), [("fill", "zeros"), ("l2", "cold")])
def test_other_conditions_are_refused_unless_asked(name: str, value: str) -> None:
    other = row("full")
    other["conditions"] = {**other["conditions"], name: value}
    with pytest.raises(UsageError, match=f"conditions differ: {name} "):
        compare(file(row("full")), file(other))
    asked = compare(file(row("full")), file(other), across_conditions=True)
    assert asked.matched == 1
    assert any(value in warning for warning in asked.warnings)


def test_a_residency_that_changed_with_the_code_is_noted_and_compared() -> None:
    other = row("full", 1.5e6, conditions={"fill": "normal", "l2": "warm", "waves": 8.0, "ctas_per_sm": 1})
    found = compare(file(row("full")), file(other), threshold_percent=1)
    assert found.exit_status == 1
    assert found.rows[0].note == "waves 4.0 and 8.0; ctas_per_sm 2 and 1"


def test_a_partial_file_is_said() -> None:
    found = compare(
        file(row("full"), partial="a.jsonl: partial, 1 of 2 records; no footer"), file(row("full"))
    )
    assert found.warnings == ("A: a.jsonl: partial, 1 of 2 records; no footer",)
    assert any("1 of 2 records" in line for line in found.lines())


# ------------------------------------------------------------ text and JSON


@given(
    st.lists(st.text(min_size=1, max_size=200), min_size=1, max_size=4, unique=True),
    st.sampled_from([60, 80, 100]),
)
@settings(max_examples=40, deadline=None)
def test_no_line_is_wider_than_asked_whatever_the_names(names: list[str], width: int) -> None:
    long = [row(f"{name}{i}", levels={"name": str(i)}) for i, name in enumerate(names)]
    a, b = file(*long, name="a" * 120), file(*long[1:], row("other", status="hung"), partial="p" * 200)
    for found in (compare(a, b, rule=QUICK), compare(a, b, across_conditions=True, rule=QUICK)):
        assert all(len(line) <= width for line in found.lines(width))


def test_the_text_as_it_is_read() -> None:
    a = file(row("full"), row("gone"))
    b = file(row("full", 1.02e6, seed=1), name="b.jsonl")
    lines = compare(a, b, threshold_percent=0.5).lines()
    assert lines[:2] == ["A  a.jsonl  (NVIDIA H200)", "B  b.jsonl  (NVIDIA H200)"]
    assert lines[3] == "cycles, B over A: above 1 is slower (A and B in busy cycles)"
    assert lines[4].split() == ["case", "A", "B", "ratio", "95", "%", "interval", "word"]
    assert lines[5].startswith("attention/full")
    assert lines[5].endswith("slower")
    assert lines[-1] == "1 case in both: 1 slower; 1 beyond 0.5 %"


def test_the_counts_of_the_summary_add_up() -> None:
    hung = row("x", status="hung")
    a, b = file(row("full"), row("y"), hung, row("gone")), file(row("full", seed=1), row("y", 1.1e6), hung)
    found = compare(a, b)
    assert found.matched == 2
    assert found.lines()[-1] == "3 cases in both: 1 same, 1 slower, 1 without a number in either"


def test_a_file_of_predictions_is_named_by_its_product() -> None:
    predicted = {"type": "predicted", "samples": None}
    a = file(row("full", **predicted), gpu=None)
    b = file(row("full", type="built", samples=None, target={"arch": "sm_90a", "gpu": None}), gpu=None)
    found = compare(a, b)
    assert found.lines()[:2] == ["A  a.jsonl  (predicted for NVIDIA H200)", "B  a.jsonl  (no GPU)"]
    mixed = file(row("full", **predicted), row("x", type="built", target={"arch": "sm_90a"}), gpu=None)
    assert compare(mixed, file(gpu=None)).predicted_for == (None, None)


def test_json_is_strict_and_complete() -> None:
    a, b = file(row("full"), row("x")), file(row("full", 1.1e6), row("x", status="hung"))
    found = json.loads(json.dumps(compare(a, b, threshold_percent=1).as_json(), allow_nan=False))
    assert found["exit_status"] == 1
    assert found["regressions"] == ["attention/full", "attention/x"]
    assert found["rows"][0]["interval"]["low"] > 1
    assert found["metric"] == "cycles"


def test_the_result_is_frozen_and_the_order_of_rows_changes_no_word() -> None:
    lines = [row("a"), row("b", 1.02e6), row("c", 0.9e6)]
    base = file(row("a", seed=2), row("b", seed=2), row("c", seed=2))
    found = compare(base, file(*lines))
    assert words(found) == words(compare(file(*base.records[::-1]), file(*lines[::-1])))
    with pytest.raises(AttributeError):
        found.metric = "seconds"  # type: ignore[misc]
    assert replace(found, threshold=0.001).exit_status == 1


def test_numbers_of_a_failed_row_are_not_read() -> None:
    rogue = row("full") | {"status": "wrong", "reason": "off by one"}
    found = compare(file(row("full")), file(rogue))
    assert (words(found), found.rows[0].b) == ({"full": "failed"}, None)


def test_a_row_that_failed_on_another_gpu_is_no_regression() -> None:
    other = file(row("full", status="launch_failed"), gpu={**GPU, "name": "NVIDIA A100"})
    assert compare(file(row("full")), other, across_gpus=True, threshold_percent=1).exit_status == 0
