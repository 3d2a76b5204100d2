
// MUFU: x <- 2^-x, eight chains a thread. Each comes to the x that is its own image, from wherever it starts.
template <int THREADS, int ROTATION>
struct Pipe {
    enum : int { VALUES = 8, STEPS = 8 };

    float x[VALUES];

    __device__ __forceinline__ void start(const u32* data, char*)
    {
#pragma unroll
        for (int chain = 0; chain < VALUES; ++chain) {
            x[chain] = value_of(data[chain * THREADS + thread_idx()]);
        }
    }

    __device__ __forceinline__ void go(int)
    {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int turn = 0; turn < VALUES; ++turn) {
                const int chain = (turn + ROTATION) % VALUES;
                x[chain] = exp2_fast(-x[chain]);
            }
        }
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ float value(int chain) const { return x[chain]; }
};
