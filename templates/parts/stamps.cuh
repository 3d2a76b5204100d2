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
