
// Row `row` (half 0: g, half 1: g + 8 of a 16-row tile) times `factor` as 16-bit pairs.
template <int D_TILES>
__device__ __forceinline__ void store_row_normalised(const Accumulator (&tiles)[D_TILES], int half, float factor,
                                                     u32* o, u64 row)
{
    u32* to = o + row * (D_TILES * 4) + thread_idx() % 4;
#pragma unroll
    for (int d = 0; d < D_TILES; ++d) {
        to[4 * d] = pack(Input{}, element(tiles[d], 2 * half) * factor, element(tiles[d], 2 * half + 1) * factor);
    }
}

// Every accumulator as fp32, rows of TILES * 8 columns.
template <int M_TILES, int TILES>
__device__ __forceinline__ void store_rows_raw(const Accumulator (&tiles)[M_TILES][TILES], float* to, u64 head_row,
                                               int row, int rows_inside)
{
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = row + 16 * m + 8 * half;
            if (r < rows_inside) {
                float* mine = to + (head_row + r) * (TILES * 8) + 2 * (thread_idx() % 4);
#pragma unroll
                for (int n = 0; n < TILES; ++n) {
                    mine[8 * n] = element(tiles[m][n], 2 * half);
                    mine[8 * n + 1] = element(tiles[m][n], 2 * half + 1);
                }
            }
        }
    }
}
