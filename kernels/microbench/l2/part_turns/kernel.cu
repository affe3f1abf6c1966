// Rings of tiles that SMs have for themselves, out of L2: a thread that loads by TMA, or warps that load by cp.async.
//
// Every SM has as many CTAs; each CTA walks its own tiles of 16 KiB, round and round, and asks for the next one as soon as a
// slot of its ring has come. Nobody reads what has come but for the sum at the end.

#include "grid.cuh"

constexpr int kTileBytes = 16384;
constexpr int kWarps = 16;
constexpr int kWarpBytes = kTileBytes / kWarps;
constexpr int kMostSlots = 12;

struct Plan {
    uint32_t slots, tiles, warm, timed, behind;
};

// All warps: the sum of the words of the ring, into the third number of told.
__device__ void add_up(const char *ring, uint32_t slots, int64_t *told) {
    __syncthreads();
    uint32_t sum = 0;
    for (uint32_t at = threadIdx.x * 4; at < slots * kTileBytes; at += blockDim.x * 4)
        sum += *reinterpret_cast<const uint32_t *>(ring + at);
    atomicAdd(reinterpret_cast<unsigned int *>(told + 2), sum);
}

__device__ __forceinline__ void wait_for(uint32_t num_pending) {
    switch (num_pending) {
#define WAIT(n) case n: asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); break;
        WAIT(0) WAIT(1) WAIT(2) WAIT(3) WAIT(4) WAIT(5) WAIT(6) WAIT(7) WAIT(8) WAIT(9) WAIT(10) WAIT(11)
#undef WAIT
    }
}

// Each warp has a ring of its own pieces of the tiles, and waits for nobody.
extern "C" __global__ void __launch_bounds__(kWarps * 32) cp_async(
    const Plan plan, const void *map, const char *data, int64_t *told) {
    extern __shared__ __align__(1024) char ring[];
    const uint32_t place = (threadIdx.x / 32) * kWarpBytes + (threadIdx.x % 32) * 16;
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(ring)) + place;
    const char *from = data + static_cast<size_t>(blockIdx.x) * plan.tiles * kTileBytes + place;
    uint32_t slot = 0, tile = 0;
    auto load = [&] {
        const uint32_t dst = to + slot * kTileBytes;
        const char *src = from + tile * kTileBytes;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst), "l"(src) : "memory");
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst + 512), "l"(src + 512) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        slot = slot + 1 == plan.slots ? 0 : slot + 1;
        tile = tile + 1 == plan.tiles ? 0 : tile + 1;
    };
    for (uint32_t num = 0; num < plan.slots; ++num) load();
    int64_t begin = 0, end = 0;
    for (uint32_t num = 0; num < plan.warm + plan.timed + plan.behind; ++num) {
        if (num == plan.warm) begin = clock_now();
        if (num == plan.warm + plan.timed) end = clock_now();
        wait_for(plan.slots - 1);
        __syncwarp();
        load();
    }
    wait_for(0);
    told += blockIdx.x * 3;
    if (threadIdx.x == 0) told[0] = sm_idx();
    atomicMax(reinterpret_cast<unsigned long long *>(told + 1), static_cast<unsigned long long>(end - begin));
    add_up(ring, plan.slots, told);
}

// One thread asks for boxes of 128 rows of 128 bytes.
extern "C" __global__ void __launch_bounds__(kWarps * 32) tma(
    const Plan plan, const void *map, const char *data, int64_t *told) {
    extern __shared__ __align__(1024) char ring[];
    __shared__ __align__(8) uint64_t full[kMostSlots];
    const uint32_t bars = static_cast<uint32_t>(__cvta_generic_to_shared(full));
    told += blockIdx.x * 3;
    if (threadIdx.x == 0) {
        for (uint32_t slot = 0; slot < plan.slots; ++slot)
            asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(bars + 8 * slot) : "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
        const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
        const uint32_t first = blockIdx.x * plan.tiles * (kTileBytes / 128);
        uint32_t slot = 0, tile = 0, waiting = 0, phase = 0;
        auto load = [&] {
            const uint32_t bar = bars + 8 * slot;
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(bar), "r"(kTileBytes) : "memory");
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                    to + slot * kTileBytes),
                "l"(map), "r"(0), "r"(first + tile * (kTileBytes / 128)), "r"(bar)
                : "memory");
            slot = slot + 1 == plan.slots ? 0 : slot + 1;
            tile = tile + 1 == plan.tiles ? 0 : tile + 1;
        };
        auto wait = [&] {
            uint32_t is_there = 0;
            while (!is_there)
                asm volatile(
                    "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                    : "=r"(is_there)
                    : "r"(bars + 8 * waiting), "r"(phase)
                    : "memory");
            if (++waiting == plan.slots) waiting = 0, phase ^= 1;
        };
        for (uint32_t num = 0; num < plan.slots; ++num) load();
        int64_t begin = 0, end = 0;
        for (uint32_t num = 0; num < plan.warm + plan.timed + plan.behind; ++num) {
            if (num == plan.warm) begin = clock_now();
            if (num == plan.warm + plan.timed) end = clock_now();
            wait();
            load();
        }
        for (uint32_t num = 0; num < plan.slots; ++num) wait();
        told[0] = sm_idx();
        told[1] = end - begin;
    }
    add_up(ring, plan.slots, told);
}
