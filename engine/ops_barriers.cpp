// mbarriers, thread and cluster barriers, fences.
#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

// Issues an arrival of each of `num_warps`; returns when the last counts if its mbarrier is on this SM.
double issue_arrival(Role* role, int32_t num_warps) {
  MbarrierUnit& unit = sm_of(role).mbarrier_unit;
  double goes_on;
  double counts_at;
  unit.arrive(role->t, &goes_on, &counts_at);
  for (int32_t warp = 1; warp < num_warps; warp++)  // lanes arrive together, warps one after the other
    unit.arrive(role->t, &goes_on, &counts_at);
  role->step(goes_on - role->t);
  return counts_at;
}

bool thread_barrier(Role* role, ThreadBarrier& barrier, bool waits) {
  role->meet();
  double release = barrier.arrive(role->num_threads, larger(role->t, role->all_fenced_at), waits, role);
  if (!waits) return true;
  if (release != ThreadBarrier::NOT_RELEASED) {
    role->spend(WarpState::WAIT_BARRIER, release);
    return true;
  }
  barrier.waiting.push(role);
  return role->block(WarpState::WAIT_BARRIER,
                     barrier.number == ThreadBarrier::SYNCTHREADS ? Wait::SYNCTHREADS : Wait::NAMED_BARRIER);
}

}  // namespace

// Arrives here, or a network latency later on another CTA.
void mbarrier_arrive(Role* role, const Op& op) {
  role->meet();
  int32_t rank = op.cost;
  if (rank < 0 || rank == role->cta->rank) {
    int32_t num_warps = op.extra / 32;
    num_warps = num_warps < role->num_warps ? num_warps : role->num_warps;
    double counts_at = issue_arrival(role, num_warps > 1 ? num_warps : 1);
    role->cta->mbarriers[op.barrier].arrive(op.extra, counts_at, role);
    return;
  }
  issue_arrival(role, 1);
  role->arrives_far_at = role->t + Dsmem::one_way_cycles(Run::is_pair(role));
  Run::peer(role, rank)->mbarriers[op.barrier].arrive(op.extra, role->arrives_far_at, role);
}

void mbarrier_init(Role* role, const Op&) { role->issue(1.0); }

void fence_mbarrier_init(Role* role, const Op& op) { mbarrier_init(role, op); }

// Announces bytes and arrives.
void mbarrier_arrive_expect_tx(Role* role, const Op& op) {
  Mbarrier& barrier = role->cta->mbarriers[op.barrier];
  barrier.tx_bytes += op.extra;
  barrier.announced_bytes += op.extra;
  barrier.arrive(1, issue_arrival(role, 1), role);
}

// Goes on at once, at the cycle that is known, or when the phase completes.
bool mbarrier_wait(Role* role, const Op& op) {
  Mbarrier& barrier = role->cta->mbarriers[op.barrier];
  bool by_lane = op.flags & 1;
  if (barrier.parity != op.extra) {
    if (!by_lane && barrier.completed_at <= role->t)
      role->step(input.mbarrier->try_wait_cycles);
    else
      role->spend(WarpState::WAIT_MBARRIER, barrier.goes_on_at(role->t, by_lane));
    return true;
  }
  barrier.waiters.push(Mbarrier::Waiter{role, by_lane});
  return role->block(WarpState::WAIT_MBARRIER, Wait::MBARRIER);
}

// Arrives and waits.
bool bar_sync(Role* role, const Op& op) {
  return thread_barrier(role, role->cta->barriers[op.barrier], true);
}

// Arrives alone.
void bar_arrive(Role* role, const Op& op) {
  role->step(input.warp_scheduler->bar_arrive_cycles);
  thread_barrier(role, role->cta->barriers[op.barrier], false);
}

// All threads of the CTA.
bool syncthreads(Role* role, const Op&) {
  return thread_barrier(role, role->cta->barriers[input.named_barriers.size], true);
}

// One more role of the cluster is here.
void cluster_arrive(Role* role, const Op&) {
  role->meet();
  role->issue(1.0);
  Cluster* cluster = role->cta->cluster;
  double release = cluster->barrier.arrive(role->num_threads, role->t, true, role);
  role->cluster_release = release;
  if (release == ThreadBarrier::NOT_RELEASED) return;
  for (Cta* cta : cluster->ctas)
    for (Role& other : cta->roles)
      if (other.cluster_release != Role::NOT_ARRIVED) other.cluster_release = release;
}

// Until all roles of the cluster have arrived.
bool cluster_wait(Role* role, const Op&) {
  if (role->cluster_release == Role::NOT_ARRIVED) {
    machine.failure.report(Failure::CLUSTER_NOT_ARRIVED, role);
    return true;
  }
  if (role->cluster_release != ThreadBarrier::NOT_RELEASED) {
    double release = role->cluster_release;
    role->cluster_release = Role::NOT_ARRIVED;
    role->spend(WarpState::WAIT_CLUSTER, release);
    return true;
  }
  role->cta->cluster->barrier.waiting.push(role);
  return role->block(WarpState::WAIT_CLUSTER, Wait::CLUSTER_BARRIER);
}

// Until this role's stores are delivered, and a few cycles; a barrier behind it waits until copies see them
// all.
void fence_proxy_async(Role* role, const Op&) {
  const WarpSchedulerConstants& spec = *input.warp_scheduler;
  role->spend(WarpState::LSU, role->delivered_at);
  counters.smem.wavefronts += role->num_warps;
  double in_at = larger(role->t, role->stored_at + input.smem->store_latency_cycles);
  role->spend(WarpState::ISSUE, role->t + spec.fence_cycles);
  double seen_at = in_at + spec.fence_cycles + spec.proxy_fence_visible_cycles;
  role->all_fenced_at = seen_at + (role->num_warps - 1) * spec.fence_warp_cycles;
}

// Until what this role has stored elsewhere is there, and then a round to L2.
bool fence_acq_rel(Role* role, const Op&) {
  const WarpSchedulerConstants& spec = *input.warp_scheduler;
  AsyncGroup* previous = role->last_store;
  if (previous != nullptr && previous->num_pending) {
    role->must_retry = true;
    return role->wait_group(previous, WarpState::LSU, Wait::ITS_STORES);
  }
  double since = larger(role->t, role->arrives_far_at);
  if (previous != nullptr) since = larger(since, previous->ready_at + l2.hit_latency_cycles());
  double more = larger(0.0, role->num_warps - spec.num_schedulers);  // warps of which others stand before
  role->spend(WarpState::LSU, since + (spec.gpu_fence_cycles + more * spec.gpu_fence_warp_cycles));
  return true;
}

}  // namespace gpusim
