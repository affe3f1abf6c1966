// How long does a burst take, of all SMs that ask for tiles of A and of B at the same moment?
//
// One CTA an SM. In a step one warp asks for a CTA's tiles by TMA, two others wait for A and for B and note the clock. Which
// tiles is in a table, by CTA, as a GEMM has it. Before a step all CTAs may meet and start when globaltimer says so; or each
// goes on as soon as its own tiles are there. Tiles lie in L2, or in memory, or A's in L2 and B's in memory.

#include "grid.cuh"

constexpr uint32_t kThreads = 96;
constexpr uint32_t kRowBytes = 128;  // of a box
constexpr uint32_t kFlushBytes = 192u << 20;

__device__ uint4 flush_area[kFlushBytes / 16];

struct Plan {
    uint32_t num_live, a_rows, b_rows;
    uint32_t a_steps, b_steps;       // after so many a walk begins again
    uint32_t num_ahead, num_timed;   // steps
    uint32_t is_met, has_flush;
};

struct Place {
    uint32_t row_a, row_b;
};

// What each CTA says of itself.
struct Told {
    int64_t sm, checksum, cycles, unused;
};

struct Times {
    int32_t a_cycles, b_cycles;  // from before the first instruction until the wait is over
};

struct Shared {
    uint64_t full[2];
    int64_t issued, came[2];
    uint32_t checksum, is_well;
};

extern __shared__ __align__(1024) unsigned char stage[];

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

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

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    burst(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const void *map_a, const void *map_b, Times *times,
          Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx(), warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const bool is_first = threadIdx.x == 0;
    const Place place = places[blockIdx.x];
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
    if (is_first) {
        shared.checksum = 0;
        shared.is_well = 1;
        for (uint32_t idx = 0; idx < 2; ++idx)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[idx])) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (sink) fail(flags, shared);  // nobody writes there
    if (is_first) {
        if (atomicExch(&flags->claimed[sm % kMostSms], 1u)) fail(flags, shared);  // a second CTA of this SM
        if (!meet_in_time(flags, &flags->met, plan.num_live, 0)) fail(flags, shared);
    }
    __syncthreads();
    const uint32_t to = smem_address(stage), a_bytes = plan.a_rows * kRowBytes, b_bytes = plan.b_rows * kRowBytes;
    const uint32_t count = plan.num_ahead + plan.num_timed;
    int64_t began = 0;
#pragma unroll 1
    for (uint32_t step = 0; step < count && shared.is_well; ++step) {
        if (is_first) {
            const uint32_t column_a = step % plan.a_steps * (kRowBytes / 2), column_b = step % plan.b_steps * (kRowBytes / 2);
            if (plan.is_met && !meet_in_time(flags, &flags->met, (step + 2) * plan.num_live, step + 1)) fail(flags, shared);
            const int64_t now = clock_now();
            shared.issued = now;
            if (step == plan.num_ahead) began = now;
            for (uint32_t idx = 0; idx < 2; ++idx)
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(&shared.full[idx])),
                             "r"(idx ? b_bytes : a_bytes)
                             : "memory");
            copy(to, map_a, column_a, place.row_a, smem_address(&shared.full[0]));
            copy(to + a_bytes, map_b, column_b, place.row_b, smem_address(&shared.full[1]));
        }
        if (warp) {
            if (!wait_mbarrier(smem_address(&shared.full[warp - 1]), step & 1)) fail(flags, shared);
            shared.came[warp - 1] = clock_now();
        }
        __syncthreads();
        if (is_first && step >= plan.num_ahead)
            times[blockIdx.x * plan.num_timed + step - plan.num_ahead] = {static_cast<int32_t>(shared.came[0] - shared.issued),
                                                                         static_cast<int32_t>(shared.came[1] - shared.issued)};
    }
    const int64_t ended = clock_now();
    uint32_t checksum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < a_bytes + b_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stage + byte);
        checksum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    if (is_first) told[blockIdx.x] = {sm, shared.checksum, ended - began, 0};
}

#endif
