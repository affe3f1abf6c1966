// Do fills of shared memory share a port with wgmma's reads of its operands?
//
// One CTA. Warps 0 to 3 are a warpgroup that runs a train of wgmma, back to back, on operands that lie in shared memory; warps
// 4 to 7 fill other shared memory (or read it) at a pace, until the train is over. `shapes.inc` is written by case.py: a struct
// for each shape with its one instruction, and a kernel for each. Operands come as images, laid out by the host.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kThreads = 256;
constexpr int kKSteps = 4;             // wgmmas between a fence and a commit: one for each 32 bytes of a row of 128
constexpr uint32_t kFillBytes = 65536;  // of shared memory that is filled
constexpr uint32_t kSlotBytes = 8192;   // what one TMA box, or one turn of all warps' cp.async, fills
constexpr uint32_t kNumSlots = kFillBytes / kSlotBytes;
constexpr int kPatience = 1 << 18;      // tries of a wait

enum Fill : uint32_t { kNone, kTma, kTmaOutside, kCpAsync, kStore, kLoad };

struct Beside {
    uint64_t a_descriptors[kKSteps], b_descriptors[kKSteps];  // start address: bytes from the operand's image, over 16
    uint32_t a_bytes, b_bytes;                                // of the images; multiples of 1024
    uint32_t num_groups;       // of the train; 0 for no train
    uint32_t idle_cycles;      // how long the fill runs where there is no train
    uint32_t fill;             // a Fill
    uint32_t interval_cycles;  // from one turn of the fill to the next, at least
};

// What each of the fill's warps gives back, and the train.
struct Seen {
    uint32_t train_cycles, has_failed, unused[2];
    struct {
        uint32_t cycles, num_turns, sum, unused;
    } fill[4];
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
    asm volatile("" : "+r"(address));
    return address;
}

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (int tries = 0; tries < kPatience; ++tries) {
        uint32_t is_done;
        asm volatile(
            "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
            : "=r"(is_done)
            : "r"(barrier), "r"(parity)
            : "memory");
        if (is_done) return true;
    }
    return false;
}

__device__ __forceinline__ bool is_elected() {
    uint32_t is_chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_chosen)::"memory");
    return is_chosen;
}

__device__ __forceinline__ uint32_t read_flag(uint32_t flag) {
    uint32_t value;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(value) : "r"(flag) : "memory");
    return value;
}

// Until the turn is due.
__device__ __forceinline__ void pace(uint32_t begin, uint32_t due) {
    while (now() - begin < due) {}
}

struct Turns {
    uint32_t cycles, num_turns, sum;
    bool is_fine;
};

// One thread: a box of 64 rows of 128 bytes a turn, eight in flight. Turns count from the moment the first eight are there.
__device__ __forceinline__ Turns fill_by_tma(const Beside &beside, const void *map, uint32_t to, uint32_t barriers, uint32_t flag) {
    const uint32_t outside = beside.fill == kTmaOutside ? 1u << 20 : 0;
    uint32_t slot = 0, parity = 0, turn = 0, is_over = 0, first = 0;
    Turns turns = {0, 0, 0, true};
    const uint32_t begin = now();
#pragma unroll 1
    for (; !is_over && turns.is_fine; ++turn) {
        is_over = read_flag(flag);
        const uint32_t barrier = barriers + slot * 8;
        if (turn >= kNumSlots) turns.is_fine = wait(barrier, parity ^ 1);
        if (turn == kNumSlots) first = now();
        if (beside.interval_cycles) pace(begin, turn * beside.interval_cycles);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kSlotBytes) : "memory");
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to + slot * kSlotBytes),
            "l"(map), "r"(0), "r"(slot * (kSlotBytes / 128) + outside), "r"(barrier)
            : "memory");
        if (++slot == kNumSlots) {
            slot = 0;
            parity ^= 1;
        }
    }
    turns.cycles = now() - first;
    turns.num_turns = turn - kNumSlots - 1;  // those waited for after the first eight, the last to begin left out
#pragma unroll 1
    for (uint32_t i = 0; i < kNumSlots && turns.is_fine; ++i) {  // all that is in flight, from the oldest on
        turns.is_fine = wait(barriers + slot * 8, parity ^ 1);
        if (++slot == kNumSlots) {
            slot = 0;
            parity ^= 1;
        }
    }
    return turns;
}

// Each warp: four instructions of 512 bytes a turn, eight groups in flight.
__device__ __forceinline__ Turns fill_by_cp_async(const Beside &beside, const unsigned char *from, uint32_t to, uint32_t flag) {
    const uint32_t offset = threadIdx.x / 32 % 4 * (kSlotBytes / 4) + threadIdx.x % 32 * 16;
    uint32_t slot = 0, turn = 0, is_over = 0;
    Turns turns = {0, 0, 0, true};
    const uint32_t begin = now();
#pragma unroll 1
    for (; !is_over; ++turn) {
        is_over = read_flag(flag);
        if (beside.interval_cycles) pace(begin, turn * beside.interval_cycles);
#pragma unroll
        for (int k = 0; k < 4; ++k)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + slot + offset + k * 512), "l"(from + slot + offset + k * 512)
                         : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        asm volatile("cp.async.wait_group 7;" ::: "memory");
        slot = (slot + kSlotBytes) % kFillBytes;
    }
    turns.cycles = now() - begin;
    turns.num_turns = turn - 7;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    return turns;
}

// Each warp: eight instructions of 512 bytes a turn, over its quarter of the region.
__device__ __forceinline__ Turns fill_by_stores(const Beside &beside, uint32_t to, uint32_t flag) {
    const uint32_t lane = threadIdx.x % 32, own = to + threadIdx.x / 32 % 4 * (kFillBytes / 4) + lane * 16;
    uint32_t offset = 0, turn = 0, is_over = 0;
    Turns turns = {0, 0, 0, true};
    const uint32_t word = threadIdx.x * 0x9E3779B1u + 1;
    const uint32_t begin = now();
#pragma unroll 1
    for (; !is_over; ++turn) {
        is_over = read_flag(flag);
        if (beside.interval_cycles) pace(begin, turn * beside.interval_cycles);
#pragma unroll
        for (int k = 0; k < 8; ++k)
            asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(own + offset + k * 512), "r"(word), "r"(word + 1), "r"(word + 2),
                         "r"(word + 3)
                         : "memory");
        offset = (offset + 4096) % (kFillBytes / 4);
    }
    turns.cycles = now() - begin;
    turns.num_turns = turn;
    return turns;
}

// Each warp: eight loads of 512 bytes a turn, always of the same 4 KiB.
__device__ __forceinline__ Turns read_by_loads(const Beside &beside, uint32_t from, uint32_t flag) {
    const uint32_t own = from + threadIdx.x / 32 % 4 * (kFillBytes / 4) + threadIdx.x % 32 * 16;
    uint32_t turn = 0, is_over = 0;
    Turns turns = {0, 0, 0, true};
    const uint32_t begin = now();
#pragma unroll 1
    for (; !is_over; ++turn) {
        is_over = read_flag(flag);
        if (beside.interval_cycles) pace(begin, turn * beside.interval_cycles);
        uint32_t words[8][4];
#pragma unroll
        for (int k = 0; k < 8; ++k)
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(words[k][0]), "=r"(words[k][1]), "=r"(words[k][2]), "=r"(words[k][3])
                         : "r"(own + k * 512)
                         : "memory");
#pragma unroll
        for (int k = 0; k < 8; ++k) turns.sum += words[k][0] + words[k][1] + words[k][2] + words[k][3];
    }
    turns.cycles = now() - begin;
    turns.num_turns = turn;
    return turns;
}

template <class Shape>
__device__ __forceinline__ void run(const Beside &beside, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows, const void *map,
                                    const uint4 *region, float *d, uint4 *out, Seen *seen) {
    __shared__ __align__(8) uint64_t mbarriers[kNumSlots];
    __shared__ uint32_t is_over;
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    const uint32_t a_16b = beside.a_bytes / 16, b_16b = beside.b_bytes / 16;
    for (uint32_t i = threadIdx.x; i < a_16b; i += kThreads) smem[i] = a_image[i];
    for (uint32_t i = threadIdx.x; i < b_16b; i += kThreads) smem[a_16b + i] = b_image[i];
    for (uint32_t i = threadIdx.x; i < kFillBytes / 16; i += kThreads) smem[a_16b + b_16b + i] = region[i];
    const uint32_t start = shared_address(buffer), to = start + beside.a_bytes + beside.b_bytes;
    const uint32_t barriers = shared_address(mbarriers), flag = shared_address(&is_over);
    if (threadIdx.x == 0) {
        is_over = 0;
        for (uint32_t i = 0; i < kNumSlots; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + i * 8) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        seen->has_failed = 0;
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);

    if (warp < 4) {
        // A from registers: rows of 128 bytes; of each 32 a thread holds words of rows g and g + 8, at both halves.
        uint32_t a[kKSteps][4] = {};
        if (Shape::kIsRegisterA) {
            const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
            for (int k = 0; k < kKSteps; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i) a[k][i] = a_rows[(row + i % 2 * 8) * 32 + k * 8 + threadIdx.x % 4 + i / 2 * 4];
        }
        float accumulators[Shape::kNumAccumulators];
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[i] = 0;
        const uint64_t a_start = start >> 4, b_start = (start + beside.a_bytes) >> 4;
        __syncthreads();
        const uint32_t begin = now();
#pragma unroll 1
        for (uint32_t group = 0; group < beside.num_groups; ++group) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < kKSteps; ++k)
                Shape::issue(accumulators, a[k], beside.a_descriptors[k] + a_start, beside.b_descriptors[k] + b_start);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (!beside.num_groups) pace(begin, beside.idle_cycles);
        const uint32_t end = now();
        if (threadIdx.x == 0) {
            asm volatile("st.volatile.shared.u32 [%0], 1;" ::"r"(flag) : "memory");
            seen->train_cycles = end - begin;
        }
#pragma unroll
        for (int i = 0; i < Shape::kNumAccumulators; ++i) d[i * 128 + threadIdx.x] = accumulators[i];
    } else {
        Turns turns = {0, 0, 0, true};
        __syncthreads();
        switch (beside.fill) {
            case kTma:
            case kTmaOutside:
                if (warp == 4 && is_elected()) turns = fill_by_tma(beside, map, to, barriers, flag);
                break;
            case kCpAsync: turns = fill_by_cp_async(beside, reinterpret_cast<const unsigned char *>(region), to, flag); break;
            case kStore: turns = fill_by_stores(beside, to, flag); break;
            case kLoad: turns = read_by_loads(beside, to, flag);
        }
        if (!turns.is_fine) seen->has_failed = 1;
        turns.sum = __reduce_add_sync(0xffffffff, turns.sum);
        const uint32_t cycles = __reduce_max_sync(0xffffffff, turns.cycles), num_turns = __reduce_max_sync(0xffffffff, turns.num_turns);
        if (threadIdx.x % 32 == 0) {
            seen->fill[warp - 4].cycles = cycles;
            seen->fill[warp - 4].num_turns = num_turns;
            seen->fill[warp - 4].sum = turns.sum;
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < kFillBytes / 16; i += kThreads) out[i] = smem[a_16b + b_16b + i];
}

#define BESIDE_KERNEL(shape)                                                                                              \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                             \
        beside_##shape(const __grid_constant__ Beside beside, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows, \
                       const void *map, const uint4 *region, float *d, uint4 *out, Seen *seen) {                          \
        run<shape>(beside, a_image, b_image, a_rows, map, region, d, out, seen);                                          \
    }

#include "shapes.inc"

#endif
