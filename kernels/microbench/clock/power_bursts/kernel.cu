// At what clock does the SM run when tensor cores work in bursts, short or long, with rests between that are short or long?
//
// As kernels/power_mma, whose steps these are: a CTA on every SM, 16 warps or fewer, 16 mma.sync a step; all begin a burst of `grain`
// steps together (an mbarrier, every wait bound), and rest as long as their duty says. `wgmma_bf16`: a step is four wgmma m64n256k16 of one
// warpgroup. The last warp writes down both clocks. `wgmma.inc` is power_clock's.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

#include "wgmma.inc"

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kWarps = 16, kThreads = (kWarps + 1) * 32, kWgmmaThreads = 160;
constexpr uint32_t kSteps = 64, kWgmmaSteps = 16;          // before the accumulators start anew: K = 1024
constexpr uint32_t kRowBytes = 256;                        // K = 128 of 16-bit numbers: eight steps
constexpr uint32_t kABytes = 256 * kRowBytes, kBBytes = 128 * kRowBytes;
constexpr int kM = 4, kN = 4;                              // instructions of a warp's tile
constexpr int kPatience = 1 << 14;               // tries of a wait
constexpr int kBf16 = 1, kFfma = 3;

struct Plan {
    uint64_t run_ns, period_ns;
    uint32_t duty, grain, num_warps, num_samples;  // percent; steps of a burst
};

// What a CTA did: bursts of kSteps by warp; whether a wait was given up.
struct Done {
    uint64_t num_bursts[kWarps], has_failed, pad;
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

// Where all warps that work meet: an mbarrier of one arrival a warp. `has_failed`: a wait was given up.
struct Meeting {
    uint32_t at, flag_at, parity;
    bool has_failed;

    __device__ __forceinline__ void meet() {
        if (has_failed) return;
        __syncwarp();
        if (threadIdx.x % 32 == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
        uint32_t is_done = 0;
#pragma unroll 1
        for (int tries = 0; tries < kPatience && !is_done; ++tries)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                         : "=r"(is_done) : "r"(at), "r"(parity) : "memory");
        has_failed |= !is_done;
        parity ^= 1;
        __syncwarp();
    }
    // Whether the first thread still has time.
    __device__ __forceinline__ bool agree(uint64_t end) {
        if (threadIdx.x == 0) {
            const uint32_t has_time = now_ns() < end;
            asm volatile("st.shared.u32 [%0], %1;" ::"r"(flag_at), "r"(has_time) : "memory");
        }
        meet();
        uint32_t goes_on;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(goes_on) : "r"(flag_at) : "memory");
        return goes_on && !has_failed;
    }
};

__device__ __forceinline__ Meeting meeting(uint32_t at, uint32_t num_warps) {
    if (threadIdx.x == 0 && num_warps) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(num_warps) : "memory");
    return {at, at + 8, 0, false};
}

__device__ __forceinline__ void watch(const Plan &plan, uint64_t start, uint64_t *samples) {
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

__device__ __forceinline__ void ldmatrix(uint32_t &r0, uint32_t &r1, uint32_t &r2, uint32_t &r3, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(at) : "memory");
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// A warp's fragments of one step of K, and where they lie: rows of 256 bytes, chunks of 16 XORed with the row.
struct Fragments {
    uint32_t a[kM][4], b[kN][2];

    __device__ __forceinline__ void load_a(uint32_t a_at, uint32_t k) {
        const uint32_t lane = threadIdx.x & 31, chunk = (2 * k + (lane >> 4) ^ (lane & 7)) << 4;
#pragma unroll
        for (int m = 0; m < kM; ++m) ldmatrix(a[m][0], a[m][1], a[m][2], a[m][3], a_at + chunk + m * 16 * kRowBytes);
    }
    __device__ __forceinline__ void load(uint32_t a_at, uint32_t b_at, uint32_t k) {
        const uint32_t lane = threadIdx.x & 31, chunk = (2 * k + (lane >> 3 & 1) ^ (lane & 7)) << 4;
        load_a(a_at, k);
#pragma unroll
        for (int n = 0; n < kN; n += 2) ldmatrix(b[n][0], b[n][1], b[n + 1][0], b[n + 1][1], b_at + chunk + n * 8 * kRowBytes);
    }
};

// samples[cta][sample]: nanoseconds, cycles; d: the first CTA's sums, by register and thread.
template <int kArithmetic, int kLoads>
__device__ __forceinline__ void work(const Plan &plan, const uint4 *operands, uint64_t *samples, Done *done, float *d) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    for (uint32_t i = threadIdx.x; i < (kABytes + kBBytes) / 16; i += kThreads) smem[i] = operands[i];
    Meeting all = meeting(static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) + kABytes + kBBytes, plan.num_warps);
    __syncthreads();
    const uint64_t start = now_ns(), end = start + plan.run_ns;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (warp == kWarps) {
        if (lane == 0) watch(plan, start, samples);
        return;
    }
    if (warp >= plan.num_warps) return;
    uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    asm volatile("" : "+r"(base));
    const uint32_t a_at = base + ((warp & 3) * 64 + (lane & 15)) * kRowBytes;
    const uint32_t b_at = base + kABytes + ((warp >> 2) * 32 + (lane >> 4) * 8 + (lane & 7)) * kRowBytes;
    Fragments own;
    if constexpr (kArithmetic == kBf16) own.load(a_at, b_at, 0);
    float x[8], y[8];
    if constexpr (kArithmetic == kFfma) {
        const float *numbers = reinterpret_cast<const float *>(operands);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            x[i] = numbers[i * 512 + threadIdx.x];
            y[i] = numbers[(8 + i) * 512 + threadIdx.x];
        }
    }
    float acc[kM * kN][4];
    uint32_t num_bursts = 0;
    const float ratio = rest_of(plan.duty);
#pragma unroll 1
    while (all.agree(end)) {
#pragma unroll
        for (int i = 0; i < kM * kN; ++i)
#pragma unroll
            for (int r = 0; r < 4; ++r) acc[i][r] = 0;
#pragma unroll 1
        for (uint32_t first = 0; first < kSteps; first += plan.grain) {
            all.meet();
            const int64_t begin = now();
#pragma unroll 1
            for (uint32_t step = first; step < first + plan.grain; ++step) {
                if constexpr (kLoads > 0) own.load(a_at, b_at, step & 7);
                if constexpr (kArithmetic == kBf16) {
#pragma unroll
                    for (int n = 0; n < kN; ++n) {
                        #pragma unroll
                        for (int m = 0; m < kM; ++m) mma(acc[m * kN + n], own.a[m], own.b[n]);
                    }
                } else if constexpr (kArithmetic == kFfma) {
#pragma unroll
                    for (int i = 0; i < 64; ++i)
                        asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(acc[i / 4][i % 4]) : "f"(x[i / 8]), "f"(y[i % 8]));
                }
            }
            rest(begin, ratio);
        }
        ++num_bursts;
    }
    if (lane == 0) {
        done[blockIdx.x].num_bursts[warp] = num_bursts;
        if (all.has_failed) done[blockIdx.x].has_failed = 1;
    }
    if (blockIdx.x) return;
#pragma unroll
    for (int i = 0; i < 64; ++i) d[i * 512 + threadIdx.x] = acc[i / 4][i % 4];
}

#define BURST_KERNEL(name, arithmetic, loads)                                                              \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                                              \
        name(const __grid_constant__ Plan plan, const uint4 *operands, uint64_t *samples, Done *done, float *d) { \
        work<arithmetic, loads>(plan, operands, samples, done, d);                                         \
    }

BURST_KERNEL(mma_bf16, kBf16, 0)
BURST_KERNEL(feed_bf16, kBf16, 1)
BURST_KERNEL(fma_fp32, kFfma, 0)

// ------------------------------------------------------------------------------------------------ wgmma in short bursts

constexpr uint32_t kPanels = 4, kWgmmaABytes = 64 * 512, kWgmmaBBytes = 256 * 512;

// Start address, and 1024 bytes from eight rows to the next; swizzle 128B.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    return static_cast<uint64_t>(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_bf16(const __grid_constant__ Plan plan, const uint4 *operands, uint64_t *samples, Done *done, float *d) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    for (uint32_t i = threadIdx.x; i < (kWgmmaABytes + kWgmmaBBytes) / 16; i += kWgmmaThreads) smem[i] = operands[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    Meeting all = meeting(static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) + kWgmmaABytes + kWgmmaBBytes, 4);
    __syncthreads();
    const uint64_t start = now_ns(), end = start + plan.run_ns;
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128) watch(plan, start, samples);
        return;
    }
    uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    asm volatile("" : "+r"(base));
    float acc[128];
#pragma unroll
    for (int i = 0; i < 128; ++i) acc[i] = 0;
    uint32_t num_bursts = 0;
    const float ratio = rest_of(plan.duty);
#pragma unroll 1
    while (all.agree(end)) {
#pragma unroll 1
        for (uint32_t first = 0; first < kWgmmaSteps; first += plan.grain) {
            all.meet();
            const int64_t begin = now();
#pragma unroll 1
            for (uint32_t step = first; step < first + plan.grain; ++step) {
                const uint32_t panel = step % kPanels, a = base + panel * 64 * 128, b = base + kWgmmaABytes + panel * 256 * 128;
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
                for (int k = 0; k < 4; ++k) wgmma(acc, descriptor(a + k * 32), descriptor(b + k * 32), step + k != 0);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            rest(begin, ratio);
        }
        ++num_bursts;
    }
    if (threadIdx.x % 32 == 0) {
        done[blockIdx.x].num_bursts[threadIdx.x / 32] = num_bursts;
        if (all.has_failed) done[blockIdx.x].has_failed = 1;
    }
    if (blockIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 128; ++i) d[i * 128 + threadIdx.x] = acc[i];
    }
}

#endif
