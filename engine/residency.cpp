// Which tiles are in L2 when they are asked for: as was planned before the run, or found while it runs.
#include "residency.h"

namespace gpusim {

void Residency::init() { num_partitions_ = uint32_t(input.l2->num_partitions); }

bool Residency::loss(const MemoryRequest& request, int32_t last_wave, uint32_t partition, Loss* loss) {
  if (input.launch->has_traffic_plan != 0.0) return planned_loss(request, last_wave, loss);
  return kept_loss(request, partition, loss);
}

double Residency::times_fetched(uint32_t tensor, int32_t wave) const {
  const TensorRecord& record = input.tensors[tensor];
  if (!record.num_times_fetched) return 1.0;
  int64_t last = record.num_times_fetched - 1;
  return input.times_fetched[uint32_t(record.times_fetched_begin + (wave < last ? wave : last))];
}

double Residency::written_back_fraction(uint32_t tensor, int32_t wave) const {
  const TensorRecord& record = input.tensors[tensor];
  if (!record.num_written_back) return 0.0;
  int64_t last = record.num_written_back - 1;
  return input.written_back[uint32_t(record.written_back_begin + (wave < last ? wave : last))];
}

// ------------------------------------------------------------------------------------------ planned

bool Residency::planned_loss(const MemoryRequest& request, int32_t last_wave, Loss* loss) {
  const TensorRecord& tensor = input.tensors[request.tensor];
  if (last_wave >= request.wave) return tensor.num_walks > 1 && loss_again(request, loss);
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

// A second or later walk over its panel, within a wave.
bool Residency::loss_again(const MemoryRequest& request, Loss* loss) {
  const TensorRecord& tensor = input.tensors[request.tensor];
  Walked* walked = walked_.get(request.tile);
  if (walked == nullptr) {
    walked = walked_pool_.make();
    walked_.put(request.tile, walked);
  }
  if (walked->num + 1 >= uint32_t(tensor.num_walks)) return false;
  const WalkRecord& walk = input.walks[uint32_t(tensor.first_walk) + 1 + walked->num];
  walked->num++;
  return find(walk, request.tile.panel(), request.wave, false, loss);
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
  const LossRowRecord* found = nullptr;
  uint32_t low = begin;
  uint32_t high = end;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (input.loss_rows[middle].wave < wave)
      low = middle + 1;
    else
      high = middle;
  }
  if (low < end && input.loss_rows[low].wave == wave)
    found = &input.loss_rows[low];
  else if (is_first && begin < end && input.loss_rows[begin].wave <= wave)
    found = &input.loss_rows[begin];
  if (found == nullptr) return false;
  loss->memory[0] = found->memory_0;
  loss->memory[1] = found->memory_1;
  loss->crossing[0] = found->crossing_0;
  loss->crossing[1] = found->crossing_1;
  return true;
}

// ---------------------------------------------------------------------- found while it runs

bool Residency::kept_loss(const MemoryRequest& request, uint32_t partition, Loss* loss) {
  KeptTile* tile = kept_.get(request.tile);
  if (tile == nullptr) {
    tile = kept_pool_.make();
    tile->key = request.tile;
    kept_.put(request.tile, tile);
  }
  double share = 1.0 / num_partitions_;
  bool is_anywhere = tile->is_held[0] || tile->is_held[1];
  if (input.launch->is_warm != 0.0 && !tile->was_evicted && !is_anywhere) {
    for (uint32_t each = 0; each < num_partitions_; each++)  // both have what was there before
      touch(tile, each, request.num_bytes, false);
    return false;
  }
  bool has_copy = tile->is_copied[partition];
  for (uint32_t each = 0; each < num_partitions_; each++) {
    loss->memory[each] = tile->is_held[each] ? 0.0 : share;
    loss->crossing[each] = 1.0 - share;
  }
  if (!has_copy) {
    for (uint32_t other = 0; other < num_partitions_; other++)
      if (other != partition) touch(tile, other, request.num_bytes * share, true);
  }
  touch(tile, partition, request.num_bytes, false);
  loss->is_of_reader = true;
  return !has_copy;
}

void Residency::unlink(KeptTile* tile, uint32_t partition) {
  KeptTile* older = tile->older[partition];
  KeptTile* newer = tile->newer[partition];
  if (older != nullptr)
    older->newer[partition] = newer;
  else
    oldest_[partition] = newer;
  if (newer != nullptr)
    newer->older[partition] = older;
  else
    newest_[partition] = older;
  tile->older[partition] = nullptr;
  tile->newer[partition] = nullptr;
  tile->is_held[partition] = false;
  num_tiles_[partition]--;
}

void Residency::touch(KeptTile* tile, uint32_t partition, double num_bytes, bool is_home) {
  double held = 0.0;
  if (tile->is_held[partition]) {
    held = tile->held_bytes[partition];
    unlink(tile, partition);
  }
  if (!is_home) tile->is_copied[partition] = true;
  double kept = is_home ? larger(held, num_bytes) : num_bytes;
  tile->held_bytes[partition] = kept;
  tile->is_held[partition] = true;
  tile->older[partition] = newest_[partition];
  if (newest_[partition] != nullptr)
    newest_[partition]->newer[partition] = tile;
  else
    oldest_[partition] = tile;
  newest_[partition] = tile;
  num_tiles_[partition]++;
  num_bytes_[partition] += kept - held;
  while (num_bytes_[partition] > input.launch->side_bytes && num_tiles_[partition] > 1) {
    KeptTile* gone = oldest_[partition];
    unlink(gone, partition);
    gone->is_copied[partition] = false;
    gone->was_evicted = true;
    num_bytes_[partition] -= gone->held_bytes[partition];
  }
}

}  // namespace gpusim
