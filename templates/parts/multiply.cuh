
// S = Q K^T for one tile: the head dimension's steps rotate over the accumulator sets. ROTATION moves the column the
// inner loop starts with: the same work, other code.
template <int QK_STEPS, int ROTATION, class Fragments, int SETS, int M_TILES, int N_TILES>
__device__ __forceinline__ void multiply_keys(Accumulator (&scores)[SETS][M_TILES][N_TILES], const Fragments& fragments)
{
#pragma unroll
    for (int step = 0; step < QK_STEPS; ++step) {
        u32 a[M_TILES][4];
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            fragments.query(a[m], m, step);
        }
#pragma unroll
        for (int turn = 0; turn < N_TILES / 2; ++turn) {
            const int pair = (turn + ROTATION) % (N_TILES / 2);
            u32 b[2][2];
            fragments.keys(b, pair, step);
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                mma(Input{}, scores[step % SETS][m][2 * pair], a[m], b[0]);
                mma(Input{}, scores[step % SETS][m][2 * pair + 1], a[m], b[1]);
            }
        }
    }
}

// O += P V for 16 keys: column tiles take turns with the versions of P.
template <int ROTATION, int OPERANDS, class Fragments, int M_TILES, int D_TILES>
__device__ __forceinline__ void multiply_values(Accumulator (&output)[M_TILES][D_TILES],
                                                const u32 (&p)[M_TILES][OPERANDS][4], const Fragments& fragments,
                                                int step)
{
#pragma unroll
    for (int turn = 0; turn < D_TILES / 2; ++turn) {
        const int pair = (turn + ROTATION) % (D_TILES / 2);
        u32 b[2][2];
        fragments.values(b, pair, step);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            mma(Input{}, output[m][2 * pair], p[m][0], b[0]);
            mma(Input{}, output[m][2 * pair + 1], p[m][OPERANDS - 1], b[1]);
        }
    }
}

template <int ROWS, int COLUMNS>
__device__ __forceinline__ void clear_all(Accumulator (&tiles)[ROWS][COLUMNS])
{
#pragma unroll
    for (int row = 0; row < ROWS; ++row) {
#pragma unroll
        for (int column = 0; column < COLUMNS; ++column) {
            clear(tiles[row][column]);
        }
    }
}

// The sets' sum, in set 0.
template <int SETS, int ROWS, int COLUMNS>
__device__ __forceinline__ void sum_sets(Accumulator (&sets)[SETS][ROWS][COLUMNS])
{
#pragma unroll
    for (int set = 1; set < SETS; ++set) {
#pragma unroll
        for (int row = 0; row < ROWS; ++row) {
#pragma unroll
            for (int column = 0; column < COLUMNS; ++column) {
                add_to(sets[0][row][column], sets[set][row][column]);
            }
        }
    }
}
