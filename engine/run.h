// One launch while it runs: dispatch of CTAs, the end of roles and CTAs, the end of the kernel.
#pragma once
#include "containers.h"
#include "cta.h"
#include "input.h"
#include "role.h"

namespace gpusim {

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
  bool uses_fma_turns = false;  // whether any SM's FFMA take turns
  double copy_cycles = 0.0;
  double num_copies = 0.0;
  uint32_t num_exits = 0;
  Vector<double> role_totals;      // roles x states
  Vector<double> epilogue_cycles;  // of each role; -1: none has ended

  void init();
  // Starts the first wave.
  void begin();
  // Carries out up to `max_events` events.
  RunState run_slice(uint32_t max_events);

  // A role's program is over; when it was the CTA's last, the CTA exits.
  void role_ended(Role* role);
  void cta_exits(Cta* cta);
  void refill(const Vector<int32_t>& sms, double at_cycle, Refill* refill);
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
  void start_cluster(const int32_t* sms, double at_cycle, bool has_waited);
  Cta* make_cta();
  void finish_if_over();

  Pool<Cta> ctas_;
  Pool<Cluster> clusters_;
  Pool<Refill> refills_;
  Vector<Cta*> free_ctas_;
  Cta* oldest_ = nullptr;
  Cta* newest_ = nullptr;
  uint32_t num_live_ = 0;
  uint32_t next_cta_ = 0;
  uint32_t num_refills_ = 0;
  int64_t num_stores_pending_ = 0;
  double last_store_at_ = 0.0;
  double last_exit_ = 0.0;
  double exit_cycles_ = 0.0;
  double end_cycle_ = 0.0;
  double cold_start_cycles_ = 0.0;
  uint64_t trace_hash_ = 1469598103934665603ull;
  bool is_over_ = false;
  bool has_[6] = {};
};

}  // namespace gpusim
