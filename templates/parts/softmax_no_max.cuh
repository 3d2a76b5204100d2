
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
