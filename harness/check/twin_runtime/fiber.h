// Switching between stacks: by hand on x86-64 (a few nanoseconds), by ucontext elsewhere (200).
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__) && !defined(TWIN_UCONTEXT)

struct Fiber {
    void* stack_pointer;
};

// Saves what a called function must preserve on the current stack, and goes on with the other one.
extern "C" void twin_switch_stacks(void** save, void* load);
asm(R"(
.text
.globl twin_switch_stacks
.type twin_switch_stacks, @function
twin_switch_stacks:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size twin_switch_stacks, .-twin_switch_stacks
)");

inline void switch_fibers(Fiber& from, Fiber& to) { twin_switch_stacks(&from.stack_pointer, to.stack_pointer); }

// `entry` must never return.
inline void prepare_fiber(Fiber& fiber, char* stack, std::size_t bytes, void (*entry)())
{
    void** top = reinterpret_cast<void**>(stack + bytes);
    *--top = nullptr;  // the return address of `entry`; also aligns the stack as after a call
    *--top = reinterpret_cast<void*>(entry);
    for (int preserved = 0; preserved < 6; ++preserved) {
        *--top = nullptr;
    }
    fiber.stack_pointer = top;
}

#else

#include <ucontext.h>

struct Fiber {
    ucontext_t context;
};

inline void switch_fibers(Fiber& from, Fiber& to) { swapcontext(&from.context, &to.context); }

inline void prepare_fiber(Fiber& fiber, char* stack, std::size_t bytes, void (*entry)())
{
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stack;
    fiber.context.uc_stack.ss_size = bytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, entry, 0);
}

#endif
