// Threads as fibers. One runs until it must wait for others; then the next that can run does.
#include <sys/mman.h>

#include "fiber.h"
#include "runtime.h"

namespace twin {

Index3 block_index, grid_size;

namespace {

constexpr std::size_t STACK_BYTES = 256 * 1024;
constexpr std::size_t GUARD_BYTES = 4096;  // below each stack: running over it faults instead of spoiling the next one

enum class State { runnable, at_collective, at_barrier, ended };

struct Thread {
    Fiber fiber;
    State state;
    const char* operation;  // what it waits at, and where
    Place place;
};

struct Warp {
    void* operands[32];
    u32 arrived;
    const char* operation;
    Place place;
    u32 first_lane;
};

std::vector<Thread> threads;
std::vector<Warp> warps;
Fiber scheduler;
void (*kernel_entry)();
char* stacks;
std::size_t stacks_bytes;
u32 current;
u32 at_barrier, ended;
Place barrier_place;
u32 barrier_first;
u32 epoch;
u64 steps;

[[noreturn]] void report_deadlock()
{
    std::map<std::pair<const char*, Place>, u32> waiting;
    for (const Thread& thread : threads) {
        if (thread.state != State::ended) {
            ++waiting[{thread.operation, thread.place}];
        }
    }
    std::string message = text("no thread of CTA (%u, %u, %u) can go on:", block_index.x, block_index.y, block_index.z);
    Place first = 0, second = 0;
    for (const auto& [where, count] : waiting) {
        message += text(" %u wait at %s,", count, where.first);
        (first ? second : first) = where.second;
    }
    give_up("deadlock", first, second, message + text(" %u have ended", ended));
}

// Gives the processor to the next thread that can run; returns when this one is given it again.
void run_others()
{
    const u32 self = current;
    const u32 count = static_cast<u32>(threads.size());
    for (u32 step = 1; step <= count; ++step) {
        const u32 next = self + step < count ? self + step : self + step - count;
        if (threads[next].state == State::runnable) {
            if (next != self) {
                current = next;
                switch_fibers(threads[self].fiber, threads[next].fiber);
            }
            return;
        }
    }
    if (ended < count) {
        report_deadlock();
    }
    switch_fibers(threads[self].fiber, scheduler);
}

void count_all_accesses()
{
    for (u32 warp = 0; warp < warps.size(); ++warp) {
        count_warp_accesses(warp);
    }
}

// A barrier opens when every thread is there. Threads that have ended never will be.
void open_barrier_if_full()
{
    if (at_barrier == 0 || at_barrier + ended < threads.size()) {
        return;
    }
    if (ended > 0) {
        report("barrier", barrier_place, 0, text("%u threads wait at a barrier, %u have ended", at_barrier, ended));
    }
    count_all_accesses();
    ++epoch;
    at_barrier = 0;
    for (Thread& thread : threads) {
        if (thread.state == State::at_barrier) {
            thread.state = State::runnable;
        }
    }
}

void thread_main()
{
    kernel_entry();
    end_thread_memory(current);
    threads[current].state = State::ended;
    ++ended;
    open_barrier_if_full();
    run_others();
    __builtin_unreachable();
}

void wait_as(State state, const char* operation, Place place)
{
    threads[current].state = state;
    threads[current].operation = operation;
    threads[current].place = place;
    run_others();
}

// Returns when all lanes of the warp have come with this operation from this place; `work` has then seen all operands.
template <class Operand>
void meet(const char* operation, Place place, Operand& operand, void (*work)(Operand* const (&)[32], Place, u32))
{
    ++steps;
    last_place = place;
    const u32 lane = current % 32;
    Warp& warp = warps[current / 32];
    if (warp.arrived == 0) {
        warp.operation = operation;
        warp.place = place;
        warp.first_lane = lane;
    } else if (warp.place != place || warp.operation != operation) {
        give_up("divergence", place, warp.place,
                text("thread %u is at %s while lane %u of its warp is at %s elsewhere: a collective needs all 32 lanes",
                     current, operation, warp.first_lane, warp.operation));
    }
    warp.operands[lane] = &operand;
    if (++warp.arrived < 32) {
        wait_as(State::at_collective, operation, place);
        return;
    }
    warp.arrived = 0;
    work(reinterpret_cast<Operand* const(&)[32]>(warp.operands), place, current / 32);
    count_warp_accesses(current / 32);
    for (u32 other = current - lane; other < current - lane + 32; ++other) {
        threads[other].state = State::runnable;
    }
}

void make_stacks(u32 count)
{
    stacks_bytes = count * STACK_BYTES;
    stacks = static_cast<char*>(
        mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (stacks == MAP_FAILED) {
        give_up("crash", 0, 0, text("no memory for the stacks of %u threads", count));
    }
    for (u32 i = 0; i < count; ++i) {
        mprotect(stacks + i * STACK_BYTES, GUARD_BYTES, PROT_NONE);
    }
}

}  // namespace

void run_cta(void (*kernel)(), u32 count)
{
    if (!stacks) {
        make_stacks(count);
    }
    kernel_entry = kernel;
    threads.assign(count, Thread{});
    warps.assign(count / 32, Warp{});
    at_barrier = ended = current = 0;
    epoch = 1;
    start_cta_memory(count);
    for (u32 i = 0; i < count; ++i) {
        prepare_fiber(threads[i].fiber, stacks + i * STACK_BYTES, STACK_BYTES, thread_main);
    }
    switch_fibers(scheduler, threads[0].fiber);
    count_all_accesses();
}

bool on_a_stack(std::uintptr_t address) { return address - reinterpret_cast<std::uintptr_t>(stacks) < stacks_bytes; }

u32 barrier_epoch() { return epoch; }
u32 thread_index() { return current; }
u64 step_count() { return ++steps; }

void barrier()
{
    const Place place = last_place = TWIN_PLACE;
    ++steps;
    if (at_barrier == 0) {
        barrier_place = place;
        barrier_first = current;
    } else if (barrier_place != place) {
        report("barrier", place, barrier_place,
               text("thread %u waits at another barrier than thread %u", current, barrier_first));
    }
    ++at_barrier;
    threads[current].state = State::at_barrier;
    open_barrier_if_full();
    if (threads[current].state == State::at_barrier) {
        wait_as(State::at_barrier, "barrier", place);
    }
}

// ---- collectives ---------------------------------------------------------------------------------------------------

namespace {

struct MatrixLane {
    u32* const* parts;
    u32 row_address;
    bool transposed;
};

// Lane 4 g + t receives elements 2 t and 2 t + 1 of row g of each matrix (of column g where transposed).
void load_matrices(MatrixLane* const (&lanes)[32], Place place, u32 warp)
{
    u32 addresses[32];
    u32 rows[32][4];
    for (u32 lane = 0; lane < 32; ++lane) {
        addresses[lane] = lanes[lane]->row_address;
        read_matrix_row(addresses[lane], warp * 32 + lane, place, rows[lane]);
    }
    count_matrix_load(addresses, place);
    const auto element = [&](u32 matrix, u32 row, u32 column) {
        return rows[matrix * 8 + row][column / 2] >> (column % 2 * 16) & 0xffffu;
    };
    for (u32 lane = 0; lane < 32; ++lane) {
        const u32 g = lane / 4, t = lane % 4;
        for (u32 matrix = 0; matrix < 4; ++matrix) {
            *lanes[lane]->parts[matrix] = lanes[lane]->transposed
                                              ? element(matrix, 2 * t, g) | element(matrix, 2 * t + 1, g) << 16
                                              : rows[matrix * 8 + g][t];
        }
    }
}

struct ExchangeLane {
    float value;
    u32 mask;
    float result;
};

void exchange_lanes(ExchangeLane* const (&lanes)[32], Place, u32)
{
    for (u32 lane = 0; lane < 32; ++lane) {
        lanes[lane]->result = lanes[(lane ^ lanes[lane]->mask) % 32]->value;
    }
}

void any_of_lanes(bool* const (&lanes)[32], Place, u32)
{
    bool any = false;
    for (bool* lane : lanes) {
        any |= *lane;
    }
    for (bool* lane : lanes) {
        *lane = any;
    }
}

void multiply(MmaLane* const (&lanes)[32], Place, u32) { multiply_warp(lanes); }

}  // namespace

void load_matrix_x4(u32* const (&parts)[4], u32 row_address, bool transposed)
{
    MatrixLane lane{parts, row_address, transposed};
    meet(transposed ? "load_matrix_x4_transposed" : "load_matrix_x4", TWIN_PLACE, lane, load_matrices);
}

void mma(Input input, float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])
{
    MmaLane lane{input, d, false, a, b};
    meet("mma", TWIN_PLACE, lane, multiply);
}

void mma(u32 (&d)[2], const u32 (&a)[4], const u32 (&b)[2])
{
    MmaLane lane{Input::fp16, d, true, a, b};
    meet("mma", TWIN_PLACE, lane, multiply);
}

float exchange(float value, u32 mask)
{
    ExchangeLane lane{value, mask, value};
    meet("exchange", TWIN_PLACE, lane, exchange_lanes);
    return lane.result;
}

bool any_lane(bool condition)
{
    meet("any_lane", TWIN_PLACE, condition, any_of_lanes);
    return condition;
}

}  // namespace twin
