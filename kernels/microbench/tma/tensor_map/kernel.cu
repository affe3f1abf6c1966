// Tensor maps that a kernel makes itself: what does each step cost, what does the first copy with a map cost, how many maps does
// the SM keep?
//
// `build_shared` and `build_global` make one map a round from the host's: copied, some fields replaced, released, acquired,
// perhaps prefetched, used three times. `turns` makes many and uses them one after the other, again and again. Every map lies
// where none was before in the launch. A wait that lasts too long gives up and says so, instead of hanging.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kMapBytes = 128;
constexpr int kMostRounds = 16;
constexpr int kMostMaps = 512;
constexpr int kPatience = 1 << 18;  // tries of a wait

struct Build {
    uint32_t num_rounds;
    uint32_t num_fields;      // replaced, of: address, both extents, the stride, both extents of the box
    uint32_t width, height;   // new extents of the tensor, elements
    uint32_t stride_bytes;    // new distance of its rows
    uint32_t box_width, box_height;
    uint32_t box_bytes;       // what a copy brings with the new map
    uint32_t slice_bytes;     // from one round's tensor to the next one's
    uint32_t is_prefetched;
    uint32_t delay_cycles;    // between making (or prefetching) a map and its first use
};

struct Turns {
    uint32_t num_maps, map_stride_bytes, num_turns;
    uint32_t row_bytes;       // of a copy; each map has a row of its own
    uint32_t is_prefetched, delay_cycles;
    uint32_t flush_16b;       // read before the first turn, in units of 16 bytes, so that L2 forgets the maps
};

struct Load {
    uint32_t issued, done;
};

// The clock after each step of a round. (As it is: differences taken here would be worked out in uniform registers, into which
// the clock is read more slowly.)
struct Steps {
    uint32_t begin, copied, replaced, released, acquired, prefetched;
    Load loads[3];
};

struct Times {
    uint32_t has_failed, unused[3];
    union {
        Steps steps[kMostRounds];
        Load turns[2][kMostMaps];  // of the first turn, and of the last
    };
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
    asm volatile("" : "+r"(address));  // in a register: not worked out anew where the clock runs
    return address;
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

__device__ __forceinline__ void idle(uint32_t num_cycles) {
    const uint32_t begin = now();
    while (now() - begin < num_cycles) {}
}

// By a warp, of which one lane `issues` and notes, and all wait: a lone lane, while others of its warp stand elsewhere, looks only
// every 150 to 200 cycles (seen on an H200). False where the copy never came.
__device__ __forceinline__ bool timed_load(bool issues, uint32_t to, const void *map, uint32_t num_bytes, uint32_t barrier, uint32_t &parity,
                                           Load &load) {
    if (issues) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
        load.issued = now();
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map),
            "r"(0), "r"(0), "r"(barrier)
            : "memory");
    }
    __syncwarp();
    const bool is_fine = wait(barrier, parity);
    load.done = now();
    parity ^= 1;
    return is_fine;
}

// Into L2: nobody wants the word.
__device__ __forceinline__ void bring_near(const void *from) {
    asm volatile("{ .reg .b32 word; ld.global.cg.u32 word, [%0]; }" ::"l"(from) : "memory");
}

__device__ __forceinline__ void prefetch(const void *map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

__device__ __forceinline__ void acquire(const void *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

// By all lanes of a warp: the map in shared memory becomes one in global memory that the copy engine may be told of.
__device__ __forceinline__ void publish(void *to, uint32_t from) {
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(to),
                 "r"(from)
                 : "memory");
}

#define REPLACE(space, at, constraint)                                                                                         \
    if (kNum > 0) asm volatile("tensormap.replace.tile.global_address." space ".b1024.b64 [%0], %1;" ::constraint(at), "l"(data) : "memory"); \
    if (kNum > 1) asm volatile("tensormap.replace.tile.global_dim." space ".b1024.b32 [%0], 0, %1;" ::constraint(at), "r"(build.width) : "memory"); \
    if (kNum > 2) asm volatile("tensormap.replace.tile.global_dim." space ".b1024.b32 [%0], 1, %1;" ::constraint(at), "r"(build.height) : "memory"); \
    if (kNum > 3)                                                                                                              \
        asm volatile("tensormap.replace.tile.global_stride." space ".b1024.b64 [%0], 0, %1;" ::constraint(at), "l"(uint64_t(build.stride_bytes)) \
                     : "memory");                                                                                              \
    if (kNum > 4) asm volatile("tensormap.replace.tile.box_dim." space ".b1024.b32 [%0], 0, %1;" ::constraint(at), "r"(build.box_width) : "memory"); \
    if (kNum > 5) asm volatile("tensormap.replace.tile.box_dim." space ".b1024.b32 [%0], 1, %1;" ::constraint(at), "r"(build.box_height) : "memory");

template <bool kIsShared, int kNum>
__device__ __forceinline__ bool build_rounds(const Build &build, const uint32_t *host_map, const unsigned char *data, uint32_t *maps,
                                             uint32_t barrier, Times *times) {
    __shared__ __align__(128) uint32_t staged_map[kMapBytes / 4];
    const uint32_t lane = threadIdx.x, staged = shared_address(staged_map), to = shared_address(buffer);
    uint32_t parity = 0;
#pragma unroll 1
    for (uint32_t round = 0; round < build.num_rounds; ++round) {
        uint32_t *map = maps + round * (kMapBytes / 4);
        Steps steps;
        __syncwarp();
        steps.begin = now();
        uint32_t word;
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(word) : "l"(host_map + lane) : "memory");
        if (kIsShared)
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(staged + lane * 4), "r"(word) : "memory");
        else
            asm volatile("st.global.u32 [%0], %1;" ::"l"(map + lane), "r"(word) : "memory");
        __syncwarp();
        steps.copied = now();
        if (is_elected()) {
            if (kIsShared) {
                REPLACE("shared::cta", staged, "r")
            } else {
                REPLACE("global", map, "l")
            }
        }
        __syncwarp();
        steps.replaced = now();
        if (kIsShared)
            publish(map, staged);
        else
            asm volatile("fence.proxy.tensormap::generic.release.gpu;" ::: "memory");
        __syncwarp();
        steps.released = now();
        bool is_fine = true;
        const bool issues = is_elected();
        if (issues) {
            acquire(map);
            steps.acquired = now();
            if (build.is_prefetched) prefetch(map);
            steps.prefetched = now();
            idle(build.delay_cycles);
        }
#pragma unroll
        for (int i = 0; i < 3; ++i)
            is_fine = is_fine && timed_load(issues, to + round * 1024, map, build.box_bytes, barrier, parity, steps.loads[i]);
        if (issues) times->steps[round] = steps;
        if (!__all_sync(0xffffffff, is_fine)) return false;
        data += build.slice_bytes;
    }
    return true;
}

template <bool kIsShared>
__device__ __forceinline__ void build_maps(const Build &build, const uint32_t *host_map, const unsigned char *data, uint32_t *maps,
                                           uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t mbarrier;
    const uint32_t barrier = shared_address(&mbarrier);
    for (uint32_t i = threadIdx.x; i < build.num_rounds * 64; i += 32) reinterpret_cast<uint4 *>(buffer)[i] = uint4{~0u, ~0u, ~0u, ~0u};
    for (uint32_t i = threadIdx.x; i < build.num_rounds * build.slice_bytes / 32; i += 32) bring_near(data + 32 * i);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    bool is_fine = false;
    switch (build.num_fields) {
        case 0: is_fine = build_rounds<kIsShared, 0>(build, host_map, data, maps, barrier, times); break;
        case 1: is_fine = build_rounds<kIsShared, 1>(build, host_map, data, maps, barrier, times); break;
        case 2: is_fine = build_rounds<kIsShared, 2>(build, host_map, data, maps, barrier, times); break;
        case 3: is_fine = build_rounds<kIsShared, 3>(build, host_map, data, maps, barrier, times); break;
        case 4: is_fine = build_rounds<kIsShared, 4>(build, host_map, data, maps, barrier, times); break;
        case 5: is_fine = build_rounds<kIsShared, 5>(build, host_map, data, maps, barrier, times); break;
        default: is_fine = build_rounds<kIsShared, 6>(build, host_map, data, maps, barrier, times);
    }
    if (threadIdx.x == 0) times->has_failed = !is_fine;
    __syncwarp();
    for (uint32_t i = threadIdx.x; i < build.num_rounds * 64; i += 32) out[i] = reinterpret_cast<const uint4 *>(buffer)[i];
}

#define BUILD_KERNEL(name, is_shared)                                                                                      \
    extern "C" __global__ void __launch_bounds__(32)                                                                       \
        name(const __grid_constant__ Build build, const uint32_t *host_map, const unsigned char *data, uint32_t *maps, uint4 *out, \
             Times *times) {                                                                                               \
        build_maps<is_shared>(build, host_map, data, maps, out, times);                                                    \
    }

BUILD_KERNEL(build_shared, true)
BUILD_KERNEL(build_global, false)

// Map i is the host's with another address, that of row i; warp 0 makes them, its first lane uses them.
extern "C" __global__ void __launch_bounds__(1024)
    turns(const __grid_constant__ Turns turns, const uint32_t *host_map, const unsigned char *data, unsigned char *maps,
          const uint4 *flush, uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t mbarrier;
    __shared__ __align__(128) uint32_t staged_map[kMapBytes / 4];
    __shared__ Load seen[2][kMostMaps];
    const uint32_t barrier = shared_address(&mbarrier), staged = shared_address(staged_map), to = shared_address(buffer);
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        staged_map[threadIdx.x] = host_map[threadIdx.x];
        __syncwarp();
#pragma unroll 1
        for (uint32_t i = 0; i < turns.num_maps; ++i) {
            if (threadIdx.x == 0)
                asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(staged),
                             "l"(data + i * turns.row_bytes)
                             : "memory");
            __syncwarp();
            publish(maps + i * turns.map_stride_bytes, staged);
        }
    }
    __syncthreads();
#pragma unroll 8
    for (uint32_t i = threadIdx.x; i < turns.flush_16b; i += 1024) {
        bring_near(flush + i);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < turns.num_maps * turns.row_bytes / 32; i += 1024) {  // the rows come back into L2
        bring_near(data + 32 * i);
    }
    __syncthreads();
    if (__shfl_sync(0xffffffff, threadIdx.x / 32, 0) == 0) {
        bool is_fine = true;
        uint32_t parity = 0;
        const bool issues = is_elected();
        if (issues) {
            for (uint32_t i = 0; i < turns.num_maps; ++i) acquire(maps + i * turns.map_stride_bytes);
            if (turns.is_prefetched)
                for (uint32_t i = 0; i < turns.num_maps; ++i) prefetch(maps + i * turns.map_stride_bytes);
            idle(turns.delay_cycles);
        }
        __syncwarp();
#pragma unroll 1
        for (uint32_t turn = 0; turn < turns.num_turns && is_fine; ++turn) {
            const unsigned char *map = maps;
            uint32_t row = to;
            uint32_t noted = shared_address(seen[turn != 0]);
#pragma unroll 1
            for (uint32_t i = 0; i < turns.num_maps; ++i) {
                Load load;
                is_fine = is_fine && timed_load(issues, row, map, turns.row_bytes, barrier, parity, load);
                if (issues) asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(noted), "r"(load.issued), "r"(load.done) : "memory");
                noted += 8;
                map += turns.map_stride_bytes;
                row += turns.row_bytes;
            }
        }
        if (issues) times->has_failed = !is_fine;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < 2 * kMostMaps; i += 1024) times->turns[0][i] = seen[0][i];
    for (uint32_t i = threadIdx.x; i < turns.num_maps * turns.row_bytes / 16; i += 1024) out[i] = reinterpret_cast<const uint4 *>(buffer)[i];
}

#endif
