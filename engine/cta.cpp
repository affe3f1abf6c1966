// CTAs and clusters while they run: barriers, stages of shared memory, groups of copies, the register pool.
#include "cta.h"

#include "machine.h"
#include "ops.h"

namespace gpusim {

// ---------------------------------------------------------------------- groups and tokens

AsyncGroup* AsyncGroup::make(AsyncGroup* ahead) {
  AsyncGroup* group = machine.flights.groups.make();
  if (ahead == nullptr) return group;
  if (ahead->num_pending)
    ahead->on_complete.push(group->add());
  else
    group->ready_at = ahead->ready_at;
  return group;
}

void AsyncGroup::drop() {
  num_refs--;
  if (!num_refs) machine.flights.groups.release(this);
}

void AsyncGroup::complete(double cycle) {
  num_pending--;
  ready_at = larger(ready_at, cycle);
  if (!num_pending && !on_complete.empty()) {
    Vector<Completion*> waiting;
    waiting.swap(on_complete);
    for (Completion* waiter : waiting) waiter->complete(ready_at);
  }
  drop();
}

Token* Token::make(bool is_long, double ready_at) { return machine.flights.tokens.make(is_long, ready_at); }

void Token::drop() {
  num_refs--;
  if (!num_refs) machine.flights.tokens.release(this);
}

void Token::become_ready(double cycle, double late) {
  is_ready = true;
  ready_at = cycle;
  late_cycles = late;
  Role* role = waiting;
  waiting = nullptr;
  if (role == nullptr) return;
  role->fall_behind(this);
  role->resume(cycle);
}

// ------------------------------------------------------------------------------------------ stages

void Stage::begin_write(double at_cycle, const Role* who) {
  if (read_until > at_cycle + 1e-6)
    machine.failure.report(Failure::REFILLED_WHILE_READ, who, -1, idx, at_cycle, read_until, cta->idx);
  num_writes_pending++;
  num_fills++;
}

void Stage::end_write(double at_cycle) {
  num_writes_pending--;
  if (at_cycle > full_at) full_at = at_cycle;
}

void Stage::read(double at_cycle, double until, const Role* who) {
  if (!num_fills)
    machine.failure.report(Failure::READ_NEVER_WRITTEN, who, -1, idx, at_cycle, 0.0, cta->idx);
  else if (num_writes_pending || full_at > at_cycle + 1e-6)
    machine.failure.report(Failure::READ_BEFORE_FULL, who, -1, idx, at_cycle, full_at, cta->idx);
  if (until > read_until) read_until = until;
}

void Stage::begin_read(double at_cycle, const Role* who) {
  read(at_cycle, INFINITE, who);
  num_reads_pending++;
}

void Stage::end_read(double at_cycle) {
  num_reads_pending--;
  if (at_cycle > last_read_at) last_read_at = at_cycle;
  if (!num_reads_pending) read_until = last_read_at;
}

// ------------------------------------------------------------------------------------------ mbarriers

// Behind those that are there at `at_cycle`, before those that roles ahead of the clock issued for later.
void MbarrierUnit::arrive(double at_cycle, double* goes_on, double* counts_at) {
  const MbarrierConstants& spec = *input.mbarrier;
  double lag = larger(0.0, spec.max_queued_arrivals * (spec.arrive_interval_cycles - spec.arrive_cycles));
  double interval = spec.arrive_interval_cycles;
  double begin = larger(at_cycle, forgotten_until_);
  uint32_t place = !ends_.empty() && ends_.back() <= begin ? ends_.size() : 0;
  while (place < ends_.size() && begin + interval > ends_[place] - interval)
    begin = larger(begin, ends_[place++]);
  double end = begin + interval;
  ends_.insert(place, end);
  if (ends_.size() > MOST_ENDS) forgotten_until_ = ends_.pop();
  double issued = at_cycle + spec.arrive_cycles;
  *goes_on = larger(issued, end - lag);
  *counts_at = larger(issued, end);
}

void Mbarrier::arrive(int32_t count, double at_cycle, const Role* who) {
  pending -= count;
  if (pending < 0)
    machine.failure.report(Failure::TOO_MANY_ARRIVALS, who, idx, -1, num_arrivals - pending, num_arrivals,
                           cta->idx);
  else
    complete_if_over(at_cycle);
}

void Mbarrier::complete_tx(int64_t num_bytes, double at_cycle) {
  tx_bytes -= num_bytes;
  delivered_bytes += num_bytes;
  complete_if_over(at_cycle);
}

double Mbarrier::goes_on_at(double since, bool by_lane) const {
  const MbarrierConstants& spec = *input.mbarrier;
  if (by_lane) {
    double first = since + spec.one_lane_try_wait_cycles;
    double retry = spec.one_lane_retry_cycles;
    if (completed_at <= first || retry == 0.0) return larger(first, completed_at);
    return first + __builtin_ceil((completed_at - first) / retry) * retry;
  }
  double asleep_at = since + spec.try_wait_cycles;
  return completed_at <= since ? asleep_at : larger(completed_at, asleep_at) + spec.wake_cycles;
}

void Mbarrier::complete_if_over(double at_cycle) {
  stamp = larger(stamp, at_cycle);
  if (pending || tx_bytes) return;
  if (input.sms[cta->sm].is_recorded)
    machine.recorder.phase_flips.push(PhaseFlipRecord{cta->idx, cta->sm, idx, stamp, parity});
  parity ^= 1;
  completed_at = stamp;
  pending = num_arrivals;
  announced_bytes = 0;
  delivered_bytes = 0;
  // who is woken goes on in an event of its own, so that nobody waits anew meanwhile
  for (const Waiter& waiter : waiters)
    agenda.at(goes_on_at(waiter.role->t, waiter.by_lane), waiter.role, Role::WOKEN);
  waiters.clear();
}

// ---------------------------------------------------------------------- barriers of threads

double ThreadBarrier::arrive(int32_t threads, double at_cycle, bool waits, const Role* who) {
  num_arrived += threads;
  if (waits) num_going += threads;
  if (at_cycle > latest) {
    latest = at_cycle;
    num_latest_threads = threads;
  } else if (at_cycle == latest) {
    num_latest_threads += threads;
  }
  if (num_arrived < num_threads) return NOT_RELEASED;
  if (num_arrived > num_threads)
    machine.failure.report(Failure::BARRIER_THREADS, who, number, -1, num_arrived, num_threads);
  double release = latest + latency_cycles + thread_cycles * (num_latest_threads + num_going);
  num_arrived = 0;
  num_going = 0;
  latest = 0.0;
  num_latest_threads = 0;
  // who is resumed goes on in an event of its own, so that nobody waits anew meanwhile
  for (Role* role : waiting) {
    if (number == CLUSTER) role->cluster_release = Role::NOT_ARRIVED;
    role->resume(release);
  }
  waiting.clear();
  return release;
}

// ------------------------------------------------------------------------------------------ CTAs

Cta::Cta(uint32_t its_idx, uint32_t its_rank, uint32_t its_sm, Cluster* its_cluster)
    : idx(int32_t(its_idx)),
      rank(int32_t(its_rank)),
      wave(idx / int32_t(input.launch->num_at_once)),
      sm(its_sm),
      cluster(its_cluster),
      panels(input.cta_panels.items + uint64_t(idx) * uint64_t(input.launch->num_panels)) {
  const LaunchConstants& launch = *input.launch;
  roles.reserve(input.roles.size);
  for (uint32_t role = 0; role < input.roles.size; role++) roles.emplace(this, role);
  mbarriers.reserve(input.mbarriers.size);
  for (const MbarrierRecord& record : input.mbarriers)
    mbarriers.emplace(this, int32_t(mbarriers.size()), int32_t(record.num_arrivals));
  stages.reserve(uint32_t(launch.num_stages));
  for (int32_t stage = 0; stage < int32_t(launch.num_stages); stage++) stages.emplace(this, stage);
  barriers.reserve(input.named_barriers.size + 1);
  double base = input.warp_scheduler->barrier_base_cycles;
  double of_warp = input.warp_scheduler->barrier_warp_cycles;
  for (const NamedBarrierRecord& record : input.named_barriers)
    barriers.emplace(int32_t(barriers.size()), double(record.num_threads), base, of_warp);
  barriers.emplace(int32_t(ThreadBarrier::SYNCTHREADS), launch.num_threads, base, of_warp);
}

void Cta::act(uint8_t) { machine.run.cta_exits(this); }

void Cta::multiplies(double at_cycle) {
  if (has_math) return;
  has_math = true;
  machine.run.totals.fill_cycles += at_cycle - dispatched_at;
}

void Cta::copied(const Op* op, double start_cycle, double end_cycle, double num_bytes,
                 int32_t barrier) const {
  machine.run.totals.copy_cycles += end_cycle - start_cycle;
  machine.run.totals.num_copies += 1.0;
  if (input.sms[sm].is_recorded)
    machine.recorder.copy_spans.push(
        CopySpanRecord{idx, sm, op->stage, op->extra, start_cycle, end_cycle, num_bytes, barrier});
}

void Cta::copy_ended() {
  num_copies--;
  if (!num_copies && cluster == nullptr) machine.run.give_back(this);
}

void Cta::hand_out_registers(double at_cycle) {
  while (!register_waiters.empty() && free_registers >= register_waiters[0].num_registers) {
    RegisterWaiter waiter = register_waiters[0];
    register_waiters.erase(0);
    free_registers -= waiter.num_registers;
    waiter.role->resume(at_cycle);
  }
}

}  // namespace gpusim
