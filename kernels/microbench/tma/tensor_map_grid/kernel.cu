// Tensor maps that every CTA of a grid makes itself, at the same time: what does building cost, and what do first uses?
//
// Warp 0 of each CTA builds its maps one after the other, as compilers do it: the host's map is copied to shared memory, six
// fields are replaced, the map is released to global memory and acquired, and all warps meet. Then each map is used twice.
// A wait that lasts too long gives up and reports it.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kMapBytes = 128, kMostMaps = 4, kPatience = 1 << 18, kThreads = 128;

struct Plan {
    uint32_t num_maps, width, height, stride_bytes, box_width, box_height, box_bytes, slice_bytes;
};

struct Times {
    uint32_t has_failed, unused;
    uint32_t begin, built[kMostMaps];   // clock before the first map, and after each
    uint32_t issued[2 * kMostMaps], done[2 * kMostMaps];  // of the first uses in map order, then of the second ones
    uint32_t pad;
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (uint32_t tries = 0; tries < kPatience; ++tries) {
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

extern "C" __global__ void __launch_bounds__(kThreads)
    build_all(const __grid_constant__ Plan plan, const uint32_t *host_map, const unsigned char *data, uint32_t *maps, Times *times,
              uint32_t *sums) {
    __shared__ __align__(8) uint64_t mbarrier;
    __shared__ __align__(128) uint32_t staged_map[kMapBytes / 4];
    __shared__ Times noted;
    const uint32_t barrier = shared_address(&mbarrier), staged = shared_address(staged_map), to = shared_address(buffer);
    const uint32_t lane = threadIdx.x % 32;
    const bool is_first_warp = threadIdx.x < 32;
    uint32_t *own_maps = maps + blockIdx.x * kMostMaps * (kMapBytes / 4);
    const unsigned char *own_data = data + (blockIdx.x % 16) * kMostMaps * plan.slice_bytes;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        noted.has_failed = 0;
        noted.begin = now();
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t i = 0; i < plan.num_maps; ++i) {
        uint32_t *map = own_maps + i * (kMapBytes / 4);
        if (is_first_warp) {
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(staged + lane * 4), "r"(__ldg(host_map + lane)) : "memory");
            __syncwarp();
            if (lane == 0) {
                asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(staged),
                             "l"(own_data + i * plan.slice_bytes)
                             : "memory");
                asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(staged), "r"(plan.width) : "memory");
                asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(staged), "r"(plan.height) : "memory");
                asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(staged),
                             "l"(uint64_t(plan.stride_bytes))
                             : "memory");
                asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 0, %1;" ::"r"(staged), "r"(plan.box_width) : "memory");
                asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(staged), "r"(plan.box_height) : "memory");
            }
            __syncwarp();
            asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map),
                         "r"(staged)
                         : "memory");
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
        }
        __syncthreads();
        if (threadIdx.x == 0) noted.built[i] = now();
    }
    if (is_first_warp) {
        uint32_t parity = 0;
        bool is_fine = true;
#pragma unroll 1
        for (uint32_t use = 0; use < 2 * plan.num_maps && is_fine; ++use) {
            const uint32_t i = use % plan.num_maps;
            if (lane == 0) {
                asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(plan.box_bytes) : "memory");
                noted.issued[use] = now();
                asm volatile(
                    "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to + i * 1024),
                    "l"(own_maps + i * (kMapBytes / 4)), "r"(0), "r"(0), "r"(barrier)
                    : "memory");
            }
            __syncwarp();
            is_fine = wait(barrier, parity);
            if (lane == 0) noted.done[use] = now();
            parity ^= 1;
        }
        if (lane == 0) noted.has_failed = !is_fine;
    }
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t at = threadIdx.x; at < plan.num_maps * 256; at += kThreads) {
        const uint32_t in_box = at % 256;
        if (in_box * 4 < plan.box_bytes) sum += reinterpret_cast<const uint32_t *>(buffer)[at];
    }
    atomicAdd(sums + blockIdx.x, sum);
    if (threadIdx.x == 0) times[blockIdx.x] = noted;
}

#endif
