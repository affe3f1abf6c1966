// Issue slots, FMA, ALU and MUFU pipes, and shuffles of one SM.
#include "warp_scheduler.h"

#include "machine.h"

namespace gpusim {

double WarpScheduler::issue(double num_instructions, int32_t num_warps, double at_cycle, double turns_each) {
  double total = num_instructions * num_warps;
  counters.warp_scheduler.instructions += total;
  double end = issue_slots.reserve(total * turns_each, at_cycle);
  int32_t num_each = warps_each(num_warps, input.warp_scheduler->num_schedulers);
  return larger(end, at_cycle + num_instructions * turns_each * num_each);
}

double WarpScheduler::execute(GapPipe& pipe, double num_instructions, int32_t num_warps, double at_cycle,
                              double wgmma_until, double turns_each) {
  double issued = issue(num_instructions, num_warps, at_cycle, turns_each);
  double schedulers = input.warp_scheduler->num_schedulers;
  double total = num_instructions * num_warps;
  double end = pipe.reserve(total, at_cycle);
  double pipe_cycles = total / (pipe.rate * (num_warps < schedulers ? num_warps / schedulers : 1.0));
  if (wgmma_until > at_cycle && total > 0.0) {
    double each = input.warp_scheduler->math_interval_during_wgmma_cycles * warps_each(num_warps, schedulers);
    double beside = smaller(1.0, (wgmma_until - at_cycle) / (each * num_instructions));
    double passed = beside_pipe.reserve(total * beside, at_cycle);
    passed = larger(passed, at_cycle + each * num_instructions * beside) + (1.0 - beside) * pipe_cycles;
    end = larger(end, passed);
  }
  return larger(larger(end, issued), at_cycle + pipe_cycles);
}

}  // namespace gpusim
