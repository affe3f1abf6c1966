// D = A B in fp32 on FMA units: a CTA a tile of D, a thread a tile of that. D (m x n) is row-major.
//
// A is m x k with k contiguous where kIsTurnedA, else k x m with m contiguous; B is n x k with k contiguous where kIsTurnedB, else
// k x n with n contiguous. Operands come by cp.async into a ring of kStages slots, where m and n are contiguous for each k:
// 16 bytes a thread, or, of an operand that is turned on its way, an element a thread along k, with rows of shared memory four
// elements longer. A warp has 4 x 8 lanes; a thread's rows lie side by side, its columns in vectors of four, 32 apart. The
// vectors of the next k are read while one is multiplied, across slots too where there is more than one.
//
// D leaves from registers. m, n and k are multiples of 4: what lies outside is filled with zeros, and is not stored.
// Tiles are taken in bands of `group` rows of tiles, down the band first.

#include <cstdint>

struct Problem {
    const float *a, *b;
    float *d;
    int m, n, k, group;
};

template <int kBytes>
__device__ __forceinline__ void fetch(uint32_t to, const float *from, bool is_inside) {
    const int num_bytes = is_inside ? kBytes : 0;  // what is not read is filled with zeros
    if constexpr (kBytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(num_bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(num_bytes) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// One operand's part of a slot, kRows (of M or N) by kTileK, and what a thread copies of it.
template <int kRows, int kTileK, int kThreads, bool kIsTurned>
struct Operand {
    static constexpr int kPitch = kRows + (kIsTurned ? 4 : 0), kFloats = kPitch * kTileK;
    static constexpr int kAcross = kIsTurned ? kTileK : kRows / 4, kAtOnce = kThreads / kAcross;
    static constexpr int kCopies = (kIsTurned ? kRows : kTileK) / kAtOnce;
    static_assert(kThreads % kAcross == 0 && (kIsTurned ? kRows : kTileK) % kAtOnce == 0, "whole rounds of copies");
    const float *from;
    size_t down, along;  // from one copy to the next, and to the next slot
    uint32_t to, inside, inside_last;

    __device__ __forceinline__ Operand(const float *matrix, uint32_t slot, int first_row, int rows, int depth, int last_depth) {
        const int x = threadIdx.x % kAcross, y = threadIdx.x / kAcross;
        inside = inside_last = 0;
        if constexpr (kIsTurned) {  // x is k, y a row
            from = matrix + size_t(first_row + y) * depth + x;
            down = size_t(kAtOnce) * depth;
            along = kTileK;
            to = slot + (x * kPitch + y) * 4;
        } else {  // x is four rows, y a k
            from = matrix + size_t(y) * rows + first_row + x * 4;
            down = size_t(kAtOnce) * rows;
            along = size_t(kTileK) * rows;
            to = slot + (y * kPitch + x * 4) * 4;
        }
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
            const int at = y + i * kAtOnce, row = first_row + (kIsTurned ? at : x * 4), k = kIsTurned ? x : at;
            inside |= uint32_t(row < rows) << i;
            inside_last |= uint32_t(row < rows && k < last_depth) << i;
        }
    }
    __device__ __forceinline__ void load(uint32_t slot, bool is_last) {
        const uint32_t now = is_last ? inside_last : inside;
#pragma unroll
        for (int i = 0; i < kCopies; ++i)
            fetch<kIsTurned ? 4 : 16>(to + slot + i * kAtOnce * (kIsTurned ? 1 : kPitch) * 4, from + i * down, now >> i & 1);
        from += along;
    }
};

template <int kTileM, int kTileN, int kTileK, int kWarpsM, int kWarpsN, int kStages, bool kIsTurnedA, bool kIsTurnedB>
__device__ __forceinline__ void sgemm(const Problem &p) {
    constexpr int kThreads = kWarpsM * kWarpsN * 32, kM = kTileM / kWarpsM / 4, kN = kTileN / kWarpsN / 8;
    using A = Operand<kTileM, kTileK, kThreads, kIsTurnedA>;
    using B = Operand<kTileN, kTileK, kThreads, kIsTurnedB>;
    constexpr int kSlot = A::kFloats + B::kFloats;
    static_assert(kM % 4 == 0 && kN % 4 == 0 && A::kCopies <= 32 && B::kCopies <= 32, "whole vectors");
    extern __shared__ __align__(16) float smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int row = warp % kWarpsM * kM * 4 + lane / 8 * kM, column = warp / kWarpsM * kN * 8 + lane % 8 * 4;

    // The tile.
    const int num_m = (p.m + kTileM - 1) / kTileM, num_n = (p.n + kTileN - 1) / kTileN, group = min(p.group, num_m);
    const int band = blockIdx.x / (group * num_n), within = blockIdx.x % (group * num_n), width = min(group, num_m - band * group);
    const int tile_m = (band * group + within % width) * kTileM, tile_n = within / width * kTileN;

    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const int num_steps = (p.k + kTileK - 1) / kTileK, last_depth = p.k - (num_steps - 1) * kTileK;
    A a(p.a, base, tile_m, p.m, p.k, last_depth);
    B b(p.b, base + A::kFloats * 4, tile_n, p.n, p.k, last_depth);
    auto load = [&](int step, uint32_t slot) {
        a.load(slot * 4, step + 1 == num_steps);
        b.load(slot * 4, step + 1 == num_steps);
    };

    struct Vectors {
        float a[kM], b[kN];
    };
    auto read = [&](Vectors &to, uint32_t slot, int k) {
        const float *of_a = smem + slot + k * A::kPitch + row, *of_b = smem + slot + A::kFloats + k * B::kPitch + column;
#pragma unroll
        for (int i = 0; i < kM; i += 4) *reinterpret_cast<float4 *>(&to.a[i]) = *reinterpret_cast<const float4 *>(of_a + i);
#pragma unroll
        for (int j = 0; j < kN; j += 4) *reinterpret_cast<float4 *>(&to.b[j]) = *reinterpret_cast<const float4 *>(of_b + j * 8);
    };
    float sums[kM][kN] = {};
    auto multiply = [&](const Vectors &of) {
#pragma unroll
        for (int i = 0; i < kM; ++i)
#pragma unroll
            for (int j = 0; j < kN; ++j) sums[i][j] = fmaf(of.a[i], of.b[j], sums[i][j]);
    };

    Vectors held[2];
    if constexpr (kStages == 1) {
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            load(step, 0);
            commit();
            wait_copies<0>();
            __syncthreads();
            read(held[0], 0, 0);
#pragma unroll
            for (int k = 0; k < kTileK; ++k) {
                if (k + 1 < kTileK) read(held[(k + 1) % 2], 0, k + 1);
                multiply(held[k % 2]);
            }
            __syncthreads();
        }
    } else {
#pragma unroll
        for (int step = 0; step < kStages - 1; ++step) {
            if (step < num_steps) load(step, step * kSlot);
            commit();
        }
        wait_copies<kStages - 2>();
        __syncthreads();
        read(held[0], 0, 0);
        uint32_t reading = 0, writing = (kStages - 1) * kSlot;
#pragma unroll 1
        for (int step = 0; step < num_steps; ++step) {
            if (step + kStages - 1 < num_steps) load(step + kStages - 1, writing);
            commit();
            writing = writing == (kStages - 1) * kSlot ? 0 : writing + kSlot;
#pragma unroll
            for (int k = 0; k < kTileK; ++k) {
                if (k + 1 == kTileK) {  // behind the last step, too, where it reads what nobody needs
                    wait_copies<kStages - 2>();
                    __syncthreads();
                    reading = reading == (kStages - 1) * kSlot ? 0 : reading + kSlot;
                }
                read(held[(k + 1) % 2], reading, (k + 1) % kTileK);
                multiply(held[k % 2]);
            }
        }
    }

#pragma unroll
    for (int i = 0; i < kM; ++i)
#pragma unroll
        for (int j = 0; j < kN; j += 4) {
            const int at = tile_m + row + i, along = tile_n + column + j * 8;
            if (at < p.m && along < p.n)
                *reinterpret_cast<float4 *>(p.d + size_t(at) * p.n + along) =
                    make_float4(sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]);
        }
}

#define SGEMM(NAME, THREADS, CTAS, ...)                                                                                \
    extern "C" __global__ void __launch_bounds__(THREADS, CTAS)                                                        \
        NAME(const float *a, const float *b, float *d, int m, int n, int k, int group) {                               \
        sgemm<__VA_ARGS__>(Problem{a, b, d, m, n, k, group});                                                          \
    }
#include "shapes.inc"
