// The CTA work distributor: how fast and where CTAs start, and when their exits are noted.
#pragma once
#include "containers.h"
#include "input.h"

namespace gpusim {

// Models:
// * rate at which CTAs are handed out, and the slower one at which their exits are noted;
// * start and exit of a CTA; a round over the SMs, which spreads starts evenly;
// * a freed slot taken by the next CTA; clusters within a GPC, later on whatever SMs of it fall free.
// Ignores: preferences among SMs that are free at the same cycle; at which GPC a grid begins; warps that
// leave before their CTA does; priorities, other kernels.
// Source: the GPU's description; order: kernels/launch_order, h200_sxm, 2026-11-20.
class Dispatcher {
 public:
  double next_free_at = 0.0;

  void init();
  // When a cluster of `num_ctas` that is ready at `at_cycle` has been dispatched.
  double dispatch(double at_cycle, uint32_t num_ctas);
  // When the exit of a CTA that ended at `at_cycle` has been noted.
  double retire(double at_cycle);
  // How long CTA number `turn` waits until the round comes to its SM: evenly spread over many.
  static double wait_cycles(uint32_t turn);
  // SMs for the next cluster, where a CTA of `sm` has left; false while there are not so many.
  bool freed(uint32_t sm, Vector<int32_t>& found);

 private:
  double retired_at_ = 0.0;
  Vector<int32_t> num_free_;  // CTAs that no cluster has, by SM
};

}  // namespace gpusim
