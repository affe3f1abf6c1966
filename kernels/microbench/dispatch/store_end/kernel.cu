// Does the end of a kernel wait for stores that are on their way when its CTAs have left?
//
// Every thread stores `vectors` vectors of 16 bytes, a CTA's side by side, and leaves; or does nothing.

#include <cstdint>

constexpr uint32_t kThreads = 256;

template <uint32_t kVectors>
__device__ __forceinline__ void run(uint4 *to, uint32_t more) {
    uint4 *first = to + static_cast<uint64_t>(blockIdx.x) * kVectors * kThreads + threadIdx.x;
    const uint32_t word = blockIdx.x * kThreads + threadIdx.x + more;
#pragma unroll
    for (uint32_t idx = 0; idx < kVectors; ++idx) first[idx * kThreads] = make_uint4(word, idx, word, idx);
}

#define ENTRY(vectors) \
    extern "C" __global__ void __launch_bounds__(kThreads) store_##vectors(uint4 *to, uint32_t more) { run<vectors>(to, more); }

ENTRY(0)
ENTRY(1)
ENTRY(2)
ENTRY(4)
ENTRY(8)
ENTRY(16)
