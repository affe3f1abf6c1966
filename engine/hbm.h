// High-bandwidth memory.
#pragma once
#include "request.h"

namespace gpusim {

class L2Fill;

// All channels as one wire that fills share.
// Models:
// * latency under load: a line waits at its channel in proportion to what is taken of the peak over what is
//   left;
// * the slowest of a request's rows waits longest, and one of them may find its bank in refresh;
// * sustained bandwidth, shared among the SMs that wait for fills, and what one SM can draw;
// * an SM's fills come in order; loads of warps issued right behind one another take turns;
// * channels that write, for which reads wait, the longer the more others read and write;
// * channels have unlike parts of what waits, so that a request comes as late as the fullest of its own;
// * quick and slow fills, so that SMs that wait for unlike tiles fall out of step;
// * writes take the same wire at their own efficiency, which is lower beside reads, the more the more waits;
// * rows opened for a short piece, and requests of parts of lines, take more of the wire.
// Ignores:
// * whether somebody asks for the rest of a line, and when; parts of lines that cp.async and TMA ask for;
// * that fills are spread further the busier memory is; which addresses share a channel, and banks;
// * that SMs which ask for one tile together draw it together: the first draws all of it;
// * that reads behind stores at full rate wait three times as long as idle.
// Source: the GPU's description; turns of loads: kernels/side_bursts, h200_sxm, 2026-11-28 (order).
class Hbm {
 public:
  SharedPipe wire;
  Sequence waits;  // which part of all requests like the next one waits less at its channels

  Hbm();

  // By how much the next fill of many lines is later than the mean (below 0: sooner), by a sequence.
  double spread_cycles();
  // How much later than a mean row's the slowest of `num_rows` comes, asked for over `over_cycles`.
  double refresh_cycles(double num_rows, double over_cycles) const;
  // How long the last of `num_lines` that are asked for now waits at its channel.
  double queue_cycles(double num_lines);
  // How much later the slowest of `num_rows` comes than where memory has nothing else to do.
  double busy_cycles(double num_rows);
  // The same of `num_parts` in channels of their own, beside writes; 0 where nothing was written of late.
  double mixed_cycles(double num_parts);
  // Delay of the last of `part_bytes` out of `num_bytes` against even channels; place below 0: the mean.
  double uneven_cycles(double num_bytes, double place, bool are_apart, double part_bytes);

  // Reads `num_bytes` for a miss of one SM, `times` over; `done` is called when the last byte has passed.
  void fill(double num_bytes, L2Fill* done, const MemoryRequest& request, double piece_bytes,
            double num_part_requests, double times);
  // Reads `num_bytes` that no SM waits for.
  void read_behind(double num_bytes, Completion* done);
  // Writes `num_bytes` of evicted dirty lines, in pieces of `piece_bytes` or side by side.
  // Returns the bytes of the wire's time that they take.
  double write_back(double num_bytes, Completion* done, double piece_bytes);
  // So much of the wire's time has passed, of reads and of bytes written.
  void has_moved(double num_bytes, double read_bytes, double written_bytes);

 private:
  struct Fill {
    double left_bytes;
    double turn_bytes;  // what passes of it before the next one's turn
    double weight;
    L2Fill* done;
    bool has_begun;
    bool is_behind;  // its loads were issued right behind those of the one before it
  };

  // What one SM draws: its fills one after the other, the first of them sharing the wire with other SMs'.
  class Intake : public Completion {
   public:
    void fill(Fill fill, double asked_at, double asked_until, int32_t num_turns);
    void complete(double cycle) override;

   private:
    void begin(const Fill& fill);
    Fill next_behind(Fill fill);

    Fill current_ = {};  // with nobody to tell: none
    double asked_until_ = -INFINITE;
    Fifo<Fill> waiting_;
  };

  double lately(double num_bytes);
  double share_lately();

  Array<Intake> intakes_;  // of each SM
  double pending_bytes_ = 0.0;
  double moved_bytes_ = 0.0;
  double moved_at_ = 0.0;
  double read_bytes_ = 0.0;
  double written_bytes_ = 0.0;
  uint32_t num_reading_ = 0;
  Sequence spreads_;
};

}  // namespace gpusim
