// What goes from one L2 partition to the other: in order, over lanes whose queues are unlike.
#include "l2_fabric.h"

#include "input.h"
#include "order_statistics.h"

namespace gpusim {

double L2Link::read(double num_bytes, double at_cycle, double* deviation) {
  if (at_cycle > pipe_.free_at) read_bytes_ = 0.0;
  read_bytes_ += num_bytes;
  return pass(num_bytes, num_bytes, at_cycle, deviation);
}

double L2Link::store(double num_bytes, double at_cycle, double* deviation) {
  double read = at_cycle > pipe_.free_at ? 0.0 : read_bytes_;
  double beside = smaller(num_bytes, read);
  read_bytes_ = read - beside;
  double taken = num_bytes + input.l2->link_turnaround_fraction * beside;
  return pass(num_bytes, taken, at_cycle, deviation);
}

double L2Link::late_cycles(double num_bytes, double deviation) const {
  double lines = num_bytes / LINE_BYTES;
  if (lines <= 1.0 || deviation == 0.0) return 0.0;
  return most_of(int(rounded(smaller(lines, input.l2->num_lanes)))) * deviation;
}

double L2Link::pass(double num_bytes, double taken_bytes, double at_cycle, double* deviation) {
  double crossed = at_cycle > pipe_.free_at ? 0.0 : crossed_bytes_;
  crossed_bytes_ = crossed + num_bytes;
  double end = pipe_.reserve(taken_bytes, at_cycle);
  double waited = end - at_cycle - taken_bytes / pipe_.rate;
  *deviation = 0.0;
  if (waited <= 0.0) return end;
  crossed += num_bytes;
  double of_lanes = __builtin_sqrt(crossed * LINE_BYTES * input.l2->num_lanes) / pipe_.rate;
  *deviation = smaller(waited, of_lanes);
  return end;
}

}  // namespace gpusim
