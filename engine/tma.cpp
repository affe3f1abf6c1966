// The tensor memory accelerator of one SM.
#include "tma.h"

#include "machine.h"

namespace gpusim {

Tma::Tma() {
  leave_at_.fill(uint32_t(larger(1.0, input.tma->max_queued_boxes)), 0.0);
  for (const TensorRecord& tensor : input.tensors) {
    map_at_.push(tensor.has_map ? INFINITE : -1.0);
    num_unknown_ += tensor.has_map != 0;
  }
}

void Tma::prefetch(uint32_t tensor, double at_cycle) {
  if (map_at_[tensor] == INFINITE) fetch(tensor, at_cycle, input.tma->tensormap_prefetch_cycles);
}

double Tma::map_at(uint32_t tensor, double at_cycle) {
  if (!num_unknown_ && at_cycle >= waits_until_) return at_cycle;
  double found = map_at_[tensor] < 0.0 ? 0.0 : map_at_[tensor];
  if (found == INFINITE) found = fetch(tensor, at_cycle, input.tma->tensormap_miss_cycles);
  if (found <= at_cycle && map_at_[tensor] >= 0.0) {
    map_at_[tensor] = -1.0;
    num_unknown_--;
  }
  waits_until_ = larger(waits_until_, found);
  return larger(at_cycle, waits_until_);
}

void Tma::drop(uint32_t tensor, double farther_cycles) {
  farther_cycles_ = farther_cycles;
  num_unknown_ += map_at_[tensor] < 0.0;
  map_at_[tensor] = INFINITE;
  tensor_maps.at(tensor, 0.0);  // L2 has the map: no copy waits for memory
}

double Tma::fetch(uint32_t tensor, double at_cycle, double cycles) {
  double in_l2_at = tensor_maps.at(tensor, at_cycle) + input.tma->map_memory_cycles;
  map_at_[tensor] = larger(at_cycle, in_l2_at) + larger(0.0, cycles + farther_cycles_);
  return map_at_[tensor];
}

double Tma::take(double walk_cycles, int64_t num_boxes, double at_cycle) {
  double end = engine.reserve(walk_cycles, at_cycle);
  double begin = end - walk_cycles;
  for (int64_t box = 1; box <= num_boxes; box++) {
    leave_at_[first_] = num_boxes == 1 ? end : begin + walk_cycles * double(box) / double(num_boxes);
    first_ = first_ + 1 == leave_at_.size() ? 0 : first_ + 1;
  }
  return begin;
}

}  // namespace gpusim
