// One global-memory access of one warp, cold or twice: which sectors, tags and wavefronts does it take?
//
// Lanes find their addresses in the constant bank, so that the counted access is the only load of its kind (of stores: the
// only store; a load's values go out by a store). The `_twice` kernels wait for the first load and load again: what they
// count more is an access that hits in L1.

#include <cstdint>

struct Lanes {
    uint32_t address[32];  // bytes from the buffer's start
};

__device__ __forceinline__ uint32_t value_of(uint32_t word) { return (4 * threadIdx.x + word) * 0x85EBCA6Bu + 0xC2B2AE35u; }

// `zero` is 0, which the compiler cannot know: the second address waits for the first value.
#define LOADS(name, ptx, outputs, first)                                                                   \
    extern "C" __global__ void __launch_bounds__(32)                                                       \
        name(const __grid_constant__ Lanes lanes, uint32_t mask, uint32_t zero, const char *buffer, uint4 *out) { \
        const char *a = buffer + lanes.address[threadIdx.x];                                               \
        uint4 v = make_uint4(0, 0, 0, 0);                                                                  \
        if (mask >> threadIdx.x & 1) asm volatile(ptx : outputs : "l"(a) : "memory");                      \
        out[threadIdx.x] = v;                                                                              \
    }                                                                                                      \
    extern "C" __global__ void __launch_bounds__(32)                                                       \
        name##_twice(const __grid_constant__ Lanes lanes, uint32_t mask, uint32_t zero, const char *buffer, uint4 *out) { \
        const char *a = buffer + lanes.address[threadIdx.x];                                               \
        uint4 v = make_uint4(0, 0, 0, 0);                                                                  \
        if (mask >> threadIdx.x & 1) {                                                                     \
            asm volatile(ptx : outputs : "l"(a) : "memory");                                               \
        }                                                                                                  \
        a += __reduce_or_sync(~0u, first) & zero;                                                          \
        if (mask >> threadIdx.x & 1) {                                                                     \
            asm volatile(ptx : outputs : "l"(a) : "memory");                                               \
        }                                                                                                  \
        out[threadIdx.x] = v;                                                                              \
    }

#define ONE "=r"(v.x)
#define TWO "=r"(v.x), "=r"(v.y)
#define FOUR "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)

LOADS(ld_global_b8, "ld.global.u8 %0, [%1];", ONE, v.x)
LOADS(ld_global_b16, "{ .reg .u16 h; ld.global.u16 h, [%1]; cvt.u32.u16 %0, h; }", ONE, v.x)
LOADS(ld_global_b32, "ld.global.u32 %0, [%1];", ONE, v.x)
LOADS(ld_global_b64, "ld.global.v2.u32 {%0, %1}, [%2];", TWO, v.x | v.y)
LOADS(ld_global_b128, "ld.global.v4.u32 {%0, %1, %2, %3}, [%4];", FOUR, v.x | v.y | v.z | v.w)

#define STORE(name, ptx, ...)                                                                              \
    extern "C" __global__ void __launch_bounds__(32)                                                       \
        name(const __grid_constant__ Lanes lanes, uint32_t mask, uint32_t zero, char *buffer, uint4 *out) { \
        char *a = buffer + lanes.address[threadIdx.x];                                                     \
        if (mask >> threadIdx.x & 1) asm volatile(ptx ::"l"(a), __VA_ARGS__ : "memory");                   \
    }

#define V(k) "r"(value_of(k))

STORE(st_global_b8, "st.global.u8 [%0], %1;", V(0))
STORE(st_global_b16, "{ .reg .u16 h; cvt.u16.u32 h, %1; st.global.u16 [%0], h; }", V(0))
STORE(st_global_b32, "st.global.u32 [%0], %1;", V(0))
STORE(st_global_b64, "st.global.v2.u32 [%0], {%1, %2};", V(0), V(1))
STORE(st_global_b128, "st.global.v4.u32 [%0], {%1, %2, %3, %4};", V(0), V(1), V(2), V(3))
