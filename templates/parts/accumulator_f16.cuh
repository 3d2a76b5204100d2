
// A 16x8 accumulator tile, fp16 pairs: columns 2t and 2t+1 of row g, then those of row g + 8 (lane = 4 g + t).
typedef u32 Accumulator[2];

__device__ __forceinline__ void clear(Accumulator& tile) { tile[0] = tile[1] = 0; }

__device__ __forceinline__ float element(const Accumulator& tile, int i)
{
    float low, high;
    unpack(tile[i / 2], low, high);
    return i % 2 ? high : low;
}

__device__ __forceinline__ void add_to(Accumulator& sum, const Accumulator& tile)
{
    sum[0] = add_pair(sum[0], tile[0]);
    sum[1] = add_pair(sum[1], tile[1]);
}

__device__ __forceinline__ void scale_rows(Accumulator& tile, float upper, float lower)
{
    tile[0] = multiply_pair(tile[0], pack(fp16{}, upper, upper));
    tile[1] = multiply_pair(tile[1], pack(fp16{}, lower, lower));
}

// Columns from `columns_inside` on, counted from this thread's first one, become minus infinity (0xfc00).
__device__ __forceinline__ void mask_columns(Accumulator& tile, int columns_inside)
{
    if (columns_inside <= 0) {
        tile[0] = (tile[0] & 0xffff0000u) | 0x0000fc00u;
        tile[1] = (tile[1] & 0xffff0000u) | 0x0000fc00u;
    }
    if (columns_inside <= 1) {
        tile[0] = (tile[0] & 0x0000ffffu) | 0xfc000000u;
        tile[1] = (tile[1] & 0x0000ffffu) | 0xfc000000u;
    }
}
