"""Small hand-written kernels for the tests of harness/build, and what turns a text into a Source."""

from __future__ import annotations

from pathlib import Path

from harness.build.artifact import Request, make_artifact, save_source
from harness.build.cache import Cache
from harness.key import digest
from harness.model import Case, Source, Values

PTX = """\
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                 "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_half(unsigned (&d)[2], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1},{%2,%3,%4,%5},{%6,%7},{%0,%1};"
                 : "+r"(d[0]), "+r"(d[1]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
"""

_SIGNATURE = 'extern "C" __global__ void kernel(float* out, const unsigned* in, int trips, int flag) {\n'
_LOAD = (
    "unsigned a[4], b[8];\n"
    "for (int i = 0; i < 4; ++i) a[i] = in[i];\n"
    "for (int i = 0; i < 8; ++i) b[i] = in[4 + i];\n"
)
_LOOP = "#pragma unroll 1\nfor (int t = 0; t < trips; ++t) {\n"


def kernel(declare: str, body: str, store: str) -> str:
    """A kernel that loads fragments a[4] and b[8], runs `body` in a loop and then stores."""
    return f"{PTX}{_SIGNATURE}{_LOAD}{declare}\n{_LOOP}{body}\n}}\n{store}\n}}\n"


SUM = "out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];"
ONE = kernel("float d[4] = {};", "mma(d, a, b[0], b[1]);", SUM)
NOT_STORED = kernel("float d[4] = {};", "mma(d, a, b[0], b[1]);", "")
STORED_BEHIND_FLAG = kernel("float d[4] = {};", "mma(d, a, b[0], b[1]);", f"if (flag == -7) {SUM}")
HALF = kernel(
    "unsigned d[2] = {};", "mma_half(d, a, b[0], b[1]);", "out[threadIdx.x] = __uint_as_float(d[0] ^ d[1]);"
)
FFMA_ONLY = kernel("float d = 0;", "d = d * __uint_as_float(b[t & 1]) + 1.5f;", "out[threadIdx.x] = d;")

_FRESH = (
    "for (int i = 0; i < 4; ++i) {{\n"
    "float z[4] = {{}};\nmma(z, a, {b});\nfor (int j = 0; j < 4; ++j) d[i][j] += z[j];\n}}"
)
_SUM_ALL = (
    "float s = 0; for (int i = 0; i < 4; ++i) for (int j = 0; j < 4; ++j) s += d[i][j]; out[threadIdx.x] = s;"
)
MERGED = kernel("float d[4][4] = {};", _FRESH.format(b="b[0], b[1]"), _SUM_ALL)
DISTINCT = kernel("float d[4][4] = {};", _FRESH.format(b="b[i], b[i + 4]"), _SUM_ALL)

SPILL = kernel(
    "float d[16][4] = {};",
    "for (int i = 0; i < 16; ++i) mma(d[i], a, b[i & 7], b[(i + 1) & 7]);",
    "float s = 0;\nfor (int i = 0; i < 64; ++i) s += d[i / 4][i % 4];\nout[threadIdx.x] = s;",
)

# Shuffles, whose slow path ptxas puts behind the last EXIT with a jump back into the loop; a barrier, an exp.
BUSY = kernel(
    "float d[4] = {}; __shared__ float shared[256];",
    "mma(d, a, b[0], b[1]);\n"
    "float m = fmaxf(d[0], __shfl_xor_sync(~0u, d[0], 1));\n"
    "if (m > 3.f && threadIdx.x > 5) break;\n"
    "m = fmaxf(m, __shfl_xor_sync(~0u, m, 2));\n"
    "shared[threadIdx.x] = exp2_fast(m);\n__syncthreads();\n"
    "d[1] += shared[threadIdx.x ^ 2];\n__syncthreads();",
    SUM,
)


def static_shared(size_bytes: int) -> str:
    """A kernel with a static shared array of that size."""
    return (
        'extern "C" __global__ void kernel(int* p) {\n'
        f"__shared__ int s[{size_bytes // 4}];\n"
        "s[threadIdx.x] = p[threadIdx.x];\n__syncthreads();\np[threadIdx.x] = s[threadIdx.x ^ 1];\n}\n"
    )


def source(text: str, name: str = "hand-written", template: str = "kernel.cu.j2") -> Source:
    """A Source whose line map says that line n of the text is line n + 100 of the template."""
    case = Case(
        study="tests",
        levels=Values(),
        configuration=Values(),
        problem="waves",
        name=name,
        set_name="full",
    )
    lines = text.count("\n") + 1
    line_map = tuple((template, 101 + i) for i in range(lines))
    return Source(case=case, entry="kernel", text=text, line_map=line_map, digest=digest(text))


def compile_in_process(root: str) -> tuple[str, bool]:
    """Compile ONE through the cache at `root`: the cubin's hash, and whether it came from the cache."""
    cache, text = Cache(Path(root)), source(ONE)
    request = Request(source=text, source_path=save_source(text, cache), arch="sm_80", include_dir=None)
    made = make_artifact(request, cache)
    return made.sha256, made.cached


def write(path: Path, data: bytes) -> Path:
    """Write bytes; the path again."""
    path.write_bytes(data)
    return path
