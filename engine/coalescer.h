// The L2 request coalescer: line requests that ride on a neighbour's, and the waits of others at slices.
#pragma once
#include "request.h"

namespace gpusim {

// An SM as the coalescer sees it.
struct Reader {
  SharedPipe* slices = nullptr;  // those of its partition
  uint32_t partition = 0;
  uint32_t coalesce_region = 0;  // with whom its requests merge
  Sequence draws;
};

// Rows of TMA boxes outside of their tensors: bytes that cross the SM's port, and their cost at the slices.
struct ZeroRows {
  bool is_any = false;
  double num_bytes = 0.0;
  double num_carried_bytes = 0.0;
};

// What a request moves.
struct LineBatch {
  double num_bytes;
  double weight;  // what each byte takes of the slices
  double reads;   // how many of each byte they read
  ZeroRows zeros;
  TileState* tile = nullptr;     // where it may merge, and wait in slices' queues
  bool coalesces = false;        // whether lines of it may come with a neighbour's
  double request_bytes = 0.0;    // what its requests of lines take of the slices at least
  double asked_at = 0.0;         // what the slices had moved when it was asked for
  double sharing = 1.0;          // of its bytes what may come with a neighbour's
  double request_sharing = 1.0;  // of its requests what may come with a neighbour's
};

// Cost of a batch: advance of the slices' clock, bytes of slices and links, cycles gained.
struct BatchPrice {
  double moved_bytes;
  double carried_bytes;
  double ahead_cycles;
};

// Models:
// * lines that another SM of the region waits for come with its request, up to a number of requests;
// * a line can be joined until some cycles after it has passed the slices, longer for a farther slice;
// * lines of a fill that have not arrived yet are joined;
// * a queue at each slice, in which the slowest line of a bulk copy waits, longer after busy cycles.
// Ignores:
// * the crossbar's own costs (crossbar.h).
// Source: the crossbar's (crossbar.h). docs/how_it_works.md lists where Python repeats the rule.
class Coalescer {
 public:
  // What a batch costs; `behind_bytes` move before it, `pace` times as fast as the slices' clock goes.
  BatchPrice price(const LineBatch& batch, Reader* reader, double behind_bytes, double pace);
  // What the last of a request's lines waits at its slice.
  double queued_cycles(Reader* reader, TileState* tile, double num_bytes);

 private:
  static constexpr double QUEUE_LATENCIES = 4.0;  // over which what is taken is a share

  struct Lately {
    double served = 0.0;
    double since = 0.0;
    double share = 0.0;
  };

  BatchPrice price_lines(const LineBatch& batch, Reader* reader, double behind_bytes, double pace);
  double pending_share(const TileState* tile, double at_cycle) const;
  double merged_share(double late_cycles, double waits_cycles) const;
  double joined(double late_cycles) const;
  double busy_share(Reader* reader);

  Lately lately_[2];
  const double spread_cycles_ = smaller(input.xbar->coalesce_window_cycles, input.l2->slice_spread_cycles);
  const double early_cycles_ = input.xbar->coalesce_window_cycles - spread_cycles_;
  const double late_cycles_ = input.xbar->coalesce_window_cycles + spread_cycles_;
  const double far_cycles_ = input.l2->far_latency_cycles - input.l2->near_latency_cycles;
  const double ahead_bytes_ = input.xbar->sm_read_bytes_per_cycle * input.l2->near_latency_cycles;
  const double queue_cycles_ = input.l2->near_latency_cycles != 0.0 ? input.l2->queue_cycles : 0.0;
  const double lately_cycles_ = QUEUE_LATENCIES * input.l2->near_latency_cycles;
};

}  // namespace gpusim
