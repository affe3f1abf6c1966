// Which of the lines that are read over and over stay in L2: over the footprint, by who reads them, beside stores, with hints?
//
// One CTA an SM. SMs find out which side of L2 they are on: the latencies of atomics on the same lines, resolved where a line
// is at home, rise and fall together on SMs of one side and against each other on different ones. Then the readers read the
// footprint, round after round, all rounds timed; behind them one SM of each side reads single lines of it, one by one.

#include "grid.cuh"

constexpr uint32_t kThreads = 512;
constexpr uint32_t kChunkThreads = 256;                 // that read one chunk together
constexpr uint32_t kChunkBytes = kChunkThreads * 16;
constexpr uint32_t kGroups = kThreads / kChunkThreads;  // of a CTA, each a reader of chunks
constexpr uint32_t kInFlight = 8;                       // chunks of a group
constexpr uint32_t kPoolBytes = 64u << 20;
constexpr uint32_t kStoreBytes = 128u << 20;
constexpr uint32_t kProbes = 64;   // lines that tell sides
constexpr uint32_t kTries = 4;
constexpr uint32_t kSamples = 512; // lines that an SM of each side reads at the end
constexpr uint32_t kNone = 0xFFFFFFFFu;

__device__ __align__(4096) uint4 pool[kPoolBytes / 16];
__device__ __align__(4096) uint4 stored[kStoreBytes / 16];
__device__ uint32_t pool_is_filled;

enum Readers : uint32_t { kSplit, kOneSide, kBothSides, kAll };
enum Hint : uint32_t { kNormal, kFirst, kLast };

struct Plan {
    uint32_t footprint_bytes;  // a multiple of a chunk
    uint32_t num_rounds;
    uint32_t readers;      // Readers
    uint32_t read_hint;    // Hint
    uint32_t write_hint;   // Hint
    uint32_t num_writes;   // chunks that are stored for each kInFlight that are read
};

struct Told {
    int64_t side, rank, checksum, unused;
};

struct Shared {
    uint32_t own[kProbes], other[kProbes];
    uint32_t side, rank, num_alike;
    uint32_t checksum;
    uint32_t is_well;
    uint32_t sink[kThreads];
};

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ uint4 words_at(uint32_t idx) {
    return make_uint4(word_at(4 * idx), word_at(4 * idx + 1), word_at(4 * idx + 2), word_at(4 * idx + 3));
}

// Zero, which the compiler cannot know, and not before the clock is read: what it is mixed with is used after that.
__device__ __forceinline__ uint32_t zero_now() { return static_cast<uint32_t>(clock_now() >> 63); }

__device__ __forceinline__ uint32_t sum_after(uint4 v, uint32_t zero) {
    return (v.x ^ zero) + (v.y ^ zero) + (v.z ^ zero) + (v.w ^ zero);
}

// The last use of a value: what follows is issued after it has come.
__device__ __forceinline__ void await(uint32_t *slot, uint32_t value) {
    asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(smem_address(slot)), "r"(value) : "memory");
}

__device__ __forceinline__ uint64_t policy_of(uint32_t hint) {
    uint64_t policy;
    if (hint == kFirst)
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    else if (hint == kLast)
        asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    else
        asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

__device__ __forceinline__ uint4 load(const uint4 *address, uint64_t policy) {
    uint4 v;
    asm volatile("ld.global.cg.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(address), "l"(policy)
                 : "memory");
    return v;
}

__device__ __forceinline__ void store(uint4 *address, uint4 v, uint64_t policy) {
    asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w), "l"(policy)
                 : "memory");
}

// ------------------------------------------------------------------------------------------------ who is where

// All CTAs meet; false for all threads when one did not come.
__device__ __forceinline__ bool meet_all(Flags *flags, Shared &shared, uint32_t *counter, uint32_t target, uint32_t nap_ns) {
    __syncthreads();
    if (threadIdx.x == 0 && shared.is_well) shared.is_well = meet(flags, counter, target, nap_ns);
    __syncthreads();
    return shared.is_well;
}

// Fills the pool once in a process; stores over all of L2, so that nothing of the pool is there.
__device__ __forceinline__ void prepare(Shared &shared) {
    if (threadIdx.x == 0) shared.is_well = 1;
    if (threadIdx.x == 0) shared.rank = peek(&pool_is_filled);
    __syncthreads();
    const uint32_t first = blockIdx.x * kThreads + threadIdx.x, step = gridDim.x * kThreads;
    if (!shared.rank)
        for (uint32_t idx = first; idx < kPoolBytes / 16; idx += step) pool[idx] = words_at(idx);
    for (uint32_t idx = first; idx < kStoreBytes / 16; idx += step) stored[idx] = words_at(~idx);
}

// The least of some latencies of an atomic on each of kProbes lines, 4 KiB apart; each SM begins at another one.
__device__ __forceinline__ void time_probes(uint32_t sm, Shared &shared, uint32_t *latencies) {
#pragma unroll 1
    for (uint32_t idx = 0; idx < kProbes; ++idx) {
        const uint32_t probe = (idx + sm) % kProbes;
        uint32_t *word = reinterpret_cast<uint32_t *>(stored) + probe * 1024;
        int64_t least = kNever;
#pragma unroll 1
        for (uint32_t attempt = 0; attempt < kTries; ++attempt) {
            const int64_t begin = clock_now();
            await(&shared.sink[0], peek(word));
            const int64_t cycles = clock_now() - begin;
            least = cycles < least ? cycles : least;
        }
        latencies[sm * kProbes + probe] = static_cast<uint32_t>(least);
    }
}

// 0 for SMs whose latencies rise and fall with those of SM 0, else 1.
__device__ __forceinline__ uint32_t side_of(const Shared &shared) {
    int64_t own = 0, other = 0;
#pragma unroll 1
    for (uint32_t idx = 0; idx < kProbes; ++idx) {
        own += shared.own[idx];
        other += shared.other[idx];
    }
    int64_t together = 0;
#pragma unroll 1
    for (uint32_t idx = 0; idx < kProbes; ++idx)
        together += (static_cast<int64_t>(kProbes) * shared.own[idx] - own) * (static_cast<int64_t>(kProbes) * shared.other[idx] - other);
    return together < 0;
}

// ------------------------------------------------------------------------------------------------ rounds

struct Share {
    uint32_t first, stride, count;  // chunks of this group: first, first + stride, ...
};

__device__ __forceinline__ Share share_of(const Plan &plan, const Shared &shared) {
    const uint32_t num = plan.footprint_bytes / kChunkBytes, group = threadIdx.x / kChunkThreads;
    if (plan.readers == kAll)  // everyone everything, from another place on
        return {static_cast<uint32_t>(static_cast<uint64_t>(num) * shared.rank / shared.num_alike) + group, kGroups,
                (num + kGroups - 1 - group) / kGroups};
    if (plan.readers == kOneSide && shared.side != 0) return {0, 1, 0};
    const uint32_t first = shared.rank * kGroups + group, stride = shared.num_alike * kGroups;
    return {first, stride, first < num ? (num - first + stride - 1) / stride : 0};
}

__device__ __forceinline__ uint32_t read_round(const Plan &plan, Share share, uint64_t read_policy, uint64_t write_policy,
                                               uint32_t &next_store, uint32_t store_stride) {
    const uint32_t num = plan.footprint_bytes / kChunkBytes, lane = threadIdx.x % kChunkThreads;
    uint32_t total = 0;
#pragma unroll 1
    for (uint32_t done = 0; done < share.count; done += kInFlight) {
        uint4 v[kInFlight];
#pragma unroll
        for (uint32_t idx = 0; idx < kInFlight; ++idx) {
            uint32_t chunk = share.first + (done + idx) * share.stride;
            chunk -= chunk >= num ? num : 0;
            v[idx] = make_uint4(0, 0, 0, 0);
            if (done + idx < share.count) v[idx] = load(pool + chunk * kChunkThreads + lane, read_policy);
        }
#pragma unroll 1
        for (uint32_t idx = 0; idx < plan.num_writes; ++idx) {
            store(stored + next_store * kChunkThreads + lane, words_at(next_store * kChunkThreads + lane), write_policy);
            next_store += store_stride;
            next_store -= next_store >= kStoreBytes / kChunkBytes ? kStoreBytes / kChunkBytes : 0;
        }
        const uint32_t zero = zero_now();
#pragma unroll
        for (uint32_t idx = 0; idx < kInFlight; ++idx) total += sum_after(v[idx], zero);
    }
    return total;
}

// One thread: latencies of single lines of the footprint, spread over all of it; the two sides read different ones.
__device__ __forceinline__ void sample(const Plan &plan, Shared &shared, uint32_t side, uint64_t policy, uint32_t *latencies) {
    const uint32_t num_lines = plan.footprint_bytes / 128;
#pragma unroll 1
    for (uint32_t idx = 0; idx < kSamples; ++idx) {
        const uint32_t line = static_cast<uint32_t>(static_cast<uint64_t>((2 * idx + side) * 2654435761u) * num_lines >> 32);
        const int64_t begin = clock_now();
        await(&shared.sink[0], load(pool + line * 8, policy).x);
        latencies[side * kSamples + idx] = static_cast<uint32_t>(clock_now() - begin);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads)
    reread(const __grid_constant__ Plan plan, Flags *flags, uint32_t *sides, uint32_t *probed, int32_t *rounds, uint32_t *sampled,
           Told *told) {
    __shared__ Shared shared;
    const uint32_t sm = sm_idx(), num_sms = gridDim.x;
    prepare(shared);
    if (threadIdx.x == 0) shared.checksum = 0;
    if (threadIdx.x == 0 && (sm >= num_sms || sm >= kThreads)) atomicExch(&flags->has_failed, 1u);
    if (!meet_all(flags, shared, &flags->arrived, num_sms, 200) || sm >= num_sms) return;
    if (threadIdx.x == 0) {
        atomicExch(&pool_is_filled, 1u);
        time_probes(sm, shared, probed);
    }
    uint32_t target = num_sms;
    if (!meet_all(flags, shared, &flags->met, target, 200)) return;
    if (threadIdx.x < kProbes) {
        shared.own[threadIdx.x] = probed[sm * kProbes + threadIdx.x];
        shared.other[threadIdx.x] = probed[threadIdx.x];
    }
    __syncthreads();
    if (threadIdx.x == 0) sides[sm] = shared.side = side_of(shared);
    target += num_sms;
    if (!meet_all(flags, shared, &flags->met, target, 200)) return;
    const bool has_sides = plan.readers == kOneSide || plan.readers == kBothSides;
    const uint32_t side = threadIdx.x < num_sms ? sides[threadIdx.x] : kNone;
    const bool is_alike = side != kNone && (!has_sides || side == shared.side);
    const uint32_t rank = __syncthreads_count(is_alike && threadIdx.x < sm);
    const uint32_t num_alike = __syncthreads_count(is_alike);
    const bool is_prober = __syncthreads_count(side == shared.side && threadIdx.x < sm) == 0;  // the first SM of its side
    if (threadIdx.x == 0) {
        shared.rank = rank;
        shared.num_alike = num_alike;
    }
    __syncthreads();
    const Share share = share_of(plan, shared);
    const uint64_t read_policy = policy_of(plan.read_hint), write_policy = policy_of(plan.write_hint);
    uint32_t checksum = 0, next_store = sm * kGroups + threadIdx.x / kChunkThreads;
#pragma unroll 1
    for (uint32_t round = 0; round < plan.num_rounds; ++round) {
        target += num_sms;
        if (!meet_all(flags, shared, &flags->met, target, 0)) return;
        const int64_t begin = clock_now();
        checksum += read_round(plan, share, read_policy, write_policy, next_store, num_sms * kGroups);
        await(&shared.sink[threadIdx.x], checksum);
        __syncthreads();
        if (threadIdx.x == 0) rounds[round * num_sms + sm] = share.count ? static_cast<int32_t>(clock_now() - begin) : 0;
    }
#pragma unroll 1
    for (uint32_t turn = 0; turn < 2; ++turn) {
        target += num_sms;
        if (!meet_all(flags, shared, &flags->met, target, 500)) return;
        if (threadIdx.x == 0 && is_prober && shared.side == turn) sample(plan, shared, turn, policy_of(kNormal), sampled);
    }
    target += num_sms;
    if (!meet_all(flags, shared, &flags->met, target, 500)) return;
    if (plan.read_hint == kLast)  // the next launch shall find no lines that are to stay
        for (uint32_t line = blockIdx.x * kThreads + threadIdx.x; line < plan.footprint_bytes / 128; line += num_sms * kThreads)
            asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(pool + line * 8) : "memory");
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    if (threadIdx.x == 0) told[sm] = {shared.side, rank, shared.checksum, 0};
}
