// How many CTAs does an SM hold at once? Registers by entry point, threads and shared memory by launch.
//
// `__maxnreg__(R)` and more live values than R make ptxas use R registers. Every CTA is counted on its SM when it starts,
// and stays until a time after the first CTA's start that leaves no doubt; the most that an SM had at once is the answer. CTAs
// that start later leave at once.

#include <cstdint>

constexpr uint64_t kStayNs = 60000;    // after the first CTA has started
constexpr uint64_t kCountNs = 40000;   // who starts later is not counted
constexpr int kLive = 300;             // values that are alive at once

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}
__device__ __forceinline__ uint32_t sm_idx() {
    uint32_t idx;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(idx));
    return idx;
}

// Many values that are alive at once: all are loaded before a barrier and used behind it.
__device__ __forceinline__ uint32_t use_registers(const volatile float *words) {
    float values[kLive], all = 0;
#pragma unroll
    for (int i = 0; i < kLive; ++i) values[i] = words[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLive; ++i) all = fmaf(all, 0.5f, values[kLive - 1 - i]);
    return __float_as_uint(all);
}

// counts[sm]: CTAs that are here, the most that were; started_at: the first CTA's time; sums: of the values.
__device__ __forceinline__ void stay(uint32_t *here, uint32_t *most, unsigned long long *started_at, const float *words,
                                     uint32_t *sum) {
    if (threadIdx.x == 0) {
        const unsigned long long own = now_ns();
        const unsigned long long seen = atomicCAS(started_at, 0ull, own);
        const unsigned long long first = seen ? seen : own;
        if (own < first + kCountNs) {
            const uint32_t sm = sm_idx();
            atomicMax(&most[sm], atomicAdd(&here[sm], 1) + 1);
            while (now_ns() < first + kStayNs) __nanosleep(1000);
            atomicSub(&here[sm], 1);
        }
    }
    const uint32_t all = use_registers(words);  // after the count, since spills take their time
    if (all != 0x12345678 && blockIdx.x == 0 && threadIdx.x == 0) *sum = all;
}

#define HOLD(registers)                                                                                             \
    extern "C" __global__ void __maxnreg__(registers)                                                               \
        hold_##registers(uint32_t *here, uint32_t *most, unsigned long long *started_at, const float *words,     \
                         uint32_t *sum) {                                                                           \
        stay(here, most, started_at, words, sum);                                                                   \
    }

HOLD(24) HOLD(32) HOLD(33) HOLD(40) HOLD(41) HOLD(48) HOLD(56) HOLD(57) HOLD(64) HOLD(65) HOLD(72) HOLD(80) HOLD(88)
HOLD(96) HOLD(97) HOLD(104) HOLD(112) HOLD(120) HOLD(128) HOLD(129) HOLD(144) HOLD(160) HOLD(168) HOLD(169) HOLD(184)
HOLD(192) HOLD(208) HOLD(224) HOLD(240) HOLD(255)
