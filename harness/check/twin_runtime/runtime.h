// What the parts of the CPU twin's runtime know of each other. One process runs one kernel once, on one OS thread:
// every thread of a CTA is a fiber, CTAs run one after the other.
//
//   fiber.h          switching between stacks
//   schedule.cpp     fibers as threads; warps meet at collectives, CTAs at barriers
//   memory.cpp       buffers, shared memory and its shadow, asynchronous copies
//   hooks.cpp        the kernel's plain loads and stores
//   wavefronts.cpp   bank conflicts
//   tensor_core.cpp  the arithmetic of mma.sync, and 16-bit floats
//   main.cpp         the request, the faults, the answer
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ptx.cuh"

namespace twin {

// A place in the kernel: the address that a call returns to. The program is linked at a fixed low address.
using Place = std::uint32_t;
#define TWIN_PLACE static_cast<twin::Place>(reinterpret_cast<std::uintptr_t>(__builtin_return_address(0)))

// ---- main.cpp ----

// Where the kernel last called the runtime: what a fault inside the runtime is put down to.
extern Place last_place;

// Notes a fault; the same kind at the same places is counted, not repeated.
void report(const char* kind, Place place, Place other, const std::string& message);

// Notes a fault after which going on makes no sense, writes the answer and ends the process.
[[noreturn]] void give_up(const char* kind, Place place, Place other, const std::string& message);

std::string text(const char* format, ...) __attribute__((format(printf, 1, 2)));

// ---- schedule.cpp ----

// Runs `kernel` as `threads` threads for one CTA.
void run_cta(void (*kernel)(), u32 threads);

// Whether the address lies on the stack of some fiber: a local variable of the kernel.
bool on_a_stack(std::uintptr_t address);

// Barriers that the CTA has passed, from 1: two accesses with the same number are not ordered by one.
u32 barrier_epoch();

// ---- memory.cpp ----

enum class Role { input, output, scratch };

// Adds a buffer in global memory, with a gap before and after it; outputs start as poison.
void add_buffer(const std::string& name, Role role, std::size_t bytes);
void place_buffers(u32 shared_bytes);
char* buffer_data(const std::string& name);

void start_cta_memory(u32 threads);
void end_thread_memory(u32 thread);
void check_outputs();

// A plain load or store of the kernel that is not to a local variable.
void access_memory(std::uintptr_t address, u32 bytes, bool write, Place place);

// Words of a matrix row in shared memory, as lane's thread `thread` reads them; poison where they cannot be read.
void read_matrix_row(u32 row_address, u32 thread, Place place, u32 (&row)[4]);

// ---- wavefronts.cpp ----

enum AccessKind { MATRIX_LOAD, COPY, PLAIN, ACCESS_KINDS };

void start_cta_wavefronts(u32 warps);
void count_matrix_load(const u32 (&row_addresses)[32], Place place);

// One lane's access; it is counted together with those of the other lanes when the warp next meets.
void note_access(AccessKind kind, u32 thread, u32 address, u32 bytes, Place place);
void count_warp_accesses(u32 warp);

// Shared-memory passes, made and needed. A pass serves 32 banks of 4 bytes.
struct Wavefronts {
    u64 made = 0, ideal = 0;
};
extern std::map<Place, Wavefronts> wavefronts[ACCESS_KINDS];

// ---- tensor_core.cpp ----

// How the tensor core adds: `terms` products at a time, `fraction_bits` kept below the largest exponent.
struct TensorCore {
    int terms, fraction_bits, zero_exponent_fp32, zero_exponent_fp16;
};
extern TensorCore tensor_core;

// The operands that one lane brings to an mma, and where its result goes.
struct MmaLane {
    Input input;
    void* d;
    bool fp16_accumulator;
    const u32* a;
    const u32* b;
};
void multiply_warp(MmaLane* const (&lanes)[32]);

}  // namespace twin
