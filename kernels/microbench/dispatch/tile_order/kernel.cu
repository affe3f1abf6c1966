// In which order are the tiles of a matrix written, while another kernel writes them?
//
// Every thread keeps looking at some elements of D, each the corner of a box of the lattice, and writes down the GPU's nanoseconds
// when one of them is a number for the first time: before, all of D is NaN. One warp a CTA and few registers, so that the CTA
// fits beside a CTA of a kernel that fills its SM. It ends when all is written, or by either of two limits.

#include <cstdint>

constexpr int kAtOnce = 4;

struct Lattice {
    uint32_t rows, columns;          // points
    uint32_t row_step, column_step;  // elements
    uint32_t row_elements;           // of D
    uint32_t infinity;               // its bits, of the type of D; what is above it without the sign is NaN
    uint32_t most_polls;
    uint64_t most_ns;
};

__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

__device__ __forceinline__ uint16_t look(const uint16_t *at) {
    uint16_t value;
    asm volatile("ld.relaxed.sys.global.u16 %0, [%1];" : "=h"(value) : "l"(at) : "memory");
    return value;
}

extern "C" __global__ void __maxnreg__(32)
look_on(const uint16_t *d, Lattice lattice, unsigned long long *seen_ns, unsigned long long *begin_ns) {
    const uint32_t num = lattice.rows * lattice.columns, stride = gridDim.x * 32;
    const uint32_t first = blockIdx.x * 32 + threadIdx.x;
    const uint64_t begin = now_ns();
    if (threadIdx.x == 0) begin_ns[blockIdx.x] = begin;
    uint32_t num_pending = first < num ? (num - first + stride - 1) / stride : 0;
    for (uint32_t poll = 0; poll < lattice.most_polls && now_ns() - begin < lattice.most_ns; ++poll) {
        if (__ballot_sync(0xffffffffu, num_pending != 0) == 0) break;
        for (uint32_t point = first; point < num; point += kAtOnce * stride) {
            uint16_t value[kAtOnce];
            bool is_pending[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const uint32_t at = point + i * stride;
                is_pending[i] = at < num && seen_ns[at] == 0;
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                const uint32_t at = point + i * stride, row = at / lattice.columns, column = at - row * lattice.columns;
                if (is_pending[i])
                    value[i] = look(d + static_cast<uint64_t>(row) * lattice.row_step * lattice.row_elements +
                                    column * lattice.column_step);
            }
            const uint64_t ns = now_ns();
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (!is_pending[i] || (value[i] & 0x7fffu) > lattice.infinity) continue;
                seen_ns[point + i * stride] = ns;
                --num_pending;
            }
        }
    }
}
