// What a stopwatch launches beside the kernel that it times (gpusim/evidence/stopwatch.py), and two kernels to try it on.
// probe: the clocks of every SM. spin: hold the stream for some time. sweep: read a buffer. nothing, busy: to be timed.
#include <cstdint>

__device__ __forceinline__ uint64_t nanoseconds() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

__device__ __forceinline__ uint64_t cycles() {
    uint64_t now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

// readings[sm]: cycles and nanoseconds at about the same moment, in one store of 16 bytes, so that they belong together.
extern "C" __global__ void probe(ulonglong2 *readings) {
    if (threadIdx.x) return;
    uint32_t sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    uint64_t now = nanoseconds(), edge;
    do edge = nanoseconds(); while (edge == now);  // a step of the timer, which may be as long as a microsecond
    readings[sm] = make_ulonglong2(cycles(), edge);
}

extern "C" __global__ void spin(uint64_t ns) {
    uint64_t begin = nanoseconds();
    while (nanoseconds() - begin < ns) {}
}

extern "C" __global__ void sweep(const uint4 *buffer, uint64_t num, uint32_t *out) {
    uint32_t seen = 0;
    for (uint64_t i = blockIdx.x * (uint64_t)blockDim.x + threadIdx.x; i < num; i += (uint64_t)gridDim.x * blockDim.x) {
        uint4 word = __ldcg(buffer + i);
        seen |= word.x | word.y | word.z | word.w;
    }
    if (seen == 0x12345678) *out = seen;  // never: keeps the loads
}

extern "C" __global__ void nothing(uint32_t *out, uint32_t value) {
    if (threadIdx.x == 0 && blockIdx.x == 0) *out = value;
}

// Every warp multiplies until the time is over; out: for each CTA cycles and nanoseconds of its own, its SM and 1.
extern "C" __global__ void busy(ulonglong2 *out, uint64_t ns) {
    uint64_t begin_ns = nanoseconds(), begin = cycles();
    float a = threadIdx.x, b = 1.0f, c = 2.0f, d = 3.0f;
    while (nanoseconds() - begin_ns < ns)
#pragma unroll 32
        for (int i = 0; i < 64; ++i) {
            a = a * 0.5f + 1.0f;
            b = b * 0.5f + 1.0f;
            c = c * 0.5f + 1.0f;
            d = d * 0.5f + 1.0f;
        }
    uint64_t end = cycles(), end_ns = nanoseconds();
    if (threadIdx.x == 0) {
        uint32_t sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        out[2 * blockIdx.x] = make_ulonglong2(end - begin, end_ns - begin_ns);
        out[2 * blockIdx.x + 1] = make_ulonglong2(sm, a + b + c + d > 0.0f);
    }
}
