// mbarriers: phases, arrivals, transaction bytes.
#include "mbarrier.h"

#include "machine.h"
#include "role.h"

namespace gpusim {

void MbarrierUnit::arrive(double at_cycle, double* goes_on, double* counts_at) {
  const MbarrierConstants& spec = *input.mbarrier;
  double lag = larger(0.0, spec.max_queued_arrivals * (spec.arrive_interval_cycles - spec.arrive_cycles));
  double end;
  if (!num_ends_ || at_cycle >= ends_[num_ends_ - 1]) {
    end = at_cycle + spec.arrive_interval_cycles;
    ends_[num_ends_++] = end;
  } else {
    end = take_turn(at_cycle);
  }
  if (num_ends_ > MOST_ENDS) {
    forgotten_until_ = ends_[0];
    for (uint32_t place = 1; place < num_ends_; place++) ends_[place - 1] = ends_[place];
    num_ends_--;
  }
  double issued = at_cycle + spec.arrive_cycles;
  *goes_on = larger(issued, end - lag);
  *counts_at = larger(issued, end);
}

// Behind those that are there at `at_cycle`, before those that roles ahead of the clock have issued for
// later.
double MbarrierUnit::take_turn(double at_cycle) {
  double interval = input.mbarrier->arrive_interval_cycles;
  double begin = larger(at_cycle, forgotten_until_);
  uint32_t place = 0;
  while (place < num_ends_) {
    double end = ends_[place];
    if (begin + interval <= end - interval) break;
    place++;
    if (end > begin) begin = end;
  }
  for (uint32_t other = num_ends_; other > place; other--) ends_[other] = ends_[other - 1];
  ends_[place] = begin + interval;
  num_ends_++;
  return begin + interval;
}

void Mbarrier::reset(int32_t arrivals) {
  num_arrivals = arrivals;
  pending = arrivals;
  tx_bytes = 0;
  announced_bytes = 0;
  delivered_bytes = 0;
  parity = 0;
  num_phases = 0;
  stamp = 0.0;
  completed_at = 0.0;
  waiters.clear();
}

bool Mbarrier::arrive(int32_t count, double at_cycle) {
  pending -= count;
  if (pending < 0) return false;
  if (at_cycle > stamp) stamp = at_cycle;
  if (!pending && !tx_bytes) complete();
  return true;
}

void Mbarrier::complete_tx(int64_t num_bytes, double at_cycle) {
  tx_bytes -= num_bytes;
  delivered_bytes += num_bytes;
  if (at_cycle > stamp) stamp = at_cycle;
  if (!pending && !tx_bytes) complete();
}

void Mbarrier::complete() {
  parity ^= 1;
  num_phases++;
  completed_at = stamp;
  pending = num_arrivals;
  announced_bytes = 0;
  delivered_bytes = 0;
  // who is woken goes on in an event of its own, so that nobody waits anew meanwhile
  for (const Waiter& waiter : waiters) waiter.role->wake_after_phase(completed_at, waiter.by_lane);
  waiters.clear();
}

}  // namespace gpusim
