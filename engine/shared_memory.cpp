// Shared memory of one SM: 32 banks, served a wavefront at a time.
#include "shared_memory.h"

#include "machine.h"

namespace gpusim {

namespace {

// after which an access beside wgmma looks anew whether operands are read
constexpr double TURN_WAVEFRONTS = 32.0;
constexpr double EPSILON_WAVEFRONTS = 1e-6;
constexpr double EPSILON_CYCLES = 1e-6;

}  // namespace

// ------------------------------------------------------------------------------------------ warps

Served SharedMemory::load(double num_wavefronts, double registers_per_wavefront, double at_cycle,
                          double way_wavefronts) {
  double most = 1.0;
  if (at_cycle < operands_until_ && registers_per_wavefront > 0.0)
    most = input.smem->wgmma_lds_registers_per_cycle / registers_per_wavefront / data.rate;
  if (is_way_watched_ && way_wavefronts != 0.0) at_cycle = on_way(way_wavefronts, at_cycle);
  Served served = take(num_wavefronts, at_cycle, most);
  if (served.end > asked_until_) asked_until_ = served.end;
  return served;
}

Served SharedMemory::store(double num_wavefronts, double at_cycle, bool is_again) {
  if (is_way_watched_ && !is_again) at_cycle = on_way(num_wavefronts, at_cycle);
  Served served = take(num_wavefronts, at_cycle, most_stored_);
  if (served.end > asked_until_) asked_until_ = served.end;
  counters.smem.wavefronts += num_wavefronts - served.left;
  counters.smem.store_wavefronts += num_wavefronts - served.left;
  return served;
}

double SharedMemory::swap(double num_wavefronts, double wavefronts_per_warp, double at_cycle) {
  Served served = store(num_wavefronts, at_cycle, false);
  while (served.left != 0.0) served = store(served.left, served.end, true);
  double own = at_cycle + (wavefronts_per_warp - 1.0) * input.smem->warp_cycles_per_wavefront +
               1.0 / input.smem->wavefronts_per_cycle;
  return larger(served.end, own) + input.smem->atomic_latency_cycles;
}

double SharedMemory::ready(double end_cycle, double wavefronts_per_warp, double words_per_lane,
                           double at_cycle) const {
  double own = at_cycle + (wavefronts_per_warp - 1.0) * input.smem->warp_cycles_per_wavefront;
  double shared = end_cycle - 1.0 / input.smem->wavefronts_per_cycle;
  double vector = words_per_lane > 1.0 ? (words_per_lane - 1.0) * input.smem->vector_word_cycles : 0.0;
  return larger(shared, own) + input.smem->load_latency_cycles + vector;
}

double SharedMemory::replay_cycles(double num_wavefronts, double num_bytes, double backlog_cycles) const {
  double longest = input.smem->overtakable_wavefronts / input.smem->wavefronts_per_cycle;
  if (num_wavefronts * WAVEFRONT_BYTES <= num_bytes || longest == 0.0) return 0.0;
  double share = 1.0 - num_bytes / (num_wavefronts * WAVEFRONT_BYTES);
  return smaller(longest, share * backlog_cycles);
}

// ---------------------------------------------------------------------- copies, global accesses

double SharedMemory::fill(double num_wavefronts, double at_cycle) {
  pass_global(num_wavefronts, at_cycle);
  return larger(at_cycle, data.free_at) + filling_ / data.rate;
}

double SharedMemory::pass_copies(double num_wavefronts, double at_cycle) {
  if (is_way_watched_) at_cycle = on_way(num_wavefronts, at_cycle);
  double end = reserve(num_wavefronts, at_cycle);
  if (end > asked_until_) asked_until_ = end;
  return end;
}

double SharedMemory::copy_rows(double num_rows, double at_cycle) {
  double num_wavefronts = num_rows * input.smem->cp_async_row_wavefronts;
  GapPipe& way = watched_way();
  if (num_wavefronts == 0.0) return larger(at_cycle, way.free_at);
  double begin = on_way(num_wavefronts, at_cycle);
  data.reserve(num_wavefronts, begin);
  return begin;
}

void SharedMemory::pass_rows(double num_wavefronts, double until, double at_cycle) {
  GapPipe& way = watched_way();
  counters.smem.fill_wavefronts += num_wavefronts;
  double blocked = until - larger(at_cycle, way.free_at);
  if (blocked > 0.0) way.reserve(blocked * way.rate, at_cycle);
}

void SharedMemory::pass_commits(double num_cycles, double at_cycle) {
  GapPipe& way = watched_way();
  way.reserve(num_cycles * way.rate, at_cycle);
}

double SharedMemory::passes_at(double at_cycle, double num_waiting) const {
  if (input.smem->overtakable_wavefronts == 0.0 || at_cycle < operands_until_) return at_cycle;
  double past =
      asked_until_ + (num_waiting - input.smem->overtakable_wavefronts) / input.smem->wavefronts_per_cycle;
  return past > at_cycle ? past : at_cycle;
}

void SharedMemory::pass_global(double num_wavefronts, double at_cycle) {
  passing(0.0, at_cycle);
  filling_ += num_wavefronts;
  data.busy_cycles += num_wavefronts / data.rate;
}

Served SharedMemory::pass_lines(double num_lines, double at_cycle) {
  return take(num_lines, at_cycle, most_stored_);
}

// ------------------------------------------------------------------------------------------ the stage itself

void SharedMemory::read_operands(double free_share, double until_cycle) {
  free_share_ = free_share;
  operands_until_ = until_cycle;
}

bool SharedMemory::is_read(double cycle) const { return cycle < operands_until_ - EPSILON_CYCLES; }

// The way here; it is as busy as the stage when the first copy comes.
GapPipe& SharedMemory::watched_way() {
  if (!is_way_watched_) {
    is_way_watched_ = true;
    way_.become(data);
  }
  return way_;
}

// The cycle from which an access that is asked for at `at_cycle` can be served.
double SharedMemory::on_way(double num_wavefronts, double at_cycle) {
  return way_.reserve(num_wavefronts, at_cycle) - num_wavefronts / way_.rate;
}

// Wavefronts of fills that go in `num_wavefronts` of an access, one by one, after idle cycles.
double SharedMemory::passing(double num_wavefronts, double at_cycle) {
  double filling = filling_;
  if (filling == 0.0) return 0.0;
  double idle = at_cycle - larger(idle_since_, data.free_at);
  if (idle > 0.0) {
    filling = larger(0.0, filling - idle * data.rate);
    idle_since_ = at_cycle;
  }
  double passes = smaller(filling, num_wavefronts);
  filling_ = filling - passes;
  return passes;
}

// Queues an access, and what fills pass on the way; those are counted already.
double SharedMemory::reserve(double num_wavefronts, double at_cycle) {
  double passes = passing(num_wavefronts, at_cycle);
  double end = data.reserve(num_wavefronts + passes, at_cycle);
  data.busy_cycles -= passes / data.rate;
  return end;
}

// Uses the data stage, or what operand reads leave of it.
Served SharedMemory::take(double num_wavefronts, double at_cycle, double most_share) {
  double share = smaller(free_share_, most_share);
  double until = operands_until_;
  if (until == 0.0 || share >= 1.0) return Served{reserve(num_wavefronts, at_cycle), 0.0};
  if (!is_read(at_cycle)) {  // wgmma may begin soon
    double passes = smaller(num_wavefronts, TURN_WAVEFRONTS);
    double end = reserve(passes, at_cycle);
    return Served{end, num_wavefronts - passes};
  }
  double begin = larger(at_cycle, data.free_at);
  if (begin >= until) return Served{until, num_wavefronts};
  double room = (until - begin) * data.rate * share;
  double passes = smaller(num_wavefronts, room);
  double waited = passes / share - passes;
  data.busy_cycles -= waited / data.rate;  // the operands' cycles are none of the warps'
  double end = reserve(passes + waited, at_cycle);
  if (num_wavefronts <= room + EPSILON_WAVEFRONTS) return Served{end, 0.0};
  return Served{larger(end, until), num_wavefronts - passes};
}

// ------------------------------------------------------------------------------------------ other SMs

double Dsmem::read(double num_bytes, double at_cycle, Dsmem& far, bool is_pair) {
  counters.dsmem.read_bytes += num_bytes;
  far.link.reserve(num_bytes * input.dsmem->serve_fraction, at_cycle);
  double latency = input.dsmem->latency_cycles - (is_pair ? 2.0 * input.dsmem->same_tpc_saving_cycles : 0.0);
  return link.reserve(num_bytes, at_cycle) + latency;
}

double Dsmem::write(double num_bytes, double at_cycle, bool is_pair) {
  counters.dsmem.write_bytes += num_bytes;
  return link.reserve(num_bytes, at_cycle) + one_way_cycles(is_pair);
}

double Dsmem::one_way_cycles(bool is_pair) {
  return input.dsmem->one_way_cycles - (is_pair ? input.dsmem->same_tpc_saving_cycles : 0.0);
}

}  // namespace gpusim
