// What do all SMs together get out of L2 by cp.async where they share tiles as a GEMM's CTAs do, and who reads with whom?
//
// Every CTA has a ring of stages: warps wait for a stage, meet, let time pass as math would, meet again, and copy the rows of A
// and of B that come next into the stage that this has freed, 16 bytes a lane, four rows of 128 bytes an instruction. Which rows
// each CTA walks is in a table, by CTA or by SM. All tiles are read once, then the CTAs meet, and walk them again and again with
// the clock read at two of the steps.

#include "grid.cuh"

constexpr uint32_t kRowBytes = 128;
constexpr uint32_t kPitchBytes = 4096;
constexpr uint32_t kGap = 8;  // dependent instructions in front of each copy

struct Plan {
    uint32_t num_ctas, num_sms, num_stages, a_rows, b_rows;
    uint32_t num_steps;                                  // after so many steps a walk begins again
    uint32_t num_warm, num_lead, num_timed, num_behind;  // steps before the CTAs meet, before the clock, timed, behind
    uint32_t math_cycles;                                // from a stage that is there to its copies at least, by one thread's clock
    uint32_t is_by_cta;                                  // places are those of CTAs, not of SMs, first CTAs first
    uint32_t one, zero;                                  // unknown to the compiler
};

struct Place {
    uint32_t row_a, row_b;
};

struct Told {
    int64_t sm, checksum, cycles, middle_ns, copy_cycles, end_ns;
};

extern __shared__ __align__(1024) unsigned char stages[];

__device__ __forceinline__ uint32_t smem_address(const void *p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ __forceinline__ void wait_for_all_but(uint32_t num_pending) {
    switch (num_pending) {
#define WAIT(n) \
    case n: asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory"); break;
        WAIT(0) WAIT(1) WAIT(2) WAIT(3)
#undef WAIT
    }
}

template <bool kIsApart>
struct Loop {
    const Plan &plan;
    const unsigned char *a, *b;  // this thread's 16 bytes of the first rows
    uint32_t to;                 // and where they go in a stage
    uint32_t chain = 0;
    uint32_t step = 0, slot = 0;

    __device__ __forceinline__ uint32_t link() {
        if (kIsApart) {
#pragma unroll
            for (uint32_t i = 0; i < kGap; ++i)
                asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(chain) : "r"(plan.one), "r"(plan.zero));
        }
        return chain;
    }

    __device__ __forceinline__ void rows(const unsigned char *from, uint32_t dst, uint32_t num_rows) {
        const uint32_t each = blockDim.x / 8;
#pragma unroll 4
        for (uint32_t row = 0; row < num_rows; row += each)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(dst + row * kRowBytes + link()),
                         "l"(from + row * kPitchBytes)
                         : "memory");
    }

    __device__ __forceinline__ void copy() {
        const uint32_t dst = to + slot * (plan.a_rows + plan.b_rows) * kRowBytes;
        rows(a + step * kRowBytes, dst, plan.a_rows);
        rows(b + step * kRowBytes, dst + plan.a_rows * kRowBytes, plan.b_rows);
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (++step == plan.num_steps) step = 0;
        if (++slot == plan.num_stages) slot = 0;
    }

    __device__ __forceinline__ void walk(uint32_t count, bool is_timed, Told &told) {
        const uint32_t first = is_timed ? plan.num_lead : ~0u, last = plan.num_lead + plan.num_timed;
        const uint32_t middle = plan.num_lead + plan.num_timed / 2;
        int64_t begin = 0;
        for (uint32_t i = 0; i + 1 < plan.num_stages; ++i) copy();
#pragma unroll 1
        for (uint32_t i = 0; i < count; ++i) {
            wait_for_all_but(plan.num_stages - 2);
            __syncthreads();
            const int64_t now = clock_now();
            if (is_timed) {
                if (i == first) begin = now;
                if (i == middle) told.middle_ns = static_cast<int64_t>(now_ns());
                if (i == last) {
                    told.cycles = now - begin;
                    told.end_ns = static_cast<int64_t>(now_ns());
                }
            }
            if (plan.math_cycles && threadIdx.x == 0) pause_until(now + plan.math_cycles);
            __syncthreads();
            const int64_t before = clock_now();
            copy();
            if (is_timed && i >= first && i < last) told.copy_cycles += clock_now() - before;
        }
        wait_for_all_but(0);
        __syncthreads();
    }
};

template <bool kIsApart>
__device__ __forceinline__ void run(const Plan &plan, const Place *places, Flags *flags, const unsigned char *data, Told *told) {
    __shared__ uint32_t checksum, is_well, rank;
    const uint32_t sm = sm_idx(), row = threadIdx.x / 8, chunk = threadIdx.x % 8;
    if (threadIdx.x == 0) {
        checksum = 0;
        is_well = 1;
        rank = atomicAdd(&flags->claimed[sm % kMostSms], 1u);
    }
    __syncthreads();
    const uint32_t idx = plan.is_by_cta ? blockIdx.x : rank * plan.num_sms + sm;
    const Place place = places[idx];
    Told mine = {sm, 0, 0, 0, 0, 0};
    Loop<kIsApart> loop = {
        plan, data + size_t(place.row_a + row) * kPitchBytes + chunk * 16, data + size_t(place.row_b + row) * kPitchBytes + chunk * 16,
        smem_address(stages) + row * kRowBytes + ((chunk ^ (row & 7)) * 16)};
#pragma unroll 1
    for (uint32_t phase = 0; phase < 2; ++phase) {
        if (threadIdx.x == 0 && !meet_in_time(flags, &flags->met, (phase + 1) * plan.num_ctas, phase)) {
            atomicExch(&flags->has_failed, 1u);
            is_well = 0;
        }
        __syncthreads();
        if (!is_well) return;
        loop.step = 0;
        loop.walk(phase ? plan.num_lead + plan.num_timed + plan.num_behind : plan.num_warm, phase, mine);
    }
    const uint32_t num_bytes = plan.num_stages * (plan.a_rows + plan.b_rows) * kRowBytes;
    uint32_t sum = 0;
    for (uint32_t byte = threadIdx.x * 16; byte < num_bytes; byte += blockDim.x * 16) {
        const uint4 v = *reinterpret_cast<const uint4 *>(stages + byte);
        sum += v.x + v.y + v.z + v.w;
    }
    atomicAdd(&checksum, sum);
    __syncthreads();
    if (threadIdx.x == 0) {
        mine.checksum = checksum;
        told[idx] = mine;
    }
}

extern "C" __global__ void __launch_bounds__(256) close(
    const __grid_constant__ Plan plan, const Place *places, Flags *flags, const unsigned char *data, Told *told) {
    run<false>(plan, places, flags, data, told);
}

extern "C" __global__ void __launch_bounds__(256) apart(
    const __grid_constant__ Plan plan, const Place *places, Flags *flags, const unsigned char *data, Told *told) {
    run<true>(plan, places, flags, data, told);
}
