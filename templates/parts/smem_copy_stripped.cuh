
// Fragments stay in registers: small pools, read once from the first tile before the loop. No two MMAs of an iteration
// have the same operands and accumulator, or ptxas would make one of them.
//   Q(m, step)      -> pool of Q_POOL steps          K(tile, step) -> 8 fragments, (tile + step) mod 8
//   V(tile, step)   -> 8 fragments, (tile + step) mod 8; tiles from 8 on step by 3
template <int HEAD_DIM, int N_TILES, int M_TILES, int ACCUMULATORS, bool READS_K, bool READS_V>
struct Fragments {
    enum : int { POOL = 8, Q_POOL = ACCUMULATORS > 2 ? ACCUMULATORS : 2 };
    static_assert(N_TILES <= POOL, "more key tiles than fragments would repeat an MMA");

    u32 q_pool[M_TILES][Q_POOL][4];
    u32 k_pool[POOL][2];
    u32 v_pool[POOL][2];

    template <class Copies>
    __device__ __forceinline__ void start(Copies& copies, u32 q_tile, u32 k_tile, u32 v_tile)
    {
        copies.wait();
        barrier();
        const u32 lane = thread_idx() % 32;
        const u32 q = q_tile + tile_offset<HEAD_DIM>(lane % 16, lane / 16);
        const u32 k = k_tile + tile_offset<HEAD_DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2);
        const u32 v = v_tile + tile_offset<HEAD_DIM>(lane % 16, lane / 16);
        constexpr int ROWS_16 = 16 * HEAD_DIM * 2;  // bytes of 16 rows
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int step = 0; step < Q_POOL; ++step) {
                u32(&a)[4] = q_pool[m][step];
                load_matrix_x4(a[0], a[1], a[2], a[3], chunk_address(q + m * ROWS_16, 2 * step));
            }
        }
#pragma unroll
        for (int i = 0; i < POOL; i += 2) {
            const int pair = i % N_TILES / 2;
            const int step = i / N_TILES;
            if constexpr (READS_K) {
                load_matrix_x4(k_pool[i][0], k_pool[i][1], k_pool[i + 1][0], k_pool[i + 1][1],
                               chunk_address(k + pair * ROWS_16, 2 * step));
            }
            if constexpr (READS_V) {
                load_matrix_x4_transposed(v_pool[i][0], v_pool[i][1], v_pool[i + 1][0], v_pool[i + 1][1],
                                          chunk_address(v, i));
            }
        }
    }

    __device__ __forceinline__ void at_stage(u32) {}

    __device__ __forceinline__ void query(u32 (&a)[4], int m, int step) const
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            a[i] = q_pool[m][step % Q_POOL][i];
        }
    }

    __device__ __forceinline__ void keys(u32 (&b)[2][2], int pair, int step) const
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int fragment = (2 * pair + i + step) % POOL;
            b[i][0] = k_pool[fragment][0];
            b[i][1] = k_pool[fragment][1];
        }
    }

    __device__ __forceinline__ void values(u32 (&b)[2][2], int pair, int step) const
    {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int tile = 2 * pair + i;
            const int fragment = (tile + step * (tile < POOL ? 1 : 3)) % POOL;
            b[i][0] = v_pool[fragment][0];
            b[i][1] = v_pool[fragment][1];
        }
    }
};
