
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
