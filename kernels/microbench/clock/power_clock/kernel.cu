// At what clock does the SM run under which work, and how does that change with time? Tensor work, streams and both, in bursts.
//
// A CTA on every SM. Warps 0 to 3 multiply (wgmma m64n256k16, bf16, both operands from shared memory, K = 1024 a burst) and
// rest as long as their duty says; warps 4 to 10 read memory or L2 in the same manner; warp 11 writes down the SM's clock and
// the GPU's nanoseconds every so often. All stop at a time. `wgmma.inc` is written by case.py: the one instruction.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

#include "wgmma.inc"

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kThreads = 384;
constexpr int kPanels = 4, kStepsPerPanel = 4;   // K = 256 lies in shared memory: panels of 128 bytes a row
constexpr int kPassesPerBurst = 4;               // K = 1024 before the accumulators start anew
constexpr uint32_t kARows = 64, kBRows = 256;
constexpr uint32_t kABytes = kARows * 512, kBBytes = kBRows * 512;
constexpr int kLoads = 8;                        // of 16 bytes, of a thread that streams, at once
constexpr int kStreamThreads = 224;

struct Plan {
    uint64_t run_ns, period_ns;
    uint32_t tensor_duty, stream_duty;  // percent; 0: not at all
    uint32_t stream_bytes;              // of the buffer that all CTAs walk through together, or each a slice of it
    uint32_t is_private;                // 1: a CTA stays in its own slice, which L2 holds
    uint32_t num_samples, pad;
};

// What a CTA did: bursts, rounds of the stream; of the last round the thread 0's offset, and its words XORed.
struct Done {
    uint64_t num_bursts, num_rounds, last_offset, last_words;
};

__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

// How long to rest for each cycle of work, so that the work is `duty` percent of the time.
__device__ __forceinline__ float rest_of(uint32_t duty) { return static_cast<float>(100 - duty) / static_cast<float>(duty); }

__device__ __forceinline__ void rest(int64_t begin, float ratio) {
    if (ratio == 0.0f) return;
    const int64_t end = now();
    const int64_t until = end + static_cast<int32_t>(static_cast<float>(static_cast<int32_t>(end - begin)) * ratio);
    while (now() < until) __nanosleep(20);
}

// Whether all four warps that multiply still have time: they must go together.
__device__ __forceinline__ bool agree(bool has_time) {
    uint32_t all;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.and.pred q, 1, 128, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(all) : "r"(static_cast<uint32_t>(has_time)) : "memory");
    return all != 0;
}

// Start address, and 1024 bytes from eight rows to the next; swizzle 128B.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    return static_cast<uint64_t>(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

__device__ __forceinline__ void pass(float (&acc)[128], uint32_t a, uint32_t b, bool is_first) {
    asm volatile("" : "+r"(a), "+r"(b));  // descriptors are made anew in each pass, as there are no registers to keep them in
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < kStepsPerPanel; ++step)
            wgmma(acc, descriptor(a + panel * kARows * 128 + step * 32), descriptor(b + panel * kBRows * 128 + step * 32),
                  !(is_first && panel == 0 && step == 0));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
}

__device__ __forceinline__ uint4 load(const uint4 *at) {
    uint4 words;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w) : "l"(at) : "memory");
    return words;
}

// samples[cta][sample]: nanoseconds, cycles; d: A times B of the first CTA, by register and thread.
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    work(const __grid_constant__ Plan plan, const uint4 *operands, const unsigned char *stream, uint64_t *samples, Done *done, float *d) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    for (uint32_t i = threadIdx.x; i < (kABytes + kBBytes) / 16; i += kThreads) smem[i] = operands[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint64_t start = now_ns(), end = start + plan.run_ns;
    const uint32_t warp = threadIdx.x / 32;
    if (warp < 4) {
        uint32_t a = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
        asm volatile("" : "+r"(a));
        const uint32_t b = a + kABytes;
        float acc[128];
#pragma unroll
        for (int i = 0; i < 128; ++i) acc[i] = 0;
        uint64_t num_bursts = 0;
        const float ratio = rest_of(plan.tensor_duty);
        if (plan.tensor_duty)
#pragma unroll 1
            while (agree(now_ns() < end)) {
                const int64_t begin = now();
#pragma unroll 1
                for (int i = 0; i < kPassesPerBurst; ++i) pass(acc, a, b, i == 0);
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                ++num_bursts;
                rest(begin, ratio);
            }
        if (threadIdx.x == 0) done[blockIdx.x].num_bursts = num_bursts;
        if (blockIdx.x == 0 && plan.tensor_duty) {
#pragma unroll
            for (int i = 0; i < 128; ++i) d[i * 128 + threadIdx.x] = acc[i];
        }
    } else if (warp < 11) {
        const uint32_t thread = threadIdx.x - 128;
        constexpr uint64_t kRoundBytes = kLoads * kStreamThreads * 16;
        const uint64_t slice = plan.is_private ? plan.stream_bytes / gridDim.x / kRoundBytes * kRoundBytes : plan.stream_bytes;
        const uint64_t base = plan.is_private ? blockIdx.x * slice : 0;
        uint64_t offset = plan.is_private ? 0 : blockIdx.x * kRoundBytes, num_rounds = 0, last_offset = 0;
        uint32_t all = 0, last = 0;
        const float ratio = rest_of(plan.stream_duty);
        if (plan.stream_duty)
#pragma unroll 1
            while (now_ns() < end) {
                const int64_t begin = now();
                uint4 words[kLoads];
                last_offset = base + offset + thread * 16;
#pragma unroll
                for (int i = 0; i < kLoads; ++i)
                    words[i] = load(reinterpret_cast<const uint4 *>(stream + last_offset + i * kStreamThreads * 16));
                last = 0;
#pragma unroll
                for (int i = 0; i < kLoads; ++i) last ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
                all ^= last;
                offset += plan.is_private ? kRoundBytes : kRoundBytes * gridDim.x;
                if (offset + kRoundBytes > slice) offset = plan.is_private ? 0 : blockIdx.x * kRoundBytes;
                ++num_rounds;
                if (all != 0x7ffffff1) rest(begin, ratio);
            }
        if (thread == 0) {
            done[blockIdx.x].num_rounds = num_rounds;
            done[blockIdx.x].last_offset = last_offset;
            done[blockIdx.x].last_words = last;
        }
    } else if (threadIdx.x % 32 == 0) {
        uint64_t *of_cta = samples + static_cast<uint64_t>(blockIdx.x) * plan.num_samples * 2;
#pragma unroll 1
        for (uint32_t i = 0; i < plan.num_samples; ++i) {
            const uint64_t due = start + i * plan.period_ns;
            uint64_t ns = now_ns();
            while (ns < due) {
                if (due - ns > 2000) __nanosleep(1000);
                ns = now_ns();
            }
            const int64_t cycle = now();
            of_cta[2 * i] = ns;
            of_cta[2 * i + 1] = static_cast<uint64_t>(cycle);
        }
    }
}

#endif
