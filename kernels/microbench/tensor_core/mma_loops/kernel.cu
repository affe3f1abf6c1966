// Warps that copy, read and multiply: trains of k-steps of cp.async, ldmatrix and mma.sync, as kernels/hgemm has them.
//
// A CTA of kWarpsM x kWarpsN warps has a ring of kStages slots, each kTileK of k of A (kTileM rows) and B (kTileN rows) in bf16,
// rows in panels of kSpan bytes whose chunks of 16 change places by the row's number (TMA's swizzles), or, with a kPad, rows
// that lie kSpan + kPad bytes apart, their chunks in order. kIsDouble: a slice's
// fragments are read while the one before is multiplied; otherwise before its own math, in a loop that is not unrolled. Of a
// step, kCopies (the copies of the slot ahead, their commit and wait), kMeets (the CTA's barrier), kReads (ldmatrix) and kMath
// (mma.sync) can each be left out. All slots always hold the same numbers, so that sums are so many times one product whoever
// meets whom. `shapes.inc` is written by case.py.
//
// A round is a fill of the ring, some steps, a drain. Rounds are of different lengths: cycles of a step are a difference.

#include <cstdint>

constexpr int kNumRounds = 3;

struct Train {
    uint32_t num_steps[kNumRounds];
    uint32_t pitch;  // elements from row to row of A and B, which hold the same kTileK numbers again and again
    uint32_t rows;   // of both together, so that no copy lies outside
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ void fetch(uint32_t to, const void *from, bool is_inside) {
    const int num_bytes = is_inside ? 16 : 0;  // what is not read is filled with zeros
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(num_bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(from)
                 : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Where things lie in a tile of kRows rows of kRowBytes, in panels kSpan bytes wide.
template <int kRows, int kRowBytes, int kSpan, int kPad>
struct Place {
    static constexpr int kChunks = kSpan / 16, kApart = kSpan + kPad, kPanelBytes = kRows * kApart;
    static constexpr int kBytes = kRowBytes / kSpan * kPanelBytes;
    static_assert(kRowBytes % kSpan == 0, "rows are whole panels");
    // What the row does to the number of a chunk; the same for rows 8 apart.
    __device__ __forceinline__ static int twist(int row) { return kPad ? 0 : kSpan == 128 ? row & 7 : row >> 1 & 3; }
    // Beside the row's own offset; `low`, 0 or 1 of a chunk number 2 * pair + low, has the row's twist in it.
    __device__ __forceinline__ static uint32_t pair(int pair, int low) {
        return 2 * pair / kChunks * kPanelBytes + (((2 * pair % kChunks) ^ low) << 4);
    }
    __device__ __forceinline__ static uint32_t chunk(int row, int chunk) {
        return chunk / kChunks * kPanelBytes + row * kApart + (((chunk % kChunks) ^ twist(row)) << 4);
    }
};

template <int kTileM, int kTileN, int kTileK, int kWarpsM, int kWarpsN, int kStages, int kSpan, int kPad, bool kIsDouble,
          bool kCopies, bool kMeets, bool kReads, bool kMath>
__device__ __forceinline__ void run(const Train &train, const unsigned short *a, const unsigned short *b, uint32_t *cycles,
                                    int32_t *sums_seen) {
    constexpr int kThreads = kWarpsM * kWarpsN * 32, kM = kTileM / kWarpsM, kN = kTileN / kWarpsN, kSlices = kTileK / 16;
    constexpr int kInRow = kTileK / 8, kRowsAtOnce = kThreads / kInRow;
    using PlaceA = Place<kTileM, kTileK * 2, kSpan, kPad>;
    using PlaceB = Place<kTileN, kTileK * 2, kSpan, kPad>;
    constexpr int kApart = PlaceA::kApart;
    constexpr int kStageBytes = PlaceA::kBytes + PlaceB::kBytes, kCopiesA = kTileM / kRowsAtOnce, kCopiesB = kTileN / kRowsAtOnce;
    static_assert(kTileM % kRowsAtOnce == 0 && kTileN % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0, "whole rounds of copies");
    static_assert(kM % 16 == 0 && kN % 16 == 0 && kStages > 1, "whole instructions, a ring");
    extern __shared__ __align__(1024) unsigned char smem[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int warp_m = warp % kWarpsM * kM, warp_n = warp / kWarpsM * kN;
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(smem));

    // This thread's copies: 16 bytes of every kRowsAtOnce-th row. One bit each says whether they are wanted: all are.
    const int row = thread / kInRow, column = thread % kInRow;
    const unsigned short *from_a, *from_b;
    const size_t down = size_t(kRowsAtOnce) * train.pitch;
    const uint32_t to_a = base + PlaceA::chunk(row, column), to_b = base + PlaceA::kBytes + PlaceB::chunk(row, column);
    int num_steps;
    uint32_t inside = 0;
#pragma unroll
    for (int i = 0; i < kCopiesA + kCopiesB; ++i) inside |= uint32_t(row + i * kRowsAtOnce < train.rows) << i;
    const uint32_t inside_last = column * 8 < train.pitch ? inside : 0;
    auto load = [&](int step, uint32_t stage) {
        const uint32_t wanted = step + 1 < num_steps ? inside : inside_last;
#pragma unroll
        for (int i = 0; i < kCopiesA; ++i) fetch(to_a + stage + i * kRowsAtOnce * kApart, from_a + i * down, wanted >> i & 1);
#pragma unroll
        for (int i = 0; i < kCopiesB; ++i)
            fetch(to_b + stage + i * kRowsAtOnce * kApart, from_b + i * down, wanted >> (kCopiesA + i) & 1);
        from_a += kTileK;
        from_b += kTileK;
    };
    auto start_over = [&]() {
        from_a = a + size_t(row) * train.pitch + column * 8;
        from_b = b + size_t(row) * train.pitch + column * 8;
    };

    // Fragments.
    struct Fragments {
        uint32_t a[kM / 16][4], b[kN / 16][4];
    };
    const int row_a = warp_m + lane % 16, row_b = warp_n + lane % 8 + lane / 16 * 8;
    const uint32_t read_a = base + row_a * kApart, read_b = base + PlaceA::kBytes + row_b * kApart;
    const int low_a = lane / 16 ^ PlaceA::twist(row_a), low_b = (lane / 8 & 1) ^ PlaceB::twist(row_b);
    auto read_all = [&](Fragments &to, uint32_t stage, int slice) {
#pragma unroll
        for (int i = 0; i < kM / 16; ++i) ldmatrix_x4(to.a[i], read_a + stage + PlaceA::pair(slice, low_a) + i * 16 * kApart);
#pragma unroll
        for (int i = 0; i < kN / 16; ++i) ldmatrix_x4(to.b[i], read_b + stage + PlaceB::pair(slice, low_b) + i * 16 * kApart);
    };
    Fragments kept;
    auto read = [&](Fragments &to, uint32_t stage, int slice) {
        if constexpr (kReads) read_all(to, stage, slice);
    };
    float sums[kM / 16][kN / 8][4] = {};
    auto multiply = [&](const Fragments &read_before) {
        const Fragments &of = kReads ? read_before : kept;
        if constexpr (kMath) {
#pragma unroll
            for (int i = 0; i < kM / 16; ++i)
#pragma unroll
                for (int j = 0; j < kN / 8; ++j) mma(sums[i][j], of.a[i], of.b[j / 2][j % 2 * 2], of.b[j / 2][j % 2 * 2 + 1]);
        }
    };
    auto meet = [&]() {
        if constexpr (kCopies) wait_copies<kStages - 2>();
        if constexpr (kMeets) __syncthreads();
    };

    start_over();
    num_steps = kStages;
    for (int step = 0; step < kStages; ++step) load(step, step * kStageBytes);
    commit();
    wait_copies<0>();
    __syncthreads();
    if constexpr (!kReads) read_all(kept, 0, 0);

#pragma unroll 1
    for (int round = 0; round < kNumRounds; ++round) {
        num_steps = train.num_steps[round];  // kStages at least
        asm volatile("" : "+r"(num_steps));
        __syncthreads();
        const uint32_t begin = now();
        start_over();
        if constexpr (kCopies) {
#pragma unroll
            for (int step = 0; step < kStages - 1; ++step) {
                if (step < num_steps) load(step, step * kStageBytes);
                commit();
            }
        }
        uint32_t reading = 0, writing = (kStages - 1) * kStageBytes;
        auto refill = [&](int step) {
            if constexpr (kCopies) {
                if (step < num_steps) load(step, writing);
                commit();
                writing = writing == (kStages - 1) * kStageBytes ? 0 : writing + kStageBytes;
            }
        };
        if constexpr (kIsDouble) {
            Fragments held[2];
            meet();
            read(held[0], 0, 0);
#pragma unroll 1
            for (int step = 0; step + 1 < num_steps; ++step) {
                refill(step + kStages - 1);
#pragma unroll
                for (int slice = 0; slice < kSlices; ++slice) {
                    if (slice + 1 == kSlices) {
                        meet();
                        reading = reading == (kStages - 1) * kStageBytes ? 0 : reading + kStageBytes;
                    }
                    read(held[(slice + 1) % 2], reading, (slice + 1) % kSlices);
                    multiply(held[slice % 2]);
                }
            }
#pragma unroll
            for (int slice = 0; slice < kSlices; ++slice) {  // of the last step, which nothing follows
                if (slice + 1 < kSlices) read(held[(slice + 1) % 2], reading, slice + 1);
                multiply(held[slice % 2]);
            }
        } else {
#pragma unroll 1
            for (int step = 0; step < num_steps; ++step) {
                meet();
                refill(step + kStages - 1);
#pragma unroll 1
                for (int slice = 0; slice < kSlices; ++slice) {
                    Fragments held;
                    read(held, reading, slice);
                    multiply(held);
                }
                reading = reading == (kStages - 1) * kStageBytes ? 0 : reading + kStageBytes;
            }
        }
        wait_copies<0>();
        __syncthreads();
        if (thread == 0) cycles[blockIdx.x * kNumRounds + round] = now() - begin;
    }

    int32_t seen = 0;
#pragma unroll
    for (int i = 0; i < kM / 16; ++i)
#pragma unroll
        for (int j = 0; j < kN / 8; ++j)
#pragma unroll
            for (int k = 0; k < 4; ++k) seen += static_cast<int32_t>(sums[i][j][k]) * (1 + k + 4 * ((i * (kN / 8) + j) % 5));
    sums_seen[blockIdx.x * kThreads + thread] = seen;
}

#define MMA_LOOP(NAME, THREADS, ...)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                            \
        NAME(const __grid_constant__ Train train, const unsigned short *a, const unsigned short *b, uint32_t *cycles, \
             int32_t *sums) {                                                                                           \
        run<__VA_ARGS__>(train, a, b, cycles, sums);                                                                    \
    }
#include "shapes.inc"
