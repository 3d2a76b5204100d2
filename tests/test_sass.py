"""The disassembler and the main loop: what is counted, where, and that a failure is never a count of zero."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import kernels
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kernels import source, write

from harness.build.disassembler import Instruction, Listing, disassemble, disassemble_all
from harness.build.elf import kernel_code
from harness.build.loops import closed_loops
from harness.build.nvrtc import compile_cubin
from harness.build.sass import (
    code_hash,
    dump_inspection,
    inspect_cubin,
    inspect_listing,
    loop_text,
    main_loop,
    parse_inspection,
)
from harness.errors import ToolError
from harness.model import Inspection

LOG = "8 bytes stack frame, 0 bytes spill stores\nUsed 40 registers, used 1 barriers, 1024 bytes smem"


def compiled(folder: Path, text: str, arch: str, **options: object) -> tuple[Path, str]:
    made = compile_cubin(source(text), arch, include_dir=None, **options)  # type: ignore[arg-type]
    return write(folder / f"{kernels.digest(text)[:8]}-{arch}.cubin", made.cubin), made.log


def inspected(folder: Path, text: str, arch: str, **options: object) -> Inspection:
    return inspect_cubin(*compiled(folder, text, arch, **options))


def listing(*rows: str) -> Listing:
    """A listing from lines such as "@P0 BRA 0x10"."""
    made = []
    for index, row in enumerate(rows):
        words = row.split(" ")
        predicate = words.pop(0) if words[0].startswith("@") else ""
        made.append(Instruction(16 * index, predicate, words[0], " ".join(words[1:])))
    return Listing(path=Path("hand.cubin"), instructions=tuple(made))


@pytest.mark.parametrize("arch", ["sm_80", "sm_100a", "sm_120a"])
def test_one_mma_in_the_loop_is_counted_once(tmp_path: Path, arch: str) -> None:
    found = inspected(tmp_path, kernels.STORED_BEHIND_FLAG, arch)
    assert found.loop["HMMA.16816.F32"] == 1
    assert found.kernel_mma == {"HMMA.16816.F32": 1}
    assert found.registers > 0 and found.spill_stores == found.spill_loads == found.local_bytes == 0


@pytest.mark.parametrize("arch", ["sm_89", "sm_90a"])
def test_a_result_that_is_not_stored_leaves_no_mma(tmp_path: Path, arch: str) -> None:
    found = inspected(tmp_path, kernels.NOT_STORED, arch)
    assert found.kernel_mma == {} and found.loop == {} and found.loop_instructions == 0


@pytest.mark.parametrize("arch", ["sm_80", "sm_89", "sm_90a"])
def test_identical_mmas_are_merged_and_distinct_ones_kept(tmp_path: Path, arch: str) -> None:
    # ptxas 13.5 leaves 1 of 4 on sm_80 and sm_90a, 3 of 4 on sm_89, "asm volatile" or not.
    assert inspected(tmp_path, kernels.MERGED, arch).loop["HMMA.16816.F32"] < 4
    assert inspected(tmp_path, kernels.DISTINCT, arch).loop["HMMA.16816.F32"] == 4


def test_the_accumulator_is_part_of_the_opcode(tmp_path: Path) -> None:
    assert inspected(tmp_path, kernels.HALF, "sm_89").kernel_mma == {"HMMA.16816.F16": 1}
    assert inspected(tmp_path, kernels.ONE, "sm_89").kernel_mma == {"HMMA.16816.F32": 1}


def test_a_register_cap_shows_as_spills_and_not_in_the_mma_count(tmp_path: Path) -> None:
    plain = inspected(tmp_path, kernels.SPILL, "sm_89")
    capped = inspected(tmp_path, kernels.SPILL, "sm_89", options=("--maxrregcount=40",))
    assert plain.loop["HMMA.16816.F32"] == capped.loop["HMMA.16816.F32"] == 16
    assert plain.spill_stores == plain.spill_loads == plain.local_bytes == 0
    assert capped.registers == 40 and min(capped.spill_stores, capped.spill_loads, capped.local_bytes) > 0
    assert plain.code_hash != capped.code_hash


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_many_at_once_give_what_each_gives_alone(tmp_path: Path, arch: str) -> None:
    texts = [kernels.ONE, kernels.BUSY, kernels.SPILL]
    paths = [compiled(tmp_path, text, arch)[0] for text in texts]
    assert kernel_code(paths[0].read_bytes(), "x")
    together = disassemble_all(paths, arch)
    for path, one in zip(paths, together, strict=True):
        alone = disassemble(path)
        assert isinstance(one, Listing)
        assert code_hash(one.instructions) == code_hash(alone.instructions)
        assert [i.opcode for i in one.instructions] == [i.opcode for i in alone.instructions]
        assert main_loop(one).counts == main_loop(alone).counts


def test_slow_paths_behind_the_last_exit_do_not_move_the_loop(tmp_path: Path) -> None:
    path, log = compiled(tmp_path, kernels.BUSY, "sm_80")
    found = disassemble(path)
    loop = main_loop(found)
    last_exit = max(i.address for i in found.instructions if i.opcode == "EXIT")
    assert any(
        i.opcode == "BRA" and i.address > last_exit and (i.target or 0) < last_exit
        for i in found.instructions
    )
    assert loop.instructions[-1].address < last_exit
    counts = inspect_listing(found, log).loop
    assert counts["HMMA.16816.F32"] == 1 and counts["SHFL.BFLY"] == 2


def test_damaged_cubins_are_errors_that_name_file_and_tool(tmp_path: Path) -> None:
    good, _ = compiled(tmp_path, kernels.ONE, "sm_80")
    data = good.read_bytes()
    for name, damaged in (
        ("short", data[:-1]),
        ("empty", b""),
        ("text", b"not a cubin"),
        ("half", data[:900]),
    ):
        path = write(tmp_path / f"{name}.cubin", damaged)
        with pytest.raises(ToolError, match="nvdisasm") as caught:
            disassemble(path)
        assert str(path) in caught.value.message and "\n" not in caught.value.message
        with pytest.raises(ToolError, match=name):
            kernel_code(damaged, str(path))
        mixed = disassemble_all([good, path, good], "sm_80")
        assert (
            isinstance(mixed[0], Listing)
            and isinstance(mixed[1], ToolError)
            and isinstance(mixed[2], Listing)
        )


def fake_tool(folder: Path, script: str) -> Path:
    path = folder / "fake-nvdisasm"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "match"),
    [
        ("echo 'invalid ELF' >&2; exit 3", "exit status 3: invalid ELF"),
        ("exit 0", "no listing"),
        ("echo '[{}, []]'", "found 0"),
        ("""echo '[{}, [{"function-name": "k", "sass-instructions": []}]]'""", "no instructions"),
    ],
)
def test_a_disassembler_that_fails_or_says_nothing_is_an_error(
    tmp_path: Path, script: str, match: str
) -> None:
    path = write(tmp_path / "x.cubin", b"x")
    with pytest.raises(ToolError, match=match):
        disassemble(path, fake_tool(tmp_path, script))
    with pytest.raises(ToolError, match="cannot be run"):
        disassemble(path, tmp_path / "absent")


def test_a_log_without_registers_is_an_error() -> None:
    with pytest.raises(ToolError, match="registers"):
        inspect_listing(listing("EXIT"), "nothing")


def test_resources_come_from_the_log() -> None:
    found = inspect_listing(listing("STL [R1]", "STL.64 [R1]", "LDL.LU R0", "EXIT"), LOG)
    assert (found.registers, found.shared_bytes, found.local_bytes) == (40, 1024, 8)
    assert (found.spill_stores, found.spill_loads) == (2, 1)


@pytest.mark.parametrize(
    "branch", ["@P0 BRA 0x10", "BRA P0,0x10", "BRA.U UP0,0x10", "@!P3 BRA P1,0x10", "BRA 0x10"]
)
def test_every_spelling_of_a_branch_closes_a_loop(branch: str) -> None:
    made = listing(
        "MOV R1", "HMMA.16816.F32 R4", "NOP", "FADD R1", branch, "HMMA.16816.F32 R8", "EXIT", "BRA 0x70"
    )
    found = inspect_listing(made, LOG)
    assert found.loop == {"BRA.U" if "UP0" in branch else "BRA": 1, "FADD": 1, "HMMA.16816.F32": 1}
    assert found.loop_instructions == 3
    assert found.kernel_mma == {"HMMA.16816.F32": 2}


def test_addresses_beyond_four_hex_digits_are_kept() -> None:
    rows = ["MOV R1"] * 5000 + ["HMMA.16816.F32 R4", f"@P0 BRA {16 * 5000:#x}", "EXIT"]
    loop = main_loop(listing(*rows))
    assert [i.address for i in loop.instructions] == [80000, 80016]


def test_the_loop_with_most_mmas_wins_and_of_equals_the_shortest() -> None:
    few = ["HMMA.16816.F32 R4", "@P0 BRA 0x0"]
    many = [
        "FADD R0",
        "HMMA.16816.F32 R4",
        "HMMA.16816.F32 R8",
        "@P0 BRA 0x30",
        "FADD R1",
        "@P1 BRA 0x20",
        "EXIT",
    ]
    loop = main_loop(listing(*few, *many))
    assert loop.counts == {"BRA": 1, "HMMA.16816.F32": 2}


def test_a_self_branch_is_no_loop_and_a_loop_without_mma_is_not_the_main_loop() -> None:
    assert not main_loop(listing("HMMA.16816.F32 R4", "EXIT", "BRA 0x20")).instructions
    assert not main_loop(listing("FFMA R4", "@P0 BRA 0x0", "HMMA.16816.F32 R4", "EXIT")).instructions


def test_a_jump_back_from_behind_the_exit_is_no_loop() -> None:
    rows = ["MOV R0", "HMMA.16816.F32 R4", "BRA.DIV UR4,0x70", "SHFL R1", "@P0 BRA 0x10", "HMMA.16816.F32 R4"]
    made = listing(*rows, "EXIT", "SHFL R1", "BRA 0x30", "BRA 0x90")
    assert [i.address for i in main_loop(made).instructions] == [16, 32, 48, 64]


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 60), st.booleans()), max_size=12))
def test_loops_of_any_graph_are_backward_and_inside(branches: list[tuple[int, int, bool]]) -> None:
    targets = {branch: target for branch, target, _ in branches}
    ends = {branch for branch, _, always in branches if always}
    for first, last in closed_loops(41, targets, ends):
        assert 0 <= first < last <= 40 and targets[last] == first


def test_the_hash_ignores_padding_and_sees_everything_else() -> None:
    base = listing("FADD R0,R1", "@P0 BRA 0x0", "EXIT").instructions
    padded = listing("FADD R0,R1", "@P0 BRA 0x0", "EXIT", "NOP", "NOP").instructions
    assert code_hash(base) == code_hash(padded)
    for other in (("FADD R0,R2", "@P0 BRA 0x0", "EXIT"), ("FADD R0,R1", "@P1 BRA 0x0", "EXIT")):
        assert code_hash(listing(*other).instructions) != code_hash(base)


def test_an_inspection_survives_its_json() -> None:
    found = inspect_listing(listing("HMMA.16816.F32 R4", "@P0 BRA 0x0", "EXIT"), LOG)
    assert parse_inspection(dump_inspection(found)) == found
    assert parse_inspection(b"{}") is None and parse_inspection(b"[") is None
    assert replace(found, registers=1) != found


def test_the_loop_text_numbers_the_mmas() -> None:
    text = loop_text(listing("HMMA.16816.F32 R4,R8", "@P0 BRA 0x0", "EXIT"))
    assert "HMMA.16816.F32 R4,R8;  // MMA 1" in text and "@P0 BRA" in text
    assert "no loop" in loop_text(listing("EXIT"))


def test_an_instruction_that_is_never_executed_is_not_counted() -> None:
    dead = Instruction(0, "@!PT", "LDS", "RZ, [RZ]")
    assert dead.does_nothing
    assert not Instruction(0, "@!P0", "LDS", "R0, [R1]").does_nothing


def test_a_helper_function_of_the_compiler_is_no_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [{"opcode": "EXIT", "operands": ""}]
    found = [
        {"function-name": "full", "sass-instructions": rows},
        {"function-name": "$__internal_0_$__cuda_sm20_rcp_rn_f32_slowpath", "sass-instructions": rows * 2},
    ]
    monkeypatch.setattr("harness.build.disassembler._run", lambda *_: found)
    assert len(disassemble(tmp_path / "x.cubin", Path("nvdisasm")).instructions) == 1
    monkeypatch.setattr("harness.build.disassembler._run", lambda *_: [found[0], found[0]])
    with pytest.raises(ToolError, match="one kernel is expected"):
        disassemble(tmp_path / "x.cubin", Path("nvdisasm"))


def test_the_loop_may_be_found_by_another_instruction() -> None:
    rows = ("MUFU.EX2 R0, R0", "MUFU.EX2 R1, R1", "MUFU.RCP R2, R2", "FADD R3, R3, R0", "@P0 BRA 0x0", "EXIT")
    assert main_loop(listing(*rows)).counts == {}
    assert main_loop(listing(*rows), "MUFU.EX2").counts["MUFU.EX2"] == 2
    assert main_loop(listing(*rows), "MUFU.EX").counts == {}
