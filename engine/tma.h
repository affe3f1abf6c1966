// The tensor memory accelerator of one SM.
#pragma once
#include "containers.h"
#include "input.h"
#include "timing.h"

namespace gpusim {

// The engine that walks boxes.
// Models:
// * time a box, a row and a byte; a queue of some boxes, for a place in which the issuing thread waits;
// * latency against a load's; the issuing thread's cost;
// * a store's source is free and the store complete at once;
// * the fetch of a tensor map at its first use on the SM, or at its prefetch;
// * L2 has a map from when memory has sent it to the first SM that asked;
// * a map that a CTA has made lies on one partition of L2, near to the SM or far from it.
// Ignores:
// * a map's sectors, its eviction; the partition of the host's maps; the limit of some hundred maps an SM;
// * that maps which CTAs of one SM have made for a tensor are different ones;
// * writes into shared memory during operand reads.
// Source: the GPU's description; maps: kernels/tensor_map, kernels/first_loads, kernels/map_sources.
class Tma {
 public:
  Pipe engine;

  Tma();
  // Cycle at which the queue has room for one more box.
  double room_at() const { return leave_at_[first_]; }
  // Asks for the map of a tensor, unless that has been done.
  void prefetch(uint32_t tensor, double at_cycle);
  // The SM forgets the map of a tensor; L2 has a new one, so many cycles farther than the mean line.
  void drop(uint32_t tensor, double farther_cycles);
  // When a copy of a tensor finds its map, behind the copies before it; asks for it if nobody has.
  double map_at(uint32_t tensor, double at_cycle);
  // Queues a copy's boxes; returns when the engine comes to the first.
  double take(double walk_cycles, int64_t num_boxes, double at_cycle);

 private:
  double fetch(uint32_t tensor, double at_cycle, double cycles);

  Vector<double> leave_at_;  // a ring: when the last boxes leave the queue
  uint32_t first_ = 0;
  Vector<double> map_at_;  // when maps are there; infinite: not asked for; below 0: known to be there
  uint32_t num_unknown_ = 0;
  double farther_cycles_ = 0.0;  // of the maps that a CTA has made last, against the mean line
  double waits_until_ = 0.0;     // for a map, in order: until then no copy begins
};

}  // namespace gpusim
