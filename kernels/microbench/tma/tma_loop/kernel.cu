// The loop of a TMA producer: wait for an empty stage, announce its bytes, work out coordinates, issue its boxes. What does a
// stage cost where the consumer does nothing but wait and arrive?
//
// Warp 0 produces (or warps 0 to n - 1, or lanes 0 to n - 1 of warp 0, each some boxes of every stage); the last warps consume.
// Once more with the clock read after every step. Stages are small, so that memory is no limit, or large, so that it is. A wait
// that lasts too long gives up and says so, instead of hanging.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kMostStages = 16;
constexpr int kMostSteps = 512;
constexpr int kPatience = 1 << 18;  // tries of a wait

struct Ring {
    uint32_t num_steps, num_stages;
    uint32_t num_boxes;       // of a stage, over all issuers
    uint32_t box_bytes, box_stride_bytes, stage_stride_bytes;
    uint32_t num_issuers;     // warps, or lanes of warp 0
    uint32_t num_consumers;   // warps
    uint32_t box_rows;        // from box to box, along y
    uint32_t width;           // from step to step x grows by 64 and starts anew at `width`
    uint32_t dump_bytes;
};

struct Steps {
    uint32_t begin, waited, announced, issued;
};

struct Times {
    uint32_t has_failed, unused[3];
    uint32_t done[kMostSteps];   // when consumer warp 0 has seen a stage full
    Steps steps[kMostSteps];     // of issuer 0, where every step is timed
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
    asm volatile("" : "+r"(address));  // in a register: not worked out anew in the loop
    return address;
}

__device__ __forceinline__ void init_mbarrier(uint32_t barrier, uint32_t num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
}

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (int tries = 0; tries < kPatience; ++tries) {
        uint32_t is_done;
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(is_done)
            : "r"(barrier), "r"(parity)
            : "memory");
        if (is_done) return true;
    }
    return false;
}

__device__ __forceinline__ bool is_elected() {
    uint32_t is_chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_chosen)::"memory");
    return is_chosen;
}

__device__ __forceinline__ void arrive_expect_tx(uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

__device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t x, uint32_t y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map),
        "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ void note(uint32_t address, uint32_t value) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void note4(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// kNum boxes of every stage, from number `first` on; even ones through map a, odd ones through map b, as of two operands.
// Each issuer announces its own bytes and is one of the stage's arrivals. kIsFixed: all boxes from the tensor's corner, so that no
// coordinates are worked out.
template <int kNum, bool kIsTimed, bool kTwoMaps, bool kIsFixed>
__device__ __forceinline__ bool produce(const Ring &ring, const void *a, const void *b, uint32_t first, uint32_t to, uint32_t full, uint32_t empty, uint32_t stamps) {
    uint32_t stage = 0, parity = 1, x = 0;
    to += first * ring.box_stride_bytes;
    const uint32_t y = first * ring.box_rows;
#pragma unroll 1
    for (uint32_t step = 0; step < ring.num_steps; ++step) {
        const uint32_t begin = kIsTimed ? now() : 0;
        if (!wait(empty + stage * 8, parity)) return false;
        const uint32_t waited = kIsTimed ? now() : 0;
        arrive_expect_tx(full + stage * 8, kNum * ring.box_bytes);
        const uint32_t announced = kIsTimed ? now() : 0;
#pragma unroll
        for (int i = 0; i < kNum; ++i)
            load(to + stage * ring.stage_stride_bytes + i * ring.box_stride_bytes, kTwoMaps && i % 2 ? b : a, x, kIsFixed ? 0 : y + i * ring.box_rows, full + stage * 8);
        if (kIsTimed) note4(stamps + step * sizeof(Steps), begin, waited, announced, now());
        if (!kIsFixed) x = x + 64 == ring.width ? 0 : x + 64;
        if (++stage == ring.num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }
    return true;
}

template <bool kIsTimed, bool kTwoMaps, bool kIsFixed>
__device__ __forceinline__ bool produce_some(const Ring &ring, const void *a, const void *b, uint32_t issuer, uint32_t to, uint32_t full, uint32_t empty, uint32_t stamps) {
    const uint32_t num = ring.num_boxes / ring.num_issuers, first = issuer * num;
    switch (num) {
        case 1: return produce<1, kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, first, to, full, empty, stamps);
        case 2: return produce<2, kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, first, to, full, empty, stamps);
        case 3: return produce<3, kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, first, to, full, empty, stamps);
        case 4: return produce<4, kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, first, to, full, empty, stamps);
        case 6: return produce<6, kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, first, to, full, empty, stamps);
        default: return produce<8, kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, first, to, full, empty, stamps);
    }
}

// kByLanes: the issuers are lanes of warp 0, otherwise elected lanes of as many warps.
template <bool kByLanes, bool kIsTimed, bool kTwoMaps, bool kIsFixed>
__device__ __forceinline__ void run(const Ring &ring, const void *a, const void *b, uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t full_at[kMostStages], empty_at[kMostStages];
    __shared__ __align__(16) Steps stamps[kMostSteps];
    __shared__ uint32_t done[kMostSteps];
    __shared__ uint32_t has_failed;
    const uint32_t full = shared_address(full_at), empty = shared_address(empty_at), to = shared_address(buffer);
    const uint32_t failed = shared_address(&has_failed);
    const uint32_t num_producers = kByLanes ? 1 : ring.num_issuers;
    if (threadIdx.x == 0) {
        has_failed = 0;
        for (uint32_t i = 0; i < ring.num_stages; ++i) {
            init_mbarrier(full + i * 8, ring.num_issuers);
            init_mbarrier(empty + i * 8, ring.num_consumers);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    if (warp < num_producers) {
        bool is_fine = true;
        if (kByLanes) {
            if (lane < ring.num_issuers) is_fine = produce_some<kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, lane, to, full, empty, shared_address(stamps));
        } else if (is_elected()) {
            is_fine = produce_some<kIsTimed, kTwoMaps, kIsFixed>(ring, a, b, warp, to, full, empty, shared_address(stamps));
        }
        if (!is_fine) note(failed, 1);
    } else {
        const bool is_first = warp == num_producers;
        const uint32_t seen = shared_address(done);
        uint32_t stage = 0, parity = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < ring.num_steps; ++step) {
            if (!wait(full + stage * 8, parity)) {
                note(failed, 1);
                break;
            }
            if (is_first && lane == 0) note(seen + step * 4, now());
            if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + stage * 8) : "memory");
            if (++stage == ring.num_stages) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) times->has_failed = has_failed;
    for (uint32_t i = threadIdx.x; i < ring.num_steps; i += blockDim.x) {
        times->done[i] = done[i];
        if (kIsTimed) times->steps[i] = stamps[i];
    }
    for (uint32_t i = threadIdx.x; i < ring.dump_bytes / 16; i += blockDim.x) out[i] = reinterpret_cast<const uint4 *>(buffer)[i];
}

#define LOOP_KERNEL(name, by_lanes, is_timed, two_maps, is_fixed)                                                            \
    extern "C" __global__ void __launch_bounds__(512)                                                                        \
        name(const __grid_constant__ Ring ring, const void *a, const void *b, uint4 *out, Times *times) {                    \
        run<by_lanes, is_timed, two_maps, is_fixed>(ring, a, b, out, times);                                                 \
    }

LOOP_KERNEL(loop_warps, false, false, false, false)
LOOP_KERNEL(loop_warps_timed, false, true, false, false)
LOOP_KERNEL(loop_warps_two_maps, false, false, true, false)
LOOP_KERNEL(loop_warps_fixed, false, false, false, true)
LOOP_KERNEL(loop_lanes, true, false, false, false)

#endif
