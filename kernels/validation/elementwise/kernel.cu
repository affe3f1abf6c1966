// Tensors of 4-byte elements, element by element: out = a, factor * a, a + b, or a value.
//
// A launch has one CTA of 256 threads for 256 times kItems vectors of kWidth elements; thread t of a CTA takes its vectors t,
// t + 256, ..., all loads before the first store. A CTA whose share is not full takes it element by element.

#include <cstdint>

constexpr int kThreads = 256;

enum Operation { kCopy, kScale, kAdd, kFill };

template <int kWidth>
struct alignas(4 * kWidth) Vector {
    float at[kWidth];
};

template <Operation kOperation>
__device__ __forceinline__ float apply(float a, float b, float value) {
    if (kOperation == kScale) return value * a;
    if (kOperation == kAdd) return a + b;
    return kOperation == kFill ? value : a;
}

template <Operation kOperation, int kWidth, int kItems>
__device__ __forceinline__ void elementwise(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ out, float value,
                                            uint64_t num_elements) {
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * (kThreads * kItems);
    if (first + kThreads * kItems <= num_elements / kWidth) {
        const Vector<kWidth> *from_a = reinterpret_cast<const Vector<kWidth> *>(a) + first + threadIdx.x;
        const Vector<kWidth> *from_b = reinterpret_cast<const Vector<kWidth> *>(b) + first + threadIdx.x;
        Vector<kWidth> *to = reinterpret_cast<Vector<kWidth> *>(out) + first + threadIdx.x;
        Vector<kWidth> held_a[kItems], held_b[kItems];
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            if (kOperation != kFill) held_a[i] = from_a[i * kThreads];
            if (kOperation == kAdd) held_b[i] = from_b[i * kThreads];
        }
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            Vector<kWidth> result;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) result.at[j] = apply<kOperation>(held_a[i].at[j], held_b[i].at[j], value);
            to[i * kThreads] = result;
        }
        return;
    }
#pragma unroll 1
    for (uint64_t at = first * kWidth + threadIdx.x; at < num_elements; at += kThreads)
        out[at] = apply<kOperation>(a[at], b[at], value);
}

#define ENTRY(name, operation, width, items)                                                                                             \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                                               \
        name(const float *a, const float *b, float *out, float value, uint64_t num_elements) {                                           \
        elementwise<operation, width, items>(a, b, out, value, num_elements);                                                            \
    }

ENTRY(copy_b4_i1, kCopy, 1, 1)
ENTRY(copy_b8_i1, kCopy, 2, 1)
ENTRY(copy_b16_i1, kCopy, 4, 1)
ENTRY(copy_b4_i4, kCopy, 1, 4)
ENTRY(copy_b8_i4, kCopy, 2, 4)
ENTRY(copy_b16_i4, kCopy, 4, 4)
ENTRY(scale_b16_i4, kScale, 4, 4)
ENTRY(add_b16_i1, kAdd, 4, 1)
ENTRY(fill_b16_i1, kFill, 4, 1)
ENTRY(fill_b16_i4, kFill, 4, 4)
