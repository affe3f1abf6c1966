// How far apart do CTAs walk that share tiles, step by step, and what sets them apart or draws them together?
//
// One CTA an SM, alone or in clusters of two, each with a ring of stages: rows of A, each CTA's own or shared along a row of
// tiles, and rows of B, which others walk, too; in clusters each CTA brings its part of B and multicasts it. A producer thread
// notes its clock before it asks for a stage, a consumer warp when it is full. All tiles are read once (out of L2), then the
// CTAs meet, begin so many cycles late each, and walk. Their clocks are laid beside the GPU's nanoseconds before and behind.

#include "grid.cuh"

constexpr uint32_t kThreads = 64, kMostStages = 8, kRowBytes = 128, kMostSteps = 256, kTicks = 32;

struct Plan {
    uint32_t num_live, is_by_cta;                       // places are those of CTAs, not of SMs
    uint32_t num_stages, a_rows, b_rows;                // of a stage; a_rows 0: there is no A
    uint32_t num_steps;                                 // after so many a walk begins again
    uint32_t num_warm, num_timed, num_behind;           // steps before the CTAs meet; noted; behind these
    uint32_t math_cycles;                               // for which a stage is kept, one behind the other
    uint32_t flush_lines;                               // of 16 bytes a thread, that each CTA reads first
};

struct Place {
    uint32_t is_live, row_a, row_b, delay_cycles;
};

// What each live CTA says of itself, at its place.
struct Told {
    int64_t sm, checksum;
    int64_t tick_ns[2][kTicks], tick_cycles[2][kTicks];  // the GPU's time, and this SM's clock when it was seen to change
};

struct Shared {
    uint64_t full[kMostStages], empty[kMostStages];
    int64_t start;
    uint32_t checksum, is_well;
    uint32_t asked_at[kMostSteps], full_at[kMostSteps];
};

extern __shared__ __align__(1024) unsigned char stages[];

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ uint32_t cycle_now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ bool wait_mbarrier(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (uint32_t tries = 0; tries < (1u << 18); ++tries) {
        uint32_t is_done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (is_done) return true;
    }
    return false;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void copy(uint32_t to, const void *map, uint32_t column, uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void copy_to_both(uint32_t to, const void *map, uint32_t column, uint32_t row, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
        "%5;" ::"r"(to),
        "l"(map), "r"(column), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>(3))
        : "memory");
}

template <uint32_t kSize>
__device__ __forceinline__ void arrive(uint32_t barrier, uint32_t lane) {
    if (kSize == 1) {
        if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
    } else if (lane < kSize) {
        asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier),
                     "r"(lane)
                     : "memory");
    }
    __syncwarp();
}

// Where in the ring and in the walk a warp is; goes on from one phase to the next.
struct Cursor {
    uint32_t stage, parity, step, held;

    __device__ __forceinline__ void next(const Plan &plan) {
        if (++step == plan.num_steps) step = 0;
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

template <uint32_t kSize>
__device__ __forceinline__ bool produce(const Plan &plan, const Place &place, uint32_t rank, const void *map_a, const void *map_b,
                                        Shared &shared, Cursor &at, uint32_t count, bool is_noted) {
    const uint32_t a_bytes = plan.a_rows * kRowBytes, stage_bytes = a_bytes + plan.b_rows * kRowBytes, part_rows = plan.b_rows / kSize;
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty), ring = smem_address(stages);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier(empty + at.stage * 8, at.parity ^ 1)) return false;
        const uint32_t barrier = full + at.stage * 8, to = ring + at.stage * stage_bytes, column = at.step * (kRowBytes / 2);
        if (is_noted && i < kMostSteps) shared.asked_at[i] = cycle_now();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
        if (a_bytes) copy(to, map_a, column, place.row_a, barrier);
        if (kSize == 1) copy(to + a_bytes, map_b, column, place.row_b, barrier);
        if (kSize > 1) copy_to_both(to + a_bytes + rank * part_rows * kRowBytes, map_b, column, place.row_b + rank * part_rows, barrier);
        at.next(plan);
    }
    return true;
}

template <uint32_t kSize>
__device__ __forceinline__ bool consume(const Plan &plan, Shared &shared, Cursor &at, uint32_t count, bool is_noted, uint32_t lane) {
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty);
    int64_t end = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier(full + at.stage * 8, at.parity)) return false;
        const int64_t now = clock_now();
        if (is_noted && i < kMostSteps && lane == 0) shared.full_at[i] = static_cast<uint32_t>(now);
        if (plan.math_cycles) {  // this stage's work begins behind that of the stage before, which is given back then
            pause_until(end);
            if (i) {
                arrive<kSize>(empty + at.held * 8, lane);
                if (++at.held == plan.num_stages) at.held = 0;
            }
            end = (now < end ? end : now) + plan.math_cycles;
        } else {
            arrive<kSize>(empty + at.stage * 8, lane);
        }
        at.next(plan);
    }
    if (plan.math_cycles && count) {
        pause_until(end);
        arrive<kSize>(empty + at.held * 8, lane);
        if (++at.held == plan.num_stages) at.held = 0;
    }
    return true;
}

// Notes this SM's clock whenever the GPU's time is seen to change.
__device__ __forceinline__ bool lay_beside(int64_t *tick_ns, int64_t *tick_cycles) {
    const int64_t begin = clock_now();
    uint64_t last = now_ns();
#pragma unroll 1
    for (uint32_t tick = 0; tick < kTicks;) {
        const uint64_t ns = now_ns();
        const int64_t cycle = clock_now();
        if (ns != last) {
            tick_ns[tick] = static_cast<int64_t>(ns);
            tick_cycles[tick++] = cycle;
            last = ns;
        }
        if (cycle - begin > kPatienceCycles) return false;
    }
    return true;
}

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
}

template <uint32_t kSize>
__device__ __forceinline__ void walk(const Plan &plan, const Place *places, Flags *flags, const void *map_a, const void *map_b,
                                     const uint4 *flush, Told *told, uint32_t *steps) {
    __shared__ Shared shared;
    uint32_t rank = 0;
    if (kSize > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const uint32_t sm = sm_idx(), idx = plan.is_by_cta ? blockIdx.x : sm;
    const Place place = places[idx];
    Told &mine = told[idx];
    if (threadIdx.x == 0) {
        shared.checksum = 0;
        shared.is_well = 1;
        const uint32_t num_ids = num_sm_ids();
        if (!meet(flags, &flags->arrived, gridDim.x < num_ids ? gridDim.x : num_ids, 200)) fail(flags, shared);
        if (atomicExch(&flags->claimed[sm % kMostSms], 1u)) fail(flags, shared);  // a second CTA of this SM
        for (uint32_t stage = 0; stage < plan.num_stages; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[stage])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(&shared.empty[stage])), "r"(kSize) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (kSize > 1) cluster_sync();
    if (!place.is_live) return;
    uint32_t flushed = 0;
#pragma unroll 4
    for (uint32_t i = 0; i < plan.flush_lines; ++i) {
        const uint4 v = __ldcg(flush + (static_cast<uint64_t>(i) * gridDim.x + blockIdx.x) * kThreads + threadIdx.x);
        flushed |= v.x & v.y & v.z & v.w;
    }
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    Cursor at = {0, 0, 0, 0};
#pragma unroll 1
    for (uint32_t phase = 0; phase < 2; ++phase) {
        if (threadIdx.x == 0 && shared.is_well) {
            if (phase && !lay_beside(mine.tick_ns[0], mine.tick_cycles[0])) fail(flags, shared);
            if (!meet_in_time(flags, &flags->met, (phase + 1) * plan.num_live, phase)) fail(flags, shared);
            shared.start = clock_now() + (phase ? place.delay_cycles : 0);
        }
        __syncthreads();
        if (!shared.is_well) break;
        pause_until(shared.start);
        __syncwarp();
        const uint32_t count = phase ? plan.num_timed + plan.num_behind : plan.num_warm;
        bool is_well = true;
        if (warp) {
            is_well = consume<kSize>(plan, shared, at, count, phase, lane);
        } else {
            if (lane == 0) is_well = produce<kSize>(plan, place, rank, map_a, map_b, shared, at, count, phase);
            __syncwarp();
        }
        if (!is_well) fail(flags, shared);
        __syncthreads();
    }
    if (threadIdx.x == 0 && shared.is_well && !lay_beside(mine.tick_ns[1], mine.tick_cycles[1])) fail(flags, shared);
    const uint32_t num_bytes = plan.num_stages * (plan.a_rows + plan.b_rows) * kRowBytes;
    uint32_t checksum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < num_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stages + byte);
        checksum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kMostSteps; i += kThreads) {
        steps[idx * 2 * kMostSteps + i] = shared.asked_at[i];
        steps[(idx * 2 + 1) * kMostSteps + i] = shared.full_at[i];
    }
    if (threadIdx.x == 32) {
        mine.sm = sm;
        mine.checksum = shared.checksum + (flushed == 0x5EEDF00Du);
    }
    if (kSize > 1) cluster_sync();  // no CTA leaves while another may arrive at its barriers
}

#define WALK(size)                                                                                                                  \
    extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(kThreads)                                             \
        walk_##size(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const void *map_a, const void *map_b,     \
                    const uint4 *flush, Told *told, uint32_t *steps) {                                                              \
        walk<size>(plan, places, flags, map_a, map_b, flush, told, steps);                                                          \
    }

WALK(1)
WALK(2)

#endif
