// Chains of one arithmetic instruction: how long is one step of a chain, and how many does an SM do in a cycle?
//
// `ops.inc` is written by case.py: for each instruction a struct with one step of a chain, and kernels with 1, 2, 4 and 8
// independent chains a warp. One CTA; warp w runs on sub-partition w % 4 and takes part where that is below num_partitions.
// A launch runs trains of several lengths, each timed by every warp from behind a common barrier; the difference of two
// lengths is free of whatever starting and ending costs.

#include <cstdint>

constexpr int kMostThreads = 1024;
constexpr int kBodyInstructions = 256;  // of a loop's body, so that its branch costs 1 % of the issue slots

__device__ __forceinline__ int64_t clock_now() {
    int64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

// A barrier of the threads that take part, which none passes before its `word` is there.
__device__ __forceinline__ void meet(uint32_t num_threads, uint32_t word) {
    asm volatile(
        "{ .reg .pred p, q; setp.eq.u32 p, %0, 0x9e3779b9; barrier.cta.red.or.pred q, 1, %1, p; }" ::"r"(word), "r"(num_threads)
        : "memory");
}

struct Launch {
    uint32_t num_partitions, num_threads;  // sub-partitions that work; threads that take part
    uint32_t num_trains, num_chains;
};

template <class Op, int kChains>
__device__ __forceinline__ void run(const Launch &launch, const uint32_t *lengths, const typename Op::Word *begin,
                                    const typename Op::Word *constants, typename Op::Word *end, int64_t *times) {
    using Word = typename Op::Word;
    constexpr int kFit = kBodyInstructions / (kChains * Op::kInstructions);
    constexpr int kSteps = kFit < Op::kMostSteps ? kFit : Op::kMostSteps;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp % 4 >= launch.num_partitions) return;
    const uint32_t idx = warp / 4 * launch.num_partitions + warp % 4;  // among the warps that work

    Word fixed[Op::kConstants], chains[kChains][Op::kState];
    uint32_t folded = 0;
#pragma unroll
    for (int i = 0; i < Op::kConstants; ++i) {
        fixed[i] = constants[i * 32 + lane];
        folded ^= static_cast<uint32_t>(fixed[i]);
    }
#pragma unroll 1
    for (uint32_t train = 0; train < launch.num_trains; ++train) {
        const uint32_t length = lengths[train];
#pragma unroll
        for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
            for (int i = 0; i < Op::kState; ++i) {
                chains[chain][i] = begin[(chain * Op::kState + i) * 32 + lane];
                folded ^= static_cast<uint32_t>(chains[chain][i]);
            }
        }
        meet(launch.num_threads, folded ^ length);
        const int64_t started = clock_now();
#pragma unroll 1
        for (uint32_t i = 0; i < length; ++i) {
#pragma unroll
            for (int step = 0; step < kSteps; ++step) {
#pragma unroll
                for (int chain = 0; chain < kChains; ++chain) Op::step(chains[chain], fixed);
            }
        }
        const int64_t ended = clock_now();
        if (lane == 0) {
            int64_t *mine = times + 2 * (train * (launch.num_threads / 32) + idx);
            mine[0] = started;
            mine[1] = ended;
        }
    }
#pragma unroll
    for (int chain = 0; chain < kChains; ++chain) {
#pragma unroll
        for (int i = 0; i < Op::kState; ++i) end[((idx * kChains + chain) * Op::kState + i) * 32 + lane] = chains[chain][i];
    }
}

#define MATH_KERNEL(name, Op, chains)                                                                                 \
    extern "C" __global__ void __launch_bounds__(kMostThreads, 1)                                                      \
        name##_c##chains(const __grid_constant__ Launch launch, const uint32_t *lengths, const Op::Word *begin,       \
                         const Op::Word *constants, Op::Word *end, int64_t *times) {                                  \
        run<Op, chains>(launch, lengths, begin, constants, end, times);                                               \
    }

#include "ops.inc"
