// Some SMs read the same lines, each a given time after the one before: how long does each wait, what reaches L2?
//
// One CTA an SM; those on the SMs that are named are the readers, the others leave once all are there. The readers compare
// their clocks, then read shot after shot: shot k at start + k * period by reader 0's clock, reader r later by r * skew. An
// idle machine lies between two shots. No shot is read twice by the same reader, beside the warm-up.

#include "grid.cuh"

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr uint32_t kMostReaders = 8;
constexpr uint32_t kMostShotBytes = 16384;  // what lines of a launch are a multiple of
constexpr uint32_t kPoolBytes = 384u << 20;

__device__ __align__(1024) uint4 pool[kPoolBytes / 16];
__device__ uint32_t pool_is_filled;

struct Plan {
    uint32_t sms[kMostReaders];  // on which SM each reader is; not looked at in a cluster
    uint32_t num_readers;
    uint32_t num_shots, shot_bytes, shots_per_block;  // clocks are compared before each block
    uint32_t skew_cycles, period_cycles;
    uint32_t first_byte;  // of the pool
    uint32_t own_bytes;   // from one reader's lines to the next one's; 0: the same lines
    uint32_t is_warm;     // every reader reads all lines beforehand, one reader after the other
    uint32_t num_rounds;  // of a comparison of two clocks
};

// What each reader says of itself.
struct Told {
    int64_t sm, checksum, most_drift, offset;
};

struct Shot {
    int32_t late_cycles;  // issued so much after its time
    int32_t wait_cycles;  // from there to the last byte
};

struct Shared {
    Offset offset;
    int64_t start;
    int64_t begin[2][kWarps], end[2][kWarps];
    uint32_t checksum;
    uint32_t reader;
    bool is_well;
    uint64_t mbarrier;
    uint32_t sink[kThreads];
};

extern __shared__ __align__(1024) unsigned char landing[];

__device__ __forceinline__ uint4 words_at(uint32_t idx) {
    return make_uint4(word_at(4 * idx), word_at(4 * idx + 1), word_at(4 * idx + 2), word_at(4 * idx + 3));
}

__device__ __forceinline__ uint32_t sum(uint4 v) { return v.x + v.y + v.z + v.w; }

// Zero, which the compiler cannot know, and not before the clock is read: what it is mixed with is used after that.
__device__ __forceinline__ uint32_t zero_now() { return static_cast<uint32_t>(clock_now() >> 63); }

__device__ __forceinline__ uint32_t sum_after(uint4 v, uint32_t zero) {
    return (v.x ^ zero) + (v.y ^ zero) + (v.z ^ zero) + (v.w ^ zero);
}

__device__ __forceinline__ uint4 load(const void *address) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(address) : "memory");
    return v;
}

// Read straight past L1, and for the checksum alone.
__device__ __forceinline__ uint4 load_past_l1(const void *address) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address)
                 : "memory");
    return v;
}

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// The last use of a value: what follows is issued after it has come.
__device__ __forceinline__ void await(uint32_t *slot, uint32_t value) {
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(smem_address(slot)), "r"(value) : "memory");
}

// ------------------------------------------------------------------------------------------------ ways to read a shot

enum class Way { kLoad, kCpAsync, kBulk, kMulticast };

#if __CUDA_ARCH__ >= 900

// By a whole warp: a lone lane, while others of its warp stand elsewhere, looks only every 150 to 200 cycles (seen on an H200).
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

__device__ __forceinline__ void bulk_to_all(uint32_t destination, const void *source, uint32_t num_bytes, uint32_t barrier,
                                            uint16_t ranks) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
            destination),
        "l"(source), "r"(num_bytes), "r"(barrier), "h"(ranks)
        : "memory");
}

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
}

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

#endif

// Reads one shot at `target` of this SM's clock; the warp's clock before and after, and the sum of its words.
template <Way kWay, int kLoads>
__device__ __forceinline__ bool read_shot(const Plan &plan, Shared &shared, const unsigned char *lines, int64_t target,
                                          uint32_t parity, int64_t &begin, int64_t &end, uint32_t &checksum) {
    const uint32_t at = threadIdx.x * 16;
    begin = kNever;
    end = -kNever;
    bool is_well = true;
    if (kWay == Way::kLoad) {
        if (at < plan.shot_bytes) {
            uint4 v[kLoads];
            pause_until(target);
            begin = clock_now();
#pragma unroll
            for (int i = 0; i < kLoads; ++i) v[i] = load(lines + at + i * kThreads * 16);
            uint32_t total = 0;
            const uint32_t zero = zero_now();  // all are under way before the first is used
#pragma unroll
            for (int i = 0; i < kLoads; ++i) total += sum_after(v[i], zero);
            await(&shared.sink[threadIdx.x], total);
            end = clock_now();
            checksum += total;
        }
    } else if (kWay == Way::kCpAsync) {
        if (at < plan.shot_bytes) {
            const uint32_t to = smem_address(landing) + at;
            pause_until(target);
            begin = clock_now();
#pragma unroll
            for (int i = 0; i < kLoads; ++i)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i * kThreads * 16),
                             "l"(lines + at + i * kThreads * 16)
                             : "memory");
            asm volatile("cp.async.commit_group;" ::: "memory");
            asm volatile("cp.async.wait_group 0;" ::: "memory");
            end = clock_now();
#pragma unroll
            for (int i = 0; i < kLoads; ++i) checksum += sum(*reinterpret_cast<const uint4 *>(landing + at + i * kThreads * 16));
        }
    } else {
#if __CUDA_ARCH__ >= 900
        const uint32_t barrier = smem_address(&shared.mbarrier);
        if (threadIdx.x < 32) {
            if (threadIdx.x == 0) {
                expect(barrier, plan.shot_bytes);
                pause_until(target);
                begin = clock_now();
                if (kWay == Way::kBulk)
                    bulk(smem_address(landing), lines, plan.shot_bytes, barrier);
                else if (shared.reader == 0)
                    bulk_to_all(smem_address(landing), lines, plan.shot_bytes, barrier,
                                static_cast<uint16_t>((1u << plan.num_readers) - 1));
            }
            __syncwarp();
            is_well = wait_mbarrier(barrier, parity);
            end = clock_now();
        }
        is_well = __syncthreads_and(is_well);
        for (uint32_t byte = at; is_well && byte < plan.shot_bytes; byte += kThreads * 16)
            checksum += sum(*reinterpret_cast<const uint4 *>(landing + byte));
#endif
    }
    return is_well;
}

// ------------------------------------------------------------------------------------------------ the launch

// All CTAs of the grid fill the pool, once in a process, and meet. True for those that go on.
__device__ __forceinline__ bool assemble(Flags *flags, Shared &shared, bool is_reader) {
    if (threadIdx.x == 0) shared.is_well = peek(&pool_is_filled) != 0;
    __syncthreads();
    if (!shared.is_well)
        for (uint32_t idx = blockIdx.x * kThreads + threadIdx.x; idx < kPoolBytes / 16; idx += gridDim.x * kThreads)
            pool[idx] = words_at(idx);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t num_ids = num_sm_ids();
        shared.is_well = meet(flags, &flags->arrived, gridDim.x < num_ids ? gridDim.x : num_ids, 200);
        if (shared.is_well) atomicExch(&pool_is_filled, 1u);
    }
    __syncthreads();
    return shared.is_well && is_reader;
}

// Every reader brings all lines that it will read into L2, one reader after the other.
__device__ __forceinline__ void warm_up(const Plan &plan, Shared &shared, Flags *flags, uint32_t &target, uint32_t &sink) {
    for (uint32_t who = 0; who < plan.num_readers; ++who) {
        if (who == shared.reader && shared.is_well) {
            const unsigned char *lines = reinterpret_cast<const unsigned char *>(pool) + plan.first_byte + who * plan.own_bytes;
#pragma unroll 1
            for (uint32_t byte = threadIdx.x * 16; byte < plan.num_shots * plan.shot_bytes; byte += kMostShotBytes) {
                uint4 v[kMostShotBytes / (kThreads * 16)];
#pragma unroll
                for (uint32_t i = 0; i < kMostShotBytes / (kThreads * 16); ++i)
                    v[i] = load_past_l1(lines + byte + i * kThreads * 16);
                const uint32_t zero = zero_now();
#pragma unroll
                for (uint32_t i = 0; i < kMostShotBytes / (kThreads * 16); ++i) sink += sum_after(v[i], zero);
            }
        }
        __syncthreads();
        target += plan.num_readers;
        if (threadIdx.x == 0 && shared.is_well) shared.is_well = meet(flags, &flags->met, target, 500);
        __syncthreads();
    }
}

template <Way kWay, int kLoads>
__device__ __forceinline__ void run(const Plan &plan, Flags *flags, Shot *shots, Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx();
    if (threadIdx.x == 0) {
        shared.reader = kMostReaders;
#if __CUDA_ARCH__ >= 900
        if (kWay == Way::kMulticast) shared.reader = cluster_rank();
#endif
        if (kWay != Way::kMulticast)
            for (uint32_t idx = 0; idx < plan.num_readers; ++idx)
                if (plan.sms[idx] == sm && atomicExch(&flags->claimed[sm % kMostSms], 1u) == 0) shared.reader = idx;
        shared.offset = {0, 0, 0, false};
        shared.checksum = 0;
#if __CUDA_ARCH__ >= 900
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(smem_address(&shared.mbarrier)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    }
    __syncthreads();
    const uint32_t reader = shared.reader;
    if (!assemble(flags, shared, reader < plan.num_readers)) return;
    uint32_t target = 0, checksum = 0, sink = 0;
    if (plan.is_warm) warm_up(plan, shared, flags, target, sink);
    const unsigned char *lines = reinterpret_cast<const unsigned char *>(pool) + plan.first_byte + reader * plan.own_bytes;
    for (uint32_t first = 0; first < plan.num_shots; first += plan.shots_per_block) {
        if (threadIdx.x == 0 && shared.is_well) {
            bool is_well = compare_clocks(flags, reader, plan.num_readers, plan.num_rounds, target, shared.offset);
            if (reader == 0) poke(&flags->start[0], static_cast<uint64_t>(clock_now() + 20000));
            target += plan.num_readers;
            is_well = is_well && meet(flags, &flags->met, target, 0);
            shared.start = static_cast<int64_t>(peek(&flags->start[0])) + shared.offset.cycles + reader * plan.skew_cycles;
            shared.is_well = is_well;
        }
        __syncthreads();
        if (!shared.is_well) break;
        const int64_t start = shared.start;
        bool is_well = true;
#pragma unroll 1
        for (uint32_t idx = 0; idx < plan.shots_per_block && is_well; ++idx) {
            const uint32_t shot = first + idx;
            const int64_t when = start + static_cast<int64_t>(idx) * plan.period_cycles;
            int64_t begin, end;
            is_well = read_shot<kWay, kLoads>(plan, shared, lines + static_cast<size_t>(shot) * plan.shot_bytes, when, shot & 1,
                                              begin, end, checksum);
            if (threadIdx.x % 32 == 0) {
                shared.begin[shot & 1][threadIdx.x / 32] = begin;
                shared.end[shot & 1][threadIdx.x / 32] = end;
            }
            __syncthreads();
            if (threadIdx.x == 0) {
                int64_t earliest = kNever, latest = -kNever;
                for (int warp = 0; warp < kWarps; ++warp) {
                    earliest = min(earliest, shared.begin[shot & 1][warp]);
                    latest = max(latest, shared.end[shot & 1][warp]);
                }
                shots[reader * plan.num_shots + shot] = {static_cast<int32_t>(earliest - when), static_cast<int32_t>(latest - earliest)};
            }
        }
        if (threadIdx.x == 0 && !is_well) atomicExch(&flags->has_failed, 1u);
        __syncthreads();
    }
    atomicAdd(&shared.checksum, checksum);
    if (sink == 0x5EED) shared.sink[0] = sink;  // the warm-up's loads are not left out
    __syncthreads();
    if (threadIdx.x == 0) told[reader] = {sm, shared.checksum, shared.offset.most_drift, shared.offset.cycles};
}

#define SHARING_KERNEL(name, way, loads)                                                                    \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                  \
        name(const __grid_constant__ Plan plan, Flags *flags, Shot *shots, Told *told) {                    \
        run<way, loads>(plan, flags, shots, told);                                                          \
    }

SHARING_KERNEL(load_1, Way::kLoad, 1)
SHARING_KERNEL(load_8, Way::kLoad, 8)
SHARING_KERNEL(cp_async_1, Way::kCpAsync, 1)
SHARING_KERNEL(cp_async_8, Way::kCpAsync, 8)

#if __CUDA_ARCH__ >= 900

SHARING_KERNEL(bulk, Way::kBulk, 1)

// The cluster's CTAs are the readers; rank 0 reads for all. None leaves while another may still write to it.
#define MULTICAST_KERNEL(size)                                                                              \
    extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(kThreads)                     \
        multicast_##size(const __grid_constant__ Plan plan, Flags *flags, Shot *shots, Told *told) {        \
        run<Way::kMulticast, 1>(plan, flags, shots, told);                                                  \
        cluster_sync();                                                                                     \
    }

MULTICAST_KERNEL(2)
MULTICAST_KERNEL(4)
MULTICAST_KERNEL(8)

#endif
