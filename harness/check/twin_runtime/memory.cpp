// Global buffers and shared memory, what is known of each word of them, and asynchronous copies.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <deque>

#include "runtime.h"

namespace twin {

namespace {

constexpr std::size_t GAP_BYTES = 1 << 20;  // between buffers: what runs over one is seen, not written to the next
constexpr u32 SHARED_BASE = 1024;           // not 0, so that a forgotten base is seen
constexpr int POISON = 0xff;                // NaN in every float format

struct Buffer {
    std::string name;
    Role role;
    std::size_t bytes;
    char* data = nullptr;
    std::vector<Place> writers;  // of an output: who wrote each 2 bytes
};

// What is known of 4 bytes of shared memory. Epochs are numbers of barriers; 0 is never.
struct Word {
    Place write_place, read_place, copy_place;
    u32 write_epoch, read_epoch;
    u16 writer, reader, copier;
    bool many_readers;  // in read_epoch, besides `reader`
    bool in_flight;     // an asynchronous copy to it has been issued and not been waited for
};

struct Copy {
    u32 to;
    const char* from;  // null: zeros
    Place place;
};

struct CopyQueue {
    std::vector<Copy> open;
    std::deque<std::vector<Copy>> groups;
};

std::vector<Buffer> buffers;
char* reservation;
std::size_t reservation_bytes;
char* shared;
u32 shared_bytes;
std::vector<Word> words;
std::vector<CopyQueue> queues;

std::string thread_name(u32 thread) { return text("thread %u (warp %u)", thread, thread / 32); }

// ---- shared memory -------------------------------------------------------------------------------------------------

bool inside_shared(u32 address, u32 bytes, const char* what, Place place)
{
    const u32 offset = address - SHARED_BASE;
    if (offset > shared_bytes || shared_bytes - offset < bytes) {
        report("bounds", place, 0,
               text("%s of %u bytes at shared byte %d, by %s: %u bytes were asked for", what, bytes,
                    static_cast<int>(offset), thread_name(thread_index()).c_str(), shared_bytes));
        return false;
    }
    return true;
}

bool aligned(std::uintptr_t address, u32 bytes, const char* what, Place place)
{
    if (address % bytes != 0) {
        report("alignment", place, 0,
               text("%s of %u bytes by %s is %u bytes off a multiple of %u", what, bytes,
                    thread_name(thread_index()).c_str(), static_cast<u32>(address % bytes), bytes));
        return false;
    }
    return true;
}

void check_read(u32 index, u32 thread, Place place)
{
    Word& word = words[index];
    if (word.in_flight) {
        report("in flight", place, word.copy_place,
               text("shared byte %u is read by %s while the copy that %s issued is in flight: nobody has waited for it",
                    index * 4, thread_name(thread).c_str(), thread_name(word.copier).c_str()));
    } else if (word.write_epoch == 0) {
        report("uninitialised", place, 0,
               text("shared byte %u is read by %s and was never written", index * 4, thread_name(thread).c_str()));
    } else if (word.write_epoch == barrier_epoch() && word.writer != thread) {
        report("race", place, word.write_place,
               text("shared byte %u is read by %s and was written by %s, with no barrier between", index * 4,
                    thread_name(thread).c_str(), thread_name(word.writer).c_str()));
    }
    if (word.read_epoch != barrier_epoch()) {
        word.read_epoch = barrier_epoch();
        word.reader = static_cast<u16>(thread);
        word.read_place = place;
        word.many_readers = false;
    } else if (word.reader != thread) {
        word.many_readers = true;
    }
}

void check_write(u32 index, u32 thread, Place place, const char* what)
{
    const Word& word = words[index];
    if (word.in_flight) {
        report("in flight", place, word.copy_place,
               text("shared byte %u is overwritten by %s of %s while the copy that %s issued is in flight", index * 4, what,
                    thread_name(thread).c_str(), thread_name(word.copier).c_str()));
    }
    if (word.write_epoch == barrier_epoch() && word.writer != thread) {
        report("race", place, word.write_place,
               text("shared byte %u is overwritten by %s of %s and was written by %s, with no barrier between", index * 4,
                    what, thread_name(thread).c_str(), thread_name(word.writer).c_str()));
    }
    if (word.read_epoch == barrier_epoch() && (word.many_readers || word.reader != thread)) {
        report("race", place, word.read_place,
               text("shared byte %u is overwritten by %s of %s and was read by %s%s, with no barrier between", index * 4, what,
                    thread_name(thread).c_str(), thread_name(word.reader).c_str(), word.many_readers ? " and others" : ""));
    }
}

void mark_written(u32 index, u32 thread, Place place)
{
    words[index].write_epoch = barrier_epoch();
    words[index].writer = static_cast<u16>(thread);
    words[index].write_place = place;
}

void access_shared(u32 address, u32 bytes, bool write, Place place)
{
    if (!inside_shared(address, bytes, write ? "a store" : "a load", place)) {
        return;
    }
    aligned(address, bytes, write ? "a store" : "a load", place);
    const u32 thread = thread_index();
    const u32 first = (address - SHARED_BASE) / 4;
    const u32 last = (address - SHARED_BASE + bytes - 1) / 4;
    for (u32 index = first; index <= last; ++index) {
        if (write) {
            check_write(index, thread, place, "a store");
            mark_written(index, thread, place);
        } else {
            check_read(index, thread, place);
        }
    }
    note_access(PLAIN, thread, address, bytes, place);
}

// ---- global memory -------------------------------------------------------------------------------------------------

Buffer* find_buffer(std::uintptr_t address)
{
    for (Buffer& buffer : buffers) {
        if (address - reinterpret_cast<std::uintptr_t>(buffer.data) < buffer.bytes) {
            return &buffer;
        }
    }
    return nullptr;
}

std::string describe_outside(std::uintptr_t address)
{
    const Buffer* nearest = nullptr;
    std::ptrdiff_t distance = 0;
    for (const Buffer& buffer : buffers) {
        const std::ptrdiff_t before = buffer.data - reinterpret_cast<char*>(address);
        const std::ptrdiff_t past = -before - static_cast<std::ptrdiff_t>(buffer.bytes);
        const std::ptrdiff_t gap = std::max(before, past);
        if (!nearest || gap < distance) {
            nearest = &buffer;
            distance = gap;
        }
    }
    if (!nearest || distance > static_cast<std::ptrdiff_t>(GAP_BYTES)) {
        return "in no buffer at all";
    }
    const bool before = reinterpret_cast<char*>(address) < nearest->data;
    return text("%td bytes %s of %s (%zu bytes)", distance, before ? "before the start" : "past the end",
                nearest->name.c_str(), nearest->bytes);
}

// A global access of the kernel; false where it must not be made.
bool access_global(std::uintptr_t address, u32 bytes, bool write, const char* what, Place place)
{
    Buffer* buffer = find_buffer(address);
    const std::size_t offset = buffer ? address - reinterpret_cast<std::uintptr_t>(buffer->data) : 0;
    if (!buffer || buffer->bytes - offset < bytes) {
        const std::uintptr_t outside = buffer ? reinterpret_cast<std::uintptr_t>(buffer->data) + buffer->bytes : address;
        const bool mapped = address - reinterpret_cast<std::uintptr_t>(reservation) < reservation_bytes;
        const std::string message = text("%s of %u bytes by %s: %s", what, bytes, thread_name(thread_index()).c_str(),
                                         describe_outside(outside).c_str());
        if (!mapped) {
            give_up("bounds", place, 0, message);
        }
        report("bounds", place, 0, message);
        return false;
    }
    aligned(address, bytes, what, place);
    if (write && buffer->role == Role::input) {
        report("input written", place, 0, text("%s to input %s at byte %zu", what, buffer->name.c_str(), offset));
    }
    if (buffer->role != Role::output) {
        return true;
    }
    for (std::size_t i = offset / 2; i <= (offset + bytes - 1) / 2; ++i) {
        Place& writer = buffer->writers[i];
        if (write && writer) {
            report("written twice", place, writer, text("byte %zu of output %s", i * 2, buffer->name.c_str()));
        } else if (!write && !writer) {
            report("uninitialised", place, 0,
                   text("byte %zu of output %s is read and was never written", i * 2, buffer->name.c_str()));
        }
        writer = write ? place : writer;
    }
    return true;
}

// ---- asynchronous copies -------------------------------------------------------------------------------------------

void land(const Copy& copy, u32 thread)
{
    char* to = shared + (copy.to - SHARED_BASE);
    if (copy.from) {
        std::memcpy(to, copy.from, 16);
    } else {
        std::memset(to, 0, 16);
    }
    for (u32 index = (copy.to - SHARED_BASE) / 4, end = index + 4; index < end; ++index) {
        words[index].in_flight = false;
        mark_written(index, thread, copy.place);
    }
}

}  // namespace

void copy_async(u32 to_shared, const void* from, bool inside)
{
    const Place place = last_place = TWIN_PLACE;
    const u32 thread = thread_index();
    // Even where nothing is read from it, the address must be one that could be.
    const bool readable = access_global(reinterpret_cast<std::uintptr_t>(from), 16, false, "a copy from global memory", place);
    if (!aligned(to_shared, 16, "a copy to shared memory", place) ||
        !inside_shared(to_shared, 16, "a copy", place)) {
        return;
    }
    const u32 first = (to_shared - SHARED_BASE) / 4;
    for (u32 index = first; index < first + 4; ++index) {
        check_write(index, thread, place, "a copy");
        words[index].in_flight = true;
        words[index].copier = static_cast<u16>(thread);
        words[index].copy_place = place;
    }
    std::memset(shared + first * 4, POISON, 16);
    queues[thread].open.push_back({to_shared, inside && readable ? static_cast<const char*>(from) : nullptr, place});
    note_access(COPY, thread, to_shared, 16, place);
}

void commit_copies()
{
    CopyQueue& queue = queues[thread_index()];
    queue.groups.push_back(std::move(queue.open));
    queue.open.clear();
}

void wait_copies(u32 pending)
{
    CopyQueue& queue = queues[thread_index()];
    for (; queue.groups.size() > pending; queue.groups.pop_front()) {
        for (const Copy& copy : queue.groups.front()) {
            land(copy, thread_index());
        }
    }
}

// ---- for the rest of the runtime -----------------------------------------------------------------------------------

void add_buffer(const std::string& name, Role role, std::size_t bytes) { buffers.push_back({name, role, bytes, nullptr, {}}); }

void place_buffers(u32 bytes)
{
    const auto rounded = [](std::size_t size) { return (size + 4095) / 4096 * 4096; };
    reservation_bytes = rounded(bytes) + 2 * GAP_BYTES;
    for (const Buffer& buffer : buffers) {
        reservation_bytes += rounded(buffer.bytes) + GAP_BYTES;
    }
    reservation = static_cast<char*>(
        mmap(nullptr, reservation_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (reservation == MAP_FAILED) {
        reservation = nullptr;
        give_up("crash", 0, 0, "no memory for the buffers");
    }
    char* next = reservation + GAP_BYTES;
    for (Buffer& buffer : buffers) {
        buffer.data = next;
        next += rounded(buffer.bytes) + GAP_BYTES;
        if (buffer.role != Role::input) {
            std::memset(buffer.data, POISON, buffer.bytes);
        }
        buffer.writers.assign(buffer.role == Role::output ? (buffer.bytes + 1) / 2 : 0, 0);
    }
    shared = next;
    shared_bytes = bytes;
}

char* buffer_data(const std::string& name)
{
    for (const Buffer& buffer : buffers) {
        if (buffer.name == name) {
            return buffer.data;
        }
    }
    return nullptr;
}

void start_cta_memory(u32 threads)
{
    std::memset(shared, POISON, shared_bytes);
    words.assign((shared_bytes + 3) / 4, Word{});
    queues.assign(threads, CopyQueue{});
    start_cta_wavefronts(threads / 32);
}

void end_thread_memory(u32 thread)
{
    CopyQueue& queue = queues[thread];
    queue.groups.push_back(queue.open);
    std::size_t copies = 0;
    Place place = 0;
    for (const std::vector<Copy>& group : queue.groups) {
        copies += group.size();
        place = place || group.empty() ? place : group.front().place;
    }
    if (copies > 0) {
        report("pending", place, 0,
               text("%s ends with %zu copies that nobody waited for", thread_name(thread).c_str(), copies));
    }
}

void check_outputs()
{
    for (const Buffer& buffer : buffers) {
        const auto missing = std::count(buffer.writers.begin(), buffer.writers.end(), 0u);
        if (missing > 0) {
            const auto first = std::find(buffer.writers.begin(), buffer.writers.end(), 0u) - buffer.writers.begin();
            report("unwritten", 0, 0,
                   text("%td of %zu bytes of output %s were never written, the first at byte %td", missing * 2, buffer.bytes,
                        buffer.name.c_str(), first * 2));
        }
    }
}

void read_matrix_row(u32 row_address, u32 thread, Place place, u32 (&row)[4])
{
    std::memset(row, POISON, sizeof row);
    if (!aligned(row_address, 16, "a matrix row", place) || !inside_shared(row_address, 16, "a matrix row", place)) {
        return;
    }
    const u32 first = (row_address - SHARED_BASE) / 4;
    for (u32 index = first; index < first + 4; ++index) {
        check_read(index, thread, place);
    }
    std::memcpy(row, shared + first * 4, 16);
}

char* shared_memory() { return shared; }

u32 shared_address(const void* pointer)
{
    return SHARED_BASE + static_cast<u32>(static_cast<const char*>(pointer) - shared);
}

void access_memory(std::uintptr_t address, u32 bytes, bool write, Place place)
{
    last_place = place;
    // The gap after shared memory belongs to it: an index that ran over is reported as such.
    const std::uintptr_t offset = address - reinterpret_cast<std::uintptr_t>(shared);
    if (offset < shared_bytes + GAP_BYTES) {
        access_shared(SHARED_BASE + static_cast<u32>(offset), bytes, write, place);
    } else {
        access_global(address, bytes, write, write ? "a store" : "a load", place);
    }
}

}  // namespace twin
