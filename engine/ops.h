// What each op costs: one function an op, which moves the role's cursor and the machine's pipes.
// Each returns whether the role goes on; false: it waits, and is woken later.
#pragma once
#include "role.h"

namespace gpusim {

// ops_memory.cpp: global loads, stores and atomics
bool global_load(Role* role, const Op& op);
bool global_store(Role* role, const Op& op);
bool global_atomic(Role* role, const Op& op);
bool use(Role* role, const Op& op);

// ops_cp_async.cpp
bool cp_async(Role* role, const Op& op);
bool cp_async_commit_group(Role* role, const Op& op);
bool cp_async_wait_group(Role* role, const Op& op);
bool cp_async_mbarrier_arrive(Role* role, const Op& op);

// ops_tma.cpp
bool tma_load(Role* role, const Op& op);
bool tma_store(Role* role, const Op& op);
bool bulk_commit_group(Role* role, const Op& op);
bool bulk_wait_group(Role* role, const Op& op);
bool prefetch_tensormap(Role* role, const Op& op);

// ops_barriers.cpp
bool mbarrier_arrive(Role* role, const Op& op);
bool mbarrier_arrive_expect_tx(Role* role, const Op& op);
bool mbarrier_wait(Role* role, const Op& op);
bool bar_sync(Role* role, const Op& op);
bool bar_arrive(Role* role, const Op& op);
bool syncthreads(Role* role, const Op& op);
bool cluster_arrive(Role* role, const Op& op);
bool cluster_wait(Role* role, const Op& op);
bool fence_proxy_async(Role* role, const Op& op);
bool fence_acq_rel(Role* role, const Op& op);

// ops_shared.cpp: shared memory, distributed shared memory
bool shared_load(Role* role, const Op& op);
bool shared_store(Role* role, const Op& op);
bool shared_atomic(Role* role, const Op& op);
bool dsmem_load(Role* role, const Op& op);
bool dsmem_store(Role* role, const Op& op);
bool st_async(Role* role, const Op& op);

// ops_arithmetic.cpp
bool mma_sync(Role* role, const Op& op);
bool wgmma(Role* role, const Op& op);
bool wgmma_wait_group(Role* role, const Op& op);
bool fetch_code(Role* role, const Op& op);
bool fetch_far_code(Role* role, const Op& op);
bool fetch_loop_code(Role* role, const Op& op);
bool fma(Role* role, const Op& op);
bool alu(Role* role, const Op& op);
bool mad_wide(Role* role, const Op& op);
bool mufu(Role* role, const Op& op);
bool shfl(Role* role, const Op& op);
bool set_max_nreg(Role* role, const Op& op);

// ---------------------------------------------------------------- what several of them need

// Wavefronts of an access; the fewest possible where bank conflicts are idealized.
double wavefronts_of(const AccessRecord& access);
// When what a role asks of global memory at `at_cycle` is past what was asked of shared memory before it.
double passes_at(const Role* role, double at_cycle);
// Waits until all of the queued stores but the last `num_left_bytes` have left the SM; true where they have.
bool until_stored(Role* role, Fifo<QueuedStore>& queued, double num_left_bytes);
// Arrives on an mbarrier of a role's CTA when its copies are there.
void arrive_by_copies(Role* role, int32_t mbarrier, double cycle, const Role* who);
// Notes that an mbarrier of a CTA has completed a phase.
void record_flip(const Cta* cta, int32_t mbarrier);
// When a lone lane that has waited `since` goes on: with the end of its first try that finds the phase
// complete.
double looked_at(double since, double completed_at);

}  // namespace gpusim
