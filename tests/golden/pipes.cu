// pipes: operation=ldmatrix, warps=16
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

// The float that has these bits.
__device__ __forceinline__ float value_of(u32 bits)
{
    union {
        u32 bits;
        float value;
    } both;
    both.bits = bits;
    return both.value;
}

// Shared memory by ldmatrix.x4: 512 bytes a warp, each 128 of them in all banks. Two halves of a table take turns, so
// that no iteration reads what the last one did; the sums of the words are kept.
template <int THREADS, int ROTATION>
struct Pipe {
    enum : int { VALUES = 4, STEPS = 16 };
    enum : u32 { HALF_BYTES = STEPS * 512 };

    u32 sums[VALUES];
    u32 table;  // shared address of this lane's row

    __device__ __forceinline__ void start(const u32* data, char* shared)
    {
        const u32 first = shared_address(shared);
        for (u32 byte = thread_idx() * 16; byte < 2 * HALF_BYTES; byte += THREADS * 16) {
            copy_async(first + byte, data + byte / 4);
        }
        commit_copies();
        wait_copies<0>();
        barrier();
        table = first + thread_idx() % 32 * 16;
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            sums[i] = 0;
        }
    }

    __device__ __forceinline__ void go(int trip)
    {
        const u32 half = table + trip % 2 * HALF_BYTES;
#pragma unroll
        for (int turn = 0; turn < STEPS; ++turn) {
            const int step = (turn + ROTATION) % STEPS;
            u32 words[VALUES];
            load_matrix_x4(words[0], words[1], words[2], words[3], half + step * 512);
#pragma unroll
            for (int i = 0; i < VALUES; ++i) {
                sums[i] += words[i];
            }
        }
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ float value(int i) const { return static_cast<float>(sums[i]); }
};

extern "C" __global__ void __launch_bounds__(16 * 32, 1)
pipes(const u32* __restrict__ data, float* __restrict__ d, int trips, u64* __restrict__ stamps)
{
    stamp_start(stamps);

    constexpr int THREADS = 16 * 32;
    constexpr int ROTATION = 0;

    DYN_SMEM(shared);
    Pipe<THREADS, ROTATION> pipe;
    pipe.start(data, shared);

#pragma unroll 1
    for (int trip = 0; trip < trips; ++trip) {
        pipe.go(trip);
    }

    // Every result is stored: one that nobody reads would not be computed.
    const u64 thread = static_cast<u64>(blockIdx.x) * THREADS + thread_idx();
    pipe.finish();
#pragma unroll
    for (int i = 0; i < pipe.VALUES; ++i) {
        d[thread * pipe.VALUES + i] = pipe.value(i);
    }

    stamp_end(stamps);
}
