"""The simulated SM: exact where the answer is arithmetic, and never more than an estimate elsewhere."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ablations
from harness import chips
from harness.answer.estimate import SPREAD, machine_of
from harness.answer.simulate import Machine, Step, period_clk, unit_of
from harness.build.build import build
from harness.build.cache import Cache
from harness.build.control import Control
from harness.build.disassembler import disassemble
from harness.build.path import usual_path
from harness.cases import make_case
from harness.pipeline.predicted import predicted_records, steps_of
from harness.progress import Quiet
from tests.test_sass import listing

H200 = Machine(tensor_clk=6.0)
MMA = "HMMA.16816.F32"


def rate(steps: list[Step], *, warps: int, ctas: int = 1, machine: Machine = H200) -> float:
    """FLOP per clock and SM."""
    mma = sum(unit_of(step.opcode) == "tensor" for step in steps)
    return ctas * warps * mma * 4096 / period_clk(steps, machine, warps=warps, ctas=ctas)


def test_dependent_mmas_take_their_latency() -> None:
    chain = [Step(opcode=MMA, stall=12), Step(opcode="NOP", stall=12)] * 8
    assert rate(chain, warps=4) == pytest.approx(4 * 4096 / 24)
    assert rate(chain, warps=1) == pytest.approx(4096 / 24)


def test_independent_mmas_fill_the_pipe_and_no_more() -> None:
    steps = [Step(opcode=MMA, stall=6)] * 32
    assert rate(steps, warps=4) == pytest.approx(8192 / 3)
    assert rate(steps, warps=8, ctas=2) == pytest.approx(8192 / 3, rel=0.02)


def test_several_warps_hide_the_latency_of_one() -> None:
    chain = [Step(opcode=MMA, stall=12), Step(opcode="NOP", stall=12)] * 8
    assert rate(chain, warps=8) == pytest.approx(8 * 4096 / 24, rel=0.01)
    assert rate(chain, warps=32) == pytest.approx(8192 / 3, rel=0.01)


def test_shared_memory_is_one_queue_of_the_sm() -> None:
    steps = [Step(opcode="LDSM.16.M88.4", stall=1, write=0), Step(opcode=MMA, stall=1, waits=1)] * 16
    assert period_clk(steps, H200, warps=16, ctas=1) == pytest.approx(16 * 16 * 4, rel=0.02)


def test_a_barrier_makes_warps_wait_for_the_slowest() -> None:
    alone = period_clk([Step(opcode="FMUL", stall=10)] * 10, H200, warps=4, ctas=1)
    with_barrier = [*[Step(opcode="FMUL", stall=10)] * 10, Step(opcode="BAR.SYNC", stall=5)]
    assert period_clk(with_barrier, H200, warps=4, ctas=1) == pytest.approx(
        alone + H200.barrier_latency, abs=3
    )


def test_a_wait_for_copies_allows_the_groups_it_names() -> None:
    def clk(groups: int) -> float:
        copies = [Step(opcode="LDGSTS.E.BYPASS.128", stall=2), Step(opcode="LDGDEPBAR", stall=1)]
        wait = Step(opcode="DEPBAR.LE", stall=1, groups=groups)
        return period_clk([*copies, wait, *[Step(opcode="FMUL", stall=4)] * 50], H200, warps=4, ctas=1)

    assert clk(0) == pytest.approx(H200.copy_latency + 4 * H200.copy_load_clk + 200, rel=0.1)
    assert clk(3) < clk(0) / 1.8


def test_copies_come_back_later_on_a_busy_sm_up_to_a_point() -> None:
    copies = [Step(opcode="LDGSTS.E.BYPASS.128", stall=2), Step(opcode="LDGDEPBAR", stall=1)]
    loop = [*copies, Step(opcode="DEPBAR.LE", stall=1, groups=0)]
    clk = [period_clk(loop, H200, warps=warps, ctas=1) for warps in (1, 2, 4, 8)]
    rises = [later - sooner for sooner, later in pairwise(clk)]
    assert rises == pytest.approx([56, 112, 224], rel=0.3)
    more = period_clk(loop, H200, warps=16, ctas=1)
    assert more - clk[-1] < 0.3 * rises[-1] + 8 * H200.copy_clk


def test_nothing_is_random() -> None:
    steps = [
        Step(opcode=MMA, stall=6),
        Step(opcode="MUFU.EX2", stall=2, write=1),
        Step(opcode="FMUL", stall=3, waits=2),
    ]
    assert period_clk(steps * 9, H200, warps=4, ctas=2) == period_clk(steps * 9, H200, warps=4, ctas=2)
    with pytest.raises(ValueError, match="no period"):
        period_clk([], H200, warps=4, ctas=1)


step = st.builds(
    Step,
    opcode=st.sampled_from(
        [MMA, "FMUL", "FMNMX", "MUFU.EX2", "LDSM.16.M88.4", "SHFL.BFLY", "NOP", "BAR.SYNC"]
    ),
    stall=st.integers(0, 15),
    write=st.sampled_from([7, 0, 1]),
    waits=st.integers(0, 3),
)


@given(steps=st.lists(step, min_size=1, max_size=30), warps=st.integers(1, 8), ctas=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_no_loop_is_faster_than_its_pipes(steps: list[Step], warps: int, ctas: int) -> None:
    clk = period_clk(steps, H200, warps=warps, ctas=ctas)
    resident = warps * ctas
    most = -(-resident // 4)  # warps of the fullest sub-partition
    tensor = sum(unit_of(s.opcode) == "tensor" for s in steps) * 6.0
    issue = float(len(steps))
    assert clk >= max(tensor, issue) * resident / 4 * 0.8 or most * 4 != resident
    assert clk >= sum(max(1, s.stall) for s in steps) * 0.8


def test_the_usual_path_skips_what_is_rare_and_keeps_copies() -> None:
    made = listing(
        "HMMA.16816.F32 R0",
        "@P0 BRA 0x40",
        "FMUL R1",
        "FMUL R2",
        "@P1 BRA 0x70",  # 4
        "LDGSTS.E R3",
        "MOV R1",
        "@P2 BRA 0x0",
        "EXIT",
    )
    path = usual_path(made, [Control(1, False, 7, 7, 0, 0)] * 9)
    assert [i.opcode for i, _ in path] == ["HMMA.16816.F32", "BRA", "BRA", "LDGSTS.E", "MOV", "BRA"]


def test_a_real_bare_loop_comes_out_as_it_was_measured(tmp_path: Path) -> None:
    study = ablations.load()["instruction"]

    def estimated(**levels: int) -> float:
        chosen = study.baseline.replace(**levels)
        case = make_case(study, chosen, study.configurations(chosen)[0], set_name="full")
        steps = steps_of(disassemble(Path(build(study, case, "sm_90a", Cache(tmp_path)).cubin_path)))
        return rate(list(steps), warps=chosen.number("warps"))

    assert estimated() == pytest.approx(2728, rel=0.04)  # measured on an H200: 2728, 682.4, 2495
    assert estimated(chains=1, warps=4) == pytest.approx(682.4, rel=0.01)
    assert estimated(warps=4) == pytest.approx(2495, rel=0.01)


def test_an_estimate_goes_with_the_bound_and_stays_under_it(tmp_path: Path) -> None:
    study, product = ablations.load()["instruction"], chips.chip("NVIDIA GeForce RTX 4090")
    assert product is not None
    case = make_case(study, study.baseline, study.configurations(study.baseline)[0], set_name="full")
    ((record, found),) = predicted_records(study, [case], product, Cache(tmp_path), Quiet())
    assert found is not None and found.estimate is not None
    assert 0.9 * found.flop_clk_sm < found.estimate <= found.flop_clk_sm
    assert record["predicted"]["estimate"] == found.estimate
    assert machine_of(product, 512, 4096).tensor_clk == 32 and SPREAD[0] < SPREAD[1] < SPREAD[2]
