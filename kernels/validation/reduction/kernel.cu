// One launch adds up a row-major array of `rows` x `columns`: every row (reduction_row) or every column (reduction_column).
// Sums are float whatever the elements are.
#include <cstdint>
#include <cuda_bf16.h>

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int ROWS_PER_BLOCK = 64;  // of reduction_column

template <typename T>
struct alignas(16) Vector {
    static constexpr int SIZE = 16 / sizeof(T);
    T of[SIZE];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

// One block a row: vectors of 16 bytes, four of them under way for each thread; shuffles, then one word a warp.
template <typename T>
__device__ void reduce_row(const T* __restrict__ in, float* __restrict__ out, int columns) {
    __shared__ float partial[WARPS];
    constexpr int SIZE = Vector<T>::SIZE;
    const int64_t row = blockIdx.x;
    const Vector<T>* vectors = reinterpret_cast<const Vector<T>*>(in + row * columns);
    const int num_vectors = columns / SIZE;
    float sum = 0.0f;
#pragma unroll 4
    for (int i = threadIdx.x; i < num_vectors; i += THREADS) {
        const Vector<T> x = vectors[i];
#pragma unroll
        for (int j = 0; j < SIZE; ++j) sum += to_float(x.of[j]);
    }
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < WARPS) {
        sum = partial[threadIdx.x];
#pragma unroll
        for (int lanes = WARPS / 2; lanes > 0; lanes /= 2) sum += __shfl_xor_sync((1u << WARPS) - 1u, sum, lanes);
        if (threadIdx.x == 0) out[row] = sum;
    }
}

// A block takes ROWS_PER_BLOCK rows of as many columns as a warp reads at once; warps take turns of rows, each lane keeps
// the sums of its own columns; the warps' sums meet in shared memory, and one atomic a column adds them to `out` (zero
// before). Blocks that follow one another take neighbouring columns.
template <typename T>
__device__ void reduce_columns(const T* __restrict__ in, float* __restrict__ out, int columns) {
    constexpr int SIZE = Vector<T>::SIZE, WIDTH = 32 * SIZE;
    __shared__ float partial[WARPS][WIDTH];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int num_groups = columns / WIDTH;
    const int group = blockIdx.x % num_groups;
    const int64_t first = static_cast<int64_t>(blockIdx.x / num_groups) * ROWS_PER_BLOCK;
    const T* begin = in + (first + warp) * columns + group * WIDTH + lane * SIZE;
    float sums[SIZE] = {};
#pragma unroll
    for (int i = 0; i < ROWS_PER_BLOCK / WARPS; ++i) {
        const Vector<T> x = *reinterpret_cast<const Vector<T>*>(begin + static_cast<int64_t>(i) * WARPS * columns);
#pragma unroll
        for (int j = 0; j < SIZE; ++j) sums[j] += to_float(x.of[j]);
    }
#pragma unroll
    for (int j = 0; j < SIZE; j += 4) {
        *reinterpret_cast<float4*>(&partial[warp][lane * SIZE + j]) =
            make_float4(sums[j], sums[j + 1], sums[j + 2], sums[j + 3]);
    }
    __syncthreads();
    if (threadIdx.x < WIDTH) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < WARPS; ++i) sum += partial[i][threadIdx.x];
        atomicAdd(&out[group * WIDTH + threadIdx.x], sum);
    }
}

}  // namespace

extern "C" {

__global__ void __launch_bounds__(THREADS) reduction_row_fp32(const float* in, float* out, int columns) {
    reduce_row(in, out, columns);
}

__global__ void __launch_bounds__(THREADS) reduction_row_bf16(const __nv_bfloat16* in, float* out, int columns) {
    reduce_row(in, out, columns);
}

__global__ void __launch_bounds__(THREADS) reduction_column_fp32(const float* in, float* out, int columns) {
    reduce_columns(in, out, columns);
}

__global__ void __launch_bounds__(THREADS) reduction_column_bf16(const __nv_bfloat16* in, float* out, int columns) {
    reduce_columns(in, out, columns);
}

}
