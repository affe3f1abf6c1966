// What the slowest of several takes that draw their waits alike.
// tests/engine/order_statistics.py does the same, operation by operation: change both together.
#include "order_statistics.h"

#include "containers.h"
#include "numeric.h"
#include "units.h"

namespace gpusim {

namespace {

constexpr double SHARE_STEPS = 64.0;
constexpr double DEVIATIONS = 6.0;  // beyond which a normal draw is not looked for
constexpr int DEVIATION_STEPS = 1200;
constexpr int WAIT_STEPS = 256;  // between the points at which the distribution of a wait is looked at
constexpr int NUM_POINTS = WAIT_STEPS + 1;
// of a part of a request that waits beside writes: so finely parts are counted
constexpr double QUARTERS = 4.0;

// The arguments of a function, as bits.
struct Arguments {
  uint64_t bits[5] = {};

  explicit Arguments(double a = 0.0, double b = 0.0, double c = 0.0, double d = 0.0, double e = 0.0) {
    const double values[5] = {a, b, c, d, e};
    __builtin_memcpy(bits, values, sizeof(values));
  }

  bool operator==(const Arguments& other) const {
    for (int place = 0; place < 5; place++)
      if (bits[place] != other.bits[place]) return false;
    return true;
  }

  uint32_t mixed() const {
    uint64_t found = 0;
    for (uint64_t each : bits) {
      found = (found ^ each) * 0x9E3779B97F4A7C15ull;
      found ^= found >> 32;
    }
    return uint32_t(found);
  }
};

// What `WORK_OUT` gives for some numbers; it is asked once for each.
template <auto WORK_OUT, class... Numbers>
double answer(Numbers... numbers) {
  static Map<Arguments, double> answers;
  static Pool<double> pool;
  Arguments arguments(numbers...);
  const double* known = answers.get(arguments);
  if (known != nullptr) return *known;
  double* found = pool.make(WORK_OUT(numbers...));
  answers.put(arguments, found);
  return *found;
}

// Each of `num_values` to the power of `num`, as `whole_power`; `values` are changed.
void whole_powers(double* values, int num_values, int num, double* found) {
  for (int idx = 0; idx < num_values; idx++) found[idx] = 1.0;
  while (num) {
    if (num & 1)
      for (int idx = 0; idx < num_values; idx++) found[idx] = found[idx] * values[idx];
    num >>= 1;
    if (num)
      for (int idx = 0; idx < num_values; idx++) values[idx] = values[idx] * values[idx];
  }
}

// The integral of what has these values at points `step` apart, straight between them.
double area(const double* values, int num_values, double step) {
  double sum = 0.0;
  for (int idx = 0; idx < num_values; idx++) sum += values[idx];
  return (sum - 0.5 * (values[0] + values[num_values - 1])) * step;
}

double work_out_expected_max(int num) {
  static double shares[DEVIATION_STEPS + 1];
  static bool is_known = false;
  constexpr double STEP = 2.0 * DEVIATIONS / DEVIATION_STEPS;
  if (!is_known) {
    for (int idx = 0; idx <= DEVIATION_STEPS; idx++) shares[idx] = normal_cdf(idx * STEP - DEVIATIONS);
    is_known = true;
  }
  static double values[DEVIATION_STEPS + 1];
  static double powers[DEVIATION_STEPS + 1];
  for (int idx = 0; idx <= DEVIATION_STEPS; idx++) values[idx] = shares[idx];
  whole_powers(values, DEVIATION_STEPS + 1, num, powers);
  return DEVIATIONS - area(powers, DEVIATION_STEPS + 1, STEP);
}

double work_out_slowest_wait(int num_lines, int share_steps) {
  double free = 1.0 - share_steps / SHARE_STEPS;
  double wait = 0.0;
  double all_free = 1.0;
  for (int num = 1; num <= num_lines; num++) {
    all_free *= free;
    wait += (1.0 - all_free) / num;
  }
  return wait;
}

// e^(-idx step) at each point: each stretch is made of those before it, twice as long as the last.
void decay_of(double step, double* found) {
  found[0] = 1.0;
  int known = 1;
  while (known <= WAIT_STEPS) {
    int end = 2 * known < NUM_POINTS ? 2 * known : NUM_POINTS;
    double factor = exp(-step * known);
    for (int idx = known; idx < end; idx++) found[idx] = found[idx - known] * factor;
    known = end;
  }
}

double work_out_slowest_of_both(int num_rows, int share_steps, double refresh_fraction, double refresh) {
  double share = share_steps / SHARE_STEPS;
  double step = (refresh + log(1.0 + num_rows) + 5.0) / WAIT_STEPS;
  double decay[NUM_POINTS];
  decay_of(step, decay);
  double is_over[NUM_POINTS];
  for (int idx = 0; idx < NUM_POINTS; idx++) is_over[idx] = 1.0 - share * decay[idx];
  if (refresh > 0.0) {
    int first = int(refresh / step) + 1;  // the point behind the longest refresh
    double of_first = exp(refresh - first * step);
    for (int idx = 0; idx < NUM_POINTS; idx++) {
      double inside = idx < first ? idx * step : refresh;
      double still = idx < first ? 1.0 : decay[idx - first] * of_first;
      double in_refresh = (inside - share * (still - decay[idx])) / refresh;
      is_over[idx] = (1.0 - refresh_fraction) * is_over[idx] + refresh_fraction * in_refresh;
    }
  }
  double longer[NUM_POINTS];
  whole_powers(is_over, NUM_POINTS, num_rows, longer);
  for (int idx = 0; idx < NUM_POINTS; idx++) longer[idx] = 1.0 - longer[idx];
  return area(longer, NUM_POINTS, step);
}

// What lies at a place between points, straight; behind the last point what the last is.
double between(const double* values, double place) {
  if (!(place < WAIT_STEPS)) return values[WAIT_STEPS];
  int idx = int(place);
  return values[idx] + (values[idx + 1] - values[idx]) * (place - idx);
}

// Of a wait of turns, at points `step` apart: the chance that it is over, and the integral of that up to
// there.
void turns_over(double mean, double turn, double step, double* is_over, double* until) {
  static double logs_of_middles[WAIT_STEPS];
  static bool is_known = false;
  if (!is_known) {
    for (int idx = 0; idx < WAIT_STEPS; idx++) logs_of_middles[idx] = log(idx + 0.5);
    is_known = true;
  }
  double num_turns = mean / turn;
  double per_step = step / turn;
  double log_of_step = log(step / mean);
  is_over[0] = 0.0;
  for (int idx = 0; idx < WAIT_STEPS; idx++) {
    double before = (num_turns - 1.0) * (logs_of_middles[idx] + log_of_step);
    is_over[idx + 1] = is_over[idx] + exp(before - ((idx + 0.5) * per_step - num_turns));
  }
  double all = is_over[WAIT_STEPS];
  for (int idx = 0; idx < NUM_POINTS; idx++) is_over[idx] = is_over[idx] / all;
  double sum = 0.0;
  until[0] = 0.0;
  for (int idx = 0; idx < WAIT_STEPS; idx++) {
    sum += 0.5 * (is_over[idx + 1] + is_over[idx]);
    until[idx + 1] = sum * step;
  }
}

double work_out_slowest_beside_writes(double num_parts, double chance, double wait, double mean,
                                      double turn) {
  double longest = mean + 6.0 * __builtin_sqrt(mean * turn) + turn;
  double step = longest / WAIT_STEPS;
  double of_turns[NUM_POINTS];
  double until[NUM_POINTS];
  turns_over(mean, turn, step, of_turns, until);
  double apart = (wait + longest) / WAIT_STEPS;
  double is_over[NUM_POINTS];
  double is_idle[NUM_POINTS];
  for (int idx = 0; idx < NUM_POINTS; idx++) {
    double at = idx * apart;
    is_over[idx] = between(of_turns, at / step);
    is_idle[idx] = 1.0;
    if (chance > 0.0 && wait > 0.0) {
      double before = larger(at - wait, 0.0);
      double covered = between(until, at / step) + larger(at - longest, 0.0) - between(until, before / step);
      covered = covered - larger(before - longest, 0.0);
      is_over[idx] = (1.0 - chance) * is_over[idx] + chance * covered / wait;
      is_idle[idx] = 1.0 - chance * (1.0 - smaller(at / wait, 1.0));
    }
    is_over[idx] = __builtin_sqrt(__builtin_sqrt(larger(is_over[idx], 0.0)));
    is_idle[idx] = __builtin_sqrt(__builtin_sqrt(is_idle[idx]));
  }
  int quarters = int(QUARTERS * num_parts + 0.5);
  double all_idle[NUM_POINTS];
  double all_over[NUM_POINTS];
  whole_powers(is_idle, NUM_POINTS, quarters, all_idle);
  whole_powers(is_over, NUM_POINTS, quarters, all_over);
  for (int idx = 0; idx < NUM_POINTS; idx++) all_idle[idx] = all_idle[idx] - all_over[idx];
  return area(all_idle, NUM_POINTS, apart);
}

}  // namespace

double expected_max(int num) { return num <= 1 ? 0.0 : answer<work_out_expected_max>(num); }

double slowest_wait(int num_lines, int share_steps) {
  return answer<work_out_slowest_wait>(num_lines, share_steps);
}

double slowest_of_both(int num_rows, int share_steps, double refresh_fraction, double refresh) {
  return answer<work_out_slowest_of_both>(num_rows, share_steps, refresh_fraction, refresh);
}

double slowest_beside_writes(double num_parts, double refresh_chance, double longest_refresh, double mean,
                             double turn) {
  return answer<work_out_slowest_beside_writes>(num_parts, refresh_chance, longest_refresh, mean, turn);
}

}  // namespace gpusim
