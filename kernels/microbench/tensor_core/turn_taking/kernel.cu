// How do two warpgroups of an SM share it: one that multiplies beside one that does something else, two that take turns at tiles,
// and what one takes for the waits of its steps. Operands are always ready: images of shared memory, laid out by the host.
//
// `shapes.inc` is written by case.py: a struct for each wgmma, and the entry points. Every loop ends by a count, every wait by patience.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kKSteps = 4;  // wgmmas between a fence and a commit: one for each 32 bytes of a row of 128
constexpr int kTurn = 32;   // items of a turn of the other warpgroup
constexpr uint32_t kPatience = 1u << 16, kWarpgroup = 128, kStages = 4, kScratch = 32768;

enum Kind { kNothing, kImad, kWide, kWideEighth, kHigh, kHighEighth, kDivide, kPack, kStore, kStoreWide, kMatrix, kLds };
enum Way { kNone, kNear, kDirect, kStaged };  // of D out: not at all; two pointers and offsets; an IMAD.WIDE for each; by stmatrix

struct Plan {
    uint64_t a_descriptors[kKSteps], b_descriptors[kKSteps];  // start address: bytes from the operand's image, over 16
    uint32_t a_bytes, b_bytes;                                // of the images; multiples of 1024
    uint32_t num_steps[2];  // of the train; of a tile; of the two rounds
    uint32_t num_turns;     // of the others; tiles of a warpgroup
    uint32_t pitch;         // of D, elements
    uint32_t num_stages;
};

struct None {  // in the place of a wgmma
    static constexpr int kN = 8;
    static constexpr int kNumAccumulators = 4;
    static constexpr bool kIsThere = false;
    static __device__ __forceinline__ void issue(float (&)[4], const uint32_t (&)[4], uint64_t, uint64_t) {}
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ void mad_wide(uint64_t &sum, uint32_t a, uint32_t b) {  // one IMAD.WIDE
    asm volatile("{ .reg .u32 low, high; mov.b64 {low, high}, %0; mad.lo.cc.u32 low, %1, %2, low; madc.hi.u32 high, %1, %2, high; "
                 "mov.b64 %0, {low, high}; }"
                 : "+l"(sum)
                 : "r"(a), "r"(b));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t packed;
    asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}

__device__ __forceinline__ void init(uint32_t barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done = 0;
#pragma unroll 1
    for (uint32_t tries = 0; tries < kPatience; ++tries) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
        if (is_done) return;
    }
    __trap();
}

template <class Shape>
struct Math {
    float accumulators[Shape::kNumAccumulators];

    __device__ __forceinline__ void begin() {
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[i] = 0;
    }

    __device__ __forceinline__ void issue(const Plan &plan, uint64_t a_start, uint64_t b_start) {
        if constexpr (Shape::kIsThere) {
            const uint32_t a[4] = {};
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < kKSteps; ++k) Shape::issue(accumulators, a, plan.a_descriptors[k] + a_start, plan.b_descriptors[k] + b_start);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
    }

    template <int kPending>
    __device__ __forceinline__ void wait_groups() {
        if constexpr (Shape::kIsThere) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    }

    __device__ __forceinline__ int32_t sum() const {
        int32_t made = 0;
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) made += static_cast<int32_t>(accumulators[i]) * (i % 4 + 1);
        return made;
    }
};

__device__ __forceinline__ uint32_t fill_operands(const Plan &plan, const uint4 *a_image, const uint4 *b_image) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    const uint32_t a_16b = plan.a_bytes / 16, b_16b = plan.b_bytes / 16;
    for (uint32_t i = threadIdx.x; i < a_16b; i += blockDim.x) smem[i] = a_image[i];
    for (uint32_t i = threadIdx.x; i < b_16b; i += blockDim.x) smem[a_16b + i] = b_image[i];
    for (uint32_t i = threadIdx.x; i < kScratch / 4; i += blockDim.x) reinterpret_cast<uint32_t *>(smem + a_16b + b_16b)[i] = 3 * i + 1;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    asm volatile("" : "+r"(start));
    return start;
}

// ---------------------------------------------------------------------------------------------- beside

// Items of a kind, each with registers i = j % 8.
template <int kKind>
struct Work {
    uint32_t r[8], one, three, sixteen, nothing, to;
    float f[8];
    uint64_t d[8], near[2];

    __device__ __forceinline__ void begin(const Plan &plan, const uint32_t *numbers, uint16_t *out, uint32_t scratch) {
        const uint32_t thread = threadIdx.x % kWarpgroup, lane = thread % 32, warp = thread / 32;
        one = numbers[0];
        three = numbers[1];
        sixteen = numbers[2];
        nothing = numbers[3];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            r[i] = one * (thread * 8) + i + 1;
            f[i] = static_cast<float>(one * (i + 1));
            d[i] = (static_cast<uint64_t>(i + 1) << 32) + thread;
        }
        to = scratch + warp * 8192 + (kKind == kMatrix ? lane * 16 : lane * 4);
        const uint32_t row = warp * 16 + lane / 4;
        near[0] = reinterpret_cast<uint64_t>(out + thread % 4 * 2) + static_cast<uint64_t>(row) * plan.pitch * 2;
        near[1] = near[0] + plan.pitch * 16;
        asm volatile("" : "+l"(near[0]), "+l"(near[1]));
    }

    __device__ __forceinline__ void step() {
#pragma unroll
        for (int j = 0; j < kTurn; ++j) {
            const int i = j % 8;
            if constexpr (kKind == kImad) asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(r[i]) : "r"(one), "r"(three));
            if constexpr (kKind == kWide) mad_wide(d[i], static_cast<uint32_t>(d[i] >> 32), one);
            if constexpr (kKind == kWideEighth) {  // one of eight; the others are IMADs
                if (i == 0) mad_wide(d[j / 8], static_cast<uint32_t>(d[j / 8] >> 32), one);
                if (i != 0) asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(r[i]) : "r"(one), "r"(three));
            }
            if constexpr (kKind == kHigh) asm volatile("mad.hi.u32 %0, %0, %1, %2;" : "+r"(r[i]) : "r"(three), "r"(sixteen));
            if constexpr (kKind == kHighEighth) {
                if (i == 0) asm volatile("mad.hi.u32 %0, %0, %1, %2;" : "+r"(r[i]) : "r"(three), "r"(sixteen));
                if (i != 0) asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(r[i]) : "r"(one), "r"(three));
            }
            if constexpr (kKind == kDivide) {  // four, each of what the one before has left
                if (i == 0) {
                    r[0] = (r[0] + 1000003u) / r[1];
                    r[1] += nothing;
                }
            }
            if constexpr (kKind == kPack) r[i] = pack(f[i], __uint_as_float(r[i]));
            if constexpr (kKind == kStore)
                asm volatile("st.global.b32 [%0], %1;" ::"l"(near[j % 2] + j / 2 * 16), "r"(r[i]) : "memory");
            if constexpr (kKind == kStoreWide) {
                asm volatile("st.global.b32 [%0], %1;" ::"l"(near[j % 2]), "r"(r[i]) : "memory");
                mad_wide(near[j % 2], one, sixteen);
            }
            if constexpr (kKind == kMatrix)
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + j % 16 * 512),
                             "r"(r[j % 2 * 4]), "r"(r[j % 2 * 4 + 1]), "r"(r[j % 2 * 4 + 2]), "r"(r[j % 2 * 4 + 3])
                             : "memory");
            if constexpr (kKind == kLds) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(r[i]) : "r"(to + j % 16 * 512) : "memory");
        }
        if constexpr (kKind == kStoreWide) {
            near[0] -= sixteen * 16;
            near[1] -= sixteen * 16;
        }
    }

    __device__ __forceinline__ uint32_t word() const {
        uint32_t made = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) made += (2 * i + 1) * (r[i] + static_cast<uint32_t>(d[i]));
        return made;
    }
};

template <class Shape, int kKind>
__device__ __forceinline__ void beside(const Plan &plan, const uint4 *a_image, const uint4 *b_image, const uint32_t *numbers, uint16_t *out,
                                       int32_t *sums, uint32_t *words, uint32_t *cycles) {
    const uint32_t start = fill_operands(plan, a_image, b_image), warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp < 4) {
        Math<Shape> math;
        math.begin();
        const uint64_t a_start = start >> 4, b_start = (start + plan.a_bytes) >> 4;
        uint32_t num_steps = plan.num_steps[0];
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll 1
        do {
            math.issue(plan, a_start, b_start);
            math.template wait_groups<1>();
        } while (--num_steps);
        math.template wait_groups<0>();
        const uint32_t end = now();
        sums[threadIdx.x] = math.sum();
        if (threadIdx.x % 32 == 0) {
            cycles[warp * 2] = begin;
            cycles[warp * 2 + 1] = end;
        }
    } else {
        Work<kKind> work;
        work.begin(plan, numbers, out, start + plan.a_bytes + plan.b_bytes);
        uint32_t num_turns = plan.num_turns;
        asm volatile("" : "+r"(num_turns));
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll 1
        do work.step();
        while (--num_turns);
        const uint32_t end = now();
        words[threadIdx.x - kWarpgroup] = work.word();
        if (threadIdx.x % 32 == 0) {
            cycles[warp * 2] = begin;
            cycles[warp * 2 + 1] = end;
        }
    }
}

// ---------------------------------------------------------------------------------------------- turns

template <class Shape, int kWay>
__device__ __forceinline__ void store(const Math<Shape> &math, const Plan &plan, uint16_t *out, uint32_t scratch, uint32_t one,
                                      uint32_t sixteen) {
    const uint32_t thread = threadIdx.x % kWarpgroup, lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    if constexpr (kWay == kNear || kWay == kDirect) {
        uint64_t near[2] = {reinterpret_cast<uint64_t>(out + lane % 4 * 2) + static_cast<uint64_t>(row) * plan.pitch * 2, 0};
        near[1] = near[0] + plan.pitch * 16;
#pragma unroll
        for (int j = 0; j < Shape::kN / 8; ++j)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const uint64_t at = kWay == kNear ? near[half] + j * 16 : near[half];
                asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(pack(math.accumulators[4 * j + 2 * half], math.accumulators[4 * j + 2 * half + 1]))
                             : "memory");
                if (kWay == kDirect) mad_wide(near[half], one, sixteen);
            }
    }
    if constexpr (kWay == kStaged) {
        const uint32_t to = scratch + (thread / 32 * 16 + lane % 16) * 128;
#pragma unroll
        for (int panel = 0; panel < Shape::kN / 64; ++panel)
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const float *sum = &math.accumulators[(panel * 4 + j) * 8];
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to + ((j * 2 + lane / 16) ^ lane % 8) * 16),
                             "r"(pack(sum[0], sum[1])), "r"(pack(sum[2], sum[3])), "r"(pack(sum[4], sum[5])), "r"(pack(sum[6], sum[7]))
                             : "memory");
            }
    }
}

template <class Shape, int kWay>
__device__ __forceinline__ void turns(const Plan &plan, const uint4 *a_image, const uint4 *b_image, const uint32_t *numbers, uint16_t *out,
                                      int32_t *sums, uint32_t *, uint32_t *cycles) {
    __shared__ __align__(8) uint64_t turn_of[4];
    const uint32_t start = fill_operands(plan, a_image, b_image), idx = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0);
    const uint32_t math_turn = static_cast<uint32_t>(__cvta_generic_to_shared(turn_of)), end_turn = math_turn + 16;
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < 4; ++i) init(math_turn + i * 8);
    Math<Shape> math;
    math.begin();
    const uint64_t a_start = start >> 4, b_start = (start + plan.a_bytes) >> 4;
    uint16_t *mine = out + static_cast<uint64_t>(idx) * 64 * plan.pitch;
    const uint32_t scratch = start + plan.a_bytes + plan.b_bytes + idx * 8192;
    uint32_t parts[6] = {}, first = 0, one = numbers[0], sixteen = numbers[2], nothing = numbers[3];
    __syncthreads();
#pragma unroll 1
    for (uint32_t turn = idx; turn < 2 * plan.num_turns; turn += 2) {
        const uint32_t parity = (turn / 2 & 1) ^ (idx == 0);
        const uint32_t came = now();
        wait(math_turn + idx * 8, parity);
        const uint32_t began = now();
        uint32_t num_steps = plan.num_steps[0];
        asm volatile("" : "+r"(num_steps));
#pragma unroll 1
        do {
            math.issue(plan, a_start, b_start);
            math.template wait_groups<1>();
        } while (--num_steps);
        if (threadIdx.x % kWarpgroup == 0) arrive(math_turn + (1 - idx) * 8);
        __syncwarp();
        const uint32_t passed = now();
        math.template wait_groups<0>();
        const uint32_t drained = now();
        wait(end_turn + idx * 8, parity);
        const uint32_t told = now();
        store<Shape, kWay>(math, plan, mine + turn * nothing, scratch, one, sixteen);
        const uint32_t stored = now();
        __syncwarp();
        if (threadIdx.x % kWarpgroup == 0) arrive(end_turn + (1 - idx) * 8);
        __syncwarp();
        if (turn / 2 == 1) first = came;
        if (turn / 2 >= 1) {
            parts[0] += began - came;
            parts[1] += passed - began;
            parts[2] += drained - passed;
            parts[3] += told - drained;
            parts[4] += stored - told;
            parts[5] = stored - first;
        }
    }
    sums[threadIdx.x] = math.sum();
    if (threadIdx.x % kWarpgroup == 0)
#pragma unroll
        for (int i = 0; i < 6; ++i) cycles[idx * 6 + i] = parts[i];
}

// ---------------------------------------------------------------------------------------------- waits

// Steps of one warpgroup: so many waits for phases that are complete, a group of wgmma, a stage given back. Where `kIsApart` the
// compiler cannot know that all lanes have the same stage.
template <class Shape, int kWaits, bool kIsApart, bool kGives>
__device__ __forceinline__ void waits(const Plan &plan, const uint4 *a_image, const uint4 *b_image, const uint32_t *numbers, uint16_t *,
                                      int32_t *sums, uint32_t *, uint32_t *cycles) {
    __shared__ __align__(8) uint64_t full_of[kStages], empty_of[kStages];
    const uint32_t start = fill_operands(plan, a_image, b_image);
    const uint32_t full = static_cast<uint32_t>(__cvta_generic_to_shared(full_of)), empty = static_cast<uint32_t>(__cvta_generic_to_shared(empty_of));
    if (threadIdx.x == 0)
        for (uint32_t i = 0; i < kStages; ++i) {
            init(full + i * 8);
            init(empty + i * 8);
            arrive(full + i * 8);
        }
    Math<Shape> math;
    math.begin();
    const uint32_t nothing = kIsApart ? numbers[3 + threadIdx.x] : 0;  // 0 of each lane
    __syncthreads();
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        uint32_t num_steps = plan.num_steps[round], stage = nothing, held = nothing, step = nothing;
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll 1
        do {
#pragma unroll
            for (int i = 0; i < kWaits; ++i) wait(full + stage * 8, 0);
            const uint32_t at = start + stage * (plan.num_stages - kStages);  // + 0
            math.issue(plan, at >> 4, (at + plan.a_bytes) >> 4);
            math.template wait_groups<1>();
            if (kGives && step >= 1) {
                if (threadIdx.x == 0) arrive(empty + held * 8);
                __syncwarp();
                if (++held == plan.num_stages) held = 0;
            }
            if (++stage == plan.num_stages) stage = 0;
        } while (++step < num_steps);
        math.template wait_groups<0>();
        __syncthreads();
        const uint32_t end = now();
        if (threadIdx.x == 0) cycles[round] = end - begin;
    }
    sums[threadIdx.x] = math.sum();
}

#define TURN_KERNEL(name, threads, run, ...)                                                                                       \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                      \
        name(const __grid_constant__ Plan plan, const uint4 *a_image, const uint4 *b_image, const uint32_t *numbers, uint16_t *out, \
             int32_t *sums, uint32_t *words, uint32_t *cycles) {                                                                  \
        run<__VA_ARGS__>(plan, a_image, b_image, numbers, out, sums, words, cycles);                                              \
    }

#include "shapes.inc"

#endif
