// How long does each piece of an epilogue take? Accumulators of wgmma to global memory in three ways, with the clock between.
//
// `shapes.inc` is written by case.py: an entry point for each tile, type and way. A CTA holds a tile of kM x kN floats as wgmma
// leaves them (64 rows a warpgroup) and writes it to its place in a matrix of 12 tiles a row, round after round, each round
// at a nanosecond that all CTAs agreed on. Afterwards it copies its tile out of the matrix, for the check.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kRounds = 7;
constexpr int kPieces = 8;
constexpr int kTileColumns = 12;      // tiles in a row of the matrix
constexpr int64_t kRoundNs = 20000;   // from one round to the next
constexpr uint32_t kPatience = 1u << 22;

struct Plan {
    uint32_t stagger_ns;  // the last CTA begins so much later than the first
    uint32_t never;       // 0
};

enum Way { kDirect, kStaged, kTma };

// What thread 0 read off the clock: one reading before the first piece, one after each.
struct Readings {
    int64_t at[kPieces + 1];
};

__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ int64_t now_ns() {
    int64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
__device__ __forceinline__ void settle(uint32_t value) {
    asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0x7ffffff1; @p trap; }" ::"r"(value) : "memory");
}

// All CTAs of the grid agree on a time; 0 if one never comes. words: arrivals, the time.
__device__ int64_t agree(unsigned long long *words) {
    __shared__ int64_t agreed;
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned long long before = atomicAdd(&words[0], 1ull);
        if (before == gridDim.x - 1) atomicExch(&words[1], static_cast<unsigned long long>(now_ns() + 10000));
        uint32_t tries = 0;
        unsigned long long time = 0;
        while (!(time = atomicAdd(&words[1], 0ull)) && ++tries < kPatience) __nanosleep(100);
        agreed = static_cast<int64_t>(time);
    }
    __syncthreads();
    return agreed;
}

template <int kM, int kN, bool kIsWide>  // wide: fp32 leaves, else bf16
struct Tile {
    static constexpr int kThreads = 2 * kM;
    static constexpr int kNumAccumulators = kN / 2;
    static constexpr int kElementBytes = kIsWide ? 4 : 2;
    static constexpr int kRowBytes = kN * kElementBytes;
    static constexpr int kPitchBytes = kTileColumns * kRowBytes;
    static constexpr int kPanels = kRowBytes / 128;     // of 128 bytes, as swizzle 128B has them
    static constexpr int kChunks = kM * kRowBytes / 16 / kThreads;  // of 16 bytes, a thread

    // ---- registers to global memory, two neighbours a lane
    static __device__ __forceinline__ void store_direct(const float (&acc)[kNumAccumulators], unsigned char *tile) {
        const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4, column = lane % 4 * 2;
        unsigned char *at = tile + static_cast<uint64_t>(row) * kPitchBytes + column * kElementBytes;
#pragma unroll
        for (int j = 0; j < kN / 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                unsigned char *to = at + half * 8 * kPitchBytes + j * 8 * kElementBytes;
                const float low = acc[4 * j + 2 * half], high = acc[4 * j + 2 * half + 1];
                if constexpr (kIsWide)
                    asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(low), "f"(high) : "memory");
                else
                    asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(pack(low, high)) : "memory");
            }
    }

    // ---- registers to shared memory: panels of 128 bytes a row, chunks of 16 bytes XORed with the row
    static __device__ __forceinline__ void write_staging(const float (&acc)[kNumAccumulators], uint32_t smem) {
        const uint32_t lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * 16;
        if constexpr (kIsWide) {
            const uint32_t row = warp_row + lane / 4;  // and 8 rows further, which have the same remainder
#pragma unroll
            for (int j = 0; j < kN / 8; ++j)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const uint32_t chunk = (j % 4) * 2 + lane % 4 / 2;
                    const uint32_t at = smem + j / 4 * (kM * 128) + (row + 8 * half) * 128 + ((chunk ^ row % 8) * 16) + lane % 2 * 8;
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(acc[4 * j + 2 * half]),
                                 "f"(acc[4 * j + 2 * half + 1])
                                 : "memory");
                }
        } else {
            const uint32_t row = warp_row + lane % 16;
#pragma unroll
            for (int j = 0; j < kN / 16; ++j) {
                const uint32_t chunk = (j % 4) * 2 + lane / 16;
                const uint32_t at = smem + j / 4 * (kM * 128) + row * 128 + ((chunk ^ row % 8) * 16);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
                             "r"(pack(acc[8 * j], acc[8 * j + 1])), "r"(pack(acc[8 * j + 2], acc[8 * j + 3])),
                             "r"(pack(acc[8 * j + 4], acc[8 * j + 5])), "r"(pack(acc[8 * j + 6], acc[8 * j + 7]))
                             : "memory");
            }
        }
    }

    static __device__ __forceinline__ uint4 read_chunk(uint32_t smem, uint32_t idx) {
        constexpr uint32_t kPerRow = kRowBytes / 16;
        const uint32_t row = idx / kPerRow, column = idx % kPerRow;
        const uint32_t at = smem + column / 8 * (kM * 128) + row * 128 + ((column % 8 ^ row % 8) * 16);
        uint4 words;
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "r"(at) : "memory");
        return words;
    }

    // ---- shared memory to nowhere: what the reads alone cost
    static __device__ __forceinline__ void read_staging(uint32_t smem) {
        uint32_t all = 0;
#pragma unroll 8
        for (int i = 0; i < kChunks; ++i) {
            const uint4 words = read_chunk(smem, i * kThreads + threadIdx.x);
            all ^= words.x ^ words.y ^ words.z ^ words.w;
        }
        settle(all);
    }

    // ---- shared memory to global memory, 16 bytes a lane, row after row
    static __device__ __forceinline__ void store_rows(uint32_t smem, unsigned char *tile) {
        constexpr uint32_t kPerRow = kRowBytes / 16;
#pragma unroll 8
        for (int i = 0; i < kChunks; ++i) {
            const uint32_t idx = i * kThreads + threadIdx.x;
            const uint4 words = read_chunk(smem, idx);
            unsigned char *to = tile + static_cast<uint64_t>(idx / kPerRow) * kPitchBytes + idx % kPerRow * 16;
            asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w) : "memory");
        }
    }

    static __device__ __forceinline__ void store_boxes(const void *map, uint32_t smem, uint32_t tile_row, uint32_t tile_column) {
#pragma unroll
        for (uint32_t panel = 0; panel < kPanels; ++panel)
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
                         "r"(tile_column * kN + panel * (128 / kElementBytes)), "r"(tile_row * kM), "r"(smem + panel * (kM * 128))
                         : "memory");
    }
};

__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async;" ::: "memory"); }
__device__ __forceinline__ void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// All warps; the clock is not read before the barrier has let this one go, as it is right behind a bare one.
__device__ __forceinline__ void meet() {
    __syncthreads();
    __syncwarp();
}

template <class T, Way kWay>
__device__ __forceinline__ void epilogue(const float (&acc)[T::kNumAccumulators], uint32_t smem, unsigned char *tile,
                                         const void *map, uint32_t tile_row, uint32_t tile_column, Readings &seen) {
    seen.at[0] = now();
    if constexpr (kWay == kDirect) {
        T::store_direct(acc, tile);
        seen.at[1] = now();
        fence_gpu();
        meet();  // the other warps' stores, too
        seen.at[2] = now();
    } else if constexpr (kWay == kStaged) {
        T::write_staging(acc, smem);
        seen.at[1] = now();
        meet();
        seen.at[2] = now();
        T::store_rows(smem, tile);
        seen.at[3] = now();
        fence_gpu();
        meet();
        seen.at[4] = now();
        T::read_staging(smem);
        seen.at[5] = now();
    } else {
        T::write_staging(acc, smem);
        seen.at[1] = now();
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        seen.at[2] = now();
        meet();
        seen.at[3] = now();
        if (threadIdx.x == 0) {
            T::store_boxes(map, smem, tile_row, tile_column);
            seen.at[4] = now();
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            seen.at[5] = now();
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
            seen.at[6] = now();
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
            seen.at[7] = now();
        }
    }
}

template <class T, Way kWay>
__device__ __forceinline__ void run(const Plan &plan, const float *source, unsigned char *matrix, const void *map,
                                    unsigned long long *words, int64_t *times, uint4 *out) {
    constexpr int kN = 2 * T::kNumAccumulators, kM = T::kThreads / 2;
    uint32_t smem = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    asm volatile("" : "+r"(smem));  // worked out here, and not between two readings of the clock
    const uint32_t tile_row = blockIdx.x / kTileColumns, tile_column = blockIdx.x % kTileColumns;
    unsigned char *tile = matrix + static_cast<uint64_t>(tile_row) * kM * T::kPitchBytes + tile_column * T::kRowBytes;
    for (int i = threadIdx.x; i < kM * T::kRowBytes / 16; i += T::kThreads)  // nothing old can pass for an answer
        *reinterpret_cast<uint4 *>(tile + static_cast<uint64_t>(i / (T::kRowBytes / 16)) * T::kPitchBytes + i % (T::kRowBytes / 16) * 16) =
            make_uint4(~0u, ~0u, ~0u, ~0u);
    float acc[T::kNumAccumulators];
#pragma unroll
    for (int i = 0; i < T::kNumAccumulators; ++i) acc[i] = source[(blockIdx.x * T::kNumAccumulators + i) * T::kThreads + threadIdx.x];
    fence_gpu();
    fence_async();
    const int64_t agreed = agree(words);
    int64_t *of_cta = times + blockIdx.x * (kRounds * kPieces);
    const int64_t delay = gridDim.x > 1 ? static_cast<int64_t>(plan.stagger_ns) * blockIdx.x / (gridDim.x - 1) : 0;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        Readings seen;
#pragma unroll
        for (int i = 0; i < kPieces + 1; ++i) seen.at[i] = 0;
        while (now_ns() < agreed + delay + round * kRoundNs) {}
        meet();
        epilogue<T, kWay>(acc, smem, tile, map, tile_row, tile_column, seen);
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i < kPieces; ++i)
                of_cta[round * kPieces + i] = !agreed ? -1 : seen.at[i + 1] ? seen.at[i + 1] - seen.at[i] : 0;
        }
#pragma unroll
        for (int i = 0; i < T::kNumAccumulators; ++i) acc[i] = -acc[i];  // so that each round converts anew
        __syncthreads();
    }
    fence_async();
    __syncthreads();
    for (int i = threadIdx.x; i < kM * T::kRowBytes / 16; i += T::kThreads)
        out[static_cast<uint64_t>(blockIdx.x) * (kM * T::kRowBytes / 16) + i] = __ldcg(reinterpret_cast<const uint4 *>(
            tile + static_cast<uint64_t>(i / (T::kRowBytes / 16)) * T::kPitchBytes + i % (T::kRowBytes / 16) * 16));
    static_assert(kN % 32 == 0, "panels are whole");
}

#define EPILOGUE(name, m, n, is_wide, way)                                                                            \
    extern "C" __global__ void __launch_bounds__(2 * m, 1)                                                            \
        name(const __grid_constant__ Plan plan, const float *source, unsigned char *matrix, const void *map,          \
             unsigned long long *words, int64_t *times, uint4 *out) {                                                 \
        run<Tile<m, n, is_wide>, way>(plan, source, matrix, map, words, times, out);                                  \
    }

#include "shapes.inc"

#endif
