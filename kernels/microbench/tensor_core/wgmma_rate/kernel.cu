// Trains of wgmma of one shape: how long is one alone, how many in a row, when does the warp that issues them stall?
//
// `shapes.inc` is written by case.py: a struct for each shape with its one instruction, and kernels. Accumulators are PTX
// registers that a kernel declares once, so that the C++ compiler need not carry 128 of them past every instruction, which
// takes it most of a minute. One CTA: the first warpgroups multiply, all of them at once; the warps behind them load from
// shared memory until the trains are through, as hard as they are told to. Operands come as images of shared memory, laid
// out by the host, and are copied in verbatim.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kGroupThreads = 128;
constexpr int kMostThreads = 384;
constexpr int kMostSteps = 4;      // of 32 bytes of k that an image holds
constexpr int kStreamWgmmas = 4;   // of a group where nothing waits
constexpr int kIssued = 8;         // wgmma in a row whose issue is timed
constexpr int kStamps = kIssued + 2;
constexpr int kTrafficBatch = 8;   // loads of a warp between two looks at the clock
constexpr int kFences = 8;         // of a round

__device__ __forceinline__ int64_t clock_now() {
    int64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

struct Trains {
    uint64_t a_descriptor, b_descriptor;  // start address: bytes from the operand's image, over 16
    uint32_t a_step, b_step;              // from one 32 bytes of k to the next, over 16
    uint32_t a_bytes, b_bytes;            // of the images; multiples of 1024
    uint32_t num_groups, is_own;          // warpgroups that multiply; whether each has operands of its own
    uint32_t num_trains, has_one;         // whether trains are of lone wgmma, each waited for
    uint32_t traffic_ways, traffic_gap;   // wavefronts of each load beside; cycles from one batch to the next
};

// The same word, which the compiler works out once, and not again in every round of a loop.
__device__ __forceinline__ uint64_t settled(uint64_t word) {
    uint64_t same;
    asm volatile("mov.b64 %0, %1;" : "=l"(same) : "l"(word));
    return same;
}

struct Place {
    uint32_t group, thread;  // warpgroup; thread in it
    uint64_t a, b;           // descriptors
};

// Operands into shared memory; returns where this warpgroup finds them.
__device__ __forceinline__ Place prepare(const Trains &trains, const uint4 *a_image, const uint4 *b_image) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
    const uint32_t a_words = trains.a_bytes / 16, b_words = trains.b_bytes / 16, both = a_words + b_words;
    const uint32_t num_copies = trains.is_own ? trains.num_groups : 1;
#pragma unroll 1
    for (uint32_t copy = 0; copy < num_copies; ++copy) {
#pragma unroll 1
        for (uint32_t i = threadIdx.x; i < both; i += blockDim.x)
            smem[copy * both + i] = i < a_words ? a_image[i] : b_image[i - a_words];
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    Place place;
    place.group = __shfl_sync(0xffffffff, threadIdx.x / kGroupThreads, 0);
    place.thread = threadIdx.x % kGroupThreads;
    const uint32_t start = static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) / 16 + (trains.is_own ? place.group * both : 0);
    place.a = trains.a_descriptor + start;
    place.b = trains.b_descriptor + start + a_words;
    return place;
}

// A from registers: rows of 32 bytes; a thread holds words of rows g and g + 8, at both halves of the row.
template <class Shape>
__device__ __forceinline__ void load_a(uint32_t (&a)[4], const uint32_t *a_rows, uint32_t thread) {
    const uint32_t row = thread / 32 * 16 + thread % 32 / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = Shape::kIsRegisterA ? a_rows[(row + i % 2 * 8) * 8 + thread % 4 + i / 2 * 4] : 0;
}

// Warps beside: batches of loads, `traffic_gap` cycles apart at least, until every warpgroup has said that it is done.
__device__ __forceinline__ void load_beside(const Trains &trains, uint32_t *num_done, int64_t *told) {
    const uint32_t images = (trains.is_own ? trains.num_groups : 1) * (trains.a_bytes + trains.b_bytes);
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) + images + 4 * trains.traffic_ways * lane;
    const uint32_t flag = static_cast<uint32_t>(__cvta_generic_to_shared(num_done));
    const int64_t began = clock_now();
    int64_t next = began, ended = began;
    uint32_t num_batches = 0, sum = 0, is_done = 0;
#pragma unroll 1
    while (!is_done) {
        uint32_t words[kTrafficBatch];
#pragma unroll
        for (int i = 0; i < kTrafficBatch; ++i) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(words[i]) : "r"(address));
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(is_done) : "r"(flag));
#pragma unroll
        for (int i = 0; i < kTrafficBatch; ++i) sum += words[i];
        is_done = is_done >= trains.num_groups;
        if (trains.num_groups == 0) is_done = num_batches >= 1000;
        ++num_batches;
        next += trains.traffic_gap;
        do ended = clock_now();
        while (ended < next);
    }
    if (lane == 0) {
        told[0] = num_batches;
        told[1] = ended - began;
        told[2] = sum;
    }
}

// A barrier of the threads of so many warpgroups, which none passes before its `word` is there.
__device__ __forceinline__ void meet(uint32_t num_groups, uint32_t word) {
    asm volatile(
        "{ .reg .pred p, q; setp.eq.u32 p, %0, 0x9e3779b9; barrier.cta.red.or.pred q, 1, %1, p; }" ::"r"(word),
        "r"(kGroupThreads * num_groups)
        : "memory");
}

// What this thread has of the product.
template <class Shape>
__device__ __forceinline__ void store(const Place &place, uint32_t *d) {
    Shape::store(d + (place.group * kGroupThreads + place.thread) * Shape::kNumAccumulators);
}

// Trains of `kWgmmas` a group; `kPending` groups may run on behind each wait, or all where it is negative.
template <class Shape, int kWgmmas, int kPending>
__device__ __forceinline__ void train(const Trains &trains, const Place &place, const uint32_t (&a)[4], const uint32_t *lengths,
                                      int64_t *times) {
    uint64_t a_steps[kMostSteps], b_steps[kMostSteps];
#pragma unroll
    for (int i = 0; i < kMostSteps; ++i) {
        a_steps[i] = settled(place.a + i * trains.a_step);
        b_steps[i] = settled(place.b + i * trains.b_step);
    }
    uint32_t number = 0;
#pragma unroll 1
    do {
        const uint32_t length = lengths[number];
        meet(trains.num_groups, length);
        uint32_t group = 0;
        const int64_t began = clock_now();
#pragma unroll 1
        do {  // a train has a group at least
            fence();
#pragma unroll
            for (int i = 0; i < kWgmmas; ++i)  // the first one of a train takes no sums
                Shape::issue(a, a_steps[i % kMostSteps], b_steps[i % kMostSteps], i > 0 || group > 0);
            commit();
            if (kPending >= 0) wait < kPending<0 ? 0 : kPending>();
        } while (++group < length);
        wait<0>();
        const int64_t ended = clock_now();
        if (place.thread % 32 == 0) {
            int64_t *mine = times + 2 * (4 * (number * trains.num_groups + place.group) + place.thread / 32);
            mine[0] = began;
            mine[1] = ended;
        }
    } while (++number < trains.num_trains);
}

template <class Shape, bool kHasOne, bool kHasTraffic>
__device__ __forceinline__ void run(const Trains &trains, const uint32_t *lengths, const uint4 *a_image, const uint4 *b_image,
                                    const uint32_t *a_rows, uint32_t *d, int64_t *times, int64_t *traffic) {
    __shared__ uint32_t num_done;
    const Place place = prepare(trains, a_image, b_image);
    if (threadIdx.x == 0) num_done = 0;
    __syncthreads();
    if (kHasTraffic && place.group >= trains.num_groups) {
        load_beside(trains, &num_done, traffic + 3 * (threadIdx.x / 32 - 4 * trains.num_groups));
        return;
    }
    uint32_t a[4];
    load_a<Shape>(a, a_rows, place.thread);
    Shape::declare();
    if (kHasOne && trains.has_one) train<Shape, 1, 0>(trains, place, a, lengths, times);
    else train<Shape, kStreamWgmmas, -1>(trains, place, a, lengths, times);
    store<Shape>(place, d);
    if (kHasTraffic && place.thread == 0) atomicAdd(&num_done, 1);
}

template <class Shape, int kWgmmas, int kPending>
__device__ __forceinline__ void wait_behind(const Trains &trains, const uint32_t *lengths, const uint4 *a_image,
                                            const uint4 *b_image, const uint32_t *a_rows, uint32_t *d,
                                            int64_t *times) {
    const Place place = prepare(trains, a_image, b_image);
    __syncthreads();
    uint32_t a[4];
    load_a<Shape>(a, a_rows, place.thread);
    Shape::declare();
    train<Shape, kWgmmas, kPending>(trains, place, a, lengths, times);
    store<Shape>(place, d);
}

// Eight wgmma in a row, each in a group of its own or all in one: the clock before the fence, after each wgmma (with its
// commit, which is no instruction but a mark on the wgmma), and after the wait.
template <class Shape, bool kHasGroups>
__device__ __forceinline__ void issue(const Trains &trains, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows,
                                      uint32_t *d, int64_t *times) {
    const Place place = prepare(trains, a_image, b_image);
    __syncthreads();
    uint32_t a[4];
    load_a<Shape>(a, a_rows, place.thread);
    Shape::declare();
    uint64_t a_steps[kMostSteps], b_steps[kMostSteps];
#pragma unroll
    for (int i = 0; i < kMostSteps; ++i) {
        a_steps[i] = settled(place.a + i * trains.a_step);
        b_steps[i] = settled(place.b + i * trains.b_step);
    }
#pragma unroll 1
    for (uint32_t number = 0; number < trains.num_trains; ++number) {
        meet(1, number);
        int64_t stamps[kStamps];
        stamps[0] = clock_now();
        fence();
#pragma unroll
        for (int i = 0; i < kIssued; ++i) {
            Shape::issue(a, a_steps[i % kMostSteps], b_steps[i % kMostSteps], i > 0);
            if (kHasGroups || i == kIssued - 1) commit();
            stamps[i + 1] = clock_now();
        }
        wait<0>();
        stamps[kStamps - 1] = clock_now();
        if (place.thread % 32 == 0) {
#pragma unroll
            for (int i = 0; i < kStamps; ++i) times[(4 * number + place.thread / 32) * kStamps + i] = stamps[i];
        }
    }
    store<Shape>(place, d);
}

#define WGMMA_ARGUMENTS(shape) \
    const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows, uint32_t *d, int64_t *times

#define RATE_KERNEL(shape, has_one, has_traffic)                                                                      \
    extern "C" __global__ void __launch_bounds__(kMostThreads)                                                        \
        rate_##shape(const __grid_constant__ Trains trains, const uint32_t *lengths, WGMMA_ARGUMENTS(shape),          \
                     int64_t *traffic) {                                                                              \
        run<shape, has_one, has_traffic>(trains, lengths, a_image, b_image, a_rows, d, times, traffic);               \
    }

#define WAIT_KERNEL(shape, wgmmas, pending)                                                                           \
    extern "C" __global__ void __launch_bounds__(kGroupThreads)                                                       \
        wait_##shape##_g##wgmmas##_w##pending(const __grid_constant__ Trains trains, const uint32_t *lengths,         \
                                              WGMMA_ARGUMENTS(shape)) {                                               \
        wait_behind<shape, wgmmas, pending>(trains, lengths, a_image, b_image, a_rows, d, times);                     \
    }

#define ISSUE_KERNEL(shape)                                                                                           \
    extern "C" __global__ void __launch_bounds__(kGroupThreads)                                                       \
        issue_##shape##_groups(const __grid_constant__ Trains trains, WGMMA_ARGUMENTS(shape)) {                       \
        issue<shape, true>(trains, a_image, b_image, a_rows, d, times);                                               \
    }                                                                                                                 \
    extern "C" __global__ void __launch_bounds__(kGroupThreads)                                                       \
        issue_##shape##_group(const __grid_constant__ Trains trains, WGMMA_ARGUMENTS(shape)) {                        \
        issue<shape, false>(trains, a_image, b_image, a_rows, d, times);                                              \
    }

#include "shapes.inc"

// Fences where nothing is outstanding.
extern "C" __global__ void __launch_bounds__(kMostThreads) fences(uint32_t num_trains, const uint32_t *lengths, int64_t *times) {
#pragma unroll 1
    for (uint32_t number = 0; number < num_trains; ++number) {
        const uint32_t length = lengths[number];
        meet(blockDim.x / kGroupThreads, length);
        const int64_t began = clock_now();
#pragma unroll 1
        for (uint32_t i = 0; i < length; ++i) {
#pragma unroll
            for (int j = 0; j < kFences; ++j) fence();
        }
        const int64_t ended = clock_now();
        if (threadIdx.x % 32 == 0) {
            times[2 * (blockDim.x / 32 * number + threadIdx.x / 32)] = began;
            times[2 * (blockDim.x / 32 * number + threadIdx.x / 32) + 1] = ended;
        }
    }
}

// As many looks at the clock as there are stamps above, and nothing between them.
extern "C" __global__ void __launch_bounds__(kMostThreads) clocks(uint32_t num_trains, int64_t *times) {
#pragma unroll 1
    for (uint32_t number = 0; number < num_trains; ++number) {
        meet(blockDim.x / kGroupThreads, number);
        int64_t stamps[kStamps];
#pragma unroll
        for (int i = 0; i < kStamps; ++i) stamps[i] = clock_now();
        if (threadIdx.x % 32 == 0) {
#pragma unroll
            for (int i = 0; i < kStamps; ++i) times[(blockDim.x / 32 * number + threadIdx.x / 32) * kStamps + i] = stamps[i];
        }
    }
}

#endif
