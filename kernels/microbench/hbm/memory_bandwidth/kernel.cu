// How many bytes move, by footprint, bytes in flight, kind of access and the SMs that are live? And how long does a load take
// meanwhile?
//
// One launch fills the buffer, picks the SMs that work by %smid, brings their data to where it is to be found, and then every
// CTA that works moves chunk after chunk, with the clock read before the first and after the last. What was read is summed
// up, what was written is read back and summed up. All CTAs must be there at once; a meeting that lasts too long is given up,
// and said so. The kernels clusters_of_N find out which SMs share a GPC.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(128) unsigned char boxes[];

constexpr int kMostThreads = 1024;
constexpr uint32_t kMostSms = 256, kMostStages = 16, kMostSamples = 4096;
constexpr uint32_t kTableWords = 1 << 20;  // the fill repeats after so many, but for its last bits
constexpr int64_t kPatienceCycles = 3000000000;  // a second and a half

struct Stream {
    uint64_t fill_bytes[2];     // from the buffer's start, and from its second half
    uint64_t second_at;         // where the second half starts, bytes
    uint32_t live[8];           // a bit for each SM
    uint32_t num_live, ctas_per_sm;
    uint32_t chunk_bytes;       // what a CTA moves in a step
    uint32_t num_chunks;        // of the footprint (of each half, where both are used)
    uint32_t stride_chunks;     // from one step of a worker to its next
    uint32_t num_rounds;        // steps of a pass
    uint32_t first_factor;      // worker w begins a pass at chunk w * first_factor
    uint32_t turn;              // ... of worker w + turn the next time
    uint32_t num_warm, num_steps;  // steps before the clock is read, and from there on
    uint32_t write_quarters;    // of four steps, those that write
    uint32_t num_stages;        // boxes of TMA in flight
    uint32_t probe_sm;          // who chases beside the streams; 0xffffffff: nobody
    uint32_t num_nodes, num_bits, is_warm;  // its chain, a node a line, in the second half; is_warm: it is read before
    uint32_t num_samples;       // loads that are timed, at most kMostSamples
    uint32_t stream_cycles;     // how long the streams run beside it
};

// Of one CTA that works.
struct Worker {
    int64_t begin_ns, end_ns;   // %globaltimer
    int64_t cycles;
    uint32_t sm, num_steps;     // of the CTA; beside a chase the sum of what its warps made
};

struct State {
    uint32_t arrived[4];        // CTAs at each meeting
    uint32_t has_failed;        // a wait was given up
    uint32_t read_sum;          // of all words that were read
    uint32_t written_sum;       // of all words of what was written to, read back
    uint32_t num_sampled;       // loads that the probe made
    uint64_t probe_end;         // where they led, bytes from the second half's start
    uint32_t ctas_on_sm[kMostSms];
};

struct Place {
    uint32_t worker, num_workers;
    bool is_live, is_probe;
};

enum Policy { kCa, kCg, kNa };

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

__device__ __forceinline__ int64_t cycle() {
    int64_t time;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(time)::"memory");
    return time;
}

__device__ __forceinline__ uint32_t sm_of_this() {
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

__device__ __forceinline__ uint32_t read_volatile(const uint32_t *at) {
    uint32_t value;
    asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}

// `count` CTAs meet; false where the meeting was given up.
__device__ __forceinline__ bool meet(State *state, int which, uint32_t count) {
    asm volatile("fence.proxy.async;" ::: "memory");
    __threadfence();
    __syncthreads();
    int is_met = 1;
    if (threadIdx.x == 0) {
        atomicAdd(&state->arrived[which], 1u);
        const int64_t begin = cycle();
        while (read_volatile(&state->arrived[which]) < count && is_met) {
            __nanosleep(200);
            if (read_volatile(&state->has_failed)) is_met = 0;
            if (cycle() - begin > kPatienceCycles) {
                atomicExch(&state->has_failed, 1u);
                is_met = 0;
            }
        }
        __threadfence();
    }
    is_met = __syncthreads_and(is_met);
    asm volatile("fence.proxy.async;" ::: "memory");
    return is_met;
}

template <int kWords, Policy kPolicy>
__device__ __forceinline__ void load(uint32_t (&v)[kWords], const char *at) {
#define LOAD(modifier)                                                                                     \
    if (kWords == 1) asm volatile("ld.global" modifier ".u32 %0, [%1];" : "=r"(v[0]) : "l"(at) : "memory"); \
    if (kWords == 2)                                                                                       \
        asm volatile("ld.global" modifier ".v2.u32 {%0, %1}, [%2];" : "=r"(v[0]), "=r"(v[kWords > 1]) : "l"(at) : "memory"); \
    if (kWords == 4)                                                                                       \
        asm volatile("ld.global" modifier ".v4.u32 {%0, %1, %2, %3}, [%4];"                                \
                     : "=r"(v[0]), "=r"(v[kWords > 1]), "=r"(v[kWords > 2 ? 2 : 0]), "=r"(v[kWords > 3 ? 3 : 0]) \
                     : "l"(at)                                                                             \
                     : "memory")
    if (kPolicy == kCa) { LOAD(""); }
    if (kPolicy == kCg) { LOAD(".cg"); }
    if (kPolicy == kNa) { LOAD(".L1::no_allocate"); }
#undef LOAD
}

template <int kWords>
__device__ __forceinline__ void store(char *at, const uint32_t (&v)[kWords], uint32_t more) {
    if (kWords == 1) asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(v[0] + more) : "memory");
    if (kWords == 4)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v[0] + more), "r"(v[kWords > 1] + more),
                     "r"(v[kWords > 2 ? 2 : 0] + more), "r"(v[kWords > 3 ? 3 : 0] + more)
                     : "memory");
}

// Word i of the buffer is that of the table, plus how often the table came before.
__device__ __forceinline__ void fill(const Stream &stream, const uint32_t *table, char *buffer) {
    const uint64_t step = 16ull * blockDim.x * gridDim.x;
    for (int half = 0; half < 2; ++half) {
        const uint64_t begin = half ? stream.second_at : 0;
#pragma unroll 4
        for (uint64_t at = 16ull * (blockIdx.x * blockDim.x + threadIdx.x); at < stream.fill_bytes[half]; at += step) {
            const uint64_t word = (begin + at) / 4;
            const uint32_t more = static_cast<uint32_t>(word / kTableWords);
            const uint4 v = __ldg(reinterpret_cast<const uint4 *>(table + word % kTableWords));
            *reinterpret_cast<uint4 *>(buffer + begin + at) = make_uint4(v.x + more, v.y + more, v.z + more, v.w + more);
        }
    }
}

// Who this CTA is: the how-manieth on its SM, and whether that SM works.
__device__ __forceinline__ Place place_of(const Stream &stream, State *state) {
    __shared__ uint32_t slot;
    const uint32_t sm = sm_of_this() % kMostSms;
    if (threadIdx.x == 0) slot = atomicAdd(&state->ctas_on_sm[sm], 1u);
    __syncthreads();
    uint32_t rank = __popc(stream.live[sm / 32] & ((1u << sm % 32) - 1));
    for (uint32_t i = 0; i < sm / 32; ++i) rank += __popc(stream.live[i]);
    Place place;
    place.is_live = (stream.live[sm / 32] >> sm % 32 & 1) && slot < stream.ctas_per_sm;
    place.is_probe = sm == stream.probe_sm && slot == 0;
    place.worker = slot * stream.num_live + rank;
    place.num_workers = stream.num_live * stream.ctas_per_sm;
    return place;
}

// Chunks of a worker, step by step: where the present one begins, in units of 16 bytes, which fit into 32 bits.
struct Walk {
    uint32_t at, round = 0, pass = 0, chunk = 0;
    const uint32_t stride, total;

    __device__ __forceinline__ Walk(const Stream &stream, const Place &place)
        : stride(stream.stride_chunks * (stream.chunk_bytes / 16)), total(stream.num_chunks * (stream.chunk_bytes / 16)) {
        start(stream, place);
    }

    __device__ __forceinline__ void start(const Stream &stream, const Place &place) {
        chunk = (place.worker + pass * stream.turn) % place.num_workers * stream.first_factor;
        at = chunk * (stream.chunk_bytes / 16);
    }

    __device__ __forceinline__ void next(const Stream &stream, const Place &place) {
        at += stride;
        if (at >= total) at -= total;
        if (++round == stream.num_rounds) {
            round = 0;
            ++pass;
            start(stream, place);
        }
    }
};

// Byte address of a unit of 16 bytes.
template <typename Char>
__device__ __forceinline__ Char *unit(Char *begin, uint32_t at) {
    return begin + 16ull * at;
}

__device__ __forceinline__ void add_up(uint32_t *total, uint32_t sum) {
    sum = __reduce_add_sync(~0u, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(total, sum);
}

// Everything but the steps: `Mover` has move(walk) for one step, and finish().
template <typename Mover>
__device__ __forceinline__ void run(const Stream &stream, const uint32_t *table, char *buffer, State *state, Worker *workers,
                                    bool reads_back_second, bool reads_back_first) {
    const Place place = place_of(stream, state);
    fill(stream, table, buffer);
    if (!meet(state, 0, gridDim.x) || !place.is_live) return;
    Mover mover(stream, table, buffer);
    Walk walk(stream, place);
#pragma unroll 1
    for (uint32_t step = 0; step < stream.num_warm; ++step, walk.next(stream, place)) mover.move(walk);
    mover.finish();
    mover.forget();
    if (!meet(state, 1, place.num_workers)) return;
    const int64_t begin_ns = nanoseconds(), begin = cycle();
#pragma unroll 1
    for (uint32_t step = 0; step < stream.num_steps; ++step, walk.next(stream, place)) mover.move(walk);
    mover.finish();
    __syncthreads();
    const int64_t end = cycle(), end_ns = nanoseconds();
    if (threadIdx.x == 0) workers[place.worker] = {begin_ns, end_ns, end - begin, sm_of_this(), stream.num_steps};
    add_up(&state->read_sum, mover.sum());
    if (!reads_back_first && !reads_back_second) return;
    if (!meet(state, 2, place.num_workers)) return;
    const uint64_t num_bytes = static_cast<uint64_t>(stream.num_chunks) * stream.chunk_bytes;
    const char *from = buffer + (reads_back_second ? stream.second_at : 0);
    uint32_t sum = 0;
#pragma unroll 4
    for (uint64_t at = 16ull * (place.worker * blockDim.x + threadIdx.x); at < num_bytes; at += 16ull * place.num_workers * blockDim.x) {
        uint32_t v[4];
        load<4, kCg>(v, from + at);
        sum += v[0] + v[1] + v[2] + v[3];
    }
    add_up(&state->written_sum, sum);
}

// ------------------------------------------------------------------------------------------ loads and stores of threads

template <int kWords, int kUnroll, Policy kPolicy>
struct Reader {
    const Stream &stream;
    const char *begin;
    const uint32_t plane;  // units of 16 bytes from one load of a thread to its next
    uint32_t total = 0;

    __device__ __forceinline__ Reader(const Stream &s, const uint32_t *, char *buffer)
        : stream(s), begin(buffer + 4 * kWords * threadIdx.x), plane(kWords * blockDim.x / 4) {}

    __device__ __forceinline__ void move(const Walk &walk) {
        uint32_t v[kUnroll][kWords];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) load<kWords, kPolicy>(v[u], unit(begin, walk.at + u * plane));
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int i = 0; i < kWords; ++i) total += v[u][i];
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ void forget() {}  // what warms is summed up as well, or it would be left out
    __device__ __forceinline__ uint32_t sum() const { return total; }
};

// What is written: the table from its start, as far as a chunk goes, plus the pass.
template <int kWords, int kUnroll>
struct Writer {
    const Stream &stream;
    char *begin;
    const uint32_t plane;
    uint32_t v[kUnroll][kWords];

    __device__ __forceinline__ Writer(const Stream &s, const uint32_t *table, char *buffer)
        : stream(s), begin(buffer + 4 * kWords * threadIdx.x), plane(kWords * blockDim.x / 4) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u)
#pragma unroll
            for (int i = 0; i < kWords; ++i) v[u][i] = table[(u * blockDim.x + threadIdx.x) * kWords + i];
    }

    __device__ __forceinline__ void move(const Walk &walk) {
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) store<kWords>(unit(begin, walk.at + u * plane), v[u], walk.pass);
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ void forget() {}
    __device__ __forceinline__ uint32_t sum() const { return 0; }
};

template <int kUnroll>
struct Copier {
    const Stream &stream;
    char *begin;
    const uint32_t plane;

    __device__ __forceinline__ Copier(const Stream &s, const uint32_t *, char *buffer)
        : stream(s), begin(buffer + 16 * threadIdx.x), plane(blockDim.x) {}

    __device__ __forceinline__ void move(const Walk &walk) {
        uint32_t v[kUnroll][4];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) load<4, kCg>(v[u], unit(begin, walk.at + u * plane));
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) store<4>(unit(begin + stream.second_at, walk.at + u * plane), v[u], 0);
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ void forget() {}
    __device__ __forceinline__ uint32_t sum() const { return 0; }
};

// Of four chunks some are written, in the second half, and the others read, in the first.
template <int kUnroll>
struct Mixer {
    Reader<4, kUnroll, kCg> reader;
    Writer<4, kUnroll> writer;

    __device__ __forceinline__ Mixer(const Stream &s, const uint32_t *table, char *buffer)
        : reader(s, table, buffer), writer(s, table, buffer + s.second_at) {}

    __device__ __forceinline__ void move(const Walk &walk) {
        if ((walk.chunk + walk.round) % 4 < reader.stream.write_quarters)
            writer.move(walk);
        else
            reader.move(walk);
    }

    __device__ __forceinline__ void finish() {}
    __device__ __forceinline__ void forget() { reader.forget(); }
    __device__ __forceinline__ uint32_t sum() const { return reader.sum(); }
};

// ------------------------------------------------------------------------------------------ bulk copies by TMA

__device__ __forceinline__ uint32_t shared_at(const void *pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// A ring of boxes: thread 0 waits for the oldest and loads the next into its place. The last boxes are summed up.
struct BulkLoader {
    const Stream &stream;
    const char *buffer;
    uint32_t full, start, step = 0, stage = 0, phases = 0;

    __device__ __forceinline__ BulkLoader(const Stream &s, const uint32_t *, char *b) : stream(s), buffer(b), start(shared_at(boxes)) {
        __shared__ __align__(8) uint64_t mbarriers[kMostStages];
        full = shared_at(mbarriers);
        if (threadIdx.x == 0) {
            for (uint32_t i = 0; i < kMostStages; ++i)
                asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * i) : "memory");
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        }
        __syncthreads();
    }

    // Until the oldest box is there, whose stage is the next to be loaded into.
    __device__ __forceinline__ void wait() {
        asm volatile(
            "{\n"
            ".reg .pred p;\n"
            "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
            "@!p bra AGAIN;\n"
            "}" ::"r"(full + 8 * stage), "r"(phases >> stage & 1)
            : "memory");
        phases ^= 1u << stage;
    }

    __device__ __forceinline__ void move(const Walk &walk) {
        if (threadIdx.x) return;
        const uint32_t barrier = full + 8 * stage;
        if (step >= stream.num_stages) wait();
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(stream.chunk_bytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         start + stage * stream.chunk_bytes),
                     "l"(unit(buffer, walk.at)), "r"(stream.chunk_bytes), "r"(barrier)
                     : "memory");
        ++step;
        next();
    }

    __device__ __forceinline__ void next() { stage = stage + 1 == stream.num_stages ? 0 : stage + 1; }

    __device__ __forceinline__ void finish() {
        if (threadIdx.x) return;
        if (step < stream.num_stages) stage = 0;
        for (uint32_t i = 0; i < stream.num_stages && i < step; ++i, next()) wait();
    }

    __device__ __forceinline__ void forget() { step = stage = 0; }

    __device__ __forceinline__ uint32_t sum() const {
        uint32_t total = 0;
        const uint32_t num_words = stream.num_stages * stream.chunk_bytes / 4;
        for (uint32_t i = threadIdx.x; i < num_words; i += blockDim.x) total += reinterpret_cast<const uint32_t *>(boxes)[i];
        return total;
    }
};

// The boxes hold the table from its start; thread 0 stores one after the other, and waits until a box may be used again.
struct BulkStorer {
    const Stream &stream;
    char *buffer;
    uint32_t start, stage = 0;

    __device__ __forceinline__ BulkStorer(const Stream &s, const uint32_t *table, char *b) : stream(s), buffer(b), start(shared_at(boxes)) {
        for (uint32_t i = threadIdx.x; i < s.num_stages * s.chunk_bytes / 4; i += blockDim.x)
            reinterpret_cast<uint32_t *>(boxes)[i] = table[i];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
    }

    __device__ __forceinline__ void move(const Walk &walk) {
        if (threadIdx.x) return;
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(unit(buffer, walk.at)),
                     "r"(start + stage * stream.chunk_bytes), "r"(stream.chunk_bytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        if (stream.num_stages == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        if (stream.num_stages == 2) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        if (stream.num_stages == 4) asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
        if (stream.num_stages == 8) asm volatile("cp.async.bulk.wait_group.read 7;" ::: "memory");
        stage = stage + 1 == stream.num_stages ? 0 : stage + 1;
    }

    __device__ __forceinline__ void finish() {
        if (threadIdx.x == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }

    __device__ __forceinline__ void forget() { stage = 0; }
    __device__ __forceinline__ uint32_t sum() const { return 0; }
};

// ------------------------------------------------------------------------------------------ a chase beside streams

// A chain of full period, as in pointer_chase.
__device__ __forceinline__ uint32_t successor(uint32_t x, uint32_t mask) { return (x * 1664525u + 1013904223u) & mask; }

__device__ __forceinline__ uint32_t node_of(uint32_t x, uint32_t mask, uint32_t half) {
    x ^= x >> half;
    x = (x * 0x9E3779B1u) & mask;
    return x ^ (x >> half);
}

__device__ __forceinline__ void make_chain(const Stream &stream, char *nodes) {
    const uint32_t mask = (1u << stream.num_bits) - 1, half = (stream.num_bits + 1) / 2;
#pragma unroll 1
    for (uint32_t x = blockIdx.x * blockDim.x + threadIdx.x; x <= mask; x += gridDim.x * blockDim.x) {
        const uint64_t next = node_of(successor(x, mask), mask, half);
        *reinterpret_cast<uint64_t *>(nodes + 128ull * node_of(x, mask, half)) = reinterpret_cast<uint64_t>(nodes) + 128 * next;
    }
}

__device__ __noinline__ uint64_t chase(uint64_t node, uint32_t num, int64_t until, uint32_t sink, uint32_t samples, uint32_t sampled) {
    uint32_t i = 0;
#pragma unroll 1
    for (; i < num; ++i) {
        uint32_t begin, end;
        asm volatile("mov.u32 %0, %%clock;" : "=r"(begin)::"memory");
        asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(node)::"memory");
        asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(sink), "r"(static_cast<uint32_t>(node)) : "memory");
        asm volatile("mov.u32 %0, %%clock;" : "=r"(end)::"memory");
        const uint32_t cycles = end - begin < 65535u ? end - begin : 65535u;
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(samples + 2 * i), "h"(static_cast<uint16_t>(cycles)) : "memory");
        if (cycle() > until) {
            ++i;
            break;
        }
    }
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(sampled), "r"(i) : "memory");
    return node;
}

// Streams run for a while; a quarter of it later the probe begins, and it ends before them.
template <typename Mover>
__device__ __forceinline__ void run_loaded(const Stream &stream, const uint32_t *table, char *buffer, State *state, Worker *workers,
                                           uint16_t *times) {
    __shared__ uint16_t samples[kMostSamples];
    __shared__ uint32_t sink, num_sampled, num_steps;
    if (threadIdx.x == 0) num_steps = 0;
    const Place place = place_of(stream, state);
    char *nodes = buffer + stream.second_at;
    fill(stream, table, buffer);
    make_chain(stream, nodes);
    const bool is_streaming = place.is_live && !place.is_probe;
    if (!meet(state, 0, gridDim.x) || (!is_streaming && !place.is_probe)) return;
    Mover mover(stream, table, buffer);
    Walk walk(stream, place);
    const uint32_t count = place.num_workers + 1;
    if (place.is_probe) {
        uint64_t sum = 0;
        if (stream.is_warm)
            for (uint32_t node = threadIdx.x; node < stream.num_nodes; node += blockDim.x) {
                uint32_t v[1];
                load<1, kCg>(v, nodes + 128ull * node);
                sum += v[0];
            }
        if (sum == 1) state->read_sum = 1;  // never; lower halves of aligned addresses are even
        if (!meet(state, 1, count) || threadIdx.x) return;
        const int64_t begin = cycle(), quarter = stream.stream_cycles / 4;
        const uint64_t first = reinterpret_cast<uint64_t>(nodes);
        while (cycle() - begin < quarter) __nanosleep(100);
        const uint64_t last = chase(first, stream.num_samples, begin + 3 * quarter, shared_at(&sink), shared_at(samples), shared_at(&num_sampled));
        const uint32_t sampled = *reinterpret_cast<volatile uint32_t *>(&num_sampled);
        state->probe_end = last - first;
        state->num_sampled = sampled;
        for (uint32_t i = 0; i < sampled; ++i) times[i] = samples[i];
        return;
    }
#pragma unroll 1
    for (uint32_t step = 0; step < stream.num_warm; ++step, walk.next(stream, place)) mover.move(walk);
    if (!meet(state, 1, count)) return;
    const int64_t begin_ns = nanoseconds(), begin = cycle(), until = begin + stream.stream_cycles;
    uint32_t step = 0;
    int64_t now = begin;
#pragma unroll 1
    for (; now < until; ++step, now = cycle(), walk.next(stream, place)) mover.move(walk);
    if (threadIdx.x % 32 == 0) atomicAdd(&num_steps, step);
    __syncthreads();
    const int64_t end_ns = nanoseconds(), end = cycle();
    if (threadIdx.x == 0) workers[place.worker] = {begin_ns, end_ns, end - begin, sm_of_this(), num_steps};
    if (mover.sum() == 1) state->arrived[3] = 1;  // so that nothing is left out; it is not looked at
}

// ------------------------------------------------------------------------------------------ who shares a GPC

// Clusters of one size come and go at odd moments, so that the same SM meets others of its GPC again and again.
template <int kSize>
__device__ __forceinline__ void meet_neighbours(uint32_t seed, uint16_t *sms) {
    if (threadIdx.x) return;
    sms[blockIdx.x] = static_cast<uint16_t>(sm_of_this());
    uint32_t hash = (blockIdx.x / kSize + seed * 7919u) * 0x9E3779B1u;
    hash = (hash ^ (hash >> 15)) * 0x85EBCA6Bu;
    const int64_t begin = cycle(), stay = 2000 + (hash >> 8) % 30000;
    while (cycle() - begin < stay) __nanosleep(100);
}

#define CLUSTERS(size)                                                                                     \
    extern "C" __global__ void __cluster_dims__(size) __launch_bounds__(128)                               \
        clusters_of_##size(uint32_t seed, uint16_t *sms) {                                                 \
        meet_neighbours<size>(seed, sms);                                                                  \
    }

CLUSTERS(2)
CLUSTERS(3)
CLUSTERS(5)
CLUSTERS(7)
CLUSTERS(8)

#define KERNEL(name, Mover, back_second, back_first)                                                       \
    extern "C" __global__ void __launch_bounds__(kMostThreads, 1)                                          \
        name(const __grid_constant__ Stream stream, const uint32_t *table, char *buffer, State *state, Worker *workers, \
             uint16_t *) {                                                                                 \
        run<Mover>(stream, table, buffer, state, workers, back_second, back_first);                        \
    }

#define READ(bits, words, unroll, tag, policy)                                                             \
    using Read_##tag##_##bits##_##unroll = Reader<words, unroll, policy>;                                  \
    KERNEL(read_##tag##_b##bits##_u##unroll, Read_##tag##_##bits##_##unroll, false, false)

#define WRITE(bits, words, unroll)                                                                         \
    using Write_##bits##_##unroll = Writer<words, unroll>;                                                 \
    KERNEL(write_b##bits##_u##unroll, Write_##bits##_##unroll, false, true)

READ(32, 1, 1, cg, kCg)
READ(32, 1, 4, cg, kCg)
READ(64, 2, 1, cg, kCg)
READ(64, 2, 4, cg, kCg)
READ(128, 4, 1, cg, kCg)
READ(128, 4, 2, cg, kCg)
READ(128, 4, 4, cg, kCg)
READ(128, 4, 8, cg, kCg)
READ(128, 4, 4, ca, kCa)
READ(128, 4, 4, na, kNa)
WRITE(32, 1, 1)
WRITE(32, 1, 4)
WRITE(128, 4, 1)
WRITE(128, 4, 4)
KERNEL(copy_b128_u1, Copier<1>, true, false)
KERNEL(copy_b128_u4, Copier<4>, true, false)
KERNEL(mix_b128_u4, Mixer<4>, true, false)
KERNEL(tma_load, BulkLoader, false, false)
KERNEL(tma_store, BulkStorer, false, true)

#define LOADED(name, Mover)                                                                                \
    extern "C" __global__ void __launch_bounds__(kMostThreads, 1)                                          \
        name(const __grid_constant__ Stream stream, const uint32_t *table, char *buffer, State *state, Worker *workers, \
             uint16_t *times) {                                                                            \
        run_loaded<Mover>(stream, table, buffer, state, workers, times);                                   \
    }

using LoadedRead = Reader<4, 1, kCg>;
using LoadedRead4 = Reader<4, 4, kCg>;
using LoadedWrite = Writer<4, 1>;
LOADED(chase_beside_read_u1, LoadedRead)
LOADED(chase_beside_read_u4, LoadedRead4)
LOADED(chase_beside_write_u1, LoadedWrite)

#endif
