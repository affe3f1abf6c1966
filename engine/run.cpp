// One launch while it runs: dispatch of CTAs, the end of roles and CTAs, the end of the kernel.
#include "run.h"

#include "machine.h"

namespace gpusim {

// ------------------------------------------------------------------------------------------ the machine

MachineRoom machine_room;

void Sm::init(uint32_t idx) {
  const SmRecord& record = input.sms[idx];
  l1.init();
  smem.init();
  mio_queue.sm = idx;
  scheduler.init(record.pace);
  tensor_arbiter.init(WarpState::TENSOR, Wait::TENSOR_CORES);
  fma_arbiter.init(WarpState::MATH_PIPE, Wait::FMA_PIPE);
  instruction_cache.init(record.loop_bytes_per_cycle);
  tma.init();
  dsmem.init();
}

void build_machine() {
  new (&machine_room.machine) Machine();
  uint32_t num_sms = input.sms.size;
  hbm.init(&agenda, num_sms);
  l2.init();
  crossbar.init(&agenda);
  machine.dispatcher.init();
  for (uint32_t idx = 0; idx < num_sms; idx++) {
    Sm* sm = machine.sm_pool.make();
    machine.sms.push(sm);
    sm->init(idx);
  }
  machine.run.init();
}

// ------------------------------------------------------------------------------------------ the run

void Run::init() {
  role_totals.fill(input.roles.size * NUM_STATES, 0.0);
  epilogue_cycles.fill(input.roles.size, -1.0);
  begin();
}

bool Run::is_ideal(Ideal ideal) {
  has_[uint32_t(ideal)] = true;
  const double* ideals = &input.ideals->bank_conflicts;
  return ideals[uint32_t(ideal)] != 0.0;
}

void Run::begin() {
  uint32_t size = uint32_t(input.launch->cluster_size);
  uint32_t num_ctas = uint32_t(input.launch->num_ctas);
  cold_start_cycles_ = input.dispatcher->cold_start_cycles;
  machine.dispatcher.next_free_at = input.dispatcher->launch_cycles;
  for (uint32_t slot = 0; slot + size <= input.slots.size && next_cta_ < num_ctas; slot += size)
    start_cluster(input.slots.items + slot, 0.0, false);
  cold_start_cycles_ = 0.0;  // later CTAs find what the first ones have fetched
}

RunState Run::run_slice(uint32_t max_events) {
  double most = input.launch->max_events;
  bool keeps_trace = input.launch->keeps_trace != 0.0;
  double left = most > 0.0 ? most - double(agenda.num_events()) : max_events;
  if (left < max_events) max_events = uint32_t(left);
  for (uint32_t event = 0; event < max_events && !is_over_; event++) {
    if (!agenda.advance()) {
      machine.failure.report(Failure::DEADLOCK, nullptr, -1, -1, 0.0, 0.0, 0.0);
      list_blocked();
    }
    uint64_t bits;
    __builtin_memcpy(&bits, &agenda.cycle, sizeof(bits));
    trace_hash_ = (trace_hash_ ^ bits) * 1099511628211ull;
    if (keeps_trace) machine.recorder.trace.push(TraceRecord{agenda.cycle});
    if (machine.failure.is_any()) return RunState::FAILED;
  }
  if (is_over_) return RunState::FINISHED;
  if (most > 0.0 && double(agenda.num_events()) >= most) {
    machine.failure.report(Failure::EVENT_LIMIT, nullptr, -1, -1, most, num_exits, 0.0);
    return RunState::FAILED;
  }
  return RunState::MORE;
}

// ------------------------------------------------------------------------------------------ CTAs begin

Cta* Run::make_cta() {
  if (!free_ctas_.empty()) {
    Cta* cta = free_ctas_.back();
    free_ctas_.pop();
    return cta;
  }
  Cta* cta = ctas_.make();
  uint32_t num_roles = input.roles.size;
  uint32_t num_mbarriers = input.mbarriers.size;
  uint32_t num_stages = uint32_t(input.launch->num_stages);
  uint32_t num_barriers = input.named_barriers.size + 1;
  cta->roles = static_cast<Role*>(memory_allocate(num_roles * sizeof(Role)));
  cta->mbarriers = static_cast<Mbarrier*>(memory_allocate(num_mbarriers * sizeof(Mbarrier)));
  cta->stages = static_cast<Stage*>(memory_allocate(num_stages * sizeof(Stage)));
  cta->barriers = static_cast<ThreadBarrier*>(memory_allocate(num_barriers * sizeof(ThreadBarrier)));
  for (uint32_t idx = 0; idx < num_roles; idx++) new (&cta->roles[idx]) Role();
  for (uint32_t idx = 0; idx < num_mbarriers; idx++) new (&cta->mbarriers[idx]) Mbarrier();
  for (uint32_t idx = 0; idx < num_barriers; idx++) new (&cta->barriers[idx]) ThreadBarrier();
  return cta;
}

// Starts a cluster, ready at `at_cycle`; `has_waited`: the round has come to its SMs.
void Run::start_cluster(const int32_t* sms, double at_cycle, bool has_waited) {
  const LaunchConstants& launch = *input.launch;
  const DispatcherConstants& spec = *input.dispatcher;
  uint32_t size = uint32_t(launch.cluster_size);
  double dispatched = machine.dispatcher.dispatch(at_cycle, size);
  if (!has_waited) dispatched += Dispatcher::wait_cycles(next_cta_);
  double start = dispatched + spec.cta_start_cycles + cold_start_cycles_;
  start += size > 1 ? spec.cluster_start_cycles : 0.0;
  Cluster* cluster = clusters_.make();
  cluster->barrier.reset(ThreadBarrier::CLUSTER, int32_t(launch.num_threads) * int32_t(size),
                         launch.cluster_barrier_cycles, 0.0);
  double base = input.warp_scheduler->barrier_base_cycles;
  double of_warp = input.warp_scheduler->barrier_warp_cycles;
  for (uint32_t rank = 0; rank < size; rank++) {
    Cta* cta = make_cta();
    cta->idx = int32_t(next_cta_);
    next_cta_++;
    cta->rank = int32_t(rank);
    cta->wave = cta->idx / int32_t(launch.num_at_once);
    cta->sm = uint32_t(sms[rank]);
    cta->cluster = cluster;
    cta->num_copies = 0;
    cta->free_registers = 0;
    cta->register_waiters.clear();
    cta->panels = input.cta_panels.items + uint64_t(cta->idx) * uint64_t(launch.num_panels);
    for (uint32_t idx = 0; idx < input.mbarriers.size; idx++)
      cta->mbarriers[idx].reset(int32_t(input.mbarriers[idx].num_arrivals));
    for (uint32_t idx = 0; idx < uint32_t(launch.num_stages); idx++) {
      new (&cta->stages[idx]) Stage();
      cta->stages[idx].cta = cta;
      cta->stages[idx].idx = int32_t(idx);
    }
    uint32_t num_named = input.named_barriers.size;
    for (uint32_t idx = 0; idx < num_named; idx++) {
      int32_t threads = int32_t(input.named_barriers[idx].num_threads);
      cta->barriers[idx].reset(int32_t(idx), threads, base, of_warp);
    }
    cta->barriers[num_named].reset(ThreadBarrier::SYNCTHREADS, int32_t(launch.num_threads), base, of_warp);
    cluster->ctas.push(cta);
    cta->older = newest_;
    cta->newer = nullptr;
    if (newest_ != nullptr)
      newest_->newer = cta;
    else
      oldest_ = cta;
    newest_ = cta;
    num_live_++;
    Sm& sm = sm_of(cta->sm);
    if (!sm.num_ctas) {
      sm.active_since = dispatched;
      crossbar.set_live(cta->sm, true);
    }
    sm.num_ctas++;
  }
  uint32_t num_roles = input.roles.size;
  for (Cta* cta : cluster->ctas) {
    for (uint32_t idx = 0; idx < num_roles; idx++) cta->roles[idx].reset(cta, idx, start, dispatched);
    cta->num_roles_running = num_roles;
  }
  cluster->num_running = size;
  for (Cta* cta : cluster->ctas)
    for (uint32_t idx = 0; idx < num_roles; idx++) cta->roles[idx].start();
}

// ---------------------------------------------------------------------- roles and CTAs end

void Run::role_ended(Role* role) {
  double* totals = &role_totals[role->idx * NUM_STATES];
  for (uint32_t state = 0; state < NUM_STATES; state++)
    if (role->totals[state] != 0.0) totals[state] += role->totals[state];
  Cta* cta = role->cta;
  cta->num_roles_running--;
  if (cta->num_roles_running) return;
  double ends = role->t;
  for (uint32_t idx = 0; idx < input.roles.size; idx++)
    if (cta->roles[idx].t > ends) ends = cta->roles[idx].t;
  double stored = input.dispatcher->store_exit_cycles;
  for (uint32_t idx = 0; idx < input.roles.size; idx++)
    if (cta->roles[idx].stored_out_at + stored > ends) ends = cta->roles[idx].stored_out_at + stored;
  agenda.later(larger(0.0, ends - agenda.cycle), cta, 0);
}

void Run::cta_exits(Cta* cta) {
  double now = agenda.cycle;
  for (uint32_t idx = 0; idx < input.mbarriers.size; idx++) {
    const Mbarrier& barrier = cta->mbarriers[idx];
    if (barrier.tx_bytes) {
      machine.failure.report_cta(Failure::EXIT_WITH_BYTES, cta->idx, int32_t(idx),
                                 double(barrier.announced_bytes), double(barrier.delivered_bytes));
      return;
    }
  }
  if (cta->older != nullptr)
    cta->older->newer = cta->newer;
  else
    oldest_ = cta->newer;
  if (cta->newer != nullptr)
    cta->newer->older = cta->older;
  else
    newest_ = cta->older;
  num_live_--;
  for (uint32_t idx = 0; idx < input.roles.size; idx++) cta->roles[idx].clear();
  num_exits++;
  exit_cycles_ += now;
  double retired = machine.dispatcher.retire(now);
  last_exit_ = larger(last_exit_, retired);
  // the kernel's end asks for stores once it has left, whenever they were, and for atomics that are on their
  // way
  if (has_stored || num_stores_pending_ || last_store_at_ > now)
    last_store_at_ = larger(last_store_at_, retired + input.dispatcher->store_end_cycles);
  uint32_t sm_idx = cta->sm;
  Cluster* cluster = cta->cluster;
  cluster->num_running--;
  if (!cluster->num_running) {
    for (Cta* member : cluster->ctas) {
      member->cluster = nullptr;
      if (!member->num_copies) give_back(member);
    }
    clusters_.release(cluster);
  }
  Sm& sm = sm_of(sm_idx);
  sm.num_ctas--;
  if (!sm.num_ctas) {
    sm.active_cycles += now - sm.active_since;
    crossbar.set_live(sm_idx, false);
  }
  if (next_cta_ < uint32_t(input.launch->num_ctas)) {
    Vector<int32_t> sms;
    if (machine.dispatcher.freed(sm_idx, sms)) {
      double free_at = retired + input.dispatcher->cta_exit_cycles;
      num_refills_++;
      double wait = Dispatcher::wait_cycles(num_refills_);
      if (wait == 0.0) {
        start_cluster(sms.data(), free_at, false);
      } else {
        Refill* refill = refills_.make();
        refill->sms.swap(sms);
        refill->at_cycle = free_at + wait;
        agenda.later(larger(0.0, free_at + wait - agenda.cycle), refill, 0);
      }
    }
  }
  finish_if_over();
}

void Refill::act(uint8_t) { machine.run.refill(sms, at_cycle, this); }

void Run::refill(const Vector<int32_t>& sms, double at_cycle, Refill* refill) {
  if (next_cta_ < uint32_t(input.launch->num_ctas)) start_cluster(sms.data(), at_cycle, true);
  refills_.release(refill);
  finish_if_over();
}

void Run::give_back(Cta* cta) {
  for (TileState* tile : cta->own_tiles) l2.forget(tile);
  cta->own_tiles.clear();
  free_ctas_.push(cta);
}

void Run::store_ended(double cycle) {
  num_stores_pending_--;
  double arrived = cycle + input.dispatcher->store_end_cycles;
  if (arrived > last_store_at_) last_store_at_ = arrived;
  if (!num_stores_pending_) finish_if_over();
}

void Run::finish_if_over() {
  if (num_live_ || next_cta_ < uint32_t(input.launch->num_ctas) || num_stores_pending_ || is_over_) return;
  double ends = larger(larger(agenda.cycle, last_exit_), last_store_at_);
  end_cycle_ = ends + input.dispatcher->drain_cycles;
  is_over_ = true;
}

// ------------------------------------------------------------------------------------------ what comes back

void Run::sum_up() {
  totals.end_cycle = is_over_ ? end_cycle_ : agenda.cycle;
  totals.last_exit_cycle = last_exit_;
  totals.exit_cycles = exit_cycles_;
  totals.num_exits = num_exits;
  totals.num_events = double(agenda.num_events());
  totals.trace_hash_low = double(uint32_t(trace_hash_));
  totals.trace_hash_high = double(uint32_t(trace_hash_ >> 32));
  totals.copy_cycles = copy_cycles;
  totals.num_copies = num_copies;
  totals.has_own_code = has_[uint32_t(Ideal::OWN_CODE)];
  totals.has_mad_wide = has_[uint32_t(Ideal::MAD_WIDE)];
  totals.has_bank_conflicts = has_[uint32_t(Ideal::BANK_CONFLICTS)];
  totals.has_prologue = has_[uint32_t(Ideal::PROLOGUE)];
  totals.has_mainloop = has_[uint32_t(Ideal::MAINLOOP)];
  totals.has_epilogue = has_[uint32_t(Ideal::EPILOGUE)];
  totals.link_busy_cycles = l2.link_busy_cycles();
  counters.hbm = hbm.counters;
  counters.l2 = l2.counters;
  counters.xbar = crossbar.counters;
}

void Run::list_blocked() {
  totals.num_events = double(agenda.num_events());
  for (Cta* cta = oldest_; cta != nullptr; cta = cta->newer) {
    for (uint32_t idx = 0; idx < input.roles.size; idx++) {
      const Role& role = cta->roles[idx];
      if (role.is_done) continue;
      BlockedRoleRecord row = {};
      row.cta = cta->idx;
      row.role = idx;
      row.op = role.op_idx();
      row.since_cycle = role.blocked_since();
      row.wait = int64_t(role.waits_for());
      row.barrier = -1;
      const Op& op = *role.op();
      switch (role.waits_for()) {
        case Wait::MBARRIER: {
          const Mbarrier& barrier = cta->mbarriers[op.barrier];
          row.barrier = op.barrier;
          row.parity = op.extra;
          row.pending = barrier.pending;
          row.num_arrivals = barrier.num_arrivals;
          row.tx_bytes = barrier.tx_bytes;
          row.announced_bytes = barrier.announced_bytes;
          row.delivered_bytes = barrier.delivered_bytes;
          break;
        }
        case Wait::NAMED_BARRIER: row.barrier = op.barrier; break;
        case Wait::CP_ASYNC_GROUP:
        case Wait::BULK_GROUP: row.number = op.extra; break;
        case Wait::REGISTERS:
          row.number = op.extra;
          for (const RegisterWaiter& waiter : cta->register_waiters)
            if (waiter.role == &role) row.pending = waiter.num_registers;
          break;
        default: break;
      }
      machine.recorder.blocked_roles.push(row);
    }
  }
}

}  // namespace gpusim
