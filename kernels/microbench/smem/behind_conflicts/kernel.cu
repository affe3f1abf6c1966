// What waits behind loads from shared memory whose banks conflict?
//
// One CTA of kWarps warps, in rounds. In each all warps meet; some warps (`ahead`, a bit each) begin together and issue kNum loads
// from shared memory of `ways` lanes a bank, back to back, none waiting for another; `delay` cycles after them warp `prober`
// issues one instruction of the kind that the kernel is named after. Each reads the clock before, behind the last that it issues,
// and when what it asked for is there.

#include <cstdint>

constexpr int kRounds = 12, kWarps = 12, kMostLoads = 16;
constexpr uint32_t kLead = 400;  // cycles from the meeting to the begin

enum Probe { kNone, kLoadAround, kLoadHit, kStore, kSharedLoad, kSharedStore, kCopy, kCopyThrough };

struct Told {
    uint32_t ways;
    uint32_t ahead;   // a bit a warp
    uint32_t prober;  // a warp that is not ahead
    uint32_t delay;   // cycles
};

__device__ __forceinline__ uint32_t now(uint32_t lane, uint32_t never) {
    uint32_t cycle = 0;  // by a predicate of the lane: else it is read into a uniform register, which takes longer
    asm volatile("{.reg .pred p; setp.ne.u32 p, %1, %2; @p mov.u32 %0, %%clock;}" : "+r"(cycle) : "r"(lane), "r"(never) : "memory");
    return cycle;
}

template <int kNum, Probe kProbe>
__device__ __forceinline__ void rounds(const Told &told, const uint32_t *lines, uint32_t *stored, uint32_t *clocks, uint32_t *sums) {
    __shared__ uint32_t words[32 * 32 + kMostLoads], starts[kRounds];
    __shared__ __align__(16) uint32_t written[128];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, never = told.ways + 64;
    for (uint32_t i = threadIdx.x; i < 32 * 32 + kMostLoads; i += blockDim.x) words[i] = i;
    if (threadIdx.x < 128) written[threadIdx.x] = 0;
    const uint32_t from = static_cast<uint32_t>(__cvta_generic_to_shared(words)) + lane * told.ways * 4;
    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(written)) + lane * 16;
    const bool is_ahead = told.ahead >> warp & 1, is_prober = warp == told.prober;
    if (warp < kRounds) asm volatile("prefetch.global.L2 [%0];" ::"l"(lines + warp * 128 + lane * 4) : "memory");
    uint32_t sum = 0;
    for (int round = 0; round < kRounds; ++round) {
        const uint32_t *line = lines + (kProbe == kLoadHit ? 0 : round) * 128 + lane * (kProbe == kCopy ? 4 : 1);
        __syncthreads();
        if (threadIdx.x == 0) starts[round] = now(lane, never);
        __syncthreads();
        const uint32_t begin = starts[round] + kLead + (is_prober ? told.delay : 0);
        uint32_t before = 0, issued = 0, there = 0;
        while (static_cast<int32_t>(now(lane, never) - begin) < 0) {}
        if (is_ahead) {
            uint32_t near[kNum > 0 ? kNum : 1];
            before = now(lane, never);
#pragma unroll
            for (int i = 0; i < kNum; ++i) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(near[i]) : "r"(from + i * 4) : "memory");
            issued = now(lane, never);
#pragma unroll
            for (int i = 0; i < kNum; ++i) sum += near[i];
            asm volatile("" : "+r"(sum)::"memory");
            there = now(lane, never);
        } else if (is_prober) {
            uint32_t got = 0;
            before = now(lane, never);
            if (kProbe == kLoadAround) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(got) : "l"(line) : "memory");
            if (kProbe == kLoadHit) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(got) : "l"(line) : "memory");
            if (kProbe == kStore) asm volatile("st.global.u32 [%0], %1;" ::"l"(stored + lane), "r"(round) : "memory");
            if (kProbe == kSharedLoad) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(got) : "r"(to - lane * 12) : "memory");
            if (kProbe == kSharedStore) asm volatile("st.shared.u32 [%0], %1;" ::"r"(to - lane * 12), "r"(round) : "memory");
            if (kProbe == kCopy) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(line) : "memory");
                asm volatile("cp.async.commit_group;" ::: "memory");
            }
            if (kProbe == kCopyThrough) {
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(line) : "memory");
                asm volatile("cp.async.commit_group;" ::: "memory");
            }
            issued = now(lane, never);
            if (kProbe == kCopy || kProbe == kCopyThrough) asm volatile("cp.async.wait_group 0;" ::: "memory");
            sum += got;
            asm volatile("" : "+r"(sum)::"memory");
            there = now(lane, never);
        }
        if (lane == 0) {
            uint32_t *mine = clocks + (round * kWarps + warp) * 3;
            mine[0] = before - starts[round], mine[1] = issued - starts[round], mine[2] = there - starts[round];
        }
    }
    __syncthreads();
    sums[threadIdx.x] = sum + (is_prober ? written[lane] : 0);
}

#define PROBE(name, probe, num)                                                                                          \
    extern "C" __global__ void __launch_bounds__(kWarps * 32)                                                            \
        name(const Told told, const uint32_t *lines, uint32_t *stored, uint32_t *clocks, uint32_t *sums) {               \
        rounds<num, probe>(told, lines, stored, clocks, sums);                                                           \
    }
#include "probes.inc"
