// What does a launch take that follows another at once, beyond what it takes by itself?
//
// The streams of kernels/stream_grids, and `spin`: every CTA looks at the clock until so many cycles are over, and leaves how many were.

#include <cstdint>

#include "streams.inc"

extern "C" __global__ void __launch_bounds__(256) spin(uint32_t num_cycles, uint32_t *seen) {
    const uint32_t begin = static_cast<uint32_t>(clock64());
    uint32_t since = 0;
    while (since < num_cycles) since = static_cast<uint32_t>(clock64()) - begin;
    if (threadIdx.x == 0) seen[blockIdx.x] = since;
}
