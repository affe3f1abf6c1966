// Loads that miss L1 and hit L2, whose lanes lie on few or many lines: how fast does an SM send requests for lines?
//
// `cg_*` load around L1. `ca_*` allocate lines in L1, whose span is too large for it.
// A warp's load touches 32 / kSectors lines, kSectors sectors of each; its lines lie anywhere in a span that L2 holds. Each CTA
// has an order of its own. The first pass over the lines brings them into L2, the second one is timed.

#include <cstdint>

constexpr int kInFlight = 4;

struct Plan {
    uint32_t span_lines, num_rounds;
};

__device__ __forceinline__ uint32_t mixed(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

template <int kSectors, bool kAllocates>
__device__ __forceinline__ void run(const Plan &plan, const uint32_t *data, uint32_t *sums, uint32_t *cycles) {
    constexpr uint32_t kLines = 32 / kSectors;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    const uint32_t salt = blockIdx.x * 0x9e3779b1u;
    uint32_t sum = 0, begin = 0;
#pragma unroll 1
    for (uint32_t pass = 0; pass < 2; ++pass) {
        __syncthreads();
        asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
#pragma unroll 1
        for (uint32_t round = 0; round < plan.num_rounds; ++round) {
            uint32_t words[kInFlight];
#pragma unroll
            for (int i = 0; i < kInFlight; ++i) {
                const uint32_t number = ((round * kInFlight + i) * num_warps + warp) * kLines + lane / kSectors;
                const uint32_t line = mixed(number + salt) % plan.span_lines;
                const uint32_t *from = data + line * 32 + lane % kSectors * 8;
                if (kAllocates)
                    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(words[i]) : "l"(from));
                else
                    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(words[i]) : "l"(from));
            }
#pragma unroll
            for (int i = 0; i < kInFlight; ++i) sum += words[i];
        }
        __syncthreads();
    }
    uint32_t end;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
    atomicAdd(sums + blockIdx.x, sum);
    if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
}

#define ENTRY(way, allocates, sectors)                                                                                               \
    extern "C" __global__ void __launch_bounds__(1024)                                                                               \
        way##_lines_of_##sectors(const __grid_constant__ Plan plan, const uint32_t *data, uint32_t *sums, uint32_t *cycles) {        \
        run<sectors, allocates>(plan, data, sums, cycles);                                                                           \
    }

ENTRY(cg, false, 1)
ENTRY(cg, false, 2)
ENTRY(cg, false, 4)
ENTRY(ca, true, 1)
ENTRY(ca, true, 2)
ENTRY(ca, true, 4)
