// What does a profiler's flush of all caches cost a kernel for its code?
//
// `straight` is the kernel of kernels/cold_code, which case.py puts beside this file: straight-line code of so many KiB, which
// begins anywhere in it, run four times. `once_` is code of so many KiB from a kernel's first instruction on, run once.

#include "straight.cuh"

// Code that stands right behind a kernel's first instruction, run once: eight sums in turn, so many times 1 added to each.
template <int kKib>
__device__ __forceinline__ void run_once(float factor, float more, float *sums) {
    float sum[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i] = static_cast<float>(i);
#pragma unroll
    for (int i = 0; i < kKib * 64; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(sum[i % 8]) : "f"(factor), "f"(more));
    float all = 0.0f;
#pragma unroll
    for (int i = 0; i < 8; ++i) all += sum[i];
    sums[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

#define ONCE(kib)                                                                                                    \
    extern "C" __global__ void __launch_bounds__(128) once_##kib(float factor, float more, float *sums) {            \
        run_once<kib>(factor, more, sums);                                                                           \
    }

ONCE(8)
ONCE(16)
ONCE(32)
ONCE(48)
ONCE(56)
ONCE(60)
ONCE(64)
ONCE(68)
ONCE(72)
ONCE(80)
ONCE(96)
ONCE(112)
ONCE(128)
