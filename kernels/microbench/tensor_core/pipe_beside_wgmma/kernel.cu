// What do instructions of a kind take beside a train of wgmma, and what does the train lose to them?
//
// `own_*`: one or two warpgroups run a train, groups of four wgmma with one in flight behind the wait, and between commit and
// wait (or behind the wait) so many instructions of a kind themselves. `others_*`: they run the train alone, and other warps
// instructions of the kind, in turns, until it is over. `shapes.inc` is written by case.py: a struct for each wgmma, and the
// kernels. Operands come as images of shared memory, laid out by the host.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kKSteps = 4;  // wgmmas between a fence and a commit: one for each 32 bytes of a row of 128
constexpr int kTurn = 64, kTurnOfMemory = 16;  // instructions of a turn of other warps
constexpr uint32_t kPiece = 512;               // bytes that a warp's instruction copies or loads of
constexpr uint32_t kRegionBytes = 65536;       // of global memory that is copied; it lies there twice

enum Kind { kImad, kImadWide, kMove, kFfma, kFadd, kIadd3, kLop3, kMufu, kAdd64, kLds, kLdgsts, kLdgstsWide, kLdgstsAdd, kNothing };

struct Train {
    uint64_t a_descriptors[kKSteps], b_descriptors[kKSteps];  // start address: bytes from the operand's image, over 16
    uint32_t a_bytes, b_bytes;  // of the images; multiples of 1024
    uint32_t num_steps[2];      // own: of the two rounds. others: the first is the train's, 0 for none
    uint32_t idle_cycles;       // others: how long they run where there is no train
    uint32_t math_warps;
};

struct None {  // in the place of a wgmma: instructions alone
    static constexpr int kNumAccumulators = 1;
    static constexpr bool kIsRegisterA = false, kIsThere = false;
    static __device__ __forceinline__ void issue(float (&)[1], const uint32_t (&)[4], uint64_t, uint64_t) {}
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

// One IMAD.WIDE; ptxas takes `mad.wide` apart into a product and a sum.
__device__ __forceinline__ void mad_wide(uint64_t &sum, uint32_t a, uint32_t b) {
    asm volatile("{ .reg .u32 low, high; mov.b64 {low, high}, %0; mad.lo.cc.u32 low, %1, %2, low; madc.hi.u32 high, %1, %2, high; "
                 "mov.b64 %0, {low, high}; }"
                 : "+l"(sum)
                 : "r"(a), "r"(b));
}

// Instructions of a kind and what they work on. Instruction j of a step works on register j % kStreams, with operands
// j / kStreams % 4 of x and y, so that none can be merged with the one before.
template <int kKind, bool kIsChain, int kCount>
struct Work {
    static constexpr int kStreams = kIsChain ? 1 : 8;
    static constexpr int kPieces = kCount < 16 ? kCount : 16;  // that a warp copies or loads of
    static constexpr int kPointers = kKind == kLdgstsAdd ? kCount : 1;
    static constexpr int kRegisters = kKind == kMove ? kCount : 8;
    uint32_t r[kRegisters], x[4], y[4], one;
    float f[8], ones[2];
    uint64_t d[8], pointers[kPointers];
    uint32_t to, column, nothing, sixteen;
    int32_t delta;

    __device__ __forceinline__ void begin(const uint32_t *numbers, const unsigned char *region, uint32_t smem, uint32_t warp) {
        const uint32_t thread = threadIdx.x;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            x[i] = numbers[i];
            y[i] = numbers[4 + i];
        }
        one = numbers[8];
        ones[0] = __uint_as_float(numbers[10]);
        ones[1] = __uint_as_float(numbers[11]);
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) r[i] = numbers[8] * (thread * 8) + i + 1;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            f[i] = static_cast<float>(i);
            d[i] = (static_cast<uint64_t>(i + 1) << 32) + thread;
        }
        to = smem + warp * (kPieces * kPiece) + thread % 32 * (kKind == kLds ? 4 : 16);
        column = thread % 32;
        nothing = numbers[9];
        sixteen = numbers[12];
        delta = kRegionBytes;
#pragma unroll
        for (int i = 0; i < kPointers; ++i)
            pointers[i] = reinterpret_cast<uint64_t>(region) + warp * (kPieces * kPiece) + i * kPiece + (kKind == kLdgstsWide ? 0 : thread % 32 * 16);
        if (kKind == kLdgstsAdd) {
#pragma unroll
            for (int i = 0; i < kPointers; ++i) asm volatile("" : "+l"(pointers[i]));
        }
    }

    __device__ __forceinline__ void step() {
#pragma unroll
        for (int j = 0; j < kCount; ++j) {
            const int i = j % kStreams, k = j / kStreams % 4;
            if constexpr (kKind == kImad) asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(r[i]) : "r"(one), "r"(x[k]));
            if constexpr (kKind == kImadWide) 
                mad_wide(d[i], static_cast<uint32_t>(d[i] >> 32), one);
            if constexpr (kKind == kFfma) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(f[i]) : "f"(ones[0]), "f"(ones[1]));
            if constexpr (kKind == kFadd) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(f[i]) : "f"(ones[0]));
            if constexpr (kKind == kIadd3)
                asm volatile("{ .reg .u32 t; add.u32 t, %0, %1; add.u32 %0, t, %2; }" : "+r"(r[i]) : "r"(x[k]), "r"(y[k]));
            if constexpr (kKind == kLop3) asm volatile("lop3.b32 %0, %0, %1, %2, 0x96;" : "+r"(r[i]) : "r"(x[k]), "r"(y[k]));
            if constexpr (kKind == kMufu) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(f[i]));
            if constexpr (kKind == kAdd64)
                asm volatile("{ .reg .u64 t; mov.b64 t, {%1, %2}; add.u64 %0, %0, t; }" : "+l"(d[i]) : "r"(x[k]), "r"(y[k]));
            if constexpr (kKind == kLds)
                asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(r[i]) : "r"(to + j % 16 * kPiece) : "memory");
            if constexpr (kKind == kLdgsts)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + j * kPiece), "l"(pointers[0] + j * kPiece) : "memory");
            if constexpr (kKind == kLdgstsWide) {
                uint64_t from = pointers[0];
                column += nothing;
                mad_wide(from, column, sixteen);
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + j * kPiece), "l"(from + j * kPiece) : "memory");
            }
            if constexpr (kKind == kLdgstsAdd) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + j * kPiece), "l"(pointers[j]) : "memory");
                pointers[j] += delta;
            }
        }
        if constexpr (kKind == kMove) {  // around a ring of registers, which a loop cannot rename away
            const uint32_t first = r[0];
#pragma unroll
            for (int i = 0; i + 1 < kRegisters; ++i) r[i] = r[i + 1];
            r[kRegisters - 1] = first;
        }
        if constexpr (kKind == kLdgsts || kKind == kLdgstsWide || kKind == kLdgstsAdd) {
            delta = -delta;
            asm volatile("cp.async.commit_group;" ::: "memory");
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        }
    }

    // What has come out, in a word.
    __device__ __forceinline__ uint32_t word() const {
        uint32_t made = 0;
#pragma unroll
        for (int i = 0; i < kRegisters; ++i) {
            const uint32_t weight = 2 * i + 1;
            if constexpr (kKind == kImadWide || kKind == kAdd64)
                made += weight * static_cast<uint32_t>(d[i]) + 3 * weight * static_cast<uint32_t>(d[i] >> 32);
            else if constexpr (kKind == kFfma || kKind == kFadd || kKind == kMufu)
                made += weight * __float_as_uint(f[i]);
            else
                made += weight * r[i];
        }
        return made;
    }
};

template <class Shape>
struct Math {
    float accumulators[Shape::kNumAccumulators];
    uint32_t a[kKSteps][4];
    uint64_t a_start, b_start;

    __device__ __forceinline__ void begin(const Train &train, const uint32_t *a_rows, uint32_t start) {
        const uint32_t row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
        for (int k = 0; k < kKSteps; ++k)
#pragma unroll
            for (int i = 0; i < 4; ++i)
                a[k][i] = Shape::kIsRegisterA ? a_rows[(row + i % 2 * 8) * 32 + k * 8 + threadIdx.x % 4 + i / 2 * 4] : 0;
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[i] = 0;
        a_start = start >> 4;
        b_start = (start + train.a_bytes) >> 4;
    }

    __device__ __forceinline__ void issue(const Train &train) {
        if constexpr (Shape::kIsThere) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < kKSteps; ++k) Shape::issue(accumulators, a[k], train.a_descriptors[k] + a_start, train.b_descriptors[k] + b_start);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
    }

    template <int kPending>
    __device__ __forceinline__ void wait() {
        if constexpr (Shape::kIsThere) asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
    }

    __device__ __forceinline__ int32_t sum() const {
        int32_t made = 0;
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) made += static_cast<int32_t>(accumulators[i]) * (i % 4 + 1);
        return made;
    }
};

__device__ __forceinline__ uint32_t fill_operands(const Train &train, const uint4 *a_image, const uint4 *b_image, const uint4 *region, bool is_loaded) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    const uint32_t a_16b = train.a_bytes / 16, b_16b = train.b_bytes / 16;
    for (uint32_t i = threadIdx.x; i < a_16b; i += blockDim.x) smem[i] = a_image[i];
    for (uint32_t i = threadIdx.x; i < b_16b; i += blockDim.x) smem[a_16b + i] = b_image[i];
    for (uint32_t i = threadIdx.x; i < kRegionBytes / 16; i += blockDim.x) smem[a_16b + b_16b + i] = is_loaded ? region[i] : uint4{0, 0, 0, 0};
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    asm volatile("" : "+r"(start));
    return start;
}

// What the copied shared memory adds up to.
__device__ __forceinline__ void add_up(const Train &train, uint32_t *filled) {
    const uint32_t *words = reinterpret_cast<const uint32_t *>(buffer + train.a_bytes + train.b_bytes);
    uint32_t sum = 0;
    for (uint32_t i = threadIdx.x; i < kRegionBytes / 4; i += blockDim.x) sum += words[i] * (2 * i + 1);
    sum = __reduce_add_sync(0xffffffff, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(&filled[blockIdx.x], sum);
}

template <class Shape, int kKind, int kCount, bool kIsChain, bool kIsBehindWait>
__device__ __forceinline__ void own(const Train &train, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows, const uint4 *region,
                                    const uint32_t *numbers, int32_t *sums, uint32_t *words, uint32_t *cycles, uint32_t *filled) {
    const uint32_t start = fill_operands(train, a_image, b_image, region, kKind == kLds);
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    Math<Shape> math;
    math.begin(train, a_rows, start);
    Work<kKind, kIsChain, kCount> work;
    work.begin(numbers, reinterpret_cast<const unsigned char *>(region), start + train.a_bytes + train.b_bytes, warp);
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        uint32_t num_steps = train.num_steps[round];
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll 1
        do {  // one that might not run at all makes ptxas wait for the sums
            math.issue(train);
            if (!kIsBehindWait) work.step();
            math.template wait<1>();
            if (kIsBehindWait) work.step();
        } while (--num_steps);
        math.template wait<0>();
        __syncthreads();
        const uint32_t end = now();
        if (threadIdx.x == 0) cycles[blockIdx.x * 2 + round] = end - begin;
    }
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    const uint32_t at = blockIdx.x * blockDim.x + threadIdx.x;
    sums[at] = math.sum();
    words[at] = work.word();
    add_up(train, filled);
}

template <class Shape, int kKind>
__device__ __forceinline__ void others(const Train &train, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows, const uint4 *region,
                                       const uint32_t *numbers, int32_t *sums, uint32_t *words, uint32_t *cycles, uint32_t *filled) {
    __shared__ uint32_t is_over;
    constexpr int kCount = kKind == kLdgsts || kKind == kLdgstsWide || kKind == kLdgstsAdd ? kTurnOfMemory : kTurn;
    const uint32_t start = fill_operands(train, a_image, b_image, region, kKind == kLds);
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), at = blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t flag = static_cast<uint32_t>(__cvta_generic_to_shared(&is_over));
    if (threadIdx.x == 0) is_over = 0;
    if (warp < train.math_warps) {
        Math<Shape> math;
        math.begin(train, a_rows, start);
        uint32_t num_steps = train.num_steps[0];
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
        if (num_steps) {
#pragma unroll 1
            do {
                math.issue(train);
                math.template wait<1>();
            } while (--num_steps);
            math.template wait<0>();
        } else {
            while (now() - begin < train.idle_cycles) __nanosleep(200);
        }
        const uint32_t end = now();
        if (threadIdx.x == 0) asm volatile("st.volatile.shared.u32 [%0], 1;" ::"r"(flag) : "memory");
        sums[at] = math.sum();
        words[at] = 0;
        if (threadIdx.x % 32 == 0) {
            cycles[at / 32 * 2] = end - begin;
            cycles[at / 32 * 2 + 1] = 0;
        }
    } else {
        Work<kKind, false, kCount> work;
        work.begin(numbers, reinterpret_cast<const unsigned char *>(region), start + train.a_bytes + train.b_bytes, warp - train.math_warps);
        uint32_t turn = 0, seen;
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll 1
        do {  // the flag is looked at behind the turn that follows its load
            asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(seen) : "r"(flag) : "memory");
            work.step();
            ++turn;
        } while (!seen);
        const uint32_t end = now();
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        sums[at] = 0;
        words[at] = work.word();
        if (threadIdx.x % 32 == 0) {
            cycles[at / 32 * 2] = end - begin;
            cycles[at / 32 * 2 + 1] = turn;
        }
    }
    __syncthreads();
    add_up(train, filled);
}

#define PIPE_KERNEL(name, threads, run, ...)                                                                                      \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                      \
        name(const __grid_constant__ Train train, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows,              \
             const uint4 *region, const uint32_t *numbers, int32_t *sums, uint32_t *words, uint32_t *cycles, uint32_t *filled) {   \
        run<__VA_ARGS__>(train, a_image, b_image, a_rows, region, numbers, sums, words, cycles, filled);                          \
    }

#include "shapes.inc"

#endif
