
// K and V tiles travel from global memory to a ring of STAGES buffers, last tile first: only that one can be short, and
// it is copied before the loop, so that no copy in the loop needs a bounds check.
template <int BLOCK_N, int HEAD_DIM, int STAGES, int THREADS, bool READS_K, bool READS_V>
struct TileCopies {
    const u16* k;  // the next tile to copy
    const u16* v;
    u32 ring;       // shared address of stage 0: K, then V
    u32 write_offset;  // bytes from there to the stage that is copied to next, and to the one that is read now
    u32 read_offset;
    int tiles_left;  // to copy

    enum : u32 { TILE_BYTES = BLOCK_N * HEAD_DIM * 2, STAGE_BYTES = 2 * TILE_BYTES };

    __device__ __forceinline__ void start(const u16* k_head, const u16* v_head, u32 shared, int seqlen)
    {
        const int last = (seqlen - 1) / BLOCK_N;
        k = k_head + last * BLOCK_N * HEAD_DIM;
        v = v_head + last * BLOCK_N * HEAD_DIM;
        ring = shared;
        write_offset = read_offset = 0;
        tiles_left = last + 1;
        if constexpr (READS_K) {
            copy_tile_or_zero<BLOCK_N, HEAD_DIM, THREADS>(ring, k, seqlen - last * BLOCK_N);
        }
        if constexpr (READS_V) {
            copy_tile_or_zero<BLOCK_N, HEAD_DIM, THREADS>(ring + TILE_BYTES, v, seqlen - last * BLOCK_N);
        }
        advance();
#pragma unroll
        for (int ahead = 1; ahead < STAGES - 1; ++ahead) {
            copy_next();
        }
    }

    // Copies one more tile, if there is one. The stage it goes to was read an iteration ago: a barrier lies between.
    __device__ __forceinline__ void copy_next()
    {
        const bool wanted = tiles_left > 0;
        const u32 to = ring + write_offset;
        if constexpr (READS_K) {
            copy_tile_if<BLOCK_N, HEAD_DIM, THREADS>(wanted, to, k);
        }
        if constexpr (READS_V) {
            copy_tile_if<BLOCK_N, HEAD_DIM, THREADS>(wanted, to + TILE_BYTES, v);
        }
        advance();
    }

    // The group is closed even when it is empty: waiting counts groups.
    __device__ __forceinline__ void advance()
    {
        commit_copies();
        k -= BLOCK_N * HEAD_DIM;
        v -= BLOCK_N * HEAD_DIM;
        --tiles_left;
        write_offset = stage_after(write_offset);
    }

    // This thread's share of the oldest tile has landed; a barrier makes that true of all.
    __device__ __forceinline__ void wait() { wait_copies<STAGES - 2>(); }

    __device__ __forceinline__ void next_stage() { read_offset = stage_after(read_offset); }

    __device__ __forceinline__ u32 stage_after(u32 offset) const
    {
        return offset == (STAGES - 1) * STAGE_BYTES ? 0 : offset + STAGE_BYTES;
    }
};
