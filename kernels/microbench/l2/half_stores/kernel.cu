// When do two stores of half a sector each become one sector, and what does L2 count for a reduction?
//
// Warps store what an epilogue stores from fragments: eight rows of 16 bytes at a time, four lanes a row, then the next 16 bytes of
// the same rows, so many of these at once as are unrolled, with a pause of so many cycles before each. Between one turn and
// the next lie those of `num_apart` - 1 other groups of rows. Reductions add 1 to what the same walk stores to, 4 or 8 bytes a lane.

#include <cstdint>

struct Walk {
    uint32_t pitch_bytes, shift_bytes;  // from row to row; where in its row the first column begins
    uint32_t num_pieces;                // 16 or 32 bytes each, of a row of a warp
    uint32_t num_groups, num_apart;     // of eight rows; groups that are stored before the next pieces are
    uint32_t num_rounds;                // over all of it
};

__device__ __forceinline__ uint32_t clock_now() {
    uint32_t now;
    asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
    return now;
}

__device__ __forceinline__ uint32_t word_at(uint64_t word, uint32_t round) { return static_cast<uint32_t>(word) * 0x9e3779b1u + round; }

// `kLaneBytes` a lane: eight rows of 16 bytes at a time, or of 32; `kUnrolled` pieces of them one after the other.
template <int kLaneBytes, int kUnrolled, class Action>
__device__ __forceinline__ void walk_over(const Walk &walk, const Action &action) {
    constexpr uint32_t kPiece = 4 * kLaneBytes;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint64_t cta = static_cast<uint64_t>(blockIdx.x) * walk.num_groups * 8 * walk.pitch_bytes;
    const uint64_t corner = cta + walk.shift_bytes + warp * walk.num_pieces * kPiece + lane / 4 * walk.pitch_bytes + lane % 4 * kLaneBytes;
#pragma unroll 1
    for (uint32_t round = 0; round < walk.num_rounds; ++round)
#pragma unroll 1
        for (uint32_t first = 0; first < walk.num_groups; first += walk.num_apart)
#pragma unroll 1
            for (uint32_t piece = 0; piece < walk.num_pieces; piece += kUnrolled)
#pragma unroll 1
                for (uint32_t group = 0; group < walk.num_apart; ++group)
                    action(corner + static_cast<uint64_t>(first + group) * 8 * walk.pitch_bytes + piece * kPiece, round);
}

template <int kUnrolled, int kPause>
__device__ __forceinline__ void store(unsigned char *buffer, const Walk &walk) {
    walk_over<4, kUnrolled>(walk, [&](uint64_t byte, uint32_t round) {
#pragma unroll
        for (int i = 0; i < kUnrolled; ++i) {
            if (kPause) {
                const uint32_t begin = clock_now();
                while (clock_now() - begin < kPause) {}
            }
            const uint32_t word = word_at(byte / 4 + i * 4, round);
            asm volatile("st.global.u32 [%0], %1;" ::"l"(buffer + byte + i * 16), "r"(word) : "memory");
        }
    });
}

#define STORE(unrolled, pause)                                                                                          \
    extern "C" __global__ void __launch_bounds__(256) store_##unrolled##_##pause(unsigned char *buffer, Walk walk) {   \
        store<unrolled, pause>(buffer, walk);                                                                           \
    }

STORE(1, 0)
STORE(2, 0)
STORE(4, 0)
STORE(8, 0)
STORE(8, 40)
STORE(8, 100)
STORE(8, 300)

extern "C" __global__ void __launch_bounds__(256) red_4(unsigned char *buffer, Walk walk) {
    walk_over<4, 1>(walk, [&](uint64_t byte, uint32_t) {
        asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(buffer + byte), "f"(1.0f) : "memory");
    });
}

#if __CUDA_ARCH__ >= 900

extern "C" __global__ void __launch_bounds__(256) red_8(unsigned char *buffer, Walk walk) {
    walk_over<8, 1>(walk, [&](uint64_t byte, uint32_t) {
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(buffer + byte), "f"(1.0f), "f"(1.0f) : "memory");
    });
}

#endif
