// What does a launch take whose code, parameters and data are in no cache, beyond one that finds them all?
//
// Three kernels that do next to nothing: `empty`, `store_one` (each warp's first lane stores a word) and `load_one` (it loads the
// word first, and stores it plus one).

#include <cstdint>

extern "C" __global__ void __launch_bounds__(256) empty(const uint32_t *from, uint32_t *to, uint32_t more) {}

extern "C" __global__ void __launch_bounds__(256) store_one(const uint32_t *from, uint32_t *to, uint32_t more) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 32 == 0) to[thread] = thread + more;
}

extern "C" __global__ void __launch_bounds__(256) load_one(const uint32_t *from, uint32_t *to, uint32_t more) {
    const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x % 32 == 0) to[thread] = from[thread] + more;
}
