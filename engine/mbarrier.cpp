// mbarriers: phases, arrivals, transaction bytes.
#include "mbarrier.h"

#include "machine.h"

namespace gpusim {

// Behind those that are there at `at_cycle`, before those that roles ahead of the clock have issued for
// later.
void MbarrierUnit::arrive(double at_cycle, double* goes_on, double* counts_at) {
  const MbarrierConstants& spec = *input.mbarrier;
  double lag = larger(0.0, spec.max_queued_arrivals * (spec.arrive_interval_cycles - spec.arrive_cycles));
  double interval = spec.arrive_interval_cycles;
  double begin = larger(at_cycle, forgotten_until_);
  uint32_t place = 0;
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
    double first = since + spec.lone_try_wait_cycles;
    double retry = spec.lone_retry_cycles;
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

}  // namespace gpusim
