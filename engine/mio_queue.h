// The queue of instructions before an SM's shared-memory data stage, and warps that wait for a place.
#pragma once
#include "role.h"

namespace gpusim {

// Who waits for a place in the queue: a load's next turn, or a role that wants to go on.
class QueuedWarp {
 public:
  int32_t age = 0;          // of its CTA: its index
  double left = 0.0;        // wavefronts
  double num_places = 0.0;  // instructions a turn
  // Has a turn; returns when it ends.
  virtual double take(double at_cycle) = 0;
  // Whether it waits again behind a turn; where it does not, it is over.
  virtual void over() = 0;
};

// A role that waits for a place for what it asks of global memory.
class QueuedRole : public QueuedWarp {
 public:
  Role* role = nullptr;
  double take(double at_cycle) override;
  void over() override;
};

// A role's loads from shared memory that take turns at the data stage, a warp's share at a time.
class QueuedLoad : public QueuedWarp {
 public:
  QueuedLoad(Role* role, const Op& op, double wavefronts, bool is_matrix);
  // Stands in line from when the first has been issued.
  Token* begin(double at_cycle);
  double take(double at_cycle) override;
  void over() override;

 private:
  double ready(double end_cycle, int32_t num_parts) const;

  Role* role_;
  Stage* stage_;
  Token* token_ = Token::make(false);
  double wavefronts_;
  double turn_;
  double asked_at_;
  double registers_;
  double on_way_;
  double words_;
  int32_t num_parts_;
  double first_left_;
};

// Models:
// * a queue of so many instructions, served in the order in which they came;
// * a free place goes to the oldest waiting CTA, and to warps of one CTA in turns;
// * loads of global memory and copies by cp.async wait for a place as well.
// Ignores:
// * the places that short loads, stores and copies take; the limit of half of it for each scheduler;
// * an SM that has run wgmma; other queues of other GPUs than an H100.
// Source: kernels/behind_conflicts (places), kernels/load_turns (whose turn), both h100_sxm, 2026-11-27.
class MioQueue : public Action {
 public:
  // Waits for a place, and goes on from there.
  void ask(QueuedLoad* load, double at_cycle);
  // Waits for a place where others go before the role; true: it may go on.
  bool wait_for_place(Role* role);
  // Wavefronts that wait for a place ahead of a role.
  double num_ahead(const Role* role) const;
  void act(uint8_t what) override;

 private:
  struct Place {
    double until;
    double num_places;
  };

  void fill(double at_cycle);

  Fifo<Place> in_line_;
  double num_places_ = 0.0;             // taken
  Heap<int32_t, QueuedWarp*> waiting_;  // by age
  bool is_watched_ = false;
};

// Whether loads of a role take turns: long ones, but where operands of wgmma are read.
bool takes_turns(const Role* role, double num_wavefronts);
// What a load takes of the way to the data stage: its wavefronts, but for conflicts.
double way_wavefronts(const AccessRecord& access, double num_wavefronts);
// 32-bit words of a lane of a load that return one after the other.
double words_per_lane(const AccessRecord& access, bool is_matrix);

}  // namespace gpusim
