// High-bandwidth memory.
#include "hbm.h"

#include "machine.h"
#include "numeric.h"
#include "order_statistics.h"

namespace gpusim {

namespace {

constexpr double EPSILON_BYTES = 1e-6;
constexpr double SHARE_STEPS = 64.0;   // shares between which waits are drawn straight
constexpr double MOST_LINES = 1024.0;  // of a request whose slowest line is looked for
// of the peak that writes take, up to which waits for them were measured
constexpr double MOST_MIXED = 0.7;
constexpr double TURN_STEPS = 8.0;       // of a turn of writes, in which waits for several are worked out
constexpr int32_t MOST_TURNS = 8;        // of a fill
constexpr double TURN_GAP_CYCLES = 1.0;  // between loads of two warps, up to which they take turns
constexpr double MOST_QUEUED_MB = 16.6;  // that wait for memory, up to which writes take more of it
constexpr double SQRT_PI = 1.7724538509055159;

// Of lines or parts, as many as waits are worked out for.
double counted(double num) { return smaller(MOST_LINES, larger(1.0, num)); }

// What `wait(steps)` says of a share, straight between steps.
template <class Wait>
double at_share(double share, Wait wait) {
  double step = share * SHARE_STEPS;
  int low = int(smaller(__builtin_floor(step), SHARE_STEPS - 1.0));
  double below = wait(low);
  return below + (step - low) * (wait(low + 1) - below);
}

}  // namespace

Hbm::Hbm() {
  wire.init(&agenda, input.hbm->wire_bytes_per_cycle, input.hbm->sm_bytes_per_cycle);
  intakes_.reserve(input.sms.size);
  while (intakes_.size() < input.sms.size) intakes_.emplace();
}

// ------------------------------------------------------------------------------------------ draws and waits

double Hbm::spread_cycles() {
  if (input.hbm->spread_cycles == 0.0) return 0.0;
  return input.hbm->spread_cycles * (spreads_.next(GOLDEN) - 0.5);
}

double Hbm::refresh_cycles(double num_rows, double over_cycles) const {
  double longest = input.hbm->refresh_cycles;
  double num_waiting = larger(0.0, num_rows - 1.0) * input.hbm->refresh_fraction;
  if (longest == 0.0 || num_waiting == 0.0) return 0.0;
  double early = 0.0;  // by which the slowest comes earlier than the last row with the longest wait
  if (over_cycles > 0.0) {
    double scale = __builtin_sqrt(num_waiting / (2.0 * longest * over_cycles));
    early = SQRT_PI / 2.0 / scale * erf(scale * smaller(over_cycles, longest));
  }
  if (over_cycles < longest) {
    double hidden = over_cycles / (2.0 * longest);
    early += longest / num_waiting * (exp(-num_waiting * hidden) - exp(-num_waiting * (1.0 - hidden)));
  }
  return longest - early;
}

double Hbm::share_lately() {
  return smaller(input.hbm->most_share,
                 lately(0.0) / (input.hbm->window_cycles * input.hbm->peak_bytes_per_cycle));
}

double Hbm::queue_cycles(double num_lines) {
  double share = input.hbm->queue_cycles != 0.0 ? share_lately() : 0.0;
  if (share == 0.0) return 0.0;
  int lines = int(counted(rounded(num_lines)));
  double waits = at_share(share, [&](int steps) { return slowest_wait(lines, steps); });
  return input.hbm->queue_cycles / (1.0 - share) * waits;
}

double Hbm::busy_cycles(double num_rows) {
  double share = input.hbm->queue_cycles != 0.0 ? share_lately() : 0.0;
  if (share == 0.0) return 0.0;
  double mean = input.hbm->queue_cycles / (1.0 - share);
  int rows = int(counted(rounded(num_rows)));
  double longest = rounded(10.0 * (input.hbm->refresh_cycles / mean)) / 10.0;
  auto slowest = [&](int steps) {
    return slowest_of_both(rows, steps, input.hbm->refresh_fraction, longest);
  };
  return mean * (at_share(share, slowest) - slowest(0));
}

double Hbm::mixed_cycles(double num_parts) {
  if (written_bytes_ == 0.0 || input.hbm->turn_cycles == 0.0) return 0.0;
  double most = input.hbm->window_cycles * input.hbm->peak_bytes_per_cycle;
  double share = share_lately();
  double written = written_bytes_ / most;
  double read = read_bytes_ / most;
  double mean = input.hbm->write_cycles * written + input.hbm->mixed_cycles * __builtin_sqrt(written * read);
  mean /= 1.0 - smaller(MOST_MIXED, written);
  mean += input.hbm->queue_cycles * share / (1.0 - share);
  double turns = rounded(TURN_STEPS * mean / input.hbm->turn_cycles);
  if (turns == 0.0) return 0.0;
  return slowest_beside_writes(counted(rounded(4.0 * num_parts) / 4.0), input.hbm->refresh_fraction,
                               input.hbm->refresh_cycles, turns * input.hbm->turn_cycles / TURN_STEPS,
                               input.hbm->turn_cycles);
}

double Hbm::uneven_cycles(double num_bytes, double place, bool are_apart, double part_bytes) {
  if (input.hbm->channel_cycles == 0.0 || place == 0.0) return 0.0;
  double parts = (pending_bytes_ + num_bytes) / input.hbm->per_channel_bytes;
  if (!are_apart) parts *= input.hbm->interleaved_variance_fraction;
  double num = larger(1.0, (part_bytes != 0.0 ? part_bytes : num_bytes) / input.hbm->channel_bytes);
  if (place < 0.0) {
    double most = expected_max(int(smaller(MOST_LINES, rounded(num))));
    return input.hbm->channel_cycles * __builtin_sqrt(parts) * most;
  }
  double deviation = normal_inverse_cdf(power(place, 1.0 / num));
  return input.hbm->channel_cycles * __builtin_sqrt(parts) * larger(0.0, deviation);
}

// ------------------------------------------------------------------------------------------ what has passed

double Hbm::lately(double num_bytes) {
  double now = agenda.cycle;
  if (now > moved_at_) {
    double kept = exp((moved_at_ - now) / input.hbm->window_cycles);
    moved_bytes_ *= kept;
    read_bytes_ *= kept;
    written_bytes_ *= kept;
    moved_at_ = now;
  }
  moved_bytes_ += num_bytes;
  return moved_bytes_;
}

void Hbm::has_moved(double num_bytes, double read_bytes, double written_bytes) {
  pending_bytes_ -= num_bytes;
  lately(num_bytes);
  read_bytes_ += read_bytes;
  written_bytes_ += written_bytes;
}

// ------------------------------------------------------------------------------------------ fills

void Hbm::fill(double num_bytes, L2Fill* done, const MemoryRequest& request, double piece_bytes,
               double num_part_requests, double times) {
  counters.hbm.read_bytes += num_bytes * times;
  if (piece_bytes != 0.0)
    num_bytes *= 1.0 + input.hbm->row_open_read_bytes / piece_bytes;
  else if (num_part_requests != 0.0)
    num_bytes += input.hbm->partial_line_request_bytes * num_part_requests;
  pending_bytes_ += num_bytes * times;
  intakes_[request.sm].fill(Fill{num_bytes, num_bytes, times, done, false, false}, request.issued_at,
                            request.asked_until, request.num_turns);
}

void Hbm::Intake::fill(Fill fill, double asked_at, double asked_until, int32_t num_turns) {
  int32_t num = num_turns < MOST_TURNS ? num_turns : MOST_TURNS;
  fill.is_behind = num > 0 && asked_at <= asked_until_ + TURN_GAP_CYCLES;
  asked_until_ = num ? asked_until : -INFINITE;
  fill.turn_bytes = fill.left_bytes / (num > 1 ? num : 1);
  if (current_.done == nullptr) {
    hbm.num_reading_++;
    begin(fill);
  } else {
    waiting_.push(fill);
  }
}

// A turn of `fill` begins.
void Hbm::Intake::begin(const Fill& fill) {
  current_ = fill;
  if (!fill.has_begun) fill.done->begun(agenda.cycle);
  current_.has_begun = true;
  hbm.wire.transfer(smaller(current_.turn_bytes, current_.left_bytes), this, current_.weight);
}

// The last byte of a turn has passed.
void Hbm::Intake::complete(double cycle) {
  Fill fill = current_;
  double passed = smaller(fill.turn_bytes, fill.left_bytes);
  fill.left_bytes -= passed;
  hbm.has_moved(passed * fill.weight, passed * fill.weight, 0.0);
  if (fill.left_bytes > EPSILON_BYTES) {
    begin(next_behind(fill));
    return;
  }
  if (!waiting_.empty()) {
    begin(waiting_.pop());
  } else {
    current_.done = nullptr;
    hbm.num_reading_--;
  }
  fill.done->complete(cycle);
}

// Whose turn it is behind one of `fill`, which is queued again as the last of those that take turns with it.
Hbm::Fill Hbm::Intake::next_behind(Fill fill) {
  uint32_t num = 0;
  while (num < waiting_.size() && waiting_[num].is_behind) num++;
  if (!num) return fill;
  fill.is_behind = true;
  waiting_.insert(num, fill);
  return waiting_.pop();
}

void Hbm::read_behind(double num_bytes, Completion* done) {
  counters.hbm.read_bytes += num_bytes;
  pending_bytes_ += num_bytes;
  wire.transfer(num_bytes, done);
}

double Hbm::write_back(double num_bytes, Completion* done, double piece_bytes) {
  counters.hbm.write_bytes += num_bytes;
  double cost = input.hbm->write_cost;
  if (num_reading_) {
    double queued = smaller(pending_bytes_ / 1e6, MOST_QUEUED_MB);
    cost *= 1.0 + input.hbm->turnaround_fraction + input.hbm->queued_turnaround_per_mb * queued;
  }
  if (piece_bytes != 0.0) cost += input.hbm->write_cost * input.hbm->row_open_write_bytes / piece_bytes;
  pending_bytes_ += num_bytes * cost;
  wire.transfer(num_bytes * cost, done);
  return num_bytes * cost;
}

}  // namespace gpusim
