// Issue slots, FMA, ALU and MUFU pipes, and shuffles of one SM.
#pragma once
#include "input.h"
#include "timing.h"

namespace gpusim {

// Models:
// * one warp instruction a cycle and scheduler, the lanes of each pipe; warps of a role spread evenly;
// * chains of integer instructions and of shuffles where a program names them;
// * during wgmma a scheduler's arithmetic has one turn in four cycles;
// * FFMAs whose registers lie in one bank take more turns, and others of the scheduler wait behind them;
// * loads of global memory have the pipe of IMAD.WIDE for two cycles each;
// * SMs that have paces of their own where several CTAs share one.
// Ignores:
// * dependences inside a role's arithmetic that no program names; dual roles of the INT pipe.
// Source: the GPU's description; kernels/turn_taking, pipe_beside_wgmma, fma_loops, load_loops.
class WarpScheduler {
 public:
  GapPipe issue_slots{input.warp_scheduler->num_schedulers};
  GapPipe fma_pipe{input.warp_scheduler->fma_rate};
  GapPipe alu_pipe{input.warp_scheduler->alu_rate};
  GapPipe imad_wide_pipe{input.warp_scheduler->imad_wide_rate};
  GapPipe mufu_pipe{input.warp_scheduler->mufu_rate};
  GapPipe beside_pipe{input.warp_scheduler->beside_rate};
  GapPipe shuffle_pipe{input.warp_scheduler->shuffle_rate};
  double pace;  // what IMAD.WIDE that set a pace take, over the mean of SMs

  explicit WarpScheduler(double sm_pace) : pace(sm_pace) {}
  // Issues instructions of each of `num_warps` warps; returns when the last has been issued.
  double issue(double num_instructions, int32_t num_warps, double at_cycle, double turns_each = 1.0);
  // Issues to a pipe of fewer lanes than the schedulers could feed; returns when the pipe has taken all.
  double execute(GapPipe& pipe, double num_instructions, int32_t num_warps, double at_cycle,
                 double wgmma_until = 0.0, double turns_each = 1.0);
};

// Warps of each scheduler, or sub-core, that a role of so many warps has at most.
inline int32_t warps_each(int32_t num_warps, double num_schedulers) {
  return (num_warps + int32_t(num_schedulers) - 1) / int32_t(num_schedulers);
}

}  // namespace gpusim
