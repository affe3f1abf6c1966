// CTAs and clusters while they run: barriers, stages of shared memory, groups of copies, the register pool.
#include "cta.h"

#include "machine.h"
#include "ops.h"

namespace gpusim {

// ---------------------------------------------------------------------- groups and tokens

AsyncGroup* AsyncGroup::make(AsyncGroup* ahead) {
  AsyncGroup* group = machine.flights.groups.make();
  if (ahead != nullptr) {
    if (ahead->num_pending) {
      group->num_pending = 1;
      ahead->on_complete.push(GroupWaiter{GroupWaiter::NEXT_GROUP, nullptr, group->hold(), 0, nullptr, 0.0});
    } else {
      group->ready_at = ahead->ready_at;
    }
  }
  return group;
}

void AsyncGroup::drop() {
  num_refs--;
  if (!num_refs) machine.flights.groups.release(this);
}

void AsyncGroup::finish(double cycle) {
  num_pending--;
  if (cycle > ready_at) ready_at = cycle;
  if (num_pending || on_complete.empty()) return;
  Vector<GroupWaiter> waiting;
  waiting.swap(on_complete);
  double at = ready_at;
  for (const GroupWaiter& waiter : waiting) {
    switch (waiter.kind) {
      case GroupWaiter::WAKE: waiter.role->resume(at); break;
      case GroupWaiter::NEXT_GROUP:
        waiter.group->finish(at);
        waiter.group->drop();
        break;
      case GroupWaiter::ARRIVE: arrive_by_copies(waiter.role, waiter.mbarrier, at, nullptr); break;
      case GroupWaiter::TOKEN:
        waiter.token->become_ready(at + waiter.latency_cycles, 0.0);
        waiter.token->drop();
        break;
    }
  }
}

Token* Token::make(bool is_long) {
  Token* token = machine.flights.tokens.make();
  token->is_long = is_long;
  return token;
}

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
  if (role != nullptr) role->token_ready(this, cycle);
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

// ---------------------------------------------------------------------- barriers of threads

void ThreadBarrier::reset(int32_t its_number, int32_t threads, double latency, double warp_cycles) {
  number = its_number;
  num_threads = threads;
  latency_cycles = latency;
  thread_cycles = warp_cycles / 2 / 32;
  num_arrived = 0;
  num_going = 0;
  latest = 0.0;
  num_latest_threads = 0;
  waiting.clear();
}

bool ThreadBarrier::arrive(int32_t threads, double at_cycle, bool waits, const Role* who, double* release) {
  num_arrived += threads;
  if (waits) num_going += threads;
  if (at_cycle > latest) {
    latest = at_cycle;
    num_latest_threads = threads;
  } else if (at_cycle == latest) {
    num_latest_threads += threads;
  }
  if (num_arrived < num_threads) return false;
  if (num_arrived > num_threads)
    machine.failure.report(Failure::BARRIER_THREADS, who, number, -1, num_arrived, num_threads, 0.0);
  *release = latest + latency_cycles + thread_cycles * (num_latest_threads + num_going);
  num_arrived = 0;
  num_going = 0;
  latest = 0.0;
  num_latest_threads = 0;
  // who is resumed goes on in an event of its own, so that nobody waits anew meanwhile
  for (Role* role : waiting) {
    if (number == CLUSTER) role->cluster_release = Role::NOT_ARRIVED;
    role->resume(*release);
  }
  waiting.clear();
  return true;
}

// ------------------------------------------------------------------------------------------ CTAs

void Cta::act(uint8_t) { machine.run.cta_exits(this); }

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
