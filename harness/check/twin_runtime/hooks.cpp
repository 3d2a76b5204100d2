// The kernel's plain loads and stores arrive here: compiled with -fsanitize=thread, it calls a function before each. The
// library that usually has these functions is not linked.
#include <cstring>

#include "runtime.h"

extern "C" const char __executable_start, _end;  // set by the linker: the program and its constants

namespace twin {

static void access(const void* pointer, u32 bytes, bool write, Place place)
{
    const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(pointer);
    const std::uintptr_t program = reinterpret_cast<std::uintptr_t>(&__executable_start);
    const std::uintptr_t program_end = reinterpret_cast<std::uintptr_t>(&_end);
    if (!on_a_stack(address) && address - program >= program_end - program) {
        access_memory(address, bytes, write, place);
    }
}

}  // namespace twin

#define HOOKS(bytes)                                                                                                \
    void __tsan_read##bytes(void* p) { twin::access(p, bytes, false, TWIN_PLACE); }                                 \
    void __tsan_write##bytes(void* p) { twin::access(p, bytes, true, TWIN_PLACE); }                                 \
    void __tsan_unaligned_read##bytes(void* p) { twin::access(p, bytes, false, TWIN_PLACE); }                       \
    void __tsan_unaligned_write##bytes(void* p) { twin::access(p, bytes, true, TWIN_PLACE); }                       \
    void __tsan_volatile_read##bytes(void* p) { twin::access(p, bytes, false, TWIN_PLACE); }                        \
    void __tsan_volatile_write##bytes(void* p) { twin::access(p, bytes, true, TWIN_PLACE); }                        \
    void __tsan_unaligned_volatile_read##bytes(void* p) { twin::access(p, bytes, false, TWIN_PLACE); }              \
    void __tsan_unaligned_volatile_write##bytes(void* p) { twin::access(p, bytes, true, TWIN_PLACE); }

extern "C" {
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

// A structure copied as a whole: word by word.
static void access_range(char* p, unsigned long bytes, bool write, twin::Place place)
{
    const bool by_words = bytes % 4 == 0 && reinterpret_cast<std::uintptr_t>(p) % 4 == 0;
    const twin::Place where = place;
    for (unsigned long i = 0; i < bytes; i += by_words ? 4 : 1) {
        twin::access(p + i, by_words ? 4 : 1, write, where);
    }
}
void __tsan_read_range(void* p, unsigned long bytes) { access_range(static_cast<char*>(p), bytes, false, TWIN_PLACE); }
void __tsan_write_range(void* p, unsigned long bytes) { access_range(static_cast<char*>(p), bytes, true, TWIN_PLACE); }

// What clang calls for memcpy, memmove and memset.
void* __tsan_memcpy(void* to, const void* from, unsigned long bytes)
{
    access_range(static_cast<char*>(const_cast<void*>(from)), bytes, false, TWIN_PLACE);
    access_range(static_cast<char*>(to), bytes, true, TWIN_PLACE);
    return std::memmove(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, unsigned long bytes) { return __tsan_memcpy(to, from, bytes); }
void* __tsan_memset(void* to, int value, unsigned long bytes)
{
    access_range(static_cast<char*>(to), bytes, true, TWIN_PLACE);
    return std::memset(to, value, bytes);
}
}
