// One launch takes the softmax of every row of a row-major array: a row is read once, kept in registers, written once.
// softmax_warp: a warp a row, eight rows a block; softmax_block: a block of 256 threads a row.
#include <cstdint>
#include <cuda_bf16.h>

namespace {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr float LOG2_E = 1.4426950408889634f;

template <typename T>
struct alignas(16) Vector {
    static constexpr int SIZE = 16 / sizeof(T);
    T of[SIZE];
};

__device__ float to_float(float x) { return x; }
__device__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void from_float(float& to, float x) { to = x; }
__device__ void from_float(__nv_bfloat16& to, float x) { to = __float2bfloat16(x); }

__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

struct Most {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

template <typename Both>
__device__ float of_warp(float x, Both both) {
#pragma unroll
    for (int lanes = 16; lanes > 0; lanes /= 2) x = both(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

// Every thread gets it: each warp leaves a word, all warps read all words.
template <typename Both>
__device__ float of_block(float x, Both both, float* partial) {
    x = of_warp(x, both);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = x;
    __syncthreads();
    x = partial[threadIdx.x % WARPS];
#pragma unroll
    for (int lanes = WARPS / 2; lanes > 0; lanes /= 2) x = both(x, __shfl_xor_sync(0xffffffffu, x, lanes));
    return x;
}

// The row begins at `in`; the calling LANES threads (a warp or a block), of which this is `lane`, share it.
template <typename T, int COLUMNS, int LANES>
__device__ void softmax_row(const T* __restrict__ in, T* __restrict__ out, int lane) {
    constexpr int SIZE = Vector<T>::SIZE, NUM = COLUMNS / (LANES * SIZE);
    static_assert(NUM * LANES * SIZE == COLUMNS);
    __shared__ float partial[2][WARPS];
    const Vector<T>* from = reinterpret_cast<const Vector<T>*>(in);
    Vector<T>* to = reinterpret_cast<Vector<T>*>(out);
    Vector<T> loaded[NUM];
#pragma unroll
    for (int i = 0; i < NUM; ++i) loaded[i] = from[lane + i * LANES];
    float x[NUM * SIZE];
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < NUM * SIZE; ++i) {
        x[i] = to_float(loaded[i / SIZE].of[i % SIZE]);
        most = fmaxf(most, x[i]);
    }
    most = LANES == 32 ? of_warp(most, Most()) : of_block(most, Most(), partial[0]);
    const float shift = most * LOG2_E;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < NUM * SIZE; ++i) {
        x[i] = exp2_of(x[i] * LOG2_E - shift);
        sum += x[i];
    }
    sum = LANES == 32 ? of_warp(sum, Sum()) : of_block(sum, Sum(), partial[1]);
    const float scale = 1.0f / sum;
#pragma unroll
    for (int i = 0; i < NUM; ++i) {
        Vector<T> y;
#pragma unroll
        for (int j = 0; j < SIZE; ++j) from_float(y.of[j], x[i * SIZE + j] * scale);
        to[lane + i * LANES] = y;
    }
}

template <typename T, int COLUMNS>
__device__ void softmax_warp(const T* in, T* out) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * WARPS + threadIdx.x / 32;
    softmax_row<T, COLUMNS, 32>(in + row * COLUMNS, out + row * COLUMNS, threadIdx.x % 32);
}

template <typename T, int COLUMNS>
__device__ void softmax_block(const T* in, T* out) {
    const int64_t row = blockIdx.x;
    softmax_row<T, COLUMNS, THREADS>(in + row * COLUMNS, out + row * COLUMNS, threadIdx.x);
}

}  // namespace

extern "C" {

__global__ void __launch_bounds__(THREADS) softmax_warp_fp32_1024(const float* in, float* out) {
    softmax_warp<float, 1024>(in, out);
}

__global__ void __launch_bounds__(THREADS) softmax_warp_bf16_1024(const __nv_bfloat16* in, __nv_bfloat16* out) {
    softmax_warp<__nv_bfloat16, 1024>(in, out);
}

__global__ void __launch_bounds__(THREADS) softmax_block_fp32_4096(const float* in, float* out) {
    softmax_block<float, 4096>(in, out);
}

__global__ void __launch_bounds__(THREADS) softmax_block_bf16_4096(const __nv_bfloat16* in, __nv_bfloat16* out) {
    softmax_block<__nv_bfloat16, 4096>(in, out);
}

__global__ void __launch_bounds__(THREADS) softmax_block_fp32_8192(const float* in, float* out) {
    softmax_block<float, 8192>(in, out);
}

}
