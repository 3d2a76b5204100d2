
// A 16x8 accumulator tile, fp32: columns 2t and 2t+1 of row g, then those of row g + 8 (lane = 4 g + t).
typedef float Accumulator[4];

__device__ __forceinline__ void clear(Accumulator& tile)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        tile[i] = 0.0f;
    }
}

__device__ __forceinline__ float element(const Accumulator& tile, int i) { return tile[i]; }

__device__ __forceinline__ void add_to(Accumulator& sum, const Accumulator& tile)
{
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum[i] += tile[i];
    }
}

__device__ __forceinline__ void scale_rows(Accumulator& tile, float upper, float lower)
{
    tile[0] *= upper;
    tile[1] *= upper;
    tile[2] *= lower;
    tile[3] *= lower;
}

// Columns from `columns_inside` on, counted from this thread's first one, become minus infinity.
__device__ __forceinline__ void mask_columns(Accumulator& tile, int columns_inside)
{
    if (columns_inside <= 0) {
        tile[0] = tile[2] = minus_infinity();
    }
    if (columns_inside <= 1) {
        tile[1] = tile[3] = minus_infinity();
    }
}
