"""The SASS contract: each rule refuses what it is there for, and says both numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build.contract import broken_rules, count, counted_prefix, matches, notes
from harness.model import Contract, Inspection

LOOP = {
    "BAR.SYNC.DEFER_BLOCKING": 2,
    "BRA": 1,
    "DEPBAR.LE": 1,
    "HMMA.16816.F32": 64,
    "LDGDEPBAR": 1,
    "LDGSTS.E.BYPASS.128": 16,
    "LDSM.16.M88.4": 24,
    "MUFU.EX2": 34,
}
GOOD = Inspection(
    registers=128,
    shared_bytes=0,
    local_bytes=0,
    spill_stores=0,
    spill_loads=0,
    loop=LOOP,
    loop_instructions=sum(LOOP.values()),
    kernel_mma={"HMMA.16816.F32": 64},
    code_hash="0",
)
CONTRACT = Contract(
    mma="HMMA.16816.F32",
    mma_count=64,
    counts={"LDGSTS": 16, "BAR": 2},
    present=("LDSM", "MUFU.EX2"),
    absent=("LDG", "LDS", "STS"),
    spill_free=True,
)


def with_loop(**changes: int) -> Inspection:
    """GOOD with other numbers in the loop and the kernel; 0 removes an opcode. Dots are written as __."""
    loop = {**LOOP, **{name.replace("__", "."): number for name, number in changes.items()}}
    loop = {name: number for name, number in loop.items() if number}
    return replace(GOOD, loop=loop, kernel_mma={n: k for n, k in loop.items() if n.startswith("HMMA")})


def test_a_case_that_is_what_it_says_breaks_nothing() -> None:
    assert broken_rules(CONTRACT, GOOD) == ()


@pytest.mark.parametrize(
    ("opcode", "prefix", "expected"),
    [
        ("BAR.SYNC.DEFER_BLOCKING", "BAR", True),
        ("BAR", "BAR", True),
        ("DEPBAR.LE", "BAR", False),
        ("LDGDEPBAR", "BAR", False),
        ("BARRIER", "BAR", False),
        ("MUFU.EX2", "MUFU.EX2", True),
        ("MUFU.EX2.F16", "MUFU.EX2", True),
        ("MUFU.EX20", "MUFU.EX2", False),
        ("MUFU.RCP", "MUFU.EX2", False),
        ("MUFU", "MUFU.EX2", False),
        ("LDS.128", "LDS", True),
        ("LDSM.16.M88.4", "LDS", False),
        ("LDG.E", "LDG", True),
        ("LDGSTS.E.128", "LDG", False),
    ],
)
def test_prefixes_match_whole_components(opcode: str, prefix: str, expected: bool) -> None:
    assert matches(opcode, prefix) is expected


@given(st.dictionaries(st.sampled_from(["LDS.128", "LDS", "LDSM.16", "LDGSTS.E"]), st.integers(1, 9)))
def test_counts_of_disjoint_prefixes_add_up(counts: dict[str, int]) -> None:
    assert sum(count(counts, prefix) for prefix in ("LDS", "LDSM", "LDGSTS")) == sum(counts.values())


@pytest.mark.parametrize(
    ("inspection", "words"),
    [
        (with_loop(HMMA__16816__F32=16), ("lost", "expected 64 HMMA.16816.F32", "found 16")),
        (with_loop(HMMA__16816__F32=63), ("lost", "found 63")),
        (with_loop(HMMA__16816__F32=65), ("more tensor", "found 65")),
        (with_loop(LDGSTS__E__BYPASS__128=15), ("kept part changed", "16 LDGSTS", "found 15")),
        (with_loop(BAR__SYNC__DEFER_BLOCKING=0), ("kept part changed", "2 BAR", "found 0")),
        (with_loop(LDSM__16__M88__4=0), ("kept part is gone", "at least 1 LDSM", "found 0")),
        (with_loop(MUFU__EX2=0), ("kept part is gone", "MUFU.EX2")),
        (with_loop(LDG__E__128=4), ("stripped part is left", "0 LDG", "4 LDG.E.128")),
        (with_loop(STS__64=1, STS=2), ("stripped part is left", "2 STS, 1 STS.64")),
        (
            replace(GOOD, spill_stores=74, spill_loads=70, local_bytes=296),
            ("spill", "74 STL", "70 LDL", "296"),
        ),
        (replace(GOOD, local_bytes=544), ("spill", "544")),
    ],
)
def test_one_broken_rule_is_one_sentence_with_both_numbers(
    inspection: Inspection, words: tuple[str, ...]
) -> None:
    broken = broken_rules(CONTRACT, inspection)
    assert len(broken) == 1
    assert all(word in broken[0] for word in words), broken


def test_the_other_accumulator_is_refused_both_ways() -> None:
    half = with_loop(HMMA__16816__F32=0, HMMA__16816__F16=64)
    broken = broken_rules(CONTRACT, half)
    assert "wrong tensor instruction" in broken[0] and "64 HMMA.16816.F16" in broken[1]
    assert broken_rules(replace(CONTRACT, mma="HMMA.16816.F16"), GOOD)
    assert broken_rules(replace(CONTRACT, mma="HMMA.16816.F32.BF16"), GOOD)


@pytest.mark.parametrize(
    "opcode", ["HGMMA.64x64x16.F32", "IMMA.16832.S8", "QMMA.16832.F32", "UTCHMMA", "HMMA.1688.F32"]
)
def test_any_other_tensor_instruction_in_the_loop_is_refused(opcode: str) -> None:
    broken = broken_rules(CONTRACT, replace(GOOD, loop={**LOOP, opcode: 1}))
    assert len(broken) == 1 and f"1 {opcode}" in broken[0]


def test_a_scalar_loop_has_no_tensor_instruction() -> None:
    scalar = replace(GOOD, loop={}, loop_instructions=0, kernel_mma={})
    broken = broken_rules(CONTRACT, scalar)
    assert len(broken) == 1 and "no tensor instruction" in broken[0] and "expected 64" in broken[0]


def test_an_mma_moved_out_of_the_loop_is_said_to_be_outside() -> None:
    hoisted = replace(GOOD, loop={}, loop_instructions=0)
    assert "only outside the loop" in broken_rules(CONTRACT, hoisted)[0]
    partly = replace(with_loop(HMMA__16816__F32=63), kernel_mma={"HMMA.16816.F32": 65})
    assert "(2 more outside the loop)" in broken_rules(CONTRACT, partly)[0]


def test_softmax_deleted_with_the_second_gemm_breaks_both_rules() -> None:
    broken = broken_rules(CONTRACT, with_loop(HMMA__16816__F32=32, MUFU__EX2=0))
    assert len(broken) == 2


def test_spills_are_allowed_where_the_contract_does_not_forbid_them() -> None:
    assert broken_rules(replace(CONTRACT, spill_free=False), replace(GOOD, spill_stores=4)) == ()


def test_a_spill_state_that_differs_from_full_is_noted() -> None:
    spilled = replace(GOOD, spill_stores=74, spill_loads=74, local_bytes=296)
    assert notes(GOOD, GOOD) == ()
    assert "also removes spills: full has 74 STL and 74 LDL" in notes(GOOD, spilled)[0]
    assert "also adds spills" in notes(spilled, GOOD)[0]
    assert "also changes spills" in notes(replace(spilled, spill_stores=73, spill_loads=75), spilled)[0]


def test_a_kept_part_of_another_number_is_noted() -> None:
    assert (
        "full has 24 LDSM per iteration, this case 12"
        in notes(with_loop(LDSM__16__M88__4=12), GOOD, ("LDSM",))[0]
    )
    assert notes(with_loop(LDSM__16__M88__4=0), GOOD, ("LDSM",)) == ()


def test_another_instruction_than_an_mma_is_counted_by_its_prefix() -> None:
    loop = {"LDSM.16.M88.4": 16, "IADD3": 32}
    found = replace(GOOD, loop=loop, kernel_mma={"LDSM.16.M88.4": 18})
    contract = Contract(mma="LDSM", mma_count=16, counts={}, absent=("HMMA", "LDS"))
    assert counted_prefix(contract) == "LDSM" and counted_prefix(CONTRACT) == ""
    assert broken_rules(contract, found) == ()
    fewer = broken_rules(contract, replace(found, loop={**loop, "LDSM.16.M88.4": 15}))
    assert len(fewer) == 1 and "expected 16 LDSM per iteration, found 15 (3 outside)" in fewer[0]
    assert "found 0" in broken_rules(contract, replace(found, loop={}, kernel_mma={}))[0]
    assert broken_rules(contract, replace(found, loop={**loop, "HMMA.16816.F32": 1}))
