// What do global loads and stores take of the stage that shared memory's loads pass?
//
// All warps of one CTA run rounds: `kMany` global accesses of a line of 128 bytes each (loads that hit in L1, loads around it that
// find L2, stores), then two loads from shared memory of `ways` lanes a bank. All that was loaded is added up at the
// round's end. Every warp notes when it began and ended. `step` is 0, which the compiler does not know: no load is left out.

#include <cstdint>

constexpr int kWarps = 32, kLines = 64;  // lines of a warp, walked over again and again

struct Times {
    uint32_t begin[kWarps], end[kWarps], sum[kWarps * 32];
};

enum Kind { kLoadHit, kLoadAround, kStore };

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

template <Kind kKind, int kMany>
__device__ __forceinline__ void rounds(uint32_t *lines, Times *times, uint32_t ways, uint32_t num_rounds, uint32_t step) {
    __shared__ uint32_t words[32 * 32];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x; i < 1024; i += blockDim.x) words[i] = i;
    uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(words)) + lane * ways * 4;
    uint32_t *mine = lines + warp * (kLines * 32) + lane;
    uint32_t sum = 0;
    if (kKind == kLoadHit)
        for (int i = 0; i < kMany; ++i) {
            uint32_t word;
            asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(word) : "l"(mine + i * 32));
            sum += word;
        }
    __syncthreads();
    const uint32_t begin = now();
#pragma unroll 1
    for (uint32_t round = 0; round < num_rounds; ++round) {
        uint32_t held[kMany > 0 ? kMany : 1], near[2];
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            uint32_t *at = mine + (kKind == kLoadHit ? i : (round * kMany + i) % kLines) * 32;
            if (kKind == kLoadHit) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(held[i]) : "l"(at));
            if (kKind == kLoadAround) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(held[i]) : "l"(at));
            if (kKind == kStore) asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(lane) : "memory");
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(near[i]) : "r"(from + i * step));
#pragma unroll
        for (int i = 0; i < kMany; ++i)
            if (kKind != kStore) sum += held[i];
        sum += near[0] + near[1];
        from += step, mine += step;
    }
    const uint32_t end = now();
    if (lane == 0) times->begin[warp] = begin, times->end[warp] = end;
    times->sum[threadIdx.x] = sum;
}

#define ENTRY(name, kind, many)                                                                                                          \
    extern "C" __global__ void __launch_bounds__(1024) name##_##many(uint32_t *lines, Times *times, uint32_t ways, uint32_t num_rounds,  \
                                                                         uint32_t step) {                                                \
        rounds<kind, many>(lines, times, ways, num_rounds, step);                                                                              \
    }

ENTRY(load_hit, kLoadHit, 0)
ENTRY(load_hit, kLoadHit, 1)
ENTRY(load_hit, kLoadHit, 2)
ENTRY(load_hit, kLoadHit, 4)
ENTRY(load_around, kLoadAround, 1)
ENTRY(load_around, kLoadAround, 2)
ENTRY(load_around, kLoadAround, 4)
ENTRY(store, kStore, 1)
ENTRY(store, kStore, 2)
ENTRY(store, kStore, 4)
