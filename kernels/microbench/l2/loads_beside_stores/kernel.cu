// What do an SM's reads out of L2 wait for while its warps store?
//
// One CTA an SM. Eight warps store, as fast as they go or at a pace, into lines that stay in L2: of eight rows of a tile 16, 32 or 64
// bytes a store (fragments), or lines that lie side by side. A lane of a ninth warp keeps a ring of bulk copies of its own 64 KiB
// full, one after the other of each stage, or follows a chain of loads. All begin at one moment of the time that they share; after a
// while each counts what it does, from a look at the clock to another. SMs may store that have a number that `every` divides.

#include "grid.cuh"

#if __CUDA_ARCH__ >= 900

constexpr uint32_t kStoreWarps = 8, kThreads = 288, kMostStages = 16;
constexpr uint32_t kOwnBytes = 64 << 10;                                   // that a CTA copies from
constexpr uint32_t kPitchBytes = 8192, kTileBytes = 256, kTileRows = 128;  // of the matrix of fragments
constexpr uint32_t kTileColumns = kPitchBytes / kTileBytes, kTileBands = 16;
constexpr uint32_t kWarpBytes = 16 << 10, kLinesBytes = 4096;              // of a warp's own lines; of eight stores
constexpr uint32_t kPatience = 1 << 20;                                    // tries of a wait

enum Kind { kNone = 0, kFragment4 = 4, kFragment8 = 8, kFragment16 = 16, kLines = 512 };  // bytes of a lane, or of a store

struct Plan {
    uint32_t pace, every;              // cycles between a warp's stores, or 0; which SMs store
    uint32_t num_stages, copy_bytes;   // no stages: a chain of loads, or nothing
    uint32_t warm_cycles, measured_cycles;
    uint32_t matrix_vectors;           // of 16 bytes, of what is stored into
};

// So many in so many cycles.
struct Counted {
    uint32_t num, cycles;
};

// What each CTA says of itself; checksum: of the ring, or where the chain has come to.
struct Told {
    uint32_t sm, is_storing, num_issued, checksum;
    Counted read, stored[kStoreWarps];
};

struct Shared {
    uint64_t full[kMostStages];
    int64_t start;
    uint32_t checksum, num_issued;
};

extern __shared__ __align__(1024) unsigned char stages[];

// Counts from the first look at the clock after `from` to the last one.
struct Meter {
    int64_t from, begin = 0, now;
    uint32_t num = 0, num_before = 0;
    bool has_begun = false;

    __device__ __forceinline__ explicit Meter(int64_t from) : from(from), now(clock_now()) {}
    __device__ __forceinline__ void look() {
        now = clock_now();
        if (!has_begun && now >= from) {
            has_begun = true;
            begin = now;
            num_before = num;
        }
    }
    __device__ __forceinline__ Counted counted() const {
        return {has_begun ? num - num_before : 0, has_begun ? static_cast<uint32_t>(now - begin) : 0};
    }
};

// ---- stores

template <int kLaneBytes>
__device__ __forceinline__ void put(unsigned char *to, uint32_t word) {
    if constexpr (kLaneBytes == 4)
        asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
    else if constexpr (kLaneBytes == 8)
        asm volatile("st.global.v2.b32 [%0], {%1, %1};" ::"l"(to), "r"(word) : "memory");
    else
        asm volatile("st.global.v4.b32 [%0], {%1, %1, %1, %1};" ::"l"(to), "r"(word) : "memory");
}

// Until it is time for the next store.
__device__ __forceinline__ void pause(Meter &meter, int64_t &next, uint32_t cycles) {
    next += cycles;
    do meter.look();
    while (meter.now < next);
}

// Tiles of 128 rows of 256 bytes, along rows; a warp has 16 rows and stores eight at a time. A word says which thread stored it.
template <int kLaneBytes, bool kIsPaced>
__device__ __forceinline__ void store_fragments(const Plan &plan, unsigned char *matrix, int64_t until, Meter &meter) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    int64_t next = meter.now;
    for (uint32_t tile = blockIdx.x; meter.now < until; tile += gridDim.x) {
        const uint32_t row = tile / kTileColumns % kTileBands * kTileRows + warp * 16 + lane / 4;
        unsigned char *at = matrix + row * kPitchBytes + tile % kTileColumns * kTileBytes + lane % 4 * kLaneBytes;
#pragma unroll 4
        for (uint32_t part = 0; part < kTileBytes / (4 * kLaneBytes); ++part) {
            put<kLaneBytes>(at, threadIdx.x);
            put<kLaneBytes>(at + 8 * kPitchBytes, threadIdx.x);
            at += 4 * kLaneBytes;
            if constexpr (kIsPaced) {
                meter.num += 2;
                pause(meter, next, 2 * plan.pace);
                if (meter.now >= until) break;
            }
        }
        if constexpr (!kIsPaced) {
            meter.num += kTileBytes / (2 * kLaneBytes);
            meter.look();
        }
    }
}

// Lines side by side, again and again into the warp's own.
template <bool kIsPaced>
__device__ __forceinline__ void store_lines(const Plan &plan, unsigned char *matrix, int64_t until, Meter &meter) {
    unsigned char *own = matrix + (blockIdx.x * kStoreWarps + threadIdx.x / 32) * kWarpBytes + threadIdx.x % 32 * 16;
    int64_t next = meter.now;
    for (uint32_t begin = 0; meter.now < until; begin = (begin + kLinesBytes) % kWarpBytes) {
        unsigned char *at = own + begin;
#pragma unroll
        for (uint32_t part = 0; part < kLinesBytes / kLines; ++part) {
            put<16>(at + part * kLines, threadIdx.x);
            if constexpr (kIsPaced) {
                ++meter.num;
                pause(meter, next, plan.pace);
                if (meter.now >= until) break;
            }
        }
        if constexpr (!kIsPaced) {
            meter.num += kLinesBytes / kLines;
            meter.look();
        }
    }
}

template <int kKind, bool kIsPaced>
__device__ __forceinline__ void store(const Plan &plan, unsigned char *matrix, int64_t until, Meter &meter) {
    if constexpr (kKind == kLines)
        store_lines<kIsPaced>(plan, matrix, until, meter);
    else
        store_fragments<kKind, kIsPaced>(plan, matrix, until, meter);
}

// ---- reads

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

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

__device__ __forceinline__ void copy(uint32_t to, const unsigned char *from, uint32_t num_bytes, uint32_t barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
                 "r"(num_bytes), "r"(barrier)
                 : "memory");
}

// Copies, each issued as soon as the one before into its stage is there; by one lane. False: one never came.
__device__ __forceinline__ bool ring(const Plan &plan, const unsigned char *own, Shared &shared, int64_t until, Meter &meter) {
    const uint32_t full = smem_address(shared.full), to = smem_address(stages);
    uint32_t issued = 0, from = 0, stage = 0, parity = 0;
    bool is_well = true;
    for (; issued < plan.num_stages; ++issued, from = (from + plan.copy_bytes) % kOwnBytes)
        copy(to + issued * plan.copy_bytes, own + from, plan.copy_bytes, full + issued * 8);
#pragma unroll 1
    while (meter.now < until) {
        if (!(is_well = wait(full + stage * 8, parity))) break;
        ++meter.num;
        copy(to + stage * plan.copy_bytes, own + from, plan.copy_bytes, full + stage * 8);
        ++issued;
        from = (from + plan.copy_bytes) % kOwnBytes;
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
        meter.look();
    }
    for (uint32_t i = 0; i < plan.num_stages && is_well; ++i) {
        is_well = wait(full + stage * 8, parity);
        if (++stage == plan.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    shared.num_issued = issued;
    return is_well;
}

// Loads, each of which says where the next one is; by one lane.
__device__ __forceinline__ void chase(const unsigned char *own, Shared &shared, int64_t until, Meter &meter) {
    uint32_t at = 0;
#pragma unroll 1
    while (meter.now < until) {
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(own + at) : "memory");
        ++meter.num;
        meter.look();
    }
    shared.num_issued = meter.num;
    shared.checksum = at;
}

// ---- all of it

// What is stored into, and what is read, into L2. Whether all of that has come and is what it should be: no odd words.
__device__ __forceinline__ bool prepare(const Plan &plan, const unsigned char *own, unsigned char *matrix) {
    for (uint32_t idx = blockIdx.x * kThreads + threadIdx.x; idx < plan.matrix_vectors; idx += gridDim.x * kThreads)
        put<16>(matrix + static_cast<uint64_t>(idx) * 16, 0xFFFFFFFFu);
    uint32_t sink = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < kOwnBytes; byte += kThreads * 16) {
        uint32_t word;
        asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(own + byte) : "memory");
        sink |= word & 1;
    }
    return !sink;
}

template <int kKind>
__device__ __forceinline__ void beside(const Plan &plan, Flags *flags, const unsigned char *sources, unsigned char *matrix, Told *told) {
    __shared__ Shared shared;
    const unsigned char *own = sources + static_cast<uint64_t>(blockIdx.x) * kOwnBytes;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const bool is_storing = kKind != kNone && sm_idx() % plan.every == 0;
    if (threadIdx.x == 0) {
        shared.checksum = shared.num_issued = 0;
        for (uint32_t i = 0; i < plan.num_stages; ++i)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.full[i])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (!prepare(plan, own, matrix)) atomicExch(&flags->has_failed, 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (!meet_in_time(flags, &flags->met, gridDim.x, 0)) atomicExch(&flags->has_failed, 1u);
        shared.start = clock_now();
    }
    __syncthreads();
    const int64_t from = shared.start + plan.warm_cycles, until = from + plan.measured_cycles;
    Meter meter(from);
    if (warp == kStoreWarps) {
        if (lane == 0) {
            bool is_well = true;
            if (plan.num_stages)
                is_well = ring(plan, own, shared, until, meter);
            else if (plan.copy_bytes)
                chase(own, shared, until, meter);
            if (!is_well) atomicExch(&flags->has_failed, 1u);
            told[blockIdx.x].read = meter.counted();
        }
    } else {
        if constexpr (kKind != kNone) {
            if (is_storing && plan.pace)
                store<kKind, true>(plan, matrix, until, meter);
            else if (is_storing)
                store<kKind, false>(plan, matrix, until, meter);
        }
        if (lane == 0) told[blockIdx.x].stored[warp] = meter.counted();
    }
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t idx = threadIdx.x; idx < plan.num_stages * plan.copy_bytes / 4; idx += kThreads)
        sum += reinterpret_cast<const uint32_t *>(stages)[idx] * (2 * idx + 1);
    if (plan.num_stages) atomicAdd(&shared.checksum, sum);
    __syncthreads();
    if (threadIdx.x == 0) {
        Told &mine = told[blockIdx.x];
        mine.sm = sm_idx();
        mine.is_storing = is_storing;
        mine.num_issued = shared.num_issued;
        mine.checksum = shared.checksum;
    }
}

#define BESIDE(NAME, KIND)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(kThreads) NAME(const __grid_constant__ Plan plan, Flags *flags,               \
                                                                const unsigned char *sources, unsigned char *matrix, Told *told) { \
        beside<KIND>(plan, flags, sources, matrix, told);                                                                      \
    }

BESIDE(beside_none, kNone)
BESIDE(beside_4, kFragment4)
BESIDE(beside_8, kFragment8)
BESIDE(beside_16, kFragment16)
BESIDE(beside_lines, kLines)

#endif
