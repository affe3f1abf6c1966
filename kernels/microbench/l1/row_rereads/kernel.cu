// Each block goes through rows of an array: it reads a row, meets, and reads the row again. reread_stores also writes a row of
// another array, between both readings.
#include <cstdint>

namespace {

constexpr uint32_t THREADS = 512;

template <bool HAS_STORES>
__device__ void reread(const uint4 *in, uint4 *out, uint32_t *sums, uint32_t row_vectors, uint32_t rows) {
    uint32_t sum = 0;
    for (uint32_t row = 0; row < rows; ++row) {
        const uint64_t begin = static_cast<uint64_t>(blockIdx.x * rows + row) * row_vectors;
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < row_vectors; i += THREADS) {
            const uint4 x = in[begin + i];
            sum += x.x + x.y + x.z + x.w;
        }
        __syncthreads();
        if (HAS_STORES) {
            for (uint32_t i = threadIdx.x; i < row_vectors; i += THREADS) out[begin + i] = make_uint4(row, i, 0, 0);
            __syncthreads();
        }
#pragma unroll 4
        for (uint32_t i = threadIdx.x; i < row_vectors; i += THREADS) {
            uint4 x;  // loads that nvcc does not merge with those above
            asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(in + begin + i));
            sum += 3 * (x.x + x.y + x.z + x.w);
        }
        __syncthreads();
    }
    sums[blockIdx.x * THREADS + threadIdx.x] = sum;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS)
    reread_alone(const uint4 *in, uint4 *out, uint32_t *sums, uint32_t row_vectors, uint32_t rows) {
    reread<false>(in, out, sums, row_vectors, rows);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reread_stores(const uint4 *in, uint4 *out, uint32_t *sums, uint32_t row_vectors, uint32_t rows) {
    reread<true>(in, out, sums, row_vectors, rows);
}
