// How much of what CTAs of a GEMM's raster ask for does L2 read, wave after wave, when they come and go by themselves?
//
// One CTA a tile: a producer warp fills a ring of stages with a box of A and one of B a step by TMA, a consumer warp waits for
// them, lets time pass as math would, and frees the stage; then the CTA leaves and its slot takes the next. Nobody meets.
// Each CTA tells where it was and when it began, was half through, and ended, by the time that all SMs share.

#include "grid.cuh"

constexpr uint32_t kThreads = 64, kMostStages = 8, kRowBytes = 128, kStoreBytes = 8192;

struct Plan {
    uint32_t m_tiles, n_tiles, group;            // of the raster; group 0: A by CTA, B by SM
    uint32_t a_rows, b_rows, num_stages;
    uint32_t num_steps, wrap_steps;              // steps of a CTA; after so many a walk begins again
    uint32_t math_cycles, jitter_cycles;         // from full to empty at least; up to so many more, by CTA and step
    uint32_t spread_cycles;                      // up to so many between the last step and the end, by CTA
    uint32_t store_bytes;                        // of the ring, that each CTA stores behind its last step
};

// What each CTA says of itself.
struct Told {
    int64_t sm, checksum, cycles, start_ns, first_ns, middle_ns, end_ns, is_well;
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

// A number below `most` + 1 that looks random.
__device__ __forceinline__ uint32_t drawn(uint32_t cta, uint32_t step, uint32_t most) {
    uint32_t x = cta * 0x9E3779B1u + step * 0x85EBCA77u + 0x7F4A7C15u;
    x ^= x >> 15;
    x *= 0x2C1B3C6Du;
    x ^= x >> 13;
    return static_cast<uint32_t>((static_cast<uint64_t>(x) * (most + 1ull)) >> 32);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    walk(const __grid_constant__ Plan plan, const void *map_a, const void *map_b, unsigned char *stored, Told *told) {
    __shared__ __align__(8) uint64_t full[kMostStages], empty[kMostStages];
    __shared__ uint32_t checksum, is_well;
    const int64_t start_ns = static_cast<int64_t>(now_ns());
    const uint32_t sm = sm_idx(), cta = blockIdx.x;
    uint32_t m = cta, n = sm;
    if (plan.group) {
        const uint32_t width = plan.group * plan.n_tiles, first = cta / width * plan.group, rest = cta % width;
        const uint32_t height = plan.m_tiles - first < plan.group ? plan.m_tiles - first : plan.group;
        m = first + rest % height;
        n = rest / height;
    }
    const uint32_t full_at = smem_address(full), empty_at = smem_address(empty);
    const uint32_t a_bytes = plan.a_rows * kRowBytes, stage_bytes = a_bytes + plan.b_rows * kRowBytes;
    if (threadIdx.x == 0) {
        checksum = 0;
        is_well = 1;
        for (uint32_t i = 0; i < plan.num_stages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at + i * 8) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(empty_at + i * 8) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    Told mine = {sm, 0, 0, start_ns, 0, 0, 0, 1};
    uint32_t stage = 0, step = 0, parity = warp ? 0 : 1;
    int64_t begin = 0, until = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < plan.num_steps; ++i) {
        if (!wait_mbarrier((warp ? full_at : empty_at) + stage * 8, parity)) {
            is_well = 0;
            break;
        }
        if (warp == 0) {
            if (is_elected()) {
                const uint32_t barrier = full_at + stage * 8, to = smem_address(stages) + stage * stage_bytes;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
                copy(to, map_a, step * (kRowBytes / 2), m * plan.a_rows, barrier);
                copy(to + a_bytes, map_b, step * (kRowBytes / 2), n * plan.b_rows, barrier);
            }
        } else {
            const int64_t now = clock_now();
            if (i == 0) {
                begin = now;
                mine.first_ns = static_cast<int64_t>(now_ns());
            }
            if (i == plan.num_steps / 2) mine.middle_ns = static_cast<int64_t>(now_ns());
            mine.cycles = now - begin;
            if (plan.math_cycles) {
                until = (now > until ? now : until) + plan.math_cycles + drawn(cta, i, plan.jitter_cycles);
                pause_until(until);
            }
            __syncwarp();
            if (threadIdx.x % 32 == 0)
                asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty_at + stage * 8) : "memory");
        }
        __syncwarp();
        if (++step == plan.wrap_steps) step = 0;
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < plan.num_stages * stage_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stages + byte);
        sum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&checksum, sum);
    __syncthreads();
    if (plan.store_bytes && threadIdx.x == 0) {
        for (uint32_t at = 0; at < plan.store_bytes; at += kStoreBytes)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(
                             stored + static_cast<uint64_t>(cta) * plan.store_bytes + at),
                         "r"(smem_address(stages) + at), "r"(kStoreBytes)
                         : "memory");
        asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 0;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 32) {
        if (plan.spread_cycles) pause_until(clock_now() + drawn(cta, ~0u, plan.spread_cycles));
        mine.checksum = checksum;
        mine.is_well = is_well;
        mine.end_ns = static_cast<int64_t>(now_ns());
        told[cta] = mine;
    }
}

#endif
