// What do all SMs together get out of L2 by TMA where they share tiles as a GEMM's CTAs do?
//
// One CTA an SM, a ring of stages: a producer warp asks for a box or more of A and of B a step, a consumer warp waits for them,
// lets time pass as math would, and frees the stage. Which rows each walks is in a table, by SM or by CTA. All tiles are read
// once, then the CTAs meet, and walk them again and again with the clock read at two of the steps.

#include "grid.cuh"

constexpr uint32_t kThreads = 64;
constexpr uint32_t kMostStages = 8;
constexpr uint32_t kRowBytes = 128;  // of a box

struct Plan {
    uint32_t num_live, num_stages;
    uint32_t a_boxes, a_rows, b_rows;            // of a stage; rows of one box; b_rows 0: there is no B
    uint32_t num_steps, row_step, column_step;   // after so many steps a walk begins again; from one step to the next
    uint32_t num_warm, num_lead, num_timed, num_behind;  // steps before the CTAs meet, before the clock, timed, behind
    uint32_t math_cycles;                        // from full to empty at least, and from one stage to the next
    uint32_t is_by_cta;                          // places are those of CTAs, not of SMs
};

struct Place {
    uint32_t is_live, row_a, row_b, column, delay_cycles, first_step;
};

// What each live CTA says of itself, at its place in the table.
struct Told {
    int64_t sm, checksum, cycles, middle_ns;
};

struct Shared {
    uint64_t full[kMostStages], empty[kMostStages];
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

// Where in the ring and in the walk a warp is; goes on from one phase to the next.
struct Cursor {
    uint32_t stage = 0, parity = 0, step = 0;

    __device__ __forceinline__ void next(const Plan &plan) {
        if (++step == plan.num_steps) step = 0;
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

__device__ __forceinline__ bool produce(const Plan &plan, const Place &place, const void *map_a, const void *map_b, Shared &shared,
                                        Cursor &at, uint32_t count) {
    const uint32_t a_bytes = plan.a_rows * kRowBytes, stage_bytes = plan.a_boxes * a_bytes + plan.b_rows * kRowBytes;
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty), ring = smem_address(stages);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier(empty + at.stage * 8, at.parity ^ 1)) return false;
        if (is_elected()) {
            const uint32_t barrier = full + at.stage * 8, column = place.column + at.step * plan.column_step;
            const uint32_t row = at.step * plan.row_step;
            uint32_t to = ring + at.stage * stage_bytes;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
#pragma unroll 1
            for (uint32_t box = 0; box < plan.a_boxes; ++box, to += a_bytes)
                copy(to, map_a, column, place.row_a + row + box * plan.a_rows, barrier);
            if (plan.b_rows) copy(to, map_b, column, place.row_b + row, barrier);
        }
        __syncwarp();
        at.next(plan);
    }
    return true;
}

__device__ __forceinline__ bool consume(const Plan &plan, Shared &shared, Cursor &at, uint32_t count, bool is_timed, Told &told) {
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty);
    const uint32_t first = is_timed ? plan.num_lead : ~0u, middle = plan.num_lead + plan.num_timed / 2;
    const uint32_t last = plan.num_lead + plan.num_timed;
    int64_t begin = 0, until = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier(full + at.stage * 8, at.parity)) return false;
        const int64_t now = clock_now();
        if (is_timed) {
            if (i == first) begin = now;
            if (i == middle) told.middle_ns = static_cast<int64_t>(now_ns());
            if (i == last) told.cycles = now - begin;
        }
        if (plan.math_cycles) {
            until = (now > until ? now : until) + plan.math_cycles;
            pause_until(until);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + at.stage * 8) : "memory");
        at.next(plan);
    }
    return true;
}

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    ring(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const void *map_a, const void *map_b, Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx(), idx = plan.is_by_cta ? blockIdx.x : sm;
    const Place place = places[idx];
    if (threadIdx.x == 0) {
        shared.checksum = 0;
        shared.is_well = 1;
        const uint32_t num_ids = num_sm_ids();
        if (!meet(flags, &flags->arrived, gridDim.x < num_ids ? gridDim.x : num_ids, 200)) fail(flags, shared);
        if (atomicExch(&flags->claimed[sm % kMostSms], 1u)) fail(flags, shared);  // a second CTA of this SM
        for (uint32_t stage = 0; stage < plan.num_stages; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[stage])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.empty[stage])) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (!place.is_live) return;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), count = plan.num_lead + plan.num_timed + plan.num_behind;
    Told mine = {sm, 0, 0, 0};
    Cursor at;
    at.step = place.first_step;
#pragma unroll 1
    for (uint32_t phase = 0; phase < 2; ++phase) {
        if (threadIdx.x == 0 && shared.is_well) {
            if (!meet_in_time(flags, &flags->met, (phase + 1) * plan.num_live, phase)) fail(flags, shared);
            shared.start = clock_now() + (phase ? place.delay_cycles : 0);
        }
        __syncthreads();
        if (!shared.is_well) break;
        pause_until(shared.start);
        __syncwarp();
        const uint32_t steps = phase ? count : plan.num_warm;
        const bool is_well = warp ? consume(plan, shared, at, steps, phase, mine) : produce(plan, place, map_a, map_b, shared, at, steps);
        if (!is_well) fail(flags, shared);
        __syncthreads();
    }
    const uint32_t num_bytes = plan.num_stages * (plan.a_boxes * plan.a_rows + plan.b_rows) * kRowBytes;
    uint32_t checksum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < num_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stages + byte);
        checksum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    if (threadIdx.x == 32) {
        mine.checksum = shared.checksum;
        told[idx] = mine;
    }
}

#endif
