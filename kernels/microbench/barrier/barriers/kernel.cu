// What does synchronizing cost? mbarriers, thread and cluster barriers, fences, distributed shared memory, setmaxnreg,
// shuffles and votes: each a few times between two readings of the SM's clock.
//
// A probe is a struct with `before`, `step`, `after`; `time_op` runs it in rounds and gives back every round's cycles.
// `kCount` steps lie unrolled between two readings, so that the slope over kCount is what one costs and the intercept what the
// readings cost. Every wait is bounded, and what it leaves is counted in `result`.

#include <cstdint>

constexpr int kRounds = 48;
constexpr int kScratchWords = 8192;

struct Probe {
    uint32_t num_lanes;       // threads of the measuring warp that take part
    uint32_t partner;         // the other warp, or the other CTA's rank
    uint32_t num_busy_warps;  // the last warps of the CTA: they do arithmetic meanwhile
    uint32_t hint_ns;         // of try_wait
    uint32_t num_loads;       // 16-byte accesses of each thread
    uint32_t only_first;      // 1: only the first CTA of the cluster moves data
};

__shared__ __align__(16) uint32_t scratch[kScratchWords];
__shared__ __align__(8) uint64_t barriers[4];
__shared__ volatile uint32_t is_over;

// All 64 bits are kept, since those are read by CS2R, in order; 32 bits are sometimes read by S2UR, whenever that comes to it.
__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}

// The warp goes on only when `value` is there.
__device__ __forceinline__ void settle(uint32_t value) {
    asm volatile("{ .reg .pred p; setp.eq.u32 p, %0, 0x7ffffff1; @p trap; }" ::"r"(value) : "memory");
}

// An address that is worked out here, and not again between two readings of the clock.
__device__ __forceinline__ uint32_t smem_address(const void *pointer) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(const_cast<void *>(pointer)));
    asm volatile("" : "+r"(address));
    return address;
}

__device__ __forceinline__ uint32_t warp_idx() { return threadIdx.x / 32; }

// Arithmetic until the measurement is over; keeps issue slots and FMA lanes busy.
__device__ __noinline__ void be_busy(float *sink) {
    float sums[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    while (!is_over) {
#pragma unroll
        for (int i = 0; i < 64; ++i) asm volatile("fma.rn.f32 %0, %0, %0, %1;" : "+f"(sums[i % 8]) : "f"(0.5f));
    }
    float all = 0;
    for (int i = 0; i < 8; ++i) all += sums[i];
    if (all == 1.2345f) *sink = all;
}

// Rounds of one measuring warp; the other warps are busy, or wait at the end.
template <class Op, int kCount>
__device__ __forceinline__ void time_op(const Probe &probe, int64_t *samples, uint32_t *result) {
    const uint32_t num_warps = blockDim.x / 32;
    if (threadIdx.x == 0) is_over = 0;
    Op op(probe, kCount);
    __syncthreads();
    if (warp_idx() == 0) {
#pragma unroll 1
        for (int round = 0; round < kRounds; ++round) {
            op.before(round);
            __syncwarp();
            const int64_t begin = now();
#pragma unroll
            for (int i = 0; i < kCount; ++i) op.step();
            op.settle_all();
            const int64_t end = now();
            op.after(round);
            if (threadIdx.x == 0) samples[round] = end - begin;
        }
        __syncwarp();
        if (threadIdx.x == 0) is_over = 1;
    } else if (warp_idx() >= num_warps - probe.num_busy_warps) {
        be_busy(reinterpret_cast<float *>(scratch));
    } else {
        op.others();
    }
    __syncthreads();
    result[threadIdx.x] = op.value;
}

struct Base {
    uint32_t value = 0;  // what `result` gets: counted answers of this thread
    const Probe &probe;
    __device__ __forceinline__ Base(const Probe &of) : probe(of) {}
    __device__ __forceinline__ void before(int) {}
    __device__ __forceinline__ void after(int) {}
    __device__ __forceinline__ void others() {}
    __device__ __forceinline__ void settle_all() { settle(value); }
};

struct Empty : Base {
    __device__ __forceinline__ Empty(const Probe &of, int) : Base(of) {}
    __device__ __forceinline__ void step() {}
};

#define PROBE(name, Op, count)                                                                                     \
    extern "C" __global__ void name##_##count(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) { \
        time_op<Op, count>(probe, samples, result);                                                                \
    }
#define PROBES(name, Op) PROBE(name, Op, 1) PROBE(name, Op, 4) PROBE(name, Op, 8) PROBE(name, Op, 16)

PROBES(empty, Empty)

// ------------------------------------------------------------------------------------------ shuffles and votes

#define WARP_OP(Name, expression)                                             \
    struct Name : Base {                                                      \
        __device__ __forceinline__ Name(const Probe &of, int) : Base(of) { value = threadIdx.x; } \
        __device__ __forceinline__ void step() { expression; }                \
    };
#define WARP_ASM(Name, text) WARP_OP(Name, asm volatile(text : "+r"(value)::"memory"))

WARP_ASM(ShflIdx, "shfl.sync.idx.b32 %0, %0, 5, 31, 0xffffffff;")
WARP_ASM(ShflDown, "shfl.sync.down.b32 %0, %0, 1, 31, 0xffffffff;")
WARP_ASM(ShflBfly, "shfl.sync.bfly.b32 %0, %0, 1, 31, 0xffffffff;")
WARP_ASM(VoteBallot,
         "{ .reg .pred p; setp.ne.u32 p, %0, 0x7ffffff1; vote.sync.ballot.b32 %0, p, 0xffffffff; }")
WARP_ASM(VoteAny, "{ .reg .pred p; setp.ne.u32 p, %0, 0x7ffffff1; vote.sync.any.pred p, p, 0xffffffff; selp.u32 %0, 1, 0, p; }")
WARP_ASM(MatchAny, "match.any.sync.b32 %0, %0, 0xffffffff;")
#if __CUDA_ARCH__ >= 800
WARP_ASM(ReduxMax, "redux.sync.max.u32 %0, %0, 0xffffffff;")
#endif
WARP_OP(SyncWarp, __syncwarp())

PROBES(shfl_idx, ShflIdx)
PROBES(shfl_down, ShflDown)
PROBES(shfl_bfly, ShflBfly)
PROBES(vote_ballot, VoteBallot)
PROBES(vote_any, VoteAny)
PROBES(match_any, MatchAny)
PROBES(redux_max, ReduxMax)
PROBES(syncwarp, SyncWarp)

// ------------------------------------------------------------------------------------------ fences

struct Nothing { static __device__ __forceinline__ void issue(uint32_t, uint32_t) {} };
struct SharedStore {
    static __device__ __forceinline__ void issue(uint32_t address, uint32_t value) {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
    }
};

#define FENCE(Name, text)                                                                              \
    template <class Before>                                                                            \
    struct Name : Base {                                                                               \
        uint32_t address;                                                                              \
        __device__ __forceinline__ Name(const Probe &of, int)                                          \
            : Base(of), address(smem_address(scratch + threadIdx.x)) {}                                \
        __device__ __forceinline__ void step() {                                                       \
            Before::issue(address, value);                                                                    \
            asm volatile(text ::: "memory");                                                           \
            ++value;                                                                                   \
        }                                                                                              \
    };
FENCE(FenceCta, "fence.acq_rel.cta;")
FENCE(FenceGpu, "fence.acq_rel.gpu;")
FENCE(FenceSys, "fence.acq_rel.sys;")
FENCE(FenceScGpu, "fence.sc.gpu;")
#define FENCES(name, Op) PROBES(name, Op<Nothing>) PROBES(name##_after_st_shared, Op<SharedStore>)
FENCES(fence_cta, FenceCta)
FENCES(fence_gpu, FenceGpu)
FENCES(fence_sys, FenceSys)
FENCES(fence_sc_gpu, FenceScGpu)

// With a store to global memory before it; the store is to `result`, behind the words that the threads give back.
#define GLOBAL_FENCE(name, text, count)                                                                            \
    extern "C" __global__ void name##_##count(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) { \
        uint32_t value = 0;                                                                                        \
        _Pragma("unroll 1") for (int round = 0; round < kRounds; ++round) {                                        \
            const int64_t begin = now();                                                                          \
            _Pragma("unroll") for (int i = 0; i < count; ++i) {                                                    \
                asm volatile("st.global.u32 [%0], %1;" ::"l"(result + 1024 + threadIdx.x), "r"(value) : "memory"); \
                asm volatile(text ::: "memory");                                                                   \
                ++value;                                                                                           \
            }                                                                                                      \
            const int64_t end = now();                                                                            \
            if (threadIdx.x == 0) samples[round] = end - begin;                              \
        }                                                                                                          \
        result[threadIdx.x] = value;                                                                               \
    }
#define GLOBAL_FENCES(name, text) \
    GLOBAL_FENCE(name, text, 1) GLOBAL_FENCE(name, text, 4) GLOBAL_FENCE(name, text, 8) GLOBAL_FENCE(name, text, 16)
GLOBAL_FENCES(fence_cta_after_st_global, "fence.acq_rel.cta;")
GLOBAL_FENCES(fence_gpu_after_st_global, "fence.acq_rel.gpu;")
GLOBAL_FENCES(fence_sys_after_st_global, "fence.acq_rel.sys;")

// ------------------------------------------------------------------------------------------ bar.sync, bar.arrive

// All warps take part; the first one's clock counts. Afterwards every warp counts, between two barriers, and all look at all.
template <int kCount>
__device__ __forceinline__ void run_bar_sync(int64_t *samples, uint32_t *result) {
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        const int64_t begin = now();
#pragma unroll
        for (int i = 0; i < kCount; ++i) asm volatile("bar.sync 0;" ::: "memory");
        __syncwarp();  // else the clock is read before the last barrier has let the warp go
        const int64_t end = now();
        if (threadIdx.x == 0) samples[round] = end - begin;
    }
    uint32_t num_right = 0;
    volatile uint32_t *turns = scratch;
#pragma unroll 1
    for (uint32_t turn = 1; turn <= kCount; ++turn) {
        if (threadIdx.x % 32 == 0) turns[warp_idx()] = turn;
        asm volatile("bar.sync 0;" ::: "memory");
        uint32_t all = 1;
        for (uint32_t warp = 0; warp < blockDim.x / 32; ++warp) all &= turns[warp] == turn;
        num_right += all;
        asm volatile("bar.sync 0;" ::: "memory");
    }
    result[threadIdx.x] = num_right;
}

#define BAR_SYNC(count)                                                                                            \
    extern "C" __global__ void bar_sync_##count(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) { \
        run_bar_sync<count>(samples, result);                                                                      \
    }
BAR_SYNC(1) BAR_SYNC(4) BAR_SYNC(8) BAR_SYNC(16)

// The first half of the warps arrives on barrier 1 and waits on 2; the second half does the reverse: there and back.
// `only_arrive`: the clock is read before the wait.
template <int kCount, bool kOnlyArrive>
__device__ __forceinline__ void run_bar_ping_pong(int64_t *samples, uint32_t *result) {
    const uint32_t all = blockDim.x;
    const bool is_first = threadIdx.x < all / 2;
    volatile uint32_t *turns = scratch;
    uint32_t num_right = 0;
    if (is_first) {
#pragma unroll 1
        for (int round = 0; round < kRounds; ++round) {
            if (threadIdx.x == 0) turns[0] = round;
            int64_t begin = now(), end = 0;
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                asm volatile("bar.arrive 1, %0;" ::"r"(all) : "memory");
                if (kOnlyArrive) end = now();
                asm volatile("bar.sync 2, %0;" ::"r"(all) : "memory");
            }
            if (!kOnlyArrive) {
                __syncwarp();
                end = now();
            }
            num_right += turns[1] == static_cast<uint32_t>(round);
            if (threadIdx.x == 0) samples[round] = end - begin;
        }
    } else {
#pragma unroll 1
        for (int round = 0; round < kRounds; ++round) {
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                asm volatile("bar.sync 1, %0;" ::"r"(all) : "memory");
                if (i == kCount - 1) {
                    num_right += turns[0] == static_cast<uint32_t>(round);
                    if (threadIdx.x == all / 2) turns[1] = round;
                }
                asm volatile("bar.arrive 2, %0;" ::"r"(all) : "memory");
            }
        }
    }
    result[threadIdx.x] = num_right;
}

#define BAR_PING_PONG(count)                                                                                            \
    extern "C" __global__ void bar_ping_pong_##count(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) { \
        run_bar_ping_pong<count, false>(samples, result);                                                               \
    }
BAR_PING_PONG(1) BAR_PING_PONG(4) BAR_PING_PONG(8) BAR_PING_PONG(16)
extern "C" __global__ void bar_arrive_1(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) {
    run_bar_ping_pong<1, true>(samples, result);
}

#if __CUDA_ARCH__ >= 900

constexpr uint32_t kPatience = 1u << 16;  // tries of a wait before it is given up

FENCE(FenceProxyAsyncShared, "fence.proxy.async.shared::cta;")
FENCE(FenceProxyAsync, "fence.proxy.async;")
FENCE(FenceMbarrierInit, "fence.mbarrier_init.release.cluster;")
FENCE(FenceCluster, "fence.acq_rel.cluster;")
FENCES(fence_proxy_async_shared, FenceProxyAsyncShared)
FENCES(fence_proxy_async, FenceProxyAsync)
FENCES(fence_mbarrier_init, FenceMbarrierInit)
FENCES(fence_cluster, FenceCluster)

// ------------------------------------------------------------------------------------------ mbarriers of the CTA

__device__ __forceinline__ void init(uint32_t barrier, uint32_t num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expect_tx(uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}
__device__ __forceinline__ uint32_t test_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
    return is_done;
}
__device__ __forceinline__ uint32_t try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
    return is_done;
}
__device__ __forceinline__ uint32_t try_wait_hint(uint32_t barrier, uint32_t parity, uint32_t hint_ns) {
    uint32_t is_done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_done) : "r"(barrier), "r"(parity), "r"(hint_ns) : "memory");
    return is_done;
}
// Whether the phase has completed before patience ran out. A whole warp waits: a lone lane, beside others of its warp that stand
// elsewhere, looks only every 150 to 200 cycles (seen on an H200).
__device__ __forceinline__ uint32_t wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (uint32_t tries = 0; tries < kPatience; ++tries)
        if (try_wait(barrier, parity)) return 1;
    return 0;
}
__device__ __forceinline__ uint32_t spin(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (uint32_t tries = 0; tries < 16 * kPatience; ++tries)
        if (test_wait(barrier, parity)) return 1;
    return 0;
}

// One phase a round: `count` arrivals of each lane that takes part. `value` counts phases that completed.
struct Arrive : Base {
    uint32_t barrier;
    bool is_in;
    __device__ __forceinline__ Arrive(const Probe &of, int count) : Base(of), barrier(smem_address(barriers)) {
        is_in = threadIdx.x < of.num_lanes;
        if (threadIdx.x == 0) init(barrier, of.num_lanes * count);
    }
    __device__ __forceinline__ void step() {
        if (is_in) arrive(barrier);
    }
    __device__ __forceinline__ void settle_all() {}
    __device__ __forceinline__ void after(int round) { value += spin(barrier, round & 1); }
};

struct ArriveExpectTx : Base {
    uint32_t barrier;
    int count;
    __device__ __forceinline__ ArriveExpectTx(const Probe &of, int steps) : Base(of), barrier(smem_address(barriers)), count(steps) {
        if (threadIdx.x == 0) init(barrier, steps);
    }
    __device__ __forceinline__ void step() {
        if (threadIdx.x == 0) arrive_expect_tx(barrier, 16);
    }
    __device__ __forceinline__ void settle_all() {}
    __device__ __forceinline__ void after(int round) {
        if (threadIdx.x == 0)
            asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(16 * count) : "memory");
        value += spin(barrier, round & 1);
    }
};

// A fresh barrier's phase of parity 1 counts as completed, that of parity 0 is pending. Each answer moves the next address
// by what it should not be, so that one waits for the other.
#define WAIT_OP(Name, parity, expected, call)                                                                \
    struct Name : Base {                                                                                     \
        uint32_t barrier, first;                                                                             \
        __device__ __forceinline__ Name(const Probe &of, int) : Base(of), barrier(smem_address(barriers)) {  \
            first = barrier;                                                                                 \
            if (threadIdx.x == 0) init(barrier, 1);                                                          \
        }                                                                                                    \
        __device__ __forceinline__ void step() {                                                             \
            const uint32_t is_done = call;                                                                   \
            barrier += (is_done ^ (expected)) * 8;                                                           \
        }                                                                                                    \
        __device__ __forceinline__ void settle_all() { settle(barrier); }                                    \
        __device__ __forceinline__ void after(int) { value += barrier == first; }                            \
    };
WAIT_OP(TestWaitDone, 1, 1u, test_wait(barrier, 1))
WAIT_OP(TryWaitDone, 1, 1u, try_wait(barrier, 1))
WAIT_OP(TestWaitPending, 0, 0u, test_wait(barrier, 0))
WAIT_OP(TryWaitPending, 0, 0u, try_wait(barrier, 0))
WAIT_OP(TryWaitHint, 0, 0u, try_wait_hint(barrier, 0, probe.hint_ns))

// One thread arrives, and its warp waits for that phase.
struct SelfRound : Base {
    uint32_t barrier, parity = 0;
    __device__ __forceinline__ SelfRound(const Probe &of, int) : Base(of), barrier(smem_address(barriers)) {
        if (threadIdx.x == 0) init(barrier, 1);
    }
    __device__ __forceinline__ void step() {
        if (threadIdx.x == 0) arrive(barrier);
        __syncwarp();
        value += wait(barrier, parity);
        parity ^= 1;
    }
};

// Warp 0 and another warp answer one another, a lane by arriving, all by waiting; with kSpins the waits are test_wait.
template <bool kSpins>
struct PingPongWarps : Base {
    uint32_t to, back, parity = 0;
    int count;
    __device__ __forceinline__ PingPongWarps(const Probe &of, int steps)
        : Base(of), to(smem_address(barriers)), back(smem_address(barriers + 1)), count(steps) {
        if (threadIdx.x == 0) {
            init(to, 1);
            init(back, 1);
        }
    }
    __device__ __forceinline__ uint32_t until(uint32_t barrier) { return kSpins ? spin(barrier, parity) : wait(barrier, parity); }
    __device__ __forceinline__ void step() {
        if (threadIdx.x == 0) arrive(to);
        __syncwarp();
        value += until(back);
        parity ^= 1;
    }
    __device__ __forceinline__ void others() {
        if (warp_idx() != probe.partner) return;
#pragma unroll 1
        for (int i = 0; i < kRounds * count; ++i) {
            value += until(to);
            parity ^= 1;
            if (threadIdx.x % 32 == 0) arrive(back);
            __syncwarp();
        }
    }
};

PROBES(mbarrier_arrive, Arrive)
PROBES(mbarrier_arrive_expect_tx, ArriveExpectTx)
PROBES(mbarrier_test_wait_done, TestWaitDone)
PROBES(mbarrier_try_wait_done, TryWaitDone)
PROBES(mbarrier_test_wait_pending, TestWaitPending)
PROBE(mbarrier_try_wait_pending, TryWaitPending, 1)
PROBE(mbarrier_try_wait_hint, TryWaitHint, 1)
PROBES(mbarrier_self, SelfRound)
PROBES(mbarrier_ping_pong, PingPongWarps<false>)
PROBES(mbarrier_ping_pong_test, PingPongWarps<true>)

// ------------------------------------------------------------------------------------------ clusters

__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ __forceinline__ uint32_t cluster_idx() {
    uint32_t idx;
    asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(idx));
    return idx;
}
__device__ __forceinline__ uint32_t map_to(uint32_t address, uint32_t rank) {
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
    return mapped;
}
__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ __forceinline__ void arrive_remote(uint32_t mapped) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(mapped) : "memory");
}
__device__ __forceinline__ uint32_t wait_cluster(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (uint32_t tries = 0; tries < kPatience; ++tries) {
        uint32_t is_done;
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
        if (is_done) return 1;
    }
    return 0;
}

// Rank 0 measures; thread 0 of it and of `partner` arrives. `value` counts what came.
template <int kCount>
struct RemoteArrive {
    static __device__ __forceinline__ uint32_t run(const Probe &probe, int64_t *samples) {
        const uint32_t own = smem_address(barriers), far = map_to(own, probe.partner);
        if (threadIdx.x == 0) init(own, kCount);
        cluster_sync();
        uint32_t value = 0;
        if (threadIdx.x == 0 && cluster_rank() == 0) {
#pragma unroll 1
            for (int round = 0; round < kRounds; ++round) {
                const int64_t begin = now();
#pragma unroll
                for (int i = 0; i < kCount; ++i) arrive_remote(far);
                const int64_t end = now();
                samples[round] = end - begin;
                value += wait_cluster(own, round & 1);  // the partner says that they came
            }
        } else if (threadIdx.x == 0 && cluster_rank() == probe.partner) {
            const uint32_t back = map_to(own, 0);
#pragma unroll 1
            for (int round = 0; round < kRounds; ++round) {
                value += wait_cluster(own, round & 1);
                for (int i = 0; i < kCount; ++i) arrive_remote(back);
            }
        }
        return value;
    }
};

template <int kCount>
struct PingPongCtas {
    static __device__ __forceinline__ uint32_t run(const Probe &probe, int64_t *samples) {
        const uint32_t own = smem_address(barriers), far = map_to(own, probe.partner), back = map_to(own, 0);
        if (threadIdx.x == 0) init(own, 1);
        cluster_sync();
        uint32_t value = 0, parity = 0;
        if (warp_idx() == 0 && cluster_rank() == 0) {
#pragma unroll 1
            for (int round = 0; round < kRounds; ++round) {
                const int64_t begin = now();
#pragma unroll
                for (int i = 0; i < kCount; ++i) {
                    if (threadIdx.x == 0) arrive_remote(far);
                    __syncwarp();
                    value += wait_cluster(own, parity);
                    parity ^= 1;
                }
                settle(value);
                const int64_t end = now();
                if (threadIdx.x == 0) samples[round] = end - begin;
            }
        } else if (warp_idx() == 0 && cluster_rank() == probe.partner) {
#pragma unroll 1
            for (int i = 0; i < kRounds * kCount; ++i) {
                value += wait_cluster(own, parity);
                parity ^= 1;
                if (threadIdx.x == 0) arrive_remote(back);
                __syncwarp();
            }
        }
        return value;
    }
};

// Four bytes there and back, each counted on the receiver's mbarrier; each is the turn's number.
template <int kCount>
struct StAsync {
    static __device__ __forceinline__ void send(uint32_t to, uint32_t word, uint32_t barrier) {
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to), "r"(word), "r"(barrier)
                     : "memory");
    }
    static __device__ __forceinline__ uint32_t run(const Probe &probe, int64_t *samples) {
        const uint32_t own = smem_address(barriers), slot = smem_address(scratch);
        const volatile uint32_t *came = scratch;
        if (threadIdx.x == 0) {
            init(own, 1);
            arrive_expect_tx(own, 4);
        }
        cluster_sync();
        const uint32_t other = cluster_rank() == 0 ? probe.partner : 0;
        const uint32_t far = map_to(own, other), far_slot = map_to(slot, other);
        uint32_t value = 0, turn = 0;
        if (warp_idx() == 0 && cluster_rank() == 0) {
#pragma unroll 1
            for (int round = 0; round < kRounds; ++round) {
                const int64_t begin = now();
#pragma unroll
                for (int i = 0; i < kCount; ++i) {
                    if (threadIdx.x == 0) send(far_slot, turn, far);
                    __syncwarp();
                    const uint32_t is_there = wait_cluster(own, turn & 1);
                    if (threadIdx.x == 0) arrive_expect_tx(own, 4);
                    value += is_there & (*came == turn);
                    __syncwarp();
                    ++turn;
                }
                settle(value);
                const int64_t end = now();
                if (threadIdx.x == 0) samples[round] = end - begin;
            }
        } else if (warp_idx() == 0 && cluster_rank() == probe.partner) {
#pragma unroll 1
            for (; turn < kRounds * kCount; ++turn) {
                const uint32_t is_there = wait_cluster(own, turn & 1);
                if (threadIdx.x == 0) arrive_expect_tx(own, 4);
                value += is_there & (*came == turn);
                __syncwarp();
                if (threadIdx.x == 0) send(far_slot, turn, far);
                __syncwarp();
            }
        }
        return value;
    }
};

// A chain of loads: each word of 64 bits is the (generic) address of the next one in the partner's memory, so that nothing
// but the load lies in the chain. `value` is the place where it ends.
template <int kCount>
struct DsmemChain {
    static __device__ __forceinline__ uint32_t run(const Probe &probe, int64_t *samples) {
        constexpr uint32_t kWords = kScratchWords / 2, kStep = 17;  // another bank each time
        uint64_t *words = reinterpret_cast<uint64_t *>(scratch);
        const uint32_t rank = cluster_rank();
        uint64_t first, mine;
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(first) : "l"(words), "r"(probe.partner));
        asm volatile("mapa.u64 %0, %1, %2;" : "=l"(mine) : "l"(words), "r"(rank));
        for (uint32_t i = threadIdx.x; i < kWords; i += blockDim.x) words[i] = mine + 8 * ((i + kStep) % kWords);
        cluster_sync();
        uint64_t at = first;
        if (threadIdx.x == 0 && rank == 0) {
#pragma unroll 1
            for (int round = 0; round < kRounds; ++round) {
                const int64_t begin = now();
#pragma unroll
                for (int i = 0; i < kCount; ++i) asm volatile("ld.u64 %0, [%0];" : "+l"(at)::"memory");
                settle(static_cast<uint32_t>(at));
                samples[round] = now() - begin;
            }
        }
        return static_cast<uint32_t>(at - first) / 8;
    }
};

// All threads of the CTA move 16 bytes each, num_loads times, to or from the CTA after the partner's distance; from a
// barrier of all to the end of the last one. Loads are summed up.
template <bool kIsLoad>
struct DsmemStream {
    static __device__ __forceinline__ uint32_t run(const Probe &probe, int64_t *samples) {
        uint32_t size;
        asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
        const uint32_t rank = cluster_rank(), start = smem_address(scratch);
        for (uint32_t i = threadIdx.x; i < kScratchWords; i += blockDim.x) scratch[i] = rank * 0x10000 + i;
        const uint32_t far = map_to(start, (rank + probe.partner) % size);
        const bool is_in = !probe.only_first || rank == 0;
        uint32_t value = 0;
#pragma unroll 1
        for (int round = 0; round < kRounds; ++round) {
            cluster_sync();
            const int64_t begin = now();
            if (is_in) {
#pragma unroll 1
                for (uint32_t done = 0; done < probe.num_loads; done += 4) {
                    uint4 words[4];
#pragma unroll
                    for (uint32_t i = 0; i < 4; ++i) {
                        const uint32_t at = far + (((done + i) * blockDim.x + threadIdx.x) * 16) % (4 * kScratchWords);
                        if (kIsLoad) {
                            asm volatile("ld.shared::cluster.v4.u32 {%0, %1, %2, %3}, [%4];"
                                         : "=r"(words[i].x), "=r"(words[i].y), "=r"(words[i].z), "=r"(words[i].w) : "r"(at) : "memory");
                        } else {
                            const uint32_t word = (rank + probe.partner) % size * 0x10000 + (at - far) / 4;
                            asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(word), "r"(word + 1),
                                         "r"(word + 2), "r"(word + 3) : "memory");
                        }
                    }
                    if (kIsLoad)
#pragma unroll
                        for (int i = 0; i < 4; ++i) value += words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
                }
            }
            settle(value);
            if (kIsLoad) __syncthreads();
            else cluster_sync();  // stores have arrived
            __syncwarp();
            const int64_t end = now();
            if (threadIdx.x == 0) samples[round] = end - begin;
        }
        if (!kIsLoad)  // the words of this CTA, as its neighbour has written them, are what they were
            for (uint32_t i = threadIdx.x; i < kScratchWords; i += blockDim.x) value += scratch[i] == rank * 0x10000 + i;
        return value;
    }
};

enum Part { kWhole, kOnlyArrive };
template <bool kIsRelaxed>
__device__ __forceinline__ void cluster_arrive() {
    if (kIsRelaxed) asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    else asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// All threads of the cluster. Afterwards every CTA counts in rank 0's memory, and all look there.
template <int kCount, bool kIsRelaxed, Part kPart>
struct ClusterBarrier {
    static __device__ __forceinline__ uint32_t run(const Probe &probe, int64_t *samples) {
        if (threadIdx.x == 0) scratch[0] = 0;
        cluster_sync();
#pragma unroll 1
        for (int round = 0; round < kRounds; ++round) {
            const int64_t begin = now();
            int64_t end = 0;
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                cluster_arrive<kIsRelaxed>();
                if (kPart == kOnlyArrive) end = now();
                asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
            }
            if (kPart == kWhole) end = now();
            if (threadIdx.x == 0) samples[round] = end - begin;
        }
        const uint32_t counter = map_to(smem_address(scratch), 0);
        cluster_sync();
        if (threadIdx.x == 0) asm volatile("red.shared::cluster.add.u32 [%0], 1;" ::"r"(counter) : "memory");
        cluster_sync();
        uint32_t num_arrived;
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(num_arrived) : "r"(counter) : "memory");
        cluster_sync();  // nobody leaves while others read its memory
        return num_arrived;
    }
};

// A row of samples for each cluster, of its rank 0; results of all threads of the first cluster's CTAs.
template <class Op>
__device__ __forceinline__ void time_cluster(const Probe &probe, int64_t *samples, uint32_t *result) {
    __shared__ int64_t seen[kRounds];
    const uint32_t value = Op::run(probe, seen);
    cluster_sync();
    if (cluster_rank() == 0)
        for (int i = threadIdx.x; i < kRounds; i += blockDim.x) samples[cluster_idx() * kRounds + i] = seen[i];
    if (cluster_idx() == 0) result[cluster_rank() * blockDim.x + threadIdx.x] = value;
}

#define CLUSTER(name, size, ...)                                                                                        \
    extern "C" __global__ void __cluster_dims__(size)                                                                   \
        name##_c##size(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) {                       \
        time_cluster<__VA_ARGS__>(probe, samples, result);                                                              \
    }
#define CLUSTERS(name, ...) CLUSTER(name, 2, __VA_ARGS__) CLUSTER(name, 4, __VA_ARGS__) CLUSTER(name, 8, __VA_ARGS__)
#define ALL_CLUSTERS(name, ...) CLUSTER(name, 1, __VA_ARGS__) CLUSTERS(name, __VA_ARGS__) CLUSTER(name, 16, __VA_ARGS__)

#define COUNTED(name, Op) \
    CLUSTERS(name##_1, Op<1>) CLUSTERS(name##_4, Op<4>) CLUSTERS(name##_8, Op<8>) CLUSTERS(name##_16, Op<16>)
COUNTED(remote_arrive, RemoteArrive)
COUNTED(ping_pong, PingPongCtas)
COUNTED(st_async, StAsync)
COUNTED(dsmem_chain, DsmemChain)
CLUSTERS(dsmem_load, DsmemStream<true>)
CLUSTERS(dsmem_store, DsmemStream<false>)
#define CLUSTER_BARRIERS(count)                                                        \
    ALL_CLUSTERS(cluster_barrier_##count, ClusterBarrier<count, false, kWhole>)        \
    ALL_CLUSTERS(cluster_barrier_relaxed_##count, ClusterBarrier<count, true, kWhole>)
CLUSTER_BARRIERS(1)
CLUSTER_BARRIERS(4)
CLUSTER_BARRIERS(8)
CLUSTER_BARRIERS(16)
CLUSTERS(cluster_arrive_1, ClusterBarrier<1, false, kOnlyArrive>)
CLUSTERS(cluster_arrive_relaxed_1, ClusterBarrier<1, true, kOnlyArrive>)

// ------------------------------------------------------------------------------------------ setmaxnreg

// One warpgroup gives registers up and takes them again; nobody else wants them.
extern "C" __global__ void __launch_bounds__(384, 1)
    setmaxnreg_alone(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) {
    uint32_t value = 0;
    if (threadIdx.x < 128) {
#pragma unroll 1
        for (int round = 0; round < kRounds; ++round) {
            const int64_t begin = now();
            asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
            const int64_t middle = now();
            asm volatile("setmaxnreg.inc.sync.aligned.u32 168;" ::: "memory");
            const int64_t end = now();
            ++value;
            if (threadIdx.x == 0) {
                samples[round] = middle - begin;
                samples[kRounds + round] = end - middle;
            }
        }
    }
    result[threadIdx.x] = value;
}

// Two warpgroups want 232 registers, and get them when the third has given up all but 40: from before its dec (the clock is
// the SM's) to after the inc of each of the two. Once a launch.
extern "C" __global__ void __launch_bounds__(384, 1)
    setmaxnreg_hand_over(const __grid_constant__ Probe probe, int64_t *samples, uint32_t *result) {
    __shared__ int64_t gave_at;
    const uint32_t group = threadIdx.x / 128;
    int64_t got_at = 0;
    if (threadIdx.x == 0) gave_at = 0;
    __syncthreads();
    if (group == 0) {
        const int64_t begin = now();
        while (now() - begin < 4096) {}  // the others wait by then
        if (threadIdx.x == 0) gave_at = now();
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
        got_at = now();
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;" ::: "memory");
        got_at = now();
    }
    __syncthreads();
    if (threadIdx.x % 128 == 0) samples[group] = got_at - gave_at;
    result[threadIdx.x] = 1;
}

#endif
