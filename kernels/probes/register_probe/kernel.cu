// Probe kernels: what `ptxas -v` says that the schedules of a GEMM cost in registers. See README.md.
//
// Every probe computes C[m][n] = sum over k of A[m][k] * B[n][k] on whole tiles (no predicates at the edges):
// real loads, barriers, math and stores, so that ptxas can drop nothing. They are compiled and read, never timed.
// The explicit instantiations at the end of the file are the rows of registers.csv; `probe.py` reads their
// template arguments back from the mangled names, so the order of template parameters is part of the interface.
#include <cstdint>
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>

using bf16 = __nv_bfloat16;

enum Copy { CP_ASYNC = 0, TMA = 1, LDG = 2 };
enum Epilogue { DIRECT = 0, SMEM = 1 };

// ---------------------------------------------------------------------------------------------------------------
// PTX, one instruction a function
// ---------------------------------------------------------------------------------------------------------------

__device__ __forceinline__ uint32_t smem_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ void cp_async_16(uint32_t to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}

__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<uint32_t&>(pair);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || !defined(__CUDA_ARCH__)
#define HAS_SM90A 1
#endif

#ifdef HAS_SM90A
__device__ __forceinline__ void mbarrier_init(uint32_t bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbarrier_expect(uint32_t bar, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(num_bytes) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t bar) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbarrier_wait(uint32_t bar, uint32_t parity) {
    asm volatile("{\n.reg .pred done;\nagain:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t to, const CUtensorMap* map, uint32_t bar, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void tma_store(const CUtensorMap* map, uint32_t from, int x, int y) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ __forceinline__ void tma_store_wait() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void named_barrier_sync(int idx, int num_threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(idx), "r"(num_threads) : "memory");
}
__device__ __forceinline__ void named_barrier_arrive(int idx, int num_threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(idx), "r"(num_threads) : "memory");
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_inc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void setmaxnreg_dec() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
__device__ __forceinline__ void stmatrix_x4(uint32_t to, uint32_t r0, uint32_t r1, uint32_t r2, uint32_t r3) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 ::"r"(to), "r"(r0), "r"(r1), "r"(r2), "r"(r3) : "memory");
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// Keeps the compiler from moving uses of the accumulators over the wgmma that owns them.
template <int COUNT>
__device__ __forceinline__ void fence_registers(float (&d)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// K-major operand, 128-byte swizzle, 8-row groups 1024 bytes apart.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address) {
    return uint64_t((address & 0x3ffff) >> 4) | (uint64_t(1) << 16) | (uint64_t(64) << 32) | (uint64_t(1) << 62);
}

#define SLOTS_32                                                                                                      \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "  \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define SLOTS_64                                                                                                      \
    SLOTS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, " \
             "%52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SLOTS_96                                                                                                      \
    SLOTS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, " \
             "%84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SLOTS_128                                                                                                     \
    SLOTS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, %112, "   \
             "%113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define OUT_8(i)                                                                                                      \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]),       \
        "+f"(d[i + 7])
#define OUT_32(i) OUT_8(i), OUT_8(i + 8), OUT_8(i + 16), OUT_8(i + 24)
#define OUT_64 OUT_32(0), OUT_32(32)
#define OUT_96 OUT_64, OUT_32(64)
#define OUT_128 OUT_96, OUT_32(96)
#define WGMMA(N, SLOTS, A, B, ACCUMULATE, ...)                                                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ACCUMULATE ", 0;\n"                                              \
                 "wgmma.mma_async.sync.aligned.m64n" N "k16.f32.bf16.bf16 {" SLOTS "}, " A ", " B                     \
                 ", p, 1, 1, 0, 0;\n}"                                                                                \
                 : __VA_ARGS__ : "l"(a), "l"(b), "r"(accumulate))

template <int N>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], uint64_t a, uint64_t b, int accumulate) {
    static_assert(N == 64 || N == 128 || N == 192 || N == 256, "wgmma: N of 64, 128, 192 or 256");
    if constexpr (N == 64) WGMMA("64", SLOTS_32, "%32", "%33", "%34", OUT_32(0));
    if constexpr (N == 128) WGMMA("128", SLOTS_64, "%64", "%65", "%66", OUT_64);
    if constexpr (N == 192) WGMMA("192", SLOTS_96, "%96", "%97", "%98", OUT_96);
    if constexpr (N == 256) WGMMA("256", SLOTS_128, "%128", "%129", "%130", OUT_128);
}
#endif  // HAS_SM90A

// ---------------------------------------------------------------------------------------------------------------
// What the tensor core probes share: tiles of K = 32 or 64 bf16, rows swizzled by 64 or 128 bytes; wgmma takes BK = 64
// ---------------------------------------------------------------------------------------------------------------

// What a row's chunks of 16 bytes are XORed with.
template <int K>
__device__ __forceinline__ int swizzle(int row) {
    static_assert(K == 32 || K == 64, "rows of 64 or 128 bytes");
    return K == 64 ? row & 7 : row >> 1 & 3;
}
// The smem offset of a thread's first chunk.
template <int K>
__device__ __forceinline__ uint32_t chunk_offset(int thread) {
    const int row = thread / (K / 8), chunk = thread % (K / 8);
    return row * K * 2 + ((chunk ^ swizzle<K>(row)) << 4);
}

// One thread's share of a [ROWS][K] tile, in chunks of 16 bytes. `from` points at the thread's first chunk.
template <int ROWS, int K, int THREADS>
__device__ __forceinline__ void cp_async_tile(uint32_t to, const bf16* from, int num_k) {
    constexpr int ROWS_AT_ONCE = THREADS / (K / 8);
    static_assert(ROWS % ROWS_AT_ONCE == 0 && ROWS_AT_ONCE % 8 == 0, "the swizzle of a thread must not change");
#pragma unroll
    for (int i = 0; i < ROWS / ROWS_AT_ONCE; ++i) {
        cp_async_16(to + i * ROWS_AT_ONCE * K * 2, from);
        from += ROWS_AT_ONCE * num_k;
    }
}

// ---------------------------------------------------------------------------------------------------------------
// (a) multistage, cp.async, mma.sync: fragments of the next k16 step are loaded while this one is multiplied
// ---------------------------------------------------------------------------------------------------------------

template <int WARP_M, int WARP_N, int K>
struct MmaFragments {
    uint32_t a[WARP_M / 16][4];
    uint32_t b[WARP_N / 16][4];

    __device__ __forceinline__ void load(uint32_t a_row, uint32_t b_row, int a_chunk, int b_chunk, int step) {
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
            ldmatrix_x4(a[i], a_row + i * 16 * K * 2 + ((a_chunk ^ (2 * step)) << 4));
#pragma unroll
        for (int i = 0; i < WARP_N / 16; ++i)
            ldmatrix_x4(b[i], b_row + i * 16 * K * 2 + ((b_chunk ^ (2 * step)) << 4));
    }
};

template <int WARP_M, int WARP_N, int WARPS_M, int WARPS_N, int K, int STAGES, int EPILOGUE, int MIN_CTAS>
__global__ void __launch_bounds__(WARPS_M* WARPS_N * 32, MIN_CTAS)
multistage_mma(const bf16* __restrict__ A, const bf16* __restrict__ B, bf16* __restrict__ C, int num_n, int num_k) {
    constexpr int THREADS = WARPS_M * WARPS_N * 32, BM = WARP_M * WARPS_M, BN = WARP_N * WARPS_N;
    constexpr int STAGE_BYTES = (BM + BN) * K * 2;
    extern __shared__ __align__(1024) uint8_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M * WARP_M, warp_n = warp / WARPS_M * WARP_N;
    const int block_m = blockIdx.y * BM, block_n = blockIdx.x * BN;

    const uint32_t base = smem_address(smem);
    const uint32_t write = base + chunk_offset<K>(threadIdx.x);
    const bf16* a_from = A + size_t(block_m + threadIdx.x / (K / 8)) * num_k + threadIdx.x % (K / 8) * 8;
    const bf16* b_from = B + size_t(block_n + threadIdx.x / (K / 8)) * num_k + threadIdx.x % (K / 8) * 8;
    auto load_stage = [&](int stage) {
        cp_async_tile<BM, K, THREADS>(write + stage * STAGE_BYTES, a_from, num_k);
        cp_async_tile<BN, K, THREADS>(write + stage * STAGE_BYTES + BM * K * 2, b_from, num_k);
        a_from += K;
        b_from += K;
    };

    const int num_tiles = num_k / K;
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < num_tiles) load_stage(s);
        cp_async_commit();
    }

    const uint32_t a_row = base + (warp_m + lane % 16) * K * 2;
    const uint32_t b_row = base + BM * K * 2 + (warp_n + lane % 8 + lane / 16 * 8) * K * 2;
    const int a_chunk = (lane / 16) ^ swizzle<K>(lane), b_chunk = (lane / 8 & 1) ^ swizzle<K>(lane);

    float acc[WARP_M / 16][WARP_N / 8][4] = {};
    MmaFragments<WARP_M, WARP_N, K> fragments[2];
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    fragments[0].load(a_row, b_row, a_chunk, b_chunk, 0);

    int read_stage = 0, write_stage = STAGES - 1;
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile) {
#pragma unroll
        for (int step = 0; step < K / 16; ++step) {
            if (step == K / 16 - 1) {
                cp_async_wait<STAGES - 2>();
                __syncthreads();
                read_stage = read_stage == STAGES - 1 ? 0 : read_stage + 1;
            }
            fragments[(step + 1) % 2].load(a_row + read_stage * STAGE_BYTES, b_row + read_stage * STAGE_BYTES, a_chunk,
                                           b_chunk, (step + 1) % (K / 16));
            if (step == 0) {
                if (tile + STAGES - 1 < num_tiles) load_stage(write_stage);
                cp_async_commit();
                write_stage = write_stage == STAGES - 1 ? 0 : write_stage + 1;
            }
            auto& now = fragments[step % 2];
#pragma unroll
            for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j)
                    mma_m16n8k16(acc[i][j], now.a[i], now.b[j / 2][j % 2 * 2], now.b[j / 2][j % 2 * 2 + 1]);
        }
    }
    cp_async_wait<0>();

    if constexpr (EPILOGUE == DIRECT) {
        bf16* to = C + size_t(block_m + warp_m + lane / 4) * num_n + block_n + warp_n + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j)
                    *reinterpret_cast<uint32_t*>(to + j * 8) = pack(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
                to += size_t(8) * num_n;
            }
    } else {
        constexpr int PITCH = BN + 8;  // 16 bytes more than the tile: rows fall on different banks
        bf16* tile_c = reinterpret_cast<bf16*>(smem);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j)
                    *reinterpret_cast<uint32_t*>(tile_c + (warp_m + i * 16 + half * 8 + lane / 4) * PITCH + warp_n +
                                                 j * 8 + lane % 4 * 2) =
                        pack(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
        __syncthreads();
#pragma unroll 4
        for (int at = threadIdx.x; at < BM * BN / 8; at += THREADS) {
            const int row = at / (BN / 8), column = at % (BN / 8) * 8;
            *reinterpret_cast<uint4*>(C + size_t(block_m + row) * num_n + block_n + column) =
                *reinterpret_cast<const uint4*>(tile_c + row * PITCH + column);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// What the wgmma probes share
// ---------------------------------------------------------------------------------------------------------------

#ifdef HAS_SM90A
constexpr int BK = 64;
constexpr int ROW_BYTES = BK * 2;

// All k16 steps of one stage, for the BLOCKS m64 blocks of this warpgroup.
template <int N, int BLOCKS>
__device__ __forceinline__ void wgmma_stage(float (&acc)[BLOCKS][N / 2], uint32_t a, uint32_t b, int accumulate) {
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < BK / 16; ++step)
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i)
            wgmma<N>(acc[i], wgmma_descriptor(a + i * 64 * ROW_BYTES + step * 32), wgmma_descriptor(b + step * 32),
                     step > 0 ? 1 : accumulate);
    wgmma_commit();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);
}

// The tile of one warpgroup, rows from `row`, columns from `column`.
template <int N, int BLOCKS>
__device__ __forceinline__ void store_direct(const float (&acc)[BLOCKS][N / 2], bf16* C, int num_n, int row,
                                             int column) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    bf16* to = C + size_t(row + thread / 32 * 16 + lane / 4) * num_n + column + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            bf16* at = to + size_t(half * 8) * num_n;
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
                *reinterpret_cast<uint32_t*>(at + j * 8) = pack(acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]);
        }
        to += size_t(64) * num_n;
    }
}

// The same through smem at `buffer` (panels of 64 rows and 64 columns, 128-byte swizzle) and TMA stores.
template <int N, int BLOCKS>
__device__ __forceinline__ void store_tma(const float (&acc)[BLOCKS][N / 2], const CUtensorMap* c_map, uint32_t buffer,
                                          int row, int column, int barrier_idx) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    const uint32_t to = buffer + (thread / 32 * 16 + lane % 16) * ROW_BYTES;
    const int chunk = (lane / 16) ^ (lane & 7);
    if (thread == 0) tma_store_wait();
    named_barrier_sync(barrier_idx, 128);
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int j = 0; j < N / 16; ++j) {
            const float* d = acc[i] + j * 8;
            stmatrix_x4(to + (i * (N / 64) + j / 4) * 64 * ROW_BYTES + ((chunk ^ (j % 4 * 2)) << 4), pack(d[0], d[1]),
                        pack(d[2], d[3]), pack(d[4], d[5]), pack(d[6], d[7]));
        }
    fence_async_proxy();
    named_barrier_sync(barrier_idx, 128);
    if (thread == 0) {
#pragma unroll
        for (int i = 0; i < BLOCKS * (N / 64); ++i)
            tma_store(c_map, buffer + i * 64 * ROW_BYTES, column + i % (N / 64) * 64, row + i / (N / 64) * 64);
        tma_store_commit();
    }
}

// ---------------------------------------------------------------------------------------------------------------
// (b) multistage, cp.async or TMA, wgmma: the same warps load and compute
// ---------------------------------------------------------------------------------------------------------------

template <int COPY, int N, int BLOCKS, int WARPGROUPS, int STAGES, int EPILOGUE, int MIN_CTAS>
__global__ void __launch_bounds__(WARPGROUPS * 128, MIN_CTAS)
multistage_wgmma(const bf16* __restrict__ A, const bf16* __restrict__ B, bf16* __restrict__ C, int num_n, int num_k,
                 const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
                 const __grid_constant__ CUtensorMap c_map) {
    constexpr int THREADS = WARPGROUPS * 128, BM = WARPGROUPS * BLOCKS * 64, BN = N;
    constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t full_bars[STAGES];
    const uint32_t base = smem_address(smem), full = smem_address(full_bars);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int block_m = blockIdx.y * BM, block_n = blockIdx.x * BN;
    const int num_tiles = num_k / BK;

    const uint32_t write = base + chunk_offset<BK>(threadIdx.x);
    const bf16* a_from = A + size_t(block_m + threadIdx.x / 8) * num_k + threadIdx.x % 8 * 8;
    const bf16* b_from = B + size_t(block_n + threadIdx.x / 8) * num_k + threadIdx.x % 8 * 8;
    auto load_stage = [&](int tile, int stage) {
        if constexpr (COPY == CP_ASYNC) {
            cp_async_tile<BM, BK, THREADS>(write + stage * STAGE_BYTES, a_from, num_k);
            cp_async_tile<BN, BK, THREADS>(write + stage * STAGE_BYTES + BM * ROW_BYTES, b_from, num_k);
            a_from += BK;
            b_from += BK;
        } else if (threadIdx.x == 0) {
            mbarrier_expect(full + stage * 8, STAGE_BYTES);
            tma_load(base + stage * STAGE_BYTES, &a_map, full + stage * 8, tile * BK, block_m);
            tma_load(base + stage * STAGE_BYTES + BM * ROW_BYTES, &b_map, full + stage * 8, tile * BK, block_n);
        }
    };

    if constexpr (COPY == TMA) {
        if (threadIdx.x == 0) {
#pragma unroll
            for (int s = 0; s < STAGES; ++s) mbarrier_init(full + s * 8, 1);
            fence_async_proxy();
        }
        __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < STAGES - 1; ++s) {
        if (s < num_tiles) load_stage(s, s);
        if constexpr (COPY == CP_ASYNC) cp_async_commit();
    }

    float acc[BLOCKS][N / 2];
    int read_stage = 0, write_stage = STAGES - 1, parity = 0;
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile) {
        if constexpr (COPY == CP_ASYNC) {
            cp_async_wait<STAGES - 2>();
            fence_async_proxy();
        } else {
            mbarrier_wait(full + read_stage * 8, parity);
        }
        __syncthreads();  // the stage is there for all, and the stage before it is read by none
        const uint32_t stage = base + read_stage * STAGE_BYTES;
        wgmma_stage<N, BLOCKS>(acc, stage + warpgroup * BLOCKS * 64 * ROW_BYTES, stage + BM * ROW_BYTES, tile > 0);
        if (tile + STAGES - 1 < num_tiles) load_stage(tile + STAGES - 1, write_stage);
        if constexpr (COPY == CP_ASYNC) cp_async_commit();
        write_stage = write_stage == STAGES - 1 ? 0 : write_stage + 1;
        if (++read_stage == STAGES) {
            read_stage = 0;
            parity ^= 1;
        }
        wgmma_wait<0>();
    }
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);

    const int row = block_m + warpgroup * BLOCKS * 64;
    if constexpr (EPILOGUE == DIRECT) {
        store_direct<N, BLOCKS>(acc, C, num_n, row, block_n);
    } else {
        __syncthreads();
        store_tma<N, BLOCKS>(acc, &c_map, base + warpgroup * BLOCKS * N * ROW_BYTES, row, block_n, 1 + warpgroup);
        if (threadIdx.x % 128 == 0) tma_store_wait();
    }
}

// ---------------------------------------------------------------------------------------------------------------
// (c), (d) TMA producer and wgmma consumers: cooperative (all consumers on one tile) or ping-pong (a tile each)
// ---------------------------------------------------------------------------------------------------------------

template <int STAGES>
struct Pipeline {
    uint32_t full, empty;  // smem addresses of STAGES mbarriers each
    int stage = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        if (++stage == STAGES) {
            stage = 0;
            parity ^= 1;
        }
    }
    __device__ __forceinline__ void advance(int count) {
        const int to = stage + count;
        parity ^= to / STAGES & 1;
        stage = to % STAGES;
    }
};

template <int BM, int BN, int STAGES>
__device__ __forceinline__ void produce(Pipeline<STAGES>& pipe, uint32_t base, const CUtensorMap* a_map,
                                        const CUtensorMap* b_map, int m, int n, int num_k_tiles) {
    constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
#pragma unroll 1
    for (int k = 0; k < num_k_tiles; ++k, pipe.advance()) {
        mbarrier_wait(pipe.empty + pipe.stage * 8, pipe.parity ^ 1);
        mbarrier_expect(pipe.full + pipe.stage * 8, STAGE_BYTES);
        tma_load(base + pipe.stage * STAGE_BYTES, a_map, pipe.full + pipe.stage * 8, k * BK, m);
        tma_load(base + pipe.stage * STAGE_BYTES + BM * ROW_BYTES, b_map, pipe.full + pipe.stage * 8, k * BK, n);
    }
}

// One wgmma group stays in flight: a stage is given back when the next one has been issued.
template <int N, int BLOCKS, int STAGE_BYTES, int STAGES>
__device__ __forceinline__ void consume(float (&acc)[BLOCKS][N / 2], Pipeline<STAGES>& pipe, uint32_t a, uint32_t b,
                                        int num_k_tiles) {
    int previous = pipe.stage;
#pragma unroll 1
    for (int k = 0; k < num_k_tiles; ++k, pipe.advance()) {
        mbarrier_wait(pipe.full + pipe.stage * 8, pipe.parity);
        wgmma_stage<N, BLOCKS>(acc, a + pipe.stage * STAGE_BYTES, b + pipe.stage * STAGE_BYTES, k > 0);
        wgmma_wait<1>();
        if (k > 0 && threadIdx.x % 128 == 0) mbarrier_arrive(pipe.empty + previous * 8);
        previous = pipe.stage;
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);
    if (threadIdx.x % 128 == 0) mbarrier_arrive(pipe.empty + previous * 8);
}

// With setmaxnreg the producer is a whole warpgroup, without it one warp.
template <int CONSUMERS, bool HAS_SETMAXNREG>
constexpr int specialized_threads = CONSUMERS * 128 + (HAS_SETMAXNREG ? 128 : 32);

template <int N, int BLOCKS, int CONSUMERS, int STAGES, bool IS_PERSISTENT, bool HAS_SETMAXNREG, int EPILOGUE,
          int MIN_CTAS>
__global__ void __launch_bounds__((specialized_threads<CONSUMERS, HAS_SETMAXNREG>), MIN_CTAS)
specialized_wgmma(bf16* __restrict__ C, int num_m, int num_n, int num_k, const __grid_constant__ CUtensorMap a_map,
                  const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map) {
    constexpr int BM = CONSUMERS * BLOCKS * 64, BN = N, STAGE_BYTES = (BM + BN) * ROW_BYTES;
    constexpr int CONSUMER_REGISTERS = CONSUMERS == 1 ? 256 - 24 : CONSUMERS == 2 ? 240 : 160;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t bars[2 * STAGES];
    const uint32_t base = smem_address(smem);
    Pipeline<STAGES> pipe{smem_address(bars), smem_address(bars + STAGES)};
    if (threadIdx.x == 0) {
#pragma unroll
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(pipe.full + s * 8, 1);
            mbarrier_init(pipe.empty + s * 8, CONSUMERS);
        }
        fence_async_proxy();
    }
    __syncthreads();

    const int num_k_tiles = num_k / BK, columns = num_n / BN;
    const int last = IS_PERSISTENT ? columns * (num_m / BM) : blockIdx.x + 1;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == CONSUMERS) {
        if constexpr (HAS_SETMAXNREG) setmaxnreg_dec<24>();
        if (threadIdx.x == CONSUMERS * 128)
            for (int tile = blockIdx.x; tile < last; tile += gridDim.x)
                produce<BM, BN, STAGES>(pipe, base, &a_map, &b_map, tile / columns * BM, tile % columns * BN,
                                        num_k_tiles);
    } else {
        if constexpr (HAS_SETMAXNREG) setmaxnreg_inc<CONSUMER_REGISTERS>();
        float acc[BLOCKS][N / 2];
        for (int tile = blockIdx.x; tile < last; tile += gridDim.x) {
            consume<N, BLOCKS, STAGE_BYTES>(acc, pipe, base + warpgroup * BLOCKS * 64 * ROW_BYTES,
                                            base + BM * ROW_BYTES, num_k_tiles);
            const int row = tile / columns * BM + warpgroup * BLOCKS * 64, column = tile % columns * BN;
            if constexpr (EPILOGUE == DIRECT)
                store_direct<N, BLOCKS>(acc, C, num_n, row, column);
            else
                store_tma<N, BLOCKS>(acc, &c_map, base + STAGES * STAGE_BYTES + warpgroup * BLOCKS * N * ROW_BYTES, row,
                                     column, 1 + warpgroup);
        }
        if constexpr (EPILOGUE == SMEM)
            if (threadIdx.x % 128 == 0) tma_store_wait();
    }
}

template <int N, int BLOCKS, int STAGES, bool HAS_SETMAXNREG, int EPILOGUE, int MIN_CTAS>
__global__ void __launch_bounds__((specialized_threads<2, HAS_SETMAXNREG>), MIN_CTAS)
pingpong_wgmma(bf16* __restrict__ C, int num_m, int num_n, int num_k, const __grid_constant__ CUtensorMap a_map,
               const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map) {
    constexpr int BM = BLOCKS * 64, BN = N, STAGE_BYTES = (BM + BN) * ROW_BYTES;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t bars[2 * STAGES];
    const uint32_t base = smem_address(smem);
    Pipeline<STAGES> pipe{smem_address(bars), smem_address(bars + STAGES)};
    if (threadIdx.x == 0) {
#pragma unroll
        for (int s = 0; s < STAGES; ++s) {
            mbarrier_init(pipe.full + s * 8, 1);
            mbarrier_init(pipe.empty + s * 8, 1);
        }
        fence_async_proxy();
    }
    __syncthreads();

    const int num_k_tiles = num_k / BK, columns = num_n / BN, last = columns * (num_m / BM);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (warpgroup == 2) {
        if constexpr (HAS_SETMAXNREG) setmaxnreg_dec<24>();
        if (threadIdx.x == 256)
            for (int tile = blockIdx.x; tile < last; tile += gridDim.x)
                produce<BM, BN, STAGES>(pipe, base, &a_map, &b_map, tile / columns * BM, tile % columns * BN,
                                        num_k_tiles);
    } else {
        if constexpr (HAS_SETMAXNREG) setmaxnreg_inc<240>();
        // Named barriers 1, 2: the main loop of warpgroup 0, 1; 3, 4: its epilogue; 5, 6: its smem buffer.
        if (warpgroup == 1) {
            named_barrier_arrive(1, 256);
            named_barrier_arrive(3, 256);
            pipe.advance(num_k_tiles);
        }
        float acc[BLOCKS][N / 2];
        for (int tile = blockIdx.x + warpgroup * gridDim.x; tile < last; tile += 2 * gridDim.x) {
            named_barrier_sync(1 + warpgroup, 256);
            consume<N, BLOCKS, STAGE_BYTES>(acc, pipe, base, base + BM * ROW_BYTES, num_k_tiles);
            named_barrier_arrive(2 - warpgroup, 256);
            pipe.advance(num_k_tiles);
            const int row = tile / columns * BM, column = tile % columns * BN;
            named_barrier_sync(3 + warpgroup, 256);
            if constexpr (EPILOGUE == DIRECT)
                store_direct<N, BLOCKS>(acc, C, num_n, row, column);
            else
                store_tma<N, BLOCKS>(acc, &c_map, base + STAGES * STAGE_BYTES + warpgroup * BLOCKS * N * ROW_BYTES, row,
                                     column, 5 + warpgroup);
            named_barrier_arrive(4 - warpgroup, 256);
        }
        if constexpr (EPILOGUE == SMEM)
            if (threadIdx.x % 128 == 0) tma_store_wait();
    }
}
#endif  // HAS_SM90A

// ---------------------------------------------------------------------------------------------------------------
// (e) fp32 FFMA: thread tiles of 4-wide pieces, two smem stages, fragments double buffered in registers
// ---------------------------------------------------------------------------------------------------------------

// 256 threads as 16 x 16. CP_ASYNC: A is [k][m]. LDG: A is [m][k], staged in registers and transposed on its way to
// smem. B is [k][n] in both.
template <int COPY, int TM, int TN, int K, int MIN_CTAS>
__global__ void __launch_bounds__(256, MIN_CTAS)
multistage_ffma(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int num_m, int num_n,
                int num_k) {
    constexpr int BM = 16 * TM, BN = 16 * TN, PAD = COPY == LDG ? 4 : 0;
    constexpr int A_LOADS = BM * K / 1024, B_LOADS = BN * K / 1024;
    static_assert(A_LOADS > 0 && B_LOADS > 0, "every thread loads at least one float4 of A and of B");
    __shared__ __align__(16) float a_tile[2][K][BM + PAD], b_tile[2][K][BN];
    const int thread = threadIdx.x, row = thread / 16, column = thread % 16;
    const int block_m = blockIdx.y * BM, block_n = blockIdx.x * BN;

    float4 a_staged[COPY == LDG ? A_LOADS : 1], b_staged[COPY == LDG ? B_LOADS : 1];
    auto load = [&](int k, int stage) {
#pragma unroll
        for (int i = 0; i < A_LOADS; ++i) {
            const int at = thread + i * 256;
            if constexpr (COPY == LDG)
                a_staged[i] = *reinterpret_cast<const float4*>(A + size_t(block_m + at / (K / 4)) * num_k + k +
                                                               at % (K / 4) * 4);
            else
                cp_async_16(smem_address(&a_tile[stage][at / (BM / 4)][at % (BM / 4) * 4]),
                            A + size_t(k + at / (BM / 4)) * num_m + block_m + at % (BM / 4) * 4);
        }
#pragma unroll
        for (int i = 0; i < B_LOADS; ++i) {
            const int at = thread + i * 256;
            const float* from = B + size_t(k + at / (BN / 4)) * num_n + block_n + at % (BN / 4) * 4;
            if constexpr (COPY == LDG)
                b_staged[i] = *reinterpret_cast<const float4*>(from);
            else
                cp_async_16(smem_address(&b_tile[stage][at / (BN / 4)][at % (BN / 4) * 4]), from);
        }
        if constexpr (COPY == CP_ASYNC) cp_async_commit();
    };
    auto land = [&](int stage) {
        if constexpr (COPY == LDG) {
#pragma unroll
            for (int i = 0; i < A_LOADS; ++i) {
                const int at = thread + i * 256, m = at / (K / 4), k = at % (K / 4) * 4;
                a_tile[stage][k][m] = a_staged[i].x;
                a_tile[stage][k + 1][m] = a_staged[i].y;
                a_tile[stage][k + 2][m] = a_staged[i].z;
                a_tile[stage][k + 3][m] = a_staged[i].w;
            }
#pragma unroll
            for (int i = 0; i < B_LOADS; ++i) {
                const int at = thread + i * 256;
                *reinterpret_cast<float4*>(&b_tile[stage][at / (BN / 4)][at % (BN / 4) * 4]) = b_staged[i];
            }
        } else {
            cp_async_wait<0>();
        }
        __syncthreads();
    };

    float a[2][TM], b[2][TN], acc[TM][TN] = {};
    auto load_fragments = [&](int buffer, int stage, int k) {
#pragma unroll
        for (int i = 0; i < TM; i += 4)
            *reinterpret_cast<float4*>(&a[buffer][i]) =
                *reinterpret_cast<const float4*>(&a_tile[stage][k][i * 16 + row * 4]);
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4*>(&b[buffer][j]) =
                *reinterpret_cast<const float4*>(&b_tile[stage][k][j * 16 + column * 4]);
    };

    load(0, 0);
    land(0);
    load_fragments(0, 0, 0);
    int stage = 0;
#pragma unroll 1
    for (int k = 0; k < num_k; k += K) {
        const bool has_next = k + K < num_k;
        if (has_next) load(k + K, stage ^ 1);
#pragma unroll
        for (int step = 0; step < K; ++step) {
            if (step == K - 1 && has_next) {
                stage ^= 1;
                land(stage);
            }
            if (step < K - 1 || has_next) load_fragments((step + 1) % 2, stage, (step + 1) % K);
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(a[step % 2][i], b[step % 2][j], acc[i][j]);
        }
    }

#pragma unroll
    for (int i = 0; i < TM; ++i) {
        float* to = C + size_t(block_m + i / 4 * 64 + row * 4 + i % 4) * num_n + block_n + column * 4;
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4*>(to + j * 16) =
                make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The probes
// ---------------------------------------------------------------------------------------------------------------

#define MAP const __grid_constant__ CUtensorMap
#define MMA(...) template __global__ void multistage_mma<__VA_ARGS__>(const bf16*, const bf16*, bf16*, int, int);
#define MULTISTAGE_WGMMA(...)                                                                                         \
    template __global__ void multistage_wgmma<__VA_ARGS__>(const bf16*, const bf16*, bf16*, int, int, MAP, MAP, MAP);
#define SPECIALIZED(...) template __global__ void specialized_wgmma<__VA_ARGS__>(bf16*, int, int, int, MAP, MAP, MAP);
#define PINGPONG(...) template __global__ void pingpong_wgmma<__VA_ARGS__>(bf16*, int, int, int, MAP, MAP, MAP);
#define FFMA(...)                                                                                                     \
    template __global__ void multistage_ffma<__VA_ARGS__>(const float*, const float*, float*, int, int, int);

#ifndef REFUSED
// warp m, warp n, warps along m, along n, k, stages, epilogue, CTAs an SM
MMA(16, 32, 2, 2, 64, 3, DIRECT, 1)
MMA(16, 64, 4, 1, 64, 3, DIRECT, 1)
MMA(32, 32, 2, 2, 64, 3, DIRECT, 1)
MMA(32, 64, 4, 1, 64, 3, DIRECT, 1)
MMA(32, 64, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 32, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 32, 2, 4, 64, 3, DIRECT, 1)
MMA(32, 128, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 64, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 64, 2, 2, 64, 4, DIRECT, 1)
MMA(64, 64, 2, 4, 64, 3, DIRECT, 1)
MMA(64, 64, 2, 2, 64, 3, DIRECT, 2)
MMA(48, 96, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 80, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 96, 2, 2, 64, 3, DIRECT, 1)
MMA(64, 128, 2, 2, 64, 3, DIRECT, 1)
MMA(32, 32, 2, 2, 32, 4, DIRECT, 1)
MMA(32, 64, 2, 2, 32, 4, DIRECT, 1)
MMA(64, 32, 2, 4, 32, 4, DIRECT, 1)
MMA(32, 128, 2, 2, 32, 4, DIRECT, 1)
MMA(64, 64, 2, 2, 32, 4, DIRECT, 1)
MMA(48, 96, 2, 2, 32, 4, DIRECT, 1)
MMA(64, 80, 2, 2, 32, 4, DIRECT, 1)
MMA(64, 96, 2, 2, 32, 4, DIRECT, 1)
MMA(64, 128, 2, 2, 32, 4, DIRECT, 1)
MMA(32, 64, 2, 2, 64, 3, SMEM, 1)
MMA(64, 32, 2, 4, 64, 3, SMEM, 1)
MMA(64, 64, 2, 2, 64, 3, SMEM, 1)

#ifdef HAS_SM90A
// copy, n, m64 blocks a warpgroup, warpgroups, stages, epilogue, CTAs an SM
MULTISTAGE_WGMMA(CP_ASYNC, 64, 1, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 64, 1, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 64, 2, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 64, 2, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 128, 1, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 128, 1, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 128, 2, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 128, 2, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 256, 1, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 256, 1, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 192, 2, 1, 3, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 256, 2, 1, 3, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 256, 2, 2, 3, DIRECT, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 128, 1, 2, 4, DIRECT, 2)
MULTISTAGE_WGMMA(CP_ASYNC, 192, 1, 2, 4, DIRECT, 2)
MULTISTAGE_WGMMA(CP_ASYNC, 128, 1, 2, 4, SMEM, 1)
MULTISTAGE_WGMMA(CP_ASYNC, 256, 1, 2, 4, SMEM, 1)
MULTISTAGE_WGMMA(TMA, 64, 1, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 64, 2, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 128, 1, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 128, 1, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 128, 2, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 192, 1, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 256, 1, 1, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 256, 1, 2, 4, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 192, 2, 2, 3, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 256, 2, 2, 3, DIRECT, 1)
MULTISTAGE_WGMMA(TMA, 128, 1, 2, 4, DIRECT, 2)
MULTISTAGE_WGMMA(TMA, 128, 2, 2, 4, DIRECT, 2)
MULTISTAGE_WGMMA(TMA, 192, 1, 2, 4, DIRECT, 2)
MULTISTAGE_WGMMA(TMA, 128, 1, 2, 4, SMEM, 1)
MULTISTAGE_WGMMA(TMA, 256, 1, 2, 4, SMEM, 1)

// n, m64 blocks a consumer, consumers, stages, persistent, setmaxnreg, epilogue, CTAs an SM
SPECIALIZED(64, 1, 1, 4, false, false, DIRECT, 1)
SPECIALIZED(64, 1, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(64, 2, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(128, 1, 1, 4, false, false, DIRECT, 1)
SPECIALIZED(128, 1, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(128, 2, 1, 4, false, false, DIRECT, 1)
SPECIALIZED(128, 2, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(192, 1, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(256, 1, 1, 4, false, false, DIRECT, 1)
SPECIALIZED(256, 1, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(192, 2, 1, 4, false, false, DIRECT, 1)
SPECIALIZED(192, 2, 2, 4, false, false, DIRECT, 1)
SPECIALIZED(256, 2, 1, 3, false, false, DIRECT, 1)
SPECIALIZED(256, 2, 2, 3, false, false, DIRECT, 1)
SPECIALIZED(64, 1, 2, 4, true, false, DIRECT, 1)
SPECIALIZED(128, 1, 2, 4, true, false, DIRECT, 1)
SPECIALIZED(128, 2, 2, 4, true, false, DIRECT, 1)
SPECIALIZED(192, 1, 2, 4, true, false, DIRECT, 1)
SPECIALIZED(256, 1, 2, 4, true, false, DIRECT, 1)
SPECIALIZED(192, 2, 2, 4, true, false, DIRECT, 1)
SPECIALIZED(128, 1, 2, 4, true, false, SMEM, 1)
SPECIALIZED(256, 1, 2, 4, true, false, SMEM, 1)
SPECIALIZED(128, 2, 2, 4, true, false, SMEM, 1)
SPECIALIZED(128, 1, 2, 4, false, false, DIRECT, 2)
SPECIALIZED(128, 2, 1, 4, false, false, DIRECT, 2)
SPECIALIZED(192, 2, 1, 3, false, false, DIRECT, 2)
SPECIALIZED(128, 2, 2, 3, false, false, DIRECT, 2)
SPECIALIZED(64, 1, 2, 4, true, true, DIRECT, 1)
SPECIALIZED(64, 1, 1, 4, true, true, DIRECT, 1)
SPECIALIZED(128, 1, 1, 4, true, true, DIRECT, 1)
SPECIALIZED(128, 1, 1, 4, true, true, DIRECT, 2)
SPECIALIZED(128, 1, 2, 4, true, true, DIRECT, 1)
SPECIALIZED(192, 1, 2, 4, true, true, DIRECT, 1)
SPECIALIZED(256, 1, 2, 4, true, true, DIRECT, 1)
SPECIALIZED(128, 2, 2, 4, true, true, DIRECT, 1)
SPECIALIZED(192, 2, 2, 4, true, true, DIRECT, 1)
SPECIALIZED(256, 2, 2, 3, true, true, DIRECT, 1)
SPECIALIZED(128, 1, 3, 4, true, true, DIRECT, 1)
SPECIALIZED(128, 2, 3, 3, true, true, DIRECT, 1)
SPECIALIZED(192, 1, 3, 4, true, true, DIRECT, 1)
SPECIALIZED(256, 1, 2, 4, false, true, DIRECT, 1)
SPECIALIZED(128, 2, 2, 4, true, true, SMEM, 1)
SPECIALIZED(256, 1, 2, 4, true, true, SMEM, 1)

// n, m64 blocks a consumer, stages, setmaxnreg, epilogue, CTAs an SM
PINGPONG(64, 1, 4, false, DIRECT, 1)
PINGPONG(64, 2, 4, false, DIRECT, 1)
PINGPONG(128, 1, 4, false, DIRECT, 1)
PINGPONG(192, 1, 4, false, DIRECT, 1)
PINGPONG(256, 1, 4, false, DIRECT, 1)
PINGPONG(128, 2, 4, false, DIRECT, 1)
PINGPONG(192, 2, 4, false, DIRECT, 1)
PINGPONG(128, 1, 4, false, SMEM, 1)
PINGPONG(256, 1, 4, false, SMEM, 1)
PINGPONG(64, 1, 4, true, DIRECT, 1)
PINGPONG(128, 1, 4, true, DIRECT, 1)
PINGPONG(256, 1, 4, true, DIRECT, 1)
PINGPONG(128, 2, 4, true, DIRECT, 1)
PINGPONG(192, 2, 4, true, DIRECT, 1)
PINGPONG(128, 1, 4, true, SMEM, 1)
PINGPONG(256, 1, 4, true, SMEM, 1)
#endif  // HAS_SM90A

// copy, thread m, thread n, k, CTAs an SM
FFMA(CP_ASYNC, 4, 4, 16, 1)
FFMA(CP_ASYNC, 8, 4, 16, 1)
FFMA(CP_ASYNC, 8, 8, 8, 1)
FFMA(CP_ASYNC, 8, 8, 16, 1)
FFMA(CP_ASYNC, 16, 8, 8, 1)
FFMA(CP_ASYNC, 8, 8, 8, 2)
FFMA(LDG, 4, 4, 16, 1)
FFMA(LDG, 8, 4, 16, 1)
FFMA(LDG, 8, 8, 8, 1)
FFMA(LDG, 8, 8, 16, 1)
FFMA(LDG, 16, 8, 8, 1)
FFMA(LDG, 8, 8, 8, 2)

#elif defined(HAS_SM90A)
// What ptxas refuses (C7602), one a build: -DREFUSED=1 and so on; arguments as above.
#if REFUSED == 1
MULTISTAGE_WGMMA(TMA, 128, 1, 2, 4, DIRECT, 3)
#elif REFUSED == 2
MULTISTAGE_WGMMA(TMA, 256, 1, 2, 4, DIRECT, 2)
#elif REFUSED == 3
SPECIALIZED(256, 1, 3, 3, true, true, DIRECT, 1)
#endif
#endif  // REFUSED
