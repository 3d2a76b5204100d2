
// Fragments of Q, whole in shared memory, and of one chunk of COLUMNS columns of K or V, each by ldmatrix when it is
// needed.
template <int HEAD_DIM, int COLUMNS>
struct ChunkFragments {
    u32 q, k, v;       // this lane's row in the Q tile, and in a K and a V chunk in the first buffer
    u32 k_now, v_now;  // the same in the buffer that is read now
    int first_step;    // of the chunk, among the steps of Q K^T

    __device__ __forceinline__ void start(u32 q_tile, u32 ring)
    {
        const u32 lane = thread_idx() % 32;
        q = q_tile + tile_offset<HEAD_DIM>(lane % 16, lane / 16);
        k = ring + tile_offset<COLUMNS>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
        v = ring + tile_offset<COLUMNS>(lane % 16, lane / 16);
    }

    __device__ __forceinline__ void at_chunk(u32 offset, int chunk)
    {
        k_now = k + offset;
        v_now = v + offset;
        first_step = chunk * (COLUMNS / 16);
    }

    // Q: rows 16 m to 16 m + 15 of the warp, the chunk's columns 16 step to 16 step + 15.
    __device__ __forceinline__ void query(u32 (&a)[4], int m, int step) const
    {
        load_matrix_x4(a[0], a[1], a[2], a[3], chunk_address(q + m * (32 * HEAD_DIM), 2 * (first_step + step)));
    }

    // K: key tiles 2 pair and 2 pair + 1 (8 keys each), the chunk's columns 16 step to 16 step + 15.
    __device__ __forceinline__ void keys(u32 (&b)[2][2], int pair, int step) const
    {
        load_matrix_x4(b[0][0], b[0][1], b[1][0], b[1][1], chunk_address(k_now + pair * (32 * COLUMNS), 2 * step));
    }

    // V: keys 16 step to 16 step + 15, the chunk's column tiles 2 pair and 2 pair + 1 (8 columns each).
    __device__ __forceinline__ void values(u32 (&b)[2][2], int pair, int step) const
    {
        load_matrix_x4_transposed(b[0][0], b[0][1], b[1][0], b[1][1],
                                  chunk_address(v_now + step * (32 * COLUMNS), 2 * pair));
    }
};

// O += P V for 16 keys and one chunk of columns.
template <int CHUNKS, int ROTATION, class Fragments, int M_TILES, int D_TILES>
__device__ __forceinline__ void multiply_value_chunk(Accumulator (&output)[M_TILES][D_TILES], int chunk,
                                                     const u32 (&p)[M_TILES][1][4], const Fragments& fragments,
                                                     int step)
{
    constexpr int PAIRS = D_TILES / 2 / CHUNKS;
#pragma unroll
    for (int turn = 0; turn < PAIRS; ++turn) {
        const int pair = (turn + ROTATION) % PAIRS;
        const int tile = 2 * (chunk * PAIRS + pair);
        u32 b[2][2];
        fragments.values(b, pair, step);
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            mma(Input{}, output[m][tile], p[m][0], b[0]);
            mma(Input{}, output[m][tile + 1], p[m][0], b[1]);
        }
    }
}
