// How many cycles does one access of a warp to shared memory take, when nothing but the data stage holds it up?
//
// Four warps do the same access over and over, 32 of them in flight, so that the data stage is never idle. Lanes find their
// addresses in the constant bank.

#include <cstdint>

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kInFlight = 8;

struct Lanes {
    uint32_t address[32];  // bytes from the buffer's start
};

__device__ __forceinline__ void load(uint32_t a, uint2 &v) {
    asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a) : "memory");
}

__device__ __forceinline__ void load(uint32_t a, uint4 &v) {
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(a)
                 : "memory");
}

__device__ __forceinline__ uint32_t folded(uint2 v) { return v.x ^ v.y; }
__device__ __forceinline__ uint32_t folded(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }

template <class Vector>
__device__ void loads(const Lanes &lanes, uint32_t mask, uint32_t num_rounds, uint32_t *folds, int64_t *times) {
    const uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    for (uint32_t at = 4 * threadIdx.x; at < 32768; at += 4 * blockDim.x)
        *reinterpret_cast<uint32_t *>(buffer + at) = (at >> 2) * 0x9E3779B1u + 0x7F4A7C15u;
    __syncthreads();
    const uint32_t lane = threadIdx.x % 32, a = start + lanes.address[lane];
    Vector v[kInFlight] = {};
    int64_t begin = 0, end = 0;
    if (mask >> lane & 1) {
        for (uint32_t warm = 0; warm < kInFlight; ++warm) load(a, v[warm]);
        __syncwarp(mask);
        begin = clock64();
        const uint32_t at = a + static_cast<uint32_t>(begin >> 62);  // 0 more: no load goes before the clock is read
#pragma unroll 1
        for (uint32_t round = 0; round < num_rounds; ++round) {
#pragma unroll
            for (uint32_t i = 0; i < kInFlight; ++i) load(at, v[i]);
        }
        uint32_t fold = 0;
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) fold += folded(v[i]);
        folds[threadIdx.x] = fold;
        __syncwarp(mask);  // without it the clock may be read before the last loads have come
        end = clock64();
    }
    times[2 * threadIdx.x] = begin;
    times[2 * threadIdx.x + 1] = end;
}

#define KERNEL(name, type)                                                                                 \
    extern "C" __global__ void __launch_bounds__(128)                                                      \
        name(const __grid_constant__ Lanes lanes, uint32_t mask, uint32_t num_rounds, uint32_t *folds, int64_t *times) { \
        loads<type>(lanes, mask, num_rounds, folds, times);                                                \
    }

KERNEL(ld_shared_b64, uint2)
KERNEL(ld_shared_b128, uint4)
