// One launch normalizes every row of a row-major array to mean 0 and variance 1, times gamma, plus beta (one of each a
// column): a row is read once, kept in registers, written once. layer_norm_warp: a warp a row, eight rows a block;
// layer_norm_block: a block of 256 threads a row.
#include <cstdint>
#include <cuda_bf16.h>

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr float EPSILON = 1e-5f;

template <typename T>
struct alignas(16) Vector {
    static constexpr int SIZE = 16 / sizeof(T);
    T of[SIZE];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float& to, float x) { to = x; }
__device__ void from_float(__nv_bfloat16& to, float x) { to = __float2bfloat16(x); }

__device__ float sum_of_warp(float x) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// Every thread gets it: each warp leaves a word, all warps read all words.
__device__ float sum_of_block(float x, float* partial) {
    x = sum_of_warp(x);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    x = partial[threadIdx.x % WARPS];
#pragma unroll
    for (int lanes = WARPS / 2; lanes > 0; lanes /= 2) x += __shfl_xor_sync(0xffffffffu, x, lanes);
    return x;
}

// The row begins at `in`; the calling LANES threads (a warp or a block), of which this is `lane`, share it.
template <typename T, int COLUMNS, int LANES>
__device__ void normalize_row(
    const T* __restrict__ in, const T* __restrict__ gamma, const T* __restrict__ beta, T* __restrict__ out, int lane) {
    constexpr int SIZE = Vector<T>::SIZE, NUM = COLUMNS / (LANES * SIZE);
    static_assert(NUM * LANES * SIZE == COLUMNS);
    __shared__ float partial[2][WARPS];
    Vector<T> loaded[NUM];
#pragma unroll
    for (int i = 0; i < NUM; ++i) loaded[i] = reinterpret_cast<const Vector<T>*>(in)[lane + i * LANES];
    float x[NUM * SIZE];
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NUM * SIZE; ++i) {
        x[i] = to_float(loaded[i / SIZE].of[i % SIZE]);
        sum += x[i];
    }
    const float mean = (LANES == 32 ? sum_of_warp(sum) : sum_of_block(sum, partial[0])) * (1.0f / COLUMNS);
    float squares = 0.0f;
#pragma unroll
    for (int i = 0; i < NUM * SIZE; ++i) {
        x[i] -= mean;
        squares += x[i] * x[i];
    }
    squares = LANES == 32 ? sum_of_warp(squares) : sum_of_block(squares, partial[1]);
    const float scale = rsqrtf(squares * (1.0f / COLUMNS) + EPSILON);
#pragma unroll
    for (int i = 0; i < NUM; ++i) {
        const Vector<T> g = reinterpret_cast<const Vector<T>*>(gamma)[lane + i * LANES];
        const Vector<T> b = reinterpret_cast<const Vector<T>*>(beta)[lane + i * LANES];
        Vector<T> y;
#pragma unroll
        for (int j = 0; j < SIZE; ++j) {
            from_float(y.of[j], x[i * SIZE + j] * scale * to_float(g.of[j]) + to_float(b.of[j]));
        }
        reinterpret_cast<Vector<T>*>(out)[lane + i * LANES] = y;
    }
}

template <typename T, int COLUMNS>
__device__ void layer_norm_warp(const T* in, const T* gamma, const T* beta, T* out) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    normalize_row<T, COLUMNS, 32>(in + row * COLUMNS, gamma, beta, out + row * COLUMNS, threadIdx.x % 32);
}

template <typename T, int COLUMNS>
__device__ void layer_norm_block(const T* in, const T* gamma, const T* beta, T* out) {
    const int64_t row = blockIdx.x;
    normalize_row<T, COLUMNS, THREADS>(in + row * COLUMNS, gamma, beta, out + row * COLUMNS, threadIdx.x);
}

}  // namespace

#define LAYER_NORM(PER, NAME, T, COLUMNS)                                                              \
    __global__ void __launch_bounds__(THREADS)                                                         \
        layer_norm_##PER##_##NAME##_##COLUMNS(const T* in, const T* gamma, const T* beta, T* out) {    \
        layer_norm_##PER<T, COLUMNS>(in, gamma, beta, out);                                            \
    }

extern "C" {

LAYER_NORM(warp, fp32, float, 1024)
LAYER_NORM(warp, bf16, __nv_bfloat16, 1024)
LAYER_NORM(block, fp32, float, 4096)
LAYER_NORM(block, bf16, __nv_bfloat16, 4096)

}
