// How fast does a ring of tiles fill whose lines lie in memory, by how far apart a tile's rows are, how many CTAs ask, and how
// many tiles each has under way?
//
// One CTA an SM. A step is a tile of A and one of B, `rows` rows of each, `pitch` bytes apart. So many steps are always under
// way; as soon as the oldest is there the next one is asked for into its place. Nothing is computed. `tma`: one warp waits and
// asks; `cp_async_*`: all warps copy 16 bytes a thread and meet in each step. CTAs have tiles of their own, or share them as
// tiles of D do. Before it begins L2 is filled with other lines, or (a walk that begins again after some steps) it is not.

#include "grid.cuh"

constexpr uint32_t kMostStages = 6, kMostSteps = 64;
constexpr uint32_t kBoxBytes = 128;  // of a row of a box
constexpr uint32_t kFlushBytes = 192u << 20;

__device__ uint4 flush_area[kFlushBytes / 16];

struct Plan {
    uint32_t num_live, rows, stages, num_steps;
    uint32_t per_row;     // steps along a row before the next rows
    uint32_t num_panels;  // of `rows` rows, all of A's and B's; the next rows lie behind all of them
    uint32_t wrap;        // after so many steps the walk begins again
    uint32_t has_flush;
    uint64_t pitch;       // bytes
};

struct Place {
    uint32_t panel_a, panel_b, first_byte, unused;  // the last: of a row, where the walk begins
};

struct Told {
    int64_t sm, checksum;
};

struct Times {
    int32_t issued, came;  // cycles since the CTA began
};

struct Shared {
    uint64_t full[kMostStages];
    Times times[kMostSteps];
    uint32_t checksum, is_well;
};

extern __shared__ __align__(1024) unsigned char ring[];

#if __CUDA_ARCH__ >= 900

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
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

// Where a walk is: `along` steps of a row, `below` times all panels further down.
struct Walk {
    uint32_t step = 0, along = 0, below = 0;

    __device__ __forceinline__ void next(const Plan &plan) {
        ++step;
        if (++along == plan.per_row) {
            along = 0;
            ++below;
        }
        if (step % plan.wrap == 0) along = below = 0;
    }
};

// Other lines into L2, all meet.
__device__ __forceinline__ void prepare(const Plan &plan, Flags *flags, Shared &shared) {
    uint32_t sink = 0;
    if (plan.has_flush) {
#pragma unroll 8
        for (uint32_t idx = blockIdx.x * blockDim.x + threadIdx.x; idx < kFlushBytes / 16; idx += gridDim.x * blockDim.x) {
            uint4 v;
            asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                         : "l"(flush_area + idx));
            sink |= v.x | v.y | v.z | v.w;
        }
    }
    if (threadIdx.x == 0) {
        shared.checksum = 0;
        shared.is_well = 1;
        for (uint32_t idx = 0; idx < kMostStages; ++idx)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[idx])) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (sink) fail(flags, shared);  // nobody writes there
    if (threadIdx.x == 0) {
        if (atomicExch(&flags->claimed[sm_idx() % kMostSms], 1u)) fail(flags, shared);  // a second CTA of this SM
        if (!meet_in_time(flags, &flags->met, plan.num_live, 0)) fail(flags, shared);
    }
    __syncthreads();
}

// The words of the last step's tiles, and when each step was asked for and there.
__device__ __forceinline__ void tell(const Plan &plan, Shared &shared, uint32_t tile_bytes, Times *times, Told *told) {
    __syncthreads();
    const unsigned char *last = ring + (plan.num_steps - 1) % plan.stages * tile_bytes;
    uint32_t checksum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < tile_bytes; byte += blockDim.x * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(last + byte);
        checksum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    for (uint32_t step = threadIdx.x; step < plan.num_steps; step += blockDim.x) times[blockIdx.x * plan.num_steps + step] = shared.times[step];
    if (threadIdx.x == 0) told[blockIdx.x] = {sm_idx(), shared.checksum};
}

extern "C" __global__ void __launch_bounds__(96)
    tma(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const void *map, Times *times, Told *told) {
    __shared__ Shared shared;
    const Place place = places[blockIdx.x];
    prepare(plan, flags, shared);
    const uint32_t half = plan.rows * kBoxBytes, warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp == 0 && shared.is_well) {
        const bool is_first = threadIdx.x == 0;
        const int64_t begin = clock_now();
        Walk walk;
        uint32_t into = 0;
        auto ask = [&]() {
            if (is_first) {
                const uint32_t barrier = smem_address(&shared.full[into]), to = smem_address(ring) + into * 2 * half;
                const uint32_t column = place.first_byte / 2 + walk.along * (kBoxBytes / 2), down = walk.below * plan.num_panels;
                shared.times[walk.step].issued = static_cast<int32_t>(clock_now() - begin);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(2 * half) : "memory");
                copy(to, map, column, (down + place.panel_a) * plan.rows, barrier);
                copy(to + half, map, column, (down + place.panel_b) * plan.rows, barrier);
            }
            walk.next(plan);
            into = into + 1 == plan.stages ? 0 : into + 1;
        };
#pragma unroll 1
        for (uint32_t stage = 0; stage < plan.stages; ++stage) ask();
        uint32_t at = 0, parity = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < plan.num_steps; ++step) {
            if (!wait_mbarrier(smem_address(&shared.full[at]), parity)) {
                if (is_first) fail(flags, shared);
                break;
            }
            if (is_first) shared.times[step].came = static_cast<int32_t>(clock_now() - begin);
            __syncwarp();
            if (walk.step < plan.num_steps) ask();
            if (++at == plan.stages) {
                at = 0;
                parity ^= 1;
            }
        }
    }
    tell(plan, shared, 2 * half, times, told);
}

template <int kStages, int kThreads, int kRowBytes>
__device__ __forceinline__ void cp_async(const Plan &plan, const Place *places, Flags *flags, const unsigned char *from, Times *times,
                                         Told *told) {
    constexpr uint32_t kRows = 128, kTileBytes = 2 * kRows * kRowBytes, kAcross = kRowBytes / 16;  // of A and of B
    constexpr uint32_t kAtOnce = kThreads / kAcross, kCopies = 2 * kRows / kAtOnce;
    __shared__ Shared shared;
    const Place place = places[blockIdx.x];
    prepare(plan, flags, shared);
    if (!shared.is_well) return;
    const int64_t begin = clock_now();
    const bool is_first = threadIdx.x == 0;
    const uint32_t row = threadIdx.x / kAcross, chunk = threadIdx.x % kAcross;
    const uint32_t own = row * kRowBytes + (chunk ^ row % kAcross) * 16;
    Walk walk;
    uint32_t into = 0;
    auto ask = [&]() {
        if (walk.step < plan.num_steps) {
            if (is_first) shared.times[walk.step].issued = static_cast<int32_t>(clock_now() - begin);
            const uint32_t to = smem_address(ring) + into * kTileBytes + own;
            const uint64_t along = place.first_byte + walk.along * kRowBytes + chunk * 16, down = walk.below * plan.num_panels;
            const unsigned char *a = from + ((down + place.panel_a) * kRows + row) * plan.pitch + along;
            const unsigned char *b = from + ((down + place.panel_b) * kRows + row) * plan.pitch + along;
#pragma unroll
            for (uint32_t i = 0; i < kCopies; ++i) {
                const unsigned char *source = i < kCopies / 2 ? a + i * kAtOnce * plan.pitch : b + (i - kCopies / 2) * kAtOnce * plan.pitch;
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * kThreads * 16), "l"(source) : "memory");
            }
            walk.next(plan);
            into = into + 1 == kStages ? 0 : into + 1;
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) ask();
#pragma unroll 1
    for (uint32_t step = 0; step < plan.num_steps; ++step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
        __syncthreads();
        if (is_first) shared.times[step].came = static_cast<int32_t>(clock_now() - begin);
        ask();
    }
    tell(plan, shared, kTileBytes, times, told);
}

#define CP_ASYNC(stages, threads, row_bytes)                                                                                          \
    extern "C" __global__ void __launch_bounds__(threads)                                                                             \
        cp_async_##stages##_##threads##_##row_bytes(const __grid_constant__ Plan plan, const Place *places, Flags *flags,             \
                                                    const unsigned char *from, Times *times, Told *told) {                            \
        cp_async<stages, threads, row_bytes>(plan, places, flags, from, times, told);                                                 \
    }

CP_ASYNC(1, 128, 64)
CP_ASYNC(2, 128, 64)
CP_ASYNC(4, 128, 64)
CP_ASYNC(1, 128, 128)
CP_ASYNC(2, 128, 128)
CP_ASYNC(4, 128, 128)
CP_ASYNC(1, 256, 64)
CP_ASYNC(2, 256, 64)
CP_ASYNC(4, 256, 64)
CP_ASYNC(1, 256, 128)
CP_ASYNC(2, 256, 128)
CP_ASYNC(4, 256, 128)

#endif
