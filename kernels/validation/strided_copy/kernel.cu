// Every `stride`-th element of a tensor of 4-byte elements, side by side: out[i] = in[i * stride].
//
// A launch has one CTA of 256 threads for 256 times kItems elements of `out`; thread t of a CTA takes its elements t, t + 256, ...,
// all loads before the first store. A CTA whose share is not full takes them one by one.

#include <cstdint>

constexpr int kThreads = 256;

template <int kItems>
__device__ __forceinline__ void strided_copy(const float *__restrict__ in, float *__restrict__ out, uint64_t num_elements,
                                             uint64_t stride) {
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * (kThreads * kItems) + threadIdx.x;
    if (first - threadIdx.x + kThreads * kItems <= num_elements) {
        const float *from = in + first * stride;
        float *to = out + first;
        float held[kItems];
#pragma unroll
        for (int i = 0; i < kItems; ++i) held[i] = from[i * kThreads * stride];
#pragma unroll
        for (int i = 0; i < kItems; ++i) to[i * kThreads] = held[i];
        return;
    }
#pragma unroll 1
    for (uint64_t at = first; at < num_elements; at += kThreads) out[at] = in[at * stride];
}

extern "C" __global__ void __launch_bounds__(kThreads) strided_copy_i1(const float *in, float *out, uint64_t num_elements, uint64_t stride) {
    strided_copy<1>(in, out, num_elements, stride);
}

extern "C" __global__ void __launch_bounds__(kThreads) strided_copy_i4(const float *in, float *out, uint64_t num_elements, uint64_t stride) {
    strided_copy<4>(in, out, num_elements, stride);
}
