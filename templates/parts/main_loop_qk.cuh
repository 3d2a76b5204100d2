    // S = Q K^T alone: the scores of all tiles are added up, so that none is dead.
    Accumulator scores[ACCUMULATORS][M_TILES][N_TILES];
#pragma unroll
    for (int set = 0; set < ACCUMULATORS; ++set) {
        clear_all(scores[set]);
    }

#pragma unroll 1
    for (int tile = (seqlen - 1) / BLOCK_N; tile >= 0; --tile) {
        copies.wait();
        tile_barrier();
        fragments.at_stage(copies.read_offset);
        multiply_keys<QK_STEPS, ROTATION>(scores, fragments);
        copies.copy_next();
        copies.next_stage();
    }

    sum_sets(scores);
    store_rows_raw<M_TILES, N_TILES>(scores[0], static_cast<float*>(o), head_row, row, seqlen);
