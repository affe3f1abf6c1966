// What does Nsight Compute count as wavefronts of shared memory, beside loads and stores there?
//
// Kernels of one kind of instruction each, 8 or 32 of them a thread (a CTA, where one thread of it issues them): shuffles, votes,
// barriers, arrivals, global accesses, copies by cp.async and in bulk. `ids_*` do nothing but read thread numbers of a block of one to three
// dimensions. Every thread ends with a word that says whether its instructions did what they should.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) uint32_t words[];

enum Kind {
    kNothing, kShuffleIdx, kShuffleBfly, kShuffleHalf, kRedux, kVote, kMatch, kBarrier, kLoad, kStore, kAtomic, kArriveLane, kArriveWarp,
    kTry, kGlobalLoad, kGlobalStore, kCp4, kCp16, kBulk1k, kBulk8k, kTile1k, kTile8k, kBulkStore
};

__device__ __forceinline__ uint32_t shared_address(const void *at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

__device__ __forceinline__ uint32_t try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_done)
                 : "r"(barrier), "r"(parity)
                 : "memory");
    return is_done;
}

__device__ __forceinline__ void init(uint32_t barrier, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

template <Kind kKind, int kMany>
__device__ __forceinline__ void run(const uint32_t *from, const void *map, uint32_t *out, uint32_t more) {
    __shared__ __align__(8) uint64_t mbarrier;
    const uint32_t thread = threadIdx.x, lane = thread % 32, barrier = shared_address(&mbarrier), place = shared_address(words);
    uint32_t word = thread + more;
    constexpr bool kIsBulk = kKind >= kBulk1k && kKind <= kTile8k;
    constexpr bool kHasBarrier = kIsBulk || kKind == kArriveLane || kKind == kArriveWarp || kKind == kTry;
    if (kKind == kLoad || kKind == kAtomic || kKind == kBulkStore) words[thread] = word;
    if (kHasBarrier && thread == 0) init(barrier, kIsBulk ? 1 : blockDim.x * kMany);
    if (kHasBarrier || kKind == kLoad || kKind == kBulkStore) __syncthreads();
    if (kKind == kShuffleIdx || kKind == kShuffleBfly || kKind == kRedux || kKind == kVote || kKind == kMatch || kKind == kBarrier) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            if (kKind == kShuffleIdx) word = __shfl_sync(0xffffffffu, word, lane + 1) + 1;
            if (kKind == kShuffleBfly) word = __shfl_xor_sync(0xffffffffu, word, 1) + 1;
            if (kKind == kRedux) word = __reduce_max_sync(0xffffffffu, word) + 1;
            if (kKind == kVote) word += __ballot_sync(0xffffffffu, word != 0) & 1;
            if (kKind == kMatch) word += __match_any_sync(0xffffffffu, word) >> lane & 1;
            if (kKind == kBarrier) {
                asm volatile("bar.sync 0;" ::: "memory");
                word += 1;
            }
        }
    }
    if (kKind == kShuffleHalf && lane < 16) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) word = __shfl_xor_sync(0xffffu, word, 1) + 1;
    }
    if (kKind == kLoad) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            uint32_t near;
            asm volatile("ld.shared.u32 %0, [%1];" : "=r"(near) : "r"(place + (thread ^ i) * 4));
            word += near;
        }
    }
    if (kKind == kStore) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(place + thread * 4), "r"(word + i) : "memory");
    }
    if (kKind == kAtomic) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            uint32_t old;
            asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(old) : "r"(place + thread * 4), "r"(thread | 1) : "memory");
            word += old;
        }
    }
    if (kKind == kArriveLane || kKind == kArriveWarp) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            if (kKind == kArriveWarp || lane == 0) arrive(barrier);
            word += 1;
        }
    }
    if (kKind == kTry) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) word += try_wait(barrier, 1);
    }
    if (kKind == kGlobalLoad) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            uint32_t far;
            asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(far) : "l"(from + (thread ^ i)));
            word += far;
        }
    }
    if (kKind == kGlobalStore) {
#pragma unroll
        for (int i = 0; i < kMany; ++i)
            asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(out + blockIdx.x * blockDim.x + thread), "r"(word + i) : "memory");
    }
    if (kKind == kCp4 || kKind == kCp16) {
#pragma unroll
        for (int i = 0; i < kMany; ++i) {
            if (kKind == kCp4) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(place + thread * 4), "l"(from + thread) : "memory");
            if (kKind == kCp16)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place + thread * 16), "l"(from + thread * 4) : "memory");
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
    }
    if (kIsBulk) {
        constexpr uint32_t kBytes = kKind == kBulk1k || kKind == kTile1k ? 1024 : 8192;
        if (thread == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kMany * kBytes) : "memory");
#pragma unroll
            for (int i = 0; i < kMany; ++i) {
                if (kKind == kBulk1k || kKind == kBulk8k)
                    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(place),
                                 "l"(from), "r"(kBytes), "r"(barrier)
                                 : "memory");
                else
                    asm volatile(
                        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                            place),
                        "l"(map), "r"(0), "r"(0), "r"(barrier)
                        : "memory");
            }
            __nanosleep(200000);  // all is there by now: a single try
            word += try_wait(barrier, 0) - 1;
        }
        __syncthreads();
    }
    if (kKind == kBulkStore && thread == 0) {
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#pragma unroll
        for (int i = 0; i < kMany; ++i)
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + blockIdx.x * blockDim.x), "r"(place),
                         "r"(1024)
                         : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    if (kKind == kStore || kKind == kAtomic || kKind == kCp4 || kKind == kCp16 || kIsBulk) {
        uint32_t near;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(near) : "r"(place + thread * 4) : "memory");
        word += near;
    }
    if (kKind != kGlobalStore && kKind != kBulkStore) out[blockIdx.x * blockDim.x + thread] = word;
}

#define ENTRY(name, kind, many)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(256)                                                                                 \
        name##_##many(const uint32_t *from, const void *map, uint32_t *out, uint32_t more) {                                          \
        run<kind, many>(from, map, out, more);                                                                                        \
    }
#define ENTRIES(name, kind) ENTRY(name, kind, 8) ENTRY(name, kind, 32)

ENTRY(nothing, kNothing, 0)
ENTRIES(shuffle_idx, kShuffleIdx)
ENTRIES(shuffle_bfly, kShuffleBfly)
ENTRIES(shuffle_half, kShuffleHalf)
ENTRIES(redux, kRedux)
ENTRIES(vote, kVote)
ENTRIES(match, kMatch)
ENTRIES(barrier, kBarrier)
ENTRIES(load, kLoad)
ENTRIES(store, kStore)
ENTRIES(atomic, kAtomic)
ENTRIES(arrive_lane, kArriveLane)
ENTRIES(arrive_warp, kArriveWarp)
ENTRIES(try, kTry)
ENTRIES(global_load, kGlobalLoad)
ENTRIES(global_store, kGlobalStore)
ENTRIES(cp4, kCp4)
ENTRIES(cp16, kCp16)
ENTRIES(bulk1k, kBulk1k)
ENTRIES(bulk8k, kBulk8k)
ENTRIES(tile1k, kTile1k)
ENTRIES(tile8k, kTile8k)
ENTRIES(bulk_store, kBulkStore)

// Which of a thread's numbers are read: none, the first, all three.
extern "C" __global__ void __launch_bounds__(1024) ids_none(const uint32_t *, const void *, uint32_t *out, uint32_t more) {
    out[blockIdx.x] = blockIdx.x + more;
}
extern "C" __global__ void __launch_bounds__(1024) ids_x(const uint32_t *, const void *, uint32_t *out, uint32_t more) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x + more;
}
extern "C" __global__ void __launch_bounds__(1024) ids_xyz(const uint32_t *, const void *, uint32_t *out, uint32_t more) {
    const uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    out[blockIdx.x * blockDim.x * blockDim.y * blockDim.z + thread] = thread + more;
}

#endif
