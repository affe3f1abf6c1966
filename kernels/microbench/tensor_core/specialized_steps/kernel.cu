// How long do k-steps, turns and tiles of loops with a producer take on their own SM, operands in L2?
//
// Loops, ways of D out and parts of k are those of kernels/hopper_gemm, which case.py puts beside this file. Here all CTAs of a grid
// meet, run their tiles and tell how long they took; then again: the first round fetches code and operands, the others have them.

#include "gemm.cuh"
#include "grid.cuh"

constexpr uint32_t kRounds = 4;

#if __CUDA_ARCH__ >= 900

template <class S>
__device__ __forceinline__ void rounds(const Plan &plan, const void *map_a, const void *map_b, const void *map_d, uint16_t *d, float *room,
                                       uint32_t *counters, Flags *flags, int64_t *told) {
    __shared__ uint32_t is_well;
    int64_t begin = 0;
#pragma unroll 1
    for (uint32_t round = 0; round < kRounds; ++round) {
        __syncthreads();
        if (threadIdx.x == 0) {
            is_well = meet_in_time(flags, &flags->met, (round + 1) * gridDim.x, round);
            begin = clock_now();
        }
        __syncthreads();
        if (!is_well) return;
        run<S>(plan, map_a, map_b, map_d, d, room, counters);
        __syncthreads();
        if (threadIdx.x == 0) told[blockIdx.x * kRounds + round] = clock_now() - begin;
    }
}

#define STEPS(name, ...)                                                                                                               \
    extern "C" __global__ void __launch_bounds__(__VA_ARGS__::kThreads, 1)                                                             \
        name(const __grid_constant__ Plan plan, const void *map_a, const void *map_b, const void *map_d, uint16_t *d, float *room,      \
             uint32_t *counters, Flags *flags, int64_t *told) {                                                                         \
        rounds<__VA_ARGS__>(plan, map_a, map_b, map_d, d, room, counters, flags, told);                                                 \
    }

#include "steps.inc"

#endif
