// How much crosses between L2's partitions, and comes from memory, where SMs of both read the same lines, or lines that others stored?
//
// parts: a long grid. Each CTA reads one part of a footprint, CTA after CTA: a part is read again when as many CTAs as there are parts
// have begun, by whatever SM is free.
// in_place: each thread reads an element and stores it where it was. The launch before did the same on other SMs.
// apart: the same, stored into another array, so that nobody stores what is read.

#include <cstdint>

constexpr uint32_t kPartBytes = 512 << 10, kThreads = 1024, kInFlight = 8;
constexpr uint32_t kPartPairs = kPartBytes / sizeof(uint2);

// Sums of all words that a CTA has read; `ends` are nanoseconds of the GPU's timer.
extern "C" __global__ void __launch_bounds__(kThreads, 2)
    parts(const uint2 *__restrict__ data, uint32_t *sums, uint64_t *ends, uint32_t num_parts) {
    const uint2 *part = data + size_t(blockIdx.x % num_parts) * kPartPairs;
    uint32_t sum = 0;
    for (uint32_t at = threadIdx.x; at < kPartPairs; at += kThreads * kInFlight) {
        uint2 pairs[kInFlight];
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i)
            asm volatile("ld.global.cg.v2.u32 {%0, %1}, [%2];" : "=r"(pairs[i].x), "=r"(pairs[i].y) : "l"(part + at + i * kThreads));
#pragma unroll
        for (uint32_t i = 0; i < kInFlight; ++i) sum += pairs[i].x + pairs[i].y;
    }
    sum = __reduce_add_sync(0xFFFFFFFFu, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.x, sum);
    __syncthreads();
    if (threadIdx.x) return;
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    ends[blockIdx.x] = now;
}

__device__ __forceinline__ void pass(const double *in, double *out, uint32_t num, double factor) {
    const uint32_t idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < num) out[idx] = in[idx] * factor;
}

extern "C" __global__ void in_place(const double *, double *out, uint32_t num, double factor) { pass(out, out, num, factor); }
extern "C" __global__ void apart(const double *in, double *out, uint32_t num, double factor) { pass(in, out, num, factor); }
