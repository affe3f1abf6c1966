// D = A B: bf16 matrices A (m x k) and B (n x k), both contiguous along k, and D (m x n), row-major; sums in fp32.
//
// A CTA has one tile of D. Operands come by cp.async, 16 bytes a thread, into a ring of kStages slots; ldmatrix brings fragments
// to registers, mma.sync m16n8k16 multiplies. Chunks of 16 bytes lie in shared memory as they are, in panels of 32, 64 or 128
// bytes whose chunks change places by the row's number (TMA's and wgmma's swizzles), or in rows with kPad elements more.
//
// kIsDouble: the fragments of a slice of 16 k are read while the slice before is multiplied, across slots too; otherwise each
// slice's are read before its own math, in a loop that is not unrolled, so that ptxas cannot read them ahead.
//
// D leaves from the fragments (`staged` 0), or through shared memory, over the drained ring, in slices of columns as wide as fit.
// m and n are any number (n a multiple of 8), k is a multiple of 8: what lies outside is filled with zeros, and is not stored.
// Tiles are taken in bands of `group` rows of tiles, down the band first.

#include <cstdint>

struct Problem {
    const unsigned short *a, *b;
    unsigned short *d;
    int m, n, k, group, staged;
};

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

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
__device__ __forceinline__ uint32_t pack(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Where things lie in a tile of kRows rows of kRowBytes, in panels kSpan bytes wide (kSpan 0: whole rows, kPadBytes apart).
template <int kRows, int kRowBytes, int kSpan, int kPadBytes>
struct Place {
    static constexpr int kWidth = kSpan ? kSpan : kRowBytes, kPitch = kSpan ? kSpan : kRowBytes + kPadBytes;
    static constexpr int kChunks = kWidth / 16, kPanelBytes = kRows * kPitch, kBytes = kPanelBytes * (kRowBytes / kWidth);
    static_assert(kRowBytes % kWidth == 0, "rows are whole panels");
    // What the row does to the number of a chunk; the same for rows 8 apart.
    __device__ __forceinline__ static int twist(int row) {
        return kSpan == 128 ? row & 7 : kSpan == 64 ? row >> 1 & 3 : kSpan == 32 ? row >> 2 & 1 : 0;
    }
    // Beside the row's own offset; `low`, 0 or 1 of a chunk number 2 * pair + low, has the row's twist in it.
    __device__ __forceinline__ static uint32_t pair(int pair, int low) {
        return 2 * pair / kChunks * kPanelBytes + (((2 * pair % kChunks) ^ low) << 4);
    }
    __device__ __forceinline__ static uint32_t chunk(int row, int chunk) {
        return chunk / kChunks * kPanelBytes + row * kPitch + (((chunk % kChunks) ^ twist(row)) << 4);
    }
};

// The widest slice of columns that fits into `room` bytes: a half, a quarter, ... of the tile.
template <int kRows, int kColumns, int kRoom>
struct Slice {
    static constexpr int columns() {
        if constexpr (kRows * kColumns * 2 <= kRoom) return kColumns;
        else return Slice<kRows, kColumns / 2, kRoom>::kWidth;
    }
    static constexpr int kWidth = columns();
};

template <int kTileM, int kTileN, int kTileK, int kWarpsM, int kWarpsN, int kStages, int kSpan, int kPad, bool kIsDouble>
__device__ __forceinline__ void hgemm(const Problem &p) {
    constexpr int kThreads = kWarpsM * kWarpsN * 32, kM = kTileM / kWarpsM, kN = kTileN / kWarpsN, kSlices = kTileK / 16;
    constexpr int kInRow = kTileK / 8, kRowsAtOnce = kThreads / kInRow;
    using PlaceA = Place<kTileM, kTileK * 2, kSpan, kPad * 2>;
    using PlaceB = Place<kTileN, kTileK * 2, kSpan, kPad * 2>;
    constexpr int kStageBytes = PlaceA::kBytes + PlaceB::kBytes, kCopiesA = kTileM / kRowsAtOnce, kCopiesB = kTileN / kRowsAtOnce;
    static_assert(kTileM % kRowsAtOnce == 0 && kTileN % kRowsAtOnce == 0 && kRowsAtOnce % 8 == 0, "whole rounds of copies");
    static_assert(kM % 16 == 0 && kN % 16 == 0, "whole instructions");
    extern __shared__ __align__(1024) unsigned char smem[];
    const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
    const int warp_m = warp % kWarpsM * kM, warp_n = warp / kWarpsM * kN;
    const uint32_t base = smem_address(smem);

    // The tile.
    const int num_m = (p.m + kTileM - 1) / kTileM, num_n = (p.n + kTileN - 1) / kTileN, group = min(p.group, num_m);
    const int band = blockIdx.x / (group * num_n), within = blockIdx.x % (group * num_n), width = min(group, num_m - band * group);
    const int tile_m = (band * group + within % width) * kTileM, tile_n = within / width * kTileN;

    // This thread's copies: 16 bytes of every kRowsAtOnce-th row. One bit each says whether they lie inside.
    const int row = thread / kInRow, column = thread % kInRow;
    const unsigned short *from_a = p.a + size_t(tile_m + row) * p.k + column * 8;
    const unsigned short *from_b = p.b + size_t(tile_n + row) * p.k + column * 8;
    const size_t down = size_t(kRowsAtOnce) * p.k;
    const uint32_t to_a = base + PlaceA::chunk(row, column), to_b = base + PlaceA::kBytes + PlaceB::chunk(row, column);
    const int num_steps = (p.k + kTileK - 1) / kTileK;
    uint32_t inside = 0;
#pragma unroll
    for (int i = 0; i < kCopiesA; ++i) inside |= uint32_t(tile_m + row + i * kRowsAtOnce < p.m) << i;
#pragma unroll
    for (int i = 0; i < kCopiesB; ++i) inside |= uint32_t(tile_n + row + i * kRowsAtOnce < p.n) << (kCopiesA + i);
    const uint32_t inside_last = (num_steps - 1) * kTileK + column * 8 < p.k ? inside : 0;
    auto load = [&](int step, uint32_t stage) {
        const uint32_t now = step + 1 < num_steps ? inside : inside_last;
#pragma unroll
        for (int i = 0; i < kCopiesA; ++i) fetch(to_a + stage + i * kRowsAtOnce * PlaceA::kPitch, from_a + i * down, now >> i & 1);
#pragma unroll
        for (int i = 0; i < kCopiesB; ++i)
            fetch(to_b + stage + i * kRowsAtOnce * PlaceB::kPitch, from_b + i * down, now >> (kCopiesA + i) & 1);
        from_a += kTileK;
        from_b += kTileK;
    };

    // Fragments.
    struct Fragments {
        uint32_t a[kM / 16][4], b[kN / 16][4];
    };
    const int row_a = warp_m + lane % 16, row_b = warp_n + lane % 8 + lane / 16 * 8;
    const uint32_t read_a = base + row_a * PlaceA::kPitch, read_b = base + PlaceA::kBytes + row_b * PlaceB::kPitch;
    const int low_a = lane / 16 ^ PlaceA::twist(row_a), low_b = (lane / 8 & 1) ^ PlaceB::twist(row_b);
    auto read = [&](Fragments &to, uint32_t stage, int slice) {
#pragma unroll
        for (int i = 0; i < kM / 16; ++i)
            ldmatrix_x4(to.a[i], read_a + stage + PlaceA::pair(slice, low_a) + i * 16 * PlaceA::kPitch);
#pragma unroll
        for (int i = 0; i < kN / 16; ++i)
            ldmatrix_x4(to.b[i], read_b + stage + PlaceB::pair(slice, low_b) + i * 16 * PlaceB::kPitch);
    };
    float sums[kM / 16][kN / 8][4] = {};
    auto multiply = [&](const Fragments &of) {
#pragma unroll
        for (int i = 0; i < kM / 16; ++i)
#pragma unroll
            for (int j = 0; j < kN / 8; ++j) mma(sums[i][j], of.a[i], of.b[j / 2][j % 2 * 2], of.b[j / 2][j % 2 * 2 + 1]);
    };

    if constexpr (kStages == 1) {
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            load(step, 0);
            commit();
            wait_copies<0>();
            __syncthreads();
            if constexpr (kIsDouble) {
                Fragments held[2];
                read(held[0], 0, 0);
#pragma unroll
                for (int slice = 0; slice < kSlices; ++slice) {
                    if (slice + 1 < kSlices) read(held[(slice + 1) % 2], 0, slice + 1);
                    multiply(held[slice % 2]);
                }
            } else {
#pragma unroll 1
                for (int slice = 0; slice < kSlices; ++slice) {
                    Fragments held;
                    read(held, 0, slice);
                    multiply(held);
                }
            }
            __syncthreads();
        }
    } else {
#pragma unroll
        for (int step = 0; step < kStages - 1; ++step) {
            if (step < num_steps) load(step, step * kStageBytes);
            commit();
        }
        uint32_t reading = 0, writing = (kStages - 1) * kStageBytes;
        auto refill = [&](int step) {
            if (step < num_steps) load(step, writing);
            commit();
            writing = writing == (kStages - 1) * kStageBytes ? 0 : writing + kStageBytes;
        };
        if constexpr (kIsDouble) {
            Fragments held[2];
            wait_copies<kStages - 2>();
            __syncthreads();
            read(held[0], 0, 0);
#pragma unroll 1
            for (int step = 0; step + 1 < num_steps; ++step) {
                refill(step + kStages - 1);
#pragma unroll
                for (int slice = 0; slice < kSlices; ++slice) {
                    if (slice + 1 == kSlices) {
                        wait_copies<kStages - 2>();
                        __syncthreads();
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
                wait_copies<kStages - 2>();
                __syncthreads();
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
    }

    if (!p.staged) {
#pragma unroll
        for (int i = 0; i < kM / 16; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const int at = tile_m + warp_m + i * 16 + half * 8 + lane / 4;
                uint32_t *to = reinterpret_cast<uint32_t *>(p.d + size_t(at) * p.n + tile_n + warp_n + lane % 4 * 2);
#pragma unroll
                for (int j = 0; j < kN / 8; ++j)
                    if (at < p.m && tile_n + warp_n + j * 8 < p.n) to[j * 4] = pack(sums[i][j][half * 2], sums[i][j][half * 2 + 1]);
            }
        return;
    }

    constexpr int kColumns = Slice<kTileM, kTileN, kStages * kStageBytes>::kWidth;
    constexpr int kStagedSpan = kColumns >= 64 ? 128 : kColumns * 2, kVectors = kTileM * kColumns / 8 / kThreads;
    constexpr int kAtOnce = kVectors < 8 ? kVectors : 8;
    static_assert(kColumns >= 16 && kVectors * kThreads * 8 == kTileM * kColumns, "slices of whole instructions");
    using PlaceD = Place<kTileM, kColumns * 2, kStagedSpan, 0>;
#pragma unroll 1
    for (int first = 0; first < kTileN && tile_n + first < p.n; first += kColumns) {
        __syncthreads();  // nobody reads the ring, or the slice before
#pragma unroll
        for (int j = 0; j < kN / 16; ++j) {
            const int inner = warp_n + j * 16 - first;
            if (inner < 0 || inner >= kColumns) continue;
#pragma unroll
            for (int i = 0; i < kM / 16; ++i) {
                const float(&left)[4] = sums[i][2 * j], (&right)[4] = sums[i][2 * j + 1];
#if __CUDA_ARCH__ >= 900
                const uint32_t to = base + PlaceD::chunk(warp_m + i * 16 + lane % 16, inner / 8 + lane / 16);
                asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to),
                             "r"(pack(left[0], left[1])), "r"(pack(left[2], left[3])), "r"(pack(right[0], right[1])),
                             "r"(pack(right[2], right[3]))
                             : "memory");
#else
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    const int at = warp_m + i * 16 + half * 8 + lane / 4;
                    unsigned char *to = smem + lane % 4 * 4;
                    *reinterpret_cast<uint32_t *>(to + PlaceD::chunk(at, inner / 8)) = pack(left[half * 2], left[half * 2 + 1]);
                    *reinterpret_cast<uint32_t *>(to + PlaceD::chunk(at, inner / 8 + 1)) =
                        pack(right[half * 2], right[half * 2 + 1]);
                }
#endif
            }
        }
        __syncthreads();
#pragma unroll 1
        for (int round = 0; round < kVectors; round += kAtOnce) {
            uint4 held[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const int at = (round + i) * kThreads + thread;
                held[i] = *reinterpret_cast<const uint4 *>(smem + PlaceD::chunk(at / (kColumns / 8), at % (kColumns / 8)));
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const int at = (round + i) * kThreads + thread, down = tile_m + at / (kColumns / 8);
                const int along = tile_n + first + at % (kColumns / 8) * 8;
                if (down < p.m && along < p.n) *reinterpret_cast<uint4 *>(p.d + size_t(down) * p.n + along) = held[i];
            }
        }
    }
}

#define HGEMM(NAME, THREADS, ...)                                                                                       \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                            \
        NAME(const unsigned short *a, const unsigned short *b, unsigned short *d, int m, int n, int k, int group, int staged) { \
        hgemm<__VA_ARGS__>(Problem{a, b, d, m, n, k, group, staged});                                                  \
    }
#include "shapes.inc"
