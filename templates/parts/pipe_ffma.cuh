
// FMA: x <- a x + b, eight chains a thread.
template <int THREADS, int ROTATION>
struct Pipe {
    enum : int { VALUES = 8, STEPS = 8 };

    float x[VALUES], a[VALUES], b[VALUES];

    __device__ __forceinline__ void start(const u32* data, char*)
    {
#pragma unroll
        for (int chain = 0; chain < VALUES; ++chain) {
            const u32* mine = data + chain * THREADS + thread_idx();
            x[chain] = value_of(mine[0]);
            a[chain] = value_of(mine[VALUES * THREADS]);
            b[chain] = value_of(mine[2 * VALUES * THREADS]);
        }
    }

    __device__ __forceinline__ void go(int)
    {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int turn = 0; turn < VALUES; ++turn) {
                const int chain = (turn + ROTATION) % VALUES;
                x[chain] = fused_multiply_add(a[chain], x[chain], b[chain]);
            }
        }
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ float value(int chain) const { return x[chain]; }
};
