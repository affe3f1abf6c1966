// Where an SM's instructions come from, and how long straight-line code waits for them.
#pragma once
#include "containers.h"
#include "input.h"

namespace gpusim {

// Models:
// * code beyond what the launch brings along, which the first SM fetches out of memory, and others out of L2;
// * levels that keep each line at one place: code longer than a level evicts as much of what it began with;
// * a miss waits for the level behind, whose latency is spread over the bytes that are fetched ahead;
// * a loop's code that a sub-core does not keep comes at the pace of its TPC's place in the GPC.
// Ignores: branches; warps that are not together; constants, which share L1; the traffic of instructions.
// Source: the GPU's description; kernels/counted_code, loop_code.
class InstructionCache {
 public:
  explicit InstructionCache(double loop_bytes_per_cycle) : loop_bytes_per_cycle_(loop_bytes_per_cycle) {}

  // How long warps stand still for a stretch of code, beyond issuing it; it then is the latest in the caches.
  double wait_cycles(int32_t name, double num_bytes, int32_t num_warps_each);
  // How much longer a turn of a loop takes than the cycles in which a scheduler issues it, for its code.
  double loop_cycles(double num_instructions, double overhead_cycles) const;
  // How much longer a stretch takes than its own cycles, behind flushed caches.
  double late_cycles(const ColdCodeRecord& code, double at_cycle);

 private:
  struct Stretch {
    int32_t name;
    double num_bytes;
  };

  double loop_bytes_per_cycle_;
  Vector<Stretch> ran_;      // the one that ran last at the end
  Vector<double> there_at_;  // when far code is there, by name; below 0: not asked for
};

}  // namespace gpusim
