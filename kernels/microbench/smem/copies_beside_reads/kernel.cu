// Copies around L1 (cp.async of 16 bytes) and ldmatrix of one SM: who waits for whom, and what each takes of the other's pace.
//
// A copy of a warp brings 512 bytes, in rows of kRowBytes that lie `pitch` bytes apart in global memory, side by side in shared
// memory; an ldmatrix x4 reads 512 bytes that lie side by side, four wavefronts without a conflict. Nobody writes what is read.
//
// round_*: rounds; in each all warps meet, then each warp issues kAhead ldmatrix, kCopies copies and their commit, kBehind
// ldmatrix, and waits for these last. The clock is read behind the barrier, behind the commit, and when what was read is there.
//
// streams: the first `readers` warps read, kUnrolled ldmatrix at a time, `turns` times; the others copy, groups of kGroup with
// kGroupsInFlight under way, until the readers are done, or `turns` groups where there is none.

#include <cstdint>

constexpr int kRounds = 12, kMostWarps = 16, kMostCopies = 8, kMostReads = 12;
constexpr int kUnrolled = 8, kGroup = 4, kGroupsInFlight = 4, kMostGroups = 1 << 15;
constexpr int kCopyBytes = 512, kCopiedBytes = kMostWarps * kMostCopies * kCopyBytes, kReadBytes = kMostReads * kCopyBytes;

struct Told {
    uint32_t row_bytes;
    uint32_t pitch;  // bytes from row to row
    uint32_t readers;
    uint32_t turns;
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ void fetch(uint32_t to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
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

struct Place {
    unsigned char *smem;
    uint32_t copied, read, flag;  // addresses in shared memory: this lane's first copy, its first read, the flag
    const unsigned char *from[kMostCopies];
};

// Fills what is read with `words`, and says where this lane reads and copies.
__device__ __forceinline__ Place prepare(const Told &told, const unsigned char *rows, const uint32_t *words, int warp, int lane) {
    extern __shared__ __align__(1024) unsigned char smem[];
    Place place;
    place.smem = smem;
    for (int i = threadIdx.x; i < kCopiedBytes / 4; i += blockDim.x) reinterpret_cast<uint32_t *>(smem)[i] = 0;
    for (int i = threadIdx.x; i < kReadBytes / 4; i += blockDim.x)
        reinterpret_cast<uint32_t *>(smem + kCopiedBytes)[i] = words[i];
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    place.copied = base + warp * kMostCopies * kCopyBytes + lane * 16;
    place.read = base + kCopiedBytes + lane * 16;
    place.flag = base + kCopiedBytes + kReadBytes;
    if (threadIdx.x == 0) *reinterpret_cast<volatile uint32_t *>(smem + kCopiedBytes + kReadBytes) = 0;
    const uint32_t lanes = told.row_bytes / 16, num_rows = kCopyBytes / told.row_bytes;
#pragma unroll
    for (int i = 0; i < kMostCopies; ++i)
        place.from[i] = rows + size_t((warp * kMostCopies + i) * num_rows + lane / lanes) * told.pitch + lane % lanes * 16;
    __syncthreads();
    return place;
}

__device__ __forceinline__ void give_back(const Place &place, uint32_t *copied_seen) {
    wait_copies<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < kCopiedBytes / 4; i += blockDim.x) copied_seen[i] = reinterpret_cast<uint32_t *>(place.smem)[i];
}

template <int kAhead, int kCopies, int kBehind>
__device__ __forceinline__ void rounds(const Told &told, const unsigned char *rows, const uint32_t *words, uint32_t *clocks,
                                       uint32_t *sums, uint32_t *copied_seen) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Place place = prepare(told, rows, words, warp, lane);
    uint32_t sum = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        uint32_t ahead[kAhead + 1][4], behind[kBehind][4];
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll
        for (int i = 0; i < kAhead; ++i) ldmatrix_x4(ahead[i], place.read + i * kCopyBytes);
#pragma unroll
        for (int i = 0; i < kCopies; ++i) fetch(place.copied + i * kCopyBytes, place.from[i]);
        if constexpr (kCopies > 0) commit();
        const uint32_t issued = now();
#pragma unroll
        for (int i = 0; i < kBehind; ++i) ldmatrix_x4(behind[i], place.read + (kMostReads - 1 - i) * kCopyBytes);
        uint32_t last = 0;
#pragma unroll
        for (int i = 0; i < kBehind; ++i) last += behind[i][0] + behind[i][1] + behind[i][2] + behind[i][3];
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag + 16 + threadIdx.x * 4), "r"(last) : "memory");
        const uint32_t end = now();
#pragma unroll
        for (int i = 0; i < kAhead; ++i) last += ahead[i][0] + ahead[i][1] + ahead[i][2] + ahead[i][3];
        sum += last;
        wait_copies<0>();
        if (lane == 0) {
            uint32_t *to = clocks + (round * kMostWarps + warp) * 3;
            to[0] = begin, to[1] = issued, to[2] = end;
        }
        __syncthreads();
    }
    sums[threadIdx.x] = sum;
    give_back(place, copied_seen);
}

#define ROUND(NAME, ...)                                                                                                \
    extern "C" __global__ void __launch_bounds__(512, 1)                                                                \
        NAME(const __grid_constant__ Told told, const unsigned char *rows, const uint32_t *words, uint32_t *clocks,     \
             uint32_t *sums, uint32_t *copied_seen) {                                                                   \
        rounds<__VA_ARGS__>(told, rows, words, clocks, sums, copied_seen);                                              \
    }
#include "rounds.inc"

extern "C" __global__ void __launch_bounds__(512, 1)
    streams(const __grid_constant__ Told told, const unsigned char *rows, const uint32_t *words, uint32_t *clocks, uint32_t *sums,
            uint32_t *copied_seen) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Place place = prepare(told, rows, words, warp, lane);
    uint32_t sum = 0, done = 0, begin, end;
    __syncthreads();
    if (warp < told.readers) {
        begin = now();
#pragma unroll 1
        for (uint32_t turn = 0; turn < told.turns; ++turn) {
            uint32_t held[kUnrolled][4];
#pragma unroll
            for (int i = 0; i < kUnrolled; ++i) ldmatrix_x4(held[i], place.read + i * kCopyBytes);
#pragma unroll
            for (int i = 0; i < kUnrolled; ++i) sum += held[i][0] + held[i][1] + held[i][2] + held[i][3];
        }
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag + 16 + threadIdx.x * 4), "r"(sum) : "memory");
        end = now();
        done = told.turns;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag), "r"(1) : "memory");
    } else {
        const uint32_t most = told.readers ? kMostGroups : told.turns;
        uint32_t is_over = 0;
        begin = now();
#pragma unroll 1
        for (; done < most && !is_over; done += 2) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int i = 0; i < kGroup; ++i)
                    fetch(place.copied + (half * kGroup + i) * kCopyBytes, place.from[half * kGroup + i]);
                commit();
                wait_copies<kGroupsInFlight - 1>();
            }
            asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(is_over) : "r"(place.flag) : "memory");
        }
        end = now();
    }
    if (lane == 0) {
        uint32_t *to = clocks + warp * 3;
        to[0] = begin, to[1] = done, to[2] = end;
    }
    sums[threadIdx.x] = sum;
    give_back(place, copied_seen);
}
