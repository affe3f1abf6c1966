// A gather as frameworks launch it: a CTA copies one row of a table, or blockDim.x vectors of 16 bytes of it. All its threads load
// the same 64-bit index.

#include <cstdint>

extern "C" __global__ void __launch_bounds__(256) gather_block(const uint4 *table, const int64_t *index, uint4 *out, uint32_t row_vectors) {
    const uint32_t at = blockIdx.y * blockDim.x + threadIdx.x;
    if (at >= row_vectors) return;
    out[blockIdx.x * uint64_t(row_vectors) + at] = table[index[blockIdx.x] * row_vectors + at];
}
