// attention: dtype=fp16, head_dim=64, acc_dtype=f32, gemms=both, accumulators=1, gmem_copy=kept, smem_copy=kept,
//     barriers=kept, softmax=no_max, block_m=128, block_n=64, warps=4, stages=2, rescale=0, ctas=2
#include "ptx.cuh"

// Five words a CTA: SM, clock at start and end (SM cycles), global timer at start and end (ns). Written at once, so
// that nothing of it lives in registers across the main loop.
__device__ __forceinline__ u64* stamps_of_this_cta(u64* stamps)
{
    return stamps + 5 * (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z));
}

__device__ __forceinline__ void stamp_start(u64* stamps)
{
    if (thread_idx() == 0) {
        u64* mine = stamps_of_this_cta(stamps);
        mine[0] = sm_id();
        mine[3] = global_ns();
        mine[1] = sm_clock();
    }
}

// The CTA ends when its last warp does.
__device__ __forceinline__ void stamp_end(u64* stamps)
{
    barrier();
    if (thread_idx() == 0) {
        u64* mine = stamps_of_this_cta(stamps);
        mine[2] = sm_clock();
        mine[4] = global_ns();
    }
}
typedef fp16 Input;

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

// K and V tiles travel from global memory to a ring of STAGES buffers, last tile first: only that one can be short, and
// it is copied before the loop, so that no copy in the loop needs a bounds check.
template <int BLOCK_N, int HEAD_DIM, int STAGES, int THREADS, bool READS_K, bool READS_V>
struct TileCopies {
    const u16* k;  // the next tile to copy
    const u16* v;
    u32 ring;       // shared address of stage 0: K, then V
    u32 write_offset;  // bytes from there to the stage that is copied to next, and to the one that is read now
    u32 read_offset;
    int tiles_left;  // to copy

    enum : u32 { TILE_BYTES = BLOCK_N * HEAD_DIM * 2, STAGE_BYTES = 2 * TILE_BYTES };

    __device__ __forceinline__ void start(const u16* k_head, const u16* v_head, u32 shared, int seqlen)
    {
        const int last = (seqlen - 1) / BLOCK_N;
        k = k_head + last * BLOCK_N * HEAD_DIM;
        v = v_head + last * BLOCK_N * HEAD_DIM;
        ring = shared;
        write_offset = read_offset = 0;
        tiles_left = last + 1;
        if constexpr (READS_K) {
            copy_tile_or_zero<BLOCK_N, HEAD_DIM, THREADS>(ring, k, seqlen - last * BLOCK_N);
        }
        if constexpr (READS_V) {
            copy_tile_or_zero<BLOCK_N, HEAD_DIM, THREADS>(ring + TILE_BYTES, v, seqlen - last * BLOCK_N);
        }
        advance();
#pragma unroll
        for (int ahead = 1; ahead < STAGES - 1; ++ahead) {
            copy_next();
        }
    }

    // Copies one more tile, if there is one. The stage it goes to was read an iteration ago: a barrier lies between.
    __device__ __forceinline__ void copy_next()
    {
        const bool wanted = tiles_left > 0;
        const u32 to = ring + write_offset;
        if constexpr (READS_K) {
            copy_tile_if<BLOCK_N, HEAD_DIM, THREADS>(wanted, to, k);
        }
        if constexpr (READS_V) {
            copy_tile_if<BLOCK_N, HEAD_DIM, THREADS>(wanted, to + TILE_BYTES, v);
        }
        advance();
    }

    // The group is closed even when it is empty: waiting counts groups.
    __device__ __forceinline__ void advance()
    {
        commit_copies();
        k -= BLOCK_N * HEAD_DIM;
        v -= BLOCK_N * HEAD_DIM;
        --tiles_left;
        write_offset = stage_after(write_offset);
    }

    // This thread's share of the oldest tile has landed; a barrier makes that true of all.
    __device__ __forceinline__ void wait() { wait_copies<STAGES - 2>(); }

    __device__ __forceinline__ void next_stage() { read_offset = stage_after(read_offset); }

    __device__ __forceinline__ u32 stage_after(u32 offset) const
    {
        return offset == (STAGES - 1) * STAGE_BYTES ? 0 : offset + STAGE_BYTES;
    }
};

// Once a tile: its copies are seen by all warps, and no warp still reads the stage that is written next.
__device__ __forceinline__ void tile_barrier() { barrier(); }

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

// Softmax in base 2 without a running maximum: weights are 2^(scale score) as they come, nothing is ever rescaled.
// Right as long as no weight leaves the 16-bit range.
template <int M_TILES, int N_TILES, int D_TILES, int RESCALE_LOG2>
struct Softmax {
    enum : int { OPERANDS = 1 };  // versions of P that the MMAs take turns with

    float row_sum[M_TILES][2];  // of this thread's columns
    float scale;                // raw score -> log2 of the weight

    __device__ __forceinline__ void start(float score_scale)
    {
        scale = score_scale;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            row_sum[m][0] = row_sum[m][1] = 0.0f;
        }
    }

    __device__ __forceinline__ void mask(Accumulator (&scores)[M_TILES][N_TILES], int columns_inside)
    {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) {
                mask_columns(scores[m][n], columns_inside - 8 * n - 2 * static_cast<int>(thread_idx() % 4));
            }
        }
    }

    __device__ __forceinline__ void update(const Accumulator (&)[M_TILES][N_TILES],
                                           Accumulator (&)[M_TILES][D_TILES])
    {
    }

    // The A operand of key tiles 2 step and 2 step + 1: the weights, rounded to 16 bits. Row sums take them unrounded.
    __device__ __forceinline__ void weights(u32 (&p)[OPERANDS][4], const Accumulator (&scores)[M_TILES][N_TILES], int m,
                                            int step)
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int half = i % 2;
            const Accumulator& tile = scores[m][2 * step + i / 2];
            const float low = exp2_fast(element(tile, 2 * half) * scale);
            const float high = exp2_fast(element(tile, 2 * half + 1) * scale);
            row_sum[m][half] += low + high;
            p[0][i] = pack(Input{}, low, high);
        }
    }

    // O / row sum as 16-bit values, and the natural logarithm of the row's sum of exponentials.
    __device__ __forceinline__ void store(const Accumulator (&output)[M_TILES][D_TILES], void* o, float* lse,
                                          u64 head_row, int row, int rows_inside)
    {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float sum = row_sum[m][half];
                sum += exchange(sum, 1);
                sum += exchange(sum, 2);
                const int r = row + 16 * m + 8 * half;
                if (r < rows_inside) {
                    store_row_normalised<D_TILES>(output[m], half, reciprocal_fast(sum), static_cast<u32*>(o),
                                                  head_row + r);
                    if (thread_idx() % 4 == 0) {
                        lse[head_row + r] = log2_fast(sum) * 0.69314718f;
                    }
                }
            }
        }
    }
};

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

extern "C" __global__ void __launch_bounds__(4 * 32, 2)
attention(const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v, void* __restrict__ o,
          float* __restrict__ lse, int seqlen, float score_scale, u64* __restrict__ stamps)
{
    stamp_start(stamps);

    constexpr int HEAD_DIM = 64;
    constexpr int BLOCK_M = 128;
    constexpr int BLOCK_N = 64;
    constexpr int WARPS = 4;
    constexpr int STAGES = 2;
    constexpr int ACCUMULATORS = 1;
    constexpr int RESCALE_LOG2 = 0;
    constexpr int ROTATION = 1;
    enum { both, qk, pv };
    constexpr bool READS_K = both != pv;
    constexpr bool READS_V = both != qk;

    constexpr int THREADS = WARPS * 32;
    constexpr int M_TILES = BLOCK_M / (16 * WARPS);  // 16-row tiles of a warp
    constexpr int N_TILES = BLOCK_N / 8;             // 8-key tiles of a score tile
    constexpr int D_TILES = HEAD_DIM / 8;            // 8-column tiles of O
    constexpr int QK_STEPS = HEAD_DIM / 16;
    constexpr int PV_STEPS = BLOCK_N / 16;
    constexpr int Q_BYTES = BLOCK_M * HEAD_DIM * 2;
    constexpr int TILE_BYTES = BLOCK_N * HEAD_DIM * 2;
    static_assert(BLOCK_M % (16 * WARPS) == 0, "each warp owns whole 16-row tiles");
    static_assert(STAGES >= 2, "the next tile needs a buffer of its own");
    static_assert(QK_STEPS % ACCUMULATORS == 0, "the sets must share the steps out evenly");

    // One CTA: BLOCK_M rows of one head, all keys.
    const int head_elements = seqlen * HEAD_DIM;
    const int cta_row = blockIdx.x * BLOCK_M;
    const u64 head = blockIdx.y;
    q += head * head_elements + cta_row * HEAD_DIM;
    k += head * head_elements;
    v += head * head_elements;
    const u64 head_row = head * seqlen;

    // Shared memory: Q, then STAGES times K and V.
    DYN_SMEM(shared);
    const u32 q_tile = shared_address(shared);
    const u32 k_tile = q_tile + Q_BYTES;
    const u32 q_warp = q_tile + thread_idx() / 32 * (M_TILES * 16 * HEAD_DIM * 2);
    const int row = cta_row + thread_idx() / 32 * (M_TILES * 16) + thread_idx() % 32 / 4;

    copy_tile_or_zero<BLOCK_M, HEAD_DIM, THREADS>(q_tile, q, seqlen - cta_row);
    TileCopies<BLOCK_N, HEAD_DIM, STAGES, THREADS, READS_K, READS_V> copies;
    copies.start(k, v, k_tile, seqlen);
    Fragments<HEAD_DIM, N_TILES, M_TILES, ACCUMULATORS, READS_K, READS_V> fragments;
    fragments.start(copies, q_warp, k_tile, k_tile + TILE_BYTES);

    Softmax<M_TILES, N_TILES, D_TILES, RESCALE_LOG2> softmax;
    Accumulator scores[ACCUMULATORS][M_TILES][N_TILES];
    Accumulator output[M_TILES][D_TILES];
    softmax.start(score_scale);
    clear_all(output);

#pragma unroll 1
    for (int tile = (seqlen - 1) / BLOCK_N; tile >= 0; --tile) {
        copies.wait();
        tile_barrier();
        fragments.at_stage(copies.read_offset);

        // S = Q K^T
#pragma unroll
        for (int set = 0; set < ACCUMULATORS; ++set) {
            clear_all(scores[set]);
        }
        multiply_keys<QK_STEPS, ROTATION>(scores, fragments);
        sum_sets(scores);

        // The next copies fly under the softmax and the second product.
        copies.copy_next();

        if (tile * BLOCK_N + BLOCK_N > seqlen) {
            softmax.mask(scores[0], seqlen - tile * BLOCK_N);
        }
        softmax.update(scores[0], output);

        // O += P V, 16 keys at a time: their weights just before they are needed.
#pragma unroll
        for (int step = 0; step < PV_STEPS; ++step) {
            u32 p[M_TILES][softmax.OPERANDS][4];
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                softmax.weights(p[m], scores[0], m, step);
            }
            multiply_values<ROTATION, softmax.OPERANDS>(output, p, fragments, step);
        }
        copies.next_stage();
    }

    softmax.store(output, o, lse, head_row, row, seqlen);

    stamp_end(stamps);
}
// kept header ptx.cuh d60260d7d76608ded44d4cb0efe78ff9d0388de0e8554ee8a7217477d7116a08
