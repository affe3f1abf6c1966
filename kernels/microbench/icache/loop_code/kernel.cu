// What does a turn of a loop cost whose code is longer than a sub-core keeps?
//
// `loop_N` is a loop of N instructions of 16 bytes and what counts its turns: FFMA on sixteen accumulators; in `loop_N_reads`
// a load of 16 bytes out of shared memory behind each sixteen of them, which the second next sixteen multiply by. Each warp runs
// it twice, with few turns and with many, and says when it began and ended; before each the CTA meets. Where the warps of the
// upper half come later by some cycles, each sub-core has warps at two places of the loop. Only the CTAs on the SM that is asked
// for do so, or all.

#include <cstdint>

constexpr uint32_t kAllSms = ~0u;

struct Plan {
    uint32_t turns[2];     // of the loop: the first time, the second
    uint32_t late_cycles;  // by which the upper half of the warps begins later
    uint32_t sm;           // whose CTA runs it, or kAllSms
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ uint32_t own_sm() {
    uint32_t idx;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(idx));
    return idx;
}

#define F1(i) "fma.rn.f32 %" #i ", %" #i ", %16, %17;"
#define F16 F1(0) F1(1) F1(2) F1(3) F1(4) F1(5) F1(6) F1(7) F1(8) F1(9) F1(10) F1(11) F1(12) F1(13) F1(14) F1(15)

__device__ __forceinline__ void sixteen(float (&s)[16], float factor, float addend) {
    asm volatile(F16
                 : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]), "+f"(s[6]), "+f"(s[7]), "+f"(s[8]),
                   "+f"(s[9]), "+f"(s[10]), "+f"(s[11]), "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15])
                 : "f"(factor), "f"(addend)
                 : "memory");
}

// Blocks kBegin to kEnd; halves, since a loop of that length would not be unrolled. `factors`: of even blocks and of odd ones.
template <int kBegin, int kEnd, bool kHasReads>
__device__ __forceinline__ void straight_line(float (&s)[16], float4 (&factors)[2], float addend, uint32_t ones) {
    if constexpr (kEnd - kBegin > 1) {
        straight_line<kBegin, (kBegin + kEnd) / 2, kHasReads>(s, factors, addend, ones);
        straight_line<(kBegin + kEnd) / 2, kEnd, kHasReads>(s, factors, addend, ones);
    } else {
        float4 &factor = factors[kHasReads ? kBegin % 2 : 0];
        sixteen(s, factor.x, addend);
        if constexpr (kHasReads)
            asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(factor.x), "=f"(factor.y), "=f"(factor.z), "=f"(factor.w)
                         : "r"(ones)
                         : "memory");
    }
}

// spans[cta][warp][2][2]: begin and end; sums[cta][warp]: what the warp's first thread has summed up; 0 of who does not run.
template <int kNum, bool kHasReads>
__device__ __forceinline__ void run(const Plan &plan, float factor, float addend, uint32_t *spans, float *sums) {
    constexpr int kBlock = 16 + kHasReads;
    static_assert(kNum % (2 * kBlock) == 0, "whole pairs of blocks");
    __shared__ float4 ones[32];
    const uint32_t warp = threadIdx.x / 32, place = blockIdx.x * (blockDim.x / 32) + warp;
    if (plan.sm != kAllSms && plan.sm != own_sm()) return;
    if (warp == 0) ones[threadIdx.x] = make_float4(factor, factor, factor, factor);
    float s[16];
    float4 factors[2] = {make_float4(factor, 0, 0, 0), make_float4(factor, 0, 0, 0)};
#pragma unroll
    for (int i = 0; i < 16; ++i) s[i] = addend * static_cast<float>(i);
    const uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(ones)) + threadIdx.x % 32 * 16;
#pragma unroll 1
    for (int time = 0; time < 2; ++time) {
        const uint32_t turns = plan.turns[time], late = warp * 64 >= blockDim.x ? plan.late_cycles : 0;
        __syncthreads();
        const uint32_t met = now();
        while (now() - met < late) {
        }
        const uint32_t begin = now();
#pragma unroll 1
        for (uint32_t turn = 0; turn < turns; ++turn) straight_line<0, kNum / kBlock, kHasReads>(s, factors, addend, from);
        const uint32_t end = now();
        if (threadIdx.x % 32 == 0) {
            spans[(place * 2 + time) * 2] = begin;
            spans[(place * 2 + time) * 2 + 1] = end;
        }
    }
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) sum += s[i];
    if (threadIdx.x % 32 == 0) sums[place] = sum;
}

#define LOOP(NAME, NUM, HAS_READS)                                                                                     \
    extern "C" __global__ void __launch_bounds__(512)                                                                  \
        NAME(const __grid_constant__ Plan plan, float factor, float addend, uint32_t *spans, float *sums) {            \
        run<NUM, HAS_READS>(plan, factor, addend, spans, sums);                                                        \
    }
#include "shapes.inc"
