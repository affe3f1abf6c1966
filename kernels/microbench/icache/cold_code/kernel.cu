// What does straight-line code cost that has not run yet? Instruction cache misses, in cycles a kilobyte.
//
// `Straight<kKib>::run` is a function of kKib KiB of FFMA on eight accumulators (16 bytes an instruction, no branch), with
// the clock at both ends. One kernel holds all sizes; where the others are run first, they push the one that is measured out
// of the instruction caches. The rest of the CTAs run the same code at the same time, or leave.

#include <cstdint>

constexpr int kRounds = 4;
constexpr uint32_t kPatience = 1u << 22;

struct Plan {
    uint32_t kib;          // size that is measured
    uint32_t evicts;       // 1: all other sizes run first
    uint32_t flush_words;  // 16-byte words that all CTAs read beforehand, to empty L2; 0 for none
    uint32_t num_ctas;     // those that measure; the others only help to flush
};

struct Seen {
    int64_t cycles;
    float sum;
};

__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}

#define F1(i) "fma.rn.f32 %" #i ", %" #i ", %8, %9;"
#define F8 F1(0) F1(1) F1(2) F1(3) F1(4) F1(5) F1(6) F1(7)
#define F32 F8 F8 F8 F8
#define F128 F32 F32 F32 F32

// kBlocks times 128 instructions, 2 KiB; halves, since a loop of that length would not be unrolled.
template <int kBlocks>
__device__ __forceinline__ void straight_line(float (&s)[8], float factor, float addend) {
    if constexpr (kBlocks > 1) {
        straight_line<kBlocks / 2>(s, factor, addend);
        straight_line<kBlocks - kBlocks / 2>(s, factor, addend);
    } else {
        asm volatile(F128
                     : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7])
                     : "f"(factor), "f"(addend)
                     : "memory");
    }
}

template <int kKib>
struct Straight {
    static __device__ __noinline__ Seen run(float factor, float addend) {
        float s[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) s[i] = addend * static_cast<float>(threadIdx.x + i);  // no two alike, or they are merged
        const int64_t begin = now();
        straight_line<kKib / 2>(s, factor, addend);
        const int64_t end = now();
        return {end - begin, s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7]};
    }
};

#define ALL_SIZES(DO) \
    DO(4) DO(6) DO(8) DO(12) DO(16) DO(20) DO(24) DO(28) DO(32) DO(40) DO(48) DO(56) DO(64) DO(96) DO(128) DO(192)

#define SIZE(size) size,
__constant__ uint32_t sizes[] = {ALL_SIZES(SIZE)};

__device__ __noinline__ Seen run(uint32_t kib, float factor, float addend) {
    switch (kib) {
#define CASE(size) \
    case size: return Straight<size>::run(factor, addend);
        ALL_SIZES(CASE)
    }
    return {-1, 0};
}

// All CTAs of the grid; false if one never comes.
__device__ bool meet(uint32_t *num_arrived) {
    __syncthreads();
    bool is_met = true;
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(num_arrived, 1);
        uint32_t tries = 0;
        while (atomicAdd(num_arrived, 0) < gridDim.x && ++tries < kPatience) __nanosleep(100);
        is_met = tries < kPatience;
    }
    return __syncthreads_and(is_met);
}

// times[cta][round]: cycles; sums[cta][round]: what the first thread has summed up; -1 where the CTA does not measure.
extern "C" __global__ void __launch_bounds__(512)
    straight(const __grid_constant__ Plan plan, const uint4 *buffer, float factor, float addend, uint32_t *num_arrived,
             int64_t *times, float *sums) {
    float evicted = 0;
    if (plan.evicts && blockIdx.x < plan.num_ctas) {
#pragma unroll 1
        for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); ++i)
            if (sizes[i] != plan.kib) evicted += run(sizes[i], factor, addend).sum;
    }
    uint32_t read = 0;
#pragma unroll 4
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < plan.flush_words; i += gridDim.x * blockDim.x)
        read ^= __ldcg(&buffer[i].x);
    const bool is_met = meet(num_arrived);
    if (blockIdx.x >= plan.num_ctas) return;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        const Seen seen = run(plan.kib, factor, addend);
        if (threadIdx.x == 0) {
            times[blockIdx.x * kRounds + round] = is_met ? seen.cycles : -1;
            sums[blockIdx.x * kRounds + round] = seen.sum;
        }
    }
    if (evicted + read == 0.5f) sums[0] = 0;  // both are kept
}
