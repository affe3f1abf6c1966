// How fast do rings of stages go round that clusters fill out of L2, of which a part is multicast, beside paced work?
//
// All SMs, one CTA each, alone or in clusters of two. A stage holds rows of A, each CTA's own, and rows of B, which the CTAs
// of a cluster share: each brings its part of them and multicasts it to all. A producer thread issues; a consumer warp waits
// for a stage, keeps it for as long as the plan says, one behind the other as tensor cores do, and gives back the stage
// before to all producers that fill it. Which tiles a CTA walks is in tables. Waits and arrivals are as a GEMM has them.

#include <cstdint>

constexpr uint32_t kThreads = 64, kMostStages = 8, kRowBytes = 128;
constexpr uint32_t kPatience = 1u << 18;  // tries of a wait

struct Plan {
    uint32_t num_stages, a_rows, b_rows, num_steps, num_lead, num_timed, num_behind, math_cycles, first_b_row;
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

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (uint32_t tries = 0; tries < kPatience; ++tries) {
        uint32_t is_done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (is_done) return true;
    }
    return false;
}

__device__ __forceinline__ bool is_elected() {
    uint32_t chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(chosen)::"memory");
    return chosen;
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t row, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(0), "r"(row), "r"(barrier)
                 : "memory");
}

__device__ __forceinline__ void load_to_all(uint32_t to, const void *map, uint32_t row, uint32_t barrier, uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
        "%5;" ::"r"(to),
        "l"(map), "r"(0), "r"(row), "r"(barrier), "h"(ranks)
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

template <uint32_t kSize>
__device__ __forceinline__ void walk(const Plan &plan, const uint32_t *tiles, const void *map_a, const void *map_b, Told *told) {
    __shared__ __align__(8) uint64_t full[kMostStages], empty[kMostStages];
    __shared__ uint32_t checksum, is_well;
    uint32_t rank, sm;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    const uint32_t a_row = tiles[2 * blockIdx.x] * plan.num_steps * plan.a_rows;
    const uint32_t b_row = plan.first_b_row + tiles[2 * blockIdx.x + 1] * plan.num_steps * plan.b_rows;
    const uint32_t a_bytes = plan.a_rows * kRowBytes, stage_bytes = a_bytes + plan.b_rows * kRowBytes, part_rows = plan.b_rows / kSize;
    const uint32_t full_at = smem_address(full), empty_at = smem_address(empty), ring = smem_address(stages);
    if (threadIdx.x == 0) {
        checksum = 0;
        is_well = 1;
        for (uint32_t i = 0; i < plan.num_stages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at + i * 8) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty_at + i * 8), "r"(kSize) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(map_a) : "memory");
        asm volatile("prefetch.tensormap [%0];" ::"l"(map_b) : "memory");
    }
    __syncthreads();
    cluster_sync();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const uint32_t count = plan.num_lead + plan.num_timed + plan.num_behind;
    int64_t begin = 0, cycles = 0;
    if (warp == 0) {
        if (is_elected()) {
            uint32_t stage = 0, step = 0, parity = 1;
#pragma unroll 1
            for (uint32_t i = 0; i < count; ++i) {
                if (!wait(empty_at + stage * 8, parity)) {
                    is_well = 0;
                    break;
                }
                const uint32_t barrier = full_at + stage * 8, to = ring + stage * stage_bytes;
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stage_bytes) : "memory");
                if (a_bytes) load(to, map_a, a_row + step * plan.a_rows, barrier);
                const uint32_t row = b_row + step * plan.b_rows + rank * part_rows;
                if (part_rows && kSize == 1) load(to + a_bytes, map_b, row, barrier);
                if (part_rows && kSize > 1) load_to_all(to + a_bytes + rank * part_rows * kRowBytes, map_b, row, barrier, (1u << kSize) - 1);
                if (++step == plan.num_steps) step = 0;
                if (++stage == plan.num_stages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
        __syncwarp();
    } else {
        uint32_t stage = 0, held = 0, parity = 0;
        int64_t end = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < count; ++i) {
            if (!wait(full_at + stage * 8, parity)) {
                is_well = 0;
                break;
            }
            const int64_t now = clock_now();
            if (i == plan.num_lead) begin = now;
            if (i == plan.num_lead + plan.num_timed) cycles = now - begin;
            if (plan.math_cycles) {  // this stage's work begins behind that of the stage before, which is given back then
                while (clock_now() < end) continue;
                if (i) {
                    arrive<kSize>(empty_at + held * 8, lane);
                    if (++held == plan.num_stages) held = 0;
                }
                end = (now < end ? end : now) + plan.math_cycles;
            } else {
                arrive<kSize>(empty_at + stage * 8, lane);
            }
            if (++stage == plan.num_stages) {
                stage = 0;
                parity ^= 1;
            }
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

#define WALK(size)                                                                                                              \
    extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(kThreads)                                         \
        walk_##size(const __grid_constant__ Plan plan, const uint32_t *tiles, const void *map_a, const void *map_b, Told *told) { \
        walk<size>(plan, tiles, map_a, map_b, told);                                                                            \
    }

WALK(1)
WALK(2)
WALK(4)

#endif
