
// Fragments come from shared memory, each by ldmatrix when it is needed.
template <int HEAD_DIM, int N_TILES, int M_TILES, int ACCUMULATORS, bool READS_K, bool READS_V>
struct Fragments {
    u32 q, k, v;      // this lane's row in the Q tile, and in the first stage's K and V tiles
    u32 k_now, v_now;  // the same in the stage that is read now

    enum : u32 { ROWS_16 = 16 * HEAD_DIM * 2 };  // bytes of 16 rows

    template <class Copies>
    __device__ __forceinline__ void start(Copies&, u32 q_tile, u32 k_tile, u32 v_tile)
    {
        const u32 lane = thread_idx() % 32;
        q = q_tile + tile_offset<HEAD_DIM>(lane % 16, lane / 16);
        k = k_tile + tile_offset<HEAD_DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
        v = v_tile + tile_offset<HEAD_DIM>(lane % 16, lane / 16);
    }

    __device__ __forceinline__ void at_stage(u32 offset)
    {
        k_now = k + offset;
        v_now = v + offset;
    }

    // Q: rows 16 m to 16 m + 15 of the warp, columns 16 step to 16 step + 15.
    __device__ __forceinline__ void query(u32 (&a)[4], int m, int step) const
    {
        load_matrix_x4(a[0], a[1], a[2], a[3], chunk_address(q + m * ROWS_16, 2 * step));
    }

    // K: key tiles 2 pair and 2 pair + 1 (8 keys each), columns 16 step to 16 step + 15.
    __device__ __forceinline__ void keys(u32 (&b)[2][2], int pair, int step) const
    {
        load_matrix_x4(b[0][0], b[0][1], b[1][0], b[1][1], chunk_address(k_now + pair * ROWS_16, 2 * step));
    }

    // V: keys 16 step to 16 step + 15, column tiles 2 pair and 2 pair + 1 (8 columns each).
    __device__ __forceinline__ void values(u32 (&b)[2][2], int pair, int step) const
    {
        load_matrix_x4_transposed(b[0][0], b[0][1], b[1][0], b[1][1], chunk_address(v_now + step * ROWS_16, 2 * pair));
    }
};
