// The L2 cache: which tile is resident, which is being filled, what a request waits for.
#pragma once
#include "hbm.h"
#include "residency.h"

namespace gpusim {

class AsyncGroup;

// What goes into one partition from the other: lines that its SMs read there, and the other SMs' stores.
// Models:
// * order of arrival;
// * stores that take more of it beside reads, as many bytes of them as have crossed since it was idle;
// * a lane for each slice, which lines fall on as if drawn: the last of a transfer waits for the fullest
//   lane.
// Ignores:
// * why stores take more beside reads; that lanes are busy yet when the mean one is idle;
// * turns of reads and stores; requests and headers of reads.
// Source: kernels/side_bursts, h200_sxm, 2026-11-28; lanes: as many as slices of a partition, inferred.
class L2Link {
 public:
  void init(double bytes_per_cycle) { pipe_.rate = bytes_per_cycle; }

  // Passes what an SM reads. Returns when so much has passed with even lanes; `deviation` of lanes in cycles.
  double read(double num_bytes, double at_cycle, double* deviation);
  // The same of what an SM stores.
  double store(double num_bytes, double at_cycle, double* deviation);
  // How much later than with even lanes the last line of `num_bytes` has passed.
  double late_cycles(double num_bytes, double deviation) const;
  double busy_cycles() const { return pipe_.busy_cycles; }

 private:
  double pass(double num_bytes, double taken_bytes, double at_cycle, double* deviation);

  GapPipe pipe_{1.0, INFINITE};
  double read_bytes_ = 0.0;     // since it was idle, reads that no store has met
  double crossed_bytes_ = 0.0;  // all that it has passed since it was idle
};

// Cycles that a line waits: in its queue, from when it could pass; at a fuller channel than others, from when
// the last byte has; for a refresh, from there.
struct FillWaits {
  double queued_cycles;
  double uneven_cycles;
  double refresh_cycles;
};

// What happens when a fill's last byte has passed the HBM wire, and what the last of its lines waits for
// besides. Lines of the other partition cross when memory has given them, a latency after they began to pass
// the wire.
class L2Fill : public Completion, public Action {
 public:
  TileState* tile = nullptr;
  double earliest = 0.0;
  FillWaits waits = {};
  FillWaits part_waits = {};
  double latency_cycles = 0.0;

  void begun(double cycle);
  void complete(double cycle) override;
  // Lines begin to cross: when all are there is known now.
  void act(uint8_t what) override;

 private:
  double come_at(double crossed_at, const FillWaits& waits) const;

  double began_ = 0.0;
  double passed_at_ = 0.0;
};

// Dirty lines on their way to memory; a store that found the write-back queue full is complete when both it
// and its write-back are.
class WriteBack : public Completion {
 public:
  AsyncGroup* both = nullptr;  // complete when both are; none where the store does not wait
  double num_bytes = 0.0;
  double moved_bytes = 0.0;  // of the wire's time

  // The last byte is in memory.
  void complete(double cycle) override;
};

// Lines from memory that a TMA reduction changes in L2.
class ReducedFill : public Completion {
 public:
  double num_bytes = 0.0;

  void complete(double cycle) override;
};

// Tags, fills and the fabric between the partitions; the slices' rate is the crossbar's business.
// Models:
// * first touch, and hits on a line that is still being filled, which wait for the fill;
// * residency by what was touched in between; lines leave one by one (residency.h);
// * lines that TMA reductions change come from memory, unless L2 was warm; nobody waits for them;
// * write-back of what does not stay; stores wait dirty up to a limit, beyond which the oldest are written
//   back;
// * near and far latency: a partition's first read of a tile crosses for lines at home on the other one;
// * what crosses takes its turn on a link each way (L2Link), half of all stores among it;
// * a tile of many lines waits for the farthest slice;
// * tiles that come along with one that is missing, as the instruction or tensor map asks (L2 promotion);
// * warps that load together wait for the slowest line of their own; the last of them counts where they meet.
// Ignores:
// * sets and the hash of addresses over slices, but for the spread;
// * fills by stores to part of a sector; hints beside what earlier launches left;
// * that what comes late of a fill crosses late.
// Source: the GPU's description.
class L2 {
 public:
  L2();

  // The state of the tile that is asked for from `partition`; lines that are missing start a fill.
  TileState* look_up(const MemoryRequest& request, uint32_t partition);
  // The latency of a request's farthest line; `across_at`: when what lies on the other partition has come.
  double reach(const MemoryRequest& request, TileState* tile, uint32_t partition, double* across_at);
  // What the last of `num_lines` takes beyond the mean: slices lie evenly between nearest and farthest.
  double spread_cycles(double num_lines) const;
  // How long a line of `tile` is on its way where nobody else asks; `latency_cycles`: of its farthest line.
  double held_cycles(const TileState* tile, double latency_cycles, double asked_at) const;
  // Whether the tile of an answered request was on its way from memory, or not yet, when it was asked for.
  bool was_coming(TileKey tile, double issued_at) const;
  // Takes a store; what will not stay goes on to memory. Returns whom to tell when it has left its SM.
  Completion* store(const MemoryRequest& request, Completion* done, double num_distinct_bytes,
                    StoreKind kind);
  // Lines of a tensor with a footprint that a TMA reduction changes come from memory.
  void fetch_reduced(uint32_t tensor, double num_bytes);
  // When a store from `partition` has crossed: from when the next can follow, and its last line.
  double cross(double num_bytes, uint32_t partition, double at_cycle, double* last_at);
  // When what `partition` reads has crossed to it: all of it, and a mean one of `num_warps`.
  double read_across(uint32_t partition, double num_bytes, double at_cycle, int32_t num_warps,
                     double* part_at);

  // Nobody asks for a tile any more: it is given back once nothing refers to it.
  void forget(TileState* tile);
  void release_if_unused(TileState* tile);

  double link_busy_cycles() const;
  double hit_latency_cycles() const { return input.l2->far_latency_cycles; }
  // Extra latency of a line that a CTA has made, over the mean line. Half of the CTAs have theirs on each
  // partition, in a slice that is more or less far.
  double farther_cycles(int32_t cta_idx, uint32_t sm) const {
    double across = input.l2->far_latency_cycles - mean_latency_cycles_;
    double slice = input.l2->slice_spread_cycles * (2.0 * fraction_of(double(cta_idx) * PLASTIC) - 1.0);
    return __builtin_parity(uint32_t(cta_idx)) == input.sms[sm].partition ? slice - across : slice + across;
  }

 private:
  friend class L2Fill;
  friend class WriteBack;
  friend class ReducedFill;

  void fill(const MemoryRequest& request, TileState* tile, double share);
  Completion* write_back(double leaving, uint32_t tensor, Completion* done);
  FillWaits waits_of(double num_rows, double num_bytes, bool are_apart, bool is_many, double place,
                     double part_bytes) const;

  Residency residency_;
  Map<TileKey, TileState> tiles_;
  Pool<TileState> tile_pool_;
  Pool<L2Fill> fills_;
  Pool<WriteBack> writes_;
  Pool<ReducedFill> reduced_;
  L2Link links_[2];
  const double mean_latency_cycles_ = (input.l2->near_latency_cycles + input.l2->far_latency_cycles) / 2;
  double backlog_bytes_ = 0.0;
  Sequence draws_;
};

}  // namespace gpusim
