
// No softmax: the scores, scaled and rounded to 16 bits, are the A operand. Keys that do not exist are zero rows of K
// and V, so their scores are zero and need no mask. O leaves as it is, in fp32.
template <int M_TILES, int N_TILES, int D_TILES, int RESCALE_LOG2>
struct Softmax {
    enum : int { OPERANDS = 1 };  // versions of P that the MMAs take turns with

    float scale;

    __device__ __forceinline__ void start(float score_scale) { scale = score_scale; }
    __device__ __forceinline__ void mask(Accumulator (&)[M_TILES][N_TILES], int) {}
    __device__ __forceinline__ void update(const Accumulator (&)[M_TILES][N_TILES],
                                           Accumulator (&)[M_TILES][D_TILES])
    {
    }

    __device__ __forceinline__ void weights(u32 (&p)[OPERANDS][4], const Accumulator (&scores)[M_TILES][N_TILES], int m,
                                            int step)
    {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const Accumulator& tile = scores[m][2 * step + i / 2];
            const int first = i % 2 * 2;
            p[0][i] = pack(Input{}, element(tile, first) * scale, element(tile, first + 1) * scale);
        }
    }

    __device__ __forceinline__ void store(const Accumulator (&output)[M_TILES][D_TILES], void* o, float*, u64 head_row,
                                          int row, int rows_inside)
    {
        store_rows_raw<M_TILES, D_TILES>(output, static_cast<float*>(o), head_row, row, rows_inside);
    }
};
