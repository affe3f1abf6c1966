// What kernels that span SMs share: which SM this is, its clock, how CTAs meet, how clocks of two SMs are compared.
//
// Flags are read by atomics that change nothing, so that L2's counters of reads see the measured loads alone. Every wait
// gives up after kPatienceCycles and says so, instead of hanging. One thread of a CTA calls these functions.

#pragma once
#include <cstdint>

constexpr int64_t kPatienceCycles = 100000000;  // a twentieth of a second
constexpr int kMostSms = 256;
constexpr int64_t kNever = INT64_MAX;
constexpr uint64_t kStartNs = 4000;  // longer than it takes to see that all have come

__device__ __forceinline__ int64_t clock_now() {
    int64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ uint32_t sm_idx() {
    uint32_t idx;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(idx));
    return idx;
}

__device__ __forceinline__ uint32_t num_sm_ids() {
    uint32_t num;
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(num));
    return num;
}

__device__ __forceinline__ void pause_until(int64_t cycle) {
    while (clock_now() < cycle) {}
}

__device__ __forceinline__ uint64_t peek(uint64_t *word) {
    uint64_t value;
    asm volatile("atom.relaxed.gpu.global.or.b64 %0, [%1], 0;" : "=l"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ uint32_t peek(uint32_t *word) {
    uint32_t value;
    asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], 0;" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ __forceinline__ void poke(uint64_t *word, uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

// Word number idx of any pool: no two alike, and none of them zero for long.
__host__ __device__ constexpr uint32_t word_at(uint32_t idx) { return idx * 0x9E3779B1u + 0x7F4A7C15u; }

// Flags of a launch, all zero beforehand. A line of its own for each purpose.
struct Flags {
    uint32_t arrived;  // CTAs of the whole grid
    uint32_t has_failed;
    uint32_t gap0[30];
    uint32_t met;  // CTAs that take part
    uint32_t gap1[31];
    uint64_t ask[8], answer[8];  // of the pair that compares clocks: one line
    uint64_t up[8], start[8];
    uint32_t claimed[kMostSms];
};

// Comes to a counter that only grows and waits for the others; false when they do not come. Between two polls it sleeps
// for nap_ns, so that those who wait leave L2 alone.
__device__ __forceinline__ bool meet(Flags *flags, uint32_t *counter, uint32_t target, uint32_t nap_ns) {
    __threadfence();
    atomicAdd(counter, 1u);
    const int64_t begin = clock_now();
    for (uint32_t poll = 0; peek(counter) < target; ++poll) {
        if (clock_now() - begin > kPatienceCycles || (poll % 16 == 15 && peek(&flags->has_failed))) {
            atomicExch(&flags->has_failed, 1u);
            return false;
        }
        if (nap_ns) __nanosleep(nap_ns);
    }
    __threadfence();
    return true;
}

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

// The same, and all go on when the time that all SMs share reaches what the last to come has set. Turns alternate slots.
__device__ __forceinline__ bool meet_in_time(Flags *flags, uint32_t *counter, uint32_t target, uint32_t turn) {
    uint64_t *start = &flags->start[turn & 1];
    atomicMax(reinterpret_cast<unsigned long long *>(start), static_cast<unsigned long long>(now_ns() + kStartNs));
    if (!meet(flags, counter, target, 0)) return false;
    const uint64_t when = peek(start);
    const int64_t begin = clock_now();
    while (now_ns() < when)
        if (clock_now() - begin > kPatienceCycles) return false;
    return true;
}

// What one SM knows of its clock against reader 0's.
struct Offset {
    int64_t cycles;      // this clock less reader 0's
    int64_t most_drift;  // largest change from one comparison to the next
    uint64_t last_ask;
    bool is_known;
};

// Reader 0 sends its clock num_rounds times; reader `who` notes how late by its own clock it sees each, and sends its own
// back. The least of each way, halved: what both ways take alike cancels. Both words lie in one line.
__device__ __forceinline__ bool send_clock(Flags *flags, uint32_t who, uint32_t num_rounds) {
    uint64_t last = peek(&flags->answer[who]);
    int64_t least = kNever;
    for (uint32_t round = 0; round < num_rounds; ++round) {
        pause_until(clock_now() + (round * 97u & 511u));  // another place in the other's polling each time
        const int64_t begin = clock_now();
        poke(&flags->ask[who], static_cast<uint64_t>(begin));
        uint64_t seen;
        while ((seen = peek(&flags->answer[who])) == last)
            if (clock_now() - begin > kPatienceCycles) return false;
        const int64_t trip = clock_now() - static_cast<int64_t>(seen);
        last = seen;
        least = trip < least ? trip : least;
    }
    poke(&flags->up[who], static_cast<uint64_t>(least));
    return true;
}

__device__ __forceinline__ bool answer_clock(Flags *flags, uint32_t who, uint32_t num_rounds, Offset &offset, int64_t &down) {
    down = kNever;
    for (uint32_t round = 0; round < num_rounds; ++round) {
        const int64_t begin = clock_now();
        uint64_t seen;
        while ((seen = peek(&flags->ask[who])) == offset.last_ask)
            if (clock_now() - begin > kPatienceCycles) return false;
        const int64_t now = clock_now();
        const int64_t trip = now - static_cast<int64_t>(seen);
        offset.last_ask = seen;
        down = trip < down ? trip : down;
        pause_until(now + (round * 61u & 511u));
        poke(&flags->answer[who], static_cast<uint64_t>(clock_now()));
    }
    return true;
}

// All of num_readers compare their clocks with reader 0's, one after the other; `target` is the count to meet at next.
__device__ __forceinline__ bool compare_clocks(Flags *flags, uint32_t reader, uint32_t num_readers, uint32_t num_rounds,
                                               uint32_t &target, Offset &offset) {
    for (uint32_t who = 1; who < num_readers; ++who) {
        int64_t down = 0;
        bool is_well = true;
        if (reader == 0) is_well = send_clock(flags, who, num_rounds);
        if (reader == who) is_well = answer_clock(flags, who, num_rounds, offset, down);
        if (!is_well) atomicExch(&flags->has_failed, 1u);
        target += num_readers;
        if (!meet(flags, &flags->met, target, 500) || !is_well) return false;
        if (reader == who) {
            const int64_t cycles = (down - static_cast<int64_t>(peek(&flags->up[who]))) / 2;
            const int64_t moved = cycles > offset.cycles ? cycles - offset.cycles : offset.cycles - cycles;
            if (offset.is_known && moved > offset.most_drift) offset.most_drift = moved;
            offset.cycles = cycles;
            offset.is_known = true;
        }
    }
    return true;
}
