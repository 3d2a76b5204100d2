
// The last K and V tile is copied before the loop, and every iteration reads it: no copies in the loop, nothing to wait
// for, one stage.
template <int BLOCK_N, int HEAD_DIM, int STAGES, int THREADS, bool READS_K, bool READS_V>
struct TileCopies {
    enum : u32 { TILE_BYTES = BLOCK_N * HEAD_DIM * 2, read_offset = 0 };

    __device__ __forceinline__ void start(const u16* k_head, const u16* v_head, u32 shared, int seqlen)
    {
        const int last = (seqlen - 1) / BLOCK_N;
        if constexpr (READS_K) {
            copy_tile_or_zero<BLOCK_N, HEAD_DIM, THREADS>(shared, k_head + last * BLOCK_N * HEAD_DIM,
                                                          seqlen - last * BLOCK_N);
        }
        if constexpr (READS_V) {
            copy_tile_or_zero<BLOCK_N, HEAD_DIM, THREADS>(shared + TILE_BYTES, v_head + last * BLOCK_N * HEAD_DIM,
                                                          seqlen - last * BLOCK_N);
        }
        commit_copies();
        wait_copies<0>();
        barrier();
    }

    __device__ __forceinline__ void copy_next() {}
    __device__ __forceinline__ void wait() {}
    __device__ __forceinline__ void next_stage() {}
};
