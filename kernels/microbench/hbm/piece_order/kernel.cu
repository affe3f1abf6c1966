// How fast does memory move the same bytes in another order? A matrix of 2^ROW_BITS rows that lie 2^STRIDE_BITS bytes apart is
// moved piece by piece, 2^PIECE_BITS bytes of a row each, down the rows first, as many CTAs as that takes; or along the rows.
// A thread has UNROLLED vectors of 16 bytes under way.
#include <cstdint>

struct Order {
    uint32_t piece_bits, stride_bits, row_bits;  // of vectors of 16 bytes; piece_bits == stride_bits: along the rows
};

__device__ __forceinline__ uint64_t place(uint64_t vector, const Order &order) {
    const uint64_t piece = vector >> order.piece_bits, within = vector & ((1ull << order.piece_bits) - 1);
    const uint64_t row = piece & ((1ull << order.row_bits) - 1), column = piece >> order.row_bits;
    return (row << order.stride_bits) + (column << order.piece_bits) + within;
}

template <int READS, int WRITES, int UNROLLED>
__device__ void pieces(const uint4 *__restrict__ in, uint4 *__restrict__ out, const Order &from, const Order &to) {
    const uint64_t first = static_cast<uint64_t>(blockIdx.x) * (blockDim.x * UNROLLED) + threadIdx.x;
    uint4 x[UNROLLED];
#pragma unroll
    for (int i = 0; i < UNROLLED; ++i) {
        const uint32_t at = static_cast<uint32_t>(first) + i * blockDim.x;
        x[i] = READS ? in[place(first + i * blockDim.x, from)] : make_uint4(at, ~at, 7u, 9u);
    }
    if constexpr (WRITES == 0) {
        uint32_t sum = 0;
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) sum += x[i].x + x[i].y + x[i].z + x[i].w;
        sum = __reduce_add_sync(0xffffffffu, sum);
        if (threadIdx.x % 32 == 0) reinterpret_cast<uint32_t *>(out)[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = sum;
    } else {
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i) out[place(first + i * blockDim.x, to)] = x[i];
    }
}

#define PIECES(NAME, READS, WRITES, UNROLLED)                                                                                    \
    extern "C" __global__ void __launch_bounds__(256)                                                                            \
        NAME##_u##UNROLLED(const uint4 *in, uint4 *out, const Order from, const Order to) {                                      \
        pieces<READS, WRITES, UNROLLED>(in, out, from, to);                                                                      \
    }

PIECES(read, 1, 0, 1)
PIECES(read, 1, 0, 4)
PIECES(write, 0, 1, 1)
PIECES(write, 0, 1, 4)
PIECES(copy, 1, 1, 1)
PIECES(copy, 1, 1, 4)
