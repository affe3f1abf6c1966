// GEMM kernels as libraries write them: bounds, rasterization with divisions, rings of mbarriers, three epilogues.
// They are compiled and read (probe.py), and never launched. Instructions and loops of math are those of register_probe.
#include <type_traits>

#define REFUSED 99
#include "../register_probe/kernel.cu"

enum Path { REGISTERS_OUT = 0, SMEM_OUT = 1, TMA_OUT = 2 };

struct Shape {
    int m, n, k;
    int num_m, num_n;  // tiles
    int group;         // rows of tiles of a band
};

// CTA rasterization in bands of `group` rows of tiles, batch by batch.
struct Place {
    int m, n, batch;
};
__device__ __forceinline__ Place place_of(const Shape& s, int tile) {
    const int per_batch = s.num_m * s.num_n, batch = tile / per_batch;
    tile -= batch * per_batch;
    const int band = s.group * s.num_n, first = tile / band * s.group, inside = tile % band;
    const int rows = min(s.num_m - first, s.group);
    return {first + inside % rows, inside / rows, batch};
}

__device__ __forceinline__ void tma_load_3d(uint32_t to, const CUtensorMap* map, uint32_t bar, int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
                 ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "r"(z) : "memory");
}
__device__ __forceinline__ void tma_prefetch(const CUtensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
__device__ __forceinline__ void cp_async_guarded(uint32_t to, const void* from, bool is_inside) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_inside ? 16 : 0) : "memory");
}
__device__ __forceinline__ void cp_async_word(uint32_t to, const void* from, bool is_inside) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(is_inside ? 4 : 0) : "memory");
}

// ---------------------------------------------------------------------------------------------------------------
// wgmma: what its kernels share
// ---------------------------------------------------------------------------------------------------------------
#ifdef HAS_SM90A
template <int N, int BLOCKS>
__device__ __forceinline__ void store_guarded(const float (&acc)[BLOCKS][N / 2], bf16* C, const Shape& s, int row, int column) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    row += thread / 32 * 16 + lane / 4;
    column += lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = row + i * 64 + half * 8;
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
                if (at < s.m && column + j * 8 < s.n)
                    *reinterpret_cast<uint32_t*>(C + size_t(at) * s.n + column + j * 8) =
                        pack(acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]);
        }
}

// Through smem at `buffer` (panels of 64 rows and 64 columns, 128-byte swizzle), then 16 bytes of a row a thread.
template <int N, int BLOCKS>
__device__ __forceinline__ void store_rows(const float (&acc)[BLOCKS][N / 2], bf16* C, const Shape& s, uint8_t* buffer,
                                           int row, int column, int barrier_idx) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    const uint32_t to = smem_address(buffer) + (thread / 32 * 16 + lane % 16) * ROW_BYTES;
    const int chunk = (lane / 16) ^ (lane & 7);
    named_barrier_sync(barrier_idx, 128);
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int j = 0; j < N / 16; ++j) {
            const float* d = acc[i] + j * 8;
            stmatrix_x4(to + (i * (N / 64) + j / 4) * 64 * ROW_BYTES + ((chunk ^ (j % 4 * 2)) << 4), pack(d[0], d[1]),
                        pack(d[2], d[3]), pack(d[4], d[5]), pack(d[6], d[7]));
        }
    named_barrier_sync(barrier_idx, 128);
#pragma unroll
    for (int i = 0; i < BLOCKS * N / 16; ++i) {
        const int at = thread + i * 128, panel = at / 512, line = at % 512 / 8, part = at % 8;
        const int m = row + panel / (N / 64) * 64 + line, n = column + panel % (N / 64) * 64 + part * 8;
        if (m < s.m && n < s.n)
            *reinterpret_cast<uint4*>(C + size_t(m) * s.n + n) = *reinterpret_cast<const uint4*>(
                buffer + panel * 64 * ROW_BYTES + line * ROW_BYTES + ((part ^ (line & 7)) << 4));
    }
}

template <int EPILOGUE, int N, int BLOCKS>
__device__ __forceinline__ void store_tile(const float (&acc)[BLOCKS][N / 2], bf16* C, const Shape& s,
                                           const CUtensorMap* c_map, uint8_t* buffer, int row, int column, int barrier_idx) {
    if constexpr (EPILOGUE == REGISTERS_OUT)
        store_guarded<N, BLOCKS>(acc, C, s, row, column);
    else if constexpr (EPILOGUE == SMEM_OUT)
        store_rows<N, BLOCKS>(acc, C, s, buffer, row, column, barrier_idx);
    else
        store_tma<N, BLOCKS>(acc, c_map, smem_address(buffer), row, column, barrier_idx);
}

template <int BM, int BN, int STAGES>
__device__ __forceinline__ void produce_tile(Pipeline<STAGES>& pipe, uint32_t base, const CUtensorMap* a_map,
                                             const CUtensorMap* b_map, int m, int n, int batch, int num_steps) {
    constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
#pragma unroll 1
    for (int k = 0; k < num_steps; ++k, pipe.advance()) {
        mbarrier_wait(pipe.empty + pipe.stage * 8, pipe.parity ^ 1);
        mbarrier_expect(pipe.full + pipe.stage * 8, STAGE_BYTES);
        tma_load_3d(base + pipe.stage * STAGE_BYTES, a_map, pipe.full + pipe.stage * 8, k * BK, m, batch);
        tma_load_3d(base + pipe.stage * STAGE_BYTES + BM * ROW_BYTES, b_map, pipe.full + pipe.stage * 8, k * BK, n, batch);
    }
}

// A producer warp or warpgroup, and consumers that share a tile, or take turns at tiles (PINGPONG, mbarriers of order).
template <int N, int BLOCKS, int CONSUMERS, int STAGES, bool PERSISTENT, bool HAS_SETMAXNREG, bool PINGPONG, int EPILOGUE>
__global__ void __launch_bounds__((specialized_threads<CONSUMERS, true>), 1)
specialized(bf16* __restrict__ C, const Shape s, int num_tiles, const __grid_constant__ CUtensorMap a_map,
            const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map) {
    constexpr int SHARERS = PINGPONG ? 1 : CONSUMERS, BM = SHARERS * BLOCKS * 64, BN = N, STAGE_BYTES = (BM + BN) * ROW_BYTES;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t bars[2 * STAGES], turns[4];
    const uint32_t base = smem_address(smem), turn = smem_address(turns);
    Pipeline<STAGES> pipe{smem_address(bars), smem_address(bars + STAGES)};
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (threadIdx.x == 0) {
        tma_prefetch(&a_map);
        tma_prefetch(&b_map);
#pragma unroll
        for (int i = 0; i < STAGES; ++i) {
            mbarrier_init(pipe.full + i * 8, 1);
            mbarrier_init(pipe.empty + i * 8, SHARERS);
        }
        if constexpr (PINGPONG)
            for (int i = 0; i < 4; ++i) mbarrier_init(turn + i * 8, 128);
        fence_async_proxy();
    }
    __syncthreads();
    const int num_steps = (s.k + BK - 1) / BK, last = PERSISTENT ? num_tiles : min(num_tiles, int(blockIdx.x) + 1);
    if (warpgroup == CONSUMERS) {
        if constexpr (HAS_SETMAXNREG) setmaxnreg_dec<40>();
        if (threadIdx.x == CONSUMERS * 128)
            for (int tile = blockIdx.x; tile < last; tile += gridDim.x) {
                const Place at = place_of(s, tile);
                produce_tile<BM, BN, STAGES>(pipe, base, &a_map, &b_map, at.m * BM, at.n * BN, at.batch, num_steps);
            }
        return;
    }
    if constexpr (HAS_SETMAXNREG) setmaxnreg_inc<CONSUMERS == 3 ? 160 : 232>();
    float acc[BLOCKS][N / 2];
    uint8_t* buffer = smem + STAGES * STAGE_BYTES + warpgroup * BLOCKS * N * ROW_BYTES;
    int parity = warpgroup == 0;
    if constexpr (PINGPONG)
        if (warpgroup == 1) pipe.advance(num_steps);
    const int first = blockIdx.x + (PINGPONG ? warpgroup * gridDim.x : 0), step = (PINGPONG ? 2 : 1) * gridDim.x;
    for (int tile = first; tile < last; tile += step) {
        const Place at = place_of(s, tile);
        if constexpr (PINGPONG) mbarrier_wait(turn + warpgroup * 8, parity);
        const uint32_t rows = PINGPONG ? 0 : warpgroup * BLOCKS * 64 * ROW_BYTES;
        consume<N, BLOCKS, STAGE_BYTES>(acc, pipe, base + rows, base + BM * ROW_BYTES, num_steps);
        if constexpr (PINGPONG) {
            mbarrier_arrive(turn + (1 - warpgroup) * 8);
            pipe.advance(num_steps);
            mbarrier_wait(turn + (2 + warpgroup) * 8, parity);
        }
        const int row = at.m * BM + (PINGPONG ? 0 : warpgroup * BLOCKS * 64);
        store_tile<EPILOGUE, N, BLOCKS>(acc, C + size_t(at.batch) * s.m * s.n, s, &c_map, buffer, row, at.n * BN, 1 + warpgroup);
        if constexpr (PINGPONG) {
            mbarrier_arrive(turn + (3 - warpgroup) * 8);
            parity ^= 1;
        }
    }
    if constexpr (EPILOGUE == TMA_OUT)
        if (threadIdx.x % 128 == 0) tma_store_wait();
}

// The same warps load and compute: the slot that a wait has freed is loaded behind the math, one group in flight.
template <int COPY, int N, int BLOCKS, int WARPGROUPS, int STAGES, int EPILOGUE>
__global__ void __launch_bounds__(WARPGROUPS * 128, 1)
multistage(const bf16* __restrict__ A, const bf16* __restrict__ B, bf16* __restrict__ C, const Shape s,
           const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
           const __grid_constant__ CUtensorMap c_map) {
    constexpr int THREADS = WARPGROUPS * 128, BM = WARPGROUPS * BLOCKS * 64, BN = N, STAGE_BYTES = (BM + BN) * ROW_BYTES;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t full_bars[STAGES];
    const uint32_t base = smem_address(smem), full = smem_address(full_bars);
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0), num_steps = (s.k + BK - 1) / BK;
    const Place at = place_of(s, blockIdx.x);
    const int block_m = at.m * BM, block_n = at.n * BN;
    const int line = threadIdx.x / 8, part = threadIdx.x % 8 * 8;
    const bf16* a_from = A + (size_t(at.batch) * s.m + block_m + line) * s.k + part;
    const bf16* b_from = B + (size_t(at.batch) * s.n + block_n + line) * s.k + part;
    const uint32_t write = base + chunk_offset<BK>(threadIdx.x);
    auto load_stage = [&](int step, int stage) {
        if constexpr (COPY == CP_ASYNC) {
            const bool has_k = step * BK + part < s.k;
#pragma unroll
            for (int i = 0; i < BM * 8 / THREADS; ++i)
                cp_async_guarded(write + stage * STAGE_BYTES + i * THREADS * 16, a_from + size_t(i * THREADS / 8) * s.k,
                                 has_k && block_m + line + i * THREADS / 8 < s.m);
#pragma unroll
            for (int i = 0; i < BN * 8 / THREADS; ++i)
                cp_async_guarded(write + stage * STAGE_BYTES + BM * ROW_BYTES + i * THREADS * 16,
                                 b_from + size_t(i * THREADS / 8) * s.k, has_k && block_n + line + i * THREADS / 8 < s.n);
            a_from += BK;
            b_from += BK;
        } else if (threadIdx.x == 0) {
            mbarrier_expect(full + stage * 8, STAGE_BYTES);
            tma_load_3d(base + stage * STAGE_BYTES, &a_map, full + stage * 8, step * BK, block_m, at.batch);
            tma_load_3d(base + stage * STAGE_BYTES + BM * ROW_BYTES, &b_map, full + stage * 8, step * BK, block_n, at.batch);
        }
    };
    if constexpr (COPY == TMA) {
        if (threadIdx.x == 0) {
            tma_prefetch(&a_map);
            tma_prefetch(&b_map);
#pragma unroll
            for (int i = 0; i < STAGES; ++i) mbarrier_init(full + i * 8, 1);
            fence_async_proxy();
        }
        __syncthreads();
    }
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < num_steps) load_stage(i, i);
        if constexpr (COPY == CP_ASYNC) cp_async_commit();
    }
    float acc[BLOCKS][N / 2];
    int read_stage = 0, write_stage = STAGES - 1, parity = 0;
#pragma unroll 1
    for (int step = 0; step < num_steps; ++step) {
        if constexpr (COPY == CP_ASYNC) {
            cp_async_wait<STAGES - 2>();
            fence_async_proxy();
            __syncthreads();
        } else {
            mbarrier_wait(full + read_stage * 8, parity);
        }
        const uint32_t stage = base + read_stage * STAGE_BYTES;
        wgmma_stage<N, BLOCKS>(acc, stage + warpgroup * BLOCKS * 64 * ROW_BYTES, stage + BM * ROW_BYTES, step > 0);
        wgmma_wait<1>();
        __syncthreads();
        if (step + STAGES - 1 < num_steps) load_stage(step + STAGES - 1, write_stage);
        if constexpr (COPY == CP_ASYNC) cp_async_commit();
        write_stage = write_stage == STAGES - 1 ? 0 : write_stage + 1;
        if (++read_stage == STAGES) {
            read_stage = 0;
            parity ^= 1;
        }
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);
    if constexpr (EPILOGUE != REGISTERS_OUT) __syncthreads();
    store_tile<EPILOGUE, N, BLOCKS>(acc, C + size_t(at.batch) * s.m * s.n, s, &c_map,
                                    smem + warpgroup * BLOCKS * N * ROW_BYTES, block_m + warpgroup * BLOCKS * 64, block_n,
                                    1 + warpgroup);
    if constexpr (EPILOGUE == TMA_OUT)
        if (threadIdx.x % 128 == 0) tma_store_wait();
}
#endif  // HAS_SM90A

// ---------------------------------------------------------------------------------------------------------------
// mma.sync by cp.async, fragments of the next slice loaded during the math of this one (FRAGMENTS 2), or before their own
// ---------------------------------------------------------------------------------------------------------------
template <int WARP_M, int WARP_N, int WARPS_M, int WARPS_N, int K, int STAGES, int FRAGMENTS, int EPILOGUE>
__global__ void __launch_bounds__(WARPS_M* WARPS_N * 32, 1)
mma_ring(const bf16* __restrict__ A, const bf16* __restrict__ B, bf16* __restrict__ C, const Shape s) {
    constexpr int THREADS = WARPS_M * WARPS_N * 32, BM = WARP_M * WARPS_M, BN = WARP_N * WARPS_N, SLICES = K / 16;
    constexpr int STAGE_BYTES = (BM + BN) * K * 2, CHUNKS = K / 8, ROWS_AT_ONCE = THREADS / CHUNKS;
    extern __shared__ __align__(1024) uint8_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M * WARP_M, warp_n = warp / WARPS_M * WARP_N;
    const Place at = place_of(s, blockIdx.x);
    const int block_m = at.m * BM, block_n = at.n * BN, num_steps = (s.k + K - 1) / K;
    const int line = threadIdx.x / CHUNKS, part = threadIdx.x % CHUNKS * 8;
    const uint32_t base = smem_address(smem), write = base + chunk_offset<K>(threadIdx.x);
    const bf16* a_from = A + size_t(block_m + line) * s.k + part;
    const bf16* b_from = B + size_t(block_n + line) * s.k + part;
    auto load_stage = [&](int step, int stage) {
        const bool has_k = step * K + part < s.k;
#pragma unroll
        for (int i = 0; i < BM / ROWS_AT_ONCE; ++i)
            cp_async_guarded(write + stage * STAGE_BYTES + i * THREADS * 16, a_from + size_t(i * ROWS_AT_ONCE) * s.k + step * K,
                             has_k && block_m + line + i * ROWS_AT_ONCE < s.m);
#pragma unroll
        for (int i = 0; i < BN / ROWS_AT_ONCE; ++i)
            cp_async_guarded(write + stage * STAGE_BYTES + BM * K * 2 + i * THREADS * 16,
                             b_from + size_t(i * ROWS_AT_ONCE) * s.k + step * K,
                             has_k && block_n + line + i * ROWS_AT_ONCE < s.n);
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < num_steps) load_stage(i, i);
        cp_async_commit();
    }
    const uint32_t a_row = base + (warp_m + lane % 16) * K * 2;
    const uint32_t b_row = base + BM * K * 2 + (warp_n + lane % 8 + lane / 16 * 8) * K * 2;
    const int a_chunk = (lane / 16) ^ swizzle<K>(lane), b_chunk = (lane / 8 & 1) ^ swizzle<K>(lane);
    float acc[WARP_M / 16][WARP_N / 8][4] = {};
    MmaFragments<WARP_M, WARP_N, K> fragments[FRAGMENTS];
    auto multiply = [&](const auto& now) {
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
            for (int j = 0; j < WARP_N / 8; ++j)
                mma_m16n8k16(acc[i][j], now.a[i], now.b[j / 2][j % 2 * 2], now.b[j / 2][j % 2 * 2 + 1]);
    };
    int read_stage = 0, write_stage = STAGES - 1;
    auto refill = [&](int step) {
        if (step + STAGES - 1 < num_steps) load_stage(step + STAGES - 1, write_stage);
        cp_async_commit();
        write_stage = write_stage == STAGES - 1 ? 0 : write_stage + 1;
    };
    if constexpr (FRAGMENTS == 2) {
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        fragments[0].load(a_row, b_row, a_chunk, b_chunk, 0);
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                if (slice == 0) refill(step);
                if (slice == SLICES - 1) {
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    read_stage = read_stage == STAGES - 1 ? 0 : read_stage + 1;
                }
                fragments[(slice + 1) % 2].load(a_row + read_stage * STAGE_BYTES, b_row + read_stage * STAGE_BYTES, a_chunk,
                                                b_chunk, (slice + 1) % SLICES);
                multiply(fragments[slice % 2]);
            }
        }
    } else {
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            cp_async_wait<STAGES - 2>();
            __syncthreads();
            refill(step);
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                fragments[0].load(a_row + read_stage * STAGE_BYTES, b_row + read_stage * STAGE_BYTES, a_chunk, b_chunk, slice);
                multiply(fragments[0]);
            }
            read_stage = read_stage == STAGES - 1 ? 0 : read_stage + 1;
        }
    }
    cp_async_wait<0>();
    C += size_t(at.batch) * s.m * s.n;
    if constexpr (EPILOGUE == REGISTERS_OUT) {
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j) {
                    const int m = block_m + warp_m + i * 16 + half * 8 + lane / 4, n = block_n + warp_n + j * 8 + lane % 4 * 2;
                    if (m < s.m && n < s.n)
                        *reinterpret_cast<uint32_t*>(C + size_t(m) * s.n + n) = pack(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
                }
    } else {
        constexpr int PITCH = BN + 8;
        bf16* tile_c = reinterpret_cast<bf16*>(smem);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j)
                    *reinterpret_cast<uint32_t*>(tile_c + (warp_m + i * 16 + half * 8 + lane / 4) * PITCH + warp_n + j * 8 +
                                                 lane % 4 * 2) = pack(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BM * BN / 8 / THREADS; ++i) {
            const int at_chunk = threadIdx.x + i * THREADS, row = at_chunk / (BN / 8), column = at_chunk % (BN / 8) * 8;
            if (block_m + row < s.m && block_n + column < s.n)
                *reinterpret_cast<uint4*>(C + size_t(block_m + row) * s.n + block_n + column) =
                    *reinterpret_cast<const uint4*>(tile_c + row * PITCH + column);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// FFMA by cp.async: an operand that is contiguous along K is transposed on its way, a word a copy
// ---------------------------------------------------------------------------------------------------------------
template <int TM, int TN, int WARPS_M, int WARPS_N, int K, int STAGES, bool A_TURNED, bool B_TURNED>
__global__ void __launch_bounds__(WARPS_M* WARPS_N * 32, TM * TN > 64 ? 1 : 2)
ffma_ring(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, const Shape s) {
    constexpr int THREADS = WARPS_M * WARPS_N * 32, BM = TM * 4 * WARPS_M, BN = TN * 8 * WARPS_N;
    constexpr int A_PITCH = BM + (A_TURNED ? 4 : 0), B_PITCH = BN + (B_TURNED ? 4 : 0);
    __shared__ __align__(16) float a_tile[STAGES][K][A_PITCH], b_tile[STAGES][K][B_PITCH];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int row = warp % WARPS_M * TM * 4 + lane / 8 * 4, column = warp / WARPS_M * TN * 8 + lane % 8 * 4;
    const Place at = place_of(s, blockIdx.x);
    const int block_m = at.m * BM, block_n = at.n * BN, num_steps = (s.k + K - 1) / K;
    auto load_operand = [&](auto& tile, const float* from, int first, int extent, int step, int stage, auto turned, auto rows) {
        constexpr int ROWS = decltype(rows)::value;
        if constexpr (decltype(turned)::value) {
#pragma unroll
            for (int i = 0; i < ROWS * K / THREADS; ++i) {
                const int idx = thread + i * THREADS, r = idx / K, k = idx % K;
                cp_async_word(smem_address(&tile[stage][k][r]), from + size_t(first + r) * s.k + step * K + k,
                              first + r < extent && step * K + k < s.k);
            }
        } else {
#pragma unroll
            for (int i = 0; i < ROWS * K / 4 / THREADS; ++i) {
                const int idx = thread + i * THREADS, k = idx / (ROWS / 4), r = idx % (ROWS / 4) * 4;
                cp_async_guarded(smem_address(&tile[stage][k][r]), from + size_t(step * K + k) * extent + first + r,
                                 first + r < extent && step * K + k < s.k);
            }
        }
    };
    auto load_stage = [&](int step, int stage) {
        load_operand(a_tile, A, block_m, s.m, step, stage, std::bool_constant<A_TURNED>{}, std::integral_constant<int, BM>{});
        load_operand(b_tile, B, block_n, s.n, step, stage, std::bool_constant<B_TURNED>{}, std::integral_constant<int, BN>{});
    };
    float a[2][TM], b[2][TN], acc[TM][TN] = {};
    auto load_fragments = [&](int buffer, int stage, int k) {
#pragma unroll
        for (int i = 0; i < TM; i += 4)
            *reinterpret_cast<float4*>(&a[buffer][i]) = *reinterpret_cast<const float4*>(&a_tile[stage][k][row + i * 4]);
#pragma unroll
        for (int j = 0; j < TN; j += 4)
            *reinterpret_cast<float4*>(&b[buffer][j]) = *reinterpret_cast<const float4*>(&b_tile[stage][k][column + j * 8]);
    };
    auto multiply = [&](int buffer) {
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
            for (int j = 0; j < TN; ++j) acc[i][j] = fmaf(a[buffer][i], b[buffer][j], acc[i][j]);
    };
    if constexpr (STAGES == 1) {
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            load_stage(step, 0);
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads();
            load_fragments(0, 0, 0);
#pragma unroll
            for (int k = 0; k < K; ++k) {
                if (k + 1 < K) load_fragments((k + 1) % 2, 0, k + 1);
                multiply(k % 2);
            }
            __syncthreads();
        }
    } else {
#pragma unroll
        for (int i = 0; i < STAGES - 1; ++i) {
            if (i < num_steps) load_stage(i, i);
            cp_async_commit();
        }
        int read_stage = 0, write_stage = STAGES - 1;
        cp_async_wait<STAGES - 2>();
        __syncthreads();
        load_fragments(0, 0, 0);
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            if (step + STAGES - 1 < num_steps) load_stage(step + STAGES - 1, write_stage);
            cp_async_commit();
            write_stage = write_stage == STAGES - 1 ? 0 : write_stage + 1;
#pragma unroll
            for (int k = 0; k < K; ++k) {
                if (k == K - 1) {
                    cp_async_wait<STAGES - 2>();
                    __syncthreads();
                    read_stage = read_stage == STAGES - 1 ? 0 : read_stage + 1;
                }
                load_fragments((k + 1) % 2, read_stage, (k + 1) % K);
                multiply(k % 2);
            }
        }
    }
    C += size_t(at.batch) * s.m * s.n;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = block_m + row + i / 4 * 16 + i % 4;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int n = block_n + column + j * 8;
            if (m < s.m && n < s.n)
                *reinterpret_cast<float4*>(C + size_t(m) * s.n + n) = make_float4(acc[i][j], acc[i][j + 1], acc[i][j + 2], acc[i][j + 3]);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The probes
// ---------------------------------------------------------------------------------------------------------------
#define MAPS const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap
#define SPECIALIZED_PROBE(...) template __global__ void specialized<__VA_ARGS__>(bf16*, const Shape, int, MAPS);
#define MULTISTAGE_PROBE(...) \
    template __global__ void multistage<__VA_ARGS__>(const bf16*, const bf16*, bf16*, const Shape, MAPS);
#define MMA_PROBE(...) template __global__ void mma_ring<__VA_ARGS__>(const bf16*, const bf16*, bf16*, const Shape);
#define FFMA_PROBE(...) template __global__ void ffma_ring<__VA_ARGS__>(const float*, const float*, float*, const Shape);

#ifdef HAS_SM90A
#define EACH_EPILOGUE(PROBE, ...) PROBE(__VA_ARGS__, REGISTERS_OUT) PROBE(__VA_ARGS__, SMEM_OUT) PROBE(__VA_ARGS__, TMA_OUT)
// n, m64 blocks of a consumer, consumers, stages, persistent, setmaxnreg, pingpong, epilogue
EACH_EPILOGUE(SPECIALIZED_PROBE, 64, 1, 1, 4, false, false, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 128, 1, 1, 4, true, false, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 128, 2, 1, 4, false, false, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 128, 1, 2, 4, true, true, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 256, 1, 2, 4, true, true, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 128, 2, 2, 4, true, true, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 192, 1, 3, 3, true, true, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 128, 1, 2, 4, true, false, true)
EACH_EPILOGUE(SPECIALIZED_PROBE, 256, 1, 2, 4, true, true, true)
// copy, n, m64 blocks of a warpgroup, warpgroups, stages, epilogue
EACH_EPILOGUE(MULTISTAGE_PROBE, TMA, 64, 1, 1, 4)
EACH_EPILOGUE(MULTISTAGE_PROBE, TMA, 128, 1, 1, 4)
EACH_EPILOGUE(MULTISTAGE_PROBE, TMA, 128, 1, 2, 3)
EACH_EPILOGUE(MULTISTAGE_PROBE, TMA, 256, 1, 2, 3)
MULTISTAGE_PROBE(CP_ASYNC, 64, 1, 1, 4, REGISTERS_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 128, 1, 1, 4, REGISTERS_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 128, 1, 2, 3, REGISTERS_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 256, 1, 2, 3, REGISTERS_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 64, 1, 1, 4, SMEM_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 128, 1, 1, 4, SMEM_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 128, 1, 2, 3, SMEM_OUT)
MULTISTAGE_PROBE(CP_ASYNC, 256, 1, 2, 3, SMEM_OUT)
#endif
#define EACH_FRAGMENTS(...)                                                                                  \
    MMA_PROBE(__VA_ARGS__, 2, REGISTERS_OUT) MMA_PROBE(__VA_ARGS__, 2, SMEM_OUT)                               \
    MMA_PROBE(__VA_ARGS__, 1, REGISTERS_OUT) MMA_PROBE(__VA_ARGS__, 1, SMEM_OUT)
// warp m, warp n, warps along m, along n, k, stages, fragments, epilogue
EACH_FRAGMENTS(32, 32, 2, 2, 32, 4)
EACH_FRAGMENTS(32, 64, 2, 2, 64, 3)
EACH_FRAGMENTS(64, 32, 2, 4, 64, 3)
EACH_FRAGMENTS(64, 64, 2, 2, 32, 4)
EACH_FRAGMENTS(64, 64, 2, 4, 32, 3)
EACH_FRAGMENTS(32, 32, 2, 4, 64, 4)
// rows and columns of a thread, warps along m, along n, k, stages, whether A and B are turned
FFMA_PROBE(8, 8, 4, 2, 8, 1, false, false)
FFMA_PROBE(8, 8, 4, 2, 8, 2, false, false)
FFMA_PROBE(8, 8, 4, 2, 8, 2, true, false)
FFMA_PROBE(8, 8, 4, 2, 8, 2, true, true)
FFMA_PROBE(8, 8, 2, 4, 16, 2, false, false)
FFMA_PROBE(8, 8, 2, 4, 16, 1, true, false)
FFMA_PROBE(8, 8, 2, 2, 8, 2, false, false)
FFMA_PROBE(8, 8, 2, 2, 8, 1, true, true)
FFMA_PROBE(16, 8, 2, 2, 8, 2, false, false)
FFMA_PROBE(8, 4, 2, 2, 16, 2, true, false)
FFMA_PROBE(8, 4, 2, 2, 16, 1, false, false)
