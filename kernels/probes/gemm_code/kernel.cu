// GEMM kernels in two styles, FIXED and GENERAL: bounds, rasterization with divisions, rings of mbarriers, four epilogues.
// They are compiled and read (probe.py), and never launched. Instructions and loops of math are those of register_probe.
#include <type_traits>

#define REFUSED 99
#include "../register_probe/kernel.cu"

enum Path { REGISTERS_OUT = 0, SMEM_OUT = 1, TMA_OUT = 2, PART_OUT = 3 };
enum Style { FIXED = 0, GENERAL = 1 };  // what is an argument: the problem alone, or all that a launch may choose

struct Shape {
    int m, n, k;
    int num_m, num_n;  // tiles
    int group;         // rows of tiles of a band
};

// What a library's kernel takes as arguments, besides: strides, the scale of A B, the order of tiles, parts of K.
struct GeneralShape : Shape {
    int64_t a_stride, b_stride, d_stride;
    float alpha;
    int is_along_n, steps_of_part, cluster_size;
};
template <int STYLE>
using ShapeOf = std::conditional_t<STYLE == GENERAL, GeneralShape, Shape>;

__device__ __forceinline__ int64_t a_stride(const Shape& s) { return s.k; }
__device__ __forceinline__ int64_t b_stride(const Shape& s) { return s.k; }
__device__ __forceinline__ int64_t d_stride(const Shape& s) { return s.n; }
__device__ __forceinline__ int64_t a_stride(const GeneralShape& s) { return s.a_stride; }
__device__ __forceinline__ int64_t b_stride(const GeneralShape& s) { return s.b_stride; }
__device__ __forceinline__ int64_t d_stride(const GeneralShape& s) { return s.d_stride; }
__device__ __forceinline__ uint32_t scaled(const Shape&, float low, float high) { return pack(low, high); }
__device__ __forceinline__ uint32_t scaled(const GeneralShape& s, float low, float high) {
    return pack(s.alpha * low, s.alpha * high);
}
__device__ __forceinline__ float scaled_one(const Shape&, float value) { return value; }
__device__ __forceinline__ float scaled_one(const GeneralShape& s, float value) { return s.alpha * value; }

// CTA rasterization in bands of `group` rows of tiles, batch by batch.
struct Place {
    int m, n, batch, first, num;  // first and number of its k-steps
};
template <int K>
__device__ __forceinline__ int steps_of(const Shape& s) {
    return (s.k + K - 1) / K;
}
template <int K>
__device__ __forceinline__ Place place_of(const Shape& s, int tile) {
    const int per_batch = s.num_m * s.num_n, batch = tile / per_batch;
    tile -= batch * per_batch;
    const int band = s.group * s.num_n, first = tile / band * s.group, inside = tile % band;
    const int rows = min(s.num_m - first, s.group);
    return {first + inside % rows, inside / rows, batch, 0, steps_of<K>(s)};
}
// Bands of rows or of columns of tiles, part by part of K.
template <int K>
__device__ __forceinline__ Place place_of(const GeneralShape& s, int tile) {
    const int per_part = s.num_m * s.num_n, part = tile / per_part;
    tile -= part * per_part;
    const int across = s.is_along_n ? s.num_n : s.num_m, along = s.is_along_n ? s.num_m : s.num_n;
    const int band = s.group * along, first = tile / band * s.group, inside = tile % band;
    const int width = min(across - first, s.group), major = first + inside % width, minor = inside / width;
    const int first_step = part * s.steps_of_part;
    return {s.is_along_n ? minor : major, s.is_along_n ? major : minor, part, first_step,
            min(s.steps_of_part, steps_of<K>(s) - first_step)};
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
// A first try gives a token, without which a loop of tries follows (CUTLASS: consumer_try_wait, consumer_wait).
__device__ __forceinline__ void mbarrier_wait_by_token(uint32_t bar, uint32_t parity) {
    uint32_t has_token;
    asm volatile("{\n.reg .pred done;\nmbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\nselp.b32 %0, 1, 0, done;\n}"
                 : "=r"(has_token) : "r"(bar), "r"(parity) : "memory");
    if (!has_token) mbarrier_wait(bar, parity);
}
// At the mbarrier of a CTA of the cluster (CUTLASS: ClusterBarrier::arrive).
__device__ __forceinline__ void mbarrier_arrive_at(uint32_t bar, int cta, bool is_signaling) {
    if (is_signaling)
        asm volatile("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %0, %1;\n"
                     "mbarrier.arrive.shared::cluster.b64 _, [there];\n}" ::"r"(bar), "r"(cta) : "memory");
}
// One lane of a warp (CUTLASS: elect_one_sync). ptxas then knows that TMA copies have one lane.
__device__ __forceinline__ bool elect_one() {
    uint32_t is_elected;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.b32 %0, 1, 0, p;\n}" : "=r"(is_elected));
    return is_elected;
}
template <int STYLE>
__device__ __forceinline__ bool is_first_of(int warp) {
    if constexpr (STYLE == GENERAL)
        return __shfl_sync(~0u, threadIdx.x / 32, 0) == warp && elect_one();
    else
        return threadIdx.x == warp * 32;
}
// One group stays in flight, and a first k-step is before the loop.
template <int N, int BLOCKS, int STAGE_BYTES, int STAGES>
__device__ __forceinline__ void consume_by_tokens(float (&acc)[BLOCKS][N / 2], Pipeline<STAGES>& pipe, uint32_t a, uint32_t b,
                                                  int num_steps, int cta, bool is_signaling) {
    Pipeline<STAGES> released = pipe;
    mbarrier_wait_by_token(pipe.full + pipe.stage * 8, pipe.parity);
    wgmma_stage<N, BLOCKS>(acc, a + pipe.stage * STAGE_BYTES, b + pipe.stage * STAGE_BYTES, 0);
    pipe.advance();
#pragma unroll 1
    for (int k = num_steps - 1; k > 0; --k, pipe.advance(), released.advance()) {
        mbarrier_wait_by_token(pipe.full + pipe.stage * 8, pipe.parity);
        wgmma_stage<N, BLOCKS>(acc, a + pipe.stage * STAGE_BYTES, b + pipe.stage * STAGE_BYTES, 1);
        wgmma_wait<1>();
        mbarrier_arrive_at(released.empty + released.stage * 8, cta, is_signaling);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);
    mbarrier_arrive_at(released.empty + released.stage * 8, cta, is_signaling);
}

template <int N, int BLOCKS, class S>
__device__ __forceinline__ void store_guarded(const float (&acc)[BLOCKS][N / 2], bf16* C, const S& s, int row, int column) {
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
                    *reinterpret_cast<uint32_t*>(C + at * d_stride(s) + column + j * 8) =
                        scaled(s, acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]);
        }
}

// A part of K, in fp32, behind those of the parts before.
template <int N, int BLOCKS>
__device__ __forceinline__ void store_part(const float (&acc)[BLOCKS][N / 2], float* parts, const Shape& s, int part, int row,
                                           int column) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
    row += thread / 32 * 16 + lane / 4;
    column += lane % 4 * 2;
    parts += int64_t(part) * s.m * s.n;
#pragma unroll
    for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = row + i * 64 + half * 8;
#pragma unroll
            for (int j = 0; j < N / 8; ++j)
                if (at < s.m && column + j * 8 < s.n)
                    *reinterpret_cast<float2*>(parts + int64_t(at) * s.n + column + j * 8) =
                        make_float2(acc[i][j * 4 + half * 2], acc[i][j * 4 + half * 2 + 1]);
        }
}

// Through smem at `buffer` (panels of 64 rows and 64 columns, 128-byte swizzle), then 16 bytes of a row a thread.
template <int N, int BLOCKS, class S>
__device__ __forceinline__ void store_rows(const float (&acc)[BLOCKS][N / 2], bf16* C, const S& s, uint8_t* buffer,
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
            stmatrix_x4(to + (i * (N / 64) + j / 4) * 64 * ROW_BYTES + ((chunk ^ (j % 4 * 2)) << 4), scaled(s, d[0], d[1]),
                        scaled(s, d[2], d[3]), scaled(s, d[4], d[5]), scaled(s, d[6], d[7]));
        }
    named_barrier_sync(barrier_idx, 128);
#pragma unroll
    for (int i = 0; i < BLOCKS * N / 16; ++i) {
        const int at = thread + i * 128, panel = at / 512, line = at % 512 / 8, part = at % 8;
        const int m = row + panel / (N / 64) * 64 + line, n = column + panel % (N / 64) * 64 + part * 8;
        if (m < s.m && n < s.n)
            *reinterpret_cast<uint4*>(C + m * d_stride(s) + n) = *reinterpret_cast<const uint4*>(
                buffer + panel * 64 * ROW_BYTES + line * ROW_BYTES + ((part ^ (line & 7)) << 4));
    }
}

template <int EPILOGUE, int N, int BLOCKS, class S>
__device__ __forceinline__ void store_tile(float (&acc)[BLOCKS][N / 2], bf16* C, const S& s, const CUtensorMap* c_map,
                                           uint8_t* buffer, int batch, int row, int column, int barrier_idx) {
    constexpr bool IS_GENERAL = std::is_same_v<S, GeneralShape>;
    if constexpr (!IS_GENERAL) C += size_t(batch) * s.m * s.n;
    if constexpr (EPILOGUE == PART_OUT) {
        store_part<N, BLOCKS>(acc, reinterpret_cast<float*>(C), s, batch, row, column);
    } else if constexpr (EPILOGUE == REGISTERS_OUT) {
        store_guarded<N, BLOCKS>(acc, C, s, row, column);
    } else if constexpr (EPILOGUE == SMEM_OUT) {
        store_rows<N, BLOCKS>(acc, C, s, buffer, row, column, barrier_idx);
    } else {
        if constexpr (IS_GENERAL)
            for (int i = 0; i < BLOCKS; ++i)
#pragma unroll
                for (int j = 0; j < N / 2; ++j) acc[i][j] *= s.alpha;
        store_tma<N, BLOCKS>(acc, c_map, smem_address(buffer), row, column, barrier_idx);
    }
}

template <int STYLE, int BM, int BN, int STAGES>
__device__ __forceinline__ void produce_tile(Pipeline<STAGES>& pipe, uint32_t base, const CUtensorMap* a_map,
                                             const CUtensorMap* b_map, const Place& at) {
    constexpr int STAGE_BYTES = (BM + BN) * ROW_BYTES;
    const int batch = STYLE == FIXED ? at.batch : 0;
#pragma unroll 1
    for (int k = at.first; k < at.first + at.num; ++k, pipe.advance()) {
        if constexpr (STYLE == FIXED)
            mbarrier_wait(pipe.empty + pipe.stage * 8, pipe.parity ^ 1);
        else
            mbarrier_wait_by_token(pipe.empty + pipe.stage * 8, pipe.parity ^ 1);
        mbarrier_expect(pipe.full + pipe.stage * 8, STAGE_BYTES);
        tma_load_3d(base + pipe.stage * STAGE_BYTES, a_map, pipe.full + pipe.stage * 8, k * BK, at.m * BM, batch);
        tma_load_3d(base + pipe.stage * STAGE_BYTES + BM * ROW_BYTES, b_map, pipe.full + pipe.stage * 8, k * BK, at.n * BN, batch);
    }
}

// A producer warp or warpgroup, and consumers that share a tile, or take turns at tiles (PINGPONG, mbarriers of order).
template <int STYLE, int N, int BLOCKS, int CONSUMERS, int STAGES, bool PERSISTENT, bool HAS_SETMAXNREG, bool PINGPONG,
          int EPILOGUE>
__global__ void __launch_bounds__((specialized_threads<CONSUMERS, true>), 1)
specialized(bf16* __restrict__ C, const ShapeOf<STYLE> s, int num_tiles, const __grid_constant__ CUtensorMap a_map,
            const __grid_constant__ CUtensorMap b_map, const __grid_constant__ CUtensorMap c_map) {
    constexpr int SHARERS = PINGPONG ? 1 : CONSUMERS, BM = SHARERS * BLOCKS * 64, BN = N, STAGE_BYTES = (BM + BN) * ROW_BYTES;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t bars[2 * STAGES], turns[4];
    const uint32_t base = smem_address(smem), turn = smem_address(turns);
    Pipeline<STAGES> pipe{smem_address(bars), smem_address(bars + STAGES)};
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    if (is_first_of<STYLE>(0)) {
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
    const int last = PERSISTENT || STYLE == GENERAL ? num_tiles : min(num_tiles, int(blockIdx.x) + 1);
    if (warpgroup == CONSUMERS) {
        if constexpr (HAS_SETMAXNREG) setmaxnreg_dec<40>();
        if (is_first_of<STYLE>(CONSUMERS * 4))
            for (int tile = blockIdx.x; tile < last; tile += gridDim.x) {
                produce_tile<STYLE, BM, BN, STAGES>(pipe, base, &a_map, &b_map, place_of<BK>(s, tile));
            }
        return;
    }
    if constexpr (HAS_SETMAXNREG) setmaxnreg_inc<CONSUMERS == 3 ? 160 : 232>();
    float acc[BLOCKS][N / 2];
    uint8_t* buffer = smem + STAGES * STAGE_BYTES + warpgroup * BLOCKS * N * ROW_BYTES;
    int parity = warpgroup == 0;
    if constexpr (PINGPONG)
        if (warpgroup == 1) pipe.advance(steps_of<BK>(s));
    const int first = blockIdx.x + (PINGPONG ? warpgroup * gridDim.x : 0), step = (PINGPONG ? 2 : 1) * gridDim.x;
    for (int tile = first; tile < last; tile += step) {
        const Place at = place_of<BK>(s, tile);
        if constexpr (PINGPONG) mbarrier_wait(turn + warpgroup * 8, parity);
        const uint32_t rows = PINGPONG ? 0 : warpgroup * BLOCKS * 64 * ROW_BYTES;
        if constexpr (STYLE == GENERAL) {
            const int thread = threadIdx.x % 128;
            consume_by_tokens<N, BLOCKS, STAGE_BYTES>(acc, pipe, base + rows, base + BM * ROW_BYTES, at.num, thread,
                                                      thread < s.cluster_size);
        } else {
            consume<N, BLOCKS, STAGE_BYTES>(acc, pipe, base + rows, base + BM * ROW_BYTES, at.num);
        }
        if constexpr (PINGPONG) {
            mbarrier_arrive(turn + (1 - warpgroup) * 8);
            pipe.advance(steps_of<BK>(s));
            mbarrier_wait(turn + (2 + warpgroup) * 8, parity);
        }
        const int row = at.m * BM + (PINGPONG ? 0 : warpgroup * BLOCKS * 64);
        store_tile<EPILOGUE, N, BLOCKS>(acc, C, s, &c_map, buffer, at.batch, row, at.n * BN, 1 + warpgroup);
        if constexpr (PINGPONG) {
            mbarrier_arrive(turn + (3 - warpgroup) * 8);
            parity ^= 1;
        }
    }
    if constexpr (EPILOGUE == TMA_OUT)
        if (threadIdx.x % 128 == 0) tma_store_wait();
}

// The same warps load and compute: the slot that a wait has freed is loaded behind the math, one group in flight.
// GENERAL ones loop over tiles, and TMA copies wait for an mbarrier that a stage is empty, instead of for all warps.
template <int STYLE, int COPY, int N, int BLOCKS, int WARPGROUPS, int STAGES, int EPILOGUE>
__global__ void __launch_bounds__(WARPGROUPS * 128, 1)
multistage(const bf16* __restrict__ A, const bf16* __restrict__ B, bf16* __restrict__ C, const ShapeOf<STYLE> s, int num_tiles,
           const __grid_constant__ CUtensorMap a_map, const __grid_constant__ CUtensorMap b_map,
           const __grid_constant__ CUtensorMap c_map) {
    constexpr int THREADS = WARPGROUPS * 128, BM = WARPGROUPS * BLOCKS * 64, BN = N, STAGE_BYTES = (BM + BN) * ROW_BYTES;
    constexpr bool IS_GENERAL = STYLE == GENERAL;
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ uint64_t bars[2 * STAGES];
    const uint32_t base = smem_address(smem), full = smem_address(bars), empty = smem_address(bars + STAGES);
    const bool is_copying = is_first_of<STYLE>(0);
    int write_parity = 1;
    const int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    const int line = threadIdx.x / 8, part = threadIdx.x % 8 * 8;
    const uint32_t write = base + chunk_offset<BK>(threadIdx.x);
    Place at{};
    const bf16 *a_from = A, *b_from = B;
    auto load_stage = [&](int step, int stage) {
        const int k = (at.first + step) * BK, block_m = at.m * BM, block_n = at.n * BN;
        if constexpr (COPY == CP_ASYNC) {
            const bool has_k = k + part < s.k;
#pragma unroll
            for (int i = 0; i < BM * 8 / THREADS; ++i)
                cp_async_guarded(write + stage * STAGE_BYTES + i * THREADS * 16, a_from + i * THREADS / 8 * a_stride(s),
                                 has_k && block_m + line + i * THREADS / 8 < s.m);
#pragma unroll
            for (int i = 0; i < BN * 8 / THREADS; ++i)
                cp_async_guarded(write + stage * STAGE_BYTES + BM * ROW_BYTES + i * THREADS * 16,
                                 b_from + i * THREADS / 8 * b_stride(s), has_k && block_n + line + i * THREADS / 8 < s.n);
            a_from += BK;
            b_from += BK;
        } else if (is_copying) {
            const int batch = IS_GENERAL ? 0 : at.batch;
            if constexpr (IS_GENERAL) mbarrier_wait_by_token(empty + stage * 8, write_parity);
            mbarrier_expect(full + stage * 8, STAGE_BYTES);
            tma_load_3d(base + stage * STAGE_BYTES, &a_map, full + stage * 8, k, block_m, batch);
            tma_load_3d(base + stage * STAGE_BYTES + BM * ROW_BYTES, &b_map, full + stage * 8, k, block_n, batch);
        }
    };
    auto take = [&](int tile) {
        at = place_of<BK>(s, tile);
        const int64_t batch = IS_GENERAL ? 0 : at.batch, k = at.first * BK + part;
        a_from = A + (batch * s.m + at.m * BM + line) * a_stride(s) + k;
        b_from = B + (batch * s.n + at.n * BN + line) * b_stride(s) + k;
    };
    if constexpr (!IS_GENERAL) take(blockIdx.x);
    if constexpr (COPY == TMA) {
        if (is_copying) {
            tma_prefetch(&a_map);
            tma_prefetch(&b_map);
#pragma unroll
            for (int i = 0; i < STAGES; ++i) {
                mbarrier_init(full + i * 8, 1);
                if constexpr (IS_GENERAL) mbarrier_init(empty + i * 8, WARPGROUPS);
            }
            fence_async_proxy();
        }
        __syncthreads();
    }
    float acc[BLOCKS][N / 2];
    int read_stage = 0, write_stage = 0, parity = 0;
    auto advance_write = [&] {
        if (++write_stage == STAGES) {
            write_stage = 0;
            write_parity ^= 1;
        }
    };
    const int last = IS_GENERAL ? num_tiles : int(blockIdx.x) + 1;
    for (int tile = blockIdx.x; tile < last; tile += gridDim.x) {
        if constexpr (IS_GENERAL) take(tile);
        const int num_steps = at.num;
#pragma unroll 1
        for (int i = 0; i < STAGES - 1; ++i, advance_write()) {
            if (i < num_steps) load_stage(i, write_stage);
            if constexpr (COPY == CP_ASYNC) cp_async_commit();
        }
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            if constexpr (COPY == CP_ASYNC) {
                cp_async_wait<STAGES - 2>();
                fence_async_proxy();
                __syncthreads();
            } else if constexpr (IS_GENERAL) {
                mbarrier_wait_by_token(full + read_stage * 8, parity);
            } else {
                mbarrier_wait(full + read_stage * 8, parity);
            }
            const uint32_t stage = base + read_stage * STAGE_BYTES;
            wgmma_stage<N, BLOCKS>(acc, stage + warpgroup * BLOCKS * 64 * ROW_BYTES, stage + BM * ROW_BYTES, step > 0);
            wgmma_wait<1>();
            if constexpr (IS_GENERAL && COPY == TMA) {
                const int left = read_stage == 0 ? STAGES - 1 : read_stage - 1, thread = threadIdx.x % 128;
                mbarrier_arrive_at(empty + left * 8, thread, step > 0 && thread < s.cluster_size);
            } else {
                __syncthreads();
            }
            if (step + STAGES - 1 < num_steps) {
                load_stage(step + STAGES - 1, write_stage);
                advance_write();
            }
            if constexpr (COPY == CP_ASYNC) cp_async_commit();
            if (++read_stage == STAGES) {
                read_stage = 0;
                parity ^= 1;
            }
        }
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < BLOCKS; ++i) fence_registers(acc[i]);
        if constexpr (EPILOGUE == SMEM_OUT || EPILOGUE == TMA_OUT) __syncthreads();
        store_tile<EPILOGUE, N, BLOCKS>(acc, C, s, &c_map, smem + warpgroup * BLOCKS * N * ROW_BYTES, at.batch,
                                        at.m * BM + warpgroup * BLOCKS * 64, at.n * BN, 1 + warpgroup);
        if constexpr (EPILOGUE == TMA_OUT)
            if (threadIdx.x % 128 == 0) tma_store_wait();
        if constexpr (IS_GENERAL && COPY == TMA) {
            const int left = read_stage == 0 ? STAGES - 1 : read_stage - 1, thread = threadIdx.x % 128;
            mbarrier_arrive_at(empty + left * 8, thread, thread < s.cluster_size);
        }
        if constexpr (IS_GENERAL) __syncthreads();
    }
}
#endif  // HAS_SM90A

// ---------------------------------------------------------------------------------------------------------------
// mma.sync by cp.async, fragments of the next slice loaded during the math of this one (FRAGMENTS 2), or before their own
// ---------------------------------------------------------------------------------------------------------------
template <int STYLE, int WARP_M, int WARP_N, int WARPS_M, int WARPS_N, int K, int STAGES, int FRAGMENTS, int EPILOGUE>
__global__ void __launch_bounds__(WARPS_M* WARPS_N * 32, 1)
mma_ring(const bf16* __restrict__ A, const bf16* __restrict__ B, bf16* __restrict__ C, const ShapeOf<STYLE> s) {
    constexpr int THREADS = WARPS_M * WARPS_N * 32, BM = WARP_M * WARPS_M, BN = WARP_N * WARPS_N, SLICES = K / 16;
    constexpr int STAGE_BYTES = (BM + BN) * K * 2, CHUNKS = K / 8, ROWS_AT_ONCE = THREADS / CHUNKS;
    extern __shared__ __align__(1024) uint8_t smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int warp_m = warp % WARPS_M * WARP_M, warp_n = warp / WARPS_M * WARP_N;
    const Place at = place_of<K>(s, blockIdx.x);
    const int block_m = at.m * BM, block_n = at.n * BN, num_steps = at.num;
    const int line = threadIdx.x / CHUNKS, part = threadIdx.x % CHUNKS * 8;
    const uint32_t base = smem_address(smem), write = base + chunk_offset<K>(threadIdx.x);
    const bf16* a_from = A + (block_m + line) * a_stride(s) + at.first * K + part;
    const bf16* b_from = B + (block_n + line) * b_stride(s) + at.first * K + part;
    auto load_stage = [&](int step, int stage) {
        const bool has_k = (at.first + step) * K + part < s.k;
#pragma unroll
        for (int i = 0; i < BM / ROWS_AT_ONCE; ++i)
            cp_async_guarded(write + stage * STAGE_BYTES + i * THREADS * 16, a_from + i * ROWS_AT_ONCE * a_stride(s) + step * K,
                             has_k && block_m + line + i * ROWS_AT_ONCE < s.m);
#pragma unroll
        for (int i = 0; i < BN / ROWS_AT_ONCE; ++i)
            cp_async_guarded(write + stage * STAGE_BYTES + BM * K * 2 + i * THREADS * 16,
                             b_from + i * ROWS_AT_ONCE * b_stride(s) + step * K,
                             has_k && block_n + line + i * ROWS_AT_ONCE < s.n);
    };
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < num_steps) load_stage(i, i);
        cp_async_commit();
    }
    constexpr int IN_FLIGHT = STAGES > 1 ? STAGES - 2 : 0;
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
    if constexpr (STAGES == 1) {
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            load_stage(step, 0);
            cp_async_commit();
            cp_async_wait<0>();
            __syncthreads();
            if constexpr (FRAGMENTS == 2) fragments[0].load(a_row, b_row, a_chunk, b_chunk, 0);
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                const int next = slice + FRAGMENTS - 1;
                if (next < SLICES) fragments[next % FRAGMENTS].load(a_row, b_row, a_chunk, b_chunk, next);
                multiply(fragments[slice % FRAGMENTS]);
            }
            __syncthreads();
        }
    } else if constexpr (FRAGMENTS == 2) {
        cp_async_wait<IN_FLIGHT>();
        __syncthreads();
        fragments[0].load(a_row, b_row, a_chunk, b_chunk, 0);
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
#pragma unroll
            for (int slice = 0; slice < SLICES; ++slice) {
                if (slice == 0) refill(step);
                if (slice == SLICES - 1) {
                    cp_async_wait<IN_FLIGHT>();
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
            cp_async_wait<IN_FLIGHT>();
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
    if constexpr (STYLE == FIXED) C += size_t(at.batch) * s.m * s.n;
    if constexpr (EPILOGUE == REGISTERS_OUT) {
#pragma unroll
        for (int i = 0; i < WARP_M / 16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
                for (int j = 0; j < WARP_N / 8; ++j) {
                    const int m = block_m + warp_m + i * 16 + half * 8 + lane / 4, n = block_n + warp_n + j * 8 + lane % 4 * 2;
                    if (m < s.m && n < s.n)
                        *reinterpret_cast<uint32_t*>(C + m * d_stride(s) + n) =
                            scaled(s, acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
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
                                                 lane % 4 * 2) = scaled(s, acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BM * BN / 8 / THREADS; ++i) {
            const int at_chunk = threadIdx.x + i * THREADS, row = at_chunk / (BN / 8), column = at_chunk % (BN / 8) * 8;
            if (block_m + row < s.m && block_n + column < s.n)
                *reinterpret_cast<uint4*>(C + (block_m + row) * d_stride(s) + block_n + column) =
                    *reinterpret_cast<const uint4*>(tile_c + row * PITCH + column);
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// FFMA by cp.async: an operand that is contiguous along K is transposed on its way, a word a copy
// ---------------------------------------------------------------------------------------------------------------
template <int STYLE, int TM, int TN, int WARPS_M, int WARPS_N, int K, int STAGES, bool A_TURNED, bool B_TURNED>
__global__ void __launch_bounds__(WARPS_M* WARPS_N * 32, TM * TN > 64 ? 1 : 2)
ffma_ring(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, const ShapeOf<STYLE> s) {
    constexpr int THREADS = WARPS_M * WARPS_N * 32, BM = TM * 4 * WARPS_M, BN = TN * 8 * WARPS_N;
    constexpr int A_PITCH = BM + (A_TURNED ? 4 : 0), B_PITCH = BN + (B_TURNED ? 4 : 0);
    __shared__ __align__(16) float a_tile[STAGES][K][A_PITCH], b_tile[STAGES][K][B_PITCH];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int row = warp % WARPS_M * TM * 4 + lane / 8 * 4, column = warp / WARPS_M * TN * 8 + lane % 8 * 4;
    const Place at = place_of<K>(s, blockIdx.x);
    const int block_m = at.m * BM, block_n = at.n * BN, num_steps = at.num;
    auto turned_stride = [](int64_t stride, int extent, bool is_turned) {  // FIXED: contiguous along K, or along the extent
        return STYLE == GENERAL || is_turned ? stride : int64_t(extent);
    };
    auto load_operand = [&](auto& tile, const float* from, int64_t stride, int first, int extent, int step, int stage, auto turned,
                            auto rows) {
        constexpr int ROWS = decltype(rows)::value;
        step += at.first;
        if constexpr (decltype(turned)::value) {
#pragma unroll
            for (int i = 0; i < ROWS * K / THREADS; ++i) {
                const int idx = thread + i * THREADS, r = idx / K, k = idx % K;
                cp_async_word(smem_address(&tile[stage][k][r]), from + (first + r) * stride + step * K + k,
                              first + r < extent && step * K + k < s.k);
            }
        } else {
#pragma unroll
            for (int i = 0; i < ROWS * K / 4 / THREADS; ++i) {
                const int idx = thread + i * THREADS, k = idx / (ROWS / 4), r = idx % (ROWS / 4) * 4;
                cp_async_guarded(smem_address(&tile[stage][k][r]), from + (step * K + k) * stride + first + r,
                                 first + r < extent && step * K + k < s.k);
            }
        }
    };
    auto load_stage = [&](int step, int stage) {
        load_operand(a_tile, A, turned_stride(a_stride(s), s.m, A_TURNED), block_m, s.m, step, stage, std::bool_constant<A_TURNED>{}, std::integral_constant<int, BM>{});
        load_operand(b_tile, B, turned_stride(b_stride(s), s.n, B_TURNED), block_n, s.n, step, stage, std::bool_constant<B_TURNED>{}, std::integral_constant<int, BN>{});
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
    if constexpr (STYLE == FIXED) C += size_t(at.batch) * s.m * s.n;
#pragma unroll
    for (int i = 0; i < TM; ++i) {
        const int m = block_m + row + i / 4 * 16 + i % 4;
#pragma unroll
        for (int j = 0; j < TN; j += 4) {
            const int n = block_n + column + j * 8;
            if (m < s.m && n < s.n)
                *reinterpret_cast<float4*>(C + m * d_stride(s) + n) = make_float4(
                    scaled_one(s, acc[i][j]), scaled_one(s, acc[i][j + 1]), scaled_one(s, acc[i][j + 2]), scaled_one(s, acc[i][j + 3]));
        }
    }
}

// ---------------------------------------------------------------------------------------------------------------
// The probes
// ---------------------------------------------------------------------------------------------------------------
#define MAPS const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap, const __grid_constant__ CUtensorMap
#define SPECIALIZED_PROBE(STYLE, ...) template __global__ void specialized<STYLE, __VA_ARGS__>(bf16*, const ShapeOf<STYLE>, int, MAPS);
#define MULTISTAGE_PROBE(STYLE, ...) \
    template __global__ void multistage<STYLE, __VA_ARGS__>(const bf16*, const bf16*, bf16*, const ShapeOf<STYLE>, int, MAPS);
#define MMA_PROBE(STYLE, ...) \
    template __global__ void mma_ring<STYLE, __VA_ARGS__>(const bf16*, const bf16*, bf16*, const ShapeOf<STYLE>);
#define FFMA_PROBE(STYLE, ...) \
    template __global__ void ffma_ring<STYLE, __VA_ARGS__>(const float*, const float*, float*, const ShapeOf<STYLE>);
#define EACH_STYLE(PROBE, ...) PROBE(FIXED, __VA_ARGS__) PROBE(GENERAL, __VA_ARGS__)
#define FROM_REGISTERS(PROBE, ...) EACH_STYLE(PROBE, __VA_ARGS__, REGISTERS_OUT)
#define THROUGH_SMEM(PROBE, ...) FROM_REGISTERS(PROBE, __VA_ARGS__) EACH_STYLE(PROBE, __VA_ARGS__, SMEM_OUT)
#define EACH_EPILOGUE(PROBE, ...) THROUGH_SMEM(PROBE, __VA_ARGS__) EACH_STYLE(PROBE, __VA_ARGS__, TMA_OUT)
#define AND_PARTS(PROBE, ...) EACH_EPILOGUE(PROBE, __VA_ARGS__) PROBE(GENERAL, __VA_ARGS__, PART_OUT)

#ifdef HAS_SM90A
// n, m64 blocks of a consumer, consumers, stages, persistent, setmaxnreg, pingpong, epilogue
AND_PARTS(SPECIALIZED_PROBE, 64, 1, 1, 4, false, false, false)
AND_PARTS(SPECIALIZED_PROBE, 128, 1, 1, 4, true, false, false)
AND_PARTS(SPECIALIZED_PROBE, 128, 2, 1, 4, false, false, false)
AND_PARTS(SPECIALIZED_PROBE, 128, 1, 2, 4, true, true, false)
AND_PARTS(SPECIALIZED_PROBE, 256, 1, 2, 4, true, true, false)
AND_PARTS(SPECIALIZED_PROBE, 128, 2, 2, 4, true, true, false)
AND_PARTS(SPECIALIZED_PROBE, 192, 1, 3, 3, true, true, false)
EACH_EPILOGUE(SPECIALIZED_PROBE, 128, 1, 2, 4, true, false, true)
EACH_EPILOGUE(SPECIALIZED_PROBE, 256, 1, 2, 4, true, true, true)
// copy, n, m64 blocks of a warpgroup, warpgroups, stages, epilogue
AND_PARTS(MULTISTAGE_PROBE, TMA, 64, 1, 1, 4)
AND_PARTS(MULTISTAGE_PROBE, TMA, 128, 1, 1, 4)
AND_PARTS(MULTISTAGE_PROBE, TMA, 128, 1, 2, 3)
AND_PARTS(MULTISTAGE_PROBE, TMA, 256, 1, 2, 3)
THROUGH_SMEM(MULTISTAGE_PROBE, CP_ASYNC, 64, 1, 1, 4)
THROUGH_SMEM(MULTISTAGE_PROBE, CP_ASYNC, 128, 1, 1, 4)
THROUGH_SMEM(MULTISTAGE_PROBE, CP_ASYNC, 128, 1, 2, 3)
THROUGH_SMEM(MULTISTAGE_PROBE, CP_ASYNC, 256, 1, 2, 3)
#endif
#define EACH_FRAGMENTS(...) THROUGH_SMEM(MMA_PROBE, __VA_ARGS__, 2) THROUGH_SMEM(MMA_PROBE, __VA_ARGS__, 1)
// warp m, warp n, warps along m, along n, k, stages, fragments, epilogue
EACH_FRAGMENTS(32, 32, 2, 2, 32, 4)
EACH_FRAGMENTS(32, 64, 2, 2, 64, 3)
EACH_FRAGMENTS(64, 32, 2, 4, 64, 3)
EACH_FRAGMENTS(64, 64, 2, 2, 32, 4)
EACH_FRAGMENTS(64, 64, 2, 4, 32, 3)
EACH_FRAGMENTS(32, 32, 2, 4, 64, 4)
EACH_FRAGMENTS(32, 32, 2, 2, 32, 1)
EACH_FRAGMENTS(64, 32, 2, 4, 64, 1)
EACH_FRAGMENTS(64, 64, 2, 2, 32, 1)
// rows and columns of a thread, warps along m, along n, k, stages, whether A and B are turned
EACH_STYLE(FFMA_PROBE, 8, 8, 4, 2, 8, 1, false, false)
EACH_STYLE(FFMA_PROBE, 8, 8, 4, 2, 8, 2, false, false)
EACH_STYLE(FFMA_PROBE, 8, 8, 4, 2, 8, 2, true, false)
EACH_STYLE(FFMA_PROBE, 8, 8, 4, 2, 8, 2, true, true)
EACH_STYLE(FFMA_PROBE, 8, 8, 2, 4, 16, 2, false, false)
EACH_STYLE(FFMA_PROBE, 8, 8, 2, 4, 16, 1, true, false)
EACH_STYLE(FFMA_PROBE, 8, 8, 2, 2, 8, 2, false, false)
EACH_STYLE(FFMA_PROBE, 8, 8, 2, 2, 8, 1, true, true)
EACH_STYLE(FFMA_PROBE, 16, 8, 2, 2, 8, 2, false, false)
EACH_STYLE(FFMA_PROBE, 8, 4, 2, 2, 16, 2, true, false)
EACH_STYLE(FFMA_PROBE, 8, 4, 2, 2, 16, 1, false, false)
