// What does a k-step take whose own warps load a step ahead, multiply, and wait for one another?
//
// CTAs of one or two warpgroups with a ring of stages, as compilers make them without a producer: all warps wait until a stage
// is full, issue the wgmma of a k-step, wait until none or one group runs, meet, and one thread asks by TMA for the stage that
// this has freed. Clocks may be noted between. `shapes.inc` is written by case.py: a struct for each n with its one instruction.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

constexpr uint32_t kRowBytes = 128;
constexpr uint32_t kMostStages = 8;
constexpr int kPatience = 1 << 20;  // tries of a wait

struct Plan {
    uint32_t num_stages, num_boxes, b_rows;  // boxes of each operand in a stage, 64 of k each; rows of B's
    uint32_t num_columns;                    // boxes along k before the walk begins again: a power of two
    uint32_t num_lead, num_timed;            // steps
    uint32_t has_copies, is_noted, has_own_b;
    uint32_t checked;  // the CTA that gives its sums
};

// Of each CTA and warpgroup: cycles from a timed step to the last, and of these what the parts of a step took.
struct Seen {
    uint32_t cycles, wait, issue, drain, meet, refill, has_failed, sm;
};

extern __shared__ __align__(1024) unsigned char ring[];

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (int tries = 0; tries < kPatience; ++tries) {
        uint32_t is_done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (is_done) return true;
    }
    return false;
}

__device__ __forceinline__ void copy(uint32_t to, const void *map, uint32_t column, uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier)
                 : "memory");
}

template <uint32_t kRows>
__device__ __forceinline__ void load(const Plan &plan, const void *map_a, const void *map_b, uint32_t full, uint32_t step, uint32_t stage) {
    const uint32_t a_bytes = kRows * kRowBytes, b_bytes = plan.b_rows * kRowBytes, box_bytes = a_bytes + b_bytes;
    const uint32_t barrier = full + stage * 8, row_b = plan.has_own_b ? blockIdx.x * plan.b_rows : 0;
    uint32_t to = shared_address(ring) + stage * plan.num_boxes * box_bytes;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(plan.num_boxes * box_bytes) : "memory");
#pragma unroll 1
    for (uint32_t box = 0; box < plan.num_boxes; ++box, to += box_bytes) {
        const uint32_t column = ((step * plan.num_boxes + box) & (plan.num_columns - 1)) * 64;
        copy(to, map_a, column, 0, barrier);
        copy(to + a_bytes, map_b, column, row_b, barrier);
    }
}

template <class Shape, int kWarpgroups, int kDepth, int kBoxes>
__device__ __forceinline__ void run(const Plan &plan, const void *map_a, const void *map_b, float *d, Seen *seen) {
    __shared__ __align__(8) uint64_t mbarriers[kMostStages];
    constexpr uint32_t kRows = 64 * kWarpgroups, kThreads = 128 * kWarpgroups;
    const uint32_t full = shared_address(mbarriers), warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
    const uint32_t stage_bytes = plan.num_boxes * (kRows + plan.b_rows) * kRowBytes;
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < plan.num_stages; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + i * 8) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    const uint32_t count = plan.num_lead + plan.num_timed, ahead = plan.has_copies ? plan.num_stages - 1 : plan.num_stages;
    if (threadIdx.x == 0)
        for (uint32_t step = 0; step < ahead; ++step) load<kRows>(plan, map_a, map_b, full, step, step);
    float accumulators[Shape::kNumAccumulators];
#pragma unroll
    for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[i] = 0;
    // Rows of 128 bytes, swizzled; eight of them 1024 bytes further on
    constexpr uint64_t kDescriptor = 1ull << 62 | 64ull << 32 | 1ull << 16;
    uint32_t stage = 0, parity = 0, began = 0, next = ahead % plan.num_stages;
    Seen mine = {};
    bool is_well = true;
#pragma unroll 1
    for (uint32_t step = 0; step < count; ++step) {
        if (step == plan.num_lead) began = now();
        const bool is_noted = plan.is_noted && step >= plan.num_lead;
        uint32_t at = is_noted ? now() : 0, then;
        if (plan.has_copies || step < plan.num_stages) is_well = wait(full + stage * 8, parity) && is_well;
        if (is_noted) {
            then = now();
            mine.wait += then - at;
            at = then;
        }
        const uint32_t from = shared_address(ring) + stage * stage_bytes;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (uint32_t box = 0; box < kBoxes; ++box) {
            const uint32_t a = from + box * (kRows + plan.b_rows) * kRowBytes, b = a + kRows * kRowBytes;
            const uint64_t a_descriptor = kDescriptor | (a + warpgroup * 64 * kRowBytes) >> 4, b_descriptor = kDescriptor | b >> 4;
#pragma unroll
            for (int k = 0; k < 4; ++k) Shape::issue(accumulators, a_descriptor + 2 * k, b_descriptor + 2 * k);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (is_noted) {
            then = now();
            mine.issue += then - at;
            at = then;
        }
        asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kDepth) : "memory");
        if (is_noted) {
            then = now();
            mine.drain += then - at;
            at = then;
        }
        __syncthreads();
        if (is_noted) {
            then = now();
            mine.meet += then - at;
            at = then;
        }
        if (plan.has_copies && threadIdx.x == 0 && step + ahead < count) load<kRows>(plan, map_a, map_b, full, step + ahead, next);
        __syncwarp();
        if (is_noted) mine.refill += now() - at;
        if (++next == plan.num_stages) next = 0;
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    mine.cycles = now() - began;
    mine.has_failed = !__all_sync(0xffffffff, is_well);
    asm volatile("mov.u32 %0, %%smid;" : "=r"(mine.sm));
    if (threadIdx.x % 128 == 0) seen[blockIdx.x * kWarpgroups + warpgroup] = mine;
    if (blockIdx.x == plan.checked)
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) d[i * kThreads + threadIdx.x] = accumulators[i];
}

#define RING_KERNEL(shape, warpgroups, depth, boxes)                                                                         \
    extern "C" __global__ void __launch_bounds__(128 * warpgroups, 1)                                                        \
        ring_##shape##_##warpgroups##_##depth##_##boxes(const __grid_constant__ Plan plan, const void *map_a, const void *map_b, float *d, \
                                                        Seen *seen) {                                                        \
        run<shape, warpgroups, depth, boxes>(plan, map_a, map_b, d, seen);                                                   \
    }

#include "shapes.inc"

#endif
