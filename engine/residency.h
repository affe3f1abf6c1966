// Which tiles are in L2 when they are asked for: as was planned before the run, or found while it runs.
#pragma once
#include "request.h"

namespace gpusim {

// Decides which reads miss in L2.
// Models:
// * the traffic plan, by panel and wave;
// * without footprints: partitions that keep the lines read or stored last, a tile's together;
// * of such a tile half the lines are at home on each partition; an SM's reads copy those of the other one;
// * lines at home and copies are touched by a read, and leave one without the other;
// * a copy leaves with a store of an SM of the other partition;
// * sets that fill unevenly: groups of tiles with capacities around the mean;
// * dirty lines of tensors without footprints, which are written back as their tile is evicted, or as too
//   many wait, the oldest tile's first;
// * parts of a tile, which ops name (records.py): CTAs that store the same part store the same lines.
// Ignores:
// * the order of requests within a wave.
// Source: the traffic plan, or the capacity of a partition in the GPU's description.
class Residency {
 public:
  static constexpr uint32_t NUM_GROUPS = 8;

  // What of its tile a reader from `partition` does not find; `last_wave`: when it was last looked for (-1:
  // never). False: nothing is missing.
  bool loss(const MemoryRequest& request, int32_t last_wave, uint32_t partition, Loss* loss);
  // How often what is missing of a tensor comes from memory while `wave` runs.
  double times_fetched(uint32_t tensor, int32_t wave) const;
  // What of a tensor leaves L2 while `wave` runs, over what the wave stores to it.
  double written_back_fraction(uint32_t tensor, int32_t wave) const;
  // Takes `num_bytes` of a store from `partition` to a tensor without footprint; returns what leaves L2.
  double stored(const MemoryRequest& request, uint32_t partition, double num_bytes);
  // Dirty bytes that reads have evicted since the last call.
  double take_evicted();
  // The partition of the SM that stored a tile in the launch before.
  uint32_t next_storer() { return uint32_t(storers_.next(GOLDEN) * num_partitions_); }
  bool is_planned(uint32_t tensor) const { return input.tensors[tensor].is_planned != 0; }

 private:
  // Lines of a tile that are kept by use: those at home on a partition, or the copies there of the others.
  struct KeptTile;
  struct KeptLines {
    double held_bytes = 0.0;
    bool is_held = false;
    bool was_evicted = false;
    KeptTile* tile = nullptr;
    KeptLines* older = nullptr;
    KeptLines* newer = nullptr;
  };
  // Dirty bytes of a part of a tile.
  struct DirtyPart {
    double part;
    double num_bytes;
  };
  struct KeptTile {
    KeptLines homes[2];  // by partition
    KeptLines copies[2];
    Vector<DirtyPart> parts;  // in ascending order
    double dirty_bytes = 0.0;
    uint32_t group = 0;  // of sets, which fill independently of others
    KeptTile* older = nullptr;
    KeptTile* newer = nullptr;
  };

  // What a partition keeps, that which was used last at the end.
  struct Kept {
    LinkedList<KeptLines> least_recent;
    double num_bytes = 0.0;
  };

  bool planned_loss(const MemoryRequest& request, int32_t last_wave, Loss* loss);
  bool find(const WalkRecord& walk, int32_t panel, int32_t wave, bool is_first, Loss* loss) const;
  bool kept_loss(const MemoryRequest& request, uint32_t partition, Loss* loss);
  void touch(KeptLines* lines, uint32_t partition, double num_bytes);
  void drop_copies(KeptTile* tile, uint32_t partition);
  KeptTile* kept_tile(TileKey key);
  double make_dirty(KeptTile* tile, const MemoryRequest& request, double num_bytes);
  // Its dirty lines leave.
  double clean(KeptTile* tile);

  Map<TileKey, KeptTile> tiles_;
  Pool<KeptTile> tile_pool_;
  Kept kept_[2][NUM_GROUPS];
  LinkedList<KeptTile> dirty_;
  double dirty_bytes_ = 0.0;
  uint32_t next_group_ = 0;
  double evicted_bytes_ = 0.0;  // dirty ones, of tiles
  Sequence storers_;
  const uint32_t num_partitions_ = uint32_t(input.l2->num_partitions);
  const uint32_t num_groups_ = input.l2->eviction_width_fraction > 0.0 ? NUM_GROUPS : 1;
};

}  // namespace gpusim
