// Copies of four bytes a lane through L1 (cp.async.ca) and loads of one SM: who waits for whom, and what each takes of the other's pace.
//
// A copy of a warp brings 128 bytes in rows of `row_bytes` that lie `pitch` bytes apart in global memory. In shared memory they lie
// side by side; or, is_turned, each element of a row a row of shared memory further, which are four elements longer than all rows that
// are copied: so a GEMM turns an operand that is contiguous along k. `advance` bytes further along the rows each time, or the same again.
// A load is an ld.shared of 16 bytes a lane, 512 that lie side by side, four wavefronts. Nobody writes what is loaded.
//
// round_*: rounds; in each all warps meet, then each warp issues kAhead loads, kCopies copies and their commit, kBehind loads, waits for
// these last, and for the copies. The clock is read behind the barrier, behind the commit, when what was loaded is there, and the copies.
//
// streams: the first `readers` warps load, kUnrolled at a time, `turns` times; the others copy, groups of kGroup with kGroupsInFlight
// under way, until the readers are done, or `turns` groups where there is none.

#include <cstdint>

constexpr int kRounds = 12, kMostWarps = 16, kMostCopies = 8, kMostReads = 12, kMarks = 4;
constexpr int kUnrolled = 8, kGroup = 4, kGroupsInFlight = 4, kMostGroups = 1 << 15;
constexpr int kCopyBytes = 128, kCopiedBytes = 20480, kLoadBytes = 512, kReadBytes = kMostReads * kLoadBytes;

struct Told {
    uint32_t row_bytes;
    uint32_t pitch;  // bytes from row to row
    uint32_t readers;
    uint32_t turns;
    uint32_t is_turned;
    uint32_t advance;  // bytes
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ void fetch(uint32_t to, const void *from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void load(uint32_t (&r)[4], uint32_t from) {
    asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
}

struct Place {
    unsigned char *smem;
    uint32_t copied[kMostCopies], read, flag;  // addresses in shared memory: of this lane's copies, its first load, the flag
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
    place.read = base + kCopiedBytes + lane * 16;
    place.flag = base + kCopiedBytes + kReadBytes;
    if (threadIdx.x == 0) *reinterpret_cast<volatile uint32_t *>(smem + kCopiedBytes + kReadBytes) = 0;
    const uint32_t lanes = told.row_bytes / 4, num_rows = kCopyBytes / told.row_bytes, x = lane % lanes;
    const uint32_t along = kMostWarps * kMostCopies * num_rows + 4;  // elements of a row of shared memory
#pragma unroll
    for (int i = 0; i < kMostCopies; ++i) {
        const uint32_t y = (warp * kMostCopies + i) * num_rows + lane / lanes;
        place.from[i] = rows + size_t(y) * told.pitch + x * 4;
        place.copied[i] = base + (told.is_turned ? x * along + y : y * lanes + x) * 4;
    }
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
        const unsigned char *from[kMostCopies];
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
            from[i] = place.from[i] + round * told.advance;
            asm volatile("" : "+l"(from[i]));
        }
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll
        for (int i = 0; i < kAhead; ++i) load(ahead[i], place.read + i * kLoadBytes);
#pragma unroll
        for (int i = 0; i < kCopies; ++i) fetch(place.copied[i], from[i]);
        if constexpr (kCopies > 0) commit();
        const uint32_t issued = now();
#pragma unroll
        for (int i = 0; i < kBehind; ++i) load(behind[i], place.read + (kMostReads - 1 - i) * kLoadBytes);
        uint32_t last = 0;
#pragma unroll
        for (int i = 0; i < kBehind; ++i) last += behind[i][0] + behind[i][1] + behind[i][2] + behind[i][3];
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag + 16 + threadIdx.x * 4), "r"(last) : "memory");
        const uint32_t end = now();
        wait_copies<0>();
        const uint32_t copied = now();
#pragma unroll
        for (int i = 0; i < kAhead; ++i) last += ahead[i][0] + ahead[i][1] + ahead[i][2] + ahead[i][3];
        sum += last;
        if (lane == 0) {
            uint32_t *to = clocks + (round * kMostWarps + warp) * kMarks;
            to[0] = begin, to[1] = issued, to[2] = end, to[3] = copied;
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
            for (int i = 0; i < kUnrolled; ++i) load(held[i], place.read + i * kLoadBytes);
#pragma unroll
            for (int i = 0; i < kUnrolled; ++i) sum += held[i][0] + held[i][1] + held[i][2] + held[i][3];
        }
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag + 16 + threadIdx.x * 4), "r"(sum) : "memory");
        end = now();
        done = told.turns;
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag), "r"(1) : "memory");
    } else {
        const uint32_t most = told.readers ? kMostGroups : told.turns;
        uint32_t is_over = 0, at = 0;
        begin = now();
#pragma unroll 1
        for (; done < most && !is_over; done += 2) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int i = 0; i < kGroup; ++i) fetch(place.copied[half * kGroup + i], place.from[half * kGroup + i] + at);
                commit();
                wait_copies<kGroupsInFlight - 1>();
            }
            at = at + told.advance == told.pitch ? 0 : at + told.advance;  // rows are walked round and round
            asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(is_over) : "r"(place.flag) : "memory");
        }
        end = now();
    }
    if (lane == 0) {
        uint32_t *to = clocks + warp * kMarks;
        to[0] = begin, to[1] = done, to[2] = end;
    }
    sums[threadIdx.x] = sum;
    give_back(place, copied_seen);
}
