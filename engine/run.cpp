// One launch while it runs: dispatch of CTAs, the end of roles and CTAs, the end of the kernel.
#include "run.h"

#include "machine.h"

namespace gpusim {

// ------------------------------------------------------------------------------------------ the machine

MachineRoom machine_room;

void build_machine() {
  new (&machine_room.machine) Machine();
  machine.sms.reserve(input.sms.size);
  for (const SmRecord& record : input.sms) machine.sms.emplace(record);
  machine.run.begin();
}

// ------------------------------------------------------------------------------------------ dispatch

Dispatcher::Dispatcher() {
  for (const SmRecord& sm : input.sms) num_free_.push(int32_t(sm.num_free_ctas));
}

double Dispatcher::dispatch(double at_cycle, uint32_t num_ctas) {
  next_free_at_ = larger(at_cycle, next_free_at_) + num_ctas * input.dispatcher->dispatch_cycles_per_cta;
  return next_free_at_;
}

double Dispatcher::retire(double at_cycle) {
  retired_at_ = larger(at_cycle, retired_at_) + input.dispatcher->retire_cycles;
  return retired_at_;
}

double Dispatcher::wait_cycles(uint32_t turn) {
  return input.dispatcher->round_cycles * fraction_of(turn * GOLDEN);
}

bool Dispatcher::freed(uint32_t sm, Vector<int32_t>& found) {
  uint32_t size = uint32_t(input.launch->cluster_size);
  found.clear();
  if (size == 1) {
    found.push(int32_t(sm));
    return true;
  }
  num_free_[sm]++;
  int64_t place = input.sms[sm].cluster_place;
  for (uint32_t other = 0; other < input.sms.size && found.size() < size; other++)
    if (input.sms[other].cluster_place == place && num_free_[other] > 0) found.push(int32_t(other));
  if (found.size() < size) return false;
  for (int32_t taken : found) num_free_[uint32_t(taken)]--;
  return true;
}

// ------------------------------------------------------------------------------------------ failures

void FailureLog::report(Failure kind, const Role* who, int32_t barrier, int32_t stage, double first,
                        double second, double third) {
  if (is_any()) return;
  double cta = who == nullptr ? -1.0 : who->cta->idx;
  double role = who == nullptr ? -1.0 : who->idx;
  double op = who == nullptr ? -1.0 : who->op_idx();
  record = FailureRecord{double(kind),    agenda.cycle,  cta,   role,   op,
                         double(barrier), double(stage), first, second, third};
}

// ------------------------------------------------------------------------------------------ the run

void Run::begin() {
  role_totals.fill(input.roles.size * NUM_STATES, 0.0);
  epilogue_cycles.fill(input.roles.size, -1.0);
  uint32_t size = uint32_t(input.launch->cluster_size);
  // later CTAs find what the first ones have fetched
  for (uint32_t slot = 0; slot + size <= input.slots.size && !is_last_dispatched(); slot += size)
    start_cluster(input.slots.items + slot, 0.0, false, input.dispatcher->cold_start_cycles);
}

bool Run::is_ideal(Ideal ideal) {
  (&totals.has_bank_conflicts)[uint32_t(ideal)] = 1.0;
  return (&input.ideals->bank_conflicts)[uint32_t(ideal)] != 0.0;
}

RunState Run::run_slice(uint32_t max_events) {
  double most = input.launch->max_events;
  bool keeps_trace = input.launch->keeps_trace != 0.0;
  double left = most > 0.0 ? most - double(agenda.num_events()) : max_events;
  if (left < max_events) max_events = uint32_t(left);
  for (uint32_t event = 0; event < max_events && !is_over_; event++) {
    if (!agenda.advance()) {
      machine.failure.report(Failure::DEADLOCK, nullptr);
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
    machine.failure.report(Failure::EVENT_LIMIT, nullptr, -1, -1, most, totals.num_exits);
    return RunState::FAILED;
  }
  return RunState::MORE;
}

// ------------------------------------------------------------------------------------------ CTAs begin

// Starts a cluster, ready at `at_cycle`; `has_waited`: the round has come to its SMs.
void Run::start_cluster(const int32_t* sms, double at_cycle, bool has_waited, double cold_cycles) {
  const DispatcherConstants& spec = *input.dispatcher;
  uint32_t size = uint32_t(input.launch->cluster_size);
  double dispatched = machine.dispatcher.dispatch(at_cycle, size);
  if (!has_waited) dispatched += Dispatcher::wait_cycles(next_cta_);
  double start = dispatched + spec.cta_start_cycles + cold_cycles;
  start += size > 1 ? spec.cluster_start_cycles : 0.0;
  Cluster* cluster = clusters_.make();
  for (uint32_t rank = 0; rank < size; rank++) {
    Cta* cta = ctas_.make(next_cta_++, rank, uint32_t(sms[rank]), cluster);
    cta->dispatched_at = dispatched;
    cluster->ctas.push(cta);
    live_.append(cta);
    Sm& sm = sm_of(cta->sm);
    if (!sm.num_ctas) {
      sm.active_since = dispatched;
      crossbar.set_live(cta->sm, true);
    }
    sm.num_ctas++;
  }
  cluster->num_running = size;
  for (Cta* cta : cluster->ctas)
    for (Role& role : cta->roles) role.start(dispatched, start);
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
  for (const Role& each : cta->roles)
    ends = larger(ends, larger(each.t, each.stored_out_at + input.dispatcher->store_exit_cycles));
  agenda.at(ends, cta, 0);
}

void Run::cta_exits(Cta* cta) {
  double now = agenda.cycle;
  for (const Mbarrier& barrier : cta->mbarriers) {
    if (barrier.tx_bytes) {
      machine.failure.report(Failure::EXIT_WITH_BYTES, nullptr, barrier.idx, -1,
                             double(barrier.announced_bytes), double(barrier.delivered_bytes));
      machine.failure.record.cta = cta->idx;
      return;
    }
  }
  live_.remove(cta);
  totals.num_exits += 1.0;
  totals.exit_cycles += now;
  double retired = machine.dispatcher.retire(now);
  totals.last_exit_cycle = larger(totals.last_exit_cycle, retired);
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
  if (!is_last_dispatched()) {
    Vector<int32_t> sms;
    if (machine.dispatcher.freed(sm_idx, sms)) {
      double free_at = retired + input.dispatcher->cta_exit_cycles;
      num_refills_++;
      double wait = Dispatcher::wait_cycles(num_refills_);
      if (wait == 0.0) {
        start_cluster(sms.begin(), free_at, false);
      } else {
        Refill* refill = refills_.make();
        refill->sms.swap(sms);
        refill->at_cycle = free_at + wait;
        agenda.at(free_at + wait, refill, 0);
      }
    }
  }
  finish_if_over();
}

void Refill::act(uint8_t) { machine.run.refill(this); }

void Run::refill(Refill* refill) {
  if (!is_last_dispatched()) start_cluster(refill->sms.begin(), refill->at_cycle, true);
  refills_.release(refill);
  finish_if_over();
}

void Run::give_back(Cta* cta) {
  for (TileState* tile : cta->own_tiles) l2.forget(tile);
  ctas_.release(cta);
}

void Run::store_ended(double cycle) {
  num_stores_pending_--;
  last_store_at_ = larger(last_store_at_, cycle + input.dispatcher->store_end_cycles);
  if (!num_stores_pending_) finish_if_over();
}

void Run::finish_if_over() {
  if (live_.oldest() || !is_last_dispatched() || num_stores_pending_ || is_over_) return;
  double ends = larger(larger(agenda.cycle, totals.last_exit_cycle), last_store_at_);
  totals.end_cycle = ends + input.dispatcher->drain_cycles;
  is_over_ = true;
}

// ------------------------------------------------------------------------------------------ what comes back

void Run::sum_up() {
  if (!is_over_) totals.end_cycle = agenda.cycle;
  totals.num_events = double(agenda.num_events());
  totals.trace_hash_low = double(uint32_t(trace_hash_));
  totals.trace_hash_high = double(uint32_t(trace_hash_ >> 32));
  totals.link_busy_cycles = l2.link_busy_cycles();
}

void Run::list_blocked() {
  for (Cta* cta = live_.oldest(); cta != nullptr; cta = cta->newer)
    for (const Role& role : cta->roles)
      if (!role.is_done) machine.recorder.blocked_roles.push(role.blocked());
}

}  // namespace gpusim
