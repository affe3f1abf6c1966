// Boxes of which rows or columns lie outside of the tensor: what do the zeros cost?
//
// A ring of stages of one or two boxes each: lane 0 of warp 0 waits for an empty stage, announces the bytes of its boxes, zeros
// included, and issues them; warp 1 waits for a full stage and arrives. Each CTA walks along x from a place of its own. A wait
// that lasts too long gives up and says so, instead of hanging.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kMostStages = 16;
constexpr int kPatience = 1 << 18;  // tries of a wait

struct Ring {
    uint32_t num_steps, first_step;    // steps from the latter on are timed
    uint32_t num_stages, box_bytes, num_boxes;
    uint32_t x, y;                     // where the first box begins
    uint32_t x_step, num_x;            // from step to step, and after how many it starts anew
    uint32_t second_y;                 // of a second box of a stage
    uint32_t dump_bytes;
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
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

__device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t x, uint32_t y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map),
        "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

// out: CTA 0's stages as the last steps leave them; times: cycles of the timed steps by CTA, and whether a wait was given up.
extern "C" __global__ void __launch_bounds__(64) edges(const __grid_constant__ Ring ring, const void *map, uint4 *out, uint2 *times) {
    __shared__ __align__(8) uint64_t full_at[kMostStages], empty_at[kMostStages];
    __shared__ uint32_t has_failed;
    const uint32_t full = static_cast<uint32_t>(__cvta_generic_to_shared(full_at));
    const uint32_t empty = static_cast<uint32_t>(__cvta_generic_to_shared(empty_at));
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    if (threadIdx.x == 0) {
        has_failed = 0;
        for (uint32_t i = 0; i < ring.num_stages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + i * 8) : "memory");
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(empty + i * 8) : "memory");
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    uint32_t stage = 0, begin = 0, end = 0;
    bool is_fine = true;
    if (warp == 0) {
        if (lane == 0) {
            uint32_t parity = 1, place = blockIdx.x % ring.num_x;
#pragma unroll 1
            for (uint32_t step = 0; step < ring.num_steps && is_fine; ++step) {
                is_fine = wait(empty + stage * 8, parity);
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full + stage * 8), "r"(ring.num_boxes * ring.box_bytes)
                             : "memory");
                const uint32_t at = to + stage * ring.num_boxes * ring.box_bytes, x = ring.x + place * ring.x_step;
                load(at, map, x, ring.y, full + stage * 8);
                if (ring.num_boxes == 2) load(at + ring.box_bytes, map, x, ring.second_y, full + stage * 8);
                if (++place == ring.num_x) place = 0;
                if (++stage == ring.num_stages) {
                    stage = 0;
                    parity ^= 1;
                }
            }
        }
    } else {
        uint32_t parity = 0;
#pragma unroll 1
        for (uint32_t step = 0; step < ring.num_steps && is_fine; ++step) {
            is_fine = wait(full + stage * 8, parity);
            end = now();
            if (step + 1 == ring.first_step) begin = end;
            if (lane == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(empty + stage * 8) : "memory");
            if (++stage == ring.num_stages) {
                stage = 0;
                parity ^= 1;
            }
        }
    }
    if (!is_fine) has_failed = 1;
    __syncthreads();
    if (threadIdx.x == 32) times[blockIdx.x] = make_uint2(end - begin, has_failed);
    if (blockIdx.x == 0)
        for (uint32_t i = threadIdx.x; i < ring.dump_bytes / 16; i += blockDim.x) out[i] = reinterpret_cast<const uint4 *>(buffer)[i];
}

#endif
