// mbarriers: phases, arrivals, transaction bytes.
#pragma once
#include "containers.h"
#include "units.h"

namespace gpusim {

class Role;
struct Cta;

// What takes the arrivals of one SM's warps.
// Models: one arrival after the other, an interval apart, and a queue before it, so that the first ones cost
// no more than their issue.
// Ignores: waits in the same queue; a queue for each sub-core; lanes of a warp, which arrive together.
// Source: the GPU's description.
class MbarrierUnit {
 public:
  // When the warp goes on, and when the arrival counts, of one that is issued at `at_cycle`.
  void arrive(double at_cycle, double* goes_on, double* counts_at);

 private:
  static constexpr uint32_t MOST_ENDS = 12;  // arrivals that it remembers
  Fifo<double> ends_;                        // when the last few arrivals were taken, in order
  double forgotten_until_ = 0.0;
};

// One mbarrier object in shared memory.
// Models: arrival count, transaction count, phase and parity; a phase completes when both counts are zero, at
// the latest of its arrivals' cycles; a waiter that has gone to sleep goes on some cycles later, a lone lane
// when it looks next.
// Ignores: the issue slots that a failing try_wait loop takes.
// Source: PTX ISA, mbarrier; the GPU's description.
struct Mbarrier {
  Cta* cta;
  int32_t idx;  // row of input.mbarriers
  int32_t num_arrivals;
  int32_t pending = num_arrivals;
  int64_t tx_bytes = 0;
  int64_t announced_bytes = 0;
  int64_t delivered_bytes = 0;
  int32_t parity = 0;
  double stamp = 0.0;
  double completed_at = 0.0;

  struct Waiter {
    Role* role;
    bool by_lane;
  };
  Vector<Waiter> waiters;

  Mbarrier(Cta* its_cta, int32_t its_idx, int32_t arrivals)
      : cta(its_cta), idx(its_idx), num_arrivals(arrivals) {}
  // `count` arrivals that become visible at `at_cycle`; a hazard where there are more than a phase expects.
  void arrive(int32_t count, double at_cycle, const Role* who);
  // When a role, or a lone lane, that has waited `since` goes on after the phase that has completed: a lane
  // with the end of its first try that finds it so. Roles may be ahead of the clock when they ask.
  double goes_on_at(double since, bool by_lane) const;
  // Bytes are there at `at_cycle`.
  void complete_tx(int64_t num_bytes, double at_cycle);

 private:
  void complete_if_over(double at_cycle);
};

}  // namespace gpusim
