// Does it matter to a stream of TMA copies where their tensor maps lie, and who has made them?
//
// CTAs of one warpgroup with a ring of stages, as compilers make them without a producer: all warps wait until a stage is full,
// issue the wgmma of a k-step or none, wait until one group runs, meet, and one thread announces and loads into the stage that
// this has freed, with all meeting before each of the two boxes. Maps are used in turn. `prepare` puts copies of the host's map
// into global memory: one set for all CTAs, or one each. Where CTAs make their own, `walk` does so itself, by
// tensormap.cp_fenceproxy, and acquires them. A wait that lasts too long gives up and reports it.

#include <cstdint>

#if __CUDA_ARCH__ >= 900

constexpr uint32_t kMapWords = 32, kMostStages = 4, kThreads = 128, kBoxBytes = 64 * 128, kPatience = 1 << 20;

struct Plan {
  uint32_t num_steps, num_lead;  // of a CTA; of these before the clock counts
  uint32_t num_stages, num_maps,
      maps_per_cta;  // in the ring; used in turn; from one CTA's maps to the next one's
  uint32_t makes_maps, has_math, walks_own;
  uint32_t num_panels, num_columns;          // of 64 rows, and of 64 elements (a power of two), of the tensor
  uint32_t num_rows_of_tiles, swizzle_size;  // of a GEMM's tiles, where CTAs share panels
};

struct Seen {
  uint32_t has_failed, sum;  // words of all stages in the end
  uint32_t made, first, cycles,
      sm;  // cycles to make maps, until the first stage is full, of the steps that count
  uint32_t began_ns, ended_ns;
};

extern __shared__ __align__(1024) unsigned char ring[];

__device__ __forceinline__ uint32_t now() {
  uint32_t cycle;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(cycle)::"memory");
  return cycle;
}

__device__ __forceinline__ uint32_t now_ns() {
  uint32_t time;
  asm volatile("mov.u32 %0, %%globaltimer_lo;" : "=r"(time)::"memory");
  return time;
}

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ bool wait(uint32_t barrier, uint32_t parity) {
#pragma unroll 1
  for (uint32_t tries = 0; tries < kPatience; ++tries) {
    uint32_t is_done;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(is_done)
        : "r"(barrier), "r"(parity)
        : "memory");
    if (is_done) return true;
  }
  return false;
}

__device__ __forceinline__ void copy(uint32_t to, const void* map, uint32_t column, uint32_t row,
                                     uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}

// One warp a set of maps: copies of the host's, one behind the other.
extern "C" __global__ void prepare(const uint32_t num_maps, const uint32_t* host_map, uint32_t* maps) {
  for (uint32_t i = 0; i < num_maps; ++i)
    maps[(blockIdx.x * num_maps + i) * kMapWords + threadIdx.x] = host_map[threadIdx.x];
}

__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
      "%11, %12, %13, %14, %15, %16, %17, "
      "%18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
        "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]),
        "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]),
        "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
        "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(kThreads)
    walk(const __grid_constant__ Plan plan, const uint32_t* host_map, const void* data, uint32_t* all_maps,
         Seen* seen, float* sums) {
  __shared__ __align__(8) uint64_t mbarriers[kMostStages];
  __shared__ __align__(128) uint32_t staged_map[kMapWords];
  __shared__ uint32_t total;
  const uint32_t full = shared_address(mbarriers), staged = shared_address(staged_map),
                 lane = threadIdx.x % 32;
  const bool is_first_warp = threadIdx.x < 32;
  uint32_t* maps = all_maps + blockIdx.x * plan.maps_per_cta * kMapWords;
  Seen mine = {};
  mine.began_ns = now_ns();
  if (threadIdx.x == 0) {
    total = 0;
    for (uint32_t i = 0; i < plan.num_stages; ++i)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + i * 8) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const uint32_t begin = now();
  if (plan.makes_maps) {
#pragma unroll 1
    for (uint32_t i = 0; i < plan.num_maps; ++i) {
      if (is_first_warp) {
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(staged + lane * 4), "r"(__ldg(host_map + lane))
                     : "memory");
        __syncwarp();
        if (lane == 0)
          asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(staged),
                       "l"(data)
                       : "memory");
        __syncwarp();
        asm volatile(
            "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], "
            "[%1], 128;" ::"l"(maps + i * kMapWords),
            "r"(staged)
            : "memory");
        asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(maps + i * kMapWords)
                     : "memory");
      }
      __syncthreads();
    }
  }
  mine.made = now() - begin;

  const uint32_t per_band = plan.swizzle_size * plan.num_rows_of_tiles,
                 tile = blockIdx.x % (plan.num_rows_of_tiles * plan.num_rows_of_tiles);
  const uint32_t band = tile / per_band, within = tile % per_band;
  const uint32_t panel_a = plan.walks_own ? 2 * blockIdx.x % plan.num_panels
                                          : band * plan.swizzle_size + within % plan.swizzle_size;
  const uint32_t panel_b = plan.walks_own ? panel_a + 1 : plan.num_rows_of_tiles + within / plan.swizzle_size;
  const uint32_t shift = plan.walks_own ? 4 * blockIdx.x / plan.num_panels : 0, to = shared_address(ring);
  uint32_t map_at = 0;
  const auto load = [&](uint32_t operand, uint32_t step, uint32_t stage) {
    const uint32_t column = (step + shift) & (plan.num_columns - 1);
    copy(to + (2 * stage + operand) * kBoxBytes, maps + map_at * kMapWords, column * 64,
         (operand ? panel_b : panel_a) * 64, full + stage * 8);
    if (++map_at == plan.num_maps) map_at = 0;
  };
  const auto announce = [&](uint32_t stage) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(full + stage * 8),
                 "r"(2 * kBoxBytes)
                 : "memory");
  };
  const uint32_t ahead = plan.num_stages - 1;
  if (threadIdx.x == 0)
    for (uint32_t step = 0; step < ahead; ++step) {
      announce(step);
      load(0, step, step);
      load(1, step, step);
    }
  __syncwarp();

  float accumulators[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) accumulators[i] = 0;
  // Rows of 128 bytes, swizzled; eight of them 1024 bytes further on
  constexpr uint64_t kDescriptor = 1ull << 62 | 64ull << 32 | 1ull << 16;
  uint32_t stage = 0, parity = 0, next = ahead, counted_from = begin;
  bool is_well = true;
#pragma unroll 1
  for (uint32_t step = 0; step < plan.num_steps; ++step) {
    if (step == plan.num_lead) counted_from = now();
    __syncthreads();
    is_well = wait(full + stage * 8, parity) && is_well;
    if (step == 0) mine.first = now() - begin;
    if (plan.has_math) {
      const uint64_t a = kDescriptor | (to + stage * 2 * kBoxBytes) >> 4, b = a + (kBoxBytes >> 4);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply(accumulators, a + 2 * k, b + 2 * k);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
    const bool loads = threadIdx.x == 0 && step + ahead < plan.num_steps;
    __syncthreads();
    if (loads) announce(next);
    __syncthreads();
    if (loads) load(0, step + ahead, next);
    __syncthreads();
    if (loads) load(1, step + ahead, next);
    __syncwarp();
    if (++next == plan.num_stages) next = 0;
    if (++stage == plan.num_stages) {
      stage = 0;
      parity ^= 1;
    }
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  mine.cycles = now() - counted_from;
  mine.ended_ns = now_ns();
  mine.has_failed = !__all_sync(0xffffffff, is_well);
  asm volatile("mov.u32 %0, %%smid;" : "=r"(mine.sm));
  uint32_t sum = 0;
  for (uint32_t at = threadIdx.x; at < plan.num_stages * 2 * kBoxBytes / 4; at += kThreads)
    sum += reinterpret_cast<const uint32_t*>(ring)[at];
  atomicAdd(&total, sum);
  __syncthreads();
  mine.sum = total;
  float all = 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) all += accumulators[i];
  sums[blockIdx.x * kThreads + threadIdx.x] = all;
  if (threadIdx.x == 0) seen[blockIdx.x] = mine;
}

#endif
