// What does memory lose where it is read and written at once, by what a warp stores in a row?
//
// Grids whose CTAs each copy their share of an array, as many CTAs as that takes. A thread has UNROLLED vectors of V under way:
// all are loaded, then all are stored. `strided`: a CTA's threads lie side by side, a thread's vectors a CTA apart; `dense`: a
// warp's vectors lie side by side. `paused`: `pause_cycles` pass between a warp's last load and its first store. `by_one`: a
// thread loads and stores one vector, then the next. `read` and `write` do half of it. `loop`: CTAs stay and walk the array, a
// share of all of them after the other.
#include <cstdint>

enum Kind { kStrided, kDense, kPaused, kByOne, kRead, kWrite, kLoop };

// In the order of the source.
__device__ __forceinline__ void load(uint4 &v, const uint4 *at) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
}
__device__ __forceinline__ void load(uint2 &v, const uint2 *at) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(at) : "memory");
}
__device__ __forceinline__ void load(uint1 &v, const uint1 *at) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.x) : "l"(at) : "memory");
}
__device__ __forceinline__ void store(uint4 *at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ void store(uint2 *at, uint2 v) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(v.x), "r"(v.y) : "memory");
}
__device__ __forceinline__ void store(uint1 *at, uint1 v) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v.x) : "memory");
}

template <typename V, int UNROLLED, Kind kKind>
__device__ __forceinline__ void copy(const V *in, V *out, uint32_t pause_cycles, uint32_t num_vectors) {
    const uint32_t lane = threadIdx.x % 32, step = kKind == kDense ? 32 : blockDim.x;
    const uint32_t of_warp = threadIdx.x / 32 * (kKind == kDense ? 32 * UNROLLED : 32);
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * (blockDim.x * UNROLLED) + of_warp + lane;
    if constexpr (kKind == kByOne) {
#pragma unroll 1
        for (int i = 0; i < UNROLLED; ++i) {
            V held;
            load(held, in + first + i * step);
            held.x += 1;
            store(out + first + i * step, held);
        }
    } else if constexpr (kKind == kLoop) {
#pragma unroll 1
        for (uint64_t at = first; at < num_vectors; at += static_cast<uint64_t>(gridDim.x) * blockDim.x) {
            V held;
            load(held, in + at);
            held.x += 1;
            store(out + at, held);
        }
    } else if constexpr (kKind == kRead) {
        V held;
        load(held, in + first);
        if (held.x == 0xffffffffu) store(out, held);  // no word is
    } else if constexpr (kKind == kWrite) {
        const uint32_t at = static_cast<uint32_t>(first);
        store(out + first, make_uint4(at, ~at, 7u, 9u));
    } else {
        V held[UNROLLED];
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) load(held[i], in + first + i * step);
        if constexpr (kKind == kPaused) {
            uint32_t seen = 0;
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) seen |= held[i].x;
            const uint64_t until = clock64() + pause_cycles + (seen == 0xffffffffu);
            while (clock64() < until) {}
        }
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) {
            held[i].x += 1;
            store(out + first + i * step, held[i]);
        }
    }
}

#define COPY(kind, KIND, V, BYTES, UNROLLED)                                                                        \
    extern "C" __global__ void __launch_bounds__(1024) kind##_b##BYTES##_u##UNROLLED(const V *in, V *out,           \
                                                                                   uint32_t pause_cycles,          \
                                                                                   uint32_t num_vectors) {         \
        copy<V, UNROLLED, KIND>(in, out, pause_cycles, num_vectors);                                                \
    }

COPY(strided, kStrided, uint4, 16, 1)
COPY(strided, kStrided, uint4, 16, 2)
COPY(strided, kStrided, uint4, 16, 4)
COPY(strided, kStrided, uint4, 16, 8)
COPY(strided, kStrided, uint2, 8, 1)
COPY(strided, kStrided, uint2, 8, 4)
COPY(strided, kStrided, uint2, 8, 8)
COPY(strided, kStrided, uint1, 4, 1)
COPY(strided, kStrided, uint1, 4, 4)
COPY(strided, kStrided, uint1, 4, 8)
COPY(dense, kDense, uint4, 16, 2)
COPY(dense, kDense, uint4, 16, 4)
COPY(dense, kDense, uint4, 16, 8)
COPY(paused, kPaused, uint4, 16, 1)
COPY(paused, kPaused, uint4, 16, 4)
COPY(paused, kPaused, uint4, 16, 8)
COPY(by_one, kByOne, uint4, 16, 4)
COPY(read, kRead, uint4, 16, 1)
COPY(write, kWrite, uint4, 16, 1)
COPY(loop, kLoop, uint4, 16, 1)
