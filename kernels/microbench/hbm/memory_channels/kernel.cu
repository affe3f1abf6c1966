// Does a burst out of memory end with the fullest of its channels?
//
// One launch of one CTA an SM, all there at once, makes some passes. In each it reads a large buffer, so that nothing else is in
// L2, and one line of some pages (2 MiB), so that their addresses are translated, or others' are; then CTAs meet, start at one
// nanosecond, and load the lines (128 bytes, 8 lanes each) of a list: a warp of 4 lines at a time, UNROLLED times, then waits
// for them in order. Whatever was asked for in a pass, by whom and when, the list says. A warp notes how many cycles after its
// start each of its loads had come.
#include <cstdint>

struct Plan {
    uint64_t flush_vectors;
    uint32_t num_passes, num_rounds, slots;  // slots: lines of a CTA and pass
    uint32_t flushes_once;
    uint32_t first_page, num_pages, spared_page, num_spared;  // one line of each page is read, but for those that are spared
};

struct State {
    uint32_t sm[256];
    struct {
        uint32_t arrived, is_set;
        uint64_t start_ns;
    } passes[32];
};

constexpr uint64_t PAGE_BYTES = 2u << 20, MOST_SPIN = 40000000ull;
constexpr uint32_t NONE = 0xffffffffu, LINE_VECTORS = 8;

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

__device__ __forceinline__ uint64_t cycle() {
    uint64_t time;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(time)::"memory");
    return time;
}

__device__ __forceinline__ uint4 load(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

template <int UNROLLED>
__device__ void passes(const uint4 *memory, const uint4 *flush, const uint32_t *lists, State *state, uint32_t *times,
                       uint32_t *sums, const Plan &plan) {
    extern __shared__ uint32_t lines[];
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, num_threads = gridDim.x * blockDim.x;
    const uint32_t warp = threadIdx.x / 32, num_warps = blockDim.x / 32, quarter = threadIdx.x % 32 / LINE_VECTORS;
    const uint32_t per_load = num_warps * 4, loads = plan.num_rounds * UNROLLED;
    uint32_t total = 0, sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0) atomicAdd(&state->sm[sm], 1u);
    for (uint32_t pass = 0; pass < plan.num_passes; ++pass) {
        const uint32_t *list = lists + (static_cast<uint64_t>(pass) * gridDim.x + blockIdx.x) * plan.slots;
        for (uint32_t i = threadIdx.x; i < plan.slots; i += blockDim.x) lines[i] = list[i];
        uint32_t none = 0;
        if (pass == 0 || !plan.flushes_once)
            for (uint64_t at = thread; at < plan.flush_vectors; at += num_threads) none += load(flush + at).x;
        for (uint32_t page = threadIdx.x; page < plan.num_pages; page += blockDim.x) {
            const uint32_t p = plan.first_page + page;
            if (p - plan.spared_page >= plan.num_spared) none += load(memory + ((p + 1) * PAGE_BYTES - 128) / 16).x;
        }
        if (none == 0x9e3779b9u) state->sm[255] = 1;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) {
            volatile auto *seen = &state->passes[pass];
            if (atomicAdd(&state->passes[pass].arrived, 1u) + 1 == gridDim.x) {
                seen->start_ns = nanoseconds() + 6000;
                __threadfence();
                seen->is_set = 1;
            }
            const uint64_t begin = cycle();
            while (!seen->is_set && cycle() - begin < MOST_SPIN) __nanosleep(100);
            __threadfence();
            const uint64_t start_ns = seen->start_ns;
            while (nanoseconds() < start_ns && cycle() - begin < MOST_SPIN) {}
        }
        __syncthreads();
        const uint64_t begin = cycle();
        for (uint32_t r = 0; r < plan.num_rounds; ++r) {
            uint4 x[UNROLLED];
            uint32_t came[UNROLLED];
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) {
                const uint32_t line = lines[(r * UNROLLED + i) * per_load + warp * 4 + quarter];
                x[i] = make_uint4(0u, 0u, 0u, 0u);
                if (line != NONE) x[i] = load(memory + static_cast<uint64_t>(line) * LINE_VECTORS + threadIdx.x % LINE_VECTORS);
            }
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) {
                const uint32_t sum = __reduce_add_sync(0xffffffffu, x[i].x + x[i].y + x[i].z + x[i].w);
                total += sum;
                if (sum == 0x9e3779b9u) state->sm[254] = 1;  // waits for the load
                came[i] = static_cast<uint32_t>(cycle() - begin);
            }
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) {
                const uint64_t place = (static_cast<uint64_t>(pass) * gridDim.x + blockIdx.x) * loads + r * UNROLLED + i;
                if (threadIdx.x % 32 == 0) times[place * num_warps + warp] = came[i];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x % 32 == 0) sums[blockIdx.x * num_warps + warp] = total;
}

#define CHANNELS(UNROLLED)                                                                                                       \
    extern "C" __global__ void __launch_bounds__(1024, 1)                                                                        \
        lines_u##UNROLLED(const uint4 *memory, const uint4 *flush, const uint32_t *lists, State *state, uint32_t *times,         \
                          uint32_t *sums, const Plan plan) {                                                                     \
        passes<UNROLLED>(memory, flush, lists, state, times, sums, plan);                                                        \
    }

CHANNELS(1)
CHANNELS(2)
CHANNELS(4)
CHANNELS(8)
