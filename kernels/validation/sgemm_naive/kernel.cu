// D = A B in fp32, a thread an element of D; A (m x k), B (k x n) and D (m x n) are row-major. CTAs of 32 x 32 threads, one a tile
// of 32 x 32, along n first.
//
// `naive`: a warp has 32 rows of a column; it walks k, and loads an element of A and one of B for each, through L1. `coalesced`:
// the same with 32 columns of a row. `tiled`: a CTA brings 32 x 32 of A and of B to shared memory, a load each a thread, and a
// thread walks the 32 k there. m and n are any number, k is a multiple of 32.

constexpr int kTile = 32, kAtOnce = 8;

template <bool kIsDown>
__device__ __forceinline__ void walk(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ d, int m, int n,
                                     int k) {
    const int row = blockIdx.y * kTile + (kIsDown ? threadIdx.x : threadIdx.y);
    const int column = blockIdx.x * kTile + (kIsDown ? threadIdx.y : threadIdx.x);
    if (row >= m || column >= n) return;
    const float *of_a = a + size_t(row) * k, *of_b = b + column;
    float sum = 0.0f;
#pragma unroll 1
    for (int first = 0; first < k; first += kAtOnce) {
        float left[kAtOnce], right[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) left[i] = of_a[i];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) right[i] = of_b[size_t(i) * n];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) sum = fmaf(left[i], right[i], sum);
        of_a += kAtOnce;
        of_b += size_t(kAtOnce) * n;
    }
    d[size_t(row) * n + column] = sum;
}

extern "C" __global__ void __launch_bounds__(1024) naive(const float *a, const float *b, float *d, int m, int n, int k) {
    walk<true>(a, b, d, m, n, k);
}
extern "C" __global__ void __launch_bounds__(1024) coalesced(const float *a, const float *b, float *d, int m, int n, int k) {
    walk<false>(a, b, d, m, n, k);
}

extern "C" __global__ void __launch_bounds__(1024) tiled(const float *a, const float *b, float *d, int m, int n, int k) {
    __shared__ float tile_a[kTile][kTile], tile_b[kTile][kTile];
    const int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * kTile + y, column = blockIdx.x * kTile + x;
    const bool is_row = row < m, is_column = column < n;
    const float *of_a = a + size_t(row) * k + x, *of_b = b + size_t(y) * n + column;
    float sum = 0.0f;
#pragma unroll 1
    for (int first = 0; first < k; first += kTile) {
        const float left = is_row ? *of_a : 0.0f, right = is_column ? *of_b : 0.0f;
        tile_a[y][x] = left;
        tile_b[y][x] = right;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kTile; ++i) sum = fmaf(tile_a[y][i], tile_b[i][x], sum);
        __syncthreads();
        of_a += kTile;
        of_b += size_t(kTile) * n;
    }
    if (is_row && is_column) d[size_t(row) * n + column] = sum;
}
