// In what order do an SM's warps run loops of loads, and what do these take beside the arithmetic that stands between them?
//
// `<load>_<op>_<num>`: one CTA; warps run turns of 16 loads of a line each that is always in L1 (`global`) or in shared memory
// (`shared`), or of none (`none`), with `num` instructions of a kind evenly between them: IMAD.WIDE, IMAD, IADD3, a sum of 64 bits
// (two), FFMA; `chain`: each second load's address comes from the one before it by an IMAD.WIDE. At the end of a turn all loads
// are used. All that is added or multiplied is 0, which the compiler does not know.
//
// `walk_<a>_<b>`: CTAs of 32 lanes by warps, one or two on each SM: `a` loads of one word by all lanes, side by side in a row, and `b`
// of a line each, in turns, then as many FFMAs, one behind the other; from turn to turn rows and lines walk on, or stay.
// `wide_8_8`: the same with lines' addresses as a pitch in integers (of words) gives them, an IMAD.WIDE each; both walk on.

#include <cstddef>
#include <cstdint>

constexpr int kLoads = 16, kLine = 128;

struct Times {
    uint32_t begin, end, sm, left;
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t own_sm() {
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

// One IMAD.WIDE; ptxas takes `mad.wide` apart into a product and a sum.
__device__ __forceinline__ void mad_wide(uint64_t &sum, uint32_t a, uint32_t b) {
    asm volatile("{ .reg .u32 low, high; mov.b64 {low, high}, %0; mad.lo.cc.u32 low, %1, %2, low; madc.hi.u32 high, %1, %2, high; "
                 "mov.b64 %0, {low, high}; }"
                 : "+l"(sum)
                 : "r"(a), "r"(b));
}

// ------------------------------------------------------------------------------------------------ arithmetic between loads

enum Load { kGlobal, kShared, kNone };
enum Op { kWide, kMad, kAdd, kAdd64, kFma, kChain };

template <Load kLoad>
__device__ __forceinline__ float load(uint64_t from) {
    float word = 0.0f;
    if (kLoad == kGlobal) asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(word) : "l"(from));
    if (kLoad == kShared) asm volatile("ld.shared.f32 %0, [%1];" : "=f"(word) : "r"(static_cast<uint32_t>(from)));
    return word;
}

template <Load kLoad, Op kOp, int kNum>
__device__ __forceinline__ void between(const float *lines, const uint32_t *zeros, Times *times, float *sums, int num_turns) {
    __shared__ float words[kLoads * 32];
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, zero = zeros[lane];
    uint64_t base = reinterpret_cast<uint64_t>(lines + lane);
    if (kLoad == kShared) {
        for (uint32_t i = threadIdx.x; i < kLoads * 32; i += blockDim.x) words[i] = lines[i];
        base = static_cast<uint32_t>(__cvta_generic_to_shared(words)) + lane * 4;
    }
    uint64_t wide[4];
    uint32_t plain[4], column = zero;
    float real[4], sum = 0.0f;
    for (int i = 0; i < 4; ++i) wide[i] = (uint64_t(zero) << 32) + zero, plain[i] = zero, real[i] = __uint_as_float(zero);
    __syncthreads();
    const uint32_t begin = now();
#pragma unroll 1
    for (int turn = 0; turn < num_turns; ++turn) {
        float held[kLoads];
        uint64_t at = base;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            held[i] = load<kLoad>(kOp == kChain && i % 2 == 0 ? at : base + i * kLine);
#pragma unroll
            for (int j = i * kNum / kLoads; j < (i + 1) * kNum / kLoads; ++j) {
                const int one = j % 4, other = (j + 1) % 4;
                if (kOp == kWide) mad_wide(wide[one], static_cast<uint32_t>(wide[one] >> 32), zero);
                if (kOp == kMad) asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(plain[one]) : "r"(zero), "r"(plain[other]));
                if (kOp == kAdd) asm volatile("add.u32 %0, %0, %1;" : "+r"(plain[one]) : "r"(plain[other]));
                if (kOp == kAdd64) asm volatile("add.u64 %0, %0, %1;" : "+l"(wide[one]) : "l"(wide[other]));
                if (kOp == kFma) asm volatile("fma.rn.f32 %0, %0, %1, %0;" : "+f"(real[one]) : "f"(real[other]));
                if (kOp == kChain) {
                    column += zero;
                    mad_wide(at, column, zero);
                }
            }
        }
        if (kLoad != kNone) {
#pragma unroll
            for (int i = 0; i < kLoads; i += 2) sum = fmaf(held[i], held[i + 1], sum);
        }
        base += zero;
    }
    const uint32_t end = now();
    uint32_t left = column;
    for (int i = 0; i < 4; ++i)
        left |= static_cast<uint32_t>(wide[i]) | static_cast<uint32_t>(wide[i] >> 32) | plain[i] | __float_as_uint(real[i]);
    if (lane == 0) times[warp] = Times{begin, end, own_sm(), left};
    sums[threadIdx.x] = sum;
}

#define BETWEEN(load, kload, op, kop, num)                                                                                       \
    extern "C" __global__ void __launch_bounds__(1024) load##_##op##_##num(const float *lines, const uint32_t *zeros, Times *times,  \
                                                                           float *sums, int num_turns) {                         \
        between<kload, kop, num>(lines, zeros, times, sums, num_turns);                                                          \
    }
#define NUMBERS(load, kload, op, kop) \
    BETWEEN(load, kload, op, kop, 4)  \
    BETWEEN(load, kload, op, kop, 8)  \
    BETWEEN(load, kload, op, kop, 16) \
    BETWEEN(load, kload, op, kop, 32)
#define OPS(load, kload)                \
    NUMBERS(load, kload, wide, kWide)   \
    NUMBERS(load, kload, mad, kMad)     \
    NUMBERS(load, kload, add, kAdd)     \
    NUMBERS(load, kload, add64, kAdd64) \
    NUMBERS(load, kload, fma, kFma)

BETWEEN(global, kGlobal, wide, kWide, 0)
BETWEEN(shared, kShared, wide, kWide, 0)
BETWEEN(global, kGlobal, chain, kChain, 8)
BETWEEN(global, kGlobal, chain, kChain, 16)
OPS(global, kGlobal)
OPS(shared, kShared)
OPS(none, kNone)

// ------------------------------------------------------------------------------------------------ loops that walk

struct Walk {
    const char *a, *b;
    Times *times;
    float *sums;
    int num_turns, row_warps, pitch;
    int64_t a_step, a_warp, a_cta, b_step, b_cta;
};

__device__ __forceinline__ float load_word(const char *from) { return load<kGlobal>(reinterpret_cast<uint64_t>(from)); }

template <int kA, int kB>
__device__ __forceinline__ float sum_of(const float *left, const float *right, float sum) {
    constexpr int kMost = kA > kB ? kA : kB;
#pragma unroll
    for (int i = 0; i < kMost; ++i) sum = fmaf(kA ? left[i % (kA ? kA : 1)] : 1.0f, kB ? right[i % (kB ? kB : 1)] : 1.0f, sum);
    return sum;
}

__device__ __forceinline__ void note(const Walk &walk, uint32_t begin, uint32_t end, float sum) {
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x % 32 == 0) walk.times[blockIdx.x * (blockDim.x / 32) + warp] = Times{begin, end, own_sm(), 0};
    walk.sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

template <int kA, int kB>
__device__ __forceinline__ void walked(const Walk &walk) {
    constexpr int kMost = kA > kB ? kA : kB;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const char *a = walk.a + blockIdx.x * walk.a_cta + (warp / walk.row_warps) * walk.a_warp;
    const char *b = walk.b + blockIdx.x * walk.b_cta + lane * 4;
    const int64_t pitch = walk.pitch;
    float sum = 0.0f;
    __syncthreads();
    const uint32_t begin = now();
#pragma unroll 1
    for (int turn = 0; turn < walk.num_turns; ++turn) {
        float left[kA ? kA : 1], right[kB ? kB : 1];
        const char *line = b;
#pragma unroll
        for (int i = 0; i < kMost; ++i) {
            if (i < kB) right[i] = load_word(line), line += pitch;
            if (i < kA) left[i] = load_word(a + 4 * i);
        }
        sum = sum_of<kA, kB>(left, right, sum);
        a += walk.a_step, b += walk.b_step;
    }
    const uint32_t end = now();
    note(walk, begin, end, sum);
}

#define ARGUMENTS                                                                                                                   \
    const char *a, const char *b, Times *times, float *sums, int num_turns, int row_warps, int pitch, int64_t a_step, int64_t a_warp, \
        int64_t a_cta, int64_t b_step, int64_t b_cta
#define WALKED Walk{a, b, times, sums, num_turns, row_warps, pitch, a_step, a_warp, a_cta, b_step, b_cta}
#define WALK(left, right) \
    extern "C" __global__ void __launch_bounds__(1024) walk_##left##_##right(ARGUMENTS) { walked<left, right>(WALKED); }

WALK(8, 8)
WALK(16, 0)
WALK(8, 0)
WALK(0, 8)
WALK(4, 4)
WALK(8, 1)

extern "C" __global__ void __launch_bounds__(1024) wide_8_8(ARGUMENTS) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float *__restrict__ left_from = reinterpret_cast<const float *>(a + blockIdx.x * a_cta + (warp / row_warps) * a_warp);
    const float *__restrict__ right_from = reinterpret_cast<const float *>(b + blockIdx.x * b_cta) + lane;
    float sum = 0.0f;
    __syncthreads();
    const uint32_t begin = now();
#pragma unroll 1
    for (int turn = 0; turn < num_turns; ++turn) {
        float left[8], right[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) left[i] = __ldg(left_from + i);
#pragma unroll
        for (int i = 0; i < 8; ++i) right[i] = __ldg(right_from + size_t(i) * pitch);
        sum = sum_of<8, 8>(left, right, sum);
        left_from += 8;
        right_from += size_t(8) * pitch;
    }
    const uint32_t end = now();
    note(WALKED, begin, end, sum);
}
