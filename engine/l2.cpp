// The L2 cache: which tile is resident, which is being filled, what a request waits for.
#include "l2.h"

#include "machine.h"
#include "numeric.h"
#include "order_statistics.h"

namespace gpusim {

namespace {

// what may lie on one partition alone; kernels/line_sharing, h200_sxm
constexpr double PARTITION_BYTES = 256.0;
constexpr double CERTAIN = 1e-3;   // a chance below is none, one above 1 less this a certainty
constexpr double FEW_ROWS = 10.0;  // of a request, whose queue hides behind what is far or refreshed

// That any of the lines of `num_bytes` is among a share of all.
double chance_of(double share, double num_bytes) {
  return 1.0 - power(1.0 - share, larger(1.0, num_bytes / LINE_BYTES));
}

}  // namespace

L2::L2() {
  uint32_t num_links = uint32_t(input.l2->num_links);
  uint32_t link = 0;
  for (uint32_t partition = 0; partition < input.partitions.size && link < num_links; partition++)
    if (input.partitions[partition].fabric_bytes_per_cycle > 0.0)
      links_[link++].init(input.partitions[partition].fabric_bytes_per_cycle);
}

double L2::spread_cycles(double num_lines) const {
  return num_lines > 1.0 ? input.l2->slice_spread_cycles * (num_lines - 1.0) / (num_lines + 1.0) : 0.0;
}

double L2::held_cycles(const TileState* tile, double latency_cycles, double asked_at) const {
  double latency = smaller(latency_cycles, mean_latency_cycles_);
  if (tile->is_filling) return latency + input.hbm->latency_cycles;
  return latency + larger(0.0, tile->done_at - asked_at);
}

bool L2::was_coming(TileKey key, double issued_at) const {
  const TileState* tile = tiles_.get(key);
  return tile != nullptr && (tile->is_filling || tile->done_at > issued_at);
}

double L2::link_busy_cycles() const {
  double most = 0.0;
  for (uint32_t link = 0; link < uint32_t(input.l2->num_links); link++)
    most = larger(most, links_[link].busy_cycles());
  return most;
}

// ------------------------------------------------------------------------------------------ reads

TileState* L2::look_up(const MemoryRequest& request, uint32_t partition) {
  TileState* tile = tiles_.get(request.tile);
  if (tile == nullptr) {
    tile = tile_pool_.make();
    tile->key = request.tile;
    tiles_.put(request.tile, tile);
    if (input.tensors[request.tensor].has_own_panels) request.own_tiles->push(tile);
  }
  Loss loss;
  bool is_missing = residency_.loss(request, tile->wave, partition, &loss);
  double evicted = residency_.take_evicted();
  if (evicted != 0.0) {
    counters.l2.unplanned_write_back_bytes += evicted;
    write_back(evicted, request.tensor, nullptr);
  }
  if (!is_missing && input.launch->is_stored != 0.0 && tile->wave < 0 &&
      residency_.is_planned(request.tensor)) {
    tile->wave = request.wave;
    tile->is_of_launch_before = tile->has_loss = true;
    tile->loss = Loss{{0.0, 0.0}, {input.l2->far_share, input.l2->far_share}, false};
    tile->partitions = uint8_t(1u << residency_.next_storer());
  }
  if (tile->is_filling && loss.is_of_reader && loss.crossing[partition] > 0.0) {
    tile->partitions &= uint8_t(~(1u << partition));  // its copy has left, or was never there
    tile->loss.crossing[partition] = loss.crossing[partition];
  }
  if (!is_missing || tile->is_filling) return tile;
  if (!residency_.is_planned(request.tensor))
    counters.l2.unplanned_crossing_miss_bytes += loss.memory[1 - partition] * request.num_bytes;
  tile->wave = request.wave;
  tile->has_loss = true;
  tile->is_of_launch_before = false;
  tile->loss = loss;
  tile->missed = 0.0;
  double share = loss.memory[0] + loss.memory[1];
  bool is_whole = share >= 1.0 - CERTAIN;
  tile->partitions = loss.is_of_reader && !is_whole ? uint8_t(tile->partitions & ~(1u << partition)) : 0;
  if (share <= CERTAIN) return tile;
  if (!is_whole) {
    double chance = chance_of(share, request.num_bytes);
    if (chance < 1.0 - CERTAIN) {
      tile->missed = draws_.next(GOLDEN);
      if (tile->missed >= chance) return tile;
      share /= chance;
    }
  }
  double missed_sectors = counters.l2.miss_sectors;
  fill(request, tile, share);
  for (uint32_t place = 0; place < request.num_neighbours; place++) {
    MemoryRequest neighbour{static_cast<const TileRequest&>(request)};
    int32_t panel = request.panels[request.neighbours[2 * place]];
    neighbour.tile = TileKey::of(request.tensor, panel, request.neighbours[2 * place + 1]);
    look_up(neighbour, partition);
  }
  bool is_promoted = request.num_neighbours > 0 || request.new_fraction < 1.0;
  if (is_promoted && request.num_bytes >= LINE_BYTES * request.num_rows)
    counters.l2.promoted_sectors += counters.l2.miss_sectors - missed_sectors;
  return tile;
}

void L2::forget(TileState* tile) {
  tiles_.remove(tile->key);
  tile->is_forgotten = true;
  release_if_unused(tile);
}

void L2::release_if_unused(TileState* tile) {
  if (tile->is_forgotten && !tile->num_uses && !tile->is_filling) tile_pool_.release(tile);
}

// Fetches that part of a request's lines from memory.
void L2::fill(const MemoryRequest& request, TileState* tile, double share) {
  tile->is_filling = true;
  tile->asked.clear();  // who asked for what has left since is no neighbour
  const TensorRecord& tensor = input.tensors[request.tensor];
  double num_bytes = request.num_bytes * share;
  double times = residency_.times_fetched(request.tensor, request.wave);
  counters.l2.miss_sectors += num_bytes * times / SECTOR_BYTES;
  if (!residency_.is_planned(request.tensor)) counters.l2.unplanned_miss_bytes += num_bytes;
  double paid = num_bytes * tensor.fetch_scale;
  double num_refreshed = num_bytes / input.hbm->refresh_granularity_bytes;
  double num_rows = larger(larger(request.num_rows * share * request.new_fraction, num_refreshed), 1.0);
  bool are_apart = request.num_rows > 1.0 || (tensor.piece_bytes > 0.0 && tensor.are_pieces_anywhere);
  double place = hbm.waits.next(PLASTIC);
  bool is_many = request.num_bytes > PARTITION_BYTES;
  double spread = is_many && num_rows >= FEW_ROWS ? hbm.spread_cycles() : 0.0;
  double batch_scale = request.batch_scale;
  L2Fill* done = fills_.make();
  done->tile = tile;
  done->waits = waits_of(num_rows * batch_scale, paid, are_apart, is_many, place, 0.0);
  done->part_waits = done->waits;
  if (request.num_warps > 1) {
    double parts = request.num_warps;
    done->part_waits = waits_of(larger(1.0, num_rows / parts) * batch_scale, paid, are_apart, is_many, -1.0,
                                paid / parts * batch_scale);
  }
  done->earliest = request.issued_at + paid / hbm.wire.alone();
  done->latency_cycles = input.hbm->latency_cycles + spread;
  hbm.fill(paid, done, request, tensor.piece_bytes, request.num_part_requests * share, times);
}

// What the last of `num_rows` waits for, which are `num_bytes` or the `part_bytes` that one warp waits for.
FillWaits L2::waits_of(double num_rows, double num_bytes, bool are_apart, bool is_many, double place,
                       double part_bytes) const {
  double far = is_many ? input.l2->far_latency_cycles - mean_latency_cycles_ : 0.0;
  double waited = part_bytes != 0.0 ? part_bytes : num_bytes;
  double refreshed = hbm.refresh_cycles(num_rows, waited / hbm.wire.alone());
  double uneven = hbm.uneven_cycles(num_bytes, place, are_apart, waited);
  double queued;
  if (num_rows < FEW_ROWS) {
    double lines = larger(larger(num_rows, waited / PARTITION_BYTES), 1.0);
    queued = larger(0.0, hbm.queue_cycles(lines) - larger(refreshed, far));
  } else {
    queued = hbm.busy_cycles(num_rows);
  }
  double in_one = input.hbm->channel_bytes;
  double mixed = hbm.mixed_cycles(are_apart || in_one == 0.0 ? num_rows : waited / in_one);
  if (mixed > queued) queued = mixed;
  // lines that are far, that wait for a refresh and that find long queues are seldom the same, and the
  // fullest channel seldom is where a refresh takes longest
  return FillWaits{queued, hypot(uneven, refreshed) - refreshed, larger(0.0, refreshed - far)};
}

double L2::reach(const MemoryRequest& request, TileState* tile, uint32_t partition, double* across_at) {
  *across_at = 0.0;
  double near = input.l2->near_latency_cycles;
  double far = input.l2->far_latency_cycles;
  if (near == far || tile->wave < 0) return near;
  uint8_t bit = uint8_t(1u << partition);
  bool is_many = request.num_bytes > PARTITION_BYTES;
  if (tile->partitions & bit) {
    if (tile->is_there_at(request.issued_at) && tile->copied_at <= request.issued_at) return near;
    *across_at = tile->copied_at;
    return is_many ? far : mean_latency_cycles_;
  }
  tile->partitions |= bit;
  double far_share = input.l2->far_share;
  double share = tile->has_loss ? tile->loss.crossing[partition] : far_share;
  double place = tile->missed;
  tile->missed = 0.0;
  double crossing;
  double latency;
  if (share >= far_share - CERTAIN && place == 0.0) {
    crossing = share * request.num_bytes;
    latency = is_many ? far : mean_latency_cycles_;
  } else if (share <= CERTAIN) {
    return near;
  } else {
    double chance = chance_of(share, request.num_bytes);
    double begin =
        tile->loss.memory[partition] * (1.0 - chance) / (1.0 - share);  // lines at home here come first
    double drawn = place != 0.0 ? place : draws_.next(GOLDEN);
    if (!(begin <= drawn && drawn < begin + chance)) return near;
    crossing = share * request.num_bytes / chance;
    latency = far;
  }
  if (tile->is_of_launch_before || !residency_.is_planned(request.tensor))
    counters.l2.unplanned_crossing_bytes += crossing;
  if (tile->is_filling) {  // what comes from memory crosses when it has come
    tile->crossings.push(FillCrossing{partition, crossing, request.num_warps});
    return latency;
  }
  double since = larger(request.issued_at, tile->began_at + input.hbm->latency_cycles);
  double part_at;
  tile->copied_at = read_across(partition, crossing, since, 1, &part_at);
  *across_at = tile->copied_at;
  return latency;
}

double L2::read_across(uint32_t partition, double num_bytes, double at_cycle, int32_t num_warps,
                       double* part_at) {
  L2Link& link = links_[partition % uint32_t(input.l2->num_links)];
  double deviation;
  double crossed_at = link.read(num_bytes, at_cycle, &deviation);
  double last_at = crossed_at + link.late_cycles(num_bytes, deviation);
  *part_at = num_warps == 1 ? last_at : crossed_at + link.late_cycles(num_bytes / num_warps, deviation);
  return last_at;
}

// ------------------------------------------------------------------------------------------ fills that end

void L2Fill::begun(double cycle) {
  began_ = cycle;
  tile->began_at = cycle;
}

void L2Fill::complete(double cycle) {
  passed_at_ = cycle;
  double wait = began_ + input.hbm->latency_cycles - agenda.cycle;
  if (!tile->crossings.empty() && wait > 0.0)
    agenda.later(wait, this, 0);
  else
    act(0);
}

double L2Fill::come_at(double crossed_at, const FillWaits& of) const {
  double come_at = larger(passed_at_ + of.uneven_cycles, earliest + of.queued_cycles);
  return larger(come_at + of.refresh_cycles + latency_cycles, crossed_at);
}

void L2Fill::act(uint8_t) {
  double crossed_at = 0.0;
  double part_crossed_at = 0.0;
  double since = began_ + input.hbm->latency_cycles;
  for (const FillCrossing& crossing : tile->crossings) {
    double part_at;
    tile->copied_at =
        l2.read_across(crossing.partition, crossing.num_bytes, since, crossing.num_warps, &part_at);
    crossed_at = larger(crossed_at, tile->copied_at);
    part_crossed_at = larger(part_crossed_at, part_at);
  }
  tile->crossings.clear();
  double done_at = come_at(crossed_at, waits);
  double part_at = smaller(done_at, come_at(part_crossed_at, part_waits));
  tile->is_filling = false;
  tile->done_at = done_at;
  tile->part_at = part_at;
  Vector<FillWaiter> waiting;
  waiting.swap(tile->waiting);
  TileState* filled = tile;
  l2.fills_.release(this);
  for (const FillWaiter& waiter : waiting) {
    double come_at = larger(waiter.ready_at, done_at);
    if (waiter.by_warps != nullptr) {
      double last_at = come_at;
      come_at = larger(waiter.ready_at, part_at);
      waiter.by_warps->late_cycles = last_at - come_at;
    }
    waiter.done->complete(come_at + waiter.latency_cycles);
  }
  l2.release_if_unused(filled);
}

// ------------------------------------------------------------------------------------------ stores

double L2::cross(double num_bytes, uint32_t partition, double at_cycle, double* last_at) {
  uint32_t num_links = uint32_t(input.l2->num_links);
  *last_at = 0.0;
  if (!num_links) return 0.0;
  L2Link& link = links_[(partition + 1) % num_links];
  double crossing = input.l2->far_share * num_bytes;
  double deviation;
  double across_at = link.store(crossing, at_cycle, &deviation);
  *last_at = across_at + link.late_cycles(crossing, deviation);
  return across_at;
}

Completion* L2::store(const MemoryRequest& request, Completion* done, double num_distinct_bytes,
                      StoreKind kind) {
  double num_sectors = request.num_bytes / SECTOR_BYTES;
  (kind == StoreKind::ST     ? counters.l2.write_sectors
   : kind == StoreKind::ATOM ? counters.l2.atom_sectors
                             : counters.l2.red_sectors) += num_sectors;
  double leaving;
  if (residency_.is_planned(request.tensor)) {
    leaving = num_distinct_bytes * residency_.written_back_fraction(request.tensor, request.wave);
  } else {
    uint32_t partition = uint32_t(input.sms[request.sm].partition);
    leaving = residency_.stored(request, partition, num_distinct_bytes);
    if (TileState* tile = tiles_.get(request.tile)) tile->partitions |= uint8_t(1u << partition);
    counters.l2.unplanned_write_back_bytes += leaving;
  }
  return leaving != 0.0 ? write_back(leaving, request.tensor, done) : done;
}

// Sends dirty lines to memory. A store (`done`) that finds the queue full waits for them.
Completion* L2::write_back(double leaving, uint32_t tensor, Completion* done) {
  backlog_bytes_ += leaving;
  bool is_full = backlog_bytes_ > input.l2->write_back_queue_bytes;
  WriteBack* write = writes_.make();
  write->num_bytes = leaving;
  write->moved_bytes = hbm.write_back(leaving, write, input.tensors[tensor].piece_bytes);
  if (!is_full || done == nullptr) return done;
  AsyncGroup* both = AsyncGroup::make(nullptr);
  both->on_complete.push(done);
  write->both = both->add();
  both->num_pending++;  // of the store itself, which has the first reference
  return both;
}

void WriteBack::complete(double cycle) {
  hbm.has_moved(moved_bytes, 0.0, num_bytes);
  l2.backlog_bytes_ -= num_bytes;
  if (both != nullptr) both->complete(cycle);
  l2.writes_.release(this);
}

void L2::fetch_reduced(uint32_t tensor, double num_bytes) {
  if (input.launch->is_warm != 0.0 || !residency_.is_planned(tensor)) return;
  ReducedFill* fill = reduced_.make();
  fill->num_bytes = num_bytes;
  counters.l2.unplanned_miss_bytes += num_bytes;
  counters.l2.miss_sectors += num_bytes / SECTOR_BYTES;
  hbm.read_behind(num_bytes, fill);
}

void ReducedFill::complete(double) {
  hbm.has_moved(num_bytes, num_bytes, 0.0);
  l2.reduced_.release(this);
}

// ------------------------------------------------------------------------------------------ links

double L2Link::read(double num_bytes, double at_cycle, double* deviation) {
  if (at_cycle > pipe_.free_at) read_bytes_ = 0.0;
  read_bytes_ += num_bytes;
  return pass(num_bytes, num_bytes, at_cycle, deviation);
}

double L2Link::store(double num_bytes, double at_cycle, double* deviation) {
  double read = at_cycle > pipe_.free_at ? 0.0 : read_bytes_;
  double beside = smaller(num_bytes, read);
  read_bytes_ = read - beside;
  double taken = num_bytes + input.l2->fabric_turnaround_fraction * beside;
  return pass(num_bytes, taken, at_cycle, deviation);
}

double L2Link::late_cycles(double num_bytes, double deviation) const {
  double lines = num_bytes / LINE_BYTES;
  if (lines <= 1.0 || deviation == 0.0) return 0.0;
  return expected_max(int(rounded(smaller(lines, input.l2->num_lanes)))) * deviation;
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
