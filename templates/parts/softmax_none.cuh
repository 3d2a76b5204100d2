
// No softmax and no conversion: the accumulator's own bits are the A operand, read as pairs of 16-bit floats. Keys
// that do not exist are zero rows of K and V, so their scores are zero bits. O leaves as it is, in fp32.
template <int M_TILES, int N_TILES, int D_TILES, int RESCALE_LOG2>
struct Softmax {
    // fp32 scores fill two operands, which column tiles take turns with.
    enum : int { OPERANDS = sizeof(Accumulator) / 8 };

    __device__ __forceinline__ void start(float) {}
    __device__ __forceinline__ void mask(Accumulator (&)[M_TILES][N_TILES], int) {}
    __device__ __forceinline__ void update(const Accumulator (&)[M_TILES][N_TILES],
                                           Accumulator (&)[M_TILES][D_TILES])
    {
    }

    // The registers of key tiles 2 step and 2 step + 1, four to an operand, as they lie: nothing is moved.
    __device__ __forceinline__ void weights(u32 (&p)[OPERANDS][4], const Accumulator (&scores)[M_TILES][N_TILES], int m,
                                            int step)
    {
        constexpr int REGISTERS = sizeof(Accumulator) / 4;
#pragma unroll
        for (int i = 0; i < 4 * OPERANDS; ++i) {
            p[i / 4][i % 4] = bits_of(scores[m][2 * step + i / REGISTERS][i % REGISTERS]);
        }
    }

    __device__ __forceinline__ void store(const Accumulator (&output)[M_TILES][D_TILES], void* o, float*, u64 head_row,
                                          int row, int rows_inside)
    {
        store_rows_raw<M_TILES, D_TILES>(output, static_cast<float*>(o), head_row, row, rows_inside);
    }
};
