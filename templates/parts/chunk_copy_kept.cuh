
// Chunks of columns travel from global memory to a ring of BUFFERS buffers, last tile first: CHUNKS of a tile's K, then
// CHUNKS of its V. A tile has 2 CHUNKS units; the copy of a unit is issued when the one BUFFERS - 1 before it is about
// to be multiplied, into the buffer that was read last.
template <int BLOCK_N, int HEAD_DIM, int CHUNKS, int BUFFERS, int THREADS>
struct ChunkCopies {
    const u16* k;  // the tile that is multiplied now
    const u16* v;
    u32 ring;
    u32 read_offset;   // bytes from there to the buffer that is read now
    u32 write_offset;  // and to the one that was read before it

    enum : int { UNITS = 2 * CHUNKS, COLUMNS = HEAD_DIM / CHUNKS };
    enum : u32 { BUFFER_BYTES = BLOCK_N * COLUMNS * 2, LAST_BUFFER = (BUFFERS - 1) * BUFFER_BYTES };

    __device__ __forceinline__ void start(const u16* k_head, const u16* v_head, u32 shared, int seqlen)
    {
        const int last = (seqlen - 1) / BLOCK_N;
        k = k_head + last * BLOCK_N * HEAD_DIM;
        v = v_head + last * BLOCK_N * HEAD_DIM;
        ring = shared;
        read_offset = 0;
        write_offset = LAST_BUFFER;
        // Only the last tile can be short. Rows that it lacks are zero in every buffer from here on, whatever chunk of
        // it is copied there: the copies in the loop leave them alone.
        if constexpr (BUFFERS - 1 < UNITS) {
            copy_tile_or_zero<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(ring + LAST_BUFFER, k, 0);
        }
#pragma unroll
        for (int unit = 0; unit < BUFFERS - 1; ++unit) {
            const u32 to = ring + unit * BUFFER_BYTES;
            if (unit < UNITS) {
                copy_tile_or_zero<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(to, source(unit), seqlen - last * BLOCK_N);
            } else {
                copy_tile_if<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(last >= unit / UNITS, to, source(unit));
            }
            commit_copies();
        }
    }

    // Copies the unit that is BUFFERS - 1 ahead of `unit` of this tile, if there is one. A barrier lies between this
    // and the reads of its buffer.
    __device__ __forceinline__ void copy_ahead(int unit, int tile, int seqlen)
    {
        const int wanted = unit + BUFFERS - 1;
        const u32 to = ring + write_offset;
        if (wanted < UNITS) {
            copy_rows_inside<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(seqlen - tile * BLOCK_N, to, source(wanted));
        } else {
            copy_tile_if<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(tile >= wanted / UNITS, to, source(wanted));
        }
        commit_copies();  // even when it is empty: waiting counts groups
        if (unit == UNITS - 1) {
            k -= BLOCK_N * HEAD_DIM;
            v -= BLOCK_N * HEAD_DIM;
        }
    }

    // This thread's share of the oldest unit has landed; a barrier makes that true of all.
    __device__ __forceinline__ void wait() { wait_copies<BUFFERS - 2>(); }

    __device__ __forceinline__ u32 offset(int) const { return read_offset; }

    __device__ __forceinline__ void next_buffer()
    {
        write_offset = read_offset;
        read_offset = read_offset == LAST_BUFFER ? 0 : read_offset + BUFFER_BYTES;
    }

    // Where a unit begins that many units after the first of this tile.
    __device__ __forceinline__ const u16* source(int unit) const
    {
        const int tiles_ahead = unit / UNITS;
        const u16* tile = unit % UNITS < CHUNKS ? k : v;
        return tile - tiles_ahead * (BLOCK_N * HEAD_DIM) + unit % CHUNKS * COLUMNS;
    }
};
