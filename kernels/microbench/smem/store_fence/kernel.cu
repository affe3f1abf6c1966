// When are stores of several warps to shared memory over, and what does a fence behind them wait for?
//
// `shapes.inc` is written by case.py: a kernel for each access, number of them and what follows. One CTA; every warp stores the
// same registers so many times, to the addresses that the host gives its lanes, and then fences, or goes to the barrier alone.
// Each warp's four looks at the clock are those of the last round; one clock counts for the whole SM.

#include <cstdint>

constexpr int kRounds = 4;
constexpr int kLooks = 4;
constexpr uint32_t kPauseCycles = 4000;  // between rounds, so that nothing is under way
constexpr uint32_t kRegionBytes = 1024;  // of each warp
constexpr uint32_t kMostWarps = 16;

struct Lanes {
    uint32_t offset[32];  // bytes from the warp's region
};

__shared__ __align__(1024) unsigned char buffer[kRegionBytes * kMostWarps];

__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}

struct B32 {
    static __device__ __forceinline__ void store(uint32_t at, const uint32_t (&v)[4]) {
        asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(at), "r"(v[0]) : "memory");
    }
};
struct B64 {
    static __device__ __forceinline__ void store(uint32_t at, const uint32_t (&v)[4]) {
        asm volatile("st.volatile.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(v[0]), "r"(v[1]) : "memory");
    }
};
struct B128 {
    static __device__ __forceinline__ void store(uint32_t at, const uint32_t (&v)[4]) {
        asm volatile("st.volatile.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
    }
};
struct Matrix {
    static __device__ __forceinline__ void store(uint32_t at, const uint32_t (&v)[4]) {
#if __CUDA_ARCH__ >= 900
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(v[0]), "r"(v[1]), "r"(v[2]),
                     "r"(v[3])
                     : "memory");
#endif
    }
};

template <class Op, int kCount, bool kFences>
__device__ __forceinline__ void run(const Lanes &lanes, const uint32_t *values, int64_t *times, uint32_t *dump) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (uint32_t i = threadIdx.x; i < sizeof(buffer) / 4; i += blockDim.x) reinterpret_cast<uint32_t *>(buffer)[i] = 0;
    uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = values[i * 32 + lane];
    uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) + warp * kRegionBytes + lanes.offset[lane];
    int64_t looks[kLooks];
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        asm volatile("" : "+r"(at), "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3]));
        const int64_t since = now();
        while (now() - since < kPauseCycles) {}
        __syncthreads();
        __syncwarp();
        looks[0] = now();
#pragma unroll
        for (int i = 0; i < kCount; ++i) Op::store(at, v);
        looks[1] = now();
#if __CUDA_ARCH__ >= 900
        if (kFences) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        looks[2] = now();
        __syncthreads();
        __syncwarp();
        looks[3] = now();
        asm volatile("" : "+r"(at), "+r"(v[0]), "+r"(v[1]), "+r"(v[2]), "+r"(v[3]));  // no look takes a store's registers
    }
    if (lane == 0) {
#pragma unroll
        for (int i = 0; i < kLooks; ++i) times[warp * kLooks + i] = looks[i];
    }
    for (uint32_t i = threadIdx.x; i < sizeof(buffer) / 4; i += blockDim.x) dump[i] = reinterpret_cast<const uint32_t *>(buffer)[i];
}

#define STORE_KERNEL(name, op, count, fences)                                                                            \
    extern "C" __global__ void __launch_bounds__(512)                                                                   \
        name(const __grid_constant__ Lanes lanes, const uint32_t *values, int64_t *times, uint32_t *dump) {             \
        run<op, count, fences>(lanes, values, times, dump);                                                              \
    }

#include "shapes.inc"
