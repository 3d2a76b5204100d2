// The primitives, one function per PTX instruction. Kernels use these and nothing else that is not plain C++:
// templates/host/ptx.cuh has the same names and signatures for the CPU.
//
// 16-bit floats never appear as a type: two of them travel in one u32, the lower index in the lower half.
// Shared-memory addresses are u32 in the shared window.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// Dynamic shared memory, aligned for 16-byte swizzled rows of up to 1024 bytes.
#define DYN_SMEM(name) extern __shared__ __align__(1024) char name[]

// 16-bit input types, as tags: they choose the overload of mma and pack.
struct fp16 {};
struct bf16 {};

// ---- who and where -------------------------------------------------------------------------------------------------

__device__ __forceinline__ u32 thread_idx() { return threadIdx.x; }

__device__ __forceinline__ u32 sm_id()
{
    u32 id;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(id));
    return id;
}

// SM cycles since some start; differs between SMs.
__device__ __forceinline__ u64 sm_clock()
{
    u64 cycles;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    return cycles;
}

// Nanoseconds, one clock for the whole GPU, ticking coarsely.
__device__ __forceinline__ u64 global_ns()
{
    u64 ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__device__ __forceinline__ u32 shared_address(const void* pointer)
{
    return static_cast<u32>(__cvta_generic_to_shared(pointer));
}

// ---- copies and barriers -------------------------------------------------------------------------------------------

// Copies 16 bytes from global to shared memory, asynchronously, past L1.
__device__ __forceinline__ void copy_async(u32 to_shared, const void* from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from) : "memory");
}

// The same, or nothing: a predicated instruction, where a branch would cut the schedule of the loop around it.
__device__ __forceinline__ void copy_async_if(u32 to_shared, const void* from, bool wanted)
{
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to_shared),
                 "l"(from), "r"(static_cast<u32>(wanted))
                 : "memory");
}

// The same where `inside`, 16 zero bytes elsewhere; `from` must be a valid address either way.
__device__ __forceinline__ void copy_async_or_zero(u32 to_shared, const void* from, bool inside)
{
    u32 bytes = inside ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to_shared), "l"(from), "r"(bytes) : "memory");
}

// Closes the group of copies this thread has issued since the last one.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most PENDING of this thread's youngest groups are still in flight.
template <int PENDING>
__device__ __forceinline__ void wait_copies()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void barrier() { __syncthreads(); }

// ---- shared memory to fragments ------------------------------------------------------------------------------------

// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ __forceinline__ void load_matrix_x4(u32& m0, u32& m1, u32& m2, u32& m3, u32 row_address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                 : "r"(row_address)
                 : "memory");
}

// The same, each 8x8 matrix transposed.
__device__ __forceinline__ void load_matrix_x4_transposed(u32& m0, u32& m1, u32& m2, u32& m3, u32 row_address)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(m0), "=r"(m1), "=r"(m2), "=r"(m3)
                 : "r"(row_address)
                 : "memory");
}

// ---- tensor cores: D += A B, m16n8k16 ------------------------------------------------------------------------------
// volatile: without it the compiler moves an MMA with loop-invariant operands out of the loop.

__device__ __forceinline__ void mma(fp16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

__device__ __forceinline__ void mma(bf16, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// fp16 accumulator: d[0] holds columns 2t, 2t+1 of row g, d[1] those of row g + 8.
__device__ __forceinline__ void mma(fp16, u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0,%1}, {%2,%3,%4,%5}, {%6,%7}, {%0,%1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// ---- conversions and 16-bit pairs ----------------------------------------------------------------------------------

__device__ __forceinline__ u32 pack(fp16, float low, float high)
{
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ u32 pack(bf16, float low, float high)
{
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ void unpack(u32 pair, float& low, float& high)
{
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }" : "=f"(low), "=f"(high) : "r"(pair));
}

__device__ __forceinline__ u32 multiply_pair(u32 a, u32 b)
{
    u32 product;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
    return product;
}

__device__ __forceinline__ u32 add_pair(u32 a, u32 b)
{
    u32 sum;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

// The bits of an accumulator register, as they are.
__device__ __forceinline__ u32 bits_of(float value) { return __float_as_uint(value); }
__device__ __forceinline__ u32 bits_of(u32 pair) { return pair; }

// ---- arithmetic ----------------------------------------------------------------------------------------------------

__device__ __forceinline__ float minus_infinity() { return -__int_as_float(0x7f800000); }

// 2^x, one MUFU instruction, relative error 2^-22; denormal results are zero.
__device__ __forceinline__ float exp2_fast(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// log2(x), one MUFU instruction, absolute error 2^-22 near 1.
__device__ __forceinline__ float log2_fast(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1/x, one MUFU instruction, error 1 ulp; a plain division would call a function.
__device__ __forceinline__ float reciprocal_fast(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ __forceinline__ float max_of(float a, float b) { return fmaxf(a, b); }
__device__ __forceinline__ float fused_multiply_add(float a, float b, float c) { return fmaf(a, b, c); }

// The value of the lane whose number differs in the bits of `mask`.
__device__ __forceinline__ float exchange(float value, u32 mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

// Whether the condition holds in any lane of the warp; the same answer in all.
__device__ __forceinline__ bool any_lane(bool condition) { return __any_sync(0xffffffffu, condition); }
