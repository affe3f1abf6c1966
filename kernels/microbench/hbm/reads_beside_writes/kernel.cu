// How much longer does a load from memory take beside reads and writes of memory?
//
// Two CTAs an SM that stay for a span of %globaltimer, all at once: odd ones read, even ones write. First they read lines of
// the array's end, so that L2 holds nothing of what follows, and meet. Then each warp of a reader loads a piece, waits for it,
// takes its time by %clock and pauses; each warp of a writer stores 512 bytes and pauses, or none at all where
// `write_pause_cycles` is 0. Pieces are a line (4 bytes a lane) or 512 bytes (16 a lane), at addresses that nobody had before:
// all CTAs' pieces lie side by side, turn after turn. In kernels that meet, all warps of a reader wait for each other behind
// their loads, and thread 0 takes the time from its load until it is past the barrier.
#include <cstdint>

constexpr uint32_t kThreads = 256, kWarps = kThreads / 32;
constexpr uint64_t kGiveUpNs = 10'000'000;  // of a wait for CTAs that are not there

// Of one warp.
struct Record {
    uint64_t load_cycles, load_cycles_squared;  // sums, of loads that count
    uint64_t met_cycles;                        // sum, of the same turns of thread 0
    uint64_t run_cycles, run_ns;                // the span, by both clocks
    uint32_t num_counted, num_turns;            // of loads or stores: that count, of all
    uint32_t words_sum;                         // of all that was loaded
    uint32_t sm;
};

struct State {
    uint32_t num_arrived;  // CTAs, of all launches so far
    uint32_t has_failed;   // a wait was given up
};

// In the order of the source.
__device__ __forceinline__ uint32_t cycle() {
    uint32_t time;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(time)::"memory");
    return time;
}
__device__ __forceinline__ uint64_t long_cycle() {
    uint64_t time;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(time)::"memory");
    return time;
}
__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}
__device__ __forceinline__ uint32_t sm_of_this() {
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}
__device__ __forceinline__ void load(uint4 &v, const uint4 *at) {
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
}
__device__ __forceinline__ void load(uint1 &v, const uint1 *at) {
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(v.x) : "l"(at) : "memory");
}
__device__ __forceinline__ void store(uint4 *at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}
__device__ __forceinline__ uint32_t sum_of(uint4 v) { return v.x + v.y + v.z + v.w; }
__device__ __forceinline__ uint32_t sum_of(uint1 v) { return v.x; }

__device__ __forceinline__ void pause(uint32_t cycles) {
    if (cycles == 0) return;
    const uint32_t since = cycle();
    while (cycle() - since < cycles) {}
}

// Other lines than those of the launch are in L2 behind it.
__device__ __forceinline__ void flush(const uint4 *from, uint32_t num_vectors, uint32_t *room) {
    const uint32_t step = gridDim.x * kThreads;
    for (uint32_t at = blockIdx.x * kThreads + threadIdx.x; at < num_vectors; at += 4 * step) {
        uint4 held[4]{};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (at + i * step < num_vectors) load(held[i], from + at + i * step);
        }
        if ((held[0].x | held[1].x | held[2].x | held[3].x) == 0xffffffffu) room[2] = 1;  // no words are
    }
}

// All CTAs are there.
__device__ __forceinline__ void meet_all(State *state) {
    __syncthreads();
    if (threadIdx.x == 0) {
        const uint32_t wanted = (atomicAdd(&state->num_arrived, 1u) / gridDim.x + 1) * gridDim.x;
        const uint64_t begin = nanoseconds();
        while (*reinterpret_cast<volatile uint32_t *>(&state->num_arrived) < wanted) {
            if (nanoseconds() - begin > kGiveUpNs) {
                state->has_failed = 1;
                break;
            }
        }
    }
    __syncthreads();
}

template <typename V, bool kMeets>
__device__ __forceinline__ void read(const V *in, Record &record, uint32_t pause_cycles, uint64_t span_ns, uint64_t uncounted_ns,
                                     uint32_t *room) {
    const uint32_t num = gridDim.x / 2;
    const uint64_t begin = nanoseconds();
    uint64_t now = begin;
    for (uint32_t k = 0;; ++k) {
        const bool is_last = now - begin >= span_ns;
        if constexpr (kMeets) {
            if (threadIdx.x == 0) room[k & 1] = is_last;  // for all warps: they leave together
        } else if (is_last) {
            break;
        }
        const bool counts = now - begin > uncounted_ns;
        V v;
        const uint32_t issued = cycle();
        load(v, in + (k * num + blockIdx.x / 2) * kThreads + threadIdx.x);
        if (v.x == 0xffffffffu) room[2] = 1;  // no word is: it has come
        const uint32_t cycles = cycle() - issued;
        uint32_t met = 0;
        bool leaves = false;
        if constexpr (kMeets) {
            __syncthreads();
            met = cycle() - issued;
            leaves = room[k & 1] != 0;
        }
        record.words_sum += sum_of(v);
        record.num_turns += 1;
        if (counts) {
            record.num_counted += 1;
            record.load_cycles += cycles;
            record.load_cycles_squared += static_cast<uint64_t>(cycles) * cycles;
            record.met_cycles += met;
        }
        if (leaves) break;
        pause(pause_cycles);
        now = nanoseconds();
    }
}

__device__ __forceinline__ void write(uint4 *out, Record &record, uint32_t pause_cycles, uint64_t span_ns, uint64_t uncounted_ns) {
    const uint32_t num = gridDim.x / 2;
    const uint64_t begin = nanoseconds();
    uint64_t now = begin;
    for (uint32_t k = 0; now - begin < span_ns; ++k) {
        const uint32_t at = (k * num + blockIdx.x / 2) * kThreads + threadIdx.x;
        store(out + at, make_uint4(at, ~at, 7u, 9u));
        record.num_turns += 1;
        record.num_counted += now - begin > uncounted_ns;
        pause(pause_cycles);
        if ((k & 7) == 0) now = nanoseconds();
    }
}

template <typename V, bool kMeets>
__device__ __forceinline__ void run(const uint4 *in, uint4 *out, State *state, Record *records, uint32_t num_vectors,
                                    uint32_t num_flushed, uint32_t read_pause_cycles, uint32_t write_pause_cycles,
                                    uint32_t span_ns, uint32_t uncounted_ns) {
    extern __shared__ uint32_t room[];
    Record record{};
    flush(in + num_vectors - num_flushed, num_flushed, room);
    meet_all(state);
    const uint64_t begin_cycle = long_cycle(), begin_ns = nanoseconds();
    if (blockIdx.x & 1) {
        read<V, kMeets>(reinterpret_cast<const V *>(in), record, read_pause_cycles, span_ns, uncounted_ns, room);
    } else if (write_pause_cycles) {
        write(out, record, write_pause_cycles, span_ns, uncounted_ns);
    } else {
        while (nanoseconds() - begin_ns < span_ns) __nanosleep(1000);
    }
    record.run_cycles = long_cycle() - begin_cycle;
    record.run_ns = nanoseconds() - begin_ns;
    record.sm = sm_of_this();
    record.words_sum = __reduce_add_sync(0xffffffffu, record.words_sum);
    if (threadIdx.x % 32 == 0) records[blockIdx.x * kWarps + threadIdx.x / 32] = record;
}

#define KERNEL(name, V, MEETS)                                                                                              \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                                  \
        name(const uint4 *in, uint4 *out, State *state, Record *records, uint32_t num_vectors, uint32_t num_flushed,        \
             uint32_t read_pause_cycles, uint32_t write_pause_cycles, uint32_t span_ns, uint32_t uncounted_ns) {            \
        run<V, MEETS>(in, out, state, records, num_vectors, num_flushed, read_pause_cycles, write_pause_cycles, span_ns,    \
                      uncounted_ns);                                                                                        \
    }

KERNEL(line, uint1, false)
KERNEL(line_meet, uint1, true)
KERNEL(vector, uint4, false)
KERNEL(vector_meet, uint4, true)
