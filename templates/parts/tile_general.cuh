
// A tile in shared memory: rows of COLUMNS 16-bit elements, however wide, copied by however many threads. The 16-byte
// chunks of a row are XORed with its place among the rows that share 8 groups of banks, so that the 8 rows one ldmatrix
// reads lie in 8 different groups.
template <int COLUMNS>
__device__ __forceinline__ constexpr u32 swizzle(u32 row)
{
    static_assert(COLUMNS >= 32, "8 rows of 32 bytes have only two groups of banks each to themselves");
    return COLUMNS >= 64 ? row & 7 : row >> 1 & 3;
}

template <int COLUMNS>
__device__ __forceinline__ u32 tile_offset(u32 row, u32 chunk)
{
    return row * (COLUMNS * 2) + ((chunk ^ swizzle<COLUMNS>(row)) << 4);
}

// From the address of chunk 0 or 1 of a row to that of `chunk` (even) or `chunk` + 1: XOR within a group of 8 chunks.
__device__ __forceinline__ u32 chunk_address(u32 row_address, u32 chunk)
{
    return (row_address ^ ((chunk & 7) << 4)) + ((chunk >> 3) << 7);
}

// How ROWS rows are shared out over the CTA's threads: 16 bytes a thread and pass, whole rows.
template <int ROWS, int COLUMNS, int THREADS>
struct Share {
    enum : u32 { CHUNKS = COLUMNS / 8, ROWS_PER_PASS = THREADS / CHUNKS };
    static_assert(ROWS % ROWS_PER_PASS == 0, "the CTA's threads must share the rows out evenly");
    static_assert((ROWS_PER_PASS & (ROWS_PER_PASS - 1)) == 0, "the swizzles of passes must combine by XOR");

    static __device__ __forceinline__ u32 row() { return thread_idx() / CHUNKS; }
    static __device__ __forceinline__ u32 chunk() { return thread_idx() % CHUNKS; }

    // This thread's address in the tile, moved on to the pass that begins with row `first`.
    static __device__ __forceinline__ u32 at(u32 address, u32 first)
    {
        return (address ^ swizzle<COLUMNS>(first) << 4) + first * COLUMNS * 2;
    }
};

// Starts the copies of ROWS rows of COLUMNS elements, STRIDE elements apart, as far as they lie before `rows_inside`.
template <int ROWS, int COLUMNS, int THREADS, int STRIDE = COLUMNS>
__device__ __forceinline__ void copy_rows_inside(int rows_inside, u32 to_shared, const u16* from)
{
    using Mine = Share<ROWS, COLUMNS, THREADS>;
    const u32 to = to_shared + tile_offset<COLUMNS>(Mine::row(), Mine::chunk());
    const int rows_left = rows_inside - static_cast<int>(Mine::row());
    from += Mine::row() * STRIDE + Mine::chunk() * 8;
#pragma unroll
    for (u32 first = 0; first < ROWS; first += Mine::ROWS_PER_PASS) {
        copy_async_if(Mine::at(to, first), from + first * STRIDE, static_cast<int>(first) < rows_left);
    }
}

// The same for all rows if `wanted`.
template <int ROWS, int COLUMNS, int THREADS, int STRIDE = COLUMNS>
__device__ __forceinline__ void copy_tile_if(bool wanted, u32 to_shared, const u16* from)
{
    using Mine = Share<ROWS, COLUMNS, THREADS>;
    const u32 to = to_shared + tile_offset<COLUMNS>(Mine::row(), Mine::chunk());
    from += Mine::row() * STRIDE + Mine::chunk() * 8;
#pragma unroll
    for (u32 first = 0; first < ROWS; first += Mine::ROWS_PER_PASS) {
        copy_async_if(Mine::at(to, first), from + first * STRIDE, wanted);
    }
}

// The same where only `rows_inside` rows exist; the others become zero.
template <int ROWS, int COLUMNS, int THREADS, int STRIDE = COLUMNS>
__device__ __forceinline__ void copy_tile_or_zero(u32 to_shared, const u16* from, int rows_inside)
{
    using Mine = Share<ROWS, COLUMNS, THREADS>;
    const u32 to = to_shared + tile_offset<COLUMNS>(Mine::row(), Mine::chunk());
#pragma unroll
    for (u32 first = 0; first < ROWS; first += Mine::ROWS_PER_PASS) {
        const bool inside = static_cast<int>(Mine::row() + first) < rows_inside;
        const u32 element = inside ? (Mine::row() + first) * STRIDE + Mine::chunk() * 8 : 0;
        copy_async_or_zero(Mine::at(to, first), from + element, inside);
    }
}
