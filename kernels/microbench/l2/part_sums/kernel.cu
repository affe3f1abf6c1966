// What do the pieces of a tile cost whose parts CTAs add up: additions in L2, their fence, sums read back, zeros?
//
// Warps walk a tile as tensor cores' fragments lie: eight rows of four lanes each, 16 or 64 bytes of a row at a time or a sector, then
// eight rows below, then the next columns; 32 accesses of a thread, unrolled, then the rows below those of all warps. Begin, last access
// issued (loads: all there) and the fence behind are told in the SM's clock, of four rounds.

#include "grid.cuh"

constexpr uint32_t kRounds = 4, kColumns = 16, kNumSums = 1024;

struct Walk {
    uint32_t pitch_bytes, num_turns;
    uint32_t num_parts;     // CTAs that walk one tile
    uint32_t num_across;    // tiles side by side
    uint32_t row_bytes;     // of a tile
    uint32_t tile_bytes;    // from tile to tile below
};

struct Told {
    int64_t issued, done;
};

// Calls act(word of 4 bytes, index) for each access of a turn.
template <int kLaneBytes, class Action>
__device__ __forceinline__ void walk_turn(unsigned char *tile, const Walk &walk, uint32_t turn, const Action &act) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint32_t row = (turn * (blockDim.x / 32) + warp) * 16 + lane / 4;
    unsigned char *upper = tile + static_cast<uint64_t>(row) * walk.pitch_bytes + lane % 4 * kLaneBytes;
    unsigned char *lower = upper + static_cast<uint64_t>(8) * walk.pitch_bytes;
#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
        act(upper + column * 4 * kLaneBytes, 2 * column);
        act(lower + column * 4 * kLaneBytes, 2 * column + 1);
    }
}

// A branch that is never taken: what comes before it is issued before any of what has been read is used, as behind edges of a tile.
__device__ __forceinline__ void hold(const Walk &walk) {
    if (walk.num_parts == 0) asm volatile("trap;");
}

template <class Turn>
__device__ __forceinline__ void rounds(unsigned char *room, const Walk &walk, Flags *flags, Told *told, const Turn &turn_of) {
    __shared__ uint32_t is_well;
    const uint32_t idx = blockIdx.x / walk.num_parts;
    unsigned char *tile = room + static_cast<uint64_t>(idx / walk.num_across) * walk.tile_bytes + idx % walk.num_across * walk.row_bytes;
#pragma unroll 1
    for (uint32_t round = 0; round < kRounds; ++round) {
        int64_t begin = 0;
        __syncthreads();
        if (threadIdx.x == 0) is_well = meet_in_time(flags, &flags->met, (round + 1) * gridDim.x, round);
        __syncthreads();
        if (!is_well) return;
        begin = clock_now();
#pragma unroll 1
        for (uint32_t turn = 0; turn < walk.num_turns; ++turn) turn_of(tile, turn, round);
        __syncthreads();
        const int64_t issued = clock_now();
        __threadfence();
        __syncthreads();
        const int64_t done = clock_now();
        if (threadIdx.x == 0) told[blockIdx.x * kRounds + round] = {issued - begin, done - begin};
    }
}

extern "C" __global__ void __launch_bounds__(256) store_4(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t round) {
        const float value = round + 1.0f;
        walk_turn<4>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory");
        });
    });
}

extern "C" __global__ void __launch_bounds__(256) store_8(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t round) {
        const float value = round + 1.0f;
        walk_turn<8>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("st.global.v2.f32 [%0], {%1, %1};" ::"l"(at), "f"(value) : "memory");
        });
    });
}

extern "C" __global__ void __launch_bounds__(256) store_16(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t round) {
        const float value = round + 1.0f;
        walk_turn<16>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("st.global.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(at), "f"(value) : "memory");
        });
    });
}

extern "C" __global__ void __launch_bounds__(256) red_4(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t) {
        walk_turn<4>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(at), "f"(1.0f) : "memory");
        });
    });
}

// Loads are those of a part that reads what others have added: past L1. All of a turn are under way before one is used.
template <int kWords>
__device__ __forceinline__ void read_back(unsigned char *room, const Walk &walk, Flags *flags, Told *told, float *sums) {
    float sum = 0.0f;
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t) {
        float found[2 * kColumns][kWords];
        walk_turn<4 * kWords>(tile, walk, turn, [&](unsigned char *at, int i) {
            if constexpr (kWords == 1)
                asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(found[i][0]) : "l"(at) : "memory");
            else if constexpr (kWords == 2)
                asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(found[i][0]), "=f"(found[i][1]) : "l"(at) : "memory");
            else
                asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                             : "=f"(found[i][0]), "=f"(found[i][1]), "=f"(found[i][2]), "=f"(found[i][3]) : "l"(at) : "memory");
        });
        hold(walk);
#pragma unroll
        for (int i = 0; i < 2 * kColumns; ++i)
#pragma unroll
            for (int word = 0; word < kWords; ++word) sum += found[i][word];
    });
    sums[blockIdx.x * kNumSums + threadIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(256) load_4(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    read_back<1>(room, walk, flags, told, sums);
}

extern "C" __global__ void __launch_bounds__(256) load_8(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    read_back<2>(room, walk, flags, told, sums);
}

extern "C" __global__ void __launch_bounds__(256) load_16(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    read_back<4>(room, walk, flags, told, sums);
}

#if __CUDA_ARCH__ >= 900

extern "C" __global__ void __launch_bounds__(256) red_8(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t) {
        walk_turn<8>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %1};" ::"l"(at), "f"(1.0f) : "memory");
        });
    });
}

extern "C" __global__ void __launch_bounds__(256) red_16(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t) {
        walk_turn<16>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(at), "f"(1.0f) : "memory");
        });
    });
}

// Sums read back and zeros left in their place, before any of them is used: as the last of a tile's parts does.
extern "C" __global__ void __launch_bounds__(256) take_8(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    float sum = 0.0f;
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t round) {
        float found[2 * kColumns][2];
        walk_turn<8>(tile, walk, turn, [&](unsigned char *at, int i) {
            asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(found[i][0]), "=f"(found[i][1]) : "l"(at) : "memory");
        });
        const float value = round + 1.0f;
        walk_turn<8>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("st.global.v2.f32 [%0], {%1, %1};" ::"l"(at), "f"(value) : "memory");
        });
        hold(walk);
#pragma unroll
        for (int i = 0; i < 2 * kColumns; ++i) sum += found[i][0] + found[i][1];
    });
    sums[blockIdx.x * kNumSums + threadIdx.x] = sum;
}

// The same, and what was read leaves as words of half as many bytes: all that the last of a tile's parts does.
extern "C" __global__ void __launch_bounds__(256) finish_8(unsigned char *room, Walk walk, Flags *flags, Told *told, float *sums, unsigned char *out) {
    const uint32_t idx = blockIdx.x / walk.num_parts;
    unsigned char *corner = out + (static_cast<uint64_t>(idx / walk.num_across) * walk.tile_bytes + idx % walk.num_across * walk.row_bytes) / 2;
    Walk half = walk;
    half.pitch_bytes /= 2;
    rounds(room, walk, flags, told, [&](unsigned char *tile, uint32_t turn, uint32_t round) {
        float found[2 * kColumns][2];
        walk_turn<8>(tile, walk, turn, [&](unsigned char *at, int i) {
            asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(found[i][0]), "=f"(found[i][1]) : "l"(at) : "memory");
        });
        const float value = round + 1.0f;
        walk_turn<8>(tile, walk, turn, [&](unsigned char *at, int) {
            asm volatile("st.global.v2.f32 [%0], {%1, %1};" ::"l"(at), "f"(value) : "memory");
        });
        hold(walk);
        walk_turn<4>(corner, half, turn, [&](unsigned char *at, int i) {
            asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(found[i][0] + found[i][1]) : "memory");
        });
    });
}

#endif
