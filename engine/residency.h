// Which tiles are in L2 when they are asked for: as was planned before the run, or found while it runs.
#pragma once
#include "request.h"

namespace gpusim {

// Decides which reads miss in L2.
// Models:
// * the traffic plan, by panel and wave;
// * without footprints: partitions that keep the tiles read or stored last, entire where an SM touches them;
// * half of such a tile has its home on the other partition;
// * dirty lines of tensors without footprints, which are written back as their tile is evicted, or as too
//   many wait, the oldest tile's first;
// * parts of a tile, which ops name (records.py): CTAs that store the same part store the same lines.
// Ignores:
// * sets; the order of requests within a wave.
// Source: the traffic plan, or the capacity of a partition in the GPU's description.
class Residency {
 public:
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
  bool is_planned(uint32_t tensor) const { return input.tensors[tensor].is_planned != 0; }

 private:
  // A tile where lines are kept by use, on one partition.
  struct KeptTile;
  struct PartitionLines {
    double held_bytes = 0.0;
    bool is_held = false;
    bool is_copied = false;
    bool was_evicted = false;
    KeptTile* tile = nullptr;
    PartitionLines* older = nullptr;
    PartitionLines* newer = nullptr;
  };
  // Dirty bytes of a part of a tile.
  struct DirtyPart {
    double part;
    double num_bytes;
  };
  struct KeptTile {
    PartitionLines partitions[2];
    Vector<DirtyPart> parts;  // in ascending order
    double dirty_bytes = 0.0;
    KeptTile* older = nullptr;
    KeptTile* newer = nullptr;
  };

  // Tiles that a partition keeps, the one that was used last at the end.
  struct Kept {
    LinkedList<PartitionLines> least_recent;
    double num_bytes = 0.0;
  };

  bool planned_loss(const MemoryRequest& request, int32_t last_wave, Loss* loss);
  bool find(const WalkRecord& walk, int32_t panel, int32_t wave, bool is_first, Loss* loss) const;
  bool kept_loss(const MemoryRequest& request, uint32_t partition, Loss* loss);
  void touch(PartitionLines* lines, Kept& kept, double num_bytes, bool is_home);
  KeptTile* kept_tile(TileKey key);
  double make_dirty(KeptTile* tile, const MemoryRequest& request, double num_bytes);
  // Its dirty lines leave.
  double clean(KeptTile* tile);

  Map<TileKey, KeptTile> tiles_;
  Pool<KeptTile> tile_pool_;
  Kept kept_[2];
  LinkedList<KeptTile> dirty_;
  double dirty_bytes_ = 0.0;
  double evicted_bytes_ = 0.0;  // dirty ones, of tiles
  const uint32_t num_partitions_ = uint32_t(input.l2->num_partitions);
};

}  // namespace gpusim
