// What the slowest of several takes that draw their waits alike.
// tests/engine/order_statistics.py does the same, operation by operation: change both together.
#include "order_statistics.h"

#include <stdint.h>

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

// The five arguments of a function, as bits.
struct Arguments {
  uint64_t bits[5];

  static Arguments of(double a, double b, double c, double d, double e) {
    double values[5] = {a, b, c, d, e};
    Arguments found;
    __builtin_memcpy(found.bits, values, sizeof(values));
    return found;
  }

  bool operator==(const Arguments& other) const {
    bool is_same = true;
    for (int place = 0; place < 5; place++) is_same = is_same && bits[place] == other.bits[place];
    return is_same;
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

// Answers that were worked out: open addressing, linear probing.
class Answers {
 public:
  // The answer for some arguments; null where it has to be worked out.
  const double* find(const Arguments& arguments) const {
    if (!capacity_) return nullptr;
    const Entry& entry = entries_[place_of(arguments)];
    return entry.is_used ? &entry.answer : nullptr;
  }

  double keep(const Arguments& arguments, double answer) {
    if (2 * (num_ + 1) > capacity_) grow();
    entries_[place_of(arguments)] = Entry{arguments, answer, true};
    num_++;
    return answer;
  }

 private:
  struct Entry {
    Arguments arguments;
    double answer;
    bool is_used;
  };

  uint32_t place_of(const Arguments& arguments) const {
    uint32_t place = arguments.mixed() & (capacity_ - 1);
    while (entries_[place].is_used && !(entries_[place].arguments == arguments))
      place = (place + 1) & (capacity_ - 1);
    return place;
  }

  void grow() {
    Entry* before = entries_;
    uint32_t num_before = capacity_;
    capacity_ = capacity_ ? 2 * capacity_ : 64;
    entries_ = static_cast<Entry*>(memory_allocate(capacity_ * sizeof(Entry)));
    for (uint32_t place = 0; place < capacity_; place++) entries_[place].is_used = false;
    for (uint32_t place = 0; place < num_before; place++)
      if (before[place].is_used) entries_[place_of(before[place].arguments)] = before[place];
    if (before != nullptr) memory_release(before, num_before * sizeof(Entry));
  }

  Entry* entries_ = nullptr;
  uint32_t capacity_ = 0;
  uint32_t num_ = 0;
};

Answers answers_of_most;
Answers answers_of_wait;
Answers answers_of_both;
Answers answers_beside_writes;

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

double work_out_most_of(int num) {
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

double most_of(int num) {
  if (num <= 1) return 0.0;
  Arguments arguments = Arguments::of(num, 0.0, 0.0, 0.0, 0.0);
  const double* known = answers_of_most.find(arguments);
  return known ? *known : answers_of_most.keep(arguments, work_out_most_of(num));
}

double slowest_wait(int num_lines, int share_steps) {
  Arguments arguments = Arguments::of(num_lines, share_steps, 0.0, 0.0, 0.0);
  const double* known = answers_of_wait.find(arguments);
  return known ? *known : answers_of_wait.keep(arguments, work_out_slowest_wait(num_lines, share_steps));
}

double slowest_of_both(int num_rows, int share_steps, double refresh_fraction, double refresh) {
  Arguments arguments = Arguments::of(num_rows, share_steps, refresh_fraction, refresh, 0.0);
  const double* known = answers_of_both.find(arguments);
  if (known) return *known;
  return answers_of_both.keep(arguments,
                              work_out_slowest_of_both(num_rows, share_steps, refresh_fraction, refresh));
}

double slowest_beside_writes(double num_parts, double refresh_chance, double longest_refresh, double mean,
                             double turn) {
  Arguments arguments = Arguments::of(num_parts, refresh_chance, longest_refresh, mean, turn);
  const double* known = answers_beside_writes.find(arguments);
  if (known) return *known;
  double answer = work_out_slowest_beside_writes(num_parts, refresh_chance, longest_refresh, mean, turn);
  return answers_beside_writes.keep(arguments, answer);
}

}  // namespace gpusim
