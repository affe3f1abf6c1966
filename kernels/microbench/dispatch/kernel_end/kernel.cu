// When does a kernel end that has stored something: with its last CTA's exit, or when the store has arrived?
//
// Every CTA meets, then every thread of it walks a chain of `turns` multiplications. `nothing` only does that; `store_first` has each warp's first lane
// store a word before the chain, `store_last` behind it, `store_all` has all lanes store one behind it, `store_marked` stores behind a look
// at the clock of nanoseconds, and `store_wide` 16 bytes a lane. The chain's end is 0, which the compiler does not know.

#include <cstdint>

enum Kind { kNothing, kFirst, kLast, kAll, kMarked, kWide };

template <Kind kKind>
__device__ __forceinline__ void run(uint4 *to, uint32_t turns, uint32_t factor, uint32_t more) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t *word = reinterpret_cast<uint32_t *>(to) + thread;
    const bool is_first = threadIdx.x % 32 == 0;
    if (kKind == kFirst && is_first) asm volatile("st.global.u32 [%0], %1;" ::"l"(word), "r"(thread + more) : "memory");
    __syncthreads();  // no store is moved over it
    uint32_t product = threadIdx.x;
#pragma unroll 1
    for (uint32_t turn = 0; turn < turns; ++turn) {
#pragma unroll
        for (int i = 0; i < 8; ++i) asm volatile("mul.lo.u32 %0, %0, %1;" : "+r"(product) : "r"(factor));
    }
    if (turns) product &= factor;
    else product = 0;
    if (kKind == kMarked) {
        uint64_t ns;
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
        product += ns == 0;
    }
    if ((kKind == kLast || kKind == kMarked) && is_first)
        asm volatile("st.global.u32 [%0], %1;" ::"l"(word), "r"(thread + more + product) : "memory");
    if (kKind == kAll) asm volatile("st.global.u32 [%0], %1;" ::"l"(word), "r"(thread + more + product) : "memory");
    if (kKind == kWide) to[thread] = make_uint4(thread + more + product, thread, thread, thread);
    if (kKind <= kFirst && product == 77) to[thread] = make_uint4(product, product, product, product);  // never
}

#define ENTRY(name, kind)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(256) name(uint4 *to, uint32_t turns, uint32_t factor, uint32_t more) {           \
        run<kind>(to, turns, factor, more);                                                                                       \
    }

ENTRY(nothing, kNothing)
ENTRY(store_first, kFirst)
ENTRY(store_last, kLast)
ENTRY(store_all, kAll)
ENTRY(store_marked, kMarked)
ENTRY(store_wide, kWide)
