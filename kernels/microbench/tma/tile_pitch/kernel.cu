// What does a tile cost whose rows do not begin on a line, or not on a sector?
//
// One CTA an SM, a ring of stages, tiles of rows that lie a pitch apart: by TMA, a producer warp asks and a consumer warp waits;
// by cp.async, all threads copy 16 bytes at a time to rows of shared memory that lie a pitch apart, too, or are swizzled. Which
// rows an SM walks is in a table. Tiles are read once or not before, then the CTAs meet, and walk with the clock read at two of
// the steps.

#include "grid.cuh"

constexpr uint32_t kThreads = 128;
constexpr uint32_t kMostStages = 8;

struct Plan {
    uint32_t num_live, num_stages;
    uint32_t rows, row_bytes, pitch_bytes, smem_pitch_bytes, is_swizzled;
    uint32_t num_columns, num_steps;              // steps along a row before the next rows; before a walk begins again
    uint32_t num_warm, num_lead, num_timed, num_behind;  // steps before the CTAs meet, before the clock, timed, behind
    uint32_t shift_bytes;                         // where in its row the first column begins
};

struct Place {
    uint32_t is_live, row, delay_cycles;
};

// What each live SM says of itself, at its place in the table.
struct Told {
    int64_t sm, checksum, cycles, middle_ns;
};

struct Shared {
    uint64_t full[kMostStages], empty[kMostStages];
    int64_t start;
    uint32_t checksum, is_well;
};

extern __shared__ __align__(1024) unsigned char stages[];

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Where in the ring and in the walk a warp is; goes on from one phase to the next.
struct Cursor {
    uint32_t stage = 0, parity = 0, step = 0, column = 0, row = 0;

    __device__ __forceinline__ void next(const Plan &plan) {
        if (++step == plan.num_steps) {
            step = column = row = 0;
        } else if (++column == plan.num_columns) {
            column = 0;
            row += plan.rows;
        }
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

__device__ __forceinline__ void fail(Flags *flags, Shared &shared) {
    atomicExch(&flags->has_failed, 1u);
    shared.is_well = 0;
}

// True for CTAs that walk.
__device__ __forceinline__ bool begin(const Place &place, Flags *flags, Shared &shared, uint32_t sm) {
    if (threadIdx.x == 0) {
        shared.checksum = 0;
        shared.is_well = 1;
        const uint32_t num_ids = num_sm_ids();
        if (!meet(flags, &flags->arrived, gridDim.x < num_ids ? gridDim.x : num_ids, 200)) fail(flags, shared);
        if (atomicExch(&flags->claimed[sm % kMostSms], 1u)) fail(flags, shared);  // a second CTA of this SM
    }
    __syncthreads();
    return place.is_live;
}

// The live CTAs, together; then each after its delay.
__device__ __forceinline__ bool start(const Plan &plan, const Place &place, Flags *flags, Shared &shared, uint32_t phase) {
    if (threadIdx.x == 0 && shared.is_well) {
        if (!meet_in_time(flags, &flags->met, (phase + 1) * plan.num_live, phase)) fail(flags, shared);
        shared.start = clock_now() + (phase ? place.delay_cycles : 0);
    }
    __syncthreads();
    if (!shared.is_well) return false;
    pause_until(shared.start);
    __syncwarp();
    return true;
}

__device__ __forceinline__ void read_clock(const Plan &plan, uint32_t i, int64_t now, int64_t &begin, Told &told) {
    if (i == plan.num_lead) begin = now;
    if (i == plan.num_lead + plan.num_timed / 2) told.middle_ns = static_cast<int64_t>(now_ns());
    if (i == plan.num_lead + plan.num_timed) told.cycles = now - begin;
}

__device__ __forceinline__ uint32_t sum_of(uint32_t address) {
    uint32_t x, y, z, w;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(address));
    return x + y + z + w;
}

// ------------------------------------------------------------------------------------------------ cp.async

// A thread's 16 bytes of each so-manieth row: the first of them, in a tile of memory and of shared memory, and from one to the
// next. A row has four or eight times 16 bytes, so that the column stays, and how it is swizzled.
struct Chunks {
    uint32_t from, to, from_step, to_step, count;

    __device__ __forceinline__ explicit Chunks(const Plan &plan) {
        const uint32_t bits = plan.row_bytes == 128 ? 3 : 2, row = threadIdx.x >> bits, column = threadIdx.x & ((1u << bits) - 1);
        const uint32_t placed = plan.is_swizzled ? column ^ (row & ((1u << bits) - 1)) : column;
        from = row * plan.pitch_bytes + column * 16;
        to = row * plan.smem_pitch_bytes + placed * 16;
        from_step = (kThreads >> bits) * plan.pitch_bytes;
        to_step = (kThreads >> bits) * plan.smem_pitch_bytes;
        count = plan.rows / (kThreads >> bits);
    }
};

__device__ __forceinline__ void copy_chunks(const Plan &plan, const Place &place, const Chunks &chunks, const unsigned char *tensor,
                                            const Cursor &at) {
    uint32_t to = smem_address(stages) + at.stage * plan.rows * plan.smem_pitch_bytes + chunks.to;
    const unsigned char *from = tensor + static_cast<size_t>(place.row + at.row) * plan.pitch_bytes + plan.shift_bytes +
                                at.column * plan.row_bytes + chunks.from;
#pragma unroll 4
    for (uint32_t i = 0; i < chunks.count; ++i, to += chunks.to_step, from += chunks.from_step)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

template <int kInFlight>
__device__ __forceinline__ void walk_by_cp_async(const Plan &plan, const Place *places, Flags *flags, const unsigned char *tensor,
                                                 Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx();
    const Place place = places[sm];
    if (!begin(place, flags, shared, sm)) return;
    Told mine = {sm, 0, 0, 0};
    Cursor ahead;  // asked for
    const Chunks chunks(plan);
    int64_t began = 0;
#pragma unroll 1
    for (uint32_t phase = 0; phase < 2; ++phase) {
        if (!start(plan, place, flags, shared, phase)) break;
        const uint32_t count = phase ? plan.num_lead + plan.num_timed + plan.num_behind : plan.num_warm;
        uint32_t num_asked = 0;
#pragma unroll 1
        for (; num_asked < kInFlight; ++num_asked) {
            if (num_asked < count) {
                copy_chunks(plan, place, chunks, tensor, ahead);
                ahead.next(plan);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
#pragma unroll 1
        for (uint32_t i = 0; i < count; ++i, ++num_asked) {
            asm volatile("cp.async.wait_group %0;" ::"n"(kInFlight - 1) : "memory");
            __syncthreads();
            if (phase && threadIdx.x == 0) read_clock(plan, i, clock_now(), began, mine);
            if (num_asked < count) {
                copy_chunks(plan, place, chunks, tensor, ahead);
                ahead.next(plan);
            }
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
    }
    uint32_t checksum = 0;
    for (uint32_t stage = 0; stage < plan.num_stages; ++stage)
        for (uint32_t i = 0; i < chunks.count; ++i)
            checksum += sum_of(smem_address(stages) + stage * plan.rows * plan.smem_pitch_bytes + chunks.to + i * chunks.to_step);
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    if (threadIdx.x == 0) {
        mine.checksum = shared.checksum;
        told[sm] = mine;
    }
}

// The ring has as many stages as tiles are in flight: all threads have waited and met before one is asked for again.
extern "C" __global__ void __launch_bounds__(kThreads)
    cp_async_4(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const unsigned char *tensor, Told *told) {
    walk_by_cp_async<4>(plan, places, flags, tensor, told);
}

// ------------------------------------------------------------------------------------------------ TMA

#if __CUDA_ARCH__ >= 900

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

__device__ __forceinline__ bool produce(const Plan &plan, const Place &place, const void *map, Shared &shared, Cursor &at,
                                        uint32_t count) {
    const uint32_t tile_bytes = plan.rows * plan.row_bytes;
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty), ring = smem_address(stages);
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier(empty + at.stage * 8, at.parity ^ 1)) return false;
        if (is_elected()) {
            const uint32_t barrier = full + at.stage * 8, to = ring + at.stage * tile_bytes;
            const uint32_t column = (plan.shift_bytes + at.column * plan.row_bytes) / 2, row = place.row + at.row;
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(tile_bytes) : "memory");
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                "l"(map), "r"(column), "r"(row), "r"(barrier)
                : "memory");
        }
        __syncwarp();
        at.next(plan);
    }
    return true;
}

__device__ __forceinline__ bool consume(const Plan &plan, Shared &shared, Cursor &at, uint32_t count, bool is_timed, Told &told) {
    const uint32_t full = smem_address(shared.full), empty = smem_address(shared.empty);
    int64_t began = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
        if (!wait_mbarrier(full + at.stage * 8, at.parity)) return false;
        if (is_timed) read_clock(plan, i, clock_now(), began, told);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + at.stage * 8) : "memory");
        at.next(plan);
    }
    return true;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    tma(const __grid_constant__ Plan plan, const Place *places, Flags *flags, const void *map, Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx();
    const Place place = places[sm];
    if (threadIdx.x == 0) {
        for (uint32_t stage = 0; stage < plan.num_stages; ++stage) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[stage])) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.empty[stage])) : "memory");
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (!begin(place, flags, shared, sm)) return;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    Told mine = {sm, 0, 0, 0};
    Cursor at;
#pragma unroll 1
    for (uint32_t phase = 0; phase < 2; ++phase) {
        if (!start(plan, place, flags, shared, phase)) break;
        const uint32_t count = phase ? plan.num_lead + plan.num_timed + plan.num_behind : plan.num_warm;
        bool is_well = true;
        if (warp == 0) is_well = produce(plan, place, map, shared, at, count);
        if (warp == 1) is_well = consume(plan, shared, at, count, phase, mine);
        if (!is_well) fail(flags, shared);
        __syncthreads();
    }
    uint32_t checksum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < plan.num_stages * plan.rows * plan.row_bytes; byte += kThreads * 16)
        checksum += sum_of(smem_address(stages) + byte);
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    if (threadIdx.x == 32) {
        mine.checksum = shared.checksum;
        told[sm] = mine;
    }
}

#endif
