// Asynchronous copies of one CTA between global and shared memory: how long does one take, how many go at once?
//
// Three forms. A train: one thread issues some copies in a row, with the clock after each, and waits for all. A ring: each
// issuer (an elected lane of some warps, or some lanes of one) keeps so many copies in flight, and notes when it issued each
// and saw it done. A multicast: the CTAs of a cluster fill one another's slots. Rounds repeat the same copies; all but the
// last bring data and tensor map near and are not kept. A wait that lasts too long gives up and says so, instead of hanging.

#include <cstdint>

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kNumSamples = 128;  // copies (or groups) of an issuer in a round
constexpr int kMostIssuers = 32;
constexpr int kMostTrain = 32;
constexpr int kMostRounds = 12;   // of a train; every one is kept

struct Copies {
    uint32_t num_bytes;            // of one copy
    uint32_t slot_bytes;           // from slot to slot in shared memory
    uint32_t in_flight;            // slots of an issuer, or of the CTA where it receives multicasts
    uint32_t num_issuers;          // warps, or lanes of one warp
    uint32_t step, width;          // along x: elements of a box and of the tensor; bytes without a tensor map
    uint32_t rows, height;         // along the outermost coordinate: of a box, of the tensor
    uint32_t start;                // tiles from one issuer's first to the next one's
    uint32_t num_copies;           // of a train, of a group of cp.async; CTAs that issue multicasts
    uint32_t source_bytes;         // of the image that stores start from
    uint32_t dump_bytes;           // of shared memory, to be copied out
    uint32_t num_rounds;           // not known to the compiler, which would unroll them: code that runs once is cold
};

struct Stamps {
    uint32_t issued, done;
};

// What comes back: when a ring's copies were issued and done, by issuer; or a train's clock.
struct Times {
    uint32_t has_failed, drain_cycles, clock_cycles, unused;
    union {
        Stamps ring[kMostIssuers][kNumSamples];
        uint32_t train[kMostRounds][kMostTrain + 4];  // before, after each, (read,) done
    };
};

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// To shared memory by a 32-bit address that was worked out before the loop.
__device__ __forceinline__ void note(uint32_t address, uint32_t cycle) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(cycle) : "memory");
}

constexpr uint32_t kDone = 4, kNext = 8;  // in Stamps: bytes to `done`, to the next copy's

// The address of shared memory, in a register: the compiler cannot work it out anew where the clock runs.
__device__ __forceinline__ uint32_t buffer_address() {
    uint32_t address = shared_address(buffer);
    asm volatile("" : "+r"(address));
    return address;
}

__device__ __forceinline__ void dump(const Copies &copies, uint4 *out) {
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < copies.dump_bytes / 16; i += blockDim.x) out[i] = reinterpret_cast<const uint4 *>(buffer)[i];
}

// ------------------------------------------------------------------------------------------------ cp.async

template <int kBytes, bool kIsCg>
__device__ __forceinline__ void cp_async(uint32_t to, const unsigned char *from) {
    if (kIsCg)
        asm volatile("cp.async.cg.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(kBytes) : "memory");
}

__device__ __forceinline__ void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kPending>
__device__ __forceinline__ void cp_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

template <int kBytes, bool kIsCg, int kNum>
__device__ __forceinline__ void cp_train(const Copies &copies, const unsigned char *from, Times *times) {
    const uint32_t to = buffer_address() + threadIdx.x * kBytes;
    from += threadIdx.x * kBytes;
#pragma unroll 1
    for (uint32_t round = 0; round < copies.num_rounds; ++round) {
        uint32_t stamp[kNum + 1];
        __syncwarp();
        stamp[0] = now();
#pragma unroll
        for (int i = 0; i < kNum; ++i) {
            cp_async<kBytes, kIsCg>(to + i * 32 * kBytes, from + i * 32 * kBytes);
            stamp[i + 1] = now();
        }
        cp_commit();
        cp_wait<0>();
        const uint32_t done = now();
        if (threadIdx.x == 0) {
#pragma unroll
            for (int i = 0; i <= kNum; ++i) times->train[round][i] = stamp[i];
            times->train[round][kNum + 1] = done;
        }
    }
}

// Each warp keeps kDepth groups in flight; every warp instruction moves 32 * kBytes in a row.
template <int kBytes, bool kIsCg, int kDepth, int kCopies>
__device__ __forceinline__ void cp_ring(const Copies &copies, const unsigned char *from, Stamps (*stamps)[kNumSamples]) {
    constexpr uint32_t kWarpBytes = 32 * kBytes;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t to = buffer_address() + warp * kDepth * kCopies * kWarpBytes + lane * kBytes;
    const uint32_t stamp = shared_address(stamps[warp]);
    const uint32_t mask = copies.width - 1, stride = copies.num_issuers * kWarpBytes;
#pragma unroll 1
    for (uint32_t i = threadIdx.x * 32; i < copies.width; i += blockDim.x * 32)  // into L2, and not into L1
        asm volatile("{ .reg .b32 word; ld.global.cg.u32 word, [%0]; }" ::"l"(from + i) : "memory");
    from += lane * kBytes;
    uint32_t offset = warp * kWarpBytes;  // goes on from round to round: what is not small is not in L1
#pragma unroll 1
    for (uint32_t round = 0; round < copies.num_rounds; ++round) {
        uint32_t slot = 0, issued[kDepth];
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < kNumSamples / kDepth; ++i) {
#pragma unroll
            for (int j = 0; j < kDepth; ++j) {  // unrolled, so that stamps stay in registers
                const uint32_t before = now();
#pragma unroll
                for (int k = 0; k < kCopies; ++k) {
                    cp_async<kBytes, kIsCg>(to + (slot * kCopies + k) * kWarpBytes, from + offset);
                    offset = (offset + stride) & mask;
                }
                cp_commit();
                slot = slot + 1 == kDepth ? 0 : slot + 1;
                cp_wait<kDepth - 1>();  // all but the last kDepth - 1: the group before those is done
                const uint32_t done = now();
                const int other = i * kDepth + j - (kDepth - 1);  // which one that was
                issued[j] = before;
                if (lane == 0 && other >= 0) {
                    note(stamp + other * kNext, issued[(j + 1) % kDepth]);
                    note(stamp + other * kNext + kDone, done);
                }
            }
        }
        cp_wait<0>();
        const uint32_t done = now();
#pragma unroll
        for (int j = 0; j < kDepth - 1; ++j)
            if (lane == 0) stamps[warp][kNumSamples - kDepth + 1 + j] = {issued[j + 1], done};
    }
}

template <int kBytes, bool kIsCg>
__device__ __forceinline__ void cp_trains(const Copies &copies, const unsigned char *from, uint4 *out, Times *times) {
    switch (copies.num_copies) {
        case 1: cp_train<kBytes, kIsCg, 1>(copies, from, times); break;
        case 2: cp_train<kBytes, kIsCg, 2>(copies, from, times); break;
        case 4: cp_train<kBytes, kIsCg, 4>(copies, from, times); break;
        case 8: cp_train<kBytes, kIsCg, 8>(copies, from, times); break;
        case 16: cp_train<kBytes, kIsCg, 16>(copies, from, times); break;
        default: cp_train<kBytes, kIsCg, 32>(copies, from, times);
    }
    __syncthreads();
    if (threadIdx.x == 0) times->has_failed = 0;
    dump(copies, out);
}

template <int kBytes, bool kIsCg, int kCopies>
__device__ __forceinline__ void cp_rings_of(const Copies &copies, const unsigned char *from, Stamps (*stamps)[kNumSamples]) {
    switch (copies.in_flight) {
        case 1: cp_ring<kBytes, kIsCg, 1, kCopies>(copies, from, stamps); break;
        case 2: cp_ring<kBytes, kIsCg, 2, kCopies>(copies, from, stamps); break;
        case 4: cp_ring<kBytes, kIsCg, 4, kCopies>(copies, from, stamps); break;
        default: cp_ring<kBytes, kIsCg, 8, kCopies>(copies, from, stamps);
    }
}

template <int kBytes, bool kIsCg>
__device__ __forceinline__ void cp_rings(const Copies &copies, const unsigned char *from, uint4 *out, Times *times) {
    __shared__ Stamps stamps[kMostIssuers][kNumSamples];
    if (copies.num_copies == 1)
        cp_rings_of<kBytes, kIsCg, 1>(copies, from, stamps);
    else
        cp_rings_of<kBytes, kIsCg, 4>(copies, from, stamps);
    __syncthreads();
    if (threadIdx.x == 0) times->has_failed = 0;
    for (uint32_t i = threadIdx.x; i < copies.num_issuers * kNumSamples; i += blockDim.x) times->ring[0][i] = stamps[0][i];
    dump(copies, out);
}

#define CP_ASYNC_KERNELS(name, bytes, is_cg)                                                                            \
    extern "C" __global__ void __launch_bounds__(32)                                                                    \
        train_cp_async_##name(const __grid_constant__ Copies copies, const unsigned char *from, uint4 *out, Times *times) { \
        cp_trains<bytes, is_cg>(copies, from, out, times);                                                              \
    }                                                                                                                   \
    extern "C" __global__ void __launch_bounds__(512)                                                                   \
        ring_cp_async_##name(const __grid_constant__ Copies copies, const unsigned char *from, uint4 *out, Times *times) { \
        cp_rings<bytes, is_cg>(copies, from, out, times);                                                               \
    }

CP_ASYNC_KERNELS(ca4, 4, false)
CP_ASYNC_KERNELS(ca8, 8, false)
CP_ASYNC_KERNELS(ca16, 16, false)
CP_ASYNC_KERNELS(cg16, 16, true)

#if __CUDA_ARCH__ >= 900

constexpr int kMostInFlight = 16;
constexpr int kPatience = 1 << 18;  // tries of a wait

// ------------------------------------------------------------------------------------------------ bulk copies

__device__ __forceinline__ void init_mbarrier(uint32_t barrier, uint32_t num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(num_arrivals) : "memory");
}

__device__ __forceinline__ void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void arrive_expect_tx(uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

__device__ __forceinline__ bool try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(is_done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return is_done;
}

// By all lanes of a warp: where others of them stand apart, a lone lane looks only every 150 to 200 cycles (seen on an H200).
__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (int tries = 0; tries < kPatience; ++tries)
        if (try_wait(barrier, parity)) return true;
    return false;
}

__device__ __forceinline__ bool is_elected() {
    uint32_t is_chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_chosen)::"memory");
    return is_chosen;
}

__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

template <int kPending, bool kIsRead>
__device__ __forceinline__ void bulk_wait() {
    if (kIsRead)
        asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
    else
        asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

// One copy of a kind: how it is issued, at (x, y); y is the outermost coordinate.
#define LOAD "cp.async.bulk.tensor."
#define LOAD_END ".shared::cluster.global.mbarrier::complete_tx::bytes "
#define STORE_END ".global.shared::cta.bulk_group "

struct Bulk {
    static constexpr bool kIsLinear = true;
    static __device__ __forceinline__ void load(uint32_t to, const void *from, uint32_t x, uint32_t, uint32_t num_bytes, uint32_t barrier) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(static_cast<const unsigned char *>(from) + x), "r"(num_bytes), "r"(barrier)
                     : "memory");
    }
    static __device__ __forceinline__ void store(void *to, uint32_t from, uint32_t x, uint32_t, uint32_t num_bytes) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(static_cast<unsigned char *>(to) + x),
                     "r"(from), "r"(num_bytes)
                     : "memory");
    }
};

struct Tensor1d {
    static constexpr bool kIsLinear = true;
    static __device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t x, uint32_t, uint32_t, uint32_t barrier) {
        asm volatile(LOAD "1d" LOAD_END "[%0], [%1, {%2}], [%3];" ::"r"(to), "l"(map), "r"(x), "r"(barrier) : "memory");
    }
    static __device__ __forceinline__ void store(void *map, uint32_t from, uint32_t x, uint32_t, uint32_t) {
        asm volatile(LOAD "1d" STORE_END "[%0, {%1}], [%2];" ::"l"(map), "r"(x), "r"(from) : "memory");
    }
};

struct Tensor2d {
    static constexpr bool kIsLinear = false;
    static __device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t x, uint32_t y, uint32_t, uint32_t barrier) {
        asm volatile(LOAD "2d" LOAD_END "[%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
    }
    static __device__ __forceinline__ void store(void *map, uint32_t from, uint32_t x, uint32_t y, uint32_t) {
        asm volatile(LOAD "2d" STORE_END "[%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y), "r"(from) : "memory");
    }
};

struct Tensor3d {
    static constexpr bool kIsLinear = false;
    static __device__ __forceinline__ void load(uint32_t to, const void *map, uint32_t x, uint32_t y, uint32_t, uint32_t barrier) {
        asm volatile(LOAD "3d" LOAD_END "[%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(map), "r"(x), "r"(0), "r"(y), "r"(barrier)
                     : "memory");
    }
    static __device__ __forceinline__ void store(void *map, uint32_t from, uint32_t x, uint32_t y, uint32_t) {
        asm volatile(LOAD "3d" STORE_END "[%0, {%1, %2, %3}], [%4];" ::"l"(map), "r"(x), "r"(0), "r"(y), "r"(from) : "memory");
    }
};

struct Reduce2d {
    static __device__ __forceinline__ void store(void *map, uint32_t from, uint32_t x, uint32_t y, uint32_t) {
        asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
                     "r"(from)
                     : "memory");
    }
};

#define BULK_REDUCE(name, type)                                                                                       \
    struct name {                                                                                                     \
        static __device__ __forceinline__ void store(void *to, uint32_t from, uint32_t x, uint32_t, uint32_t num_bytes) { \
            asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add" type " [%0], [%1], %2;" ::"l"(      \
                             static_cast<unsigned char *>(to) + x),                                                   \
                         "r"(from), "r"(num_bytes)                                                                    \
                         : "memory");                                                                                 \
        }                                                                                                             \
    };

BULK_REDUCE(ReduceU32, ".u32")
BULK_REDUCE(ReduceF32, ".f32")
BULK_REDUCE(ReduceBf16, ".noftz.bf16")

// Tile by tile along x, then along the outermost coordinate, then from the beginning.
struct Walk {
    uint32_t x, y;
    __device__ __forceinline__ Walk(const Copies &copies, uint32_t tile) {
        const uint32_t per_row = copies.width / copies.step, num_rows = copies.height / copies.rows;
        x = tile % per_row * copies.step;
        y = tile / per_row % num_rows * copies.rows;
    }
    __device__ __forceinline__ void next(const Copies &copies) {
        x += copies.step;
        if (x == copies.width) {
            x = 0;
            y += copies.rows;
            if (y == copies.height) y = 0;
        }
    }
};

// ------------------------------------------------------------------------------------------------ loads

// By a warp: the lane that `issues` does so, and all wait.
template <class Kind, int kNum>
__device__ __forceinline__ bool load_train(const Copies &copies, const void *from, uint32_t barrier, bool issues, Times *times) {
    const uint32_t to = buffer_address();
#pragma unroll 1
    for (uint32_t round = 0; round < copies.num_rounds; ++round) {
        uint32_t stamp[kNum + 1];
        if (issues) {
            arrive_expect_tx(barrier, kNum * copies.num_bytes);
            stamp[0] = now();
#pragma unroll
            for (int i = 0; i < kNum; ++i) {
                Kind::load(to + i * copies.slot_bytes, from, Kind::kIsLinear ? i * copies.step : 0, Kind::kIsLinear ? 0 : i * copies.rows, copies.num_bytes, barrier);
                stamp[i + 1] = now();
            }
        }
        __syncwarp();
        if (!wait(barrier, round & 1)) return false;
        const uint32_t done = now();
        if (issues) {
#pragma unroll
            for (int i = 0; i <= kNum; ++i) times->train[round][i] = stamp[i];
            times->train[round][kNum + 1] = done;
        }
        __syncwarp();
    }
    return true;
}

template <class Kind>
__device__ __forceinline__ void load_trains(const Copies &copies, const void *from, uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t mbarrier;
    uint32_t barrier = shared_address(&mbarrier);
    asm volatile("" : "+r"(barrier));
    if (threadIdx.x / 32 == 0) {
        const bool issues = is_elected();
        if (issues) {
            init_mbarrier(barrier, 1);
            fence_init();
            uint32_t reading[9];
#pragma unroll
            for (int i = 0; i < 9; ++i) reading[i] = now();
            times->clock_cycles = reading[8] - reading[0];  // of eight readings
#pragma unroll
            for (int i = 0; i < 9; ++i) times->train[0][i] = reading[i];  // so that none is left out; the first round writes over it
        }
        __syncwarp();
        bool is_fine = false;
        switch (copies.num_copies) {
            case 1: is_fine = load_train<Kind, 1>(copies, from, barrier, issues, times); break;
            case 2: is_fine = load_train<Kind, 2>(copies, from, barrier, issues, times); break;
            case 4: is_fine = load_train<Kind, 4>(copies, from, barrier, issues, times); break;
            case 8: is_fine = load_train<Kind, 8>(copies, from, barrier, issues, times); break;
            case 16: is_fine = load_train<Kind, 16>(copies, from, barrier, issues, times); break;
            default: is_fine = load_train<Kind, 32>(copies, from, barrier, issues, times);
        }
        if (issues) times->has_failed = !is_fine;
    }
    __syncthreads();
    dump(copies, out);
}

// kIsElected: an issuer is the elected lane of a warp, all of which waits; otherwise a lane of warp 0, which waits alone.
template <class Kind, bool kIsElected>
__device__ __forceinline__ void load_ring(const Copies &copies, const void *from, uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t mbarriers[kMostIssuers * kMostInFlight];
    __shared__ Stamps stamps[kMostIssuers][kNumSamples];
    __shared__ uint32_t has_failed;
    if (threadIdx.x == 0) {
        has_failed = 0;
        for (uint32_t i = 0; i < copies.num_issuers * copies.in_flight; ++i) init_mbarrier(shared_address(mbarriers + i), 1);
        fence_init();
    }
    __syncthreads();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const uint32_t issuer = kIsElected ? warp : threadIdx.x;
    const bool issues = kIsElected ? is_elected() : true;
    if (issuer < copies.num_issuers) {
        const uint32_t depth = copies.in_flight;
        const uint32_t to = buffer_address() + issuer * depth * copies.slot_bytes;
        const uint32_t barrier = shared_address(mbarriers + issuer * depth);
        const uint32_t stamp = shared_address(stamps[issuer]);
        uint32_t slot = 0, parity = 0;
        bool is_fine = true;
#pragma unroll 1
        for (uint32_t round = 0; round < copies.num_rounds && is_fine; ++round) {
            Walk walk(copies, issuer * copies.start);
            if (issues) {
#pragma unroll 1
                for (uint32_t i = 0; i < depth; ++i) {
                    arrive_expect_tx(barrier + i * 8, copies.num_bytes);
                    note(stamp + i * kNext, now());
                    Kind::load(to + i * copies.slot_bytes, from, walk.x, walk.y, copies.num_bytes, barrier + i * 8);
                    walk.next(copies);
                }
            }
            if (kIsElected) __syncwarp();
#pragma unroll 1
            for (uint32_t i = 0; i < kNumSamples; ++i) {
                if (!wait(barrier + slot * 8, parity)) {
                    is_fine = false;
                    break;
                }
                if (issues) {
                    note(stamp + i * kNext + kDone, now());
                    if (i + depth < kNumSamples) {
                        arrive_expect_tx(barrier + slot * 8, copies.num_bytes);
                        note(stamp + (i + depth) * kNext, now());
                        Kind::load(to + slot * copies.slot_bytes, from, walk.x, walk.y, copies.num_bytes, barrier + slot * 8);
                        walk.next(copies);
                    }
                }
                if (kIsElected) __syncwarp();
                if (++slot == depth) {
                    slot = 0;
                    parity ^= 1;
                }
            }
        }
        if (!is_fine) has_failed = 1;
    }
    __syncthreads();
    if (threadIdx.x == 0) times->has_failed = has_failed;
    for (uint32_t i = threadIdx.x; i < copies.num_issuers * kNumSamples; i += blockDim.x) times->ring[0][i] = stamps[0][i];
    dump(copies, out);
}

#define LOAD_KERNELS(name, kind)                                                                                             \
    extern "C" __global__ void __launch_bounds__(128)                                                                        \
        train_load_##name(const __grid_constant__ Copies copies, const void *from, uint4 *out, Times *times) {               \
        load_trains<kind>(copies, from, out, times);                                                                         \
    }                                                                                                                        \
    extern "C" __global__ void __launch_bounds__(256)                                                                        \
        ring_load_##name(const __grid_constant__ Copies copies, const void *from, uint4 *out, Times *times) {                \
        load_ring<kind, true>(copies, from, out, times);                                                                     \
    }

LOAD_KERNELS(bulk, Bulk)
LOAD_KERNELS(1d, Tensor1d)
LOAD_KERNELS(2d, Tensor2d)
LOAD_KERNELS(3d, Tensor3d)

extern "C" __global__ void __launch_bounds__(128)
    lanes_load_2d(const __grid_constant__ Copies copies, const void *from, uint4 *out, Times *times) {
    load_ring<Tensor2d, false>(copies, from, out, times);
}

// ------------------------------------------------------------------------------------------------ stores

// The source lies in every slot; the tensor map, where there is one, is the host's with another address: that of `to`.
__device__ __forceinline__ void prepare_stores(const Copies &copies, const uint4 *source, const uint32_t *map, unsigned char *to, uint32_t *made) {
    __shared__ __align__(128) uint32_t staged[32];
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < copies.source_bytes / 16; i += blockDim.x) reinterpret_cast<uint4 *>(buffer)[i] = source[i];
    if (map != nullptr && threadIdx.x < 32) {
        staged[threadIdx.x] = map[threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0)
            asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(shared_address(staged)), "l"(to)
                         : "memory");
        __syncwarp();
        asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(made),
                     "r"(shared_address(staged))
                     : "memory");
    }
    fence_async();
    __syncthreads();
    if (map != nullptr) asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(made) : "memory");
}

template <class Kind, int kNum>
__device__ __forceinline__ void store_train(const Copies &copies, void *to, Times *times) {
    const uint32_t from = buffer_address();
#pragma unroll 1
    for (uint32_t round = 0; round < copies.num_rounds; ++round) {
        uint32_t stamp[kNum + 1];
        stamp[0] = now();
#pragma unroll
        for (int i = 0; i < kNum; ++i) {
            Kind::store(to, from + i * copies.slot_bytes, Kind::kIsLinear ? i * copies.step : 0, Kind::kIsLinear ? 0 : i * copies.rows, copies.num_bytes);
            stamp[i + 1] = now();
        }
        bulk_commit();
        bulk_wait<0, true>();
        const uint32_t read = now();
        bulk_wait<0, false>();
        const uint32_t done = now();
#pragma unroll
        for (int i = 0; i <= kNum; ++i) times->train[round][i] = stamp[i];
        times->train[round][kNum + 1] = read;
        times->train[round][kNum + 2] = done;
    }
}

template <class Kind>
__device__ __forceinline__ void store_trains(const Copies &copies, const uint4 *source, const uint32_t *map, unsigned char *to, uint32_t *made, Times *times) {
    prepare_stores(copies, source, map, to, made);
    void *where = map == nullptr ? static_cast<void *>(to) : made;
    if (threadIdx.x / 32 == 0 && is_elected()) {
        switch (copies.num_copies) {
            case 1: store_train<Kind, 1>(copies, where, times); break;
            case 2: store_train<Kind, 2>(copies, where, times); break;
            case 4: store_train<Kind, 4>(copies, where, times); break;
            case 8: store_train<Kind, 8>(copies, where, times); break;
            case 16: store_train<Kind, 16>(copies, where, times); break;
            default: store_train<Kind, 32>(copies, where, times);
        }
        times->has_failed = 0;
    }
}

template <class Kind, bool kIsRead, int kDepth>
__device__ __forceinline__ void store_ring(const Copies &copies, void *to, uint32_t stamp, uint32_t issuer) {
    const uint32_t from = buffer_address() + issuer * kDepth * copies.slot_bytes;
#pragma unroll 1
    for (uint32_t round = 0; round < copies.num_rounds; ++round) {
        Walk walk(copies, issuer * copies.start);
        uint32_t slot = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < kNumSamples; ++i) {
            note(stamp + i * kNext, now());
            Kind::store(to, from + slot, walk.x, walk.y, copies.num_bytes);
            bulk_commit();
            walk.next(copies);
            slot += copies.slot_bytes;
            if (slot == kDepth * copies.slot_bytes) slot = 0;
            bulk_wait<kDepth - 1, kIsRead>();
            note(stamp + i * kNext + kDone, now());  // of the copy kDepth - 1 before this one
        }
        bulk_wait<0, false>();
    }
}

template <class Kind, bool kIsRead>
__device__ __forceinline__ void store_rings(const Copies &copies, const uint4 *source, const uint32_t *map, unsigned char *to, uint32_t *made, Times *times) {
    __shared__ Stamps stamps[kMostIssuers][kNumSamples];
    prepare_stores(copies, source, map, to, made);
    void *where = map == nullptr ? static_cast<void *>(to) : made;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp < copies.num_issuers && is_elected()) {
        const uint32_t stamp = shared_address(stamps[warp]);
        switch (copies.in_flight) {
            case 1: store_ring<Kind, kIsRead, 1>(copies, where, stamp, warp); break;
            case 2: store_ring<Kind, kIsRead, 2>(copies, where, stamp, warp); break;
            case 4: store_ring<Kind, kIsRead, 4>(copies, where, stamp, warp); break;
            case 8: store_ring<Kind, kIsRead, 8>(copies, where, stamp, warp); break;
            default: store_ring<Kind, kIsRead, 16>(copies, where, stamp, warp);
        }
        const uint32_t end = now();
        if (warp == 0) times->drain_cycles = end - stamps[0][kNumSamples - 1].done;
    }
    __syncthreads();
    if (threadIdx.x == 0) times->has_failed = 0;
    for (uint32_t i = threadIdx.x; i < copies.num_issuers * kNumSamples; i += blockDim.x) times->ring[0][i] = stamps[0][i];
}

#define STORE_ARGUMENTS \
    const __grid_constant__ Copies copies, const uint4 *source, const uint32_t *map, unsigned char *to, uint32_t *made, Times *times
#define STORE_RING(name, kind, is_read)                                         \
    extern "C" __global__ void __launch_bounds__(256) name(STORE_ARGUMENTS) {   \
        store_rings<kind, is_read>(copies, source, map, to, made, times);       \
    }
#define STORE_KERNELS(name, kind)                                                          \
    extern "C" __global__ void __launch_bounds__(128) train_store_##name(STORE_ARGUMENTS) { \
        store_trains<kind>(copies, source, map, to, made, times);                          \
    }                                                                                      \
    STORE_RING(ring_store_read_##name, kind, true)                                         \
    STORE_RING(ring_store_done_##name, kind, false)

STORE_KERNELS(bulk, Bulk)
STORE_KERNELS(1d, Tensor1d)
STORE_KERNELS(2d, Tensor2d)
STORE_KERNELS(3d, Tensor3d)
STORE_RING(ring_reduce_2d, Reduce2d, false)
STORE_RING(ring_reduce_bulk_u32, ReduceU32, false)
STORE_RING(ring_reduce_bulk_fp32, ReduceF32, false)
STORE_RING(ring_reduce_bulk_bf16, ReduceBf16, false)

// ------------------------------------------------------------------------------------------------ multicast

__device__ __forceinline__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

__device__ __forceinline__ void arrive_at(uint32_t barrier, uint32_t rank) {
    asm volatile(
        "{ .reg .b32 far; mapa.shared::cluster.u32 far, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [far]; }" ::"r"(barrier),
        "r"(rank)
        : "memory");
}

// A slot holds a box of each issuing CTA, one after the other; every issuing CTA sends its box to all. Warp 0 arms and issues,
// warp 1 waits, and tells the producers of all CTAs that the slot is free.
template <int kClusterSize>
__device__ __forceinline__ void multicast(const Copies &copies, const void *map, uint4 *out, Times *times) {
    __shared__ __align__(8) uint64_t full[kMostInFlight], empty[kMostInFlight];
    __shared__ Stamps stamps[kNumSamples];
    __shared__ uint32_t has_failed;
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        has_failed = 0;
        for (uint32_t i = 0; i < copies.in_flight; ++i) {
            init_mbarrier(shared_address(full + i), 1);
            init_mbarrier(shared_address(empty + i), kClusterSize);
        }
        fence_init();
    }
    __syncthreads();
    cluster_sync();
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    const uint32_t num_stages = copies.num_rounds * kNumSamples;
    uint32_t stamp = shared_address(stamps), full_at = shared_address(full), empty_at = shared_address(empty);
    asm volatile("" : "+r"(stamp), "+r"(full_at), "+r"(empty_at));
    if (warp == 0) {
        uint32_t slot = 0, parity = 1, y = rank * copies.rows;
        const uint32_t to = buffer_address() + rank * copies.num_bytes;
        const bool is_chosen = is_elected(), issues = rank < copies.num_copies;
#pragma unroll 1
        for (uint32_t i = 0; i < num_stages; ++i) {
            if (!wait(empty_at + slot * 8, parity)) {
                has_failed = 1;
                break;
            }
            if (is_chosen) {
                arrive_expect_tx(full_at + slot * 8, copies.num_copies * copies.num_bytes);
                note(stamp + i % kNumSamples * kNext, now());
                if (issues)
                    asm volatile(
                        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
                        "[%4], %5;" ::"r"(to + slot * copies.slot_bytes),
                        "l"(map), "r"(0), "r"(y), "r"(full_at + slot * 8), "h"(static_cast<uint16_t>((1u << kClusterSize) - 1))
                        : "memory");
            }
            __syncwarp();
            y += copies.num_copies * copies.rows;
            if (y >= copies.height) y -= copies.height;
            if (++slot == copies.in_flight) {
                slot = 0;
                parity ^= 1;
            }
        }
    }
    if (warp == 1) {
        uint32_t slot = 0, parity = 0;
#pragma unroll 1
        for (uint32_t i = 0; i < num_stages; ++i) {
            const bool is_fine = wait(full_at + slot * 8, parity);
            if (lane == 0) note(stamp + i % kNumSamples * kNext + kDone, now());
            if (!is_fine) {
                has_failed = 1;
                break;
            }
            __syncwarp();
            if (lane < kClusterSize) arrive_at(empty_at + slot * 8, lane);
            if (++slot == copies.in_flight) {
                slot = 0;
                parity ^= 1;
            }
        }
    }
    __syncthreads();
    if (threadIdx.x == 0 && rank == 0) times->has_failed = 0;
    cluster_sync();
    if (threadIdx.x == 0 && has_failed) times->has_failed = 1;
    for (uint32_t i = threadIdx.x; i < kNumSamples; i += blockDim.x) times->ring[rank][i] = stamps[i];
    dump(copies, out + rank * (copies.dump_bytes / 16));
}

#define MULTICAST_KERNEL(size)                                                                              \
    extern "C" __global__ void __cluster_dims__(size, 1, 1) __launch_bounds__(128)                          \
        multicast_##size(const __grid_constant__ Copies copies, const void *map, uint4 *out, Times *times) { \
        multicast<size>(copies, map, out, times);                                                           \
    }

MULTICAST_KERNEL(2)
MULTICAST_KERNEL(4)
MULTICAST_KERNEL(8)
MULTICAST_KERNEL(16)

#endif
