// A warp that makes tensor maps while another warp of the SM copies through a map of the host: what does either cost the other?
//
// Warp 0 makes one map after the other, as compilers do: copied to shared memory, an address replaced, released, acquired, the
// acquire waited for. Warp 1 keeps some boxes in flight, until it has copied all. Each warp notes its cycles. Warp 0 makes maps
// until warp 1 is done, or a fixed number without copies. A wait that lasts too long gives up and reports it.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kMapBytes = 128, kPatience = 1 << 20, kThreads = 64, kMostInFlight = 8, kMostMaps = 64;

struct Plan {
    uint32_t num_boxes, in_flight, box_bytes, num_rows;  // of the copies; no boxes: no copies
    uint32_t num_maps;                                   // made at least; 0: none
    uint32_t pause_cycles;                               // between two maps
};

struct Times {
    uint32_t has_failed, num_made, made_cycles, copy_cycles;
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

__device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t row, uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(0),
        "r"(row), "r"(barrier)
        : "memory");
}

extern "C" __global__ void __launch_bounds__(kThreads)
    beside_loads(const __grid_constant__ Plan plan, const uint32_t *host_map, const unsigned char *data, uint32_t *maps, Times *times,
                 uint32_t *sums) {
    __shared__ __align__(8) uint64_t mbarriers[kMostInFlight];
    __shared__ __align__(128) uint32_t staged_map[kMapBytes / 4];
    __shared__ volatile uint32_t is_done;
    __shared__ Times noted;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t staged = shared_address(staged_map), barriers = shared_address(mbarriers), to = shared_address(buffer);
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < kMostInFlight; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * i) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        is_done = plan.num_boxes == 0;
        noted = Times{0, 0, 0, 0};
    }
    __syncthreads();
    if (warp == 0) {
        uint32_t cycles = 0, num = 0;
        while (num < plan.num_maps || (plan.num_maps && !is_done)) {
            uint32_t *map = maps + (blockIdx.x * kMostMaps + num % kMostMaps) * (kMapBytes / 4);
            const uint32_t begin = now();
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(staged + lane * 4), "r"(__ldg(host_map + lane)) : "memory");
            __syncwarp();
            if (lane == 0)
                asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(staged), "l"(data) : "memory");
            __syncwarp();
            asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(map),
                         "r"(staged)
                         : "memory");
            asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
            __syncwarp();
            const uint32_t end = now();
            cycles += end - begin;
            ++num;
            while (now() - end < plan.pause_cycles) {}
        }
        if (lane == 0) noted.num_made = num, noted.made_cycles = cycles;
    } else {
        const uint32_t begin = now();
        bool is_fine = true;
#pragma unroll 1
        for (uint32_t box = 0; box < plan.num_boxes + plan.in_flight && is_fine; ++box) {
            const uint32_t slot = box % plan.in_flight, turn = box / plan.in_flight;
            if (box >= plan.in_flight) is_fine = wait(barriers + 8 * slot, (turn - 1) & 1);
            if (lane == 0 && box < plan.num_boxes)
                load(to + slot * 8192, host_map, (blockIdx.x * 8 + box % 8) * plan.num_rows, barriers + 8 * slot, plan.box_bytes);
            __syncwarp();
        }
        if (lane == 0) {
            noted.copy_cycles = now() - begin;
            noted.has_failed = !is_fine;
            is_done = 1;
        }
    }
    __syncthreads();
    uint32_t sum = 0;
    if (plan.num_boxes)
        for (uint32_t at = threadIdx.x; at < plan.in_flight * 2048; at += kThreads)
            if (at % 2048 * 4 < plan.box_bytes) sum += reinterpret_cast<const uint32_t *>(buffer)[at];
    atomicAdd(sums + blockIdx.x, sum);
    if (threadIdx.x == 0) times[blockIdx.x] = noted;
}

#endif
