
// Every buffer is filled once, before the loop, with as many chunks of the last tile: those of K, then those of V. Each
// iteration goes round them, from the first: where they are fewer than a tile's chunks, one stands in for another.
template <int BLOCK_N, int HEAD_DIM, int CHUNKS, int BUFFERS, int THREADS>
struct ChunkCopies {
    enum : int { UNITS = 2 * CHUNKS, COLUMNS = HEAD_DIM / CHUNKS };
    enum : u32 { BUFFER_BYTES = BLOCK_N * COLUMNS * 2 };

    __device__ __forceinline__ void start(const u16* k_head, const u16* v_head, u32 shared, int seqlen)
    {
        const int first_row = (seqlen - 1) / BLOCK_N * BLOCK_N;
#pragma unroll
        for (int unit = 0; unit < BUFFERS && unit < UNITS; ++unit) {
            const u16* tile = (unit < CHUNKS ? k_head : v_head) + first_row * HEAD_DIM;
            copy_tile_or_zero<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(
                shared + unit * BUFFER_BYTES, tile + unit % CHUNKS * COLUMNS, seqlen - first_row);
        }
        commit_copies();
        wait_copies<0>();
        barrier();
    }

    __device__ __forceinline__ void copy_ahead(int, int, int) {}
    __device__ __forceinline__ void wait() {}
    __device__ __forceinline__ void next_buffer() {}
    __device__ __forceinline__ u32 offset(int unit) const { return unit % BUFFERS * BUFFER_BYTES; }
};
