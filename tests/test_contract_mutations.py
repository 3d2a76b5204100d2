"""The SASS contract against faults planted into real default cases: each is refused, for the right reason."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import pytest

from harness.build.artifact import Request, save_source
from harness.build.batch import make_all
from harness.build.cache import Cache
from harness.build.contract import broken_rules
from harness.build.toolkit import nvrtc_module
from harness.key import digest
from harness.model import Case, Inspection, Source, Study
from harness.render import DEVICE_HEADERS, render
from tests.studies import ATTENTION, MAIN, Pair, case_of, changed, inspections, with_text

Planted = tuple[Source, tuple[str, ...]]  # a text and the compiler options it is built with
LOST = "tensor instructions are lost"
RANDOM_FAULTS = 32
RANDOM_SWAPS = 24
COUNTED = ("dtype", "acc_dtype", "head_dim", "gemms", "softmax", "chains")  # axes that change the counts


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A way to break a kernel, the cases that it can break, and what the contract must say."""

    name: str
    plant: Callable[[Study, Case, random.Random], Planted]
    says: str
    fits: Callable[[Case], bool]


def attention(**levels: str) -> Callable[[Case], bool]:
    return lambda case: case.study == ATTENTION.name and all(case.levels[k] == v for k, v in levels.items())


def rewritten(*changes: tuple[str, str]) -> Callable[[Study, Case, random.Random], Planted]:
    return lambda study, case, generator: (changed(render(study, case), *changes), ())


def one_mma_removed(study: Study, case: Case, generator: random.Random) -> Planted:
    """One MMA of Q K^T never happens."""
    tile, steps = case.configuration, case.levels.number("head_dim") // 16
    step, pair = generator.randrange(steps), generator.randrange(tile.number("block_n") // 16)
    m = generator.randrange(tile.number("block_m") // (16 * tile.number("warps")))
    call = "mma(Input{}, scores[step % SETS][m][2 * pair + 1], a[m], b[1]);"
    place = f"if (step != {step} || pair != {pair} || m != {m}) "
    return changed(render(study, case), (call, place + call)), ()


def some_columns_not_stored(study: Study, case: Case, generator: random.Random) -> Planted:
    """The last column tiles of the result are not stored."""
    less = generator.randint(1, 3)
    return changed(
        render(study, case),
        (
            "for (int d = 0; d < D_TILES; ++d) {\n        to[",
            f"for (int d = 0; d < D_TILES - {less}; ++d) {{\n        to[",
        ),
        ("for (int n = 0; n < TILES; ++n)", f"for (int n = 0; n < TILES - {less}; ++n)"),
    ), ()


def some_chains_not_stored(study: Study, case: Case, generator: random.Random) -> Planted:
    """The accumulators of some chains are not stored."""
    stored = generator.randrange(case.levels.number("chains"))
    head, tail = render(study, case).text.split("// Every accumulator is stored")
    tail = tail.replace("chain < CHAINS", f"chain < {stored}")
    return with_text(render(study, case), f"{head}// Every accumulator is stored{tail}"), ()


def registers_capped(study: Study, case: Case, generator: random.Random) -> Planted:
    """Fewer registers than the kernel needs; launch bounds would have the last word."""
    source = render(study, case)
    text = re.sub(r" __launch_bounds__\([^)]*\)", "", source.text)
    return with_text(source, text), (f"--maxrregcount={generator.choice((96, 112, 128))}",)


def other_accumulator(study: Study, case: Case, generator: random.Random) -> Planted:
    """The text accumulates in the other type."""
    other = "f32" if case.levels["acc_dtype"] == "f16" else "f16"
    levels = case.levels.replace(acc_dtype=other)
    return render(study, case_of(study, **levels, configuration=case.configuration)), ()


def second_product_removed(study: Study, case: Case, generator: random.Random) -> Planted:
    """O += P V and the stores of O are gone, the scores are stored instead: the softmax has no reader."""
    source = render(study, case)
    start = source.text.index("        // O += P V, 16 keys at a time")
    end = source.text.index("        copies.next_stage();\n    }\n\n    softmax.store")
    text = source.text[:start] + source.text[end:]
    store = "softmax.store(output, o, lse, head_row, row, seqlen);"
    assert store in text
    raw = "store_rows_raw<M_TILES, N_TILES>(scores[0], static_cast<float*>(o), head_row, row, seqlen);"
    return with_text(source, text.replace(store, raw)), ()


FAULTS = (
    Fault(
        name="equal operands are merged",
        plant=rewritten(
            ("const int fragment = (2 * pair + i + step) % POOL;", "const int fragment = step % POOL;")
        ),
        says=LOST,
        fits=lambda case: (
            attention(smem_copy="stripped", gemms="both")(case)
            or attention(smem_copy="stripped", gemms="qk")(case)
        ),
    ),
    Fault(
        name="one MMA is missing",
        plant=one_mma_removed,
        says=LOST,
        fits=lambda case: attention()(case) and case.levels["gemms"] != "pv",
    ),
    Fault(name="some columns are dead", plant=some_columns_not_stored, says=LOST, fits=attention()),
    Fault(
        name="some chains are dead",
        plant=some_chains_not_stored,
        says=f"{LOST}|no tensor instruction",
        fits=lambda case: case.study == "instruction",
    ),
    Fault(
        name="nothing is stored",
        plant=rewritten(("if (r < rows_inside) {", "if (false) {")),
        says="no tensor instruction",
        fits=attention(),
    ),
    Fault(
        name="an ldmatrix is left in",
        plant=rewritten(
            (
                "void at_stage(u32) {}",
                "void at_stage(u32 at) { u32* a = *q_pool[0]; load_matrix_x4(a[0], a[1], a[2], a[3], at); }",
            )
        ),
        says=r"a stripped part is left: expected 0 LDSM per iteration, found 1 LDSM",
        fits=attention(smem_copy="stripped"),
    ),
    Fault(
        name="a copy is left in",
        plant=rewritten(("void copy_next() {}", "void copy_next() { copy_async(0, nullptr); }")),
        says="a stripped part is left: expected 0 LDGSTS per iteration, found 1 LDGSTS",
        fits=attention(gmem_copy="stripped"),
    ),
    Fault(
        name="a barrier is left in",
        plant=rewritten(("void tile_barrier() {}", "void tile_barrier() { barrier(); }")),
        says="a stripped part is left: expected 0 BAR per iteration, found 1 BAR",
        fits=attention(barriers="stripped"),
    ),
    Fault(
        name="full spills",
        plant=registers_capped,
        says=r"no register spill is allowed here, found [1-9]\d* STL and [1-9]\d* LDL",
        fits=lambda case: (
            attention(gemms="both", acc_dtype="f32")(case) and ATTENTION.contract(case).spill_free
        ),
    ),
    Fault(
        name="the other accumulator",
        plant=other_accumulator,
        says="wrong tensor instruction",
        # fp16 accumulators fit the registers of fp32 cases; the softmax is the same work in both.
        fits=lambda case: case.study in ("attention", "instruction") and case.levels["dtype"] == "fp16",
    ),
    Fault(
        name="the softmax goes with the second GEMM",
        plant=second_product_removed,
        says=rf"{LOST}.*expected \d+ MUFU.EX2 per iteration, found 0",
        fits=lambda case: (
            attention(gemms="both", softmax="full")(case) or attention(gemms="both", softmax="no_max")(case)
        ),
    ),
    Fault(
        name="the copy of V is missing",
        plant=rewritten(("copy_tile_if<BLOCK_N, HEAD_DIM, THREADS>(wanted, to + TILE_BYTES, v);", "")),
        says="a kept part changed: expected ([0-9]+) LDGSTS per iteration, found",
        fits=lambda case: attention(gmem_copy="kept")(case) and case.levels["gemms"] != "qk",
    ),
    Fault(
        name="no copy in the loop",
        plant=rewritten(("        copies.copy_next();\n", "")),
        says=r"a kept part changed: expected \d+ LDGSTS per iteration, found 0",
        fits=attention(gmem_copy="kept"),
    ),
    Fault(
        name="no barrier in the loop",
        plant=rewritten(("void tile_barrier() { barrier(); }", "void tile_barrier() {}")),
        says="a kept part changed: expected 1 BAR per iteration, found 0",
        fits=attention(barriers="kept"),
    ),
    Fault(
        name="one barrier too many",
        plant=rewritten(
            ("void tile_barrier() { barrier(); }", "void tile_barrier() { barrier(); barrier(); }")
        ),
        says="a kept part changed: expected 1 BAR per iteration, found 2",
        fits=attention(barriers="kept"),
    ),
    Fault(
        name="half of the row's exchange is missing",
        plant=rewritten(("best = max_of(best, exchange(best, 2));", "")),
        says=r"a kept part changed: expected \d+ SHFL per iteration, found",
        fits=attention(softmax="full"),
    ),
)
BY_NAME = {fault.name: fault for fault in FAULTS}


def told(study: Study, case: Case, inspection: Inspection) -> str:
    """What the contract of the case says of a kernel; empty when nothing is wrong."""
    return "; ".join(broken_rules(study.contract(case), inspection))


@cache
def planted() -> tuple[tuple[Fault, str, str], ...]:
    """One case for each fault and RANDOM_FAULTS more, seeded: fault, case, and what the contract says."""
    generator = random.Random(20)
    chosen: list[tuple[Fault, Pair, Planted]] = []
    for fault in [*FAULTS, *generator.choices(FAULTS, k=RANDOM_FAULTS)]:
        study, case = generator.choice([pair for pair in MAIN if fault.fits(pair[1])])
        chosen.append((fault, (study, case), fault.plant(study, case, generator)))
    made = inspections([p[0] for *_, p in chosen], options=[p[1] for *_, p in chosen])
    return tuple(
        (fault, str(case), told(study, case, inspection))
        for (fault, (study, case), _), inspection in zip(chosen, made, strict=True)
    )


@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault.name for fault in FAULTS])
def test_each_fault_in_a_default_case_is_refused_with_its_reason(number: int) -> None:
    fault, case, text = planted()[number]
    assert fault is FAULTS[number]
    assert re.search(fault.says, text), f"{case}: {text or 'nothing was refused'}"


def test_faults_drawn_at_random_are_refused_with_their_reason() -> None:
    accepted = [
        f"{fault.name} in {case}: {text or 'nothing was refused'}"
        for fault, case, text in planted()[len(FAULTS) :]
        if not re.search(fault.says, text)
    ]
    assert accepted == []


def test_the_cases_without_a_fault_are_not_refused() -> None:
    # The faults above are refused for what was planted, and not for what was there before.
    chosen = random.Random(21).sample(MAIN, 16)
    made = inspections([render(study, case) for study, case in chosen])
    assert [told(*pair, inspection) for pair, inspection in zip(chosen, made, strict=True)] == [""] * 16


def test_a_case_with_the_text_of_another_level_is_refused() -> None:
    generator = random.Random(22)
    swaps: list[tuple[Study, Case, Case]] = []
    while len(swaps) < RANDOM_SWAPS:
        study, case = generator.choice(MAIN)
        # How the same instructions are spread over warps, sets, stages and residents, no count of them tells.
        seen = [s for s in study.switches if (s.is_part or s.name in COUNTED) and len(s.levels) > 1]
        if not seen:
            continue
        switch = generator.choice(seen)
        level = generator.choice([level for level in switch.levels if level != case.levels[switch.name]])
        levels = case.levels.replace(**{switch.name: level})
        if study.constraint(levels, case.configuration) is None:
            swaps.append((study, case, case_of(study, **levels, configuration=case.configuration)))
    made = inspections([render(study, other) for study, _, other in swaps])
    accepted = [
        f"{case} with the text of {other.name}"
        for (study, case, other), inspection in zip(swaps, made, strict=True)
        if not told(study, case, inspection)
    ]
    assert accepted == []


def test_mmas_moved_out_of_the_loop_are_refused(tmp_path: Path) -> None:
    # Without `volatile` the compiler moves what does not change out of the loop; here it does so for sm_120a.
    header = (DEVICE_HEADERS / "ptx.cuh").read_text()
    assert 'asm volatile("mma' in header
    (tmp_path / "ptx.cuh").write_text(header.replace('asm volatile("mma', 'asm("mma'))
    levels = {"gmem_copy": "stripped", "barriers": "stripped", "smem_copy": "stripped", "softmax": "none"}
    case = case_of(ATTENTION, **levels)
    source = render(ATTENTION, case)
    source = replace(source, digest=digest(source.text, "without volatile"))
    cache = Cache(tmp_path / "cache")
    request = Request(
        source=source, source_path=save_source(source, cache), arch="sm_120a", include_dir=tmp_path
    )
    nvrtc_module()
    made = make_all([request], cache)[request.key]
    assert isinstance(made, tuple), made
    text = told(ATTENTION, case, made[1])
    assert LOST in text and "more outside the loop" in text
