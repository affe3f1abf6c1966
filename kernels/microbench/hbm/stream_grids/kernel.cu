// One launch moves whole arrays, a CTA's share after the other, as many CTAs as that takes: READS arrays are read, WRITES
// arrays are written, all of one size. A thread has UNROLLED vectors of 16 bytes of each array under way. What is written is
// the sum of what was read, or numbers; what is only read is added up, and every warp leaves its sum.
#include <cstdint>

template <int READS, int WRITES, int UNROLLED>
__device__ void stream(const uint4* __restrict__ in, uint4* __restrict__ out, uint32_t num_vectors) {
    const uint32_t first = blockIdx.x * (blockDim.x * UNROLLED) + threadIdx.x;
    uint4 x[READS == 0 ? 1 : READS][UNROLLED];
#pragma unroll
    for (int array = 0; array < READS; ++array) {
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) {
            x[array][i] = in[static_cast<uint64_t>(array) * num_vectors + first + i * blockDim.x];
        }
    }
    if constexpr (WRITES == 0) {
        uint32_t sum = 0;
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) sum += x[0][i].x + x[0][i].y + x[0][i].z + x[0][i].w;
        sum = __reduce_add_sync(0xffffffffu, sum);
        const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
        if (threadIdx.x % 32 == 0) reinterpret_cast<uint32_t*>(out)[warp] = sum;
    } else {
#pragma unroll
        for (int array = 0; array < WRITES; ++array) {
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) {
                const uint32_t at = first + i * blockDim.x;
                uint4 y = make_uint4(at, ~at, 7u, 9u);
                if constexpr (READS >= 1) y = x[0][i];
                if constexpr (READS >= 2) {
                    y = make_uint4(y.x + x[1][i].x, y.y + x[1][i].y, y.z + x[1][i].z, y.w + x[1][i].w);
                }
                y.x += array;
                out[static_cast<uint64_t>(array) * num_vectors + at] = y;
            }
        }
    }
}

#define STREAM(READS, WRITES, UNROLLED)                                                                        \
    extern "C" __global__ void __launch_bounds__(1024)                                                         \
        stream_r##READS##_w##WRITES##_u##UNROLLED(const uint4* in, uint4* out, uint32_t num_vectors) {         \
        stream<READS, WRITES, UNROLLED>(in, out, num_vectors);                                                 \
    }

STREAM(1, 0, 1)
STREAM(1, 0, 2)
STREAM(1, 0, 4)
STREAM(1, 0, 8)
STREAM(0, 1, 1)
STREAM(0, 1, 4)
STREAM(1, 1, 1)
STREAM(1, 1, 4)
STREAM(2, 1, 1)
STREAM(2, 1, 2)
STREAM(1, 2, 1)
STREAM(1, 2, 4)
