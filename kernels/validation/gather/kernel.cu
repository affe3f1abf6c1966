// One launch copies rows of a table: out[i] = table[index[i]]. A row of 128 bytes is copied by eight lanes, of 512 bytes and
// more by a warp, 16 bytes a lane and instruction. Each thread loads its indices, then its vectors, then stores them.
#include <cstdint>

namespace {

constexpr int THREADS = 256;

template <int ROW_BYTES>
__device__ void gather_rows(const uint4* __restrict__ table, const int32_t* __restrict__ index, uint4* __restrict__ out) {
    constexpr int ROW_VECTORS = ROW_BYTES / 16;
    constexpr int LANES = ROW_VECTORS < 32 ? ROW_VECTORS : 32;  // that share a row
    constexpr int VECTORS = ROW_VECTORS / LANES;                // of a row for each of them
    constexpr int ROWS = VECTORS < 4 ? 4 / VECTORS : 1;         // of each of them
    constexpr int GROUPS = THREADS / LANES;
    const int lane = threadIdx.x % LANES;
    const int64_t first = static_cast<int64_t>(blockIdx.x) * (GROUPS * ROWS) + threadIdx.x / LANES;
    int32_t row[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) row[i] = index[first + i * GROUPS];
    uint4 x[ROWS][VECTORS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) x[i][j] = table[static_cast<int64_t>(row[i]) * ROW_VECTORS + lane + j * LANES];
    }
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
#pragma unroll
        for (int j = 0; j < VECTORS; ++j) out[(first + i * GROUPS) * ROW_VECTORS + lane + j * LANES] = x[i][j];
    }
}

}  // namespace

extern "C" {

__global__ void __launch_bounds__(THREADS) gather_128(const uint4* table, const int32_t* index, uint4* out) {
    gather_rows<128>(table, index, out);
}

__global__ void __launch_bounds__(THREADS) gather_512(const uint4* table, const int32_t* index, uint4* out) {
    gather_rows<512>(table, index, out);
}

__global__ void __launch_bounds__(THREADS) gather_4096(const uint4* table, const int32_t* index, uint4* out) {
    gather_rows<4096>(table, index, out);
}

}
