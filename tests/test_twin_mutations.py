"""Faults planted into the rendered kernels, one at a time: the CPU twin objects and names the place."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from ablations import attention, instruction
from harness.cases import make_case
from harness.check.twin import twin_available
from harness.model import Case, Study, Values
from harness.render import render
from tests.twin_cases import Ahead, mutate, run_case

pytestmark = pytest.mark.skipif(twin_available() is not None, reason=twin_available() or "")

SIZES = Values(batch=1, heads=2, seqlen=200)  # a short tile of rows and one of keys, an even number of each
ODD_SIZES = Values(batch=1, heads=2, seqlen=201)
NUMBERS = r"(o|lse|d)\[\d+(, \d+)*\]: got "
LOAD_K = r"templates/parts/smem_copy_kept.cuh:\d+"


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """Replacements in the kernel of a case, and what one of the objections must say."""

    name: str
    changes: tuple[tuple[str, str], ...]
    says: str
    levels: tuple[tuple[str, str | int], ...] = ()
    stages: int = 2
    sizes: Values = SIZES


def replaced(
    name: str, old: str, new: str, says: str, sizes: Values = SIZES, stages: int = 2, **levels: str | int
) -> Mutation:
    return Mutation(
        name=name, changes=((old, new),), says=says, sizes=sizes, stages=stages, levels=tuple(levels.items())
    )


K_START = "k = k_tile + tile_offset<HEAD_DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2);"
V_START = "v = v_tile + tile_offset<HEAD_DIM>(lane % 16, lane / 16);"
WAIT_AND_BARRIER = "copies.wait();\n        tile_barrier();\n"
COPY_IN_LOOP = (
    "        // The next copies fly under the softmax and the second product.\n        copies.copy_next();\n"
)

MEMORY = (
    replaced(
        "swizzle wrong where K is read", K_START, K_START.replace("lane / 8 % 2", "lane / 8 % 2 ^ 1"), NUMBERS
    ),
    replaced(
        "swizzle wrong where V is read", V_START, V_START.replace("lane % 16,", "lane % 16 ^ 1,"), NUMBERS
    ),
    replaced(
        "swizzle wrong where tiles are written",
        "tile_offset<COLUMNS>(row, chunk);",
        "tile_offset<COLUMNS>(row ^ 1, chunk);",
        NUMBERS,
    ),
    replaced(
        "swizzle absent on both sides",
        "((chunk ^ (row & 7)) << 4)",
        "(chunk << 4)",
        r"bank conflicts: matrix_loads make 8\.00 x .* " + LOAD_K,
    ),
    replaced(
        "barrier dropped",
        "void tile_barrier() { barrier(); }",
        "void tile_barrier() {}",
        r"race: .*no barrier between; at " + LOAD_K,
    ),
    replaced(
        "barrier dropped after the wait without copies in the loop",
        "wait_copies<0>();\n        barrier();",
        "wait_copies<0>();\n",
        r"race: .* at " + LOAD_K,
        gmem_copy="stripped",
        barriers="stripped",
    ),
    replaced("wait dropped", "{ wait_copies<STAGES - 2>(); }", "{}", r"in flight: .* at " + LOAD_K),
    replaced(
        "wait one group short",
        "wait_copies<STAGES - 2>",
        "wait_copies<STAGES - 1>",
        r"in flight: .* at " + LOAD_K,
    ),
    replaced(
        "wait one group short with three stages",
        "wait_copies<STAGES - 2>",
        "wait_copies<STAGES - 1>",
        r"in flight: .* at " + LOAD_K,
        stages=3,
    ),
    replaced(
        "wait after the barrier",
        WAIT_AND_BARRIER,
        "tile_barrier();\n        copies.wait();\n",
        r"race: .* at " + LOAD_K,
    ),
    replaced(
        "commit dropped",
        "        commit_copies();\n        k -=",
        "\n        k -=",
        r"pending: .* at templates/parts/tile.cuh:\d+",
    ),
    Mutation(
        name="copies before the wait and the barrier",
        changes=(
            (COPY_IN_LOOP, "\n\n"),
            (WAIT_AND_BARRIER, "copies.copy_next(); copies.wait();\n        tile_barrier();\n"),
        ),
        says=r"race: .*overwritten by a copy.* templates/parts/tile.cuh:\d+",
    ),
    replaced(
        "copy into the stage that is read",
        "to = ring + write_offset;",
        "to = ring + read_offset;",
        r"race: .*overwritten by a copy.* templates/parts/tile.cuh:\d+",
    ),
    replaced(
        "stale tile: the stage read is not advanced",
        "read_offset = stage_after(read_offset);",
        ";",
        r"in flight: .* at " + LOAD_K,
    ),
    replaced(
        "stale tile: the tile copied is not advanced", "        k -= BLOCK_N * HEAD_DIM;\n", "\n", NUMBERS
    ),
    replaced(
        "tile off by 8 bytes",
        "k_tile = q_tile + Q_BYTES;",
        "k_tile = q_tile + Q_BYTES + 8;",
        r"alignment: .* at templates/parts/tile.cuh:\d+",
    ),
    replaced(
        "a tile copied one pass short",
        "first < ROWS;",
        "first + ROWS_PER_PASS < ROWS;",
        r"uninitialised: .* at " + LOAD_K,
    ),
    replaced(
        "Q not copied before it is read",
        "copy_tile_or_zero<BLOCK_M, HEAD_DIM, THREADS>(q_tile, q, seqlen - cta_row);",
        "",
        r"uninitialised: .* at " + LOAD_K,
    ),
    replaced(
        "rows beyond the end copied",
        "const bool inside = static_cast<int>(row + first) < rows_inside;",
        "const bool inside = true;",
        r"bounds: a copy from global memory .* past the end of [qkv] .* at templates/parts/tile.cuh:\d+",
    ),
    replaced(
        "one tile too many copied",
        "wanted = tiles_left > 0;",
        "wanted = tiles_left >= 0;",
        r"(bounds|pending): .* at templates/parts/tile.cuh:\d+",
    ),
    replaced(
        "barrier in three of four warps",
        "void tile_barrier() { barrier(); }",
        "void tile_barrier() { if (thread_idx() < 96) barrier(); }",
        r"(barrier|deadlock): .*templates/parts/",
    ),
    replaced(
        "shuffle by half of the lanes",
        "best = max_of(best, exchange(best, 1));",
        "if (thread_idx() % 2) best = max_of(best, exchange(best, 1));",
        r"divergence: .* at templates/parts/softmax_full.cuh:\d+",
    ),
    replaced(
        "rows stored four apart, not eight",
        "r = row + 16 * m + 8 * half;",
        "r = row + 16 * m + 4 * half;",
        r"written twice: .* at templates/parts/(store|softmax_full).cuh:\d+",
    ),
    replaced(
        "rows stored beyond the end",
        "if (r < rows_inside) {",
        "if (true) {",
        r"(bounds|written twice): .* at templates/parts/(store|softmax_full).cuh:\d+",
    ),
    replaced(
        "half of O not stored",
        "d < D_TILES; ++d) {\n        to[4 * d]",
        "d < D_TILES / 2; ++d) {\n        to[4 * d]",
        r"unwritten: .* output o",
    ),
)

NUMERIC = (
    replaced("V not transposed", "load_matrix_x4_transposed(b[0][0]", "load_matrix_x4(b[0][0]", NUMBERS),
    replaced(
        "V column tiles swapped",
        "load_matrix_x4_transposed(b[0][0], b[0][1], b[1][0], b[1][1]",
        "load_matrix_x4_transposed(b[1][0], b[1][1], b[0][0], b[0][1]",
        NUMBERS,
    ),
    replaced(
        "K fragment transposed",
        "load_matrix_x4(b[0][0], b[0][1], b[1][0], b[1][1]",
        "load_matrix_x4(b[0][0], b[1][0], b[0][1], b[1][1]",
        NUMBERS,
    ),
    replaced(
        "Q quadrants swapped",
        "load_matrix_x4(a[0], a[1], a[2], a[3], chunk_address(q + m",
        "load_matrix_x4(a[0], a[2], a[1], a[3], chunk_address(q + m",
        NUMBERS,
    ),
    replaced(
        "P halves swapped",
        "p[0][i] = pack(Input{}, low, high);",
        "p[0][i] = pack(Input{}, high, low);",
        NUMBERS,
    ),
    replaced("rescale of O missing", "scale_rows(output[m][d], factor[0], factor[1]);", ";", NUMBERS),
    replaced(
        "rescale of O missing, seldom rescaled",
        "scale_rows(output[m][d], factor[0], factor[1]);",
        ";",
        NUMBERS,
        head_dim=128,
    ),
    replaced(
        "rescale of rows 8 to 15 missing",
        "scale_rows(output[m][d], factor[0], factor[1]);",
        "scale_rows(output[m][d], factor[0], 1.0f);",
        NUMBERS,
    ),
    replaced("rescale of the row sums missing", "row_sum[m][half] *= factor[half];", ";", NUMBERS),
    replaced(
        "rescale with fp16 accumulators missing",
        "scale_rows(output[m][d], factor[0], factor[1]);",
        ";",
        NUMBERS,
        acc_dtype="f16",
    ),
    replaced("maximum over half a quad", "best = max_of(best, exchange(best, 2));", ";", NUMBERS),
    replaced("row sum over half a quad", "sum += exchange(sum, 2);", ";", NUMBERS),
    replaced(
        "maximum only ever set by the first tile",
        "if (RESCALE_LOG2 == 0 || any_lane(outgrown)) {",
        "if (row_max[0][0] == minus_infinity()) {",
        NUMBERS,
        head_dim=128,
    ),
    replaced("last tile left out", "tile >= 0; --tile", "tile > 0; --tile", NUMBERS),
    replaced("one tile too many", "tile >= 0; --tile", "tile >= -1; --tile", NUMBERS),
    replaced(
        "one tile too many of one product",
        "tile >= 0; --tile",
        "tile >= -1; --tile",
        NUMBERS,
        gemms="qk",
        softmax="none",
    ),
    replaced("tail mask one column late", "if (columns_inside <= 0) {", "if (columns_inside < 0) {", NUMBERS),
    replaced(
        "tail mask one column late, odd length",
        "if (columns_inside <= 1) {",
        "if (columns_inside < 1) {",
        NUMBERS,
        ODD_SIZES,
    ),
    replaced(
        "tail mask one column early, odd length",
        "if (columns_inside <= 0) {",
        "if (columns_inside <= 1) {",
        NUMBERS,
        ODD_SIZES,
    ),
    replaced("tail mask missing", "softmax.mask(scores[0], seqlen - tile * BLOCK_N);", ";", NUMBERS),
    replaced(
        "tail mask with the other infinity", "0xfc000000u", "0x7c000000u", NUMBERS, ODD_SIZES, acc_dtype="f16"
    ),
    replaced(
        "accumulator set left out of two",
        "set = 1; set < SETS;",
        "set = 1; set < SETS - 1;",
        NUMBERS,
        accumulators=2,
    ),
    replaced(
        "accumulator set left out of four",
        "set = 1; set < SETS;",
        "set = 1; set < SETS - 1;",
        NUMBERS,
        accumulators=4,
    ),
    replaced("scores not cleared", "clear_all(scores[set]);", ";", NUMBERS),
    replaced("O not normalised", "reciprocal_fast(sum),", "1.0f,", NUMBERS),
    replaced("all heads read the values of the first", "    v += head * head_elements;\n", "\n", NUMBERS),
    replaced(
        "row sum of the rounded weights' neighbours",
        "row_sum[m][half] += low + high;",
        "row_sum[m][half] += low + low;",
        NUMBERS,
    ),
    replaced("bf16 read as fp16", "typedef bf16 Input;", "typedef fp16 Input;", NUMBERS, dtype="bf16"),
    replaced(
        "register pool turned wrong",
        "fragment = (2 * pair + i + step) % POOL;",
        "fragment = (2 * pair + i) % POOL;",
        NUMBERS,
        smem_copy="stripped",
    ),
    replaced(
        "P from one step only",
        "2 * step));\n        }\n    }\n\n#pragma unroll 1",
        "0));\n        }\n    }\n\n#pragma unroll 1",
        NUMBERS,
        gemms="pv",
        softmax="none",
    ),
    replaced(
        "raw score bits in another order",
        "[2 * step + i / REGISTERS][i % REGISTERS]",
        "[2 * step + i % 2][i / OPERANDS % REGISTERS]",
        NUMBERS,
        softmax="none",
    ),
)


ATTENTION = (*MEMORY, *NUMERIC)


def name_of(mutation: Mutation) -> str:
    return mutation.name.replace(" ", "_")


def attention_case(mutation: Mutation) -> Case:
    levels = attention.STUDY.baseline.replace(**dict(mutation.levels))
    configuration = attention.configurations(levels)[0].replace(stages=mutation.stages)
    return make_case(attention.STUDY, levels, configuration, set_name="full")


Verdict = Future[list[str]]


@pytest.fixture(scope="module")
def verdicts(request: pytest.FixtureRequest) -> Iterator[dict[str, Verdict]]:
    """The objections to each planted fault that was asked for, worked out on all cores ahead of the tests."""
    selected = {item.callspec.id for item in request.session.items if getattr(item, "callspec", None)}
    wanted = [mutation for mutation in ATTENTION if name_of(mutation) in selected]
    with Ahead() as ahead:
        yield {m.name: ahead.submit(objections_to, attention.STUDY, attention_case(m), m) for m in wanted}


def objections_to(study: Study, case: Case, mutation: Mutation) -> list[str]:
    source = mutate(render(study, case), *mutation.changes)
    return run_case(study, case, mutation.sizes, source=source)[1]


def says(objections: list[str], pattern: str) -> bool:
    return any(re.search(pattern, text) for text in objections)


@pytest.mark.parametrize("mutation", ATTENTION, ids=name_of)
def test_planted_fault_is_caught_and_its_place_named(
    mutation: Mutation, verdicts: dict[str, Verdict]
) -> None:
    objections = verdicts[mutation.name].result()
    assert says(objections, mutation.says), "\n".join(objections) or "nobody objects"


@pytest.mark.parametrize("sizes", [SIZES, ODD_SIZES], ids=["even", "odd"])
@pytest.mark.parametrize("levels", sorted({(m.levels, m.stages) for m in ATTENTION}, key=repr), ids=repr)
def test_nobody_objects_to_a_kernel_without_a_planted_fault(
    levels: tuple[tuple[tuple[str, str | int], ...], int], sizes: Values
) -> None:
    case = attention_case(Mutation(name="", changes=(), says="", levels=levels[0], stages=levels[1]))
    assert run_case(attention.STUDY, case, sizes)[1] == []


def test_too_little_shared_memory_is_out_of_bounds() -> None:
    study = attention.STUDY
    case = make_case(study, study.baseline, attention.configurations(study.baseline)[0], set_name="full")
    launch = study.launch(case, SIZES)
    short = dataclasses.replace(launch, shared_bytes=launch.shared_bytes - 128)
    objections = run_case(study, case, SIZES, launch=short)[1]
    assert says(objections, r"bounds: a copy .* at templates/parts/tile.cuh:\d+")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("b_fragments[(step + chain) % B_POOL]", "b_fragments[step % 2]"),
        ("trip < trips; ++trip", "trip < trips - 1; ++trip"),
        ("mma(Input{}, sums[chain], a_fragments[chain]", "mma(Input{}, sums[chain], a_fragments[0]"),
    ],
    ids=["wrong operand", "one trip short", "one chain's operand for all"],
)
def test_planted_fault_in_the_instruction_kernel_is_caught(old: str, new: str) -> None:
    study = instruction.STUDY
    levels = study.baseline.replace(chains=4)
    case = make_case(study, levels, study.configurations(levels)[0], set_name="full")
    sizes = study.check_sizes(case)["small"]
    assert run_case(study, case, sizes)[1] == []
    mutation = Mutation(name="", changes=((old, new),), says=NUMBERS, sizes=sizes)
    assert says(objections_to(study, case, mutation), NUMBERS)
