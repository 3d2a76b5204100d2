// The primitives of templates/device/ptx.cuh for the CPU: the same names and signatures, so that a kernel's text compiles
// unchanged with a host compiler. What a primitive does is said there; how it is run here is the business of the runtime
// (harness/check/twin_runtime), whose interface is `namespace twin`.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

struct fp16 {};
struct bf16 {};

// ---- what the runtime offers ---------------------------------------------------------------------------------------
// A function marked `collective` returns when all 32 lanes of the warp have called it from the same place.

namespace twin {

struct Index3 {
    u32 x, y, z;
};
extern Index3 block_index, grid_size;

enum class Input { fp16, bf16 };

u32 thread_index();
u64 step_count();
char* shared_memory();
u32 shared_address(const void* pointer);

void copy_async(u32 to_shared, const void* from, bool inside);
void commit_copies();
void wait_copies(u32 pending);
void barrier();

void load_matrix_x4(u32* const (&parts)[4], u32 row_address, bool transposed);  // collective
void mma(Input input, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]);     // collective
void mma(u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2]);                    // collective
float exchange(float value, u32 mask);                                          // collective
bool any_lane(bool condition);                                                  // collective

u16 to_fp16(double value);  // round to nearest even
u16 to_bf16(float value);   // round to nearest even
float from_fp16(u16 bits);
float exp2_fast(float x);
float log2_fast(float x);

}  // namespace twin

// ---- CUDA's words --------------------------------------------------------------------------------------------------

#define __global__ __attribute__((noinline))
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define blockIdx twin::block_index
#define gridDim twin::grid_size
#define DYN_SMEM(name) char* const name = twin::shared_memory()

// ---- who and where -------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 thread_idx() { return twin::thread_index(); }
__device__ __forceinline__ u32 sm_id() { return 0; }

// Clocks count the runtime's steps: they grow, and mean nothing else.
__device__ __forceinline__ u64 sm_clock() { return twin::step_count(); }
__device__ __forceinline__ u64 global_ns() { return twin::step_count(); }

__device__ __forceinline__ u32 shared_address(const void* pointer) { return twin::shared_address(pointer); }

// ---- copies and barriers -------------------------------------------------------------------------------------------

__device__ __forceinline__ void copy_async(u32 to_shared, const void* from) { twin::copy_async(to_shared, from, true); }

__device__ __forceinline__ void copy_async_if(u32 to_shared, const void* from, bool wanted)
{
    if (wanted) {
        twin::copy_async(to_shared, from, true);
    }
}

__device__ __forceinline__ void copy_async_or_zero(u32 to_shared, const void* from, bool inside)
{
    twin::copy_async(to_shared, from, inside);
}

__device__ __forceinline__ void commit_copies() { twin::commit_copies(); }

template <int PENDING>
__device__ __forceinline__ void wait_copies()
{
    twin::wait_copies(PENDING);
}

__device__ __forceinline__ void barrier() { twin::barrier(); }

// ---- shared memory to fragments ------------------------------------------------------------------------------------

__device__ __forceinline__ void load_matrix_x4(u32& m0, u32& m1, u32& m2, u32& m3, u32 row_address)
{
    twin::load_matrix_x4({&m0, &m1, &m2, &m3}, row_address, false);
}

__device__ __forceinline__ void load_matrix_x4_transposed(u32& m0, u32& m1, u32& m2, u32& m3, u32 row_address)
{
    twin::load_matrix_x4({&m0, &m1, &m2, &m3}, row_address, true);
}

// ---- tensor cores: D += A B, m16n8k16 ------------------------------------------------------------------------------

__device__ __forceinline__ void mma(fp16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    twin::mma(twin::Input::fp16, d, a, b);
}

__device__ __forceinline__ void mma(bf16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    twin::mma(twin::Input::bf16, d, a, b);
}

__device__ __forceinline__ void mma(fp16, u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2]) { twin::mma(d, a, b); }

// ---- conversions and 16-bit pairs ----------------------------------------------------------------------------------

__device__ __forceinline__ u32 pack(fp16, float low, float high)
{
    return twin::to_fp16(low) | static_cast<u32>(twin::to_fp16(high)) << 16;
}

__device__ __forceinline__ u32 pack(bf16, float low, float high)
{
    return twin::to_bf16(low) | static_cast<u32>(twin::to_bf16(high)) << 16;
}

__device__ __forceinline__ void unpack(u32 pair, float& low, float& high)
{
    low = twin::from_fp16(static_cast<u16>(pair));
    high = twin::from_fp16(static_cast<u16>(pair >> 16));
}

// In double the product and the sum of two fp16 values are exact, so each is rounded once.
__device__ __forceinline__ u32 multiply_pair(u32 a, u32 b)
{
    float a_low, a_high, b_low, b_high;
    unpack(a, a_low, a_high);
    unpack(b, b_low, b_high);
    return twin::to_fp16(double(a_low) * b_low) | static_cast<u32>(twin::to_fp16(double(a_high) * b_high)) << 16;
}

__device__ __forceinline__ u32 add_pair(u32 a, u32 b)
{
    float a_low, a_high, b_low, b_high;
    unpack(a, a_low, a_high);
    unpack(b, b_low, b_high);
    return twin::to_fp16(double(a_low) + b_low) | static_cast<u32>(twin::to_fp16(double(a_high) + b_high)) << 16;
}

__device__ __forceinline__ u32 bits_of(float value) { return __builtin_bit_cast(u32, value); }
__device__ __forceinline__ u32 bits_of(u32 pair) { return pair; }

// ---- arithmetic ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float minus_infinity() { return -__builtin_inff(); }
__device__ __forceinline__ float exp2_fast(float x) { return twin::exp2_fast(x); }
__device__ __forceinline__ float log2_fast(float x) { return twin::log2_fast(x); }
__device__ __forceinline__ float reciprocal_fast(float x) { return 1.0f / x; }
__device__ __forceinline__ float max_of(float a, float b) { return __builtin_fmaxf(a, b); }
__device__ __forceinline__ float fused_multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

__device__ __forceinline__ float exchange(float value, u32 mask) { return twin::exchange(value, mask); }
__device__ __forceinline__ bool any_lane(bool condition) { return twin::any_lane(condition); }
