
// Global to shared memory by cp.async, 16 bytes a thread: each CTA walks through a region that stays in L2, from a
// place of its own. What an iteration copies has an iteration to land.
template <int THREADS, int ROTATION>
struct Pipe {
    enum : int { VALUES = 4, STEPS = 4 };
    enum : u32 { ROUND_BYTES = THREADS * 16, TRIP_BYTES = STEPS * ROUND_BYTES, REGION_BYTES = 1 << 21 };
    static_assert(REGION_BYTES % TRIP_BYTES == 0, "an iteration must not run over the region's end");

    const u32* region;
    const u32* words;  // in shared memory, this thread's first
    u32 to;
    u32 sums[VALUES];

    __device__ __forceinline__ void start(const u32* data, char* shared)
    {
        region = data + thread_idx() * 4;
        words = reinterpret_cast<const u32*>(shared) + thread_idx();
        to = shared_address(shared) + thread_idx() * 16;
    }

    __device__ __forceinline__ void go(int trip)
    {
        const u32 at = (blockIdx.x + trip) * TRIP_BYTES % REGION_BYTES;
        const u32 half = to + trip % 2 * TRIP_BYTES;
        wait_copies<1>();
#pragma unroll
        for (int turn = 0; turn < STEPS; ++turn) {
            const int step = (turn + ROTATION) % STEPS;
            copy_async(half + step * ROUND_BYTES, region + (at + step * ROUND_BYTES) / 4);
        }
        commit_copies();
    }

    // The sums of what the last two iterations have copied.
    __device__ __forceinline__ void finish()
    {
        wait_copies<0>();
        barrier();
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            sums[i] = 0;
#pragma unroll
            for (int round = 0; round < 2 * STEPS; ++round) {
                sums[i] += words[round * (ROUND_BYTES / 4) + i * THREADS];
            }
        }
    }

    __device__ __forceinline__ float value(int i) const { return static_cast<float>(sums[i]); }
};
