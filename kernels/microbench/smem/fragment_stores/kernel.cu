// What do stores of tensor cores' fragments cost: eight rows of four lanes each, into a matrix of any size and pitch?
//
// CTAs walk over the tiles of a matrix, down its columns, and then again, `rounds` times. A warp has 16 rows of its tile, stores eight
// of them at a time, four neighbours of `kBytes` each, then the other eight, and goes on along the row. A word says where it lies.

#include <cstdint>

struct Walk {
    uint32_t pitch_words, tile_words;  // of a row; of a tile's row
    uint32_t num_m, num_tiles, num_rounds;
};

constexpr uint32_t kMix = 0x9e3779b1u;

template <int kWords>
__device__ __forceinline__ void put(uint32_t *to, uint32_t word) {
    if constexpr (kWords == 1)
        asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(word * kMix) : "memory");
    else if constexpr (kWords == 2)
        asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(word * kMix), "r"(word * kMix + kMix) : "memory");
    else
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word * kMix), "r"(word * kMix + kMix),
                     "r"(word * kMix + 2 * kMix), "r"(word * kMix + 3 * kMix)
                     : "memory");
}

template <int kWords>
__device__ __forceinline__ void store(uint32_t *matrix, const Walk &walk) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, tile_rows = blockDim.x / 2;
    for (uint32_t round = 0; round < walk.num_rounds; ++round)
#pragma unroll 1
        for (uint32_t tile = blockIdx.x; tile < walk.num_tiles; tile += gridDim.x) {
            const uint32_t row = tile % walk.num_m * tile_rows + warp * 16 + lane / 4;
            const uint32_t first = row * walk.pitch_words + tile / walk.num_m * walk.tile_words + lane % 4 * kWords;
#pragma unroll 4
            for (uint32_t at = 0; at < walk.tile_words; at += 4 * kWords) {
                put<kWords>(matrix + first + at, first + at);
                put<kWords>(matrix + first + at + 8 * walk.pitch_words, first + at + 8 * walk.pitch_words);
            }
        }
}

extern "C" __global__ void __launch_bounds__(256) store_4(uint32_t *matrix, Walk walk) { store<1>(matrix, walk); }
extern "C" __global__ void __launch_bounds__(256) store_8(uint32_t *matrix, Walk walk) { store<2>(matrix, walk); }
extern "C" __global__ void __launch_bounds__(256) store_16(uint32_t *matrix, Walk walk) { store<4>(matrix, walk); }
