// What do loads and stores of global and shared memory take of one SM's stage when warps take turns at all of them?
//
// All warps of one CTA run rounds, as a transpose's warps do for each tile: four loads of a line of 128 bytes each (around L1, or
// through it and not there; out of L2), four stores of a line to shared memory, four loads from shared memory of `ways` lanes a
// bank, four stores of a line to global memory; each kernel leaves some of these out. `meet`: behind its stores to shared memory
// each eight warps wait for one another. All that was loaded is added up. `step` is 0, which the compiler does not know.

#include <cstdint>

constexpr int kWarps = 32, kLines = 128, kEach = 4;  // lines of a warp, walked over again and again: more than L1 holds

struct Times {
    uint32_t begin[kWarps], end[kWarps], sum[kWarps * 32];
};

enum Loads { kNone, kAround, kThrough };

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

template <Loads kLoads, bool kWrites, bool kStores, bool kMeets>
__device__ __forceinline__ void rounds(const uint32_t *lines, uint32_t *stored, Times *times, uint32_t ways, uint32_t num_rounds,
                                       uint32_t step) {
    __shared__ uint32_t words[32 * 32 + 32], written[kWarps * kEach * 32];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x; i < 1056; i += blockDim.x) words[i] = i;
    uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(words)) + lane * ways * 4;
    uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(written)) + (warp * kEach * 32 + lane) * 4;
    const uint32_t *mine = lines + warp * (kLines * 32) + lane;
    uint32_t *out = stored + warp * (kLines * 32) + lane;
    uint32_t sum = 0;
    __syncthreads();
    const uint32_t begin = now();
#pragma unroll 1
    for (uint32_t round = 0; round < num_rounds; ++round) {
        uint32_t held[kEach] = {lane, lane, lane, lane}, near[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
            const uint32_t *at = mine + (round * kEach + i) % kLines * 32;
            if (kLoads == kAround) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(held[i]) : "l"(at));
            if (kLoads == kThrough) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(held[i]) : "l"(at));
        }
        if (kWrites) {
#pragma unroll
            for (int i = 0; i < kEach; ++i) asm volatile("st.shared.u32 [%0], %1;" ::"r"(to + i * 128), "r"(held[i]) : "memory");
        }
        if (kMeets) asm volatile("bar.sync %0, 256;" ::"r"(warp / 8 + 1) : "memory");
#pragma unroll
        for (int i = 0; i < kEach; ++i) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(near[i]) : "r"(from + i * 4));
        if (kStores) {
#pragma unroll
            for (int i = 0; i < kEach; ++i)
                asm volatile("st.global.u32 [%0], %1;" ::"l"(out + (round * kEach + i) % kLines * 32), "r"(near[i]) : "memory");
        }
#pragma unroll
        for (int i = 0; i < kEach; ++i) sum += near[i] + (kLoads == kNone ? 0 : held[i]);
        from += step, to += step, mine += step;
    }
    const uint32_t end = now();
    if (lane == 0) times->begin[warp] = begin, times->end[warp] = end;
    times->sum[threadIdx.x] = sum;
}

#define ENTRY(name, loads, writes, stores, meets)                                                                                  \
    extern "C" __global__ void __launch_bounds__(1024) name(const uint32_t *lines, uint32_t *stored, Times *times, uint32_t ways,  \
                                                            uint32_t num_rounds, uint32_t step) {                                 \
        rounds<loads, writes, stores, meets>(lines, stored, times, ways, num_rounds, step);                                       \
    }
#define MEETINGS(name, loads, writes, stores)        \
    ENTRY(name##_apart, loads, writes, stores, false) \
    ENTRY(name##_meet, loads, writes, stores, true)
#define STORES(name, loads, writes)               \
    MEETINGS(name##_nostore, loads, writes, false) \
    MEETINGS(name##_store, loads, writes, true)
#define WRITES(name, loads)               \
    STORES(name##_nowrite, loads, false) \
    STORES(name##_write, loads, true)

WRITES(noload, kNone)
WRITES(around, kAround)
WRITES(through, kThrough)
