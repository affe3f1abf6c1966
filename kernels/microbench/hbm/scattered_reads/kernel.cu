// One launch reads pieces of a buffer that lie anywhere (or one behind the other), all SMs together: 16 bytes a lane and load,
// four loads of a lane under way, as many lanes a piece as it has vectors, a warp at most. What was read is added up.
#include <cstdint>

namespace {

constexpr int THREADS = 1024;

__device__ __forceinline__ int64_t nanoseconds() {
    int64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time)::"memory");
    return time;
}

__device__ __forceinline__ uint32_t mixed(uint32_t x) {
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

struct Question {
    uint32_t num_steps;   // of a thread, four loads each
    uint32_t mask;        // pieces of the buffer, less one: a power of two
    uint32_t is_ordered;  // piece n of the launch is piece n of the buffer
};

template <int PIECE_BYTES>
__device__ void read_pieces(const uint4* __restrict__ buffer, Question question, uint32_t* sum, int64_t* times) {
    constexpr int PIECE_VECTORS = PIECE_BYTES / 16;
    constexpr int LANES = PIECE_VECTORS < 32 ? PIECE_VECTORS : 32;
    constexpr int VECTORS = PIECE_VECTORS / LANES;  // of a piece for each lane
    constexpr int PIECES = 4 / VECTORS;             // of a lane in a step
    const uint32_t num_groups = gridDim.x * (THREADS / LANES);
    const uint32_t group = (blockIdx.x * THREADS + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
    const int64_t begin = nanoseconds();
    uint32_t added = 0;
    for (uint32_t step = 0; step < question.num_steps; ++step) {
        uint4 x[PIECES][VECTORS];
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
            const uint32_t number = (step * PIECES + i) * num_groups + group;
            const uint64_t piece = (question.is_ordered ? number : mixed(number)) & question.mask;
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) x[i][j] = buffer[piece * PIECE_VECTORS + lane + j * LANES];
        }
#pragma unroll
        for (int i = 0; i < PIECES; ++i) {
#pragma unroll
            for (int j = 0; j < VECTORS; ++j) added += x[i][j].x + x[i][j].y + x[i][j].z + x[i][j].w;
        }
    }
    added = __reduce_add_sync(0xffffffffu, added);
    if (threadIdx.x % 32 == 0) atomicAdd(sum, added);
    __syncthreads();
    if (threadIdx.x == 0) {
        times[2 * blockIdx.x] = begin;
        times[2 * blockIdx.x + 1] = nanoseconds();
    }
}

}  // namespace

#define SCATTERED(BYTES)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 2)                                              \
        scattered_##BYTES(const uint4* buffer, Question question, uint32_t* sum, int64_t* times) {        \
        read_pieces<BYTES>(buffer, question, sum, times);                                                 \
    }

SCATTERED(32)
SCATTERED(64)
SCATTERED(128)
SCATTERED(256)
SCATTERED(512)
SCATTERED(1024)
SCATTERED(2048)
