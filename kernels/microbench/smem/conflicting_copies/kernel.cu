// Copies around L1 (cp.async of 16 bytes) into rows anywhere in shared memory, beside ldmatrix of rows that lie apart: what each
// takes.
//
// A copy of a warp brings 512 bytes in rows of `row_bytes`, which lie `pitch` bytes apart in global memory, and `to_pitch` apart
// in shared memory from a first one `offset` bytes behind a multiple of 128; every other group of copies takes the next of
// kRegions regions with the same bytes, so that no line is asked for that is under way. An ldmatrix x4 reads four matrices of eight rows of 16 bytes that lie `read_pitch` apart. Nobody writes what
// is read. The first `readers` warps read, kUnrolled ldmatrix at a time, `turns` times; the others copy, groups of kGroup with
// kGroupsInFlight under way, until the readers are done, or `turns` groups where there is none.
//
// bursts_*: rounds; in each all warps meet, each issues kCopies copies and their commit, one ldmatrix, and waits for what that
// reads, then for its copies. The clock is read behind the barrier, the commit, the read and the wait.

#include <cstdint>

constexpr int kMostCopiers = 16, kRegions = 16, kMostCopies = 8, kCopyBytes = 512;
constexpr int kUnrolled = 8, kGroup = 4, kGroupsInFlight = 4, kMostGroups = 1 << 15;
constexpr int kMostRoomBytes = kCopyBytes * 2;                    // of a copy, with what lies behind its rows
constexpr int kCopiedBytes = kMostCopiers * kMostCopies * kMostRoomBytes + 128, kReadBytes = 32 * 1024;

struct Told {
    uint32_t row_bytes;
    uint32_t pitch;       // bytes from row to row in global memory
    uint32_t to_pitch;    // and in shared memory
    uint32_t offset;      // of the first row
    uint32_t region;      // bytes
    uint32_t from;        // bytes of global memory's first row behind a line's start
    uint32_t read_pitch;  // bytes from row to row of a matrix
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
    uint32_t read, flag, to, room;
    const unsigned char *from[kMostCopies];
};

// Fills what is read with `words`, and says where this lane reads and copies.
__device__ __forceinline__ Place prepare(const Told &told, const unsigned char *rows, const uint32_t *words, unsigned char *smem,
                                         int copier, int lane) {
    for (int i = threadIdx.x; i < kCopiedBytes / 4; i += blockDim.x) reinterpret_cast<uint32_t *>(smem)[i] = 0;
    for (int i = threadIdx.x; i < kReadBytes / 4; i += blockDim.x)
        reinterpret_cast<uint32_t *>(smem + kCopiedBytes)[i] = words[i];
    if (threadIdx.x == 0) *reinterpret_cast<volatile uint32_t *>(smem + kCopiedBytes + kReadBytes) = 0;
    Place place;
    const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(smem));
    const uint32_t lanes = told.row_bytes / 16, num_rows = kCopyBytes / told.row_bytes;
    place.read = base + kCopiedBytes + lane * told.read_pitch;
    place.flag = base + kCopiedBytes + kReadBytes;
    place.room = num_rows * told.to_pitch;  // whole lines of 128 bytes, or rows one behind the other
    place.to = base + told.offset + copier * kMostCopies * place.room + lane / lanes * told.to_pitch + lane % lanes * 16;
#pragma unroll
    for (int i = 0; i < kMostCopies; ++i)
        place.from[i] = rows + told.from + size_t((copier * kMostCopies + i) * num_rows + lane / lanes) * told.pitch + lane % lanes * 16;
    __syncthreads();
    return place;
}

__device__ __forceinline__ void give_back(const unsigned char *smem, uint32_t *copied_seen) {
    wait_copies<0>();
    __syncthreads();
    for (int i = threadIdx.x; i < kCopiedBytes / 4; i += blockDim.x) copied_seen[i] = reinterpret_cast<const uint32_t *>(smem)[i];
}

extern "C" __global__ void __launch_bounds__(768, 1)
    conflicting_copies(const __grid_constant__ Told told, const unsigned char *rows, const uint32_t *words, uint32_t *clocks,
                       uint32_t *sums, uint32_t *copied_seen) {
    extern __shared__ __align__(1024) unsigned char smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Place place = prepare(told, rows, words, smem, warp - int(told.readers), lane);
    uint32_t sum = 0, done = 0, begin, end;
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
                    fetch(place.to + (half * kGroup + i) * place.room, place.from[half * kGroup + i] + done / 2 % kRegions * told.region);
                commit();
                wait_copies<kGroupsInFlight - 1>();
            }
            asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(is_over) : "r"(place.flag) : "memory");
        }
        end = now();
    }
    if (lane == 0) {
        uint32_t *out = clocks + warp * 3;
        out[0] = begin, out[1] = done, out[2] = end;
    }
    sums[threadIdx.x] = sum;
    give_back(smem, copied_seen);
}

constexpr int kRounds = 12;

template <int kCopies>
__device__ __forceinline__ void bursts(const Told &told, const unsigned char *rows, const uint32_t *words, uint32_t *clocks,
                                       uint32_t *sums, uint32_t *copied_seen) {
    extern __shared__ __align__(1024) unsigned char smem[];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const Place place = prepare(told, rows, words, smem, warp, lane);
    uint32_t sum = 0;
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
        uint32_t held[4];
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll
        for (int i = 0; i < kCopies; ++i) fetch(place.to + i * place.room, place.from[i]);
        commit();
        const uint32_t issued = now();
        ldmatrix_x4(held, place.read);
        const uint32_t last = held[0] + held[1] + held[2] + held[3];
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(place.flag + 16 + threadIdx.x * 4), "r"(last) : "memory");
        const uint32_t read = now();
        wait_copies<0>();
        const uint32_t landed = now();
        sum += last;
        if (lane == 0) {
            uint32_t *out = clocks + (round * (blockDim.x / 32) + warp) * 4;
            out[0] = begin, out[1] = issued, out[2] = read, out[3] = landed;
        }
    }
    sums[threadIdx.x] = sum;
    give_back(smem, copied_seen);
}

#define BURSTS(COPIES)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(768, 1)                                                                 \
        bursts_##COPIES(const __grid_constant__ Told told, const unsigned char *rows, const uint32_t *words,             \
                        uint32_t *clocks, uint32_t *sums, uint32_t *copied_seen) {                                       \
        bursts<COPIES>(told, rows, words, clocks, sums, copied_seen);                                                    \
    }
BURSTS(2)
BURSTS(8)
