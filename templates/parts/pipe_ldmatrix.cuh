
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
