// Two or more SMs read the same lines, each a given time after the one before, while other SMs keep L2 busy: what is read twice?
//
// One CTA an SM. Readers compare their clocks, then read shot after shot: shot k at start + k * period by reader 0's clock,
// reader r later by r * skew, each right behind so many bytes of its own. Meanwhile the SMs that load keep so many bytes of
// their own lines under way, 4 KiB a copy. All of it is in L2. Bulk copies alone.

#include "grid.cuh"

constexpr int kThreads = 32;
constexpr uint32_t kMostReaders = 8;
constexpr uint32_t kPoolBytes = 64u << 20;
constexpr uint32_t kCopyBytes = 4096;       // of a reader's own lines
constexpr uint32_t kSlotBytes = 32768;      // of an SM that loads: two copies
constexpr uint32_t kMostSlots = 5;
constexpr uint32_t kRegionBytes = 160u << 10;  // of an SM's own lines
constexpr uint32_t kOwnFirstByte = 16u << 20;  // of the pool: where own lines begin; before them those that readers share
constexpr uint32_t kLeadCycles = 40000;     // from the last meeting to the first shot

__device__ __align__(1024) uint4 pool[kPoolBytes / 16];
__device__ uint32_t pool_is_filled;

struct Plan {
    uint32_t sms[kMostReaders];  // on which SM each reader is
    uint32_t num_readers;
    uint32_t num_shots, shot_bytes, ahead_bytes;
    uint32_t skew_cycles, period_cycles;
    uint32_t num_rounds;         // of a comparison of two clocks
    uint32_t num_slots;          // under way of each SM that loads; 0: none loads
    uint32_t gap_cycles;         // from slot to slot at least
    uint32_t loads[5];           // a bit for each SM that does
};

// What each reader says of itself.
struct Told {
    int64_t sm, checksum, most_drift, offset;
};

struct Shot {
    int32_t late_cycles;  // issued so much after its time
    int32_t wait_cycles;  // from there to the last byte
};

struct Loaded {
    uint32_t num_slots, cycles;
};

struct Shared {
    Offset offset;
    int64_t start;
    uint32_t reader, is_well;
    uint64_t mbarriers[kMostSlots];
};

extern __shared__ __align__(1024) unsigned char landing[];

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ uint4 words_at(uint32_t idx) {
    return make_uint4(word_at(4 * idx), word_at(4 * idx + 1), word_at(4 * idx + 2), word_at(4 * idx + 3));
}

#if __CUDA_ARCH__ >= 900

// By the whole warp: a lone lane looks seldom.
__device__ __forceinline__ bool wait_mbarrier(uint32_t barrier, uint32_t parity) {
    const int64_t begin = clock_now();
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
        if (clock_now() - begin > kPatienceCycles) return false;
    }
    return true;
}

__device__ __forceinline__ void expect(uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

__device__ __forceinline__ void bulk(uint32_t destination, const void *source, uint32_t num_bytes, uint32_t barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
                 "l"(source), "r"(num_bytes), "r"(barrier)
                 : "memory");
}

// So many bytes into L2, past L1.
__device__ __forceinline__ uint32_t warm(const unsigned char *lines, uint32_t num_bytes) {
    uint32_t sum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < num_bytes; byte += kThreads * 16) {
        uint4 v;
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(lines + byte)
                     : "memory");
        sum += v.x + v.y + v.z + v.w;
    }
    return sum;
}

// Keeps copies under way for so many cycles.
__device__ __forceinline__ bool load(const Plan &plan, Shared &shared, const unsigned char *own, uint32_t cycles, Loaded *loaded) {
    const int64_t begin = clock_now();
    int64_t next = begin + (own - reinterpret_cast<const unsigned char *>(pool)) / kRegionBytes * 617 % 4096;  // not all at once
    uint32_t slot = 0, round = 0, at = 0, num = 0;
    bool is_well = true;
    while (is_well) {
        const uint32_t barrier = smem_address(&shared.mbarriers[slot]);
        if (round) {
            is_well = wait_mbarrier(barrier, (round - 1) & 1);
            ++num;
        }
        const bool goes_on = clock_now() - begin < cycles;
        if (!__shfl_sync(0xffffffff, goes_on, 0)) break;
        if (threadIdx.x == 0) {
            expect(barrier, kSlotBytes);
            if (plan.gap_cycles) {
                pause_until(next);
                next = max(next, clock_now() - 1000) + plan.gap_cycles;
            }
            for (uint32_t half = 0; half < kSlotBytes; half += kSlotBytes / 2)
                bulk(smem_address(landing) + slot * kSlotBytes + half, own + at + half, kSlotBytes / 2, barrier);
        }
        __syncwarp();
        at = (at + kSlotBytes) % kRegionBytes;
        if (++slot == plan.num_slots) {
            slot = 0;
            ++round;
        }
    }
    const uint32_t taken = static_cast<uint32_t>(clock_now() - begin);
    // the slots behind this one are still under way
    for (uint32_t left = slot + 1; is_well && round && left < plan.num_slots; ++left)
        is_well = wait_mbarrier(smem_address(&shared.mbarriers[left]), (round - 1) & 1);
    for (uint32_t left = 0; is_well && left < slot; ++left) is_well = wait_mbarrier(smem_address(&shared.mbarriers[left]), round & 1);
    if (threadIdx.x == 0) *loaded = {num, taken};
    return is_well;
}

#endif

extern "C" __global__ void __launch_bounds__(kThreads)
    busy(const __grid_constant__ Plan plan, Flags *flags, Shot *shots, Told *told, Loaded *loaded) {
#if __CUDA_ARCH__ >= 900
    __shared__ Shared shared;
    const uint32_t sm = sm_idx();
    if (threadIdx.x == 0) {
        shared.reader = kMostReaders;
        for (uint32_t idx = 0; idx < plan.num_readers; ++idx)
            if (plan.sms[idx] == sm && atomicExch(&flags->claimed[sm % kMostSms], 1u) == 0) shared.reader = idx;
        shared.offset = {0, 0, 0, false};
        for (uint32_t idx = 0; idx < kMostSlots; ++idx)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.mbarriers[idx])) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        shared.is_well = peek(&pool_is_filled) != 0;
    }
    __syncwarp();
    const uint32_t reader = shared.reader;
    const bool is_reader = reader < plan.num_readers;
    const bool is_loading = plan.num_slots && !is_reader && (plan.loads[sm / 32] >> sm % 32 & 1);
    if (!shared.is_well)
        for (uint32_t idx = blockIdx.x * kThreads + threadIdx.x; idx < kPoolBytes / 16; idx += gridDim.x * kThreads) pool[idx] = words_at(idx);
    __threadfence();
    __syncwarp();
    if (threadIdx.x == 0) {
        shared.is_well = meet(flags, &flags->arrived, gridDim.x, 200);
        if (shared.is_well) atomicExch(&pool_is_filled, 1u);
    }
    __syncwarp();
    const unsigned char *lines = reinterpret_cast<const unsigned char *>(pool);
    const unsigned char *own = lines + kOwnFirstByte + static_cast<size_t>(sm) * kRegionBytes;
    uint32_t target = 0, sink = 0;
    if (is_reader) {
        for (uint32_t who = 0; who < plan.num_readers; ++who) {  // one after the other, so that nothing merges
            if (who == reader && shared.is_well) sink += warm(lines, plan.num_shots * plan.shot_bytes) + warm(own, kRegionBytes);
            __syncwarp();
            target += plan.num_readers;
            if (threadIdx.x == 0 && shared.is_well) shared.is_well = meet(flags, &flags->met, target, 500);
            __syncwarp();
        }
        if (threadIdx.x == 0 && shared.is_well) {
            shared.is_well = compare_clocks(flags, reader, plan.num_readers, plan.num_rounds, target, shared.offset);
            if (reader == 0) poke(&flags->start[0], static_cast<uint64_t>(clock_now() + kLeadCycles));
        }
    } else if (is_loading) {
        sink += warm(own, kRegionBytes);
    }
    __syncwarp();
    if (threadIdx.x == 0) {
        if (is_reader || is_loading)
            shared.is_well = shared.is_well && meet(flags, &flags->arrived, 2 * gridDim.x, 200);
        else
            atomicAdd(&flags->arrived, 1u);
    }
    __syncwarp();
    bool is_well = shared.is_well;
    if (is_loading && is_well) {
        is_well = load(plan, shared, own, 2 * kLeadCycles + plan.num_shots * plan.period_cycles, &loaded[sm]);
    } else if (is_reader && is_well) {
        if (threadIdx.x == 0)
            shared.start = static_cast<int64_t>(peek(&flags->start[0])) + shared.offset.cycles + reader * plan.skew_cycles;
        __syncwarp();
        const int64_t start = shared.start;
        const uint32_t barrier = smem_address(&shared.mbarriers[0]), of_own = smem_address(&shared.mbarriers[1]);
        uint32_t checksum = 0;
#pragma unroll 1
        for (uint32_t shot = 0; shot < plan.num_shots && is_well; ++shot) {
            const int64_t when = start + static_cast<int64_t>(shot) * plan.period_cycles;
            int64_t begin = 0;
            const unsigned char *source = lines + static_cast<size_t>(shot) * plan.shot_bytes;
            if (threadIdx.x == 0) {
                expect(barrier, plan.shot_bytes);
                expect(of_own, plan.ahead_bytes);
                pause_until(when);
                for (uint32_t byte = 0; byte < plan.ahead_bytes; byte += kCopyBytes)
                    bulk(smem_address(landing) + plan.shot_bytes + byte, own + (shot * plan.ahead_bytes + byte) % kRegionBytes, kCopyBytes, of_own);
                begin = clock_now();
                bulk(smem_address(landing), source, plan.shot_bytes, barrier);
            }
            __syncwarp();
            is_well = wait_mbarrier(barrier, shot & 1);
            const int64_t end = clock_now();
            is_well = is_well && wait_mbarrier(of_own, shot & 1);
            if (threadIdx.x == 0)
                shots[reader * plan.num_shots + shot] = {static_cast<int32_t>(begin - when), static_cast<int32_t>(end - begin)};
            for (uint32_t byte = threadIdx.x * 16; is_well && byte < plan.shot_bytes; byte += kThreads * 16) {
                const uint4 v = *reinterpret_cast<const uint4 *>(landing + byte);
                checksum += v.x + v.y + v.z + v.w;
            }
            __syncwarp();
        }
        checksum = __reduce_add_sync(0xffffffff, checksum);
        if (threadIdx.x == 0) told[reader] = {sm, checksum, shared.offset.most_drift, shared.offset.cycles};
    }
    if (threadIdx.x == 0 && !is_well) atomicExch(&flags->has_failed, 1u);
    if (sink == 0x5EED) flags->gap0[0] = sink;  // the warm-up's loads are not left out
#endif
}
