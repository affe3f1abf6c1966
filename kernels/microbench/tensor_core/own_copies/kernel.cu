// Warps that multiply and copy what they multiply: a train of k-steps, each with its wgmmas, its cp.async and its meetings.
//
// A CTA of one or two warpgroups (`kWarpgroups`) has a ring of stages, each 64 of k of A (64 * kBlocks rows for each warpgroup)
// and of B (kN rows), rows of 128 bytes as swizzle 128B wants them. A step waits for its stage, multiplies it, and copies a
// stage ahead by cp.async.cg of 16 bytes. All stages hold the same numbers, so that sums are so many times one product. Of a
// stage each warp copies `kCopies` times 512 bytes (0: none, the ring stays as it was filled; fewer than a stage has: the rest
// stays as it was filled). `shapes.inc` is written by case.py: a struct with the one instruction of each N, and the kernels.
//
// A round is a prologue, some steps and a drain. Rounds are of different lengths: cycles of a step are a difference.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char ring[];

constexpr int kNumRounds = 3;
constexpr int kKSteps = 4;     // wgmmas of a block in a stage: one for each 32 bytes of a row of 128
constexpr int kPitch = 256;    // bytes from row to row where the compiler knows them: two blocks of k, the same numbers in both
constexpr int kPhases = 6;

// What a step does first and last, beside waiting for its stage.
enum Order : int {
    kAfterWait,   // math, wait for the math, meet, copies
    kAfterMath,   // math, copies, wait for the math
    kBeforeMath,  // copies, math, wait for the math
};

struct Train {
    uint32_t num_steps[kNumRounds];
    // In global memory, rows `pitch` bytes apart that hold the same 64 of k again and again. CTA c copies tile c % a_tiles of A
    // and tile c / b_every % b_tiles of B; after `wrap` steps it begins with the rows' first bytes again.
    uint32_t pitch, wrap, a_tiles, b_tiles, b_every;
    uint64_t a_tile_bytes, b_tile_bytes, b_begin;
    uint64_t descriptors[kKSteps];     // of an operand at address 0
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ void copy16(uint32_t to, const unsigned char *from, bool is_wanted) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %2, 0; @p cp.async.cg.shared.global [%0], [%1], 16; }" ::"r"(to), "l"(from),
                 "r"(static_cast<uint32_t>(is_wanted))
                 : "memory");
}

// The same as compilers write it: an unwanted copy reads nothing and writes zeros.
__device__ __forceinline__ void copy16_or_zeros(uint32_t to, const unsigned char *from, bool is_wanted) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_wanted ? 16 : 0) : "memory");
}

__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <int kPending>
__device__ __forceinline__ void wait_math() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

template <class Shape, int kWarpgroups, int kBlocks, int kCopies, int kStages, int kOrder, int kDepth, bool kHasMath, bool kHasOthers,
          bool kIsFixed, bool kIsLinear, bool kIsZeroed, bool kIsFenced, int kCommits, bool kIsStamped>
__device__ __forceinline__ void run(const Train &train, const unsigned char *a, const unsigned char *b, uint32_t *cycles, int32_t *sums, uint32_t *phases,
                                    uint32_t *words) {
    constexpr int kN = Shape::kN;
    constexpr uint32_t kMathThreads = 128 * kWarpgroups, kThreads = kMathThreads * (kHasOthers ? 2 : 1);
    constexpr uint32_t kWarps = kMathThreads / 32;  // that copy
    constexpr uint32_t kABytes = 64 * kBlocks * kWarpgroups * 128, kStageBytes = kABytes + kN * 128;
    constexpr uint32_t kCopiedBytes = kCopies * kWarps * 512;
    constexpr int kDistance = kOrder == kAfterWait ? kStages - 1 : kStages - 1 - kDepth;
    static_assert(kCopiedBytes <= kStageBytes && kDistance >= 1 && kDepth <= 1);

    const unsigned char *a_tile = a + blockIdx.x % train.a_tiles * train.a_tile_bytes;
    const unsigned char *b_tile = b + train.b_begin + blockIdx.x / train.b_every % train.b_tiles * train.b_tile_bytes;
    const uint32_t pitch = train.pitch;
    auto row_of = [&](uint32_t row) {
        return row < kABytes / 128 ? a_tile + static_cast<uint64_t>(row) * pitch : b_tile + static_cast<uint64_t>(row - kABytes / 128) * pitch;
    };
    uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
    asm volatile("" : "+r"(start));
    for (uint32_t i = threadIdx.x * 16; i < kStages * kStageBytes; i += kThreads * 16) {
        const uint32_t offset = i % kStageBytes;
        uint4 word = {0, 0, 0, 0};
        if (!kCopies || offset / 512 >= kCopies * kWarps) {
            const uint32_t row = offset / 128, chunk = offset / 16 % 8;
            word = *reinterpret_cast<const uint4 *>(row_of(row) + (kIsLinear ? chunk : chunk ^ row % 8) * 16);
        }
        *reinterpret_cast<uint4 *>(ring + i) = word;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const bool copies_here = !kHasOthers || warp >= kWarps, multiplies_here = !kHasOthers || warp < kWarps;
    // Of a stage this thread copies 16 bytes of row (i * kWarps + warp) * 4 + lane / 8 for each i. Addresses are pointers of
    // their own that move on, as in a GEMM whose pitch is not known to the compiler, or (`kIsFixed`) one and offsets.
    const uint32_t row = warp % kWarps * 4 + threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
    const uint32_t own = row * 128 + (kIsLinear ? chunk : chunk ^ row % 8) * 16;  // swizzle 128B, or the image has it already
    const unsigned char *source = a_tile + row * kPitch + chunk * 16;
    const unsigned char *pointers[kCopies ? kCopies : 1];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) pointers[i] = row_of(i * (kWarps * 4) + row) + chunk * 16;
    uint32_t walked = 0;

    float accumulators[kBlocks][Shape::kNumAccumulators];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[block][i] = 0;
    uint32_t spent[kPhases] = {};

#pragma unroll 1
    for (int round = 0; round < kNumRounds; ++round) {
        uint32_t num_steps = train.num_steps[round];  // one at least
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
        uint32_t into = 0, at = 0;  // slots
        auto refill = [&](bool is_wanted) {
            const uint32_t to = start + into * kStageBytes + own;
#pragma unroll
            for (int i = 0; i < kCopies; ++i) {
                const unsigned char *from = kIsFixed ? source + i * (kWarps * 4 * kPitch) : pointers[i];
                if (kIsZeroed)
                    copy16_or_zeros(to + i * (kWarps * 512), from, is_wanted);
                else
                    copy16(to + i * (kWarps * 512), from, is_wanted);
                if (kCommits == 2 && i == kCopies / 3) commit();
            }
            if (kCopies) commit();
            if (!kIsFixed) {
#pragma unroll
                for (int i = 0; i < kCopies; ++i) pointers[i] += walked + 1 == train.wrap ? -128 * static_cast<int32_t>(walked) : 128;
                walked = walked + 1 == train.wrap ? 0 : walked + 1;
            }
            into = into + 1 == kStages ? 0 : into + 1;
        };
        auto math = [&]() {
            const uint64_t from = (start + at * kStageBytes) >> 4;
            const uint64_t rows = from + warp / 4 * (kBlocks * 512);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < kKSteps; ++k)
#pragma unroll
                for (int block = 0; block < kBlocks; ++block)
                    Shape::issue(accumulators[block], train.descriptors[k] + rows + block * 512, train.descriptors[k] + from + kABytes / 16);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        };
        if (copies_here)
            for (int i = 0; i < kDistance; ++i) refill(true);
        if (round == kNumRounds - 1)
            for (int i = 0; i < kPhases; ++i) spent[i] = 0;
        uint32_t then = kIsStamped ? now() : 0;
        auto stamp = [&](int phase) {
            if (kIsStamped) {
                const uint32_t here = now();
                spent[phase] += here - then;
                then = here;
            }
        };
        if (!kHasOthers) {
            uint32_t step = 0;
#pragma unroll 1
            do {  // one that might not run at all makes ptxas wait for the sums
                const bool is_wanted = step + kDistance < num_steps;
                if (kCopies) wait_copies<kCommits *(kDistance - 1)>();
                if (kIsFenced) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                stamp(0);
                __syncthreads();
                stamp(1);
                if (kOrder == kBeforeMath) {
                    refill(is_wanted);
                    stamp(5);
                }
                if (kHasMath) math();
                stamp(2);
                if (kOrder == kAfterMath) {
                    refill(is_wanted);
                    stamp(5);
                }
                if (kHasMath) wait_math<kDepth>();
                stamp(3);
                if (kOrder == kAfterWait) {
                    __syncthreads();
                    stamp(4);
                    refill(is_wanted);
                    stamp(5);
                }
                at = at + 1 == kStages ? 0 : at + 1;
            } while (++step < num_steps);
            if (kHasMath) wait_math<0>();
        } else if (multiplies_here) {
            uint32_t step = 0;
#pragma unroll 1
            do {  // one that might not run at all makes ptxas wait for the sums
                __syncthreads();
                if (kHasMath) math();
                if (kHasMath) wait_math<kDepth>();
                __syncthreads();
                at = at + 1 == kStages ? 0 : at + 1;
            } while (++step < num_steps);
            if (kHasMath) wait_math<0>();
        } else {
            uint32_t step = 0;
#pragma unroll 1
            do {  // one that might not run at all makes ptxas wait for the sums
                if (kCopies) wait_copies<kCommits *(kDistance - 1)>();
                __syncthreads();
                __syncthreads();
                refill(step + kDistance < num_steps);
            } while (++step < num_steps);
        }
        asm volatile("cp.async.wait_group 0;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) cycles[blockIdx.x * kNumRounds + round] = now() - begin;
    }

    if (multiplies_here) {
        int32_t sum = 0;
#pragma unroll
        for (int block = 0; block < kBlocks; ++block)
#pragma unroll
            for (int i = 0; i < Shape::kNumAccumulators; ++i) sum += static_cast<int32_t>(accumulators[block][i]) * (i % 4 + 1 + block);
        sums[blockIdx.x * kMathThreads + threadIdx.x] = sum;
        if (threadIdx.x % 32 == 0)
            for (int i = 0; i < kPhases; ++i) phases[(blockIdx.x * kWarps + warp) * kPhases + i] = spent[i];
    }
    uint32_t all = 0;
    for (uint32_t i = threadIdx.x * 4; i < kStages * kStageBytes; i += kThreads * 4) all += *reinterpret_cast<uint32_t *>(ring + i) * (i / 4 + 1);
    all = __reduce_add_sync(0xffffffff, all);
    if (threadIdx.x % 32 == 0) atomicAdd(&words[blockIdx.x], all);
}

// A burst: every warp issues the copies of the whole ring, one after the other, with a look at the clock behind each; before it
// `kGroups` groups of wgmma, which run meanwhile. The last of three rounds is kept. The ring holds what is copied beforehand.
template <class Shape, int kWarpgroups, int kBlocks, int kStageCopies, int kStages, int kGroups>
__device__ __forceinline__ void burst(const Train &train, const unsigned char *images, int32_t *sums, uint32_t *stamps, uint32_t *words) {
    constexpr uint32_t kThreads = 128 * kWarpgroups, kWarps = kThreads / 32, kCopies = kStageCopies * kStages;
    constexpr uint32_t kABytes = 64 * kBlocks * kWarpgroups * 128, kStageBytes = kABytes + Shape::kN * 128;
    const unsigned char *image = images + static_cast<uint64_t>(blockIdx.x % train.a_tiles) * train.a_tile_bytes;
    uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
    asm volatile("" : "+r"(start));
    for (uint32_t i = threadIdx.x * 16; i < kStages * kStageBytes; i += kThreads * 16) {
        const uint32_t offset = i % kStageBytes, row = offset / 128, chunk = offset / 16 % 8;
        *reinterpret_cast<uint4 *>(ring + i) = *reinterpret_cast<const uint4 *>(image + row * kPitch + (chunk ^ row % 8) * 16);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const uint32_t row = warp * 4 + threadIdx.x % 32 / 8, chunk = threadIdx.x % 8;
    const uint32_t own = row * 128 + (chunk ^ row % 8) * 16;
    const unsigned char *source = image + row * kPitch + chunk * 16;
    float accumulators[kBlocks][Shape::kNumAccumulators];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[block][i] = 0;
    uint32_t seen[kCopies], begin = 0, there = 0, end = 0;
#pragma unroll 1
    for (int round = 0; round < kNumRounds; ++round) {
        __syncthreads();
        begin = now();
        if (kGroups) {
            const uint64_t from = start >> 4, a = from + warp / 4 * (kBlocks * 512);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int group = 0; group < kGroups; ++group) {
#pragma unroll
                for (int k = 0; k < kKSteps; ++k)
#pragma unroll
                    for (int block = 0; block < kBlocks; ++block)
                        Shape::issue(accumulators[block], train.descriptors[k] + a + block * 512, train.descriptors[k] + from + kABytes / 16);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            }
        }
        begin = now();
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
            copy16(start + own + i * (kWarps * 512), source + i % kStageCopies * (kWarps * 4 * kPitch), true);
            seen[i] = now();
        }
        commit();
        wait_copies<0>();
        there = now();
        if (kGroups) wait_math<0>();
        end = now();
    }
    __syncthreads();
    int32_t sum = 0;
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) sum += static_cast<int32_t>(accumulators[block][i]) * (i % 4 + 1 + block);
    sums[blockIdx.x * kThreads + threadIdx.x] = sum;
    uint32_t *own_stamps = stamps + (blockIdx.x * kWarps + warp) * (kCopies + 3);
    if (threadIdx.x % 32 == 0) {
        own_stamps[0] = begin;
        own_stamps[1] = there;
        own_stamps[2] = end;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) own_stamps[3 + i] = seen[i];
    }
    uint32_t all = 0;
    for (uint32_t i = threadIdx.x * 4; i < kStages * kStageBytes; i += kThreads * 4) all += *reinterpret_cast<uint32_t *>(ring + i) * (i / 4 + 1);
    all = __reduce_add_sync(0xffffffff, all);
    if (threadIdx.x % 32 == 0) atomicAdd(&words[blockIdx.x], all);
}

#define BURST_KERNEL(name, threads, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        name(const __grid_constant__ Train train, const unsigned char *images, int32_t *sums, uint32_t *stamps, uint32_t *words) { \
        burst<__VA_ARGS__>(train, images, sums, stamps, words);                                                              \
    }

#define OWN_COPIES_KERNEL(name, threads, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(threads, 1)                                                                 \
        name(const __grid_constant__ Train train, const unsigned char *a, const unsigned char *b, uint32_t *cycles, int32_t *sums, \
             uint32_t *phases, uint32_t *words) {                                                                            \
        run<__VA_ARGS__>(train, a, b, cycles, sums, phases, words);                                                          \
    }

#include "shapes.inc"

#endif
