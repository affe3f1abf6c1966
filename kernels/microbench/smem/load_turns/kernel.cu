// Do warps take turns at shared memory, load by load, or is whoever asked first served first?
//
// All warps run rounds: a load of a line of 128 bytes (around L1, out of L2), a store of it to shared memory, then `kNear` loads
// from shared memory, one behind the other, of `ways` lanes a bank. `meet`: behind its store each eight warps wait for one another,
// so that an eight asks at once; `all`: each CTA's warps do. `walk`: they do, and each four loads from shared memory wait for the
// four before. All that was loaded is added up. `step` is 0, which the compiler does not know.

#include <cstdint>

constexpr int kWarps = 32, kLines = 128;  // lines of a warp, walked over again and again: more than L1 holds

struct Times {
    uint32_t sm, begin[kWarps], end[kWarps], sum[kWarps * 32];
};

enum Meeting { kApart, kMeet, kAll, kWalk };

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

template <int kNear, Meeting kMeeting>
__device__ __forceinline__ void rounds(const uint32_t *lines, Times *times, uint32_t ways, uint32_t num_rounds, uint32_t step) {
    __shared__ uint32_t words[32 * 32 + 32], written[kWarps * 32];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x; i < 1056; i += blockDim.x) words[i] = i;
    uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(words)) + lane * ways * 4;
    uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(written)) + threadIdx.x * 4;
    const uint32_t *mine = lines + warp * (kLines * 32) + lane;
    uint32_t sum = 0;
    __syncthreads();
    const uint32_t begin = now();
#pragma unroll 1
    for (uint32_t round = 0; round < num_rounds; ++round) {
        uint32_t held, near[kNear];
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(held) : "l"(mine + round % kLines * 32));
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(to), "r"(held) : "memory");
        if (kMeeting == kMeet) asm volatile("bar.sync %0, 256;" ::"r"(warp / 8 + 1) : "memory");
        if (kMeeting == kAll || kMeeting == kWalk) __syncthreads();
#pragma unroll
        for (int i = 0; i < kNear; ++i) {
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(near[i]) : "r"(from + i % 32 * 4));
            if (kMeeting == kWalk && i % 4 == 3) from += (near[i] ^ near[i - 1] ^ near[i - 2] ^ near[i - 3]) * step;
        }
        sum += held;
#pragma unroll
        for (int i = 0; i < kNear; ++i) sum += near[i];
        from += step, to += step, mine += step;
    }
    const uint32_t end = now();
    times += blockIdx.x;
    if (lane == 0) times->begin[warp] = begin, times->end[warp] = end;
    if (threadIdx.x == 0) asm volatile("mov.u32 %0, %%smid;" : "=r"(times->sm));
    times->sum[threadIdx.x] = sum;
}

#define ENTRY(name, kNear, kMeeting)                                                                                           \
    extern "C" __global__ void __launch_bounds__(1024) name(const uint32_t *lines, Times *times, uint32_t ways,                \
                                                            uint32_t num_rounds, uint32_t step) {                             \
        rounds<kNear, kMeeting>(lines, times, ways, num_rounds, step);                                                        \
    }
#define ALL(kNear)                              \
    ENTRY(loads_##kNear##_apart, kNear, kApart) \
    ENTRY(loads_##kNear##_meet, kNear, kMeet)   \
    ENTRY(loads_##kNear##_all, kNear, kAll)     \
    ENTRY(loads_##kNear##_walk, kNear, kWalk)

ALL(4)
ALL(16)
ALL(32)
