// A matrix of 2-byte elements, m x n and row-major, copied tile by tile through shared memory: global memory to shared memory to
// global memory, in the ways that a GEMM's operands take.
//
// A launch has one CTA for each tile of 128 x 64, along n first, or along m (`_along_m`); a row of a tile has 128 bytes. CTAs have 256
// threads, or as many as a name says. In `scalar` and `vectorized` a thread loads eight (four) accesses, stores them to shared memory, and so on until the tile is there; after a barrier it loads
// each back and stores it to `out`. `cp_async` copies past the registers. `tma` is one thread: a load by a tensor map, a wait, a
// store by another one. Tiles that hang over the matrix's edges take their accesses one by one. n is a multiple of 8.

#include <cstdint>

constexpr int kRows = 128, kColumns = 64, kTileBytes = kRows * kColumns * 2;

// Where byte `offset` of the tile lies: as it is, or with the 16-byte chunks of a row in an order of the row's (128B).
template <bool kIsSwizzled>
__device__ __forceinline__ uint32_t place(uint32_t offset) {
    return kIsSwizzled ? offset ^ ((offset >> 3) & 0x70) : offset;
}

// What a thread has of a tile, in accesses of V: access i lies kDown rows below access i - 1.
template <typename V, int kThreads, bool kIsAlongM>
struct Share {
    static constexpr int kInRow = kColumns * 2 / sizeof(V), kEach = kRows * kInRow / kThreads, kDown = kThreads / kInRow;
    int first_row;
    size_t pitch, at;  // in V: of the matrix's rows, and where the first access is
    bool is_whole, is_column;

    __device__ __forceinline__ Share(int m, int n) {
        const int across = kIsAlongM ? blockIdx.y : blockIdx.x, down = kIsAlongM ? blockIdx.x : blockIdx.y;
        const int column = across * kInRow + threadIdx.x % kInRow;
        first_row = down * kRows + threadIdx.x / kInRow;
        pitch = n / (sizeof(V) / 2);
        at = first_row * pitch + column;
        is_whole = (across + 1) * kColumns <= n && (down + 1) * kRows <= m;
        is_column = column < pitch;
    }
    __device__ __forceinline__ bool has(int i, int m) const { return is_column && first_row + i * kDown < m; }
};

template <typename V, int kThreads, bool kIsSwizzled>
__device__ __forceinline__ V *spot(unsigned char *tile, int i) {
    return reinterpret_cast<V *>(tile + place<kIsSwizzled>((threadIdx.x + i * kThreads) * sizeof(V)));
}

template <typename V, int kAtOnce, int kThreads, bool kIsAlongM, bool kIsSwizzled>
__device__ __forceinline__ void store_tile(unsigned char *tile, const Share<V, kThreads, kIsAlongM> &mine, V *__restrict__ out, int m) {
    if (mine.is_whole) {
#pragma unroll 1
        for (int first = 0; first < mine.kEach; first += kAtOnce) {
            V held[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) held[i] = *spot<V, kThreads, kIsSwizzled>(tile, first + i);
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) out[mine.at + (first + i) * mine.kDown * mine.pitch] = held[i];
        }
        return;
    }
#pragma unroll 1
    for (int i = 0; i < mine.kEach; ++i)
        if (mine.has(i, m)) out[mine.at + i * mine.kDown * mine.pitch] = *spot<V, kThreads, kIsSwizzled>(tile, i);
}

template <typename V, int kAtOnce, bool kIsSwizzled = false, int kThreads = 256, bool kIsAlongM = false>
__device__ __forceinline__ void through_registers(const V *__restrict__ in, V *__restrict__ out, int m, int n) {
    __shared__ __align__(1024) unsigned char tile[kTileBytes];
    const Share<V, kThreads, kIsAlongM> mine(m, n);
    if (mine.is_whole) {
#pragma unroll 1
        for (int first = 0; first < mine.kEach; first += kAtOnce) {
            V held[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) held[i] = in[mine.at + (first + i) * mine.kDown * mine.pitch];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) *spot<V, kThreads, kIsSwizzled>(tile, first + i) = held[i];
        }
    } else {
#pragma unroll 1
        for (int i = 0; i < mine.kEach; ++i)
            if (mine.has(i, m)) *spot<V, kThreads, kIsSwizzled>(tile, i) = in[mine.at + i * mine.kDown * mine.pitch];
    }
    __syncthreads();
    store_tile<V, kAtOnce, kThreads, kIsAlongM, kIsSwizzled>(tile, mine, out, m);
}

extern "C" __global__ void __launch_bounds__(256) scalar_none(const uint16_t *in, uint16_t *out, int m, int n) {
    through_registers<uint16_t, 8, false>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(256) vectorized_none(const uint4 *in, uint4 *out, int m, int n) {
    through_registers<uint4, 4, false>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(256) vectorized_128B(const uint4 *in, uint4 *out, int m, int n) {
    through_registers<uint4, 4, true>(in, out, m, n);
}

__device__ __forceinline__ void fetch(void *to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))), "l"(from)
                 : "memory");
}

template <bool kIsSwizzled = false, int kThreads = 256, bool kIsAlongM = false>
__device__ __forceinline__ void by_cp_async(const uint4 *__restrict__ in, uint4 *__restrict__ out, int m, int n) {
    __shared__ __align__(1024) unsigned char tile[kTileBytes];
    const Share<uint4, kThreads, kIsAlongM> mine(m, n);
    if (mine.is_whole) {
#pragma unroll
        for (int i = 0; i < mine.kEach; ++i) fetch(spot<uint4, kThreads, kIsSwizzled>(tile, i), in + mine.at + i * mine.kDown * mine.pitch);
    } else {
#pragma unroll 1
        for (int i = 0; i < mine.kEach; ++i)
            if (mine.has(i, m)) fetch(spot<uint4, kThreads, kIsSwizzled>(tile, i), in + mine.at + i * mine.kDown * mine.pitch);
    }
    asm volatile("cp.async.commit_group;\n cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    store_tile<uint4, 4, kThreads, kIsAlongM, kIsSwizzled>(tile, mine, out, m);
}

extern "C" __global__ void __launch_bounds__(256) cp_async_none(const uint4 *in, uint4 *out, int m, int n) {
    by_cp_async<false>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(256) cp_async_128B(const uint4 *in, uint4 *out, int m, int n) {
    by_cp_async<true>(in, out, m, n);
}

#define COPIES(SUFFIX, THREADS, ALONG_M)                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS) vectorized_none##SUFFIX(const uint4 *in, uint4 *out, int m, int n) { \
        through_registers<uint4, 4, false, THREADS, ALONG_M>(in, out, m, n);                                                  \
    }                                                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS) cp_async_none##SUFFIX(const uint4 *in, uint4 *out, int m, int n) {   \
        by_cp_async<false, THREADS, ALONG_M>(in, out, m, n);                                                                  \
    }
COPIES(_32, 32, false)
COPIES(_32_along_m, 32, true)
COPIES(_along_m, 256, true)

extern "C" __global__ void __launch_bounds__(64) scalar_none_64(const uint16_t *in, uint16_t *out, int m, int n) {
    through_registers<uint16_t, 8, false, 64>(in, out, m, n);
}

extern "C" __global__ void __launch_bounds__(64) scalar_none_64_along_m(const uint16_t *in, uint16_t *out, int m, int n) {
    through_registers<uint16_t, 8, false, 64, true>(in, out, m, n);
}

#if __CUDA_ARCH__ >= 900

// Both maps have boxes of a tile, and the same swizzle; beyond the edges one reads zeros, and the other stores nothing.
extern "C" __global__ void __launch_bounds__(32) tma(const void *in_map, const void *out_map) {
    __shared__ __align__(1024) unsigned char tile[kTileBytes];
    __shared__ __align__(8) uint64_t full;
    if (threadIdx.x) return;
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(tile));
    const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&full));
    const int column = blockIdx.x * kColumns, row = blockIdx.y * kRows;
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n fence.mbarrier_init.release.cluster;" ::"r"(barrier) : "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kTileBytes) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
        "l"(in_map), "r"(column), "r"(row), "r"(barrier)
        : "memory");
    uint32_t is_done = 0;
    while (!is_done)
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
            : "=r"(is_done)
            : "r"(barrier)
            : "memory");
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(out_map), "r"(column),
                 "r"(row), "r"(to)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group.read 0;" ::: "memory");
}

#endif
