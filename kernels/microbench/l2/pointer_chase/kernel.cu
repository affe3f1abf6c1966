// Loads that wait for one another: how long does each take, near and far, in L1, L2 and memory, cold and warm?
//
// One launch makes its chain of pointers, empties L2 of it, warms what is to be warm, and then one thread on one SM follows
// the chain: once as fast as it goes, once with the clock before and after every load, once more over the same nodes; then a
// thread on another SM follows the same nodes, so that the two can be compared load by load. All CTAs must be there at once;
// a wait that lasts too long gives up and says so, instead of hanging.

#include <cstdint>

constexpr int kThreads = 1024;
constexpr uint32_t kMostSamples = 4096;
constexpr uint32_t kMostSms = 256;
constexpr uint32_t kRehearsals = 16;
constexpr int64_t kPatienceCycles = 3000000000;  // a second and a half

struct Chase {
    uint64_t stride_bytes;      // from node to node
    uint64_t flush_at, flush_bytes;  // what is read to empty L2, bytes from the buffer's start; 0 bytes: L2 is left as it is
    uint32_t num_nodes, num_bits;    // nodes, and the bits of the smallest power of two that is not less
    uint32_t is_random;         // the order: along a generator of full period, or node after node
    uint32_t num_samples;       // loads of each pass, at most kMostSamples
    uint32_t target_sm;         // who follows the chain
    uint32_t warmer_sm;         // who reads all nodes before; 0xffffffff: nobody, they stay in memory
    uint32_t reference_sm;      // who follows it afterwards; 0xffffffff: nobody
    uint32_t reserved;
};

enum { kWhole, kFirst, kAgain, kReference, kOverhead, kNumPasses };

struct State {
    uint64_t self;              // a chain of one node, for rehearsals; its address is written by the kernel
    int64_t whole_cycles;       // the pass without clocks in it
    int64_t whole_ns;           // the same by the GPU's nanoseconds, which move in steps
    uint64_t ends[4];           // where each pass ended, bytes from the buffer's start
    uint64_t sum;               // of what was read only to be read
    uint32_t arrived[4];        // CTAs at each meeting
    uint32_t has_failed;        // a wait was given up
    uint32_t is_done;           // the target is through
    uint32_t ctas_on_sm[kMostSms];
};

// What follows node x of the generator's sequence, of 2 ** num_bits. Full period: odd step, factor 1 modulo 4.
__device__ __forceinline__ uint32_t successor(uint32_t x, uint32_t mask) { return (x * 1664525u + 1013904223u) & mask; }

// Which node that is: one to one, so that neighbours in the sequence lie anywhere.
__device__ __forceinline__ uint32_t node_of(uint32_t x, uint32_t mask, uint32_t half) {
    x ^= x >> half;
    x = (x * 0x9E3779B1u) & mask;
    return x ^ (x >> half);
}

__device__ __forceinline__ uint32_t now() {
    uint32_t cycle;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
    return cycle;
}

__device__ __forceinline__ int64_t now_ns() {
    int64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

template <bool kInL1>
__device__ __forceinline__ uint64_t follow(uint64_t node) {
    uint64_t next;
    if (kInL1)
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(next) : "l"(node) : "memory");
    else
        asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(node) : "memory");
    return next;
}

// Every load by itself: the store to shared memory needs its value, and the second clock comes after that store.
template <bool kInL1, bool kHasLoad>
__device__ __noinline__ uint64_t timed(uint64_t node, uint32_t num, uint32_t sink, uint32_t samples) {
#pragma unroll 1
    for (uint32_t i = 0; i < num; ++i) {
        const uint32_t begin = now();
        if (kHasLoad) node = follow<kInL1>(node);
        asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(sink), "r"(static_cast<uint32_t>(node)) : "memory");
        const uint32_t end = now();
        const uint32_t cycles = end - begin < 65535u ? end - begin : 65535u;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(samples + 2 * i), "h"(static_cast<uint16_t>(cycles)) : "memory");
    }
    return node;
}

// The chain and nothing else.
template <bool kInL1>
__device__ __noinline__ uint64_t whole(uint64_t node, uint32_t num) {
#pragma unroll 8
    for (uint32_t i = 0; i < num; ++i) node = follow<kInL1>(node);
    return node;
}

__device__ __forceinline__ uint32_t read_volatile(const uint32_t *at) {
    uint32_t value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// Wait, as one thread, until `count` have been counted at `at`, or somebody has given up.
__device__ __forceinline__ bool wait_for(State *state, const uint32_t *at, uint32_t count, uint32_t pause_ns) {
    const int64_t begin = clock64();
    while (read_volatile(at) < count) {
        __nanosleep(pause_ns);
        if (read_volatile(&state->has_failed)) return false;
        if (clock64() - begin > kPatienceCycles) {
            atomicExch(&state->has_failed, 1u);
            return false;
        }
    }
    __threadfence();
    return true;
}

// All CTAs meet; false where the meeting was given up.
__device__ __forceinline__ bool meet(State *state, int which) {
    __threadfence();
    __syncthreads();
    int is_met = 1;
    if (threadIdx.x == 0) {
        atomicAdd(&state->arrived[which], 1u);
        is_met = wait_for(state, &state->arrived[which], gridDim.x, 200);
    }
    return __syncthreads_and(is_met);
}

__device__ __forceinline__ void make_chain(const Chase &chase, char *buffer) {
    const uint32_t mask = (1u << chase.num_bits) - 1, half = (chase.num_bits + 1) / 2;
    const uint64_t begin = reinterpret_cast<uint64_t>(buffer);
    const uint32_t num = chase.is_random ? mask + 1 : chase.num_nodes;
#pragma unroll 1
    for (uint32_t x = blockIdx.x * kThreads + threadIdx.x; x < num; x += gridDim.x * kThreads) {
        uint32_t node = x, next = x + 1 < num ? x + 1 : 0;
        if (chase.is_random) {
            node = node_of(x, mask, half);
            if (node >= chase.num_nodes) continue;
            uint32_t after = x;
            do {
                after = successor(after, mask);
                next = node_of(after, mask, half);
            } while (next >= chase.num_nodes);
        }
        *reinterpret_cast<uint64_t *>(buffer + node * chase.stride_bytes) = begin + next * chase.stride_bytes;
    }
}

template <bool kInL1>
__device__ __forceinline__ uint64_t read_all(const Chase &chase, const char *buffer) {
    uint64_t sum = 0;
#pragma unroll 4
    for (uint32_t node = threadIdx.x; node < chase.num_nodes; node += kThreads)
        sum += follow<kInL1>(reinterpret_cast<uint64_t>(buffer) + node * chase.stride_bytes);
    return sum;
}

__device__ __forceinline__ uint64_t flush(const Chase &chase, const char *buffer) {
    uint64_t sum = 0;
    const uint64_t step = 16ull * kThreads * gridDim.x;
#pragma unroll 4
    for (uint64_t at = 16ull * (blockIdx.x * kThreads + threadIdx.x); at < chase.flush_bytes; at += step)
        sum += follow<false>(reinterpret_cast<uint64_t>(buffer) + chase.flush_at + at);
    return sum;
}

template <bool kInL1>
__device__ __forceinline__ void run(const Chase &chase, char *buffer, State *state, uint16_t *times) {
    __shared__ uint16_t samples[kMostSamples];
    __shared__ uint32_t sink;
    __shared__ uint32_t place;  // how many CTAs have come to this SM before
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if (threadIdx.x == 0) place = atomicAdd(&state->ctas_on_sm[sm % kMostSms], 1u);
    make_chain(chase, buffer);
    if (!meet(state, 0)) return;
    uint64_t sum = flush(chase, buffer);
    if (!meet(state, 1)) return;
    const bool is_first = place == 0;
    if (is_first && sm == chase.warmer_sm) sum += read_all<kInL1>(chase, buffer);
    if (is_first && sm == chase.target_sm && threadIdx.x == 0) state->self = reinterpret_cast<uint64_t>(&state->self);
    if (!meet(state, 2)) return;
    // The fences of a meeting empty L1: who is to find its nodes there reads them once more, with no fence behind.
    if (kInL1 && is_first && sm == chase.target_sm && sm == chase.warmer_sm) {
        sum += read_all<kInL1>(chase, buffer);
        __syncthreads();
    }
    if (sum == 1) state->sum = sum;  // never; sums of aligned addresses and zeros are even
    if (threadIdx.x != 0 || !is_first) return;

    const uint32_t to = static_cast<uint32_t>(__cvta_generic_to_shared(samples));
    const uint32_t sink_at = static_cast<uint32_t>(__cvta_generic_to_shared(&sink));
    const uint64_t base = reinterpret_cast<uint64_t>(buffer);
    const uint32_t num = chase.num_samples;
    if (sm == chase.target_sm) {
        const uint64_t self = reinterpret_cast<uint64_t>(&state->self);
        uint64_t node = whole<kInL1>(self, kRehearsals);
        node = timed<kInL1, true>(node, kRehearsals, sink_at, to);
        node = timed<kInL1, false>(node, kRehearsals, sink_at, to);
        const uint64_t zero = node - self;  // which the compiler cannot know
        const int64_t begin_ns = now_ns();
        const int64_t begin = clock64();
        const uint64_t middle = whole<kInL1>(base + zero, num);
        asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(sink_at), "r"(static_cast<uint32_t>(middle)) : "memory");
        const int64_t end = clock64();
        const int64_t end_ns = now_ns();
        state->ends[kWhole] = middle - base;
        state->whole_cycles = end - begin;
        state->whole_ns = end_ns - begin_ns;
        uint64_t last = timed<kInL1, true>(middle, num, sink_at, to);
        state->ends[kFirst] = last - base;
        for (uint32_t i = 0; i < num; ++i) times[kMostSamples * (kFirst - 1) + i] = samples[i];
        last = timed<kInL1, true>(middle, num, sink_at, to);
        state->ends[kAgain] = last - base;
        for (uint32_t i = 0; i < num; ++i) times[kMostSamples * (kAgain - 1) + i] = samples[i];
        timed<kInL1, false>(last, num, sink_at, to);
        for (uint32_t i = 0; i < num; ++i) times[kMostSamples * (kOverhead - 1) + i] = samples[i];
        __threadfence();
        atomicExch(&state->is_done, 1u);
    }
    if (sm == chase.reference_sm) {
        if (!wait_for(state, &state->is_done, 1, 4000)) return;
        const uint64_t self = reinterpret_cast<uint64_t>(&state->self);
        const uint64_t zero = timed<kInL1, true>(self, kRehearsals, sink_at, to) - self;
        const uint64_t middle = base + zero + *reinterpret_cast<volatile uint64_t *>(&state->ends[kWhole]);
        const uint64_t last = timed<kInL1, true>(middle, num, sink_at, to);
        state->ends[kReference] = last - base;
        for (uint32_t i = 0; i < num; ++i) times[kMostSamples * (kReference - 1) + i] = samples[i];
    }
}

#define CHASE(name, in_l1)                                                                                 \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                 \
        name(const __grid_constant__ Chase chase, char *buffer, State *state, uint16_t *times) {           \
        run<in_l1>(chase, buffer, state, times);                                                           \
    }

CHASE(chase_ca, true)
CHASE(chase_cg, false)
