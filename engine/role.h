// A role while it runs: drives its program, op by op, and keeps the account of its time.
#pragma once
#include "cta.h"
#include "input.h"
#include "request.h"

namespace gpusim {

// Whether a role that has waited for who multiplies may copy, however long others multiply by then.
enum class CopyPass : uint8_t { NONE, ONCE, UNTIL_COMMIT };

// How far behind the warps that are simulated the last one of a role is.
// Models: each load makes another warp the last, so that delays of loads that follow one another add up as in
// a random walk; who is late finds free what the others took turns at meanwhile.
// Ignores: which warp it is; that what it stores comes later, too.
// Source: kernels/memory_bursts (rounds of loads), kernels/memory_bandwidth (loops), h200_sxm, 2026-11-22.
struct SlowestWarp {
  double cycles = 0.0;
  double worked_before = 0.0;  // cycles of shared work when it fell behind
  uint32_t num_meetings = 0;
  double asked_bytes = 0.0;  // of loads since the role last used one

  // A load begins; returns the bytes that are waited for together, over its own.
  double asks(Token* token, double num_bytes);
  // Most warps use a load now, whose last part comes `late` later; `worked`: cycles of shared work so far.
  void fall_behind(const Token* token, double late, double worked);
  // All warps are waited for; returns how long.
  double meet(double worked);
};

// A store to global memory that may not have left the SM, in bytes of the port's time.
struct QueuedStore {
  double num_bytes;
  AsyncGroup* group;
};

// The two groups of a bulk store: its source has been read, and it is complete.
struct BulkGroups {
  AsyncGroup* read;
  AsyncGroup* whole;
  void drop() {
    read->drop();
    whole->drop();
  }
};

// A section of the program that has begun.
struct OpenSection {
  int32_t section;
  double start_cycle;
};

// The warps of one role of one CTA, in lockstep but for the last one. A role keeps a cursor, the cycle up to
// which its warps are accounted for. It may run ahead of the clock by a few issue cycles; before it queues
// work on a shared pipe it lets the clock catch up.
class Role : public Action, public Completion {
 public:
  enum Event : uint8_t { BEGIN, CAUGHT_UP, WOKEN, COPIES_ISSUED };

  Cta* cta;
  uint32_t idx;  // in launch.roles
  int32_t num_warps;
  int32_t num_threads;
  int32_t num_warpgroups;
  int32_t wave;
  bool is_recorded;
  double t = 0.0;  // the cursor
  double totals[NUM_STATES] = {};
  bool is_done = false;
  bool is_free = false;  // in a section that a counterfactual makes free
  bool must_retry = false;
  bool has_entered = false;  // a place before the data stage that it has waited for
  CopyPass copy_pass = CopyPass::NONE;
  SlowestWarp slowest_warp;

  // What an op waits for the rest of its turn beside wgmma: since when, and how much is left of it.
  bool is_partly_done = false;
  double partly_since = 0.0;
  double partly_left = 0.0;

  double copies_until = 0.0;
  double loads_since = 0.0;  // cycle of the first load since what was loaded before has been used
  double wgmma_open = 0.0;
  double wgmma_through = 0.0;
  double mma_done = 0.0;
  double arrives_far_at = 0.0;
  double stored_at = 0.0;       // when the last of its stores to shared memory goes in
  double stored_out_at = -1e9;  // when the last of its stores to memory is past the data stage's queue
  double delivered_at = 0.0;    // when a middle warp's registers of that one have been read
  double all_fenced_at = 0.0;   // when the last of its warps has a proxy fence behind it
  double passed_bytes = 0.0;    // of queued stores, what an instruction behind them overtakes no more
  double cluster_release = NOT_ARRIVED;  // or ThreadBarrier::NOT_RELEASED, or when it was
  int32_t registers = int32_t(input.launch->registers_per_thread);

  AsyncGroup* last_store = nullptr;
  Fifo<QueuedStore> queued_stores;
  Fifo<AsyncGroup*> cp_groups;
  AsyncGroup* cp_open = nullptr;
  Fifo<BulkGroups> bulk_groups;
  BulkGroups bulk_open = {nullptr, nullptr};
  Fifo<double> wgmma_groups;
  Vector<OpenSection> sections;

  static constexpr double NOT_ARRIVED = -2.0;  // on the cluster's barrier

  Role(Cta* its_cta, uint32_t its_idx);
  // Gives back what it refers to.
  ~Role();
  // Is there from a cycle on, and runs its program from another one on.
  void start(double created_cycle, double start_cycle);
  void act(uint8_t what) override;

  // ---------------------------------------------------------------- time
  // Is in `state` from the cursor to `until`.
  void spend(WarpState state, double until);
  // Issues for `num_cycles`.
  void step(double num_cycles);
  // Issues instructions of every warp.
  void issue(double num_instructions);
  // All its warps are waited for, the last of them, too.
  void meet();
  // Cycles so far in which its warps took turns at what they share.
  double worked() const;

  // ---------------------------------------------------------------- waiting
  // Gives up the processor until an event WOKEN, once. Returns false, as an op that waits does.
  bool block(WarpState state, Wait wait);
  // Goes on at a cycle, or where the role is already.
  void resume(double cycle);
  // What it waits for is complete.
  void complete(double cycle) override { resume(cycle); }
  // Waits until `group` is complete; true where it is.
  bool wait_group(AsyncGroup* group, WarpState state, Wait wait);
  // The rest of an op that has been under way since `asked_at` asks again at `cycle`.
  bool ask_again(double cycle, double asked_at, double left, WarpState state, Wait wait);
  // Uses a token that is ready; the last warp's part of it may come later.
  void fall_behind(const Token* token);

  // ---------------------------------------------------------------- what ops need
  uint32_t op_idx() const { return uint32_t(op_ - first_op_); }
  // What it waits for, for a deadlock.
  BlockedRoleRecord blocked() const;
  void give_token(int32_t slot, Token* token);
  Token* token_in(int32_t slot) { return tokens_[uint32_t(slot)]; }
  // What is asked of the memory below L1, from `at` on if the clock is not past it.
  MemoryRequest request(const Op& op, double num_bytes, double at) const;
  Stage* stage(int32_t flat_idx) const { return flat_idx < 0 ? nullptr : &cta->stages[flat_idx]; }
  void record_read(int32_t stage_idx, double start, double end) const;

 private:
  void go_on(bool is_retry);
  bool carry_out_free(const Op& op);

  const Op* op_ = nullptr;  // the op that is carried out, or that waits
  const Op* first_op_ = nullptr;
  const Op* next_op_ = nullptr;
  const Op* end_op_ = nullptr;
  Vector<Token*> tokens_;
  WarpState wait_state_ = WarpState::ISSUE;
  Wait waits_for_ = Wait::NOTHING;
  double blocked_since_ = 0.0;
};

}  // namespace gpusim
