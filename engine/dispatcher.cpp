// The CTA work distributor: how fast and where CTAs start, and when their exits are noted.
#include "dispatcher.h"

#include "machine.h"

namespace gpusim {

void Dispatcher::init() {
  for (const SmRecord& sm : input.sms) num_free_.push(int32_t(sm.num_free_ctas));
}

double Dispatcher::dispatch(double at_cycle, uint32_t num_ctas) {
  double start = at_cycle > next_free_at ? at_cycle : next_free_at;
  next_free_at = start + num_ctas * input.dispatcher->dispatch_cycles_per_cta;
  return next_free_at;
}

double Dispatcher::retire(double at_cycle) {
  double start = at_cycle > retired_at_ ? at_cycle : retired_at_;
  retired_at_ = start + input.dispatcher->retire_cycles;
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

}  // namespace gpusim
