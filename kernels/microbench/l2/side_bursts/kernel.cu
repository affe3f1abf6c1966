// Who waits for what crosses between L2's two sides, and in what order do a burst's loads come?
//
// All CTAs must be there at once. The first launch of a process finds out which side of L2 each SM is on (`l2_residency` says
// how), then at which side each line is at home: an SM of each side times atomics on it, and where they take less, there it is.
// Every launch reads other lines over all of L2, meets, begins at one nanosecond, and each warp makes a burst: UNROLLED loads of
// 16 bytes a lane, waited for one after the other, as many stores, a fence, of lines that are at home on its SM's side, on the
// other one, or on both. It notes when it has asked, when lines had come, when it had stored, when the fence was over. All of it
// is done num_turns times, so that the last time, which counts, its code is there. Behind it CTAs read what others have stored.

#include "grid.cuh"

constexpr uint32_t kLines = 131072;  // of each area: 16 MiB
constexpr uint32_t kVectors = 8 * kLines;
constexpr uint32_t kMostThreads = 1024, kMostLines = 512;
constexpr uint32_t kProbes = 64;  // lines that tell sides
constexpr uint32_t kTries = 4;
constexpr int32_t kClearCycles = 60;  // a home that is told by less is none that one can be sure of
constexpr int32_t kMostCycles = 30000;
constexpr uint32_t kUneven = 1, kShort = 2;  // why a launch was given up: CTAs on SMs, lines of a side
constexpr uint64_t kAheadNs = 6000;
constexpr uint32_t kNoWord = word_at(0xFFFFFFFFu);

enum Area : uint32_t { kRead, kWrite };
enum Side : uint32_t { kNobody, kNear, kFar, kBoth };

__device__ __align__(4096) uint4 to_read[kVectors], to_write[kVectors];
__device__ uint32_t probed[kMostSms * kProbes];
__device__ uint32_t sides[kMostSms];
__device__ int16_t away_cycles[2][2 * kLines];  // of each side's latencies of a line from the mean of the SM that timed it
__device__ uint32_t lists[2][2][kLines];        // of an area's lines that are at home on a side, in order
__device__ uint32_t num_at_home[2][2];
__device__ uint32_t num_unclear[2];
__device__ uint32_t is_prepared;

struct Plan {
    uint32_t flush_vectors, num_sms, ctas_per_sm;
    uint32_t read_side, write_side;  // Side
    uint32_t delay_cycles, num_turns;
};

struct Times {
    uint32_t issued_first, issued_last, first_come, last_come, stored, fenced;
    uint32_t sum, sm, side, slot, num_wrong;
    uint32_t used;  // tells nothing: addresses, so that they were kept
};

struct Told {
    uint32_t num_unclear, num_at_home_0[2];
    uint32_t reason;  // of giving up: kUneven, kShort
};

struct Rank {
    uint32_t side, of_sm, num_alike;  // SMs of its side before it, and all of them
};

struct Shared {
    uint32_t own[kProbes], other[kProbes];
    uint32_t slot, is_well, is_new, target, begin;
    Rank rank;
    uint32_t sink;
    union {
        uint32_t ends[kMostThreads];
        uint32_t lines[2][kMostLines];  // of a CTA
    };
};

// All of its bits are used: 32 of them would come by S2UR, which waits in a queue.
__device__ __forceinline__ uint32_t cycle() {
    uint32_t now;
    asm volatile(
        "{\n\t.reg .b64 all;\n\t.reg .b32 low, high;\n\tmov.u64 all, %%clock64;\n\tmov.b64 {low, high}, all;\n\t"
        "shr.u32 high, high, 31;\n\tadd.u32 %0, low, high;\n\t}"
        : "=r"(now)::"memory");
    return now;
}

__device__ __forceinline__ uint4 load(const uint4 *at) {
    uint4 v;
    asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at) : "memory");
    return v;
}

__device__ __forceinline__ void store(uint4 *at, uint4 v) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// What follows is issued after the value has come; no word to read is kNoWord.
__device__ __forceinline__ void await(uint32_t sink, uint32_t value) {
    asm volatile(
        "{\n\t.reg .pred p;\n\tsetp.eq.u32 p, %0, %1;\n\t@p st.volatile.shared.u32 [%2], %0;\n\t}" ::"r"(value), "n"(kNoWord),
        "r"(sink)
        : "memory");
}

// The least of some times that an atomic takes which changes nothing.
__device__ __forceinline__ uint32_t latency_of(uint32_t *word, uint32_t *sink) {
    uint32_t least = kMostCycles;
#pragma unroll 1
    for (uint32_t attempt = 0; attempt < kTries; ++attempt) {
        uint32_t value;
        const uint32_t begin = cycle();
        asm volatile("atom.global.add.u32 %0, [%1], 0;" : "=r"(value) : "l"(word) : "memory");
        *static_cast<volatile uint32_t *>(sink) = value;  // waits for it
        least = min(least, cycle() - begin);
    }
    return least;
}

// Of both areas, one after the other.
__device__ __forceinline__ uint32_t *word_of_line(uint32_t line) {
    return reinterpret_cast<uint32_t *>(line < kLines ? to_read + 8 * line : to_write + 8 * (line - kLines));
}

__device__ __forceinline__ uint4 words_at(uint32_t vector) {
    return make_uint4(word_at(4 * vector), word_at(4 * vector + 1), word_at(4 * vector + 2), word_at(4 * vector + 3));
}

// ------------------------------------------------------------------------------------------------ who is where, and what

// All CTAs meet; false for all threads when one did not come.
__device__ __forceinline__ bool meet_all(Flags *flags, Shared &shared) {
    __syncthreads();
    if (threadIdx.x == 0 && shared.is_well) shared.is_well = meet(flags, &flags->met, shared.target += gridDim.x, 500);
    __syncthreads();
    return shared.is_well;
}

// 0 for SMs whose latencies rise and fall with those of SM 0, else 1.
__device__ __forceinline__ uint32_t side_of(const Shared &shared) {
    int64_t own = 0, other = 0, together = 0;
#pragma unroll 1
    for (uint32_t idx = 0; idx < kProbes; ++idx) {
        own += shared.own[idx];
        other += shared.other[idx];
    }
#pragma unroll 1
    for (uint32_t idx = 0; idx < kProbes; ++idx)
        together +=
            (static_cast<int64_t>(kProbes) * shared.own[idx] - own) * (static_cast<int64_t>(kProbes) * shared.other[idx] - other);
    return together < 0;
}

// All threads: there are more of them than SMs.
__device__ __forceinline__ void find_rank(const Plan &plan, Shared &shared) {
    const uint32_t sm = sm_idx(), side = __ldcg(&sides[sm]);
    const bool is_alike = threadIdx.x < plan.num_sms && __ldcg(&sides[threadIdx.x]) == side;
    const uint32_t before = __syncthreads_count(is_alike && threadIdx.x < sm);
    const uint32_t num_alike = __syncthreads_count(is_alike);
    if (threadIdx.x == 0) shared.rank = {side, before, num_alike};
    __syncthreads();
}

// One thread of an SM: every num_alike-th line of both areas, less the mean, so that SMs that are far from all count alike.
// Sides begin with different areas.
__device__ __forceinline__ void time_lines(const Rank &rank, uint32_t *sink) {
    int64_t total = 0;
    int32_t count = 0;
#pragma unroll 1
    for (uint32_t idx = rank.of_sm; idx < 2 * kLines; idx += rank.num_alike, ++count) {
        const uint32_t line = (idx + rank.side * kLines) % (2 * kLines);
        const uint32_t cycles = latency_of(word_of_line(line), sink);
        away_cycles[rank.side][line] = static_cast<int16_t>(cycles);
        total += cycles;
    }
    const int32_t mean = static_cast<int32_t>(total / max(count, 1));
#pragma unroll 1
    for (uint32_t line = rank.of_sm; line < 2 * kLines; line += rank.num_alike) {
        const uint32_t turned = (line + rank.side * kLines) % (2 * kLines);
        away_cycles[rank.side][turned] = static_cast<int16_t>(away_cycles[rank.side][turned] - mean);
    }
}

// Side 0's latency less side 1's: of a line that is at home on side 1 it is positive.
__device__ __forceinline__ int32_t nearer_to_1(uint32_t line) {
    return static_cast<int32_t>(__ldcg(&away_cycles[0][line])) - static_cast<int32_t>(__ldcg(&away_cycles[1][line]));
}

// One CTA an area: lines of each side in order of address; each thread has neighbours.
__device__ __forceinline__ void list_lines(uint32_t area, Shared &shared) {
    const uint32_t share = kLines / blockDim.x, first = threadIdx.x * share;
    uint32_t at_0 = 0, unclear = 0;
#pragma unroll 1
    for (uint32_t line = first; line < first + share; ++line) {
        const int32_t nearer = nearer_to_1(area * kLines + line);
        at_0 += nearer <= 0;
        unclear += abs(nearer) < kClearCycles;
    }
    shared.ends[threadIdx.x] = at_0;
    atomicAdd(&num_unclear[area], unclear);
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t end = 0;
#pragma unroll 1
        for (uint32_t thread = 0; thread < blockDim.x; ++thread) shared.ends[thread] = end += shared.ends[thread];
        num_at_home[area][0] = end;
        num_at_home[area][1] = kLines - end;
    }
    __syncthreads();
    uint32_t next_0 = shared.ends[threadIdx.x] - at_0, next_1 = first - next_0;
#pragma unroll 1
    for (uint32_t line = first; line < first + share; ++line)
        if (nearer_to_1(area * kLines + line) <= 0)
            lists[area][0][next_0++] = line;
        else
            lists[area][1][next_1++] = line;
}

// Once in a process.
__device__ __forceinline__ bool prepare(const Plan &plan, Flags *flags, Shared &shared) {
    const uint32_t sm = sm_idx();
    const bool is_first = shared.slot == 0;
#pragma unroll 1
    for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < kVectors; at += gridDim.x * blockDim.x)
        to_read[at] = words_at(at);
    if (blockIdx.x == 0 && threadIdx.x < 2) num_unclear[threadIdx.x] = 0;
    if (!meet_all(flags, shared)) return false;
    if (is_first && threadIdx.x == 0) {
#pragma unroll 1
        for (uint32_t idx = 0; idx < kProbes; ++idx) {
            const uint32_t probe = (idx + sm) % kProbes;
            probed[sm * kProbes + probe] = latency_of(word_of_line(32 * probe), &shared.sink);
        }
    }
    if (!meet_all(flags, shared)) return false;
    if (is_first && threadIdx.x < kProbes) {
        shared.own[threadIdx.x] = __ldcg(&probed[sm * kProbes + threadIdx.x]);
        shared.other[threadIdx.x] = __ldcg(&probed[threadIdx.x]);
    }
    __syncthreads();
    if (is_first && threadIdx.x == 0) sides[sm] = side_of(shared);
    if (!meet_all(flags, shared)) return false;
    find_rank(plan, shared);
    if (is_first && threadIdx.x == 0) time_lines(shared.rank, &shared.sink);
    if (!meet_all(flags, shared)) return false;
    if (blockIdx.x < 2) list_lines(blockIdx.x, shared);
    if (!meet_all(flags, shared)) return false;
    if (blockIdx.x == 0 && threadIdx.x == 0) atomicExch(&is_prepared, 1u);
    return true;
}

// ------------------------------------------------------------------------------------------------ bursts

// The line of an area that is a side's number at.
__device__ __forceinline__ uint32_t line_of(uint32_t area, uint32_t of, uint32_t side, uint32_t at) {
    return of == kBoth ? side * (kLines / 2) + at : __ldcg(&lists[area][of == kNear ? side : 1 - side][at]);
}

__device__ __forceinline__ uint32_t num_alike(const Plan &plan, const Shared &shared) {
    return shared.rank.num_alike * plan.ctas_per_sm;
}

// Whether areas have as many lines as this side's CTAs take.
__device__ __forceinline__ bool has_lines(const Plan &plan, const Shared &shared, uint32_t share) {
    const uint32_t num = num_alike(plan, shared) * share, side = shared.rank.side;
    bool has_all = num <= kLines / 2;
    for (uint32_t area = 0; area < 2; ++area) {
        const uint32_t of = area == kRead ? plan.read_side : plan.write_side;
        if (of == kNear || of == kFar) has_all &= num <= __ldcg(&num_at_home[area][of == kNear ? side : 1 - side]);
    }
    return has_all;
}

// All threads: the `share` lines of each area that this CTA takes, or the one that is `beyond` CTAs of its side behind it.
__device__ __forceinline__ void take_lines(const Plan &plan, Shared &shared, uint32_t beyond, uint32_t share) {
    const Rank rank = shared.rank;
    const uint32_t cta = (shared.slot * rank.num_alike + rank.of_sm + beyond) % num_alike(plan, shared);
    __syncthreads();
#pragma unroll 1
    for (uint32_t idx = threadIdx.x; idx < 2 * share; idx += blockDim.x) {
        const uint32_t area = idx >= share, of = area == kRead ? plan.read_side : plan.write_side, at = idx - area * share;
        shared.lines[area][at] = of == kNobody ? 0 : line_of(area, of, rank.side, cta * share + at);
    }
    __syncthreads();
}

__device__ __forceinline__ void give_up(Flags *flags, Told *told, uint32_t reason) {
    atomicExch(&told->reason, reason);
    atomicExch(&flags->has_failed, 1u);
}

// One thread: all go on at a nanosecond that the last to come sets.
__device__ __forceinline__ bool begin_together(Flags *flags, uint64_t *start, uint32_t target) {
    __threadfence();
    if (atomicAdd(&flags->met, 1u) + 1 == target) atomicExch(reinterpret_cast<unsigned long long *>(start), now_ns() + kAheadNs);
    const int64_t begin = clock_now();
    uint64_t when;
    while (!(when = *static_cast<volatile uint64_t *>(start))) {
        if (clock_now() - begin > kPatienceCycles) {
            atomicExch(&flags->has_failed, 1u);
            return false;
        }
        __nanosleep(100);
    }
    __threadfence();
    while (now_ns() < when) {}
    return true;
}

// So that nothing else is in L2.
__device__ __forceinline__ void read_over(const uint4 *flush, uint32_t num_vectors, uint32_t sink) {
    uint32_t sum = 0;
    for (uint32_t at = blockIdx.x * blockDim.x + threadIdx.x; at < num_vectors; at += gridDim.x * blockDim.x)
        sum += load(flush + at).x;
    await(sink, sum);
}

template <uint32_t UNROLLED>
__device__ __forceinline__ void burst(const Plan &plan, Flags *flags, const uint4 *flush, uint32_t *probed_out, uint32_t *lines,
                                      Times *times, Told *told) {
    __shared__ Shared shared;
    if (threadIdx.x == 0) {
        const uint32_t sm = sm_idx();
        shared.is_well = 1;
        shared.target = 0;
        shared.is_new = !peek(&is_prepared);
        shared.slot = sm < plan.num_sms ? atomicAdd(&flags->claimed[sm], 1u) : plan.ctas_per_sm;
        if (shared.slot >= plan.ctas_per_sm) {
            give_up(flags, told, kUneven);
            shared.is_well = 0;
        }
    }
    if (!meet_all(flags, shared)) return;
    if (shared.is_new && !prepare(plan, flags, shared)) return;
    find_rank(plan, shared);
    const bool reads = plan.read_side != kNobody, writes = plan.write_side != kNobody;
    const uint32_t share = UNROLLED * blockDim.x / 8;  // lines of a CTA
    if (share > kMostLines || !has_lines(plan, shared, share)) {
        if (threadIdx.x == 0) give_up(flags, told, kShort);
        return;
    }
    take_lines(plan, shared, 0, share);
    const uint32_t sink = static_cast<uint32_t>(__cvta_generic_to_shared(&shared.sink));
    const uint32_t wait = shared.slot * plan.delay_cycles;
    uint4 x[UNROLLED];
    const uint4 *from[UNROLLED];  // used behind the burst, so that no clock waits for a register of theirs
    uint4 *to[UNROLLED];
    uint32_t issued_first, issued_last, first_come, last_come, stored, fenced;
#pragma unroll 1
    for (uint32_t turn = 0; turn < plan.num_turns; ++turn) {
        read_over(flush, plan.flush_vectors, sink);
#pragma unroll
        for (uint32_t i = 0; i < UNROLLED; ++i) {
            const uint32_t line = i * (blockDim.x / 8) + threadIdx.x / 8, lane = threadIdx.x % 8;
            const uint32_t at = shared.lines[kWrite][line] * 8 + lane;
            from[i] = to_read + shared.lines[kRead][line] * 8 + lane;
            to[i] = to_write + at;
            x[i] = make_uint4(at, 5u, 6u, 7u);
            asm volatile("" : "+r"(x[i].x), "+r"(x[i].y), "+r"(x[i].z), "+r"(x[i].w), "+l"(from[i]), "+l"(to[i])::"memory");
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            shared.is_well = begin_together(flags, &flags->start[turn], shared.target += gridDim.x);
            shared.begin = cycle();
        }
        __syncthreads();
        if (wait)
            while (cycle() - shared.begin < wait) {}
        if (reads) {
#pragma unroll
            for (uint32_t i = 0; i < UNROLLED; ++i) {
                x[i] = load(from[i]);
                if (i == 0) issued_first = issued_last = cycle();
                if (i != 0 && i == UNROLLED - 1) issued_last = cycle();
            }
#pragma unroll
            for (uint32_t i = 0; i < UNROLLED; ++i) {
                await(sink, x[i].x);
                if (i == 0) first_come = last_come = cycle();
                if (i != 0 && i == UNROLLED - 1) last_come = cycle();
            }
        } else {
            issued_first = issued_last = first_come = last_come = 0;
        }
        if (writes) {
#pragma unroll
            for (uint32_t i = 0; i < UNROLLED; ++i) store(to[i], x[i]);
        }
        stored = cycle();
        __threadfence();
        fenced = cycle();
    }
    if (!shared.is_well) return;
    uint32_t sum = 0, used = 0;
#pragma unroll
    for (uint32_t i = 0; i < UNROLLED; ++i) {
        sum += x[i].x + x[i].y + x[i].z + x[i].w;
        if (UNROLLED == 2 && i == 0) continue;  // 32 registers have no room for all
        const uint64_t both = reinterpret_cast<uint64_t>(from[i]) ^ reinterpret_cast<uint64_t>(to[i]);
        used ^= static_cast<uint32_t>(both) ^ static_cast<uint32_t>(both >> 32);
    }
    sum = __reduce_add_sync(0xffffffffu, sum);
    Times *mine = times + (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) {
        const uint32_t begin = shared.begin;
        *mine = {issued_first - begin, issued_last - begin, first_come - begin, last_come - begin, stored - begin,
                 fenced - begin, reads ? sum : 0, sm_idx(), shared.rank.side, shared.slot, 0, used};
    }
#pragma unroll 1
    for (uint32_t idx = threadIdx.x; idx < 2 * share; idx += blockDim.x)
        lines[2 * share * blockIdx.x + idx] = shared.lines[idx >= share][idx < share ? idx : idx - share];
    if (!meet_all(flags, shared)) return;
    take_lines(plan, shared, 1, share);  // of the CTA whose stores it looks at
    uint32_t num_wrong = 0;
    if (writes) {
#pragma unroll 1
        for (uint32_t i = 0; i < UNROLLED; ++i) {
            const uint32_t line = i * (blockDim.x / 8) + threadIdx.x / 8, lane = threadIdx.x % 8;
            const uint32_t at = shared.lines[kWrite][line] * 8 + lane;
            const uint4 wanted = reads ? words_at(shared.lines[kRead][line] * 8 + lane) : make_uint4(at, 5u, 6u, 7u);
            const uint4 found = load(to_write + at);
            num_wrong += found.x != wanted.x || found.y != wanted.y || found.z != wanted.z || found.w != wanted.w;
            store(to_write + at, make_uint4(0, 0, 0, 0));  // the next launch shall not find it right
        }
    }
    num_wrong = __reduce_add_sync(0xffffffffu, num_wrong);
    if (threadIdx.x % 32 == 0) mine->num_wrong = num_wrong;
    const uint32_t probe = sm_idx() * kProbes + threadIdx.x;
    if (shared.slot == 0 && threadIdx.x < kProbes) probed_out[probe] = __ldcg(&probed[probe]);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        told->num_unclear = __ldcg(&num_unclear[0]) + __ldcg(&num_unclear[1]);
        for (uint32_t area = 0; area < 2; ++area) told->num_at_home_0[area] = __ldcg(&num_at_home[area][0]);
    }
}

#define BURST(UNROLLED, MOST_THREADS, CTAS)                                                                                       \
    extern "C" __global__ void __launch_bounds__(MOST_THREADS, CTAS)                                                              \
        burst_u##UNROLLED(const __grid_constant__ Plan plan, Flags *flags, const uint4 *flush, uint32_t *probed_out,              \
                          uint32_t *lines, Times *times, Told *told) {                                                            \
        burst<UNROLLED>(plan, flags, flush, probed_out, lines, times, told);                                                      \
    }

BURST(1, 1024, 2)
BURST(2, 1024, 2)
BURST(4, 1024, 1)
BURST(8, 512, 1)
