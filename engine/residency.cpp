// Which tiles are in L2 when they are asked for: as was planned before the run, or found while it runs.
#include "residency.h"

namespace gpusim {

namespace {

// Of the logistic distribution by which a traffic plan loses lines: the middles of eighths, in its widths.
constexpr double LOGITS[Residency::NUM_GROUPS] = {-2.708, -1.466, -0.788, -0.251, 0.251, 0.788, 1.466, 2.708};

// A tensor's value of a wave, those behind the last one's being the last one's; `none` where it has none.
double of_wave(const Table<double>& values, int64_t begin, int64_t num, int32_t wave, double none) {
  return num ? values[uint32_t(begin + (wave < num - 1 ? wave : num - 1))] : none;
}

}  // namespace

bool Residency::loss(const MemoryRequest& request, int32_t last_wave, uint32_t partition, Loss* loss) {
  if (input.launch->has_traffic_plan != 0.0) return planned_loss(request, last_wave, loss);
  return kept_loss(request, partition, loss);
}

double Residency::times_fetched(uint32_t tensor, int32_t wave) const {
  const TensorRecord& record = input.tensors[tensor];
  return of_wave(input.times_fetched, record.times_fetched_begin, record.num_times_fetched, wave, 1.0);
}

double Residency::written_back_fraction(uint32_t tensor, int32_t wave) const {
  const TensorRecord& record = input.tensors[tensor];
  return of_wave(input.written_back, record.written_back_begin, record.num_written_back, wave, 0.0);
}

// ------------------------------------------------------------------------------------------ planned

bool Residency::planned_loss(const MemoryRequest& request, int32_t last_wave, Loss* loss) {
  const TensorRecord& tensor = input.tensors[request.tensor];
  if (last_wave >= request.wave) return false;
  if (!tensor.is_planned) {  // not in the plan (a bias vector): read once from memory
    if (last_wave >= 0) return false;
    for (uint32_t home = 0; home < num_partitions_; home++) {
      loss->memory[home] = 1.0 / num_partitions_;
      loss->crossing[home] = 1.0 - 1.0 / num_partitions_;
    }
    return true;
  }
  const WalkRecord& walk = input.walks[uint32_t(tensor.first_walk)];
  return find(walk, request.tile.panel(), request.wave, last_wave < 0, loss);
}

// What is missing of a panel in a wave; `is_first`: waves before that nobody ran would have fetched it.
bool Residency::find(const WalkRecord& walk, int32_t panel, int32_t wave, bool is_first, Loss* loss) const {
  int64_t group = panel;
  if (walk.num_panels) {
    if (panel < 0 || panel >= walk.num_panels) return false;
    group = input.panel_groups[uint32_t(walk.groups_begin) + uint32_t(panel)];
  }
  if (group < 0 || group >= walk.num_groups) return false;
  uint32_t rows = uint32_t(walk.rows_begin) + uint32_t(group);
  uint32_t begin = uint32_t(input.group_rows[rows]);
  uint32_t end = uint32_t(input.group_rows[rows + 1]);
  uint32_t low = begin;
  uint32_t high = end;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (input.loss_rows[middle].wave < wave)
      low = middle + 1;
    else
      high = middle;
  }
  if (low == end || input.loss_rows[low].wave != wave) {
    if (!is_first || begin == end || input.loss_rows[begin].wave > wave) return false;
    low = begin;
  }
  const LossRowRecord& found = input.loss_rows[low];
  *loss = Loss{{found.memory_0, found.memory_1}, {found.crossing_0, found.crossing_1}, false};
  return true;
}

// ---------------------------------------------------------------------- found while it runs

bool Residency::kept_loss(const MemoryRequest& request, uint32_t partition, Loss* loss) {
  KeptTile* tile = kept_tile(request.tile);
  double share = 1.0 / num_partitions_;
  double of_one = request.num_bytes * share;
  KeptLines* homes = tile->homes;
  KeptLines* copies = tile->copies;
  bool is_known = homes[0].is_held || homes[1].is_held || homes[0].was_evicted || homes[1].was_evicted;
  uint32_t other = num_partitions_ - 1 - partition;
  if (input.launch->is_warm != 0.0 && !is_known) {  // what was there before
    uint32_t storer = input.launch->is_stored != 0.0 ? next_storer() : num_partitions_;
    for (uint32_t each = 0; each < num_partitions_; each++) {
      touch(&homes[each], each, of_one);
      if (num_partitions_ > 1 && (storer == num_partitions_ || each == storer))
        touch(&copies[each], each, of_one);
    }
  }
  bool has_copy = num_partitions_ == 1 || copies[partition].is_held;
  loss->memory[partition] = homes[partition].is_held ? 0.0 : share;
  if (num_partitions_ > 1) loss->memory[other] = has_copy || homes[other].is_held ? 0.0 : share;
  for (uint32_t each = 0; each < num_partitions_; each++)
    loss->crossing[each] = copies[each].is_held ? 0.0 : 1.0 - share;
  touch(&homes[partition], partition, of_one);
  if (num_partitions_ > 1) touch(&copies[partition], partition, of_one);
  if (num_partitions_ > 1) touch(&homes[other], other, of_one);
  loss->is_of_reader = true;
  return !has_copy || loss->memory[partition] != 0.0;
}

void Residency::touch(KeptLines* lines, uint32_t partition, double num_bytes) {
  Kept& kept = kept_[partition][lines->tile->group];
  double unevenness = input.l2->eviction_width_fraction * LOGITS[lines->tile->group];
  double limit = input.launch->partition_bytes / num_groups_ * (1.0 + unevenness);
  double held = 0.0;
  if (lines->is_held) {
    held = lines->held_bytes;
    kept.least_recent.remove(lines);
  }
  lines->held_bytes = larger(held, num_bytes);
  lines->is_held = true;
  kept.least_recent.append(lines);
  kept.num_bytes += lines->held_bytes - held;
  while (kept.num_bytes > limit && kept.least_recent.oldest() != lines) {
    KeptLines* gone = kept.least_recent.oldest();
    kept.least_recent.remove(gone);
    gone->is_held = false;
    gone->was_evicted = true;
    kept.num_bytes -= gone->held_bytes;
    if (gone == &gone->tile->copies[partition]) continue;  // the dirty lines are those at home
    evicted_bytes_ += clean(gone->tile);
  }
}

void Residency::drop_copies(KeptTile* tile, uint32_t partition) {
  KeptLines* copies = &tile->copies[partition];
  if (!copies->is_held) return;
  kept_[partition][tile->group].least_recent.remove(copies);
  copies->is_held = false;
  kept_[partition][tile->group].num_bytes -= copies->held_bytes;
}

Residency::KeptTile* Residency::kept_tile(TileKey key) {
  KeptTile* tile = tiles_.get(key);
  if (tile == nullptr) {
    tile = tile_pool_.make();
    // all groups equally often, and neighbours in no fixed pair
    tile->group = next_group_++ * 5 / 3 % num_groups_;
    for (uint32_t each = 0; each < 2; each++) tile->homes[each].tile = tile->copies[each].tile = tile;
    tiles_.put(key, tile);
  }
  return tile;
}

// ---------------------------------------------------------------------- stores without footprints

double Residency::stored(const MemoryRequest& request, uint32_t partition, double num_bytes) {
  KeptTile* tile = kept_tile(request.tile);
  dirty_bytes_ += make_dirty(tile, request, num_bytes);
  double of_one = larger(tile->dirty_bytes, request.part_bytes) / num_partitions_;
  for (uint32_t each = 0; each < num_partitions_ && input.launch->has_traffic_plan == 0.0; each++)
    touch(&tile->homes[each], each, of_one);
  if (num_partitions_ > 1 && input.launch->has_traffic_plan == 0.0) {
    touch(&tile->copies[partition], partition, of_one);
    drop_copies(tile, 1 - partition);
  }
  double leaving = 0.0;
  while (dirty_bytes_ > input.launch->dirty_bytes && dirty_.oldest() != nullptr)
    leaving += clean(dirty_.oldest());
  return leaving + take_evicted();
}

// Marks a part, and returns how many bytes of it were clean.
double Residency::make_dirty(KeptTile* tile, const MemoryRequest& request, double num_bytes) {
  if (num_bytes <= 0.0) return 0.0;
  Vector<DirtyPart>& parts = tile->parts;
  uint32_t place = parts.size();
  while (place > 0 && parts[place - 1].part > request.part) place--;
  if (place == 0 || parts[place - 1].part != request.part) {
    parts.push(DirtyPart{request.part, 0.0});
    for (uint32_t at = parts.size() - 1; at > place; at--) parts[at] = parts[at - 1];
    parts[place] = DirtyPart{request.part, 0.0};
    place++;
  }
  DirtyPart& part = parts[place - 1];
  double added = smaller(num_bytes, larger(0.0, request.part_bytes - part.num_bytes));
  part.num_bytes += added;
  if (tile->dirty_bytes != 0.0) dirty_.remove(tile);
  tile->dirty_bytes += added;
  if (tile->dirty_bytes != 0.0) dirty_.append(tile);
  return added;
}

double Residency::clean(KeptTile* tile) {
  double leaving = tile->dirty_bytes;
  if (leaving == 0.0) return 0.0;
  dirty_.remove(tile);
  dirty_bytes_ = larger(0.0, dirty_bytes_ - leaving);
  tile->dirty_bytes = 0.0;
  tile->parts.clear();
  return leaving;
}

double Residency::take_evicted() {
  double evicted = evicted_bytes_;
  evicted_bytes_ = 0.0;
  return evicted;
}

}  // namespace gpusim
