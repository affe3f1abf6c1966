// A matrix of 4-byte elements, m x n and row-major, transposed: out[x][y] = in[y][x], in tiles of 32 x 32.
//
// A launch has one CTA of 32 x 8 threads for each tile, along x first; thread (x, y) takes rows y, y + 8, y + 16 and y + 24 of it.
// `none` stores what it has loaded at once: a warp's 32 elements go into 32 rows of `out`. The others go through shared memory, so
// that a warp stores a row of `out`, and differ in where a tile's elements lie there: in rows of 32 (a warp reads a column out of
// one bank), in rows of 33, or in rows of 32 whose elements change places with the row's number.

#include <cstdint>

constexpr int kTile = 32, kHeight = 8, kEach = kTile / kHeight;

struct Naive {
    static constexpr int kPitch = kTile;
    static __device__ __forceinline__ int place(int row, int column) { return row * kPitch + column; }
};

struct Padded {
    static constexpr int kPitch = kTile + 1;
    static __device__ __forceinline__ int place(int row, int column) { return row * kPitch + column; }
};

struct Swizzled {
    static constexpr int kPitch = kTile;
    static __device__ __forceinline__ int place(int row, int column) { return row * kPitch + (column ^ row); }
};

__device__ __forceinline__ bool is_whole(int m, int n) { return (blockIdx.x + 1) * kTile <= n && (blockIdx.y + 1) * kTile <= m; }

template <typename Layout>
__device__ __forceinline__ void transpose(const float *__restrict__ in, float *__restrict__ out, int m, int n) {
    __shared__ float tile[kTile * Layout::kPitch];
    const int x = threadIdx.x, y = threadIdx.y;
    const float *from = in + (blockIdx.y * kTile + y) * static_cast<size_t>(n) + blockIdx.x * kTile + x;
    float *to = out + (blockIdx.x * kTile + y) * static_cast<size_t>(m) + blockIdx.y * kTile + x;
    if (is_whole(m, n)) {
        float held[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) held[i] = from[i * kHeight * static_cast<size_t>(n)];
#pragma unroll
        for (int i = 0; i < kEach; ++i) tile[Layout::place(y + i * kHeight, x)] = held[i];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kEach; ++i) held[i] = tile[Layout::place(x, y + i * kHeight)];
#pragma unroll
        for (int i = 0; i < kEach; ++i) to[i * kHeight * static_cast<size_t>(m)] = held[i];
        return;
    }
#pragma unroll 1
    for (int i = 0; i < kEach; ++i)
        if (blockIdx.y * kTile + y + i * kHeight < m && blockIdx.x * kTile + x < n)
            tile[Layout::place(y + i * kHeight, x)] = from[i * kHeight * static_cast<size_t>(n)];
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < kEach; ++i)
        if (blockIdx.x * kTile + y + i * kHeight < n && blockIdx.y * kTile + x < m)
            to[i * kHeight * static_cast<size_t>(m)] = tile[Layout::place(x, y + i * kHeight)];
}

extern "C" __global__ void __launch_bounds__(256) transpose_naive(const float *in, float *out, int m, int n) {
    transpose<Naive>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(256) transpose_padded(const float *in, float *out, int m, int n) {
    transpose<Padded>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(256) transpose_swizzled(const float *in, float *out, int m, int n) {
    transpose<Swizzled>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(256) transpose_none(const float *__restrict__ in, float *__restrict__ out, int m, int n) {
    const int row = blockIdx.y * kTile + threadIdx.y, column = blockIdx.x * kTile + threadIdx.x;
    const float *from = in + row * static_cast<size_t>(n) + column;
    float *to = out + column * static_cast<size_t>(m) + row;
    if (is_whole(m, n)) {
        float held[kEach];
#pragma unroll
        for (int i = 0; i < kEach; ++i) held[i] = from[i * kHeight * static_cast<size_t>(n)];
#pragma unroll
        for (int i = 0; i < kEach; ++i) to[i * kHeight] = held[i];
        return;
    }
#pragma unroll 1
    for (int i = 0; i < kEach; ++i)
        if (row + i * kHeight < m && column < n) to[i * kHeight] = from[i * kHeight * static_cast<size_t>(n)];
}
