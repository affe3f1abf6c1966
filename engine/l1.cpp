// The L1 cache and its load/store unit, as one SM sees them.
#include "l1.h"

#include "machine.h"
#include "numeric.h"

namespace gpusim {

namespace {

constexpr double MOST_LOGITS = 5.0;  // below one half, where nothing is lost

}  // namespace

Passage L1::accept(double num_requests, double num_lines, double num_wavefronts, double at_cycle,
                   double more_cycles, double least_cycles) {
  double tags = larger(num_requests / input.l1->requests_per_cycle, num_lines / input.l1->lines_per_cycle);
  double cycles = more_cycles + larger(tags, num_wavefronts / input.l1->wavefronts_per_cycle);
  cycles = larger(least_cycles, cycles);
  double end = unit.reserve(cycles, at_cycle);
  return Passage{end - cycles, end};
}

double L1::wait_for_lines(TileKey key, double num_requests, double since, double at_cycle) {
  double more = input.l1->hit_on_miss_cycles;
  if (more == 0.0) return at_cycle;
  const L1Tile* tile = tiles_.get(key);
  double each = 1.0 / input.l1->requests_per_cycle;
  double cycles = num_requests * each;
  if (tile != nullptr) {
    double until = tile->is_filling ? tile->asked_at + input.l2->near_latency_cycles : tile->done_at;
    double num = (until - larger(at_cycle, noted.free_at)) / (more + each);
    if (num > 0.0) cycles += more * smaller(num_requests, num);
  }
  return noted.reserve(cycles, since);
}

double L1::accept_rows(double num_rows, double at_cycle) {
  double each = input.l1->cp_async_row_cycles;
  double passed = row_stage.reserve(num_rows * each, at_cycle);
  rows_taken_at = passed - input.l1->max_queued_rows * each;
  return passed;
}

double L1::copy_lead_cycles(double num_copies, double cycles) const {
  double places = input.l1->max_queued_copies;
  return places != 0.0 && num_copies != 0.0 ? places * cycles / num_copies : input.l1->queue_cycles;
}

double L1::shared_places(double num_requests, double num_bytes) {
  double shared = input.l1->max_queued_stores;
  if (num_bytes * shared > input.l1->store_queue_bytes * num_requests)
    shared = input.l1->store_queue_bytes * num_requests / num_bytes;
  return shared;
}

double L1::posted_cycles(double cycles, double num_requests, double num_bytes, double num_schedulers) {
  if (num_requests == 0.0) return 0.0;
  double places =
      shared_places(num_requests, num_bytes) + input.l1->max_queued_scheduler_stores * num_schedulers;
  double lead = places * cycles / num_requests - input.l1->store_release_cycles;
  return lead > 0.0 ? lead : 0.0;
}

void L1::read(MemoryRequest& request, Completion* done, bool allocates, double not_before, bool is_copy) {
  if (!allocates) {
    crossbar.read(request, done, nullptr, is_copy ? nullptr : &places);
    return;
  }
  L1Tile* tile = tiles_.get(request.tile);
  double lost = 1.0;
  double ready_at = 0.0;
  if (tile != nullptr) {
    lost = full_lines(lost_share(tile), request.num_bytes);
    ready_at = larger(request.issued_at, not_before) + input.l1->hit_latency_cycles;
    use(tile, request.num_bytes * lost);
  } else {
    tile = make(request.tile, request.num_bytes);
    tiles_.put(request.tile, tile);
  }
  if (lost != 0.0) {
    tile->is_filling = true;
    tile->asked_at = request.issued_at;
  }
  tile->hit(ready_at, done);
  if (lost == 0.0) return;
  evict();
  request.num_bytes *= lost;
  request.fetched.num_line_requests *= lost;
  request.num_part_requests *= lost;
  crossbar.read(request, tile, nullptr, &places);
}

void L1::store(TileKey key, double num_bytes) {
  if (input.l1->eviction_width_fraction == 0.0) return;
  L1Tile* tile = tiles_.get(key);
  if (tile != nullptr) {
    use(tile, 0.0);
    return;
  }
  make(key, num_bytes)->is_found = false;
  evict();
}

L1Tile* L1::make(TileKey key, double num_bytes) {
  L1Tile* tile = l1_tiles.make();
  tile->key = key;
  tile->num_bytes = num_bytes;
  kept_.append(tile);
  num_bytes_ += num_bytes;
  if (is_full_) used_bytes_ += num_bytes;
  tile->used_at = used_bytes_;
  return tile;
}

// Lines that are there throw out no others: `num_bytes` of the tile come anew.
void L1::use(L1Tile* tile, double num_bytes) {
  kept_.remove(tile);
  kept_.append(tile);
  used_bytes_ += num_bytes;
  tile->used_at = used_bytes_;
}

double L1::lost_share(const L1Tile* tile) const {
  double width = input.l1->eviction_width_fraction;
  if (width == 0.0 || tile->is_filling || !is_full_) return 0.0;
  double half = smaller(input.l1->half_kept_bytes, input.l1->capacity_bytes);
  double beyond = ((used_bytes_ - tile->used_at) / half - 1.0) / width;
  if (beyond < -MOST_LOGITS) return 0.0;
  return 1.0 / (1.0 + exp(-beyond));
}

// Shares of less than a line add up to one: a request waits for L2 only as often as lines are lost.
double L1::full_lines(double lost, double num_bytes) {
  lost_bytes_ += lost * num_bytes;
  if (lost_bytes_ < smaller(num_bytes, LINE_BYTES)) return 0.0;
  double share = smaller(1.0, lost_bytes_ / num_bytes);
  lost_bytes_ -= share * num_bytes;
  return share;
}

void L1::evict() {
  while (num_bytes_ > input.l1->capacity_bytes && kept_.oldest() != nullptr) {
    L1Tile* gone = kept_.oldest();
    is_full_ = true;
    num_bytes_ -= gone->num_bytes;
    kept_.remove(gone);
    if (gone->is_found) tiles_.remove(gone->key);
    gone->is_held = false;
    if (!gone->is_filling) l1_tiles.release(gone);
  }
}

void L1Tile::hit(double ready_at, Completion* done) {
  if (is_filling)
    waiting_.push(Waiter{ready_at, done});
  else
    done->complete(larger(ready_at, done_at));
}

void L1Tile::complete(double cycle) {
  is_filling = false;
  done_at = cycle;
  Vector<Waiter> waiting;
  waiting.swap(waiting_);
  bool is_over = !is_held;
  for (const Waiter& waiter : waiting) waiter.done->complete(larger(waiter.ready_at, cycle));
  if (is_over) l1_tiles.release(this);
}

}  // namespace gpusim
