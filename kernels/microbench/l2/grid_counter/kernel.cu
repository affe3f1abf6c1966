// The end of a sum in two steps: each block stores a word, makes it visible, counts itself, and learns whether it is the last.
// Thread 0 reads the clock around the steps of a round, which all blocks of the grid begin together.
#include <cstdint>
#include "grid.cuh"

namespace {

constexpr uint32_t THREADS = 128;

struct Work {
    uint32_t num_counters;  // that blocks share: block b has counter b % num_counters
    uint32_t rounds;
    uint32_t num_stored;    // words that each thread stores before the fence
};

// HAS_FENCE: __threadfence by all threads before the barrier, and again after it, as reductions of libraries have it.
template <bool HAS_FENCE, bool HAS_ATOMIC>
__device__ void count_blocks(uint32_t *stored, uint32_t *counters, Flags *flags, uint32_t *told, const Work &work) {
    __shared__ uint32_t last;
    uint32_t target = 0, num_last = 0;
    for (uint32_t round = 0; round < work.rounds; ++round) {
        __syncthreads();
        target += gridDim.x;
        if (threadIdx.x == 0) meet_in_time(flags, &flags->met, target, round);
        __syncthreads();
        const int64_t begin = clock_now();
        for (uint32_t i = 0; i < work.num_stored; ++i)
            stored[(static_cast<uint64_t>(i) * gridDim.x + blockIdx.x) * THREADS + threadIdx.x] = round + 1;
        const int64_t issued = clock_now();
        if (HAS_FENCE) __threadfence();
        __syncthreads();
        const int64_t fenced = clock_now();
        if (HAS_ATOMIC) {
            if (threadIdx.x == 0) {
                const uint32_t sharers = (gridDim.x - 1 - blockIdx.x % work.num_counters) / work.num_counters + 1;
                last = atomicAdd(&counters[32 * (blockIdx.x % work.num_counters)], 1u) == (round + 1) * sharers - 1;
            }
            __syncthreads();
            num_last += last;
        }
        const int64_t counted = clock_now();
        if (HAS_FENCE) __threadfence();
        const int64_t end = clock_now();
        if (threadIdx.x == 0) {
            uint32_t *to = told + (round * gridDim.x + blockIdx.x) * 4;
            to[0] = static_cast<uint32_t>(issued - begin);
            to[1] = static_cast<uint32_t>(fenced - issued);
            to[2] = static_cast<uint32_t>(counted - fenced);
            to[3] = static_cast<uint32_t>(end - counted);
        }
    }
    if (threadIdx.x == 0) told[work.rounds * gridDim.x * 4 + blockIdx.x] = num_last;
}

}  // namespace

#define COUNT(NAME, HAS_FENCE, HAS_ATOMIC)                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                         \
        NAME(uint32_t *stored, uint32_t *counters, Flags *flags, uint32_t *told, Work work) {                     \
        count_blocks<HAS_FENCE, HAS_ATOMIC>(stored, counters, flags, told, work);                                 \
    }

COUNT(fence, true, false)
COUNT(atomic, false, true)
COUNT(fence_atomic, true, true)
