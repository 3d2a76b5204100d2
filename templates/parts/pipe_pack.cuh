
// Conversion of two fp32 to an fp16 pair, eight chains a thread: one of the two is the float that has the bits of the
// last pair. A long trip: the compare that ends it is an instruction of this pipe, too.
template <int THREADS, int ROTATION>
struct Pipe {
    enum : int { VALUES = 8, STEPS = 32 };

    u32 pair[VALUES];
    float high[VALUES];

    __device__ __forceinline__ void start(const u32* data, char*)
    {
#pragma unroll
        for (int chain = 0; chain < VALUES; ++chain) {
            const u32* mine = data + chain * THREADS + thread_idx();
            pair[chain] = mine[0];
            high[chain] = value_of(mine[VALUES * THREADS]);
        }
    }

    __device__ __forceinline__ void go(int)
    {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
#pragma unroll
            for (int turn = 0; turn < VALUES; ++turn) {
                const int chain = (turn + ROTATION) % VALUES;
                pair[chain] = pack(fp16{}, value_of(pair[chain]), high[chain]);
            }
        }
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ float value(int chain) const { return value_of(pair[chain]); }
};
