// Shared memory of one SM: 32 banks, served a wavefront at a time; and that of the other SMs of its cluster.
#pragma once
#include "input.h"
#include "timing.h"

namespace gpusim {

// What could be served, and what must ask again then.
struct Served {
  double end;
  double left;
};

// The data stage of one SM's shared memory.
// Models:
// * one wavefront a cycle for all warps of the SM, latency, and the slower pace of one warp's own wavefronts;
// * a vector's words, which return one after the other;
// * operand reads of wgmma go first; accesses of warps have what they leave, loads and stores so much at
//   most;
// * what cp.async brings, and global accesses of threads, go in between the wavefronts of the warps;
// * global loads and copies around L1 wait for all that warps asked for ahead of them but some wavefronts;
// * copies through L1 take the stage in turn with what warps load;
// * copies around L1, their commits and rows stand in the way to the stage; conflicts of loads do not.
// Ignores:
// * that what copies through L1 bring waits for a stage that is busy when it comes;
// * that global stores wait so, too; that wgmma loses up to 3 % to accesses beside it;
// * arbitration with TMA and cp.async fills; the pace of one sub-partition.
// Source: the GPU's description; wavefronts come from workload/access.py; kernels/behind_conflicts,
// narrow_copies, copies_beside_reads, mma_loops, turn_taking, pipe_beside_wgmma.
class SharedMemory {
 public:
  GapPipe data{input.smem->wavefronts_per_cycle};

  // Reads, which is not counted here. `way_wavefronts`: what it takes of the way there; 0: it asks again, and
  // is past the way.
  Served load(double num_wavefronts, double registers_per_wavefront, double at_cycle, double way_wavefronts);
  // Writes. `is_again`: it asks again, and is past the way there.
  Served store(double num_wavefronts, double at_cycle, bool is_again);
  // Reads and writes in one; returns when the last register is there.
  double swap(double num_wavefronts, double wavefronts_per_warp, double at_cycle);
  // When the last register is there of loads asked for at `at_cycle` and read by `end_cycle`.
  double ready(double end_cycle, double wavefronts_per_warp, double words_per_lane, double at_cycle) const;
  // Writes what a copy brings; returns when the last could be in.
  double fill(double num_wavefronts, double at_cycle);
  // Lets copies through L1 pass; returns when the last has.
  double pass_copies(double num_wavefronts, double at_cycle);
  // Writes rows of copies around L1 that come to the way at `at_cycle`; returns when they are at its head.
  double copy_rows(double num_rows, double at_cycle);
  // What warps ask for later waits `until` the queue of rows has room for the last of them.
  void pass_rows(double num_wavefronts, double until, double at_cycle);
  // Lets commits of copies pass: what is behind them waits, the stage works on.
  void pass_commits(double num_cycles, double at_cycle);
  // When a load of global memory, asked for at `at_cycle`, is past what was asked for here before.
  double passes_at(double at_cycle, double num_waiting) const;
  // Lets fills and global accesses of threads pass the data stage, uncounted.
  void pass_global(double num_wavefronts, double at_cycle);
  // Lets lines of global stores pass beside operand reads.
  Served pass_lines(double num_lines, double at_cycle);
  // Operand reads leave so much of the data stage until then.
  void read_operands(double free_share, double until_cycle);
  // How long before stores are in they have been taken.
  double replay_cycles(double num_wavefronts, double num_bytes, double backlog_cycles) const;
  // Whether operands are read then.
  bool is_read(double cycle) const;
  // Whether long loads take turns: not where operands of wgmma are read.
  bool takes_turns() const { return operands_until_ == 0.0; }

 private:
  GapPipe& watched_way();
  double on_way(double num_wavefronts, double at_cycle);
  double passing(double num_wavefronts, double at_cycle);
  double reserve(double num_wavefronts, double at_cycle);
  Served take(double num_wavefronts, double at_cycle, double most_share);

  // The way there: what it is used for is looked at from the first copy around L1 on.
  GapPipe way_{input.smem->wavefronts_per_cycle};
  bool is_way_watched_ = false;
  double operands_until_ = 0.0;
  double asked_until_ = 0.0;
  double most_stored_ = input.smem->wgmma_sts_wavefronts_per_cycle / input.smem->wavefronts_per_cycle;
  double free_share_ = 1.0;
  double filling_ = 0.0;
  double idle_since_ = 0.0;
};

// One SM's end of the network over which the SMs of a cluster reach one another's shared memory.
// Models:
// * latency there and back and one way, shorter in a cluster of two;
// * rate of the SM that asks, less while others ask it.
// Ignores:
// * the far end's banks, distance in larger clusters, bandwidth that neighbouring clusters share.
// Source: the GPU's description.
class Dsmem {
 public:
  Pipe link{input.dsmem->bytes_per_cycle};

  // Returns when the last byte from SM `far` is there.
  double read(double num_bytes, double at_cycle, Dsmem& far, bool is_pair);
  // Returns when the last byte has arrived.
  double write(double num_bytes, double at_cycle, bool is_pair);
  // Cycles from an issue to its effect on another SM.
  static double one_way_cycles(bool is_pair);
};

}  // namespace gpusim
