// A transpose without tiles, as frameworks copy a transposed tensor: thread t of a CTA stores elements t, t + blockDim.x, ... of
// the output, each before it loads the next one. Neighbouring threads load from neighbouring rows of the input.

#include <cstdint>

template <typename Element, int kItems>
__device__ __forceinline__ void transpose(const Element *in, Element *out, uint32_t rows, uint32_t columns) {
    const uint32_t first = blockIdx.x * blockDim.x * kItems + threadIdx.x;
#pragma unroll
    for (int item = 0; item < kItems; ++item) {
        const uint32_t at = first + item * blockDim.x;
        if (at >= rows * columns) return;
        const uint32_t column = at / rows, row = at - column * rows;
        out[at] = in[uint64_t(row) * columns + column];
        asm volatile("" ::: "memory");
    }
}

#define TRANSPOSE(bits, items)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(512)                                                                                \
        transpose_b##bits##_i##items(const uint##bits##_t *in, uint##bits##_t *out, uint32_t rows, uint32_t columns) {               \
        transpose<uint##bits##_t, items>(in, out, rows, columns);                                                                    \
    }

TRANSPOSE(32, 1)
TRANSPOSE(32, 2)
TRANSPOSE(32, 4)
TRANSPOSE(16, 2)
TRANSPOSE(16, 4)
