// What do parts of sectors and of lines cost, read or stored?
//
// All threads walk over a buffer together, access after access: `words` words of each chosen sector of each `stride`-th line, from
// the buffer's start on, neighbours by neighbouring threads, four accesses of a thread at a time and one behind the other; and then
// again, `rounds` times. Loads are added up, stores write a number that says where.

#include <cstdint>

struct Walk {
    uint32_t sectors;        // which of a line are taken: the first one's place in bits 0 and 1, the second one's in 2 and 3, ...
    uint32_t log_words;      // of a sector
    uint32_t log_sectors;    // of a line
    uint32_t stride_lines;
    uint32_t num_accesses;   // of a round; a multiple of those at a time
    uint32_t num_rounds;
};

constexpr int kAtOnce = 4;
constexpr uint32_t kSums = 4096;

__device__ __forceinline__ uint64_t word_of(const Walk &walk, uint32_t access) {
    const uint32_t word = access & ((1u << walk.log_words) - 1);
    const uint32_t which = access >> walk.log_words & ((1u << walk.log_sectors) - 1);
    const uint64_t line = static_cast<uint64_t>(access >> (walk.log_words + walk.log_sectors)) * walk.stride_lines;
    return line * 32 + (walk.sectors >> 2 * which & 3) * 8 + word;
}

template <bool kPassesL1>
__device__ __forceinline__ void read(const uint32_t *buffer, uint32_t *sums, const Walk &walk) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, num_threads = gridDim.x * blockDim.x;
    uint32_t sum = 0;
    for (uint32_t round = 0; round < walk.num_rounds; ++round)
#pragma unroll 1
        for (uint32_t first = thread; first < walk.num_accesses; first += kAtOnce * num_threads) {
            uint32_t held[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const uint32_t *from = buffer + word_of(walk, first + i * num_threads);
                if (kPassesL1)
                    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(held[i]) : "l"(from));
                else
                    asm volatile("ld.global.u32 %0, [%1];" : "=r"(held[i]) : "l"(from));
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) sum += held[i];
        }
    sum = __reduce_add_sync(0xffffffff, sum);
    if (threadIdx.x % 32 == 0) atomicAdd(sums + thread / 32 % kSums, sum);
}

extern "C" __global__ void __launch_bounds__(256) read_ca(const uint32_t *buffer, uint32_t *sums, Walk walk) {
    read<false>(buffer, sums, walk);
}

extern "C" __global__ void __launch_bounds__(256) read_cg(const uint32_t *buffer, uint32_t *sums, Walk walk) {
    read<true>(buffer, sums, walk);
}

extern "C" __global__ void __launch_bounds__(256) store(uint32_t *buffer, Walk walk) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, num_threads = gridDim.x * blockDim.x;
    for (uint32_t round = 0; round < walk.num_rounds; ++round)
#pragma unroll 1
        for (uint32_t first = thread; first < walk.num_accesses; first += kAtOnce * num_threads)
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const uint64_t word = word_of(walk, first + i * num_threads);
                buffer[word] = static_cast<uint32_t>(word) * 0x9e3779b1u;
            }
}
