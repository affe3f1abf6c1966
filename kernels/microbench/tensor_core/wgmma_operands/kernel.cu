// A train of wgmma of one shape on operands that lie in shared memory: what does it read, and how long does it take?
//
// One warpgroup. `shapes.inc` is written by case.py: a struct for each shape (its type, N, where A lies, majors) with the
// one instruction, and a kernel for each struct. Operands come as images of shared memory, laid out by the host, and are
// copied in verbatim; the descriptors come from the host, too, without the address.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kThreads = 128;
constexpr int kGroupWgmmas = 4;  // instructions between a fence and a commit

struct Train {
    uint64_t a_descriptor, b_descriptor;  // start address: bytes from the operand's image, over 16
    uint32_t a_bytes, b_bytes;            // of the images; multiples of 1024
    uint32_t num_groups, num_rounds;      // groups of a round; all rounds add up in the accumulators
};

template <class Shape>
__device__ __forceinline__ void run(const Train &train, const uint4 *a_image, const uint4 *b_image, const uint32_t *a_rows,
                                    typename Shape::Accumulator *d, uint64_t *times) {
    uint4 *smem = reinterpret_cast<uint4 *>(buffer);
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < train.a_bytes / 16; i += kThreads) smem[i] = a_image[i];
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < train.b_bytes / 16; i += kThreads) smem[train.a_bytes / 16 + i] = b_image[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");

    // A from registers: rows of 32 bytes; a thread holds words of rows g and g + 8, at both halves of the row.
    uint32_t a[4] = {0, 0, 0, 0};
    if (Shape::kIsRegisterA) {
        const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
        for (int i = 0; i < 4; ++i) a[i] = a_rows[(row + i % 2 * 8) * 8 + threadIdx.x % 4 + i / 2 * 4];
    }

    typename Shape::Accumulator accumulators[Shape::kNumAccumulators];
#pragma unroll
    for (int i = 0; i < Shape::kNumAccumulators; ++i) accumulators[i] = 0;
    const uint64_t start = static_cast<uint32_t>(__cvta_generic_to_shared(buffer)) >> 4;
    const uint64_t a_descriptor = train.a_descriptor + start;
    const uint64_t b_descriptor = train.b_descriptor + start + (train.a_bytes >> 4);
    __syncthreads();

    int64_t begin = 0, end = 0;
#pragma unroll 1
    for (uint32_t round = 0; round < train.num_rounds; ++round) {
        begin = clock64();
#pragma unroll 1
        for (uint32_t group = 0; group < train.num_groups; ++group) {
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int i = 0; i < kGroupWgmmas; ++i) Shape::issue(accumulators, a, a_descriptor, b_descriptor);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        end = clock64();
    }

#pragma unroll
    for (int i = 0; i < Shape::kNumAccumulators; ++i) d[i * kThreads + threadIdx.x] = accumulators[i];
    if (threadIdx.x == 0) {  // of the last round; how many there were
        times[0] = end - begin;
        times[1] = train.num_rounds;
    }
}

#define WGMMA_KERNEL(shape)                                                                                \
    extern "C" __global__ void __launch_bounds__(kThreads)                                                 \
        wgmma_##shape(const __grid_constant__ Train train, const uint4 *a_image, const uint4 *b_image,     \
                      const uint32_t *a_rows, shape::Accumulator *d, uint64_t *times) {                    \
        run<shape>(train, a_image, b_image, a_rows, d, times);                                             \
    }

#include "shapes.inc"

#endif
