// What does L2 count as looked up, found and missed where a request takes less of a line than L2 fetches?
//
// `walk_*`: each CTA walks a panel of rows, `pitch` bytes apart, from left to right, `row_bytes` of every row a step, `ahead`
// steps under way (1 or 4): by loads (`ld`), by cp.async (`cp`), with the size that L2 is asked to fetch, or by TMA (`tma`, whose
// map says it). Nothing is read twice by one CTA; `sharers` CTAs that follow one another walk the same panel. `copy` and `fill`
// stream, `spin` does nothing for so long.

#include <cstdint>

constexpr uint32_t kThreads = 256, kStages = 4, kTileBytes = 128 * 128;
constexpr int64_t kPatienceCycles = 100000000;  // a twentieth of a second

struct Plan {
    uint32_t rows, row_bytes, num_steps, ahead;
    uint32_t first_byte, sharers;
    uint64_t pitch;  // bytes; of `copy` and `fill` how many 16-byte words; of `spin` cycles
};

struct Told {
    uint32_t sum, has_failed;
};

struct Shared {
    uint64_t full[kStages];
    uint32_t sum, has_failed;
};

extern __shared__ __align__(1024) unsigned char ring[];

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void begin(Shared &shared) {
    if (threadIdx.x == 0) shared.sum = shared.has_failed = 0;
    __syncthreads();
}

__device__ __forceinline__ void end(Shared &shared, uint32_t sum, Told *told) {
    atomicAdd(&shared.sum, sum);
    __syncthreads();
    if (threadIdx.x == 0) told[blockIdx.x] = {shared.sum, shared.has_failed};
}

__device__ __forceinline__ uint32_t tile_sum(uint32_t stage, uint32_t tile_bytes) {
    uint32_t sum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < tile_bytes; byte += kThreads * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(ring + stage * kTileBytes + byte);
        sum += v.x + v.y + v.z + v.w;
    }
    return sum;
}

__device__ __forceinline__ const unsigned char *chunk(const Plan &plan, const unsigned char *from, uint32_t step, uint32_t byte) {
    const uint64_t row = uint64_t(blockIdx.x / plan.sharers) * plan.rows + byte / plan.row_bytes;
    return from + row * plan.pitch + plan.first_byte + step * plan.row_bytes + byte % plan.row_bytes;
}

template <int kFetch>
__device__ __forceinline__ uint4 load(const unsigned char *from) {
    uint4 v;
    if constexpr (kFetch == 64)
        asm volatile("ld.global.cg.L2::64B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    else if constexpr (kFetch == 128)
        asm volatile("ld.global.cg.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    else if constexpr (kFetch == 256)
        asm volatile("ld.global.cg.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    else
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
    return v;
}

template <int kFetch>
__device__ __forceinline__ void copy(uint32_t to, const unsigned char *from) {
    if constexpr (kFetch == 64)
        asm volatile("cp.async.cg.shared.global.L2::64B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else if constexpr (kFetch == 128)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else if constexpr (kFetch == 256)
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

template <int kFetch>
__device__ __forceinline__ void walk_ld(const Plan &plan, const unsigned char *from, Told *told) {
    __shared__ Shared shared;
    begin(shared);
    uint32_t sum = 0;
#pragma unroll 1
    for (uint32_t step = 0; step < plan.num_steps; ++step) {
        for (uint32_t byte = threadIdx.x * 16; byte < plan.rows * plan.row_bytes; byte += kThreads * 16) {
            const uint4 v = load<kFetch>(chunk(plan, from, step, byte));
            sum += v.x + v.y + v.z + v.w;
        }
        if (sum == 0x12345678u) shared.has_failed = 2;  // what was loaded is used before the next step
        __syncthreads();
    }
    if (threadIdx.x == 0) shared.has_failed = 0;
    __syncthreads();
    end(shared, sum, told);
}

template <int kFetch>
__device__ __forceinline__ void walk_cp(const Plan &plan, const unsigned char *from, Told *told) {
    __shared__ Shared shared;
    begin(shared);
    const uint32_t tile_bytes = plan.rows * plan.row_bytes;
    auto ask = [&](uint32_t step) {
        if (step < plan.num_steps)
            for (uint32_t byte = threadIdx.x * 16; byte < tile_bytes; byte += kThreads * 16)
                copy<kFetch>(smem_address(ring) + step % kStages * kTileBytes + byte, chunk(plan, from, step, byte));
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    uint32_t sum = 0;
    for (uint32_t step = 0; step < plan.ahead; ++step) ask(step);
#pragma unroll 1
    for (uint32_t step = 0; step < plan.num_steps; ++step) {
        if (plan.ahead == 1)
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        else
            asm volatile("cp.async.wait_group 3;" ::: "memory");
        __syncthreads();
        sum += tile_sum(step % kStages, tile_bytes);
        __syncthreads();
        ask(step + plan.ahead);
    }
    end(shared, sum, told);
}

#define WALKS(name, fetch)                                                                                                         \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                                         \
        walk_ld_##name(const __grid_constant__ Plan plan, const unsigned char *from, Told *told) {                                 \
        walk_ld<fetch>(plan, from, told);                                                                                          \
    }                                                                                                                              \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                                         \
        walk_cp_##name(const __grid_constant__ Plan plan, const unsigned char *from, Told *told) {                                 \
        walk_cp<fetch>(plan, from, told);                                                                                          \
    }

WALKS(none, 0)
WALKS(64, 64)
WALKS(128, 128)
WALKS(256, 256)

extern "C" __global__ void __launch_bounds__(kThreads) copy_words(const __grid_constant__ Plan plan, const uint4 *from, uint4 *to) {
    for (uint64_t idx = blockIdx.x * uint64_t(kThreads) + threadIdx.x; idx < plan.pitch; idx += gridDim.x * uint64_t(kThreads)) to[idx] = from[idx];
}

extern "C" __global__ void __launch_bounds__(kThreads) fill_words(const __grid_constant__ Plan plan, const uint4 *from, uint4 *to) {
    const uint4 v = from[threadIdx.x];
    for (uint64_t idx = blockIdx.x * uint64_t(kThreads) + threadIdx.x; idx < plan.pitch; idx += gridDim.x * uint64_t(kThreads)) to[idx] = v;
}

extern "C" __global__ void __launch_bounds__(kThreads) spin(const __grid_constant__ Plan plan, const uint4 *from, uint4 *to) {
    const int64_t started = clock64();
    while (clock64() - started < static_cast<int64_t>(plan.pitch)) {}
    if (threadIdx.x == 0) to[blockIdx.x] = from[blockIdx.x];
}

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ bool wait_mbarrier(uint32_t barrier, uint32_t parity) {
    const int64_t started = clock64();
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (!is_done && clock64() - started > kPatienceCycles) return false;
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(kThreads) walk_tma(const __grid_constant__ Plan plan, const void *map, Told *told) {
    __shared__ Shared shared;
    begin(shared);
    const uint32_t tile_bytes = plan.rows * plan.row_bytes;
    if (threadIdx.x == 0) {
        for (uint32_t idx = 0; idx < kStages; ++idx)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[idx])) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    auto ask = [&](uint32_t step) {
        if (threadIdx.x == 0 && step < plan.num_steps) {
            const uint32_t barrier = smem_address(&shared.full[step % kStages]), to = smem_address(ring) + step % kStages * kTileBytes;
            const uint32_t column = (plan.first_byte + step * plan.row_bytes) / 2, row = blockIdx.x / plan.sharers * plan.rows;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(tile_bytes) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                         "l"(map), "r"(column), "r"(row), "r"(barrier)
                         : "memory");
        }
    };
    uint32_t sum = 0;
    for (uint32_t step = 0; step < plan.ahead; ++step) ask(step);
#pragma unroll 1
    for (uint32_t step = 0; step < plan.num_steps; ++step) {
        if (!wait_mbarrier(smem_address(&shared.full[step % kStages]), step / kStages & 1)) {
            shared.has_failed = 1;
            break;
        }
        sum += tile_sum(step % kStages, tile_bytes);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        ask(step + plan.ahead);
    }
    end(shared, sum, told);
}

#endif
