
// A tile in shared memory: rows of COLUMNS 16-bit elements. The 16-byte chunks of a row are XORed with its number
// modulo 8, so that the 8 rows one ldmatrix reads lie in 8 different groups of banks.
template <int COLUMNS>
__device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk)
{
    return row * (COLUMNS * 2) + ((chunk ^ (row & 7)) << 4);
}

// From the address of chunk 0 or 1 of a row to that of `chunk` (even) or `chunk` + 1: XOR within a group of 8 chunks.
__device__ __forceinline__ u32 chunk_address(u32 row_address, u32 chunk)
{
    return (row_address ^ ((chunk & 7) << 4)) + ((chunk >> 3) << 7);
}

// Starts the copies of ROWS whole rows if `wanted`, shared out over the CTA's threads: 16 bytes a thread and pass.
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void copy_tile_if(bool wanted, u32 to_shared, const u16* from)
{
    constexpr u32 CHUNKS = COLUMNS / 8;
    constexpr u32 ROWS_PER_PASS = THREADS / CHUNKS;
    static_assert(ROWS % ROWS_PER_PASS == 0, "the CTA's threads must share the rows out evenly");
    static_assert(ROWS_PER_PASS % 8 == 0, "a pass must keep the row number modulo 8, or the swizzle changes");

    const u32 row = thread_idx() / CHUNKS;
    const u32 chunk = thread_idx() % CHUNKS;
    to_shared += tile_offset<COLUMNS>(row, chunk);
    from += row * COLUMNS + chunk * 8;
#pragma unroll
    for (u32 first = 0; first < ROWS; first += ROWS_PER_PASS) {
        copy_async_if(to_shared + first * COLUMNS * 2, from + first * COLUMNS, wanted);
    }
}

// The same where only `rows_inside` rows exist; the others become zero.
template <int ROWS, int COLUMNS, int THREADS>
__device__ __forceinline__ void copy_tile_or_zero(u32 to_shared, const u16* from, int rows_inside)
{
    constexpr u32 CHUNKS = COLUMNS / 8;
    constexpr u32 ROWS_PER_PASS = THREADS / CHUNKS;
    const u32 row = thread_idx() / CHUNKS;
    const u32 chunk = thread_idx() % CHUNKS;
    to_shared += tile_offset<COLUMNS>(row, chunk);
#pragma unroll
    for (u32 first = 0; first < ROWS; first += ROWS_PER_PASS) {
        const bool inside = static_cast<int>(row + first) < rows_inside;
        const u32 element = inside ? (row + first) * COLUMNS + chunk * 8 : 0;
        copy_async_or_zero(to_shared + first * COLUMNS * 2, from + element, inside);
    }
}
