// One launch while it runs: dispatch of CTAs, ends of roles and CTAs, and the kernel's end or failure.
#pragma once
#include "cta.h"
#include "role.h"

namespace gpusim {

// The CTA work distributor: how fast and where CTAs start, and when their exits are noted.
// Models:
// * rate at which CTAs are handed out, and the slower one at which their exits are noted;
// * start and exit of a CTA; a round over the SMs, which spreads starts evenly;
// * a freed slot taken by the next CTA; clusters within a GPC, later on whatever SMs of it fall free.
// Ignores:
// * preferences among SMs that are free at the same cycle; the GPC at which a grid begins;
// * warps that leave before their CTA does; priorities, other kernels.
// Source: the GPU's description; order: kernels/launch_order, h200_sxm, 2026-11-20.
class Dispatcher {
 public:
  Dispatcher();
  // When a cluster of `num_ctas` that is ready at `at_cycle` has been dispatched.
  double dispatch(double at_cycle, uint32_t num_ctas);
  // When the exit of a CTA that ended at `at_cycle` has been noted.
  double retire(double at_cycle);
  // How long CTA number `turn` waits until the round comes to its SM: evenly spread over many.
  static double wait_cycles(uint32_t turn);
  // SMs for the next cluster, where a CTA of `sm` has left; false while there are not so many.
  bool freed(uint32_t sm, Vector<int32_t>& found);

 private:
  double next_free_at_ = input.dispatcher->launch_cycles;
  double retired_at_ = 0.0;
  Vector<int32_t> num_free_;  // CTAs that no cluster has, by SM
};

// Keeps the first failure, a hazard or a deadlock; the run ends with the event in which it happened.
class FailureLog {
 public:
  FailureRecord record = {};
  bool is_any() const { return record.kind != 0.0; }

  // `who`: the role whose op is being carried out, or none; what it tells beside, by kind.
  void report(Failure kind, const Role* who, int32_t barrier = -1, int32_t stage = -1, double first = 0.0,
              double second = 0.0, double third = 0.0);
};

enum class RunState : int32_t { MORE = 0, FINISHED = 1, FAILED = 2 };

// A freed slot that takes the next CTA when the round comes to it.
class Refill : public Action {
 public:
  Vector<int32_t> sms;
  double at_cycle = 0.0;
  void act(uint8_t what) override;
};

class Run {
 public:
  Totals totals = {};
  bool has_stored = false;
  bool uses_fma_turns = false;     // whether any SM's FFMA take turns
  Vector<double> role_totals;      // roles x states
  Vector<double> epilogue_cycles;  // of each role; -1: none has ended

  // Starts the first wave.
  void begin();
  // Carries out up to `max_events` events.
  RunState run_slice(uint32_t max_events);

  // A role's program is over; when it was the CTA's last, the CTA exits.
  void role_ended(Role* role);
  void cta_exits(Cta* cta);
  void refill(Refill* refill);
  // A CTA whose last copy is over is given back once its cluster is.
  void give_back(Cta* cta);
  // A store is on its way; the kernel does not end before it has arrived.
  void store_began() { num_stores_pending_++; }
  void store_ended(double cycle);
  // Fills in what a run has summed up, so far.
  void sum_up();
  // Of whom waits for what, for a deadlock.
  void list_blocked();
  // Whether a counterfactual makes something free; that the launch has it is kept.
  bool is_ideal(Ideal ideal);
  // The CTA of rank `rank` in a role's cluster.
  static Cta* peer(const Role* role, int32_t rank) { return role->cta->cluster->ctas[uint32_t(rank)]; }
  static bool is_pair(const Role* role) { return role->cta->cluster->ctas.size() == 2; }

 private:
  bool is_last_dispatched() const { return next_cta_ >= input.launch->num_ctas; }
  void start_cluster(const int32_t* sms, double at_cycle, bool has_waited, double cold_cycles = 0.0);
  void finish_if_over();

  Pool<Cta> ctas_;
  Pool<Cluster> clusters_;
  Pool<Refill> refills_;
  LinkedList<Cta> live_;
  uint32_t next_cta_ = 0;
  uint32_t num_refills_ = 0;
  int64_t num_stores_pending_ = 0;
  double last_store_at_ = 0.0;
  uint64_t trace_hash_ = 1469598103934665603ull;
  bool is_over_ = false;
};

}  // namespace gpusim
