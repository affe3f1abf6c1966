// At what clock does the SM run under mma.sync, ldmatrix, cp.async, FFMA and sums of integers, in long and in short bursts?
//
// A CTA on every SM. Up to 16 warps take steps: 16 mma.sync of a warp's tile of 64 x 32 (K = 16), from fragments that stay or
// that ldmatrix brings anew, copies by cp.async out of L2 beside them; or 64 FFMA, or 64 sums. After `grain` steps a warp rests as long
// as its duty says; `is_together`: all warps begin a burst at a barrier. `wgmma_bf16`: a step is four wgmma m64n256k16 of one warpgroup.
// The last warp writes down the SM's clock and the GPU's nanoseconds every so often. All stop at a time. `wgmma.inc` is power_clock's.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

#include "wgmma.inc"

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr uint32_t kWarps = 16, kThreads = (kWarps + 1) * 32, kWgmmaThreads = 160;
constexpr uint32_t kSteps = 64, kWgmmaSteps = 16;          // before the accumulators start anew: K = 1024
constexpr uint32_t kRowBytes = 256;                        // K = 128 of 16-bit numbers: eight steps
constexpr uint32_t kABytes = 256 * kRowBytes, kBBytes = 128 * kRowBytes;
constexpr uint32_t kCopyBytes = 512, kSlots = 4;           // of a warp's copy; how many groups are in flight
constexpr int kM = 4, kN = 4;                              // instructions of a warp's tile
constexpr int kNone = 0, kBf16 = 1, kFp16 = 2, kFfma = 3, kIadd = 4;

struct Plan {
    uint64_t run_ns, period_ns;
    uint32_t duty, grain, is_together, num_warps;  // percent; steps of a burst
    uint32_t slice_bytes, num_samples;             // of the stream, a CTA's own
    uint32_t zero, pad;                            // so that ptxas takes a second read for another
};

// What a CTA did: bursts of kSteps by warp; where the first thread copied last, and what came; the rest is unused.
struct Done {
    uint64_t num_bursts[kWarps], last_offset, last_words;
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

// Whether all threads that work still have time.
__device__ __forceinline__ bool agree(bool has_time, uint32_t num_threads) {
    uint32_t all;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.and.pred q, 1, %2, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(all) : "r"(static_cast<uint32_t>(has_time)), "r"(num_threads) : "memory");
    return all != 0;
}
__device__ __forceinline__ void meet(uint32_t num_threads) { asm volatile("bar.sync 1, %0;" ::"r"(num_threads) : "memory"); }

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

template <int kArithmetic>
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t *b) {
    if constexpr (kArithmetic == kBf16)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                     : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
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
    __device__ __forceinline__ uint32_t all() const {
        uint32_t word = 0;
#pragma unroll
        for (int i = 0; i < kM; ++i) word ^= a[i][0] ^ a[i][1] ^ a[i][2] ^ a[i][3] ^ b[i][0] ^ b[i][1];
        return word;
    }
};

// samples[cta][sample]: nanoseconds, cycles; d: the first CTA's sums, by register and thread.
template <int kArithmetic, int kLoads, int kCopies>
__device__ __forceinline__ void work(const Plan &plan, const uint4 *operands, const unsigned char *stream, uint64_t *samples, Done *done, float *d) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    for (uint32_t i = threadIdx.x; i < (kABytes + kBBytes) / 16; i += kThreads) smem[i] = operands[i];
    __syncthreads();
    const uint64_t start = now_ns(), end = start + plan.run_ns;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, num_threads = plan.num_warps * 32;
    if (warp == kWarps) {
        if (lane == 0) watch(plan, start, samples);
        return;
    }
    if (warp >= plan.num_warps) return;
    uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    asm volatile("" : "+r"(base));
    const uint32_t a_at = base + ((warp & 3) * 64 + (lane & 15)) * kRowBytes;
    const uint32_t b_at = base + kABytes + ((warp >> 2) * 32 + (lane >> 4) * 8 + (lane & 7)) * kRowBytes;
    const uint32_t slot_at = base + kABytes + kBBytes + warp * kSlots * (kCopies ? kCopies : 1) * kCopyBytes + lane * 16;
    Fragments own;
    if constexpr (kArithmetic == kBf16 || kArithmetic == kFp16) own.load(a_at, b_at, 0);
    float x[8], y[8];
    if constexpr (kArithmetic == kFfma || kArithmetic == kIadd) {
        const float *numbers = reinterpret_cast<const float *>(operands);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            x[i] = numbers[i * 512 + threadIdx.x];
            y[i] = numbers[(8 + i) * 512 + threadIdx.x];
        }
    }
    float acc[kM * kN][4];
    uint32_t num_bursts = 0;
    uint32_t offset = warp * kCopyBytes, last_offset = 0, slot = 0;
    const unsigned char *from = stream + static_cast<uint64_t>(blockIdx.x) * plan.slice_bytes + lane * 16;
    const float ratio = rest_of(plan.duty);
#pragma unroll 1
    while (plan.is_together ? agree(now_ns() < end, num_threads) : now_ns() < end) {
#pragma unroll
        for (int i = 0; i < kM * kN; ++i)
#pragma unroll
            for (int r = 0; r < 4; ++r) acc[i][r] = 0;
#pragma unroll 1
        for (uint32_t first = 0; first < kSteps; first += plan.grain) {
            if (plan.is_together) meet(num_threads);
            const int64_t begin = now();
#pragma unroll 1
            for (uint32_t step = first; step < first + plan.grain; ++step) {
                if constexpr (kCopies > 0) {
#pragma unroll
                    for (int i = 0; i < kCopies; ++i) {
                        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(slot_at + (slot * kCopies + i) * kCopyBytes), "l"(from + offset) : "memory");
                        last_offset = offset;
                        offset += num_threads * 16;
                        if (offset + kCopyBytes > plan.slice_bytes) offset = warp * kCopyBytes;
                    }
                    slot = slot + 1 & kSlots - 1;
                    asm volatile("cp.async.commit_group;" ::: "memory");
                    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
                }
if constexpr (kLoads > 0) own.load(a_at, b_at, step & 7);
                if constexpr (kArithmetic == kBf16 || kArithmetic == kFp16) {
#pragma unroll
                    for (int n = 0; n < kN; ++n) {
                        if (kLoads > 1 && n == kN / 2) own.load_a(a_at + plan.zero, step & 7);
#pragma unroll
                        for (int m = 0; m < kM; ++m) mma<kArithmetic>(acc[m * kN + n], own.a[m], own.b[n]);
                    }
                } else if constexpr (kArithmetic == kFfma) {
#pragma unroll
                    for (int i = 0; i < 64; ++i)
                        asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(acc[i / 4][i % 4]) : "f"(x[i / 8]), "f"(y[i % 8]));
                } else if constexpr (kArithmetic == kIadd) {
#pragma unroll
                    for (int i = 0; i < 64; ++i)
                        asm volatile("{ .reg .b32 s, t; mov.b32 s, %0; mov.b32 t, %1; add.u32 s, s, t; mov.b32 %0, s; }" : "+f"(acc[i / 4][i % 4]) : "f"(y[i % 8]));
                }
            }
            rest(begin, ratio);
        }
        ++num_bursts;
    }
    if (lane == 0) done[blockIdx.x].num_bursts[warp] = num_bursts;
    if constexpr (kCopies > 0) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        if (threadIdx.x == 0) {
            const uint32_t at = slot_at - base + ((slot + kSlots - 1 & kSlots - 1) * kCopies + kCopies - 1) * kCopyBytes;
            const uint4 words = *reinterpret_cast<const uint4 *>(buffer + at);
            done[blockIdx.x].last_offset = static_cast<uint64_t>(blockIdx.x) * plan.slice_bytes + last_offset;
            done[blockIdx.x].last_words = words.x ^ words.y ^ words.z ^ words.w;
        }
    }
    if (blockIdx.x) return;
    if constexpr (kArithmetic != kNone) {
#pragma unroll
        for (int i = 0; i < 64; ++i) d[i * 512 + threadIdx.x] = acc[i / 4][i % 4];
    } else if constexpr (kLoads > 0) {
        d[threadIdx.x] = __uint_as_float(own.all());
    }
}

#define POWER_KERNEL(name, arithmetic, loads, copies)                                                             \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                     \
        name(const __grid_constant__ Plan plan, const uint4 *operands, const unsigned char *stream,               \
             uint64_t *samples, Done *done, float *d) {                                                           \
        work<arithmetic, loads, copies>(plan, operands, stream, samples, done, d);                                \
    }

POWER_KERNEL(mma_bf16, kBf16, 0, 0)
POWER_KERNEL(mma_fp16, kFp16, 0, 0)
POWER_KERNEL(feed_bf16, kBf16, 1, 0)
POWER_KERNEL(feed2_bf16, kBf16, 2, 0)
POWER_KERNEL(copy1_bf16, kBf16, 1, 1)
POWER_KERNEL(copy2_bf16, kBf16, 1, 2)
POWER_KERNEL(read_smem, kNone, 1, 0)
POWER_KERNEL(copy_l2, kNone, 0, 2)
POWER_KERNEL(fma_fp32, kFfma, 0, 0)
POWER_KERNEL(add_int32, kIadd, 0, 0)

// ------------------------------------------------------------------------------------------------ wgmma in short bursts

constexpr uint32_t kPanels = 4, kWgmmaABytes = 64 * 512, kWgmmaBBytes = 256 * 512;

// Start address, and 1024 bytes from eight rows to the next; swizzle 128B.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    return static_cast<uint64_t>(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

extern "C" __global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_bf16(const __grid_constant__ Plan plan, const uint4 *operands, const unsigned char *, uint64_t *samples, Done *done, float *d) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    for (uint32_t i = threadIdx.x; i < (kWgmmaABytes + kWgmmaBBytes) / 16; i += kWgmmaThreads) smem[i] = operands[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
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
    while (agree(now_ns() < end, 128)) {
#pragma unroll 1
        for (uint32_t first = 0; first < kWgmmaSteps; first += plan.grain) {
            meet(128);
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
    if (threadIdx.x % 32 == 0) done[blockIdx.x].num_bursts[threadIdx.x / 32] = num_bursts;
    if (blockIdx.x == 0) {
#pragma unroll
        for (int i = 0; i < 128; ++i) d[i * 128 + threadIdx.x] = acc[i];
    }
}

#endif
