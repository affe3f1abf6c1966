// Accesses to shared memory, one behind the other or many at once: how long is one, how many wavefronts go in a cycle?
//
// `ops.inc` is written by case.py: a struct with one access for each instruction, and kernels. One CTA; warp w runs on
// sub-partition w % 4 and takes part where that is below num_partitions. The addresses of the lanes come from the host, so
// that one binary asks for any conflict. Trains of several lengths are timed by every warp from behind a common barrier.

#include <cstdint>

constexpr int kMostThreads = 1024;
constexpr int kSmemBytes = 32768;
constexpr int kChain = 32;     // accesses of a loop's body, each of which needs the one before it
constexpr int kInFlight = 16;  // registers that are loaded while as many are used
constexpr int kSilent = 32;    // accesses of a loop's body that give nothing back

__shared__ __align__(1024) unsigned char buffer[kSmemBytes];

__device__ __forceinline__ int64_t clock_now() {
    int64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

// A barrier of the threads that take part, which none passes before its `word` is there.
__device__ __forceinline__ void meet(uint32_t num_threads, uint32_t word) {
    asm volatile(
        "{ .reg .pred p, q; setp.eq.u32 p, %0, 0x9e3779b9; barrier.cta.red.or.pred q, 1, %1, p; }" ::"r"(word), "r"(num_threads)
        : "memory");
}

struct Launch {
    uint32_t num_partitions, num_threads;  // sub-partitions that work; threads that take part
    uint32_t num_trains, mode;
};

enum Mode : uint32_t { kEach = 0, kByTurns = 1, kBySlots = 2 };  // of two instructions: both by turns, or one a warp

struct Warp {
    uint32_t idx, slot, lane;  // among the warps that work; on its sub-partition
    uint32_t base;             // of the buffer
    uint32_t values[4];        // what stores and atomics take
};

// Fills the buffer; false for warps that do not take part. Words are moved by the buffer's address where they are addresses.
__device__ __forceinline__ bool prepare(const Launch &launch, const uint32_t *image, const uint32_t *values, bool is_chain,
                                        Warp &warp) {
    warp.base = static_cast<uint32_t>(__cvta_generic_to_shared(buffer));
    uint32_t *words = reinterpret_cast<uint32_t *>(buffer);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < kSmemBytes / 4; i += blockDim.x) words[i] = image[i] + (is_chain ? warp.base : 0);
    __syncthreads();
    const uint32_t number = threadIdx.x / 32;
    warp.lane = threadIdx.x % 32;
    warp.slot = number / 4;
    warp.idx = warp.slot * launch.num_partitions + number % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) warp.values[i] = values[i * 32 + warp.lane];
    return number % 4 < launch.num_partitions;
}

__device__ __forceinline__ void tell(const Launch &launch, const Warp &warp, uint32_t train, int64_t began, int64_t ended,
                                     int64_t *times) {
    if (warp.lane == 0) {
        int64_t *mine = times + 2 * (train * (launch.num_threads / 32) + warp.idx);
        mine[0] = began;
        mine[1] = ended;
    }
}

__device__ __forceinline__ void dump_all(const Launch &launch, const Warp &warp, uint32_t *dump) {
    meet(launch.num_threads, 0);
#pragma unroll 1
    for (uint32_t i = 32 * warp.idx + warp.lane; i < kSmemBytes / 4; i += launch.num_threads)
        dump[i] = reinterpret_cast<const volatile uint32_t *>(buffer)[i];
}

// Each access is at the address that the one before it gave.
template <class Op>
__device__ __forceinline__ void chase(const Launch &launch, const uint32_t *lengths, const uint32_t *image,
                                      const uint32_t *addresses, const uint32_t *values, uint32_t *out, int64_t *times) {
    Warp warp;
    if (!prepare(launch, image, values, true, warp)) return;
    uint32_t address = warp.base + addresses[warp.lane];
#pragma unroll 1
    for (uint32_t train = 0; train < launch.num_trains; ++train) {
        const uint32_t length = lengths[train];
        meet(launch.num_threads, length ^ address ^ warp.values[0] ^ warp.values[1]);
        const int64_t began = clock_now();
#pragma unroll 1
        for (uint32_t i = 0; i < length; ++i) {
#pragma unroll
            for (int step = 0; step < kChain; ++step) {
                uint32_t results[Op::kResults];
                if (Op::kGivesAddress) warp.values[0] = address;
                Op::access(results, address, warp.values);
                address = results[0];
            }
        }
        const int64_t ended = clock_now();
        tell(launch, warp, train, began, ended, times);
    }
    out[32 * warp.idx + warp.lane] = address - warp.base;
}

// So many accesses; nothing uses what they give yet. Those that a compiler would take for one are kOffset bytes apart.
template <class Op, class Beside, int kFirst, int kNum, int kRegisters>
__device__ __forceinline__ void begin(uint32_t (&results)[kNum][kRegisters], uint32_t address, uint32_t beside,
                                      const uint32_t (&values)[4]) {
#pragma unroll
    for (int i = 0; i < kNum; ++i) {
        Op::access(results[i], address + (kFirst + i) * Op::kOffset, values);
        uint32_t nothing[1];
        Beside::access(nothing, beside, values);
    }
}

template <int kNum, int kRegisters>
__device__ __forceinline__ uint32_t sum_of(const uint32_t (&results)[kNum][kRegisters]) {
    uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < kNum; ++i) {
#pragma unroll
        for (int j = 0; j < kRegisters; ++j) sum += results[i][j];
    }
    return sum;
}

struct Nothing {
    static __device__ __forceinline__ void access(uint32_t (&)[1], uint32_t, const uint32_t (&)[4]) {}
};

// Accesses that give something: half of the registers are loaded while the other half is used. Volatile loads need no user.
template <class Op, class Beside>
__device__ __forceinline__ uint32_t stream_results(const Launch &launch, const Warp &warp, const uint32_t *lengths,
                                                   uint32_t address, uint32_t beside, int64_t *times) {
    constexpr int kNum = kInFlight / Op::kResults;
    uint32_t first[kNum][Op::kResults], second[kNum][Op::kResults], sum = 0;
#pragma unroll 1
    for (uint32_t train = 0; train < launch.num_trains; ++train) {
        const uint32_t length = lengths[train];
        meet(launch.num_threads, length ^ warp.values[0] ^ warp.values[1] ^ warp.values[2] ^ warp.values[3] ^ address ^ beside);
        const int64_t began = clock_now();
        begin<Op, Beside, kNum>(second, address, beside, warp.values);
#pragma unroll 1
        for (uint32_t i = 0; i < length; ++i) {
            begin<Op, Beside, 0>(first, address, beside, warp.values);
            if (Op::kNeedsUse) sum += sum_of(second);
            begin<Op, Beside, kNum>(second, address, beside, warp.values);
            if (Op::kNeedsUse) sum += sum_of(first);
        }
        const int64_t ended = clock_now();
        sum += sum_of(second);
        tell(launch, warp, train, began, ended, times);
    }
    return sum;
}

// Accesses that give nothing back.
template <class Op, int kNum>
__device__ __forceinline__ void stream_silent(const Launch &launch, const Warp &warp, const uint32_t *lengths, uint32_t address,
                                              int64_t *times) {
    uint32_t nothing[1];
#pragma unroll 1
    for (uint32_t train = 0; train < launch.num_trains; ++train) {
        const uint32_t length = lengths[train];
        meet(launch.num_threads, length ^ warp.values[0] ^ warp.values[1] ^ warp.values[2] ^ warp.values[3] ^ address);
        const int64_t began = clock_now();
#pragma unroll 1
        for (uint32_t i = 0; i < length; ++i) {
#pragma unroll
            for (int step = 0; step < kNum; ++step) Op::access(nothing, address, warp.values);
        }
        const int64_t ended = clock_now();
        tell(launch, warp, train, began, ended, times);
    }
}

#define SHARED_ARGUMENTS                                                                                             \
    const __grid_constant__ Launch launch, const uint32_t *lengths, const uint32_t *image, const uint32_t *addresses, \
        const uint32_t *values, uint32_t *out, uint32_t *dump, int64_t *times

#define CHASE_KERNEL(name)                                                                                    \
    extern "C" __global__ void __launch_bounds__(kMostThreads) chase_##name(SHARED_ARGUMENTS) {               \
        chase<name>(launch, lengths, image, addresses, values, out, times);                                   \
    }

#define LOAD_KERNEL(name)                                                                                     \
    extern "C" __global__ void __launch_bounds__(kMostThreads) stream_##name(SHARED_ARGUMENTS) {              \
        Warp warp;                                                                                            \
        if (!prepare(launch, image, values, false, warp)) return;                                             \
        const uint32_t address = warp.base + addresses[warp.lane];                                            \
        out[32 * warp.idx + warp.lane] = stream_results<name, Nothing>(launch, warp, lengths, address, 0, times); \
        dump_all(launch, warp, dump);                                                                         \
    }

#define STORE_KERNEL(name)                                                                                    \
    extern "C" __global__ void __launch_bounds__(kMostThreads) stream_##name(SHARED_ARGUMENTS) {              \
        Warp warp;                                                                                            \
        if (!prepare(launch, image, values, false, warp)) return;                                             \
        stream_silent<name, kSilent>(launch, warp, lengths, warp.base + addresses[warp.lane], times);                  \
        dump_all(launch, warp, dump);                                                                         \
    }

#define MIXED_KERNEL(first, second)                                                                           \
    extern "C" __global__ void __launch_bounds__(kMostThreads) mixed_##first##_##second(SHARED_ARGUMENTS) {   \
        Warp warp;                                                                                            \
        if (!prepare(launch, image, values, false, warp)) return;                                             \
        const uint32_t address = warp.base + addresses[warp.lane], beside = warp.base + addresses[32 + warp.lane]; \
        uint32_t sum = 0;                                                                                     \
        if (launch.mode == kByTurns) sum = stream_results<first, second>(launch, warp, lengths, address, beside, times); \
        else if (warp.slot % 2)                                                                               \
            stream_silent<second, 2 * kInFlight / first::kResults>(launch, warp, lengths, beside, times);     \
        else sum = stream_results<first, Nothing>(launch, warp, lengths, address, 0, times);                  \
        out[32 * warp.idx + warp.lane] = sum;                                                                 \
        dump_all(launch, warp, dump);                                                                         \
    }

#include "ops.inc"
