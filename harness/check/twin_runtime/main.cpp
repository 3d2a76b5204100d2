// The process: reads a request, runs the kernel, writes outputs and faults.
//
// Request, one statement a line, in the folder given as the only argument (file `request`):
//   grid X Y Z | block N | shared BYTES | seconds LIMIT | tensor_core TERMS BITS ZERO32 ZERO16
//   buffer NAME ROLE BYTES      role: input, output, scratch; an input's content is in the file NAME.in
//   argument buffer NAME | argument word BITS | argument long BITS       in the kernel's order
// Answer: NAME.out for each buffer that is no input; file `answer`:
//   fault TIMES PLACE OTHER KIND <tab> MESSAGE      places in hexadecimal, 0: none
//   wavefronts KIND MADE IDEAL PLACE
//   end
#include <signal.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "runtime.h"

// From the kernel's translation unit (entry.h).
namespace twin {
void call_kernel(void** arguments);
int kernel_argument_bytes(int index);  // 0: there is no such argument
}  // namespace twin

namespace twin {

Place last_place;

namespace {

constexpr std::size_t MOST_FAULTS = 64;  // distinct ones; more say nothing new

struct Fault {
    const char* kind;
    Place place, other;
    std::string message;
    u64 times;
};

struct Output {
    std::string name;
    std::size_t bytes;
};

std::string folder;
std::vector<Fault> faults;
std::vector<Output> outputs;
std::vector<void*> arguments;
u32 block = 0, shared_bytes = 0;
double seconds_limit = 0;

void write_answer()
{
    for (const Output& output : outputs) {
        if (const char* data = buffer_data(output.name)) {
            std::ofstream(folder + "/" + output.name + ".out", std::ios::binary).write(data, static_cast<long>(output.bytes));
        }
    }
    std::ofstream answer(folder + "/answer");
    for (const Fault& fault : faults) {
        answer << text("fault %llu %x %x %s\t", fault.times, fault.place, fault.other, fault.kind) << fault.message << "\n";
    }
    const char* const names[ACCESS_KINDS] = {"matrix_loads", "copies", "plain"};
    for (int kind = 0; kind < ACCESS_KINDS; ++kind) {
        for (const auto& [place, counter] : wavefronts[kind]) {
            answer << text("wavefronts %s %llu %llu %x\n", names[kind], counter.made, counter.ideal, place);
        }
    }
    answer << "end\n";
}

// Bad addresses and the time limit: the place is the instruction that was running, or else the last call from the kernel.
void on_signal(int number, siginfo_t*, void* context)
{
    Place place = 0;
#if defined(__x86_64__)
    place = static_cast<Place>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]) + 1;
#else
    (void)context;
#endif
    const u32 thread = thread_index();
    if (number == SIGALRM) {
        give_up("timeout", place, last_place, text("still running after %g s, at thread %u", seconds_limit, thread));
    }
    give_up("crash", place, last_place, text("%s in thread %u", strsignal(number), thread));
}

void catch_signals()
{
    static char stack[64 * 1024];
    stack_t alternate{};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    struct sigaction action {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) {
        sigaction(number, &action, nullptr);
    }
    itimerval timer{};
    timer.it_value.tv_sec = static_cast<long>(seconds_limit);
    timer.it_value.tv_usec = static_cast<long>((seconds_limit - static_cast<double>(timer.it_value.tv_sec)) * 1e6);
    setitimer(ITIMER_REAL, &timer, nullptr);
}

template <class T>
void add_argument(T value)
{
    const int index = static_cast<int>(arguments.size());
    const int wanted = kernel_argument_bytes(index);
    if (wanted != static_cast<int>(sizeof value)) {
        give_up("arguments", 0, 0,
                wanted ? text("argument %d of the kernel has %d bytes, the launch gives %zu", index, wanted, sizeof value)
                       : text("the launch gives more than the kernel's %d arguments", index));
    }
    arguments.push_back(new T(value));
}

void read_argument(std::istringstream& line, const std::string& kind)
{
    if (kind == "buffer") {
        std::string name;
        line >> name;
        add_argument(buffer_data(name));
        return;
    }
    u64 bits = 0;
    line >> bits;
    kind == "word" ? add_argument(static_cast<u32>(bits)) : add_argument(bits);
}

void read_input(const std::string& name, std::size_t bytes)
{
    std::ifstream file(folder + "/" + name + ".in", std::ios::binary);
    if (!file.read(buffer_data(name), static_cast<long>(bytes)) && bytes > 0) {
        give_up("arguments", 0, 0, "cannot read the input " + name);
    }
}

void read_request()
{
    std::ifstream file(folder + "/request");
    std::vector<std::string> argument_lines;
    std::vector<Output> inputs;
    for (std::string statement; std::getline(file, statement);) {
        std::istringstream line(statement);
        std::string word, name, role;
        std::size_t bytes = 0;
        line >> word;
        if (word == "grid") {
            line >> grid_size.x >> grid_size.y >> grid_size.z;
        } else if (word == "block") {
            line >> block;
        } else if (word == "shared") {
            line >> shared_bytes;
        } else if (word == "seconds") {
            line >> seconds_limit;
        } else if (word == "tensor_core") {
            line >> tensor_core.terms >> tensor_core.fraction_bits >> tensor_core.zero_exponent_fp32 >>
                tensor_core.zero_exponent_fp16;
        } else if (word == "buffer") {
            line >> name >> role >> bytes;
            add_buffer(name, role == "input" ? Role::input : role == "output" ? Role::output : Role::scratch, bytes);
            (role == "input" ? inputs : outputs).push_back({name, bytes});
        } else if (word == "argument") {
            argument_lines.push_back(statement.substr(word.size()));
        }
    }
    if (block == 0 || block % 32 != 0) {
        give_up("arguments", 0, 0, text("a block of %u threads is not made of whole warps", block));
    }
    place_buffers(shared_bytes);
    for (const Output& input : inputs) {
        read_input(input.name, input.bytes);
    }
    for (const std::string& argument : argument_lines) {
        std::istringstream line(argument);
        std::string kind;
        line >> kind;
        read_argument(line, kind);
    }
    if (kernel_argument_bytes(static_cast<int>(arguments.size()))) {
        give_up("arguments", 0, 0, text("the launch gives %zu arguments, the kernel has more", arguments.size()));
    }
}

void enter_kernel() { call_kernel(arguments.data()); }

}  // namespace

std::string text(const char* format, ...)
{
    char buffer[512];
    va_list values;
    va_start(values, format);
    std::vsnprintf(buffer, sizeof buffer, format, values);
    va_end(values);
    return buffer;
}

void report(const char* kind, Place place, Place other, const std::string& message)
{
    for (Fault& fault : faults) {
        if (fault.place == place && fault.other == other && !std::strcmp(fault.kind, kind)) {
            ++fault.times;
            return;
        }
    }
    if (faults.size() < MOST_FAULTS) {
        faults.push_back({kind, place, other, message, 1});
    }
}

void give_up(const char* kind, Place place, Place other, const std::string& message)
{
    faults.resize(std::min(faults.size(), MOST_FAULTS - 1));
    report(kind, place, other, message);
    write_answer();
    _exit(0);
}

}  // namespace twin

int main(int count, char** words)
{
    using namespace twin;
    if (count != 2) {
        return 2;
    }
    folder = words[1];
    read_request();
    catch_signals();
    for (block_index.z = 0; block_index.z < grid_size.z; ++block_index.z) {
        for (block_index.y = 0; block_index.y < grid_size.y; ++block_index.y) {
            for (block_index.x = 0; block_index.x < grid_size.x; ++block_index.x) {
                run_cta(enter_kernel, block);
            }
        }
    }
    check_outputs();
    write_answer();
    return 0;
}
