// What do clusters get out of L2 that multicast tiles which other clusters walk, too?
//
// All SMs, one CTA each, in clusters. The CTAs of a cluster walk the same tiles through rings of stages: each brings its part
// of the rows of a tile and multicasts it to all. A producer warp issues, a consumer warp waits and frees the stage for all
// producers of the cluster. Which tiles a cluster walks is in a table.

#include <cstdint>

constexpr uint32_t kThreads = 64, kMostStages = 8, kRowBytes = 128;
constexpr int64_t kPatienceCycles = 100000000;  // a twentieth of a second

struct Plan {
    uint32_t num_stages, rows, num_steps, num_lead, num_timed, num_behind;
};

// What each CTA says of itself.
struct Told {
    int64_t sm, checksum, cycles, is_well;
};

extern __shared__ __align__(1024) unsigned char stages[];

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ int64_t clock_now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ bool wait_mbarrier(uint32_t barrier, uint32_t parity) {
    const int64_t begin = clock_now();
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (!is_done && clock_now() - begin > kPatienceCycles) return false;
    }
    return true;
}

__device__ __forceinline__ bool is_elected() {
    uint32_t chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen)::"memory");
    return chosen;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

template <uint32_t kSize>
__device__ __forceinline__ void walk(const Plan &plan, const uint32_t *panels, const void *map, Told *told) {
    __shared__ __align__(8) uint64_t full[kMostStages], empty[kMostStages];
    __shared__ uint32_t checksum, is_well;
    uint32_t rank, sm;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    const uint32_t first_row = panels[blockIdx.x / kSize] * plan.num_steps * plan.rows;
    const uint32_t stage_bytes = plan.rows * kRowBytes, part_rows = plan.rows / kSize;
    const uint32_t full_at = smem_address(full), empty_at = smem_address(empty);
    if (threadIdx.x == 0) {
        checksum = 0;
        is_well = 1;
        for (uint32_t i = 0; i < plan.num_stages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at + i * 8) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty_at + i * 8), "r"(kSize) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    cluster_sync();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const uint32_t count = plan.num_lead + plan.num_timed + plan.num_behind;
    uint32_t stage = 0, step = 0, parity = warp ? 0 : 1;
    int64_t begin = 0, cycles = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier((warp ? full_at : empty_at) + stage * 8, parity)) {
            is_well = 0;
            break;
        }
        if (warp == 0) {
            if (is_elected()) {
                const uint32_t barrier = full_at + stage * 8;
                const uint32_t to = smem_address(stages) + stage * stage_bytes + rank * part_rows * kRowBytes;
                const uint32_t row = first_row + step * plan.rows + rank * part_rows;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
                if (kSize == 1)
                    asm volatile(
                        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                        "l"(map), "r"(0), "r"(row), "r"(barrier)
                        : "memory");
                else
                    asm volatile(
                        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
                        "%3}], [%4], %5;" ::"r"(to),
                        "l"(map), "r"(0), "r"(row), "r"(barrier), "h"(static_cast<uint16_t>((1u << kSize) - 1))
                        : "memory");
            }
        } else {
            const int64_t now = clock_now();
            if (i == plan.num_lead) begin = now;
            if (i == plan.num_lead + plan.num_timed) cycles = now - begin;
            if (lane < kSize)
                asm volatile(
                    "{ .reg .b32 far; mapa.shared::cluster.u32 far, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [far]; }" ::"r"(
                        empty_at + stage * 8),
                    "r"(lane)
                    : "memory");
        }
        __syncwarp();
        if (++step == plan.num_steps) step = 0;
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
    if (threadIdx.x == 32) told[blockIdx.x] = {sm, checksum, cycles, is_well};
    cluster_sync();  // no CTA leaves while another may arrive at its barriers
}

#define WALK(size)                                                                                \
    extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(kThreads)           \
        walk_##size(const __grid_constant__ Plan plan, const uint32_t *panels, const void *map, Told *told) { \
        walk<size>(plan, panels, map, told);                                                      \
    }

WALK(1)
WALK(2)
WALK(4)

#endif
