// How long until a tile of a GEMM's operand is in shared memory: from its request to its first line, its last line, its end?
//
// One CTA an SM. Those on live SMs walk tiles of 64 elements of 16 bits by some rows, as a GEMM walks K, with a given number
// of tiles in flight; the others leave once all are there. Watchers may poll a word of each line that is to be overwritten.

#include "grid.cuh"

constexpr uint32_t kWatchers = 256;             // threads that watch lines, and that issue cp.async
constexpr uint32_t kThreads = kWatchers + 32;   // the last warp issues TMA
constexpr uint32_t kWarps = kWatchers / 32;
constexpr uint32_t kMostInFlight = 4;
constexpr uint32_t kRowBytes = 128;
constexpr uint32_t kPitchBytes = 4096;  // of the tensor
constexpr uint32_t kStepsPerPanel = kPitchBytes / kRowBytes;
constexpr uint32_t kFlushBytes = 192u << 20;
constexpr uint32_t kBins = 512, kBinCycles = 32;  // of the histogram of lines; the last holds all later ones too
constexpr uint32_t kUntouched = 0xFFFFFFFFu;  // no word of the tensor is odd

__device__ uint4 flush_area[kFlushBytes / 16];

struct Plan {
    uint32_t num_live;   // SMs that load, spread evenly over their numbers
    uint32_t num_tiles;  // that are timed, of each SM
    uint32_t num_ahead;  // ... and that are loaded before, untimed
    uint32_t tile_bytes, num_boxes;
    uint32_t num_steps;   // after so many tiles an SM begins again
    uint32_t panel_rows;  // from one SM's rows to the next one's; 0: all walk the same tiles
    uint32_t in_flight;
    uint32_t is_watched, is_together, has_flush;
};

// What each live SM says of itself.
struct Told {
    int64_t sm, checksum, cycles, unused;
};

struct Times {
    int32_t first_cycles, last_cycles, complete_cycles;  // the first two: -1 where nobody watched
};

struct Shared {
    uint64_t mbarriers[kMostInFlight];
    int64_t begin[kMostInFlight][kWarps], end[2][kWarps];
    int64_t issued[kMostInFlight];
    long long first, last;  // lines of the present tile
    int64_t complete;
    uint32_t checksum;
    uint32_t is_well;
    uint32_t lines[kBins];
};

extern __shared__ __align__(1024) unsigned char stages[];

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Rank of this SM among the live ones, or num_live.
__device__ __forceinline__ uint32_t rank_of(uint32_t sm, uint32_t num_live, uint32_t num_sms) {
    const uint32_t below = sm * num_live / num_sms, upto = (sm + 1) * num_live / num_sms;
    return sm < num_sms && upto > below ? below : num_live;
}

__device__ __forceinline__ uint32_t row_of(const Plan &plan, uint32_t rank, uint32_t tile) {
    return rank * plan.panel_rows + tile % plan.num_steps / kStepsPerPanel * (plan.tile_bytes / kRowBytes);
}

__device__ __forceinline__ uint32_t column_of(const Plan &plan, uint32_t tile) {  // bytes
    return tile % plan.num_steps % kStepsPerPanel * kRowBytes;
}

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
}

// ------------------------------------------------------------------------------------------------ watching lines

__device__ __forceinline__ uint32_t look(uint32_t address) {
    uint32_t word;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(word) : "r"(address) : "memory");
    return word;
}

// A word of each line, no two of a warp in one bank.
__device__ __forceinline__ uint32_t watched_word(uint32_t line) { return smem_address(stages) + line * kRowBytes + line % 32 * 4; }

__device__ __forceinline__ void make_untouched(const Plan &plan) {
    for (uint32_t byte = threadIdx.x * 16; byte < plan.tile_bytes; byte += kThreads * 16)
        *reinterpret_cast<uint4 *>(stages + byte) = make_uint4(kUntouched, kUntouched, kUntouched, kUntouched);
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// When a watcher has seen its lines, one or two; kNever for a line that the tile does not have.
struct Seen {
    int64_t at[2];
};

// Each watcher waits for its lines; a tile has at most 2 * kWatchers of them.
__device__ __forceinline__ bool watch(const Plan &plan, Shared &shared, Seen &of_lines) {
    const uint32_t num_lines = plan.tile_bytes / kRowBytes;
    const uint32_t lines[2] = {threadIdx.x, threadIdx.x + kWatchers};
    int64_t (&seen)[2] = of_lines.at;
    seen[0] = lines[0] < num_lines ? 0 : kNever;
    seen[1] = lines[1] < num_lines ? 0 : kNever;
    const int64_t begin = clock_now();
    bool is_well = true;
    while ((seen[0] == 0 || seen[1] == 0) && is_well) {
        const int64_t now = clock_now();
        if (seen[0] == 0 && look(watched_word(lines[0])) != kUntouched) seen[0] = clock_now();
        if (seen[1] == 0 && look(watched_word(lines[1])) != kUntouched) seen[1] = clock_now();
        is_well = now - begin <= kPatienceCycles;
    }
#pragma unroll
    for (int idx = 0; idx < 2; ++idx)
        if (seen[idx] != kNever) {
            atomicMin(&shared.first, static_cast<long long>(seen[idx]));
            atomicMax(&shared.last, static_cast<long long>(seen[idx]));
        }
    return is_well;
}

__device__ __forceinline__ void tally(const Plan &plan, Shared &shared, uint32_t tile, int64_t begin, const Seen &of_lines) {
    if (tile < plan.num_ahead) return;
#pragma unroll
    for (int idx = 0; idx < 2; ++idx)
        if (of_lines.at[idx] != kNever) {
            const uint32_t bin = static_cast<uint32_t>(of_lines.at[idx] - begin) / kBinCycles;
            atomicAdd(&shared.lines[min(bin, kBins - 1)], 1u);
        }
}

__device__ __forceinline__ void note(const Plan &plan, const Shared &shared, Times *times, uint32_t rank, uint32_t tile, int64_t begin,
                                     int64_t end) {
    if (tile < plan.num_ahead) return;
    const int32_t first = plan.is_watched ? static_cast<int32_t>(shared.first - begin) : -1;
    const int32_t last = plan.is_watched ? static_cast<int32_t>(shared.last - begin) : -1;
    times[rank * plan.num_tiles + tile - plan.num_ahead] = {first, last, static_cast<int32_t>(end - begin)};
}

// ------------------------------------------------------------------------------------------------ the two ways

#if __CUDA_ARCH__ >= 900

// By a whole warp: a lone lane, while others of its warp stand elsewhere, looks only every 150 to 200 cycles (seen on an H200).
__device__ __forceinline__ bool wait_mbarrier(uint32_t barrier, uint32_t parity) {
    const int64_t begin = clock_now();
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (clock_now() - begin > kPatienceCycles) return false;
    }
    return true;
}

// One thread: all boxes of a tile into their stage.
__device__ __forceinline__ void issue_boxes(const Plan &plan, Shared &shared, const void *map, uint32_t rank, uint32_t tile) {
    const uint32_t stage = tile % plan.in_flight, barrier = smem_address(&shared.mbarriers[stage]);
    const uint32_t box_bytes = plan.tile_bytes / plan.num_boxes, row = row_of(plan, rank, tile);
    const uint32_t column = column_of(plan, tile) / 2, to = smem_address(stages) + stage * plan.tile_bytes;
    shared.issued[stage] = clock_now();
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(plan.tile_bytes) : "memory");
#pragma unroll 1
    for (uint32_t box = 0; box < plan.num_boxes; ++box)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                to + box * box_bytes),
            "l"(map), "r"(column), "r"(row + box * (box_bytes / kRowBytes)), "r"(barrier)
            : "memory");
}

// The whole walk of one SM, by its last warp, whose first thread issues; with watchers all threads go tile by tile.
__device__ __forceinline__ void walk_by_tma(const Plan &plan, Shared &shared, Flags *flags, const void *map, uint32_t rank,
                                            Times *times, int64_t &began, int64_t &ended) {
    const uint32_t num = plan.num_ahead + plan.num_tiles;
    const bool is_loading = threadIdx.x >= kWatchers, is_loader = threadIdx.x == kWatchers;
    uint32_t num_issued = 0, target = 0;
    if (is_loader) asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
#pragma unroll 1
    for (uint32_t tile = 0; tile < num; ++tile) {
        Seen seen = {{kNever, kNever}};
        if (plan.is_watched) {
            make_untouched(plan);
            if (is_loader) {
                shared.first = kNever;
                shared.last = 0;
            }
            __syncthreads();
        }
        if (is_loading) {
            bool is_well = shared.is_well;
            if (is_loader && is_well) {
                if (plan.is_together) is_well = meet_in_time(flags, &flags->met, target += plan.num_live, tile);
#pragma unroll 1
                while (num_issued < num && num_issued < tile + plan.in_flight) issue_boxes(plan, shared, map, rank, num_issued++);
            }
            const uint32_t stage = tile % plan.in_flight;
            is_well = __all_sync(0xffffffff, is_well);
            is_well = is_well && wait_mbarrier(smem_address(&shared.mbarriers[stage]), tile / plan.in_flight & 1);
            const int64_t complete = clock_now();
            if (is_loader) {
                shared.complete = complete;
                if (!is_well) fail(flags, shared);
                if (tile == plan.num_ahead) began = shared.issued[stage];
                ended = complete;
            }
            __syncwarp();
        } else if (plan.is_watched && !watch(plan, shared, seen)) {
            fail(flags, shared);
        }
        if (plan.is_watched) __syncthreads();
        if (plan.is_watched) tally(plan, shared, tile, shared.issued[0], seen);
        if (is_loader) note(plan, shared, times, rank, tile, shared.issued[tile % plan.in_flight], shared.complete);
        if (plan.is_watched) __syncthreads();
        if (!(plan.is_watched || is_loading) || !shared.is_well) break;
    }
}

#endif

// Watchers: their chunks of a tile into its stage, swizzled as TMA would; a group, empty behind the last tile.
__device__ __forceinline__ void issue_chunks(const Plan &plan, Shared &shared, const unsigned char *tensor, uint32_t rank, uint32_t tile,
                                             uint32_t num) {
    if (tile < num) {
        const uint32_t stage = tile % plan.in_flight;
        const uint32_t row = threadIdx.x / 8, column = threadIdx.x % 8;
        const unsigned char *from = tensor + static_cast<size_t>(row_of(plan, rank, tile) + row) * kPitchBytes +
                                    column_of(plan, tile) + column * 16;
        const uint32_t to = smem_address(stages) + stage * plan.tile_bytes + row * kRowBytes + (column ^ row % 8) * 16;
        if (threadIdx.x % 32 == 0) shared.begin[stage][threadIdx.x / 32] = clock_now();
#pragma unroll 2
        for (uint32_t chunk = 0; chunk < plan.tile_bytes / (kWatchers * 16); ++chunk)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + chunk * kWatchers * 16),
                         "l"(from + static_cast<size_t>(chunk) * (kWatchers / 8) * kPitchBytes)
                         : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int kInFlight>
__device__ __forceinline__ void walk_by_cp_async(const Plan &plan, Shared &shared, Flags *flags, const unsigned char *tensor,
                                                 uint32_t rank, Times *times, int64_t &began, int64_t &ended) {
    const uint32_t num = plan.num_ahead + plan.num_tiles, warp = threadIdx.x / 32;
    const bool is_issuer = threadIdx.x < kWatchers, has_fixed_start = plan.is_watched || plan.is_together;
    uint32_t target = 0;
    if (is_issuer && !has_fixed_start)
        for (uint32_t tile = 0; tile < kInFlight; ++tile) issue_chunks(plan, shared, tensor, rank, tile, num);
#pragma unroll 1
    for (uint32_t tile = 0; tile < num; ++tile) {
        Seen seen = {{kNever, kNever}};
        if (has_fixed_start) {  // one in flight
            if (plan.is_watched) make_untouched(plan);
            if (threadIdx.x == 0) {
                shared.first = kNever;
                shared.last = 0;
                if (plan.is_together && !meet_in_time(flags, &flags->met, target += plan.num_live, tile)) fail(flags, shared);
            }
            __syncthreads();
            if (is_issuer) {
                issue_chunks(plan, shared, tensor, rank, tile, num);
                if (plan.is_watched && !watch(plan, shared, seen)) fail(flags, shared);
            }
        }
        if (is_issuer) {
            asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight - 1) : "memory");
            const int64_t end = clock_now();
            if (threadIdx.x % 32 == 0) shared.end[tile & 1][warp] = end;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int64_t begin = kNever, end = 0;
            for (uint32_t idx = 0; idx < kWarps; ++idx) {
                begin = min(begin, shared.begin[tile % kInFlight][idx]);
                end = max(end, shared.end[tile & 1][idx]);
            }
            note(plan, shared, times, rank, tile, begin, end);
            if (tile == plan.num_ahead) began = begin;
            ended = end;
        }
        if (plan.is_watched) {
            int64_t begin = kNever;
            for (uint32_t idx = 0; idx < kWarps; ++idx) begin = min(begin, shared.begin[0][idx]);
            tally(plan, shared, tile, begin, seen);
        }
        if (!shared.is_well) break;
        __syncthreads();
        if (is_issuer && !has_fixed_start) issue_chunks(plan, shared, tensor, rank, tile + kInFlight, num);
    }
}

// ------------------------------------------------------------------------------------------------ the launch

// All CTAs read what leaves nothing else in L2, and meet.
__device__ __forceinline__ bool assemble(const Plan &plan, Flags *flags, Shared &shared) {
    uint32_t sink = 0;
    if (plan.has_flush) {
#pragma unroll 8
        for (uint32_t idx = blockIdx.x * kThreads + threadIdx.x; idx < kFlushBytes / 16; idx += gridDim.x * kThreads) {
            uint4 v;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "l"(flush_area + idx));
            sink |= v.x | v.y | v.z | v.w;
        }
    }
    if (threadIdx.x == 0) shared.is_well = 1;
    __syncthreads();
    if (sink) fail(flags, shared);  // nobody writes there
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t num_ids = num_sm_ids();
        if (!meet(flags, &flags->arrived, gridDim.x < num_ids ? gridDim.x : num_ids, 200)) fail(flags, shared);
    }
    __syncthreads();
    return shared.is_well;
}

template <bool kIsTma, int kInFlight>
__device__ __forceinline__ void run(const Plan &plan, Flags *flags, const void *source, Times *times, uint32_t *lines,
                                    Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx(), rank = rank_of(sm, plan.num_live, gridDim.x);
    if (!assemble(plan, flags, shared) || rank == plan.num_live) return;
    if (threadIdx.x == 0) {
        shared.checksum = 0;
#if __CUDA_ARCH__ >= 900
        for (uint32_t stage = 0; stage < kMostInFlight; ++stage)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.mbarriers[stage])) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
        if (atomicExch(&flags->claimed[sm % kMostSms], 1u)) shared.is_well = 0;  // a second CTA of this SM
    }
    for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads) shared.lines[bin] = 0;
    __syncthreads();
    if (!shared.is_well) return;
    int64_t began = 0, ended = 0;
#if __CUDA_ARCH__ >= 900
    if (kIsTma) walk_by_tma(plan, shared, flags, source, rank, times, began, ended);
#endif
    if (!kIsTma)
        walk_by_cp_async<kInFlight>(plan, shared, flags, static_cast<const unsigned char *>(source), rank, times, began, ended);
    __syncthreads();
    const uint32_t last = (plan.num_ahead + plan.num_tiles - 1) % plan.in_flight;
    uint32_t checksum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < plan.tile_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stages + last * plan.tile_bytes + byte);
        checksum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&shared.checksum, checksum);
    for (uint32_t bin = threadIdx.x; bin < kBins; bin += kThreads)
        if (shared.lines[bin]) atomicAdd(&lines[bin], shared.lines[bin]);
    __syncthreads();
    if (threadIdx.x == (kIsTma ? kWatchers : 0)) told[rank] = {sm, shared.checksum, ended - began, 0};
}

#define ARRIVAL_KERNEL(name, is_tma, in_flight)                                                                           \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                                \
        name(const __grid_constant__ Plan plan, Flags *flags, const void *source, Times *times, uint32_t *lines, Told *told) { \
        run<is_tma, in_flight>(plan, flags, source, times, lines, told);                                                  \
    }

ARRIVAL_KERNEL(cp_async_1, false, 1)
ARRIVAL_KERNEL(cp_async_3, false, 3)

#if __CUDA_ARCH__ >= 900

ARRIVAL_KERNEL(tma, true, 1)

#endif
