
// Nothing writes shared memory in the loop, so nothing has to be ordered.
__device__ __forceinline__ void tile_barrier() {}
