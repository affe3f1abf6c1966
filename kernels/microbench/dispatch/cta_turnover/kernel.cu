// How long is it from a CTA's last work to the next one's first, and what do stores at its end add?
//
// A grid of many CTAs to each place of an SM. A CTA of `nothing`, `word`, `words`, `vector` and `early` looks at the clock for `spin_cycles` and leaves:
// `word` then has its first thread store a word, `words` every warp's first lane, `vector` every thread 16 bytes; `early` stores those before the spin
// and nothing behind it.
// Who stores is an argument, so that `nothing`, `word` and `words` are the same code; what is stored and where is made before the spin, which waits for it.
// A thread of `load` loads 16 bytes past L1 and leaves when it has them; `load_loop` does that `turns` times in CTAs that stay. Buffers have room for
// kNumSlots CTAs and are used again and again, so that L2 keeps them.

#include <cstdint>

enum Kind { kWord, kVector, kEarly };

constexpr uint32_t kNumSlots = 1024;

struct Plan {
    uint32_t spin_cycles, turns;
    uint32_t mask, match;  // threads store whose index under the mask is this
    uint32_t never, zero;  // a word that the input does not have; 0, which the compiler does not know
};

__device__ __forceinline__ uint32_t clock_now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t vector_of(uint32_t cta) { return cta % kNumSlots * blockDim.x + threadIdx.x; }

__device__ __forceinline__ void store(uint4 *to, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

template <Kind kKind>
__device__ __forceinline__ void spin(uint4 *out, Plan plan) {
    const uint32_t begin = clock_now(), at = vector_of(blockIdx.x);
    uint4 *to = out + at;
    const uint4 v = make_uint4(at, ~at, at + 7, at + 9);
    const uint32_t made = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(to)) ^ v.x ^ v.y ^ v.z ^ v.w;
    const uint32_t cycles = plan.spin_cycles + (made & plan.zero);
    if (kKind == kEarly) store(to, v);
    while (clock_now() - begin < cycles) {
    }
    if ((threadIdx.x & plan.mask) == plan.match) {
        if (kKind == kVector) store(to, v);
        else asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(v.x) : "memory");
    }
}

__device__ __forceinline__ void load_used(const uint4 *in, uint4 *out, uint32_t cta, uint32_t never) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(in + vector_of(cta))
                 : "memory");
    if (v.x == never) store(out, v);
}

#define ENTRY(name) extern "C" __global__ void __launch_bounds__(1024) name(const uint4 *in, uint4 *out, Plan plan)

ENTRY(nothing) { spin<kWord>(out, plan); }
ENTRY(word) { spin<kWord>(out, plan); }
ENTRY(words) { spin<kWord>(out, plan); }
ENTRY(vector) { spin<kVector>(out, plan); }
ENTRY(early) { spin<kEarly>(out, plan); }
ENTRY(load) { load_used(in, out, blockIdx.x, plan.never); }
ENTRY(load_loop) {
#pragma unroll 1
    for (uint32_t turn = 0; turn < plan.turns; ++turn) load_used(in, out, blockIdx.x + turn * gridDim.x, plan.never);
}
