// What does memory lose where the halves of its lines are asked for by unlike instructions?
//
// CTAs of 256 threads read 16 KiB each, side by side, as many CTAs as the array takes; a thread has 32 bytes under way. `whole`:
// a warp's load takes whole lines of 128 bytes. `near`: half of each, and the warp beside it the other half. `far`: and the warp
// four further on the other half. `turn`: and its next load the other half. `quarter`: a sector of each, and the three warps
// beside it the others. All that was read is added up.

#include <cstdint>

constexpr int kThreads = 256, kShare = 16384, kUnderWay = 32, kLine = 128;

enum Way { kWhole, kNear, kFar, kTurn, kQuarter };

__device__ __forceinline__ uint32_t load(const uint8_t *at, uint16_t) {
    uint16_t v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(at) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load(const uint8_t *at, uint32_t) {
    uint32_t v;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    return v;
}
__device__ __forceinline__ uint32_t load(const uint8_t *at, uint2) {
    uint2 v;
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
    return v.x + v.y;
}
__device__ __forceinline__ uint32_t load(const uint8_t *at, uint4) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v.x + v.y + v.z + v.w;
}

// Where a lane's load number `i` lies in the CTA's share: warps in groups have a part of the same lines each.
template <int kBytes, Way kWay>
__device__ __forceinline__ int place(int warp, int lane, int i) {
    constexpr int kParts = kWay == kWhole ? 1 : kWay == kQuarter ? 4 : 2, kPart = kLine / kParts;
    constexpr int kLanes = kPart / kBytes, kRows = 32 / kLanes;  // of a part; lines of a load
    int part = 0, row = warp, num_rows = 8;
    if (kWay == kNear) part = warp % 2, row = warp / 2, num_rows = 4;
    if (kWay == kFar) part = warp / 4, row = warp % 4, num_rows = 4;
    if (kWay == kQuarter) part = warp % 4, row = warp / 4, num_rows = 2;
    if (kWay == kTurn) part = i % 2, i /= 2;
    return ((i * num_rows + row) * kRows + lane / kLanes) * kLine + part * kPart + lane % kLanes * kBytes;
}

template <typename V, Way kWay>
__device__ __forceinline__ void read(const uint8_t *in, uint32_t *sums) {
    constexpr int kBytes = sizeof(V), kUnrolled = kUnderWay / kBytes, kEach = kShare / kThreads / kBytes;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint8_t *mine = in + size_t(blockIdx.x) * kShare;
    uint32_t sum = 0;
#pragma unroll 1
    for (int first = 0; first < kEach; first += kUnrolled) {
        uint32_t held[kUnrolled];
#pragma unroll
        for (int i = 0; i < kUnrolled; ++i) held[i] = load(mine + place<kBytes, kWay>(warp, lane, first + i), V{});
#pragma unroll
        for (int i = 0; i < kUnrolled; ++i) sum += held[i];
    }
    for (int other = 16; other; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
    if (lane == 0) sums[blockIdx.x * (kThreads / 32) + warp] = sum;
}

#define ENTRY(V, bytes, way, kWay)                                                                                          \
    extern "C" __global__ void __launch_bounds__(kThreads) b##bytes##_##way(const uint8_t *in, uint32_t *sums) {            \
        read<V, kWay>(in, sums);                                                                                            \
    }
#define WAYS(V, bytes)               \
    ENTRY(V, bytes, near, kNear)     \
    ENTRY(V, bytes, far, kFar)       \
    ENTRY(V, bytes, turn, kTurn)     \
    ENTRY(V, bytes, quarter, kQuarter)

ENTRY(uint16_t, 2, near, kNear)
ENTRY(uint16_t, 2, far, kFar)
ENTRY(uint16_t, 2, turn, kTurn)
WAYS(uint32_t, 4)
ENTRY(uint32_t, 4, whole, kWhole)
WAYS(uint2, 8)
ENTRY(uint2, 8, whole, kWhole)
WAYS(uint4, 16)
ENTRY(uint4, 16, whole, kWhole)
