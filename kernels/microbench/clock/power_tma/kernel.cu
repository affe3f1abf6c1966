// At what clock does the SM run where TMA brings the bytes, beside tensor work of several types and into its operands?
//
// A CTA on every SM. Warps 0 to 3 multiply (one wgmma m64n256 of the type, 32 bytes of K each, bursts of 64) and rest as long as
// their duty says; one thread of warp 4 copies boxes of 8 KiB into shared memory; warp 5 writes down the SM's clock and the GPU's
// nanoseconds every so often. All stop at a time. `stream_*`: boxes go to room of their own, eight in flight. `fed_*`: they are
// operands, refilled while others are read; stages are handed over by mbarriers, as in a GEMM. `shapes.inc` is written by case.py:
// a struct with the one instruction of each type, and the kernels.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

extern __shared__ __align__(1024) unsigned char buffer[];

constexpr int kThreads = 192;
constexpr int kPanels = 4, kStepsPerPanel = 4;   // a panel is a stage: 128 bytes of K of all rows, four wgmmas
constexpr int kPassesPerBurst = 4;               // over all panels before the accumulators start anew
constexpr uint32_t kBoxRows = 64, kBoxBytes = kBoxRows * 128;
constexpr uint32_t kBoxesPerPanel = 5;           // one of A, four of B
constexpr uint32_t kPanelBytes = kBoxesPerPanel * kBoxBytes, kPanelRows = kBoxesPerPanel * kBoxRows;
constexpr uint32_t kSlots = 8;                   // for boxes that nobody reads, behind the panels
constexpr uint32_t kReleases = 4;                // of a stage: by each warp that multiplies
constexpr int kPatience = 1 << 18;               // tries of a wait

struct Plan {
    uint64_t run_ns, period_ns;
    uint32_t tensor_duty, stream_duty;  // percent; 0: not at all
    uint32_t is_private;                // 1: a CTA stays in its own slice of the stream, which L2 holds
    uint32_t slice_rows;                // of 128 bytes: of that slice, or of all that the CTAs walk through together
    uint32_t num_boxes;                 // of a stage's five that come anew with every use
    uint32_t is_own;                    // 1: each CTA has its own copy of the operands in memory
    uint32_t num_samples, pad;
};

// What a CTA did: bursts, boxes copied; the row of the last box of the stream, and its words XORed; whether a wait was given up.
struct Done {
    uint64_t num_bursts, num_boxes, last_row, last_words, has_failed, pad;
};

__device__ __forceinline__ int64_t now() {
    int64_t cycle;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycle)::"memory");
    return cycle;
}
__device__ __forceinline__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    return ns;
}

// How long to rest for each cycle of work, so that the work is `duty` percent of the time.
__device__ __forceinline__ float rest_of(uint32_t duty) { return static_cast<float>(100 - duty) / static_cast<float>(duty); }

__device__ __forceinline__ void rest(int64_t begin, float ratio) {
    if (ratio == 0.0f) return;
    const int64_t end = now();
    const int64_t until = end + static_cast<int32_t>(static_cast<float>(static_cast<int32_t>(end - begin)) * ratio);
    while (now() < until) __nanosleep(20);
}

// Whether all four warps that multiply still have time: they must go together.
__device__ __forceinline__ bool agree(bool has_time) {
    uint32_t all;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; bar.red.and.pred q, 1, 128, p; selp.u32 %0, 1, 0, q; }"
                 : "=r"(all) : "r"(static_cast<uint32_t>(has_time)) : "memory");
    return all != 0;
}

__device__ __forceinline__ uint32_t shared_address(const void *pointer) {
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
    asm volatile("" : "+r"(address));
    return address;
}

__device__ __forceinline__ bool try_wait(uint32_t barrier, uint32_t parity) {
    uint32_t is_done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(is_done) : "r"(barrier), "r"(parity) : "memory");
    return is_done;
}

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
    for (int tries = 0; tries < kPatience; ++tries)
        if (try_wait(barrier, parity)) return true;
    return false;
}

__device__ __forceinline__ void arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void expect(uint32_t barrier, uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(num_bytes) : "memory");
}

__device__ __forceinline__ void copy(uint32_t to, const void *map, uint32_t row, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map),
        "r"(0), "r"(row), "r"(barrier)
        : "memory");
}

__device__ __forceinline__ bool is_elected() {
    uint32_t is_chosen;
    asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_chosen)::"memory");
    return is_chosen;
}

__device__ __forceinline__ uint32_t read_flag(uint32_t flag) {
    uint32_t value;
    asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(value) : "r"(flag) : "memory");
    return value;
}

// Start address, and 1024 bytes from eight rows to the next; swizzle 128B.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
    return static_cast<uint64_t>(address >> 4 & 0x3fff) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

struct Barriers {
    uint32_t full, empty;  // of the stages, or of the slots
};

// Over all panels. Where they are fed: each is waited for, and the one before is given back when its group is over.
template <class Shape, bool kIsFed>
__device__ __forceinline__ bool pass(typename Shape::Sum (&acc)[128], const uint32_t (&a)[Shape::kRegisters][4], uint32_t at, bool is_first,
                                     const Barriers &barriers, uint32_t parity) {
    bool is_fine = true;
    asm volatile("" : "+r"(at));  // descriptors are made anew in each pass, as there are no registers to keep them in
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
        if (kIsFed) is_fine &= wait(barriers.full + panel * 8, parity);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < kStepsPerPanel; ++step)
            Shape::issue(acc, a[(panel * kStepsPerPanel + step) % Shape::kRegisters], descriptor(at + panel * kPanelBytes + step * 32),
                         descriptor(at + panel * kPanelBytes + kBoxBytes + step * 32), !(is_first && panel == 0 && step == 0));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (kIsFed && !(is_first && panel == 0) && threadIdx.x % 32 == 0) arrive(barriers.empty + (panel + kPanels - 1) % kPanels * 8);
    }
    return is_fine;
}

// One thread: eight boxes in flight. With rests between rounds of eight each round is waited for.
__device__ __forceinline__ void stream_boxes(const Plan &plan, const void *map, uint32_t to, uint32_t full, uint64_t end, Done *done) {
    const float ratio = rest_of(plan.stream_duty);
    const uint32_t stride = plan.is_private ? kBoxRows : kBoxRows * gridDim.x;
    const uint32_t base = plan.is_private ? blockIdx.x * plan.slice_rows : 0, begin_row = plan.is_private ? 0 : blockIdx.x * kBoxRows;
    uint32_t row = begin_row, last_row = 0, parity = 0, num_rounds = 0;
    bool is_fine = true;
#pragma unroll 1
    while (is_fine && now_ns() < end) {
        const int64_t begin = now();
#pragma unroll 1
        for (uint32_t slot = 0; slot < kSlots; ++slot) {
            if (num_rounds && ratio == 0.0f) is_fine &= wait(full + slot * 8, parity ^ 1);
            expect(full + slot * 8, kBoxBytes);
            last_row = base + row;
            copy(to + slot * kBoxBytes, map, last_row, full + slot * 8);
            row += stride;
            if (row + kBoxRows > plan.slice_rows) row = begin_row;
        }
        ++num_rounds;
        if (ratio != 0.0f) {
#pragma unroll 1
            for (uint32_t slot = 0; slot < kSlots; ++slot) is_fine &= wait(full + slot * 8, parity);
            rest(begin, ratio);
        }
        parity ^= 1;
    }
#pragma unroll 1
    for (uint32_t slot = 0; slot < kSlots && num_rounds; ++slot) is_fine &= wait(full + slot * 8, parity ^ 1);
    uint32_t words = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < kBoxBytes; i += 4) {
        uint32_t word;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(word) : "r"(to + (kSlots - 1) * kBoxBytes + i) : "memory");
        words ^= word;
    }
    done->num_boxes = static_cast<uint64_t>(num_rounds) * kSlots;
    done->last_row = last_row;
    done->last_words = words;
    if (!is_fine) done->has_failed = 1;
}

// One thread: of every stage that is given back so many boxes anew, in turn.
__device__ __forceinline__ void feed(const Plan &plan, const void *map, uint32_t to, const Barriers &barriers, uint32_t flag, Done *done) {
    const uint32_t base = plan.is_own ? blockIdx.x * kPanels * kPanelRows : 0;
    uint32_t stage = 0, parity = 1, box = 0;
    uint64_t num_steps = 0;
    bool goes_on = true;
#pragma unroll 1
    while (true) {
        while (!try_wait(barriers.empty + stage * 8, parity) && goes_on) goes_on = !read_flag(flag);
        if (!goes_on) break;
        const uint32_t full = barriers.full + stage * 8;
        expect(full, plan.num_boxes * kBoxBytes);
        uint32_t which = box;
#pragma unroll 1
        for (uint32_t i = 0; i < plan.num_boxes; ++i) {
            copy(to + stage * kPanelBytes + which * kBoxBytes, map, base + stage * kPanelRows + which * kBoxRows, full);
            which = which + 1 == kBoxesPerPanel ? 0 : which + 1;
        }
        ++num_steps;
        if (++stage == kPanels) {
            stage = 0;
            parity ^= 1;
            box = which;
        }
    }
    bool is_fine = true;
#pragma unroll 1
    for (uint64_t step = num_steps > kPanels ? num_steps - kPanels : 0; step < num_steps; ++step)  // all that is in flight
        is_fine &= wait(barriers.full + step % kPanels * 8, step / kPanels & 1);
    done->num_boxes = num_steps * plan.num_boxes;
    if (!is_fine) done->has_failed = 1;
}

// samples[cta][sample]: nanoseconds, cycles; d: A times B of the first CTA, by register and thread.
template <class Shape, bool kIsFed>
__device__ __forceinline__ void run(const Plan &plan, const void *operands, const uint32_t *a_words, const void *stream, uint64_t *samples,
                                    Done *done, typename Shape::Sum *d) {
    __shared__ __align__(8) uint64_t full_at[kSlots], empty_at[kPanels], begun;
    __shared__ uint32_t is_over;
    const uint32_t at = shared_address(buffer), flag = shared_address(&is_over), first = shared_address(&begun);
    const Barriers barriers = {shared_address(full_at), shared_address(empty_at)};
    if (threadIdx.x == 0) {
        is_over = 0;
        for (uint32_t i = 0; i < kSlots; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers.full + i * 8) : "memory");
        for (uint32_t i = 0; i < kPanels; ++i)
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barriers.empty + i * 8), "r"(kReleases) : "memory");
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(first) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        expect(first, kPanels * kPanelBytes);
#pragma unroll 1
        for (uint32_t i = 0; i < kPanels * kBoxesPerPanel; ++i) copy(at + i * kBoxBytes, operands, i * kBoxRows, first);
    }
    __syncwarp();
    bool is_fine = wait(first, 0);
    const uint64_t start = now_ns(), end = start + plan.run_ns;
    const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    if (warp < 4) {
        // A from registers: of 32 bytes of a row a thread holds words of rows g and g + 8, at both halves.
        uint32_t a[Shape::kRegisters][4] = {};
        if (Shape::kRegisters > 1) {
            const uint32_t row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
            for (int k = 0; k < Shape::kRegisters; ++k)
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    a[k][i] = a_words[(k / kStepsPerPanel * kPanelRows + row + i % 2 * 8) * 32 + k % kStepsPerPanel * 8 + threadIdx.x % 4 + i / 2 * 4];
        }
        typename Shape::Sum acc[128];
#pragma unroll
        for (int i = 0; i < 128; ++i) acc[i] = 0;
        uint64_t num_bursts = 0;
        const float ratio = rest_of(plan.tensor_duty);
        if (plan.tensor_duty)
#pragma unroll 1
            while (agree(now_ns() < end)) {
                const int64_t begin = now();
#pragma unroll 1
                for (int i = 0; i < kPassesPerBurst; ++i) is_fine &= pass<Shape, kIsFed>(acc, a, at, i == 0, barriers, i & 1);
                asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
                if (kIsFed && threadIdx.x % 32 == 0) arrive(barriers.empty + (kPanels - 1) * 8);
                ++num_bursts;
                rest(begin, ratio);
            }
        if (threadIdx.x == 0) {
            asm volatile("st.volatile.shared.u32 [%0], 1;" ::"r"(flag) : "memory");
            done[blockIdx.x].num_bursts = num_bursts;
        }
        if (blockIdx.x == 0 && plan.tensor_duty) {
#pragma unroll
            for (int i = 0; i < 128; ++i) d[i * 128 + threadIdx.x] = acc[i];
        }
        if (!is_fine) done[blockIdx.x].has_failed = 1;
    } else if (warp == 4) {
        if (is_elected()) {
            if (kIsFed)
                feed(plan, operands, at, barriers, flag, done + blockIdx.x);
            else if (plan.stream_duty)
                stream_boxes(plan, stream, at + kPanels * kPanelBytes, barriers.full, end, done + blockIdx.x);
        }
    } else if (threadIdx.x % 32 == 0) {
        uint64_t *of_cta = samples + static_cast<uint64_t>(blockIdx.x) * plan.num_samples * 2;
#pragma unroll 1
        for (uint32_t i = 0; i < plan.num_samples; ++i) {
            const uint64_t due = start + i * plan.period_ns;
            uint64_t ns = now_ns();
            while (ns < due) {
                if (due - ns > 2000) __nanosleep(1000);
                ns = now_ns();
            }
            const int64_t cycle = now();
            of_cta[2 * i] = ns;
            of_cta[2 * i + 1] = static_cast<uint64_t>(cycle);
        }
    }
}

#define POWER_KERNEL(name, shape, is_fed)                                                                                      \
    extern "C" __global__ void __launch_bounds__(kThreads, 1)                                                                  \
        name(const __grid_constant__ Plan plan, const void *operands, const uint32_t *a_words, const void *stream, uint64_t *samples, \
             Done *done, shape::Sum *d) {                                                                                      \
        run<shape, is_fed>(plan, operands, a_words, stream, samples, done, d);                                                 \
    }

#include "shapes.inc"

#endif
