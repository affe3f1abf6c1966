// One cp.async of one warp: how many wavefronts does its write to shared memory take, by where it reads and where it writes?
//
// Lanes find source and destination in the constant bank and nothing else touches shared memory, so that a profiler's count
// is the copy's own. The mode asks for more: 1 copies the buffer to `dump` afterwards, to check the answer in another launch
// of the same code; 2 loads the sources first, so that the copy hits in L1.

#include <cstdint>

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kBufferBytes = 32768;
constexpr uint32_t kDump = 1, kWarm = 2;

struct Lanes {
    uint32_t source[32];       // bytes from the source's start
    uint32_t destination[32];  // bytes from the buffer's start
};

__device__ __forceinline__ uint32_t start() { return static_cast<uint32_t>(__cvta_generic_to_shared(buffer)); }

// `zero` is 0, which the compiler cannot know: what it is added to waits for the load.
__device__ __forceinline__ const char *loaded(const char *source, bool is_active, uint32_t zero) {
    uint32_t word = 0;
    if (is_active) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(word) : "l"(source) : "memory");
    return source + (__reduce_or_sync(~0u, word) & zero);
}

__device__ __forceinline__ void keep(uint32_t mode, uint4 *dump) {
    __syncwarp();
    if (mode & kDump) {
#pragma unroll 1
        for (uint32_t at = 16 * threadIdx.x; at < kBufferBytes; at += 512) {
            uint4 v;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "r"(start() + at)
                         : "memory");
            dump[at / 16] = v;
        }
    }
}

#define CP_ASYNC(name, cache, size)                                                                        \
    extern "C" __global__ void __launch_bounds__(32)                                                       \
        name(const __grid_constant__ Lanes lanes, uint32_t mask, uint32_t mode, uint32_t zero, const char *data, \
             uint4 *dump) {                                                                                \
        const uint32_t to = start() + lanes.destination[threadIdx.x];                                      \
        const bool is_active = mask >> threadIdx.x & 1;                                                    \
        const char *from = data + lanes.source[threadIdx.x];                                               \
        if (mode & kWarm) from = loaded(from, is_active, zero);                                            \
        if (is_active)                                                                                     \
            asm volatile("cp.async." #cache ".shared.global [%0], [%1], " #size ";" ::"r"(to), "l"(from) : "memory"); \
        asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");                        \
        keep(mode, dump);                                                                                  \
    }

CP_ASYNC(cp_async_b32, ca, 4)
CP_ASYNC(cp_async_b64, ca, 8)
CP_ASYNC(cp_async_b128, ca, 16)
CP_ASYNC(cp_async_cg_b128, cg, 16)
