// Loads that miss L1 and hit L2, whose lanes lie on few or many lines: how fast does an SM send requests for lines?
//
// A warp's load touches 32 / kSectors lines, kSectors sectors of each; its lines lie anywhere in a span that L2 holds. Each CTA
// walks lines of its own, so that no two SMs ask for the same line. First all CTAs bring the span into L2, then they time.

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

template <int kSectors>
__device__ __forceinline__ void run(const Plan &plan, const uint32_t *data, uint32_t *sums, uint32_t *cycles) {
    constexpr uint32_t kLines = 32 / kSectors;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, num_warps = blockDim.x / 32;
    const uint32_t own_lines = plan.span_lines / gridDim.x, first_line = blockIdx.x * own_lines;
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
                const uint32_t line = first_line + mixed(number) % own_lines;
                asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(words[i]) : "l"(data + line * 32 + lane % kSectors * 8));
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

#define ENTRY(sectors)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(1024)                                                                               \
        lines_of_##sectors(const __grid_constant__ Plan plan, const uint32_t *data, uint32_t *sums, uint32_t *cycles) {              \
        run<sectors>(plan, data, sums, cycles);                                                                                      \
    }

ENTRY(1)
ENTRY(2)
ENTRY(4)
