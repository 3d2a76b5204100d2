
// FMA: x <- a x + b, eight chains a thread, all with one a and one b: three fresh registers an instruction are more
// than the register file delivers at the pipe's rate, and operands that stay come from the reuse cache. A long trip:
// every other instruction takes an issue slot that an FFMA wants.
template <int THREADS, int ROTATION>
struct Pipe {
    enum : int { VALUES = 8, STEPS = 16 };

    float x[VALUES], a, b;

    __device__ __forceinline__ void start(const u32* data, char*)
    {
#pragma unroll
        for (int chain = 0; chain < VALUES; ++chain) {
            x[chain] = value_of(data[chain * THREADS + thread_idx()]);
        }
        a = value_of(data[VALUES * THREADS + thread_idx()]);
        b = value_of(data[(VALUES + 1) * THREADS + thread_idx()]);
    }

    __device__ __forceinline__ void go(int)
    {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int turn = 0; turn < VALUES; ++turn) {
                const int chain = (turn + ROTATION) % VALUES;
                x[chain] = fused_multiply_add(a, x[chain], b);
            }
        }
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ float value(int chain) const { return x[chain]; }
};
