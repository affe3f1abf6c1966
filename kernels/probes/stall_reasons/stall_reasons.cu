// Each kernel makes warps wait for one thing again and again. Nsight Compute says which stall reason counts it.
#include <cstdint>
#include <cstdio>
#define K extern "C" __global__ void
__device__ uint32_t sa(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ void pause(int n) { long long t = clock64(); while (clock64() - t < n) {} }
__device__ void init(uint64_t* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(sa(b)), "r"(n)); }
__device__ void arrive(uint64_t* b) { asm volatile("{.reg .b64 s; mbarrier.arrive.shared::cta.b64 s, [%0];}" ::"r"(sa(b)) : "memory"); }
__device__ void wait(uint64_t* b, int par) {
  asm volatile("{.reg .pred p; L: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D:}" ::"r"(sa(b)), "r"(par) : "memory");
}
const int N = 400;
K mbarrier_try_wait(float* out, const float* in) {  // warp 0 waits, warp 1 arrives every 2,000 cycles
  __shared__ uint64_t b;
  if (threadIdx.x == 0) init(&b, 1);
  __syncthreads();
  if (threadIdx.x < 32) { for (int i = 0; i < N; i++) wait(&b, i & 1); }
  else if (threadIdx.x == 32) { for (int i = 0; i < N; i++) { pause(2000); arrive(&b); } }
}
K mbarrier_test_wait(float* out, const float* in) {
  __shared__ uint64_t b;
  if (threadIdx.x == 0) init(&b, 1);
  __syncthreads();
  if (threadIdx.x < 32) { for (int i = 0; i < N; i++) asm volatile("{.reg .pred p; L: mbarrier.test_wait.parity.shared::cta.b64 p, [%0], %1; @p bra D; bra L; D:}" ::"r"(sa(&b)), "r"(i & 1) : "memory"); }
  else if (threadIdx.x == 32) { for (int i = 0; i < N; i++) { pause(2000); arrive(&b); } }
}
K cp_async_wait(float* out, const float* in) {
  __shared__ __align__(16) float s[128 * 4];
  for (int i = 0; i < N; i++) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(sa(s + threadIdx.x * 4)), "l"(in + ((i * 7919 * 128 + threadIdx.x) * 4 & ((1 << 26) - 4))) : "memory");
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
  }
  out[threadIdx.x] = s[threadIdx.x];
}
K bulk_wait(float* out, const float* in) {  // a bulk store, and the wait for its group
  __shared__ __align__(128) float s[4096];
  if (threadIdx.x == 0)
    for (int i = 0; i < N; i++) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + (i & 15) * 4096), "r"(sa(s)), "r"(16384) : "memory");
      asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
K bulk_wait_read(float* out, const float* in) {
  __shared__ __align__(128) float s[4096];
  if (threadIdx.x == 0)
    for (int i = 0; i < N; i++) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + (i & 15) * 4096), "r"(sa(s)), "r"(16384) : "memory");
      asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}
K bulk_load_mbarrier(float* out, const float* in) {  // TMA fills, the same warp waits for the mbarrier
  __shared__ __align__(128) float s[4096];
  __shared__ uint64_t b;
  if (threadIdx.x == 0) {
    init(&b, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    for (int i = 0; i < N; i++) {
      asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;}" ::"r"(sa(&b)), "r"(16384) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(sa(s)), "l"(in + (i * 4096 & ((1 << 26) - 1))), "r"(16384), "r"(sa(&b)) : "memory");
      wait(&b, i & 1);
    }
    out[0] = s[0];
  }
}
K syncthreads(float* out, const float* in) { for (int i = 0; i < N; i++) { if (threadIdx.x >= 96) pause(2000); __syncthreads(); } }
K named_barrier(float* out, const float* in) { for (int i = 0; i < N; i++) { if (threadIdx.x >= 96) pause(2000); asm volatile("bar.sync 1, 128;" ::: "memory"); } }
K __cluster_dims__(2, 1, 1) cluster_barrier(float* out, const float* in) {
  for (int i = 0; i < N; i++) { if (threadIdx.x >= 96) pause(2000); asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory"); }
}
K fence_proxy(float* out, const float* in) {
  __shared__ float s[128 * 8];
  for (int i = 0; i < N * 4; i++) { s[threadIdx.x * 8] = i; asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
  out[threadIdx.x] = s[threadIdx.x];
}
K membar_gl(float* out, const float* in) { for (int i = 0; i < N; i++) { out[threadIdx.x + i * 128 % 4096] = i; __threadfence(); } }
K global_load(float* out, const float* in) {
  const float* p = in + threadIdx.x; float x = 0;
  for (int i = 0; i < N; i++) { x += p[((int)x + i * 65536) & ((1 << 26) - 1)]; }
  out[threadIdx.x] = x;
}
K shared_load(float* out, const float* in) {
  __shared__ int s[128]; s[threadIdx.x] = threadIdx.x; __syncthreads();
  int x = threadIdx.x; for (int i = 0; i < N * 8; i++) x = s[x]; out[threadIdx.x] = x;
}
K shuffle(float* out, const float* in) { int x = threadIdx.x; for (int i = 0; i < N * 8; i++) x = __shfl_xor_sync(~0u, x, 1) + 1; out[threadIdx.x] = x; }
K shared_stores(float* out, const float* in) {  // conflicts: the MIO queue is full
  __shared__ volatile int s[128 * 32];
  for (int i = 0; i < N * 4; i++) s[(threadIdx.x & 31) * 32 + (threadIdx.x >> 5) + (i & 3)] = i;
  out[threadIdx.x] = s[threadIdx.x];
}
K shared_loads(float* out, const float* in) {
  __shared__ volatile int s[128 * 32]; int x = 0;
  for (int i = 0; i < N; i++) {
#pragma unroll
    for (int j = 0; j < 16; j++) x ^= s[(threadIdx.x & 31) * 32 + j];
  }
  out[threadIdx.x] = x;
}
K global_stores(float* out, const float* in) { for (int i = 0; i < N * 4; i++) out[(threadIdx.x * 32 + i * 4096 + (i & 31)) & ((1 << 24) - 1)] = i; }
K global_loads(float* out, const float* in) {
  float x = 0;
  for (int i = 0; i < N; i++) {
#pragma unroll
    for (int j = 0; j < 16; j++) x += __ldcg(in + ((threadIdx.x * 32 + (i * 16 + j) * 4096) & ((1 << 26) - 1)));
  }
  out[threadIdx.x] = x;
}
K ffma_chain(float* out, const float* in) { float x = threadIdx.x; for (int i = 0; i < N * 32; i++) x = x * 1.0001f + 0.5f; out[threadIdx.x] = x; }
K ffma_full(float* out, const float* in) {  // launched with 1,024 threads: the FMA pipes are full
  float x[8]; for (int j = 0; j < 8; j++) x[j] = threadIdx.x + j;
  for (int i = 0; i < N * 8; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) x[j] = x[j] * 1.0001f + 0.5f;
  float y = 0; for (int j = 0; j < 8; j++) y += x[j]; out[threadIdx.x] = y;
}
K mma_chain(float* out, const float* in) {
  float d[4] = {0, 0, 0, 0};
  for (int i = 0; i < N * 8; i++) asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(0));
  out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
K mma_full(float* out, const float* in) {
  float d[8][4] = {};
  for (int i = 0; i < N * 4; i++)
#pragma unroll
    for (int j = 0; j < 8; j++) asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%4,%4}, {%0,%1,%2,%3};" : "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3]) : "r"(0));
  float y = 0; for (int j = 0; j < 8; j++) y += d[j][0] + d[j][1] + d[j][2] + d[j][3]; out[threadIdx.x] = y;
}
#define F(n) "+f"(d[n]), "+f"(d[n + 1]), "+f"(d[n + 2]), "+f"(d[n + 3]), "+f"(d[n + 4]), "+f"(d[n + 5]), "+f"(d[n + 6]), "+f"(d[n + 7])
K wgmma_wait(float* out, const float* in) {
  __shared__ __align__(1024) uint16_t s[16384];
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) s[i] = 0;
  __syncthreads();
  float d[32]; for (int j = 0; j < 32; j++) d[j] = 0;
  uint64_t desc = ((uint64_t)(sa(s) & 0x3FFFF) >> 4) | ((uint64_t)1 << 16) | ((uint64_t)64 << 32) | ((uint64_t)1 << 62);
  for (int i = 0; i < N; i++) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < 8; j++)
    asm volatile("{wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %32, 1, 1, 1, 0, 0;}" : F(0), F(8), F(16), F(24) : "l"(desc));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float y = 0; for (int j = 0; j < 32; j++) y += d[j]; out[threadIdx.x] = y;
}
K wgmma_full(float* out, const float* in) {  // several warpgroups queue for the tensor cores
  __shared__ __align__(1024) uint16_t s[16384];
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) s[i] = 0;
  __syncthreads();
  float d[32]; for (int j = 0; j < 32; j++) d[j] = 0;
  uint64_t desc = ((uint64_t)(sa(s) & 0x3FFFF) >> 4) | ((uint64_t)1 << 16) | ((uint64_t)64 << 32) | ((uint64_t)1 << 62);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  for (int i = 0; i < N; i++) {
#pragma unroll
    for (int j = 0; j < 8; j++)
    asm volatile("{wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %32, 1, 1, 1, 0, 0;}" : F(0), F(8), F(16), F(24) : "l"(desc));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  float y = 0; for (int j = 0; j < 32; j++) y += d[j]; out[threadIdx.x] = y;
}
extern "C" __global__ void __maxnreg__(128) setmaxnreg_wait(float* out, const float* in) {  // warpgroup 1 asks for registers that warpgroup 0 gives back late
  if (threadIdx.x < 128) { pause(200000); asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); pause(2000); }
  else asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
}
K cold_code(float* out, const float* in) {
  float x = threadIdx.x;
#pragma unroll 1
  for (int i = 0; i < 8; i++) {
#pragma unroll
    for (int j = 0; j < 12000; j++) asm volatile("fma.rn.f32 %0, %0, %0, 0f3f800000;" : "+f"(x));
  }
  out[threadIdx.x] = x;
}
K atomic_result(float* out, const float* in) { int x = threadIdx.x; for (int i = 0; i < N; i++) x = atomicAdd((int*)out + (x & 1023), 1); out[4096 + threadIdx.x] = x; }
K nothing_nanosleep(float* out, const float* in) { for (int i = 0; i < N; i++) __nanosleep(1000); }
struct L { const char* name; void (*f)(float*, const float*); int threads; int blocks; };
int main() {
  float *in, *out; cudaMalloc(&in, 1u << 28); cudaMalloc(&out, 1u << 27); cudaMemset(in, 0, 1u << 28); cudaMemset(out, 0, 1u << 27);
#define R(n, t) {#n, n, t, 1}
  L all[] = {R(mbarrier_try_wait, 64), R(mbarrier_test_wait, 64), R(cp_async_wait, 32), R(bulk_wait, 32), R(bulk_wait_read, 32), R(bulk_load_mbarrier, 32),
    R(syncthreads, 128), R(named_barrier, 128), {"cluster_barrier", cluster_barrier, 128, 2}, R(fence_proxy, 128), R(membar_gl, 32), R(global_load, 32), R(shared_load, 32),
    R(shuffle, 32), R(shared_stores, 128), R(shared_loads, 128), R(global_stores, 128), R(global_loads, 512), R(ffma_chain, 32), R(ffma_full, 1024), R(mma_chain, 128), R(mma_full, 512),
    R(wgmma_wait, 128), R(wgmma_full, 512), R(setmaxnreg_wait, 256), R(cold_code, 32), R(atomic_result, 32), R(nothing_nanosleep, 32)};
  for (auto& l : all) { l.f<<<l.blocks, l.threads>>>(out, in); cudaError_t e = cudaDeviceSynchronize(); printf("%s %s\n", l.name, cudaGetErrorString(e)); if (e) return 1; }
  return 0;
}
