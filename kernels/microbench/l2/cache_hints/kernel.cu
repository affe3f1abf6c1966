// What stays in L2, with which cache hints? What is written to memory before a kernel ends? What does a miss fetch?
//
// reuse: all SMs read a set, then read (or store) a stream of other lines, then read the set again; each part in chunks of 4 KiB
// that are shared out, the same to the same SM each time. fill and copy: every thread stores (loads and stores) 16 bytes.
// touch: some bytes in every stride are loaded or stored.

#include "grid.cuh"

constexpr uint32_t kThreads = 512;
constexpr uint32_t kChunkThreads = 256;
constexpr uint32_t kGroups = kThreads / kChunkThreads;
constexpr uint32_t kInFlight = 8;  // chunks of a group

enum Hint : uint32_t { kNormal, kFirst, kLast };

struct Plan {
    uint32_t set_chunks, stream_chunks;
    uint32_t set_hint, stream_hint;  // Hint
    uint32_t is_store;               // the stream
};

struct Told {
    uint32_t checksum, first_cycles, stream_cycles, second_cycles;
};

struct Shared {
    uint32_t checksum, is_well;
};

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

// A normal one carries no policy, so that the window of the stream's attributes decides.
__device__ __forceinline__ uint4 load(const uint4 *address, uint64_t policy, uint32_t hint) {
    uint4 v;
    if (hint == kNormal)
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address)
                     : "memory");
    else
        asm volatile("ld.global.cg.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(address), "l"(policy)
                     : "memory");
    return v;
}

__device__ __forceinline__ void store(uint4 *address, uint4 v, uint64_t policy, uint32_t hint) {
    if (hint == kNormal)
        asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                     : "memory");
    else
        asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(address), "r"(v.x), "r"(v.y),
                     "r"(v.z), "r"(v.w), "l"(policy)
                     : "memory");
}

__device__ __forceinline__ uint4 words_at(uint32_t idx) {
    return make_uint4(word_at(4 * idx), word_at(4 * idx + 1), word_at(4 * idx + 2), word_at(4 * idx + 3));
}

__device__ __forceinline__ uint32_t read_chunks(const uint4 *from, uint32_t num, uint32_t hint) {
    const uint32_t lane = threadIdx.x % kChunkThreads, step = gridDim.x * kGroups;
    const uint32_t first = blockIdx.x * kGroups + threadIdx.x / kChunkThreads;
    const uint64_t policy = policy_of(hint);
    uint32_t total = 0;
#pragma unroll 1
    for (uint32_t chunk = first; chunk < num; chunk += kInFlight * step) {
        uint4 v[kInFlight];
#pragma unroll
        for (uint32_t idx = 0; idx < kInFlight; ++idx) {
            v[idx] = make_uint4(0, 0, 0, 0);
            if (chunk + idx * step < num)
                v[idx] = load(from + static_cast<uint64_t>(chunk + idx * step) * kChunkThreads + lane, policy, hint);
        }
#pragma unroll
        for (uint32_t idx = 0; idx < kInFlight; ++idx) total += v[idx].x + v[idx].y + v[idx].z + v[idx].w;
    }
    return total;
}

__device__ __forceinline__ void store_chunks(uint4 *to, uint32_t num, uint32_t hint) {
    const uint32_t lane = threadIdx.x % kChunkThreads, step = gridDim.x * kGroups;
    const uint64_t policy = policy_of(hint);
#pragma unroll 1
    for (uint32_t chunk = blockIdx.x * kGroups + threadIdx.x / kChunkThreads; chunk < num; chunk += step) {
        const uint32_t idx = chunk * kChunkThreads + lane;
        store(to + idx, words_at(idx), policy, hint);
    }
}

__device__ __forceinline__ bool meet_all(Flags *flags, Shared &shared, uint32_t target) {
    __syncthreads();
    if (threadIdx.x == 0 && shared.is_well) shared.is_well = meet(flags, &flags->met, target, 0);
    __syncthreads();
    return shared.is_well;
}

extern "C" __global__ void __launch_bounds__(kThreads)
    reuse(const __grid_constant__ Plan plan, Flags *flags, const uint4 *set, uint4 *stream, Told *told) {
    __shared__ Shared shared;
    if (threadIdx.x == 0) shared = {0, 1};
    if (!meet_all(flags, shared, gridDim.x)) return;
    int64_t at[4];
    at[0] = clock_now();
    uint32_t checksum = read_chunks(set, plan.set_chunks, plan.set_hint);
    atomicAdd(&shared.checksum, checksum);  // all has come
    if (!meet_all(flags, shared, 2 * gridDim.x)) return;
    at[1] = clock_now();
    if (plan.is_store) {
        store_chunks(stream, plan.stream_chunks, plan.stream_hint);
    } else {
        checksum = read_chunks(stream, plan.stream_chunks, plan.stream_hint);
        atomicAdd(&shared.checksum, checksum);
    }
    if (!meet_all(flags, shared, 3 * gridDim.x)) return;
    at[2] = clock_now();
    checksum = read_chunks(set, plan.set_chunks, plan.set_hint);
    atomicAdd(&shared.checksum, checksum);
    __syncthreads();
    at[3] = clock_now();
    if (plan.set_hint == kLast)  // the next launch shall find no lines that are to stay
        for (uint32_t line = blockIdx.x * kThreads + threadIdx.x; line < plan.set_chunks * kChunkThreads / 8;
             line += gridDim.x * kThreads)
            asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(set + line * 8) : "memory");
    if (threadIdx.x == 0)
        told[blockIdx.x] = {shared.checksum, static_cast<uint32_t>(at[1] - at[0]), static_cast<uint32_t>(at[2] - at[1]),
                            static_cast<uint32_t>(at[3] - at[2])};
}

extern "C" __global__ void __launch_bounds__(kThreads) fill(uint4 *to, uint32_t hint) {
    const uint64_t idx = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    store(to + idx, words_at(static_cast<uint32_t>(idx)), policy_of(hint), hint);
}

extern "C" __global__ void __launch_bounds__(kThreads) copy(const uint4 *from, uint4 *to) {
    const uint64_t idx = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    to[idx] = from[idx];
}

// Thread t takes piece t of num_bytes each, which lie a stride apart; num_bytes is 4 or 16, or 32 by two threads.
extern "C" __global__ void __launch_bounds__(kThreads)
    touch(uint8_t *bytes, uint32_t num_bytes, uint32_t stride, uint32_t is_store, uint32_t *sums) {
    const uint64_t idx = static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const uint32_t each = num_bytes == 32 ? 2 : 1;
    uint8_t *place = bytes + idx / each * stride + idx % each * 16;
    if (is_store) {
        if (num_bytes == 4)
            *reinterpret_cast<uint32_t *>(place) = word_at(static_cast<uint32_t>(idx));
        else
            *reinterpret_cast<uint4 *>(place) = words_at(static_cast<uint32_t>(idx));
        return;
    }
    uint32_t word;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(word) : "l"(place) : "memory");
    for (uint32_t lane = 16; lane; lane /= 2) word += __shfl_xor_sync(0xFFFFFFFFu, word, lane);
    if (threadIdx.x % 32 == 0) atomicAdd(sums + blockIdx.x % 1024, word);
}
