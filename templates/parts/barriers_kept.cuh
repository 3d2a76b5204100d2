
// Once a tile: its copies are seen by all warps, and no warp still reads the stage that is written next.
__device__ __forceinline__ void tile_barrier() { barrier(); }
