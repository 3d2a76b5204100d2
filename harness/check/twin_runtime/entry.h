// Included after a kernel's text: calls it with arguments given as addresses, as a driver does.
#pragma once

#include <utility>

// Its own loads are not the kernel's.
#define TWIN_UNWATCHED __attribute__((no_sanitize("thread")))

namespace twin {

template <class... Arguments, std::size_t... I>
TWIN_UNWATCHED void call(void (*kernel)(Arguments...), void** values, std::index_sequence<I...>)
{
    kernel(*static_cast<Arguments*>(values[I])...);
}

template <class... Arguments>
TWIN_UNWATCHED void call(void (*kernel)(Arguments...), void** values)
{
    call(kernel, values, std::index_sequence_for<Arguments...>{});
}

template <class... Arguments>
int argument_bytes(void (*)(Arguments...), int index)
{
    const int bytes[] = {static_cast<int>(sizeof(Arguments))..., 0};
    return index < static_cast<int>(sizeof...(Arguments)) ? bytes[index] : 0;
}

}  // namespace twin

#define TWIN_ENTRY(kernel)                                                         \
    namespace twin {                                                               \
    void call_kernel(void** arguments) { call(kernel, arguments); }                \
    int kernel_argument_bytes(int index) { return argument_bytes(kernel, index); } \
    }
