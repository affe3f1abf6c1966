// How much crosses between L2's partitions, and comes from memory, where SMs of both read the same lines, or lines that others stored?
//
// parts: a long grid. Each CTA reads one part of a footprint, CTA after CTA: a part is read again when as many CTAs as there are parts
// have begun, by whatever SM is free.
// turns: CTAs meet before each round, and read what another CTA read in the round before; `stored` says whether that one stored it,
// too. Where they do not move it is the same CTA in all rounds.

#include <cstdint>
#include "grid.cuh"

constexpr uint32_t kPartBytes = 512 << 10, kThreads = 1024, kInFlight = 8;
constexpr uint32_t kPartPairs = kPartBytes / sizeof(uint2);

// Sums of all words that a CTA has read; `ends` are nanoseconds of the GPU's timer.
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    parts(const uint2 *__restrict__ data, uint32_t *sums, uint64_t *ends, uint32_t num_parts) {
    const uint2 *part = data + size_t(blockIdx.x % num_parts) * kPartPairs;
    uint32_t sum = 0;
    for (uint32_t at = threadIdx.x; at < kPartPairs; at += kThreads * kInFlight) {
        uint2 pairs[kInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i)
            asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(pairs[i].x), "=r"(pairs[i].y) : "l"(part + at + i * kThreads));
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) sum += pairs[i].x + pairs[i].y;
    }
    sum = __reduce_add_sync(0xFFFFFFFFu, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.x, sum);
    __syncthreads();
    if (threadIdx.x) return;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    ends[blockIdx.x] = now;
}

struct Plan {
    uint32_t num_steps;  // of a CTA in a round, 16 KiB each
    uint32_t num_rounds;
    uint32_t is_moving, is_stored;
};

// Adds one to each word that is read, in place (is_stored) or into `out`. `cycles` are of each CTA's last round.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    turns(uint4 *data, uint4 *out, Flags *flags, uint32_t *cycles, Plan plan) {
    uint4 *to = plan.is_stored ? data : out;
    for (uint32_t round = 0; round < plan.num_rounds; ++round) {
        __syncthreads();
        if (threadIdx.x == 0) meet_in_time(flags, &flags->met, (round + 1) * gridDim.x, round);
        __syncthreads();
        const int64_t begin = clock_now();
        const uint32_t share = (blockIdx.x + plan.is_moving * round * (29 * round + 7)) % gridDim.x;
        for (uint32_t step = 0; step < plan.num_steps; ++step) {
            const size_t at = (size_t(share) * plan.num_steps + step) * kThreads + threadIdx.x;
            uint4 word;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
                         : "l"(data + at)
                         : "memory");
            to[at] = make_uint4(word.x + 1, word.y + 1, word.z + 1, word.w + 1);
        }
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) cycles[blockIdx.x] = uint32_t(clock_now() - begin);
    }
}
