// When do two stores of half a sector each become one sector, and what does L2 count for a reduction?
//
// Warps store what an epilogue stores from fragments: eight rows of 16 bytes at a time, four lanes a row, then the next 16 bytes of
// the same rows. Between the two lie the stores of `num_apart` - 1 other groups of rows, and a pause. Reductions add 1 to what the
// same walk stores to, 4 or 8 bytes a lane.

#include <cstdint>

struct Walk {
    uint32_t pitch_bytes, shift_bytes;  // from row to row; where in its row the first column begins
    uint32_t num_halves;                // 16 bytes each, of a row of a warp
    uint32_t num_groups, num_apart;     // of eight rows; groups that are stored before the next halves are
    uint32_t num_rounds, pause;         // over all of it; dependent additions between two stores
};

__device__ __forceinline__ uint32_t word_at(uint64_t word, uint32_t round) { return static_cast<uint32_t>(word) * 0x9e3779b1u + round; }

// `lane_bytes` a lane: eight rows of 16 bytes at a time, or of 32.
template <class Action>
__device__ __forceinline__ void walk_over(const Walk &walk, uint32_t lane_bytes, const Action &action) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = 4 * lane_bytes;
    const uint64_t cta = static_cast<uint64_t>(blockIdx.x) * walk.num_groups * 8 * walk.pitch_bytes;
    const uint64_t corner = cta + walk.shift_bytes + warp * walk.num_halves * piece + lane / 4 * walk.pitch_bytes + lane % 4 * lane_bytes;
    uint32_t held = threadIdx.x;
#pragma unroll 1
    for (uint32_t round = 0; round < walk.num_rounds; ++round)
#pragma unroll 1
        for (uint32_t first = 0; first < walk.num_groups; first += walk.num_apart)
#pragma unroll 1
            for (uint32_t half = 0; half < walk.num_halves; ++half)
#pragma unroll 1
                for (uint32_t group = 0; group < walk.num_apart; ++group) {
                    action(corner + static_cast<uint64_t>(first + group) * 8 * walk.pitch_bytes + half * piece, round);
#pragma unroll 1
                    for (uint32_t i = 0; i < walk.pause; ++i) asm volatile("add.u32 %0, %0, 1;" : "+r"(held));
                }
}

extern "C" __global__ void __launch_bounds__(256) store(unsigned char *buffer, Walk walk) {
    walk_over(walk, 4, [&](uint64_t byte, uint32_t round) {
        asm volatile("st.global.u32 [%0], %1;" ::"l"(buffer + byte), "r"(word_at(byte / 4, round)) : "memory");
    });
}

extern "C" __global__ void __launch_bounds__(256) red_4(unsigned char *buffer, Walk walk) {
    walk_over(walk, 4, [&](uint64_t byte, uint32_t) {
        asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(buffer + byte), "f"(1.0f) : "memory");
    });
}

#if __CUDA_ARCH__ >= 900

extern "C" __global__ void __launch_bounds__(256) red_8(unsigned char *buffer, Walk walk) {
    walk_over(walk, 8, [&](uint64_t byte, uint32_t) {
        asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};" ::"l"(buffer + byte), "f"(1.0f), "f"(1.0f) : "memory");
    });
}

#endif
