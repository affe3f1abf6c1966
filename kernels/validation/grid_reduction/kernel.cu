// Sums of a row-major array in two steps: CTAs sum parts, then the last CTA to arrive (by a counter) or a second launch sums
// the parts. sum_rows_*: a warp a row; sum_long_*: blocks share a row (the entire array is one row); sum_columns_*.
// Sums are float whatever the elements are.
#include <cstdint>
#include <cuda_bf16.h>

namespace {

template <typename T, int BYTES>
struct alignas(BYTES) Vector {
    static constexpr int SIZE = BYTES / sizeof(T);
    T of[SIZE];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ float sum_of_warp(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// Valid in the first warp.
__device__ float sum_of_block(float x, float* words) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    x = sum_of_warp(x);
    if (lane == 0) words[warp] = x;
    __syncthreads();
    if (warp == 0) x = sum_of_warp(lane < blockDim.x / 32 ? words[lane] : 0.0f);
    return x;
}

// Whether this block is the last of `num` that have left their parts; asked by all threads of it.
__device__ bool is_last(uint32_t* counter, uint32_t num) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == num - 1;
        if (last) *counter = 0;  // for the next launch
    }
    __syncthreads();
    __threadfence();
    return last;
}

// Adds every `stride`-th vector from `begin` on. UNROLL loads are in flight, masked beyond the end.
template <typename V, int UNROLL>
__device__ void add_vectors(const V* vectors, int64_t begin, int64_t end, int64_t stride, float* sums) {
#pragma unroll 1
    for (int64_t idx = begin; idx < end; idx += UNROLL * stride) {
        V x[UNROLL];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i)
            if (idx + i * stride < end) x[i] = vectors[idx + i * stride];
#pragma unroll
        for (int i = 0; i < UNROLL; ++i) {
            if (idx + i * stride >= end) continue;
#pragma unroll
            for (int j = 0; j < V::SIZE; ++j) sums[j] += to_float(x[i].of[j]);
        }
    }
}

// The sum of those vectors.
template <typename T, int BYTES, int UNROLL>
__device__ float sum_vectors(const T* in, int64_t begin, int64_t end, int64_t stride) {
    using V = Vector<T, BYTES>;
    float sums[V::SIZE] = {};
    add_vectors<V, UNROLL>(reinterpret_cast<const V*>(in), begin, end, stride, sums);
#pragma unroll
    for (int j = 1; j < V::SIZE; ++j) sums[0] += sums[j];
    return sums[0];
}

// A warp a row.
template <typename T, int BYTES, int UNROLL>
__device__ void sum_rows(const T* in, float* out, int rows, int columns) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= rows) return;
    const float sum = sum_of_warp(
        sum_vectors<T, BYTES, UNROLL>(in + row * columns, threadIdx.x % 32, columns / Vector<T, BYTES>::SIZE, 32));
    if (threadIdx.x % 32 == 0) out[row] = sum;
}

// gridDim.y blocks a row, whose vectors alternate. With one of them, `out` is the sum itself.
template <typename T, int BYTES, int UNROLL, bool HAS_LAST>
__device__ void sum_long(const T* in, float* out, float* parts, uint32_t* counters, int64_t columns) {
    __shared__ float words[32];
    const int64_t row = blockIdx.x;
    const int64_t first = static_cast<int64_t>(blockIdx.y) * blockDim.x + threadIdx.x;
    float sum = sum_vectors<T, BYTES, UNROLL>(
        in + row * columns, first, columns / Vector<T, BYTES>::SIZE, static_cast<int64_t>(gridDim.y) * blockDim.x);
    sum = sum_of_block(sum, words);
    float* own = parts + row * gridDim.y;
    if (threadIdx.x == 0) own[blockIdx.y] = sum;
    if (!HAS_LAST || !is_last(counters + row, gridDim.y)) return;
    sum = 0.0f;
    for (int idx = threadIdx.x; idx < gridDim.y; idx += blockDim.x) sum += __ldcg(own + idx);
    sum = sum_of_block(sum, words);
    if (threadIdx.x == 0) out[row] = sum;
}

// A block has 32 vectors of columns; its warps alternate over the rows that the gridDim.y blocks share.
template <typename T, int BYTES, int WARPS, bool HAS_LAST>
__device__ void sum_columns(const T* in, float* out, float* parts, uint32_t* counters, int rows, int columns) {
    using V = Vector<T, BYTES>;
    constexpr int WIDTH = 32 * V::SIZE;
    __shared__ float words[WARPS][WIDTH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int num_vectors = columns / V::SIZE, column = blockIdx.x * 32 + lane;
    float sums[V::SIZE] = {};
    add_vectors<V, 4>(
        reinterpret_cast<const V*>(in) + column, static_cast<int64_t>(blockIdx.y * WARPS + warp) * num_vectors,
        static_cast<int64_t>(rows) * num_vectors, static_cast<int64_t>(gridDim.y) * WARPS * num_vectors, sums);
#pragma unroll
    for (int j = 0; j < V::SIZE; ++j) words[warp][lane * V::SIZE + j] = sums[j];
    __syncthreads();
    float* own = parts + static_cast<int64_t>(blockIdx.x) * WIDTH;
    if (threadIdx.x < WIDTH) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) sum += words[i][threadIdx.x];
        own[static_cast<int64_t>(blockIdx.y) * columns + threadIdx.x] = sum;
    }
    if (!HAS_LAST || !is_last(counters + blockIdx.x, gridDim.y)) return;
    if (threadIdx.x < WIDTH) {
        float sum = 0.0f;
        for (int part = 0; part < gridDim.y; ++part) sum += __ldcg(own + static_cast<int64_t>(part) * columns + threadIdx.x);
        out[blockIdx.x * WIDTH + threadIdx.x] = sum;
    }
}

}  // namespace

#define SUM_ROWS(NAME, T, BYTES, UNROLL)                                                                      \
    extern "C" __global__ void __launch_bounds__(512) NAME(const T* in, float* out, int rows, int columns) {  \
        sum_rows<T, BYTES, UNROLL>(in, out, rows, columns);                                                   \
    }
#define SUM_LONG(NAME, T, BYTES, UNROLL, HAS_LAST)                                                     \
    extern "C" __global__ void __launch_bounds__(512)                                                  \
        NAME(const T* in, float* out, float* parts, uint32_t* counters, int64_t columns) {             \
        sum_long<T, BYTES, UNROLL, HAS_LAST>(in, out, parts, counters, columns);                       \
    }
#define SUM_COLUMNS(NAME, T, BYTES, WARPS, HAS_LAST)                                                    \
    extern "C" __global__ void __launch_bounds__(32 * WARPS)                                            \
        NAME(const T* in, float* out, float* parts, uint32_t* counters, int rows, int columns) {        \
        sum_columns<T, BYTES, WARPS, HAS_LAST>(in, out, parts, counters, rows, columns);                \
    }
#define BF16 __nv_bfloat16

SUM_ROWS(sum_rows_fp32_v16_u4, float, 16, 4)
SUM_ROWS(sum_rows_bf16_v8_u1, BF16, 8, 1)
SUM_LONG(sum_long_last_fp32_v16_u4, float, 16, 4, true)
SUM_LONG(sum_long_last_bf16_v8_u1, BF16, 8, 1, true)
SUM_LONG(sum_long_twice_fp32_v16_u1, float, 16, 1, false)
SUM_LONG(sum_long_twice_bf16_v16_u4, BF16, 16, 4, false)
SUM_COLUMNS(sum_columns_last_fp32_v16_u4, float, 16, 16, true)
SUM_COLUMNS(sum_columns_last_bf16_v8_u4, BF16, 8, 16, true)
SUM_COLUMNS(sum_columns_twice_fp32_v16_u4, float, 16, 8, false)
SUM_COLUMNS(sum_columns_twice_bf16_v16_u4, BF16, 16, 8, false)

// The second launch: a warp sums the parts of a row, or a thread those of a column.
extern "C" __global__ void __launch_bounds__(256) sum_parts(const float* parts, float* out, int rows, int num_parts) {
    const int row = blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    float sum = 0.0f;
    for (int idx = threadIdx.x % 32; idx < num_parts; idx += 32) sum += parts[static_cast<int64_t>(row) * num_parts + idx];
    sum = sum_of_warp(sum);
    if (threadIdx.x % 32 == 0) out[row] = sum;
}

extern "C" __global__ void __launch_bounds__(256) sum_column_parts(const float* parts, float* out, int columns, int num_parts) {
    const int column = blockIdx.x * 256 + threadIdx.x;
    if (column >= columns) return;
    float sum = 0.0f;
    for (int part = 0; part < num_parts; ++part) sum += parts[static_cast<int64_t>(part) * columns + column];
    out[column] = sum;
}
