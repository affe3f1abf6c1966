// When does each CTA of a grid start, on which SM, and how soon after the one before it has left?
//
// Thread 0 of every CTA writes down its SM and both clocks (the SM's cycles, the GPU's nanoseconds) at its first and at its last
// instruction; in between it stays for so many cycles. CTAs of the first wave may compare the two clocks first: they note the
// SM's clock whenever the nanoseconds change, at two moments, so that starts on different SMs can be told apart by a few cycles.

#include <cstdint>

constexpr int kPairs = 8;              // of clocks; half of them at each of two moments
constexpr uint32_t kStepCycles = 250;
constexpr uint64_t kApartNs = 200000;  // between these moments

struct Plan {
    uint32_t stay_cycles;
    uint32_t spread_steps;   // a CTA stays up to so many steps more, by its index
    uint32_t num_aligned;    // CTAs that compare the clocks
    uint32_t never;          // 0
};

struct Mark {
    int64_t sm, begin_cycle, end_cycle, begin_ns, end_ns;
};

__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ int64_t now_ns() {
    int64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

// Registers that the kernel is given, though nobody uses them: `never` is 0.
template <int kLive>
__device__ __forceinline__ void claim_registers(const Plan &plan, volatile float *words) {
    if (plan.never == 0) return;
    float values[kLive], all = 0;
#pragma unroll
    for (int i = 0; i < kLive; ++i) values[i] = words[i];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kLive; ++i) all = fmaf(all, 0.5f, values[kLive - 1 - i]);
    words[0] = all;
}

template <int kLive>
__device__ __forceinline__ void mark(const Plan &plan, Mark *marks, int64_t *pairs) {
    const int64_t begin_cycle = now();
    const int64_t begin_ns = now_ns();
    if (kLive) claim_registers<kLive ? kLive : 1>(plan, reinterpret_cast<volatile float *>(marks));
    if (threadIdx.x != 0) return;
    const uint32_t cta = blockIdx.x;
    if (cta < plan.num_aligned) {
        int64_t *of_cta = pairs + cta * kPairs * 2;
#pragma unroll 1
        for (int i = 0; i < kPairs; ++i) {
            if (i == kPairs / 2)
                while (now_ns() < begin_ns + static_cast<int64_t>(kApartNs)) {}
            const int64_t before = now_ns();
            int64_t ns = before, cycle = 0;
            while (ns == before) {
                ns = now_ns();
                cycle = now();
            }
            of_cta[2 * i] = cycle;
            of_cta[2 * i + 1] = ns;
        }
    }
    const int64_t since = cta < plan.num_aligned ? now() : begin_cycle;
    const int64_t until = since + plan.stay_cycles + (cta * 2654435761u >> 16) % (plan.spread_steps + 1) * kStepCycles;
    while (now() < until) {}
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    marks[cta] = {sm, begin_cycle, now(), begin_ns, now_ns()};
}

#define MARK(name, live, attribute)                                                                          \
    extern "C" __global__ void attribute name(const __grid_constant__ Plan plan, Mark *marks, int64_t *pairs) { \
        mark<live>(plan, marks, pairs);                                                                      \
    }

MARK(mark_r32, 22, __maxnreg__(32))
MARK(mark_r64, 54, __maxnreg__(64))
MARK(mark_r128, 118, __maxnreg__(128))
MARK(mark_r255, 246, __maxnreg__(255))

extern "C" __global__ void empty(const __grid_constant__ Plan plan, Mark *marks, int64_t *pairs) {}

#if __CUDA_ARCH__ >= 900
// no claim on registers: few are given, and clusters are what is asked
#define CLUSTER(size) MARK(mark_c##size, 0, __cluster_dims__(size) __launch_bounds__(1024))
CLUSTER(2)
CLUSTER(4)
CLUSTER(8)
#endif
