// Shared-memory passes: how many each warp instruction makes, and how many it would with no bank conflict.
#include <algorithm>

#include "runtime.h"

namespace twin {

std::map<Place, Wavefronts> wavefronts[ACCESS_KINDS];

namespace {

struct Access {
    AccessKind kind;
    Place place;
    u32 lane, address, bytes;
};

std::vector<std::vector<Access>> accesses;  // per warp

// Passes for one warp instruction: lanes go 128 bytes at a time, and a bank serves one word of its own per pass.
void count_instruction(const std::vector<std::pair<u32, u32>>& lanes, u32 bytes, Wavefronts& counter)
{
    const u32 group_lanes = std::min(32u, 128 / std::max(bytes, 4u));
    for (u32 group = 0; group < 32; group += group_lanes) {
        std::vector<u32> touched;  // numbers of words
        for (const auto& [lane, address] : lanes) {
            if (lane >= group && lane < group + group_lanes) {
                for (u32 word = address / 4; word <= (address + bytes - 1) / 4; ++word) {
                    touched.push_back(word);
                }
            }
        }
        std::sort(touched.begin(), touched.end());
        touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
        u32 per_bank[32] = {};
        u32 worst = 0;
        for (u32 word : touched) {
            worst = std::max(worst, ++per_bank[word % 32]);
        }
        counter.made += worst;
        counter.ideal += !touched.empty();
    }
}

}  // namespace

void start_cta_wavefronts(u32 warps) { accesses.assign(warps, {}); }

void note_access(AccessKind kind, u32 thread, u32 address, u32 bytes, Place place)
{
    accesses[thread / 32].push_back({kind, place, thread % 32, address, bytes});
}

void count_matrix_load(const u32 (&row_addresses)[32], Place place)
{
    std::vector<std::pair<u32, u32>> lanes;
    for (u32 lane = 0; lane < 32; ++lane) {
        lanes.emplace_back(lane, row_addresses[lane]);
    }
    count_instruction(lanes, 16, wavefronts[MATRIX_LOAD][place]);
}

// The lanes' accesses come one lane after the other: those of one instruction have the same place and the same position
// among their lane's accesses from there.
void count_warp_accesses(u32 warp)
{
    if (accesses[warp].empty()) {
        return;
    }
    std::map<std::pair<Place, u32>, u32> position;  // by place and lane
    std::map<std::pair<Place, u32>, std::vector<const Access*>> instructions;
    for (const Access& access : accesses[warp]) {
        instructions[{access.place, position[{access.place, access.lane}]++}].push_back(&access);
    }
    for (const auto& [key, members] : instructions) {
        std::vector<std::pair<u32, u32>> lanes;
        for (const Access* access : members) {
            lanes.emplace_back(access->lane, access->address);
        }
        const Access& one = *members.front();
        count_instruction(lanes, one.bytes, wavefronts[one.kind][one.place]);
    }
    accesses[warp].clear();
}

}  // namespace twin
