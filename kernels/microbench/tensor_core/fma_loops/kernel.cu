// Warps that copy, read and multiply on FMA units: trains of k-steps, with their parts left out one by one.
//
// A CTA of kWarpsM x kWarpsN warps has a ring of kStages slots; each holds kTileK k, and of each k the elements of A (kTileM) and
// B (kTileN) side by side. A thread has kRows x kColumns sums; lanes are 4 x 8. It reads its rows and columns in loads of kWidth
// bytes: rows lie side by side (in loads of less than 16 bytes 4 loads apart, or the compiler would make one of several), columns
// 8 loads apart; those of the next k while one is multiplied (kIsDouble), or before their own math in a loop that is not
// unrolled. A step brings a slot by cp.async of 16 bytes (kAsync) or, where the operands are contiguous along k, of one element
// (kTurned, or of A or B alone: rows of shared memory are four elements longer); stores to it what registers hold (kStores); loads these early and
// stores them late (kLoads); or does nothing of it (kNone). kMeets (the CTA's barrier) and kReads can be left out. All slots always
// hold the same numbers, so that sums are so many times one product whoever meets whom. `shapes.inc` is written by case.py.
//
// Rounds are of different lengths: cycles of a lone CTA's step are a difference. CTAs that share an SM are not served alike and
// drift apart, so that each says where it ran and from when to when in all.

#include <cstdint>

constexpr int kNumRounds = 3;
enum Way { kNone, kAsync, kTurned, kTurnedA, kTurnedB, kStores, kLoads };

struct Train {
    uint32_t num_steps[kNumRounds];
    uint32_t pitch;  // elements from row to row where an operand is contiguous along k
};

__device__ __forceinline__ uint32_t sm() {
    uint32_t idx;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(idx));
    return idx;
}
__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}
template <int kBytes>
__device__ __forceinline__ void fetch(uint32_t to, const float *from) {
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// One operand of kExtent rows or columns: what a thread brings of a slot of it.
template <int kExtent, int kTileK, int kThreads, bool kIsTurned>
struct Share {
    static constexpr int kPitch = kExtent + (kIsTurned ? 4 : 0), kFloats = kPitch * kTileK;
    static constexpr int kAcross = kIsTurned ? kTileK : kExtent / 4, kAtOnce = kThreads / kAcross;
    static constexpr int kPieces = (kIsTurned ? kExtent : kTileK) / kAtOnce;
    static_assert(kThreads % kAcross == 0 && (kIsTurned ? kExtent : kTileK) % kAtOnce == 0, "whole rounds of copies");
    const float *begin, *from;
    size_t down, along;  // elements from one piece to the next, and to the next slot
    uint32_t to;         // bytes
    float4 held[kPieces];

    __device__ __forceinline__ Share(const float *matrix, uint32_t ring, uint32_t pitch) {
        const int x = threadIdx.x % kAcross, y = threadIdx.x / kAcross;
        begin = kIsTurned ? matrix + size_t(y) * pitch + x : matrix + y * kExtent + x * 4;
        down = kIsTurned ? size_t(kAtOnce) * pitch : kAtOnce * kExtent;
        along = kIsTurned ? kTileK : kTileK * kExtent;
        to = ring + (kIsTurned ? x * kPitch + y : y * kPitch + x * 4) * 4;
        start_over();
    }
    __device__ __forceinline__ void start_over() { from = begin; }
    __device__ __forceinline__ void copy(uint32_t slot) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
            fetch<kIsTurned ? 4 : 16>(to + slot + i * kAtOnce * (kIsTurned ? 1 : kPitch) * 4, from + i * down);
        from += along;
    }
    __device__ __forceinline__ void load() {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) held[i] = *reinterpret_cast<const float4 *>(from + i * down);
        from += along;
    }
    __device__ __forceinline__ void store(uint32_t slot) const {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
            asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to + slot + i * kAtOnce * kPitch * 4),
                         "f"(held[i].x), "f"(held[i].y), "f"(held[i].z), "f"(held[i].w)
                         : "memory");
    }
};

template <int kWidth>
__device__ __forceinline__ void read_vector(float *to, const float *from) {
    if constexpr (kWidth == 16)
        *reinterpret_cast<float4 *>(to) = *reinterpret_cast<const float4 *>(from);
    else if constexpr (kWidth == 8)
        *reinterpret_cast<float2 *>(to) = *reinterpret_cast<const float2 *>(from);
    else
        *to = *from;
}

template <int kRows, int kColumns, int kWarpsM, int kWarpsN, int kTileK, int kStages, int kWidth, bool kIsDouble, Way kWay,
          bool kMeets, bool kReads>
__device__ __forceinline__ void run(const Train &train, const float *matrix_a, const float *matrix_b, uint32_t *cycles,
                                    uint32_t *spans, int32_t *sums_seen) {
    constexpr int kThreads = kWarpsM * kWarpsN * 32, kTileM = kRows * 4 * kWarpsM, kTileN = kColumns * 8 * kWarpsN;
    constexpr int kInVector = kWidth / 4;
    using A = Share<kTileM, kTileK, kThreads, kWay == kTurned || kWay == kTurnedA>;
    using B = Share<kTileN, kTileK, kThreads, kWay == kTurned || kWay == kTurnedB>;
    constexpr int kSlot = A::kFloats + B::kFloats;
    constexpr bool kCopies = kWay == kAsync || kWay == kTurned || kWay == kTurnedA || kWay == kTurnedB;
    extern __shared__ __align__(16) float smem[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int row = warp % kWarpsM * kRows * 4 + lane / 8 * (kWidth == 16 ? kRows : kInVector);
    const int column = warp / kWarpsM * kColumns * 8 + lane % 8 * kInVector;
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    A a(matrix_a, base, train.pitch);
    B b(matrix_b, base + A::kFloats * 4, train.pitch);

    struct Vectors {
        float a[kRows], b[kColumns];
    };
    auto read_all = [&](Vectors &to, uint32_t slot, int k) {
        const float *of_a = smem + slot + k * A::kPitch + row, *of_b = smem + slot + A::kFloats + k * B::kPitch + column;
#pragma unroll
        for (int i = 0; i < kRows; i += kInVector) read_vector<kWidth>(&to.a[i], of_a + i * (kWidth == 16 ? 1 : 4));
#pragma unroll
        for (int j = 0; j < kColumns; j += kInVector) read_vector<kWidth>(&to.b[j], of_b + j * 8);
    };
    Vectors kept;
    float sums[kRows][kColumns] = {};
    auto read = [&](Vectors &to, uint32_t slot, int k) {
        if constexpr (kReads) read_all(to, slot, k);
    };
    auto multiply = [&](const Vectors &read_before) {
        const Vectors &of = kReads ? read_before : kept;
#pragma unroll
        for (int i = 0; i < kRows; ++i)
#pragma unroll
            for (int j = 0; j < kColumns; ++j) sums[i][j] = fmaf(of.a[i], of.b[j], sums[i][j]);
    };
    auto bring = [&](uint32_t slot) {
        if constexpr (kCopies) {
            a.copy(slot * 4);
            b.copy(slot * 4);
            commit();
        }
        if constexpr (kWay == kLoads) {
            a.load();
            b.load();
        }
    };
    auto meet = [&](uint32_t slot) {
        if constexpr (kWay == kStores || kWay == kLoads) {
            a.store(slot * 4);
            b.store(slot * 4);
        }
        if constexpr (kCopies) wait_copies<(kStages > 2 ? kStages - 2 : 0)>();
        if constexpr (kMeets) __syncthreads();
    };
    auto next = [](uint32_t slot) { return slot == (kStages - 1) * kSlot ? 0 : slot + kSlot; };

    // The ring is filled once; what loops without copies store is read once, too.
    for (int stage = 0; stage < kStages; ++stage) {
        a.copy(stage * kSlot * 4);
        b.copy(stage * kSlot * 4);
    }
    commit();
    wait_copies<0>();
    a.start_over();
    b.start_over();
    if constexpr (kWay == kStores) {
        a.load();
        b.load();
    }
    __syncthreads();
    if constexpr (!kReads) read_all(kept, 0, 0);
    if (thread == 0) {
        spans[blockIdx.x * 3] = sm();
        spans[blockIdx.x * 3 + 1] = now();
    }

#pragma unroll 1
    for (int round = 0; round < kNumRounds; ++round) {
        uint32_t num_steps = train.num_steps[round];
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
        if constexpr (kWay != kStores) {
            a.start_over();
            b.start_over();
        }
        if constexpr (kStages == 1) {  // copies, math, and nothing of one beside the other
#pragma unroll 1
            for (uint32_t step = 0; step < num_steps; ++step) {
                bring(0);
                meet(0);
                Vectors held[2];
                read(held[0], 0, 0);
#pragma unroll
                for (int k = 0; k < kTileK; ++k) {
                    if (k + 1 < kTileK) read(held[(k + 1) % 2], 0, k + 1);
                    multiply(held[k % 2]);
                }
                if constexpr (kMeets) __syncthreads();
            }
        } else {
            uint32_t reading = 0, writing = (kStages - 1) * kSlot;
            if constexpr (kCopies) {
#pragma unroll
                for (int stage = 0; stage < kStages - 1; ++stage) bring(stage * kSlot);
            }
            if constexpr (kIsDouble) {
                Vectors held[2];
                meet(writing);
                read(held[0], 0, 0);
#pragma unroll 1
                for (uint32_t step = 0; step < num_steps; ++step) {
                    bring(writing);
#pragma unroll
                    for (int k = 0; k < kTileK; ++k) {
                        if (k + 1 == kTileK) {
                            meet(writing);
                            reading = next(reading);
                            writing = next(writing);
                        }
                        read(held[(k + 1) % 2], reading, (k + 1) % kTileK);
                        multiply(held[k % 2]);
                    }
                    asm volatile("" ::: "memory");
                }
            } else {
#pragma unroll 1
                for (uint32_t step = 0; step < num_steps; ++step) {
                    if constexpr (kWay != kLoads) meet(writing);
                    bring(writing);
#pragma unroll 1
                    for (int k = 0; k < kTileK; ++k) {
                        Vectors held;
                        read(held, reading, k);
                        multiply(held);
                    }
                    if constexpr (kWay == kLoads) meet(writing);
                    reading = next(reading);
                    writing = next(writing);
                }
            }
        }
        wait_copies<0>();
        __syncthreads();
        if (thread == 0) cycles[blockIdx.x * kNumRounds + round] = now() - begin;
    }

    if (thread == 0) spans[blockIdx.x * 3 + 2] = now();

    int32_t seen = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
#pragma unroll
        for (int j = 0; j < kColumns; ++j) seen += static_cast<int32_t>(sums[i][j]) * (1 + (i * kColumns + j) % 7);
    sums_seen[blockIdx.x * kThreads + thread] = seen;
}

#define FMA_LOOP(NAME, THREADS, CTAS, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, CTAS)                                                           \
        NAME(const __grid_constant__ Train train, const float *a, const float *b, uint32_t *cycles, uint32_t *spans,      \
             int32_t *sums) {                                                                                             \
        run<__VA_ARGS__>(train, a, b, cycles, spans, sums);                                                               \
    }
#include "shapes.inc"
