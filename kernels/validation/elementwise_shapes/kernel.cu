// One operation on every element of a tensor, as frameworks launch it: any CTA size, any number of vectors a thread, a last
// CTA that is not full.
//
// Thread t of a CTA takes its vectors t, t + blockDim.x, ... of kVector elements. `batched`: all loads stand before the first
// store. `serial`: a vector is loaded, computed and stored before the next one is loaded. A CTA that is not full loads and
// stores the elements of its vectors one by one, each with a bounds check.

#include <cuda_bf16.h>

#include <cstdint>
#include <type_traits>

enum Operation { kCopy, kScale, kAdd, kRelu, kExp, kSilu, kGelu, kGeluTanh };
enum Broadcast { kNone, kRow, kColumn };

template <typename Element, int kVector>
struct alignas(sizeof(Element) * kVector >= 16 ? 16 : sizeof(Element) * kVector) Vector {
    Element at[kVector];
};

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename Element>
__device__ __forceinline__ Element from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
    return value;
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
    return __float2bfloat16_rn(value);
}

template <Operation kOperation>
__device__ __forceinline__ float apply(float a, float b) {
    if (kOperation == kScale) return 1.5f * a;
    if (kOperation == kAdd) return a + b;
    if (kOperation == kRelu) return fmaxf(a, 0.0f);
    if (kOperation == kExp) return expf(a);
    if (kOperation == kSilu) return a / (1.0f + expf(-a));
    if (kOperation == kGelu) return 0.5f * a * (1.0f + erff(a * 0.70710678f));
    if (kOperation == kGeluTanh) return 0.5f * a * (1.0f + tanhf(0.79788456f * (a + 0.044715f * a * a * a)));
    return a;
}

template <typename In, typename Out, Operation kOperation, Broadcast kBroadcast, int kVector, int kItems, bool kBatched, bool kIsFull>
__device__ __forceinline__ void process(const In *a, const In *b, Out *out, uint32_t num, uint32_t columns) {
    using From = Vector<In, kVector>;
    using To = Vector<Out, kVector>;
    const uint32_t first = (blockIdx.x * blockDim.x * kItems + threadIdx.x) * kVector;
    const uint32_t step = blockDim.x * kVector;
    From held_a[kItems], held_b[kItems];
    auto load = [&](int i) {
        const uint32_t at = first + i * step;
        uint32_t at_b = at;
        if (kBroadcast == kRow) at_b = at % columns;
        if (kBroadcast == kColumn) at_b = at / columns;
        if (kIsFull) {
            held_a[i] = *reinterpret_cast<const From *>(a + at);
            if (kOperation == kAdd && kBroadcast != kColumn) held_b[i] = *reinterpret_cast<const From *>(b + at_b);
        } else {
#pragma unroll
            for (int j = 0; j < kVector; ++j) {
                if (at + j >= num) continue;
                held_a[i].at[j] = a[at + j];
                if (kOperation == kAdd && kBroadcast != kColumn) held_b[i].at[j] = b[at_b + j];
            }
        }
        if (kOperation == kAdd && kBroadcast == kColumn && (kIsFull || at < num)) held_b[i].at[0] = b[at_b];
    };
    auto store = [&](int i) {
        const uint32_t at = first + i * step;
        To result;
#pragma unroll
        for (int j = 0; j < kVector; ++j) {
            if constexpr (kOperation == kCopy && std::is_same<In, Out>::value) {
                result.at[j] = held_a[i].at[j];
                continue;
            }
            const float other = kOperation == kAdd ? to_float(held_b[i].at[kBroadcast == kColumn ? 0 : j]) : 0.0f;
            result.at[j] = from_float<Out>(apply<kOperation>(to_float(held_a[i].at[j]), other));
        }
        if (kIsFull) {
            *reinterpret_cast<To *>(out + at) = result;
        } else {
#pragma unroll
            for (int j = 0; j < kVector; ++j)
                if (at + j < num) out[at + j] = result.at[j];
        }
    };
    if (kBatched) {
#pragma unroll
        for (int i = 0; i < kItems; ++i) load(i);
#pragma unroll
        for (int i = 0; i < kItems; ++i) store(i);
    } else {
#pragma unroll
        for (int i = 0; i < kItems; ++i) {
            load(i);
            store(i);
            asm volatile("" ::: "memory");
        }
    }
}

template <typename In, typename Out, Operation kOperation, Broadcast kBroadcast, int kVector, int kItems, bool kBatched>
__device__ __forceinline__ void elementwise(const In *a, const In *b, Out *out, uint32_t num, uint32_t columns) {
    if ((blockIdx.x + 1) * blockDim.x * kItems * kVector <= num)
        process<In, Out, kOperation, kBroadcast, kVector, kItems, kBatched, true>(a, b, out, num, columns);
    else
        process<In, Out, kOperation, kBroadcast, kVector, kItems, kBatched, false>(a, b, out, num, columns);
}

using fp32 = float;
using bf16 = __nv_bfloat16;

#include "shapes.inc"
