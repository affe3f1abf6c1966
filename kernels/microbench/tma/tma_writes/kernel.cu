// TMA boxes from global to shared memory: what do they write, and how long do they take?
//
// One CTA; one thread issues all boxes of a round on one mbarrier and waits for them. The first round pays for the
// descriptor and for what L2 lacks, later ones do not. A wait that lasts too long gives up and says so, instead of hanging.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kThreads = 128;
constexpr int64_t kPatienceCycles = 200000000;  // a tenth of a second

struct Boxes {
    uint32_t num_boxes, num_rounds;
    uint32_t box_bytes;         // what a box announces to the mbarrier
    uint32_t stride_bytes;      // from box to box in shared memory; a multiple of 1024
    uint32_t step;              // from box to box in the outermost coordinate, elements
    uint32_t dump_bytes;        // how much of shared memory is copied out; 0 for nothing
};

// What thread 0 gives back.
struct Times {
    int64_t issue_cycles;       // the last round: from the first instruction to after the last
    int64_t cycles;             // ... to the completion of the last box
    int64_t first_cycles;       // the same of the first round
    int64_t has_failed;         // a wait was given up
};

template <int kRank>
__device__ __forceinline__ void load_box(uint32_t destination, const void *map, uint32_t outermost, uint32_t barrier) {
    if (kRank == 2)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(destination),
            "l"(map), "r"(0), "r"(outermost), "r"(barrier)
            : "memory");
    else
        asm volatile(
            "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(destination),
            "l"(map), "r"(0), "r"(0), "r"(outermost), "r"(barrier)
            : "memory");
}

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
    const int64_t begin = clock64();
    uint32_t is_done = 0;
    while (!is_done) {
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(is_done)
            : "r"(barrier), "r"(parity)
            : "memory");
        if (clock64() - begin > kPatienceCycles) return false;
    }
    return true;
}

template <int kRank>
__device__ __forceinline__ void run(const Boxes &boxes, const void *map, uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t mbarrier;
    const uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    const uint32_t barrier = static_cast<uint32_t>(__cvta_generic_to_shared(&mbarrier));
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        Times seen = {0, 0, 0, 0};
#pragma unroll 1
        for (uint32_t round = 0; round < boxes.num_rounds && !seen.has_failed; ++round) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                         "r"(boxes.num_boxes * boxes.box_bytes)
                         : "memory");
            const int64_t begin = clock64();
#pragma unroll 1
            for (uint32_t i = 0; i < boxes.num_boxes; ++i)
                load_box<kRank>(start + i * boxes.stride_bytes, map, i * boxes.step, barrier);
            const int64_t issued = clock64();
            seen.has_failed = !wait(barrier, round & 1);
            const int64_t end = clock64();
            seen.issue_cycles = issued - begin;
            seen.cycles = end - begin;
            if (round == 0) seen.first_cycles = end - begin;
        }
        *times = seen;
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < boxes.dump_bytes / 16; i += kThreads) out[i] = reinterpret_cast<const uint4 *>(buffer)[i];
}

#define TMA_KERNEL(rank)                                                                                   \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                 \
        tma_load_##rank##d(const __grid_constant__ Boxes boxes, const void *map, uint4 *out, Times *times) { \
        run<rank>(boxes, map, out, times);                                                                 \
    }

TMA_KERNEL(2)
TMA_KERNEL(3)

#endif
