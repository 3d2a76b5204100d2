    // O += P V alone: P is fixed, the first BLOCK_N columns of the Q tile, and stays in registers.
    Accumulator output[M_TILES][D_TILES];
    u32 p[PV_STEPS][M_TILES][1][4];
    clear_all(output);
    copies.wait();
    barrier();
    const u32 q_row = q_warp + tile_offset<HEAD_DIM>(thread_idx() % 16, thread_idx() % 32 / 16);
#pragma unroll
    for (int step = 0; step < PV_STEPS; ++step) {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) {
            u32(&a)[4] = p[step][m][0];
            load_matrix_x4(a[0], a[1], a[2], a[3], chunk_address(q_row + m * 16 * HEAD_DIM * 2, 2 * step));
        }
    }

#pragma unroll 1
    for (int tile = (seqlen - 1) / BLOCK_N; tile >= 0; --tile) {
        copies.wait();
        tile_barrier();
        fragments.at_stage(copies.read_offset);
        copies.copy_next();
#pragma unroll
        for (int step = 0; step < PV_STEPS; ++step) {
            multiply_values<ROTATION, 1>(output, p[step], fragments, step);
        }
        copies.next_stage();
    }

    store_rows_raw<M_TILES, D_TILES>(output, static_cast<float*>(o), head_row, row, seqlen);
