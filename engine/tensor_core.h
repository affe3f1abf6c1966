// The tensor cores of one SM as one pipe, for mma.sync and for wgmma.
#pragma once
#include "input.h"
#include "timing.h"

namespace gpusim {

// Models:
// * wgmma's rate (worked out before the run), arithmetic that begins once A is there;
// * groups of a warpgroup in flight, and the wgmma of all warpgroups in one queue;
// * mma.sync's rate, minimum interval and latency; ldmatrix that keeps others' mma.sync from being issued;
// * IMAD.WIDE and wgmma exclude one another, whoever issued them.
// Ignores: the order in which warpgroups alternate inside the pipe; what issuing a wgmma takes; sparsity.
// Source: the GPU's description; kernels/ring_math, pipe_beside_wgmma, turn_taking.
struct TensorCore {
  Pipe pipe;
  double wgmma_until = 0.0;  // when the last of the SM's wgmma that have been issued ends
  double wide_until = 0.0;   // and the last IMAD.WIDE

  // ldmatrix of warps beside others that multiply: mma.sync wait for what each takes of its sub-core.
  void pass_loads(double num_loads, double at_cycle) {
    if (pipe.free_at > at_cycle && at_cycle >= wgmma_until)
      pipe.free_at += num_loads * input.tensor_core->mma_sync_load_cycles / input.tensor_core->num_sub_cores;
  }
};

}  // namespace gpusim
