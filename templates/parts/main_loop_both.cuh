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
