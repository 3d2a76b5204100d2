// instruction: dtype=fp16, acc_dtype=f32, chains=1, warps=8
#include "ptx.cuh"

// Five words a CTA: SM, clock at start and end (SM cycles), global timer at start and end (ns). Written at once, so
// that nothing of it lives in registers across the main loop.
__device__ __forceinline__ u64* stamps_of_this_cta(u64* stamps)
{
    return stamps + 5 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
}

__device__ __forceinline__ void stamp_start(u64* stamps)
{
    if (thread_idx() == 0) {
        u64* mine = stamps_of_this_cta(stamps);
        mine[0] = sm_id();
        mine[3] = global_ns();
        mine[1] = sm_clock();
    }
}

// The CTA ends when its last warp does.
__device__ __forceinline__ void stamp_end(u64* stamps)
{
    barrier();
    if (thread_idx() == 0) {
        u64* mine = stamps_of_this_cta(stamps);
        mine[2] = sm_clock();
        mine[4] = global_ns();
    }
}
typedef fp16 Input;

// A 16x8 accumulator tile, fp32: columns 2t and 2t+1 of row g, then those of row g + 8 (lane = 4 g + t).
typedef float Accumulator[4];

__device__ __forceinline__ void clear(Accumulator& tile)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        tile[i] = 0.0f;
    }
}

__device__ __forceinline__ float element(const Accumulator& tile, int i) { return tile[i]; }

__device__ __forceinline__ void add_to(Accumulator& sum, const Accumulator& tile)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum[i] += tile[i];
    }
}

__device__ __forceinline__ void scale_rows(Accumulator& tile, float upper, float lower)
{
    tile[0] *= upper;
    tile[1] *= upper;
    tile[2] *= lower;
    tile[3] *= lower;
}

// Columns from `columns_inside` on, counted from this thread's first one, become minus infinity.
__device__ __forceinline__ void mask_columns(Accumulator& tile, int columns_inside)
{
    if (columns_inside <= 0) {
        tile[0] = tile[2] = minus_infinity();
    }
    if (columns_inside <= 1) {
        tile[1] = tile[3] = minus_infinity();
    }
}

extern "C" __global__ void __launch_bounds__(8 * 32, 1)
instruction(const u32* __restrict__ a, const u32* __restrict__ b, float* __restrict__ d,
            int trips, u64* __restrict__ stamps)
{
    stamp_start(stamps);

    constexpr int WARPS = 8;
    constexpr int CHAINS = 1;
    constexpr int ROTATION = 0;
    constexpr int STEPS = 8;   // MMAs of one chain in an iteration
    constexpr int B_POOL = 4;  // the steps take turns with as many B fragments
    static_assert(STEPS % B_POOL == 0, "an iteration uses each B fragment equally often");

    // Operands come from memory, each chain its own A, so that no two MMAs of an iteration are the same.
    const u32 lane = thread_idx() % 32;
    const u32 warp = thread_idx() / 32;
    u32 a_fragments[CHAINS][4];
    u32 b_fragments[B_POOL][2];
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a_fragments[chain][i] = a[((warp * CHAINS + chain) * 32 + lane) * 4 + i];
        }
    }
#pragma unroll
    for (int step = 0; step < B_POOL; ++step) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            b_fragments[step][i] = b[(step * 32 + lane) * 2 + i];
        }
    }
    Accumulator sums[CHAINS];
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) {
        clear(sums[chain]);
    }

#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int turn = 0; turn < CHAINS; ++turn) {
                const int chain = (turn + ROTATION) % CHAINS;
                mma(Input{}, sums[chain], a_fragments[chain], b_fragments[(step + chain) % B_POOL]);
            }
        }
    }

    // Every accumulator is stored: one whose result nobody reads would be dropped.
#pragma unroll
    for (int chain = 0; chain < CHAINS; ++chain) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            d[(((blockIdx.x * WARPS + warp) * CHAINS + chain) * 32 + lane) * 4 + i] = element(sums[chain], i);
        }
    }

    stamp_end(stamps);
}
// kept header ptx.cuh d60260d7d76608ded44d4cb0efe78ff9d0388de0e8554ee8a7217477d7116a08
