// When do the first tiles of a GEMM's CTAs come, and how far do CTAs that began together drift apart?
//
// One CTA an SM, a ring of stages: a producer warp asks for a box of A and one of B a step by TMA, a consumer warp waits for
// them, notes the clock, lets time pass as math would, and frees the stage. All begin at one moment of the time that they share.
// What they find is made before: the same code has run or not (rehearsal), tiles lie in L2 or in memory, translations of their
// pages have been pushed out by those of other pages and may have been looked for again, the tensor maps were prefetched or not.

#include "grid.cuh"

constexpr uint32_t kThreads = 64;
constexpr uint32_t kMostStages = 4, kRowBytes = 128;
constexpr uint32_t kFlushBytes = 192u << 20;
constexpr uint32_t kRehearsedSteps = 8;
constexpr uint32_t kTouchBytes = 16;      // of a bulk copy that is made for its translation alone
constexpr uint64_t kPageBytes = 2u << 20;
constexpr int64_t kSettleCycles = 8000;   // after a prefetch

__device__ uint4 flush_area[kFlushBytes / 16];

struct Plan {
    uint32_t num_live;                        // CTAs that walk, spread evenly over SMs
    uint32_t a_rows, b_rows, num_stages, num_steps;
    uint32_t wrap_steps;                      // after so many a walk begins again
    uint32_t pitch_bytes, math_cycles;
    uint32_t is_warm, has_rehearsal, has_prefetch;
    uint32_t evict_by, num_pages;             // pages of the other buffer that are touched: 0 not, 1 by loads, 2 by bulk copies
    uint32_t touch_by;                        // own pages, afterwards: likewise
    uint32_t rehearsed_row;
    uint32_t prepared_rows;                   // of tiles that are brought into L2: all of them, each by one CTA; 0: each CTA its own
};

struct Place {
    uint32_t row_a, row_b;
};

// What each CTA says of itself.
struct Told {
    int64_t sm, checksum, is_live, start_ns;
};

struct Shared {
    uint64_t full[kMostStages], empty[kMostStages], touched;
    int64_t start;
    uint32_t checksum, is_well;
};

extern __shared__ __align__(1024) unsigned char stages[];

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

__device__ __forceinline__ uint32_t load(const void *from) {
    uint32_t word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
    return word;
}

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
}

// Rank of this SM among the live ones, or num_live.
__device__ __forceinline__ uint32_t rank_of(uint32_t sm, uint32_t num_live, uint32_t num_sms) {
    const uint32_t below = sm * num_live / num_sms, upto = (sm + 1) * num_live / num_sms;
    return sm < num_sms && upto > below ? below : num_live;
}

// Where in the ring a warp is; goes on from one walk to the next.
struct Cursor {
    uint32_t stage = 0, parity = 0;

    __device__ __forceinline__ void next(const Plan &plan) {
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// What lies at the end of a row, behind all tiles: of each page that the rows lie in.
__device__ __forceinline__ const unsigned char *behind(const Plan &plan, const unsigned char *tensor, uint32_t row) {
    return tensor + static_cast<uint64_t>(row + 1) * plan.pitch_bytes - 32;
}

// By all threads; looks for the translations of pages. One thread of a CTA waits for copies: `parity` is the barrier's.
__device__ __forceinline__ bool touch(uint32_t by, const unsigned char *first, uint64_t pitch, uint32_t count, uint64_t hash, Shared &shared,
                                      uint32_t &parity, uint32_t &sink) {
    if (by == 1) {
#pragma unroll 8
        for (uint32_t idx = threadIdx.x; idx < count; idx += kThreads) sink |= load(first + idx * pitch + idx * hash % kPageBytes) & 1;
        return true;
    }
    if (by != 2) return true;
    __syncthreads();
    bool is_well = true;
    if (threadIdx.x < 32) {
        const uint32_t barrier = smem_address(&shared.touched);
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count * kTouchBytes) : "memory");
#pragma unroll 1
            for (uint32_t idx = 0; idx < count; ++idx)
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                                 smem_address(stages)),
                             "l"(first + idx * pitch + idx * hash % kPageBytes), "r"(kTouchBytes), "r"(barrier)
                             : "memory");
        }
        __syncwarp();
        is_well = wait_mbarrier(barrier, parity);
    }
    parity ^= 1;
    __syncthreads();
    return is_well;
}

// The walk of a CTA, by its two warps; the consumer notes when each stage is full, less the start.
__device__ __forceinline__ bool walk(const Plan &plan, const Place &place, const void *map_a, const void *map_b, uint32_t count,
                                  Shared &shared, Cursor &at, int32_t *times) {
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty), ring = smem_address(stages);
    const uint32_t a_bytes = plan.a_rows * kRowBytes, stage_bytes = a_bytes + plan.b_rows * kRowBytes;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const int64_t start = shared.start;
    int64_t until = 0;
    uint32_t column = 0, step = 0;
    pause_until(start);
    __syncwarp();
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier((warp ? full : empty) + at.stage * 8, warp ? at.parity : at.parity ^ 1)) return false;
        if (warp == 0) {
            if (is_elected()) {
                const uint32_t barrier = full + at.stage * 8, to = ring + at.stage * stage_bytes;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
                copy(to, map_a, column, place.row_a, barrier);
                copy(to + a_bytes, map_b, column, place.row_b, barrier);
            }
        } else {
            const int64_t now = clock_now();
            if (threadIdx.x == 32) times[i] = static_cast<int32_t>(now - start);
            if (plan.math_cycles) {
                until = (now > until ? now : until) + plan.math_cycles;
                pause_until(until);
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + at.stage * 8) : "memory");
        }
        __syncwarp();
        column += kRowBytes / 2;
        if (++step == plan.wrap_steps) step = column = 0;
        at.next(plan);
    }
    return true;
}

// What else is in L2 out of it.
__device__ __forceinline__ void flush_l2(uint32_t &sink) {
#pragma unroll 8
    for (uint32_t idx = blockIdx.x * kThreads + threadIdx.x; idx < kFlushBytes / 16; idx += gridDim.x * kThreads) {
        uint4 v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(flush_area + idx));
        sink |= v.x | v.y | v.z | v.w;
    }
}

// The words of the last stage of a ring, summed up.
__device__ __forceinline__ void sum_up(const Plan &plan, Shared &shared, const Cursor &at) {
    uint32_t checksum = 0;
    const uint32_t stage_bytes = (plan.a_rows + plan.b_rows) * kRowBytes;
    const uint32_t last = (at.stage + plan.num_stages - 1) % plan.num_stages;
    for (uint32_t byte = threadIdx.x * 16; byte < stage_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stages + last * stage_bytes + byte);
        checksum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
}

__device__ __forceinline__ void init(const Plan &plan, Shared &shared) {
    shared.checksum = 0;
    shared.is_well = 1;
    for (uint32_t idx = 0; idx < plan.num_stages; ++idx) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[idx])) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.empty[idx])) : "memory");
    }
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.touched)) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Tiles into L2 by plain loads, or whatever else is there out of it.
__device__ __forceinline__ void prepare(const Plan &plan, const Place &place, const unsigned char *tensor, uint32_t &sink) {
    if (!plan.is_warm) {
        flush_l2(sink);
        return;
    }
    const uint32_t per_row = plan.wrap_steps * (kRowBytes / 32);
    if (plan.prepared_rows) {
#pragma unroll 8
        for (uint32_t idx = blockIdx.x * kThreads + threadIdx.x; idx < plan.prepared_rows * per_row; idx += gridDim.x * kThreads)
            sink |= load(tensor + static_cast<uint64_t>(idx / per_row) * plan.pitch_bytes + idx % per_row * 32) & 1;
        return;
    }
#pragma unroll 1
    for (uint32_t operand = 0; operand < 2; ++operand) {
        const uint32_t rows = operand ? plan.b_rows : plan.a_rows, row = operand ? place.row_b : place.row_a;
#pragma unroll 8
        for (uint32_t idx = threadIdx.x; idx < rows * per_row; idx += kThreads)
            sink |= load(tensor + static_cast<uint64_t>(row + idx / per_row) * plan.pitch_bytes + idx % per_row * 32) & 1;
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    first(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const unsigned char *pages, const unsigned char *tensor,
          const void *map_a, const void *map_b, const void *other_a, const void *other_b, int32_t *times, int32_t *rehearsed,
          Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx();
    const bool is_first = threadIdx.x == 0, is_live = rank_of(sm, plan.num_live, gridDim.x) < plan.num_live;
    const Place place = places[blockIdx.x];
    uint32_t sink = 0, touched = 0, met = gridDim.x;
    if (is_first) {
        init(plan, shared);
        if (atomicExch(&flags->claimed[sm % kMostSms], 1u)) fail(flags, shared);  // a second CTA of this SM
    }
    __syncthreads();
    Cursor at;
#pragma unroll 1
    for (uint32_t turn = plan.has_rehearsal ? 0 : 1; turn < 2; ++turn) {
        const bool is_real = turn == 1;
        if (is_real) {
            prepare(plan, place, tensor, sink);
            __syncthreads();
            if (is_first && !meet(flags, &flags->met, met, 200)) fail(flags, shared);
            met += gridDim.x;
            __syncthreads();
            bool is_well = touch(plan.evict_by, pages, kPageBytes, plan.num_pages, 37 * 128, shared, touched, sink);
            for (uint32_t operand = 0; operand < 2; ++operand)
                is_well = is_well && touch(plan.touch_by, behind(plan, tensor, operand ? place.row_b : place.row_a), plan.pitch_bytes,
                                           operand ? plan.b_rows : plan.a_rows, 0, shared, touched, sink);
            if (!is_well) fail(flags, shared);
            if (plan.has_prefetch && is_first) {
                asm volatile("prefetch.tensormap [%0];" ::"l"(map_a) : "memory");
                asm volatile("prefetch.tensormap [%0];" ::"l"(map_b) : "memory");
            }
            pause_until(clock_now() + kSettleCycles);
            if (sink) fail(flags, shared);  // no odd words: what was touched has come
        }
        __syncthreads();
        if (is_first) {
            if (!meet_in_time(flags, &flags->met, met, turn)) fail(flags, shared);
            shared.start = clock_now();
        }
        met += gridDim.x;
        __syncthreads();
        if (!shared.is_well || (is_real && !is_live)) break;
        Place where = place;
        if (!is_real) where.row_a = where.row_b = plan.rehearsed_row;
        const uint32_t count = is_real ? plan.num_steps : kRehearsedSteps;
        if (!walk(plan, where, is_real ? map_a : other_a, is_real ? map_b : other_b, count, shared, at,
                  (is_real ? times : rehearsed) + blockIdx.x * count))
            fail(flags, shared);
        __syncthreads();
    }
    sum_up(plan, shared, at);
    if (is_first) told[blockIdx.x] = {sm, shared.checksum, is_live, 0};
}

// Before a launch that is to find nothing of its own.
extern "C" __global__ void __launch_bounds__(kThreads) flush(Flags *flags) {
    uint32_t sink = 0;
    flush_l2(sink);
    if (sink) atomicExch(&flags->has_failed, 1u);  // nobody writes there
}

// The same walk as soon as a CTA starts, behind other kernels; from its first instruction on.
extern "C" __global__ void __launch_bounds__(kThreads)
    plain(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const void *map_a, const void *map_b, int32_t *times,
          Told *told) {
    __shared__ Shared shared;
    const int64_t start = clock_now(), start_ns = static_cast<int64_t>(now_ns());
    if (threadIdx.x == 0) {
        init(plan, shared);
        shared.start = start;
    }
    __syncthreads();
    Cursor at;
    const bool is_well = walk(plan, places[blockIdx.x], map_a, map_b, plan.num_steps, shared, at, times + blockIdx.x * plan.num_steps);
    if (!is_well || (threadIdx.x == 0 && atomicExch(&flags->claimed[sm_idx() % kMostSms], 1u))) fail(flags, shared);
    __syncthreads();
    sum_up(plan, shared, at);
    if (threadIdx.x == 0) told[blockIdx.x] = {sm_idx(), shared.checksum, 1, start_ns};
}

#endif
