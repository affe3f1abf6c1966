// On which SMs do the clusters of a grid run, by the scheduling policy that is asked for?
//
// Thread 0 of every CTA writes down its SM and stays until all have had time to begin, by the GPU's nanoseconds and by a count.

#include <cstdint>

constexpr uint32_t kMostLooks = 1u << 22;

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__device__ __forceinline__ void mark(int32_t *sm_of_cta, uint32_t stay_ns) {
    if (threadIdx.x != 0) return;
    const uint64_t begin = now_ns();
    int32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    sm_of_cta[blockIdx.y * gridDim.x + blockIdx.x] = sm;
    for (uint32_t look = 0; look < kMostLooks && now_ns() - begin < stay_ns; ++look) {}
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) place_2(int32_t *sm_of_cta, uint32_t stay_ns) { mark(sm_of_cta, stay_ns); }
extern "C" __global__ void __cluster_dims__(4, 1, 1) place_4(int32_t *sm_of_cta, uint32_t stay_ns) { mark(sm_of_cta, stay_ns); }
extern "C" __global__ void __cluster_dims__(8, 1, 1) place_8(int32_t *sm_of_cta, uint32_t stay_ns) { mark(sm_of_cta, stay_ns); }
