// Distributed shared memory: what the SMs of a cluster say to one another.
#pragma once
#include "input.h"
#include "timing.h"

namespace gpusim {

// One SM's end of the network.
// Models: latency there and back and one way, shorter in a cluster of two; rate of the SM that asks, which
// has less of it while it is asked itself.
// Ignores: the far end's banks, distance in larger clusters, what clusters side by side take of one another.
// Source: the GPU's description.
class Dsmem {
 public:
  Pipe link;

  void init() { link.rate = input.dsmem->bytes_per_cycle; }
  // Returns when the last byte from SM `far` is there.
  double read(double num_bytes, double at_cycle, Dsmem& far, bool is_pair);
  // Returns when the last byte has arrived.
  double write(double num_bytes, double at_cycle, bool is_pair);
  // Cycles from an issue to its effect on another SM.
  static double one_way_cycles(bool is_pair);
};

}  // namespace gpusim
