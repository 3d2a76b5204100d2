    // The scores of the next tile are multiplied before this tile's softmax: two chains in flight. The last iteration
    // has no next tile: it multiplies its own once more and uses nothing of it.
    static_assert(STAGES == 3, "one stage is read for V, one for K, one is written");
    static_assert(ACCUMULATORS == 1, "the second set holds the next tile");
    Softmax<M_TILES, N_TILES, D_TILES, RESCALE_LOG2> softmax;
    Accumulator scores[1][M_TILES][N_TILES];
    Accumulator output[M_TILES][D_TILES];
    softmax.start(score_scale);
    clear_all(output);
    clear_all(scores[0]);

    // The last tile comes first; only that one can be short.
    const int last = (seqlen - 1) / BLOCK_N;
    copies.wait();
    tile_barrier();
    fragments.at_stage(copies.read_offset);
    multiply_keys<QK_STEPS, ROTATION>(scores, fragments);
    softmax.mask(scores[0], seqlen - last * BLOCK_N);

#pragma unroll 1
    for (int tile = last; tile >= 0; --tile) {
        // The next tile too must be here, and it is the youngest that was copied.
        wait_copies<0>();
        tile_barrier();

        // S of the next tile = Q K^T
        const u32 values_offset = copies.read_offset;
        if (tile > 0) {
            copies.next_stage();
        }
        fragments.at_stage(copies.read_offset);
        Accumulator next[1][M_TILES][N_TILES];
        clear_all(next[0]);
        multiply_keys<QK_STEPS, ROTATION>(next, fragments);

        // The next copies fly under the softmax and the second product.
        copies.copy_next();

        softmax.update(scores[0], output);

        // O += P V, 16 keys at a time: their weights just before they are needed.
        fragments.at_stage(values_offset);
#pragma unroll
        for (int step = 0; step < PV_STEPS; ++step) {
            u32 p[M_TILES][softmax.OPERANDS][4];
#pragma unroll
            for (int m = 0; m < M_TILES; ++m) {
                softmax.weights(p[m], scores[0], m, step);
            }
            multiply_values<ROTATION, softmax.OPERANDS>(output, p, fragments, step);
        }

        // The next tile becomes this one.
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
            for (int n = 0; n < N_TILES; ++n) {
#pragma unroll
                for (u32 i = 0; i < sizeof(Accumulator) / 4; ++i) {
                    scores[0][m][n][i] = next[0][m][n][i];
                }
            }
        }
    }

    softmax.store(output, o, lse, head_row, row, seqlen);
