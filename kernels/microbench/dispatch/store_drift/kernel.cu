// How far do the stores of an epilogue set CTAs apart that began together, and how far those that follow on their SMs?
//
// One or two CTAs an SM. Those of the first wave begin at one moment of the time that all SMs share; the others come as slots
// fall free. Each walks a row and a column of tiles through a ring by TMA, as in wave_sharing, or lets time pass; then it stores a
// tile in one of five ways, waits until that has been read, or has arrived, and leaves. It notes its SM's clock at each step.

#include "grid.cuh"

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32, kMostStages = 8, kRowBytes = 128;
constexpr uint32_t kPieceBytes = 8192;                             // of a bulk copy
constexpr uint32_t kTileRows = 128, kPitchWords = 8192 / 4;        // of the matrix that boxes and fragments go to
constexpr int64_t kIdleCycles = 20000;                            // of CTAs that only keep others off their SM
constexpr uint32_t kNone = 0, kBulk = 1, kBox = 2, kWide = 3, kFragment = 4, kPair = 5;

struct Plan {
    uint32_t m_tiles, n_tiles, group;            // of the raster
    uint32_t a_rows, b_rows, num_stages;
    uint32_t num_steps, wrap_steps;              // steps of a CTA; after so many a walk begins again
    uint32_t math_cycles, work_cycles;           // from full to empty; from a CTA's start to its stores where it has no steps
    uint32_t way, store_bytes, waits;            // waits: until what is stored has arrived, not until it has been read
    uint32_t is_by_sm;                           // CTAs of an SM store to the same place
    uint32_t num_first, num_live;                // CTAs of the first wave; of these those that are not idle
    uint32_t salt;
    uint32_t live[5];                            // a bit for each SM
};

// What each CTA says of itself: clocks of its SM.
struct Told {
    int64_t sm, is_well, checksum, zero, start, full, middle, walked, begin, issued, read, done, exit, ns;
};

extern __shared__ __align__(1024) unsigned char stages[];

// The word of the matrix that byte `at` of a tile goes to.
__device__ __forceinline__ uint32_t place_of(const Plan &plan, uint32_t tile, uint32_t at) {
    if (plan.way == kBulk || plan.way == kWide) return tile * (plan.store_bytes / 4) + at / 4;
    const uint32_t width = plan.store_bytes / kTileRows, across = kPitchWords * 4 / width;  // bytes of a tile's row; tiles of a panel
    const uint32_t box = at / (kTileRows * kRowBytes), rest = at % (kTileRows * kRowBytes);
    return (tile / across * kTileRows + rest / kRowBytes) * kPitchWords + (tile % across * width + box * kRowBytes + rest % kRowBytes) / 4;
}

__device__ __forceinline__ bool is_live(const Plan &plan, uint32_t sm) { return sm < 32 * 5 && plan.live[sm / 32] >> sm % 32 & 1; }

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ bool is_elected() {
    uint32_t chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen)::"memory");
    return chosen;
}

// By a whole warp, which looks sooner than a lone lane.
__device__ __forceinline__ bool wait_mbarrier(uint32_t barrier, uint32_t parity) {
    const int64_t begin = clock_now();
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (!is_done && clock_now() - begin > kPatienceCycles) return false;
    }
    return true;
}

__device__ __forceinline__ void copy(uint32_t to, const void *map, uint32_t column, uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

// The steps of a CTA, by its first two warps; the second notes when the first stage and the middle one are full.
__device__ __forceinline__ bool walk(const Plan &plan, uint32_t m, uint32_t n, const void *map_a, const void *map_b, uint32_t full,
                                     uint32_t empty, Told &mine) {
    const uint32_t a_bytes = plan.a_rows * kRowBytes, stage_bytes = a_bytes + plan.b_rows * kRowBytes;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    uint32_t stage = 0, step = 0, parity = warp ? 0 : 1;
    int64_t until = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < plan.num_steps; ++i) {
        if (!wait_mbarrier((warp ? full : empty) + stage * 8, parity)) return false;
        if (warp == 0) {
            if (is_elected()) {
                const uint32_t barrier = full + stage * 8, to = smem_address(stages) + stage * stage_bytes;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
                copy(to, map_a, step * (kRowBytes / 2), m * plan.a_rows, barrier);
                copy(to + a_bytes, map_b, step * (kRowBytes / 2), n * plan.b_rows, barrier);
            }
        } else {
            const int64_t now = clock_now();
            if (i == 0) mine.full = now;
            if (i == plan.num_steps / 2) mine.middle = now;
            if (plan.math_cycles) {
                until = (now > until ? now : until) + plan.math_cycles;
                pause_until(until);
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + stage * 8) : "memory");
        }
        __syncwarp();
        if (++step == plan.wrap_steps) step = 0;
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    return true;
}

__device__ __forceinline__ void put(uint32_t *matrix, const Plan &plan, uint32_t word) {
    asm volatile("st.global.b32 [%0], %1;" ::"l"(matrix + word), "r"(word_at(word ^ plan.salt)) : "memory");
}

__device__ __forceinline__ void put_pair(uint32_t *matrix, const Plan &plan, uint32_t word) {
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(matrix + word), "r"(word_at(word ^ plan.salt)),
                 "r"(word_at((word + 1) ^ plan.salt))
                 : "memory");
}

// Rows of a warp's fragment, kWords of each lane: eight rows of four lanes, then the other eight, along the row.
template <uint32_t kWords>
__device__ __forceinline__ void put_fragments(uint32_t *matrix, const Plan &plan, uint32_t tile) {
    const uint32_t width = plan.store_bytes / kTileRows, across = kPitchWords * 4 / width, lane = threadIdx.x % 32;
    const uint32_t row = tile / across * kTileRows + threadIdx.x / 32 * (kTileRows / kWarps) + lane / 4;
    const uint32_t first = row * kPitchWords + tile % across * (width / 4) + lane % 4 * kWords;
#pragma unroll 4
    for (uint32_t at = 0; at < width / 4; at += 4 * kWords)
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t word = first + at + half * 8 * kPitchWords;
            if constexpr (kWords == 1) put(matrix, plan, word);
            else put_pair(matrix, plan, word);
        }
}

__device__ __forceinline__ void put_wide(uint32_t *matrix, const Plan &plan, uint32_t tile) {
#pragma unroll 4
    for (uint32_t at = threadIdx.x * 16; at < plan.store_bytes; at += kThreads * 16) {
        const uint32_t word = place_of(plan, tile, at);
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(matrix + word), "r"(word_at(word ^ plan.salt)),
                     "r"(word_at((word + 1) ^ plan.salt)), "r"(word_at((word + 2) ^ plan.salt)), "r"(word_at((word + 3) ^ plan.salt))
                     : "memory");
    }
}

// Into shared memory, as the tile's bytes will lie there.
__device__ __forceinline__ void stage_tile(const Plan &plan, uint32_t tile) {
#pragma unroll 4
    for (uint32_t at = threadIdx.x * 16; at < plan.store_bytes; at += kThreads * 16) {
        const uint32_t word = place_of(plan, tile, at);
        *reinterpret_cast<uint4 *>(stages + at) = make_uint4(word_at(word ^ plan.salt), word_at((word + 1) ^ plan.salt),
                                                             word_at((word + 2) ^ plan.salt), word_at((word + 3) ^ plan.salt));
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// By one thread; all copies of a tile are one group.
__device__ __forceinline__ void store_bulk(unsigned char *matrix, const void *map_d, const Plan &plan, uint32_t tile, Told &mine) {
    if (plan.way == kBulk) {
        for (uint32_t at = 0; at < plan.store_bytes; at += kPieceBytes)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                             matrix + static_cast<uint64_t>(tile) * plan.store_bytes + at),
                         "r"(smem_address(stages) + at), "r"(kPieceBytes)
                         : "memory");
    } else {
        const uint32_t boxes = plan.store_bytes / (kTileRows * kRowBytes), across = kPitchWords * 4 / kRowBytes / boxes;
        for (uint32_t box = 0; box < boxes; ++box)
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map_d),
                         "r"((tile % across * boxes + box) * (kRowBytes / 2)), "r"(tile / across * kTileRows),
                         "r"(smem_address(stages) + box * kTileRows * kRowBytes)
                         : "memory");
    }
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    mine.issued = clock_now();
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    mine.read = clock_now();
    if (plan.waits) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    mine.done = clock_now();
}

extern "C" __global__ void __launch_bounds__(kThreads)
    drift(const __grid_constant__ Plan plan, Flags *flags, const void *map_a, const void *map_b, unsigned char *matrix, const void *map_d,
          Told *told) {
    __shared__ __align__(8) uint64_t full[kMostStages], empty[kMostStages];
    __shared__ uint32_t checksum, is_well;
    Told mine = {};
    mine.start = clock_now();
    mine.ns = static_cast<int64_t>(now_ns());
    mine.sm = sm_idx();
    mine.is_well = 1;
    mine.zero = -1;
    const uint32_t cta = blockIdx.x, width = plan.group * plan.n_tiles, first = cta / width * plan.group, rest = cta % width;
    const uint32_t height = plan.m_tiles - first < plan.group ? plan.m_tiles - first : plan.group;
    const bool lives = is_live(plan, static_cast<uint32_t>(mine.sm));
    if (threadIdx.x == 0) {
        checksum = 0;
        is_well = 1;
        for (uint32_t i = 0; i < plan.num_stages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(full) + i * 8) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(empty) + i * 8) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        if (cta < plan.num_first && lives && !meet_in_time(flags, &flags->met, plan.num_live, 0)) {
            atomicExch(&flags->has_failed, 1u);
            is_well = 0;
        }
    }
    __syncthreads();
    if (lives && is_well) {
        if (cta < plan.num_first) mine.zero = mine.start = clock_now();
        if (plan.num_steps && threadIdx.x < 64 &&
            !walk(plan, first + rest % height, rest / height, map_a, map_b, smem_address(full), smem_address(empty), mine))
            is_well = 0;
        if (plan.work_cycles) pause_until(mine.start + plan.work_cycles);
        mine.walked = clock_now();
        __syncthreads();
        if (plan.num_steps) {
            const uint32_t stage_bytes = (plan.a_rows + plan.b_rows) * kRowBytes;
            const unsigned char *last = stages + (plan.num_steps - 1) % plan.num_stages * stage_bytes;
            uint32_t sum = 0;
            for (uint32_t byte = threadIdx.x * 16; byte < stage_bytes; byte += kThreads * 16) {
                const uint4 v = *reinterpret_cast<const uint4 *>(last + byte);
                sum += v.x + v.y + v.z + v.w;
            }
            atomicAdd(&checksum, sum);
            __syncthreads();
        }
        const uint32_t tile = plan.is_by_sm ? static_cast<uint32_t>(mine.sm) : cta;
        const bool is_bulk = plan.way == kBulk || plan.way == kBox;
        if (is_bulk) stage_tile(plan, tile);
        __syncthreads();
        mine.begin = mine.issued = mine.read = mine.done = clock_now();
        if (is_bulk) {
            if (threadIdx.x == 0) store_bulk(matrix, map_d, plan, tile, mine);
        } else if (plan.way != kNone) {
            uint32_t *words = reinterpret_cast<uint32_t *>(matrix);
            if (plan.way == kWide) put_wide(words, plan, tile);
            else if (plan.way == kFragment) put_fragments<1>(words, plan, tile);
            else put_fragments<2>(words, plan, tile);
            mine.issued = mine.read = clock_now();
            if (plan.waits) __threadfence();
            mine.done = clock_now();
        }
        __syncthreads();
    }
    if (!lives) pause_until(mine.start + kIdleCycles);
    // The consumer's lane knows of the walk, the first one of bulk copies.
    if (threadIdx.x == 32) {
        told[cta].full = mine.full;
        told[cta].middle = mine.middle;
        told[cta].walked = mine.walked;
    }
    if (threadIdx.x == 0) {
        Told *to = told + cta;
        to->sm = mine.sm;
        to->is_well = is_well;
        to->checksum = checksum;
        to->zero = mine.zero;
        to->start = mine.start;
        to->begin = mine.begin;
        to->issued = mine.issued;
        to->read = mine.read;
        to->done = mine.done;
        to->ns = mine.ns;
        to->exit = lives ? clock_now() : -1;
    }
}

#endif

// How many words of the tiles are not what they should be; behind `drift`, which counts on nobody to look.
extern "C" __global__ void __launch_bounds__(kThreads) look(const __grid_constant__ Plan plan, const uint32_t *matrix, uint32_t *wrong) {
    const uint32_t tile = blockIdx.x;
    if (plan.is_by_sm && !is_live(plan, tile)) return;
    for (uint32_t at = threadIdx.x * 4; at < plan.store_bytes; at += kThreads * 4) {
        const uint32_t word = place_of(plan, tile, at);
        if (matrix[word] != word_at(word ^ plan.salt)) atomicAdd(wrong, 1u);
    }
}
