"""The CPU twin: what primitives compute, how faults are reported, and every default case of every study."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import Future
from fractions import Fraction

import numpy as np
import pytest

import ablations
from harness.cases import CEILING, default_cases
from harness.check import twin_build
from harness.check.twin import run_twin, twin_available
from harness.errors import CompileError, LaunchError, ToolError
from harness.floats import as_float64, to_bfloat16
from harness.model import Array, Case, Launch, OutputSpec, Scalar, Study
from harness.render import DEVICE_HEADERS, HOST_HEADERS
from tests.twin_cases import CACHE, Ahead, kernel, run_case, run_kernel

needs_twin = pytest.mark.skipif(twin_available() is not None, reason=twin_available() or "")

# The awkward size has whole tiles, too: where a study or a configuration only rearranges, it is enough.
CASES = [
    (study, case, size)
    for study in ablations.load().values()
    for case in default_cases(study)
    if case.skip is None and study.contract(case).path == "mma.sync"
    for size in study.check_sizes(case)
    if size == "awkward" or (case.set_name != CEILING and study.name in ("attention", "instruction"))
]


# ---- every case ----


def id_of(one: tuple[Study, Case, str]) -> str:
    return f"{one[1]}-{one[2]}"


@pytest.fixture(scope="module")
def objections(request: pytest.FixtureRequest) -> Iterator[dict[str, Future[list[str]]]]:
    """The objections to each case that was asked for, worked out on all cores ahead of the tests."""
    selected = {item.callspec.id for item in request.session.items if getattr(item, "callspec", None)}
    wanted = [one for one in CASES if id_of(one) in selected]
    with Ahead() as ahead:
        yield {id_of(one): ahead.submit(judge, *one) for one in wanted}


def judge(study: Study, case: Case, size: str) -> list[str]:
    return run_case(study, case, study.check_sizes(case)[size])[1]


@needs_twin
@pytest.mark.parametrize("one", CASES, ids=id_of)
def test_case_is_right_and_sound_and_free_of_bank_conflicts(
    one: tuple[Study, Case, str], objections: dict[str, Future[list[str]]]
) -> None:
    assert objections[id_of(one)].result() == []


# ---- the two headers ----


def signatures(folder: str) -> set[str]:
    """Every primitive with its parameters, without what they are called."""
    text = (HOST_HEADERS if folder == "host" else DEVICE_HEADERS).joinpath("ptx.cuh").read_text()
    found = re.findall(
        r"__device__ __forceinline__ ([\w ]+?) (\w+)\(([^{}]*?)\)\s*(?:\{|$)", text, re.MULTILINE
    )
    return {f"{result} {name}({' '.join(parameters.split())})" for result, name, parameters in found}


def test_host_and_device_header_declare_the_same_primitives() -> None:
    assert len(signatures("device")) >= 25
    assert signatures("host") == signatures("device")


# ---- the tensor core ----

MMA = """\
    const u32 lane = thread_idx();
    u32 x[4], y[2];
    for (int i = 0; i < 4; ++i) x[i] = a[lane * 4 + i];
    for (int i = 0; i < 2; ++i) y[i] = b[lane * 2 + i];
    {declare}
    {mma}
    {store}"""
FP32 = {
    "declare": "float d[4]; for (int i = 0; i < 4; ++i) d[i] = c[lane * 4 + i];",
    "store": "for (int i = 0; i < 4; ++i) out[lane * 4 + i] = d[i];",
}
FP16 = {
    "declare": "u32 d[2] = {c[lane * 2], c[lane * 2 + 1]};",
    "store": "out[lane * 2] = d[0]; out[lane * 2 + 1] = d[1];",
}
G, T = np.arange(32) // 4, np.arange(32) % 4


def fragments_of_a(a: Array) -> Array:
    """[16, 16] -> [lane, register, half]."""
    rows, columns = np.array([0, 8, 0, 8]), np.array([0, 0, 8, 8])
    half = np.arange(2)
    return a[G[:, None, None] + rows[:, None], (2 * T)[:, None, None] + columns[:, None] + half]


def fragments_of_b(b: Array) -> Array:
    """[16, 8] -> [lane, register, half]."""
    return b[(2 * T)[:, None, None] + np.array([0, 8])[:, None] + np.arange(2), G[:, None, None]]


def fragments_of_c(c: Array) -> Array:
    """[16, 8] -> [lane, element]."""
    return c[G[:, None] + np.array([0, 0, 8, 8]), (2 * T)[:, None] + np.array([0, 1, 0, 1])]


def multiply(a: Array, b: Array, c: Array, dtype: str, chip: str = "hopper") -> Array:
    """D = A B + C by the twin, as [lane, element]; c's type is the accumulator's."""
    half = c.dtype == np.float16
    body = MMA.format(mma=f"mma({dtype}{{}}, d, x, y);", **(FP16 if half else FP32))
    accumulator = "u32" if half else "float"
    result = run_kernel(
        body,
        parameters=f"const u32* a, const u32* b, const {accumulator}* c, {accumulator}* out",
        inputs={"a": fragments_of_a(a), "b": fragments_of_b(b), "c": fragments_of_c(c)},
        outputs={"out": OutputSpec(shape=(32, 4), dtype="float16" if half else "float32")},
        chip=chip,
    )
    assert result.faults == ()
    return result.outputs["out"]


def exponent(value: float, least: int) -> int:
    return max(int(np.frexp(value)[1]) - 1, least)


def fused_sum(
    products: list[tuple[float, float]], c: float, bits: int, zero: int, least: tuple[int, int]
) -> Fraction:
    """An independent model of one addition: exact products, cut to `bits` below the largest exponent."""
    exponents = [exponent(x, least[0]) + exponent(y, least[0]) if x * y else zero for x, y in products]
    grain = Fraction(2) ** (max([*exponents, exponent(c, least[1]) if c else zero]) - bits)
    terms = [Fraction(x) * Fraction(y) for x, y in products] + [Fraction(c)]
    return grain * sum(int(term / grain) for term in terms)  # int() cuts toward zero


def cut(value: Fraction) -> np.float32:
    near = np.float32(float(value))
    return np.nextafter(near, np.float32(0)) if abs(Fraction(float(near))) > abs(value) else near


@needs_twin
@pytest.mark.parametrize(("chip", "terms", "bits"), [("hopper", 16, 25), ("ampere", 8, 24)])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_mma_rounds_as_the_published_models_do(chip: str, terms: int, bits: int, dtype: str) -> None:
    generator = np.random.default_rng(7)
    a, b = (
        (generator.standard_normal(shape) * 2.0 ** generator.integers(-9, 9, shape)).astype(np.float32)
        for shape in ((16, 16), (16, 8))
    )
    a[3, 5] = b[7, 2] = 0
    c = (generator.standard_normal((16, 8)) * 2.0 ** generator.integers(-12, 12, (16, 8))).astype(np.float32)
    c[0, 0] = 0
    a, b = (to_bfloat16(x) if dtype == "bf16" else x.astype(np.float16) for x in (a, b))
    got = multiply(a, b, c, dtype, chip)

    x, y = as_float64(a), as_float64(b)
    least = (-126 if dtype == "bf16" else -14, -126)
    want = np.empty((16, 8), np.float32)
    for i, j in np.ndindex(16, 8):
        value = c[i, j]
        for k in range(0, 16, terms):
            products = [(float(x[i, n]), float(y[n, j])) for n in range(k, k + terms)]
            value = cut(fused_sum(products, float(value), bits, -133 if bits == 25 else -132, least))
        want[i, j] = value
    np.testing.assert_array_equal(got, fragments_of_c(want))
    assert np.any(want != (x @ y + c).astype(np.float32)), "the data must tell cutting from rounding"


@needs_twin
def test_mma_with_fp16_accumulators_rounds_each_sum_once_to_nearest_even() -> None:
    generator = np.random.default_rng(8)
    a, b = (
        generator.standard_normal((16, 16)).astype(np.float16),
        generator.standard_normal((16, 8)).astype(np.float16),
    )
    c = generator.standard_normal((16, 8)).astype(np.float16)
    want = (a.astype(np.float64) @ b.astype(np.float64) + c.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(multiply(a, b, c, "fp16"), fragments_of_c(want))


@needs_twin
@pytest.mark.parametrize("accumulator", [np.float32, np.float16])
def test_mma_carries_nan_and_infinity(accumulator: type) -> None:
    a, b, c = np.zeros((16, 16), np.float16), np.ones((16, 8), np.float16), np.zeros((16, 8), accumulator)
    a[0, 0], a[1, 1], a[2, 2], a[3, :2] = np.nan, np.inf, -np.inf, (np.inf, -np.inf)
    b[2, 4] = 0  # minus infinity times zero
    c[4, 0] = np.inf
    got = multiply(a, b, c, "fp16").astype(np.float64)
    want = np.zeros((16, 8))
    want[0], want[1], want[2], want[3] = np.nan, np.inf, -np.inf, np.nan
    want[2, 4], want[4, 0] = np.nan, np.inf
    np.testing.assert_array_equal(got, fragments_of_c(want))


# ---- the other primitives ----


@needs_twin
def test_every_fp16_number_converts_to_fp32_and_back() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    numbers = bits[np.isfinite(bits.view(np.float16))]
    pairs = np.resize(numbers, 63 * 1024).view(np.uint32)
    result = run_kernel(
        """\
    for (u32 i = thread_idx(); i < n; i += 1024) {
        float low, high;
        unpack(in[i], low, high);
        out[2 * i] = low;
        out[2 * i + 1] = high;
        back[i] = pack(fp16{}, low, high);
    }""",
        parameters="const u32* in, float* out, u32* back, u32 n",
        inputs={"in": pairs},
        outputs={
            "out": OutputSpec(shape=(2 * pairs.size,), dtype="float32"),
            "back": OutputSpec(shape=(2 * pairs.size,), dtype="float16"),
        },
        scalars=(Scalar(kind="u32", value=pairs.size),),
        block=1024,
    )
    assert result.faults == ()
    np.testing.assert_array_equal(result.outputs["out"], pairs.view(np.float16).astype(np.float32))
    np.testing.assert_array_equal(result.outputs["back"].view(np.uint32), pairs)


@needs_twin
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_pack_rounds_to_nearest_even(dtype: str) -> None:
    generator = np.random.default_rng(9)
    values = generator.integers(0, 2**32, 4096, dtype=np.uint32).view(np.float32)
    values = np.where(np.isfinite(values), values, 1).astype(np.float32)
    values[:512] = (generator.standard_normal(512) * 2.0 ** generator.integers(-26, 17, 512)).astype(
        np.float32
    )
    ties = np.arange(1, 513, dtype=np.uint32) << (12 if dtype == "fp16" else 15)
    values[512:1024] = (ties + np.uint32(0x3F800000)).view(np.float32)
    result = run_kernel(
        f"""\
    for (u32 i = thread_idx(); i < 2048; i += 32)
        out[i] = pack({dtype}{{}}, in[2 * i], in[2 * i + 1]);""",
        parameters="const float* in, u32* out",
        inputs={"in": values},
        outputs={"out": OutputSpec(shape=(4096,), dtype="bfloat16" if dtype == "bf16" else "float16")},
    )
    with np.errstate(over="ignore"):
        want = to_bfloat16(values) if dtype == "bf16" else values.astype(np.float16)
    np.testing.assert_array_equal(result.outputs["out"], want)


@needs_twin
def test_pair_arithmetic_rounds_once() -> None:
    generator = np.random.default_rng(10)
    a, b = (
        (generator.standard_normal(2048) * 2.0 ** generator.integers(-14, 8, 2048)).astype(np.float16)
        for _ in "ab"
    )
    result = run_kernel(
        """\
    for (u32 i = thread_idx(); i < 1024; i += 32) {
        product[i] = multiply_pair(a[i], b[i]);
        sum[i] = add_pair(a[i], b[i]);
    }""",
        parameters="const u32* a, const u32* b, u32* product, u32* sum",
        inputs={"a": a, "b": b},
        outputs={name: OutputSpec(shape=(2048,), dtype="float16") for name in ("product", "sum")},
    )
    np.testing.assert_array_equal(result.outputs["product"], a * b)
    np.testing.assert_array_equal(result.outputs["sum"], a + b)


@needs_twin
def test_special_functions_flush_denormals_and_know_infinity() -> None:
    x = np.array([0, 1, -1, 0.5, -125.5, -127, -np.inf, 128, *np.linspace(-20, 20, 24)], np.float32)
    result = run_kernel(
        """\
    const u32 t = thread_idx();
    out[t] = exp2_fast(x[t]);
    log[t] = log2_fast(exp2_fast(x[t]));""",
        parameters="const float* x, float* out, float* log",
        inputs={"x": x},
        outputs={name: OutputSpec(shape=(32,), dtype="float32") for name in ("out", "log")},
    )
    with np.errstate(over="ignore"):
        want = np.exp2(x.astype(np.float64))
    want[5], want[7] = 0, np.inf
    np.testing.assert_allclose(result.outputs["out"], want, rtol=2**-22)
    np.testing.assert_allclose(result.outputs["log"][8:], x[8:], atol=2**-19)
    assert result.outputs["log"][6] == -np.inf


@needs_twin
def test_exchange_and_any_lane_reach_the_whole_warp_and_no_other() -> None:
    result = run_kernel(
        """\
    const float mine = static_cast<float>(thread_idx());
    out[thread_idx()] = exchange(mine, 5) + (any_lane(thread_idx() == 40) ? 1000.0f : 0.0f);""",
        block=64,
    )
    lanes = np.arange(64)
    np.testing.assert_array_equal(result.outputs["out"], (lanes ^ 5) + np.where(lanes >= 32, 1000, 0))


@needs_twin
@pytest.mark.parametrize("transposed", [False, True])
def test_matrix_load_hands_out_fragments(transposed: bool) -> None:
    load = "load_matrix_x4_transposed" if transposed else "load_matrix_x4"
    matrices = np.arange(4 * 8 * 8, dtype=np.uint16).reshape(4, 8, 8)
    result = run_kernel(
        f"""\
    DYN_SMEM(shared);
    const u32 lane = thread_idx();
    copy_async(shared_address(shared) + lane * 16, in + lane * 8);
    commit_copies();
    wait_copies<0>();
    barrier();
    u32 m[4];
    {load}(m[0], m[1], m[2], m[3], shared_address(shared) + lane * 16);
    for (int i = 0; i < 4; ++i) out[lane * 4 + i] = m[i];""",
        parameters="const u16* in, u32* out",
        inputs={"in": matrices},
        outputs={"out": OutputSpec(shape=(32, 4, 2), dtype="bfloat16")},
        shared_bytes=512,
    )
    assert result.faults == ()
    read = matrices.transpose(0, 2, 1) if transposed else matrices
    want = read[np.arange(4)[:, None], G[:, None, None], (2 * T)[:, None, None] + np.arange(2)]
    np.testing.assert_array_equal(result.outputs["out"], want)
    assert result.wavefronts_by_access["matrix_loads"] == (4, 4)


@needs_twin
def test_copy_that_is_not_inside_writes_zeros_and_one_not_wanted_writes_nothing() -> None:
    result = run_kernel(
        """\
    DYN_SMEM(shared);
    float* words = reinterpret_cast<float*>(shared);
    for (int i = 0; i < 4; ++i) words[4 * thread_idx() + i] = 7.0f;
    copy_async_or_zero(shared_address(words + 4 * thread_idx()), in, thread_idx() % 2);
    copy_async_if(shared_address(words + 4 * thread_idx()), in, false);
    commit_copies();
    wait_copies<0>();
    out[thread_idx()] = words[4 * thread_idx()];""",
        parameters="const float* in, float* out",
        inputs={"in": np.full(4, 3, np.float32)},
        shared_bytes=512,
    )
    assert result.faults == ()
    np.testing.assert_array_equal(result.outputs["out"], np.where(np.arange(32) % 2, 3, 0))


@needs_twin
def test_stamps_are_a_buffer_of_their_own() -> None:
    source = kernel(
        "    stamps[5 * blockIdx.x] = sm_id();\n    out[blockIdx.x * 32 + thread_idx()] = 1.0f;",
        "float* out, unsigned long long* stamps",
    )
    launch = Launch(grid=(3, 1, 1), block=32, shared_bytes=0, arguments=("out", "stamps"))
    result = run_twin(source, launch, {}, {"out": OutputSpec(shape=(96,), dtype="float32")}, CACHE)
    assert result.faults == () and result.outputs["out"].sum() == 96


# ---- faults ----

SHARED = """\
    DYN_SMEM(shared);
    float* words = reinterpret_cast<float*>(shared);
    const u32 t = thread_idx();
"""
LATE = "    out[t] = 0.0f;"
FAULTS = {
    "a read of what another thread wrote": (
        SHARED + "    words[t] = 1.0f;\n    out[t] = words[t ^ 1];",
        "race",
        7,
    ),
    "a write of what another thread read": (
        SHARED + "    words[t] = 1.0f;\n    barrier();\n    out[t] = words[t ^ 1];\n    words[t] = 2.0f;",
        "race",
        9,
    ),
    "two writes of one word": (SHARED + "    words[t / 2] = 1.0f;\n" + LATE, "race", 6),
    "a read of what was never written": (SHARED + "    out[t] = words[t];", "uninitialised", 6),
    "a load past shared memory": (SHARED + "    words[t] = 1.0f;\n    out[t] = words[t + 1];", "bounds", 7),
    "a store past an output": (SHARED + "    out[t] = 0.0f;\n    out[t + 1] = 0.0f;", "bounds", 7),
    "a store before an output": (
        SHARED + "    out[t] = 0.0f;\n    if (t == 0) out[t - 1] = 0.0f;",
        "bounds",
        7,
    ),
    "a wild store": (SHARED + "    *reinterpret_cast<float*>(0x123450) = 1.0f;\n" + LATE, "bounds", 6),
    "a misaligned store": (
        SHARED + "    *reinterpret_cast<float*>(shared + 8 * t + 2) = 1.0f;\n" + LATE,
        "alignment",
        6,
    ),
    "an output written twice": (
        SHARED + "    out[t] = 0.0f; barrier();\n    out[t] = 1.0f;",
        "written twice",
        7,
    ),
    "an output never written": (SHARED + "    if (t) out[t] = 0.0f;", "unwritten", None),
    "lanes at different collectives": (
        SHARED + "    float x = t % 2 ? exchange(1.0f, 1) :\n        exchange(2.0f, 1);\n    out[t] = x;",
        "divergence",
        6,
    ),
    "lanes that miss a collective": (
        SHARED + "    float x = 0;\n    if (t) x = exchange(1.0f, 1);\n    out[t] = x;",
        "deadlock",
        7,
    ),
    "threads that miss a barrier": (SHARED + "    out[t] = 0.0f;\n    if (t) barrier();", "barrier", 7),
    "threads at different barriers": (
        SHARED + "    out[t] = 0.0f;\n    if (t == 0) { barrier(); }\n    else { barrier(); }",
        "barrier",
        8,
    ),
    "a copy nobody waits for": (
        SHARED + LATE + "\n    copy_async(shared_address(words + 4 * t), out);",
        "pending",
        7,
    ),
    "a copy to a misaligned place": (
        SHARED
        + LATE
        + "\n    copy_async(shared_address(words + t), out);\n    commit_copies(); wait_copies<0>();",
        "alignment",
        7,
    ),
    "endless": (SHARED + LATE + "\n    for (volatile float* p = words;;) *p = 1.0f;", "timeout", 7),
    "too much stack": (SHARED + LATE + "\n    volatile float deep[100000]; deep[0] = 1.0f;", "crash", None),
}


@needs_twin
@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_reported_with_its_kind_and_line(name: str) -> None:
    body, kind, line = FAULTS[name]
    result = run_kernel(body, shared_bytes=128, seconds=0.5 if kind == "timeout" else 20)
    found = [fault for fault in result.faults if fault.kind == kind]
    assert found, [fault.message for fault in result.faults]
    if line is not None:
        place = f"templates/small.cu.j2:{line} (small.cu:{line})"
        assert any(place in fault.message for fault in found), [fault.message for fault in found]


@needs_twin
def test_race_names_both_places() -> None:
    result = run_kernel(SHARED + "    words[t] = 1.0f;\n    out[t] = words[t ^ 1];", shared_bytes=128)
    (race,) = (fault for fault in result.faults if fault.kind == "race" and " is read by " in fault.message)
    assert (race.place, race.other_place) == (
        "templates/small.cu.j2:7 (small.cu:7)",
        "templates/small.cu.j2:6 (small.cu:6)",
    )
    assert race.place in race.message and race.other_place in race.message


@needs_twin
def test_input_that_is_written_is_a_fault() -> None:
    result = run_kernel(
        "    in[thread_idx()] = 1.0f; out[thread_idx()] = 1.0f;",
        parameters="float* in, float* out",
        inputs={"in": np.zeros(32, np.float32)},
    )
    assert [fault.kind for fault in result.faults] == ["input written"]


@needs_twin
@pytest.mark.parametrize(
    ("waits", "kind"), [("wait_copies<1>();", "in flight"), ("", "in flight"), ("wait_copies<0>();", None)]
)
def test_copy_lands_when_its_own_group_is_waited_for(waits: str, kind: str | None) -> None:
    result = run_kernel(
        SHARED
        + f"""\
    words[4 * t] = 5.0f;
    copy_async(shared_address(words + 4 * t), in);
    commit_copies();
    {waits}
    out[t] = words[4 * t];
    wait_copies<0>();""",
        parameters="const float* in, float* out",
        inputs={"in": np.full(4, 3, np.float32)},
        shared_bytes=512,
    )
    assert [fault.kind for fault in result.faults] == ([kind] if kind else [])
    if kind:
        assert np.isnan(result.outputs["out"]).all(), "until it lands, the destination is poison"
    else:
        assert (result.outputs["out"] == 3).all()


@needs_twin
@pytest.mark.parametrize("ways", [1, 2, 4, 8])
def test_wavefronts_of_matrix_loads_copies_and_plain_accesses(ways: int) -> None:
    """Rows of 16 bytes, `ways` to the same banks: 8 rows of a matrix need `ways` passes instead of one."""
    stride = 16 * ways
    result = run_kernel(
        f"""\
    DYN_SMEM(shared);
    const u32 lane = thread_idx();
    const u32 row = shared_address(shared) + lane * {stride};
    copy_async(row, in);
    commit_copies();
    wait_copies<0>();
    barrier();
    u32 m[4];
    load_matrix_x4(m[0], m[1], m[2], m[3], row);
    out[lane] = static_cast<float>(m[0]) + reinterpret_cast<float*>(shared)[lane * {stride // 4}];""",
        parameters="const float* in, float* out",
        inputs={"in": np.zeros(4, np.float32)},
        shared_bytes=32 * stride,
    )
    assert result.faults == ()
    assert result.wavefronts_by_access["matrix_loads"] == (4 * ways, 4)
    assert result.wavefronts_by_access["copies"] == (4 * ways, 4)
    assert result.wavefronts_by_access["plain"] == (4 * ways, 1)
    assert result.wavefronts == 12 * ways and result.ideal_wavefronts == 9
    if ways > 1:
        assert any(
            f"matrix_loads make {ways:.2f} x" in text and "small.cu.j2:11" in text
            for text in result.conflicts
        )


# ---- the way there ----


@needs_twin
def test_text_that_does_not_compile_names_the_place_in_the_template() -> None:
    with pytest.raises(CompileError, match=r"templates/small\.cu\.j2:4: .*nonsense") as caught:
        run_kernel("    out[thread_idx()] = 1.0f;\n    nonsense();")
    assert "nonsense" in caught.value.detail


@needs_twin
@pytest.mark.parametrize(
    ("scalars", "says"),
    [
        ((), "the launch gives 1 arguments, the kernel has more"),
        ((Scalar(kind="u64", value=1),), "argument 1 of the kernel has 4 bytes, the launch gives 8"),
        ((Scalar(kind="i32", value=-1), Scalar(kind="f32", value=0.5)), "more than the kernel's 2 arguments"),
    ],
)
def test_launch_that_does_not_fit_the_kernel_is_a_fault(scalars: tuple[Scalar, ...], says: str) -> None:
    result = run_kernel("    out[thread_idx()] = n;", parameters="float* out, int n", scalars=scalars)
    assert [fault.kind for fault in result.faults] == ["arguments"] and says in result.faults[0].message


@needs_twin
def test_scalars_arrive_as_they_are() -> None:
    result = run_kernel(
        "    out[thread_idx()] = i + f + (p ? 1000.0f : 0.0f);",
        parameters="float* out, int i, float f, const float* p",
        scalars=(Scalar(kind="i32", value=-3), Scalar(kind="f32", value=0.25), Scalar(kind="u64", value=0)),
    )
    assert (result.outputs["out"] == -2.75).all()


@needs_twin
def test_unknown_buffer_in_a_launch_is_an_error() -> None:
    launch = Launch(grid=(1, 1, 1), block=32, shared_bytes=0, arguments=("nothing",))
    with pytest.raises(LaunchError, match="'nothing'"):
        run_twin(kernel("    out[0] = 0;"), launch, {}, {}, CACHE)


@needs_twin
def test_second_run_takes_the_program_from_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    body = "    out[thread_idx()] = 2.0f;"
    run_kernel(body)
    monkeypatch.setattr(twin_build, "_compile_kernel", None)
    assert (run_kernel(body).outputs["out"] == 2).all()


def test_missing_compiler_is_a_reason_and_not_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(twin_build.shutil, "which", lambda _: None)
    twin_build.find_compiler.cache_clear()
    try:
        reason = twin_available()
        assert reason is not None and (reason.startswith("no C++ compiler found") or "runs on" in reason)
        with pytest.raises(ToolError, match=re.escape(reason)):
            twin_build.compile_twin(kernel(""), None)
    finally:
        twin_build.find_compiler.cache_clear()
