// What goes from one L2 partition to the other: in order, over lanes whose queues are unlike.
#pragma once
#include "timing.h"

namespace gpusim {

// What goes into one partition from the other: lines that its SMs read there, and the other SMs' stores.
// Models:
// * order of arrival;
// * stores that take more of it beside reads, as many bytes of them as have crossed since it was idle;
// * a lane for each slice, which lines fall on as if drawn: the last of a transfer waits for the fullest
//   lane.
// Ignores:
// * why stores take more beside reads; that lanes are busy yet when the mean one is idle;
// * turns of reads and stores; requests and headers of reads.
// Source: kernels/side_bursts, h200_sxm, 2026-11-28; lanes: as many as slices of a partition, inferred.
class L2Link {
 public:
  void init(double bytes_per_cycle) { pipe_.rate = bytes_per_cycle; }

  // Passes what an SM reads. Returns when so much has passed with even lanes; `deviation`: of the lanes, in
  // cycles.
  double read(double num_bytes, double at_cycle, double* deviation);
  // The same of what an SM stores.
  double store(double num_bytes, double at_cycle, double* deviation);
  // How much later than with even lanes the last line of `num_bytes` has passed.
  double late_cycles(double num_bytes, double deviation) const;
  double busy_cycles() const { return pipe_.busy_cycles; }

 private:
  double pass(double num_bytes, double taken_bytes, double at_cycle, double* deviation);

  GapPipe pipe_;
  double read_bytes_ = 0.0;     // since it was idle, reads that no store has met
  double crossed_bytes_ = 0.0;  // all that it has passed since it was idle
};

}  // namespace gpusim
