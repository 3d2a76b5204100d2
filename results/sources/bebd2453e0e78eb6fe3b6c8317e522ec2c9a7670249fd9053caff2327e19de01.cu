// pipelining: head_dim=128, chunks=2, stages=1, gmem_copy=kept, block_m=128, block_n=32, warps=4, rescale=8,
//     ctas=2
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

// Chunks of columns travel from global memory to a ring of BUFFERS buffers, last tile first: CHUNKS of a tile's K, then
// CHUNKS of its V. A tile has 2 CHUNKS units; the copy of a unit is issued when the one BUFFERS - 1 before it is about
// to be multiplied, into the buffer that was read last.
template <int BLOCK_N, int HEAD_DIM, int CHUNKS, int BUFFERS, int THREADS>
struct ChunkCopies {
    const u16* k;  // the tile that is multiplied now
    const u16* v;
    u32 ring;
    u32 read_offset;   // bytes from there to the buffer that is read now
    u32 write_offset;  // and to the one that was read before it

    enum : int { UNITS = 2 * CHUNKS, COLUMNS = HEAD_DIM / CHUNKS };
    enum : u32 { BUFFER_BYTES = BLOCK_N * COLUMNS * 2, LAST_BUFFER = (BUFFERS - 1) * BUFFER_BYTES };

    __device__ __forceinline__ void start(const u16* k_head, const u16* v_head, u32 shared, int seqlen)
    {
        const int last = (seqlen - 1) / BLOCK_N;
        k = k_head + last * BLOCK_N * HEAD_DIM;
        v = v_head + last * BLOCK_N * HEAD_DIM;
        ring = shared;
        read_offset = 0;
        write_offset = LAST_BUFFER;
        // Only the last tile can be short. Rows that it lacks are zero in every buffer from here on, whatever chunk of
        // it is copied there: the copies in the loop leave them alone.
        if constexpr (BUFFERS - 1 < UNITS) {
            copy_tile_or_zero<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(ring + LAST_BUFFER, k, 0);
        }
#pragma unroll
        for (int unit = 0; unit < BUFFERS - 1; ++unit) {
            const u32 to = ring + unit * BUFFER_BYTES;
            if (unit < UNITS) {
                copy_tile_or_zero<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(to, source(unit), seqlen - last * BLOCK_N);
            } else {
                copy_tile_if<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(last >= unit / UNITS, to, source(unit));
            }
            commit_copies();
        }
    }

    // Copies the unit that is BUFFERS - 1 ahead of `unit` of this tile, if there is one. A barrier lies between this
    // and the reads of its buffer.
    __device__ __forceinline__ void copy_ahead(int unit, int tile, int seqlen)
    {
        const int wanted = unit + BUFFERS - 1;
        const u32 to = ring + write_offset;
        if (wanted < UNITS) {
            copy_rows_inside<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(seqlen - tile * BLOCK_N, to, source(wanted));
        } else {
            copy_tile_if<BLOCK_N, COLUMNS, THREADS, HEAD_DIM>(tile >= wanted / UNITS, to, source(wanted));
        }
        commit_copies();  // even when it is empty: waiting counts groups
        if (unit == UNITS - 1) {
            k -= BLOCK_N * HEAD_DIM;
            v -= BLOCK_N * HEAD_DIM;
        }
    }

    // This thread's share of the oldest unit has landed; a barrier makes that true of all.
    __device__ __forceinline__ void wait() { wait_copies<BUFFERS - 2>(); }

    __device__ __forceinline__ u32 offset(int) const { return read_offset; }

    __device__ __forceinline__ void next_buffer()
    {
        write_offset = read_offset;
        read_offset = read_offset == LAST_BUFFER ? 0 : read_offset + BUFFER_BYTES;
    }

    // Where a unit begins that many units after the first of this tile.
    __device__ __forceinline__ const u16* source(int unit) const
    {
        const int tiles_ahead = unit / UNITS;
        const u16* tile = unit % UNITS < CHUNKS ? k : v;
        return tile - tiles_ahead * (BLOCK_N * HEAD_DIM) + unit % CHUNKS * COLUMNS;
    }
};

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

// Online softmax in base 2. Rows g and g + 8 of each 16-row tile belong to this thread and its three neighbours. The
// kept maximum may lag behind the true one by RESCALE_LOG2 in log2 (0: never): P stays below 2^RESCALE_LOG2, and O is
// rescaled only when a row of the warp outgrows it.
template <int M_TILES, int N_TILES, int D_TILES, int RESCALE_LOG2>
struct Softmax {
    enum : int { OPERANDS = 1 };  // versions of P that the MMAs take turns with

    float row_max[M_TILES][2];  // in units of the raw scores
    float row_sum[M_TILES][2];  // of this thread's columns
    float scale;                // raw score -> log2 of the weight

    __device__ __forceinline__ void start(float score_scale)
    {
        scale = score_scale;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            row_max[m][0] = row_max[m][1] = minus_infinity();
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

    // Takes the new tile's maxima in, and brings O and the row sums to them.
    __device__ __forceinline__ void update(const Accumulator (&scores)[M_TILES][N_TILES],
                                           Accumulator (&output)[M_TILES][D_TILES])
    {
        float tile_max[M_TILES][2];
        bool outgrown = false;
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                float best = max_of(element(scores[m][0], 2 * half), element(scores[m][0], 2 * half + 1));
#pragma unroll
                for (int n = 1; n < N_TILES; ++n) {
                    best = max_of(best, element(scores[m][n], 2 * half));
                    best = max_of(best, element(scores[m][n], 2 * half + 1));
                }
                best = max_of(best, exchange(best, 1));
                best = max_of(best, exchange(best, 2));
                tile_max[m][half] = best;
                outgrown |= (best - row_max[m][half]) * scale > static_cast<float>(RESCALE_LOG2);
            }
        }
        if (RESCALE_LOG2 == 0 || any_lane(outgrown)) {
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                float factor[2];
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const float grown = max_of(row_max[m][half], tile_max[m][half]);
                    factor[half] = exp2_fast((row_max[m][half] - grown) * scale);
                    row_max[m][half] = grown;
                    row_sum[m][half] *= factor[half];
                }
#pragma unroll
                for (int d = 0; d < D_TILES; ++d) {
                    scale_rows(output[m][d], factor[0], factor[1]);
                }
            }
        }
    }

    // The A operand of key tiles 2 step and 2 step + 1: the weights, rounded to 16 bits. Row sums take them unrounded.
    __device__ __forceinline__ void weights(u32 (&p)[OPERANDS][4], const Accumulator (&scores)[M_TILES][N_TILES], int m,
                                            int step)
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const int half = i % 2;
            const Accumulator& tile = scores[m][2 * step + i / 2];
            const float shift = row_max[m][half] * scale;
            const float low = exp2_fast(fused_multiply_add(element(tile, 2 * half), scale, -shift));
            const float high = exp2_fast(fused_multiply_add(element(tile, 2 * half + 1), scale, -shift));
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
                        lse[head_row + r] = (fused_multiply_add(row_max[m][half], scale, log2_fast(sum))) * 0.69314718f;
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
pipelining(const u16* __restrict__ q, const u16* __restrict__ k, const u16* __restrict__ v, void* __restrict__ o,
           float* __restrict__ lse, int seqlen, float score_scale, u64* __restrict__ stamps)
{
    stamp_start(stamps);

    constexpr int HEAD_DIM = 128;
    constexpr int BLOCK_M = 128;
    constexpr int BLOCK_N = 32;
    constexpr int WARPS = 4;
    constexpr int CHUNKS = 2;
    constexpr int BUFFERS = 2 * 1;
    constexpr int RESCALE_LOG2 = 8;
    constexpr int ROTATION = 0;

    constexpr int THREADS = WARPS * 32;
    constexpr int COLUMNS = HEAD_DIM / CHUNKS;
    constexpr int M_TILES = BLOCK_M / (16 * WARPS);  // 16-row tiles of a warp
    constexpr int N_TILES = BLOCK_N / 8;             // 8-key tiles of a score tile
    constexpr int D_TILES = HEAD_DIM / 8;            // 8-column tiles of O
    constexpr int PV_STEPS = BLOCK_N / 16;
    static_assert(BLOCK_M % (16 * WARPS) == 0, "each warp owns whole 16-row tiles");

    // One CTA: BLOCK_M rows of one head, all keys.
    const int cta_row = blockIdx.x * BLOCK_M;
    const u64 head_row = static_cast<u64>(blockIdx.y) * seqlen;
    q += (head_row + cta_row) * HEAD_DIM;

    // Shared memory: Q, then the ring.
    DYN_SMEM(shared);
    const u32 q_tile = shared_address(shared);
    const u32 ring = q_tile + BLOCK_M * HEAD_DIM * 2;
    const u32 warp_row = thread_idx() / 32 * (M_TILES * 16);
    const int row = cta_row + warp_row + thread_idx() % 32 / 4;

    copy_tile_or_zero<BLOCK_M, HEAD_DIM, THREADS>(q_tile, q, seqlen - cta_row);
    ChunkCopies<BLOCK_N, HEAD_DIM, CHUNKS, BUFFERS, THREADS> copies;
    copies.start(k + head_row * HEAD_DIM, v + head_row * HEAD_DIM, ring, seqlen);
    ChunkFragments<HEAD_DIM, COLUMNS> fragments;
    fragments.start(q_tile + warp_row * (HEAD_DIM * 2), ring);
    Softmax<M_TILES, N_TILES, D_TILES, RESCALE_LOG2> softmax;
    Accumulator output[M_TILES][D_TILES];
    softmax.start(score_scale);
    clear_all(output);

#pragma unroll 1
    for (int tile = (seqlen - 1) / BLOCK_N; tile >= 0; --tile) {
        // S = Q K^T, the head dimension chunk by chunk
        Accumulator scores[1][M_TILES][N_TILES];
        clear_all(scores[0]);
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            copies.wait();
            barrier();
            copies.copy_ahead(chunk, tile, seqlen);
            fragments.at_chunk(copies.offset(chunk), chunk);
            multiply_keys<COLUMNS / 16, ROTATION>(scores, fragments);
            copies.next_buffer();
        }

        if (tile * BLOCK_N + BLOCK_N > seqlen) {
            softmax.mask(scores[0], seqlen - tile * BLOCK_N);
        }
        softmax.update(scores[0], output);

        // O += P V, the columns of O chunk by chunk; the weights are taken under the first and kept.
        u32 p[PV_STEPS][M_TILES][1][4];
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            copies.wait();
            barrier();
            copies.copy_ahead(CHUNKS + chunk, tile, seqlen);
            fragments.at_chunk(copies.offset(CHUNKS + chunk), chunk);
#pragma unroll
            for (int step = 0; step < PV_STEPS; ++step) {
                if (chunk == 0) {
#pragma unroll
                    for (int m = 0; m < M_TILES; ++m) {
                        softmax.weights(p[step][m], scores[0], m, step);
                    }
                }
                multiply_value_chunk<CHUNKS, ROTATION>(output, chunk, p[step], fragments, step);
            }
            copies.next_buffer();
        }
    }

    softmax.store(output, o, lse, head_row, row, seqlen);

    stamp_end(stamps);
}
// kept header ptx.cuh d60260d7d76608ded44d4cb0efe78ff9d0388de0e8554ee8a7217477d7116a08
