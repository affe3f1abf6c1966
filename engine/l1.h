// The L1 cache and its load/store unit, as one SM sees them.
#pragma once
#include "request.h"

namespace gpusim {

// A tile in L1: when its last byte is there, and who waits for that.
class L1Tile : public Completion {
 public:
  TileKey key;
  double num_bytes = 0.0;
  double asked_at = 0.0;
  double done_at = 0.0;
  double used_at = 0.0;  // what the SM had used of L1 by then, for the last time
  bool is_filling = false;
  bool is_held = true;   // in the cache: not evicted yet
  bool is_found = true;  // by loads: not of a store
  L1Tile* older = nullptr;
  L1Tile* newer = nullptr;

  // A hit that has its data at `ready_at`, or when the fill is complete.
  void hit(double ready_at, Completion* done);
  void complete(double cycle) override;

 private:
  struct Waiter {
    double ready_at;
    Completion* done;
  };
  Vector<Waiter> waiting_;
};

// When an access begins and ends to pass the load/store unit.
struct Passage {
  double begin;
  double end;
};

// Models:
// * one unit that takes instructions in order, each for as long as the slower of tags and data stage;
// * cp.async passes for longer than a load, a miss with a part of its wavefronts; commits pass, too;
// * behind it a queue of the rows of tiles that cp.async copies around L1;
// * hit latency; a hit on a line that is still being filled waits for the fill;
// * tiles that stay (least recently used leave); what stores take of it, where lines are lost one by one;
// * once it is full, the share of a tile's lines that is lost by what was used since;
// * the bytes that may be under way to it at once; a queue of stores while their warps go on.
// Ignores:
// * sets, partial lines, the time of a batch of many hits beyond its first.
// Source: the GPU's description; lines on their way: kernels/load_loops, h200_sxm, 2026-11-23; lines that are
// lost: kernels/row_rereads, h200_sxm, 2026-11-29.
class L1 {
 public:
  // For bytes that were asked for and are not there: a unit is a byte for a cycle.
  Pipe places{input.l1->outstanding_bytes};
  Pipe unit;
  Pipe noted;  // loads that wait, or not, for their lines
  Pipe row_stage;
  double rows_taken_at = 0.0;  // when the last copies around L1 are all in that stage or its queue

  // Passes an access through the unit; `more_cycles` come on top of tags and data. It takes `least_cycles`.
  Passage accept(double num_requests, double num_lines, double num_wavefronts, double at_cycle,
                 double more_cycles, double least_cycles = 0.0);
  // Notes loads of a tile asked for at `at_cycle`; returns when the last is noted.
  double wait_for_lines(TileKey key, double num_requests, double since, double at_cycle);
  // Passes rows of a tile on their way around L1; returns when the last has.
  double accept_rows(double num_rows, double at_cycle);
  // How long before the end of copies around L1, which take `cycles`, their warps go on.
  double copy_lead_cycles(double num_copies, double cycles) const;
  // Takes space for `num_bytes` that are stored; loads do not find them there.
  void store(TileKey key, double num_bytes);
  bool holds(TileKey key) const { return tiles_.get(key) != nullptr; }
  // Fetches through L1; `done` is told when the registers have the data.
  void read(MemoryRequest& request, Completion* done, bool allocates, double not_before, bool is_copy);

  // How long before the end of stores their warps go on, where serving them takes `cycles`.
  static double posted_cycles(double cycles, double num_requests, double num_bytes, double num_schedulers);
  // Places of the store queue for all warps, in instructions of `num_bytes / num_requests`.
  static double shared_places(double num_requests, double num_bytes);

 private:
  Map<TileKey, L1Tile> tiles_;
  LinkedList<L1Tile> kept_;  // the one that was used last at the end
  double num_bytes_ = 0.0;
  double used_bytes_ = 0.0;
  double lost_bytes_ = 0.0;  // lost, and not yet asked for again
  bool is_full_ = false;     // something has left: before that nothing is lost

  // A new tile, used last, which nobody finds yet.
  L1Tile* make(TileKey key, double num_bytes);
  void use(L1Tile* tile, double num_bytes);
  // Lets those leave that were used longest ago and are too many.
  void evict();
  // What share of a tile is gone since it was used last.
  double lost_share(const L1Tile* tile) const;
  double full_lines(double lost, double num_bytes);
};

}  // namespace gpusim
