// CTAs and clusters while they run: mbarriers, barriers, shared-memory stages, copy groups, register pool.
#pragma once
#include "input.h"
#include "timing.h"

namespace gpusim {

class Role;
struct Cta;
struct TileState;

// Copies committed together: complete when the last of them is, and not before the previous group.
class AsyncGroup : public Completion {
 public:
  int32_t num_pending = 0;
  double ready_at = 0.0;
  bool is_around_l1 = false;  // whether it has cp.async around L1
  uint32_t num_refs = 1;
  Vector<Completion*> on_complete;

  // A new group, complete not before `ahead`, if there is one; its reference is the caller's.
  static AsyncGroup* make(AsyncGroup* ahead);
  AsyncGroup* hold() {
    num_refs++;
    return this;
  }
  void drop();
  // One copy more, which holds the group until it is complete.
  AsyncGroup* add() {
    num_pending++;
    return hold();
  }
  // One copy will be complete at `cycle`.
  void complete(double cycle) override;
};

// The result of a load that is on its way.
struct Token {
  double ready_at;
  double late_before = 0.0;  // by how much the role's last warp was behind when it asked
  double late_cycles = 0.0;  // how much later its part comes
  Role* waiting = nullptr;   // who uses it
  uint32_t num_meetings = 0;
  uint8_t num_refs = 1;  // of the role's slot, and of what is on its way
  bool is_ready;
  bool is_long;  // a load from memory, not from shared memory

  Token(bool from_memory, double at_cycle)
      : ready_at(at_cycle), is_ready(at_cycle >= 0.0), is_long(from_memory) {}
  // Of a load that is on its way, or that is ready at a cycle.
  static Token* make(bool is_long, double ready_at = -1.0);
  Token* hold() {
    num_refs++;
    return this;
  }
  void drop();
  // The data are there, the last warp's some time later.
  void become_ready(double cycle, double late);
};

// One slot of a buffer: when it was filled, until when it is read.
struct Stage {
  Cta* cta;
  int32_t idx;  // in the flat list of a CTA's stages
  int32_t num_writes_pending = 0;
  int32_t num_reads_pending = 0;
  uint32_t num_fills = 0;
  double last_read_at = 0.0;
  double full_at = 0.0;
  double read_until = 0.0;

  Stage(Cta* its_cta, int32_t its_idx) : cta(its_cta), idx(its_idx) {}
  // An asynchronous write was issued; a hazard where the slot is still read.
  void begin_write(double at_cycle, const Role* who);
  void end_write(double at_cycle);
  bool is_full(double at_cycle) const {
    return num_fills && !num_writes_pending && full_at <= at_cycle + 1e-6;
  }
  // Something reads the slot; a hazard where it is not full.
  void read(double at_cycle, double until, const Role* who);
  // An asynchronous read was issued; nobody knows yet until when it lasts.
  void begin_read(double at_cycle, const Role* who);
  void end_read(double at_cycle);
};

// Takes the mbarrier arrivals of one SM's warps.
// Models:
// * one arrival after the other, an interval apart;
// * a queue before it: the first arrivals cost only their issue.
// Ignores:
// * waits in the same queue; a queue for each sub-core; lanes of a warp, which arrive together.
// Source: the GPU's description.
class MbarrierUnit {
 public:
  // When the warp goes on, and when the arrival counts, of one that is issued at `at_cycle`.
  void arrive(double at_cycle, double* goes_on, double* counts_at);

 private:
  static constexpr uint32_t MOST_ENDS = 12;  // arrivals that it remembers
  Fifo<double> ends_;                        // when the last few arrivals were taken, in order
  double forgotten_until_ = 0.0;
};

// One mbarrier object in shared memory.
// Models:
// * arrival count, transaction count, phase and parity;
// * a phase completes when both counts are zero, at the latest of its arrivals' cycles;
// * a sleeping waiter goes on some cycles later, a lone lane at its next try.
// Ignores:
// * the issue slots that a failing try_wait loop takes.
// Source: PTX ISA, mbarrier; the GPU's description.
struct Mbarrier {
  Cta* cta;
  int32_t idx;  // row of input.mbarriers
  int32_t num_arrivals;
  int32_t pending = num_arrivals;
  int64_t tx_bytes = 0;
  int64_t announced_bytes = 0;
  int64_t delivered_bytes = 0;
  int32_t parity = 0;
  double stamp = 0.0;
  double completed_at = 0.0;

  struct Waiter {
    Role* role;
    bool by_lane;
  };
  Vector<Waiter> waiters;

  Mbarrier(Cta* its_cta, int32_t its_idx, int32_t arrivals)
      : cta(its_cta), idx(its_idx), num_arrivals(arrivals) {}
  // `count` arrivals that become visible at `at_cycle`; a hazard where there are more than a phase expects.
  void arrive(int32_t count, double at_cycle, const Role* who);
  // When a role, or a lone lane, that has waited `since` goes on after the phase that has completed: a lane
  // with the end of its first try that finds it so. Roles may be ahead of the clock when they ask.
  double goes_on_at(double since, bool by_lane) const;
  // Bytes are there at `at_cycle`.
  void complete_tx(int64_t num_bytes, double at_cycle);

 private:
  void complete_if_over(double at_cycle);
};

// bar.sync or barrier.cluster: counts threads, releases all at the last arrival.
struct ThreadBarrier {
  static constexpr int32_t SYNCTHREADS = -1;
  static constexpr int32_t CLUSTER = -2;
  static constexpr double NOT_RELEASED = -1.0;

  int32_t number;  // row of named_barriers, or one of those above
  int32_t num_threads;
  double latency_cycles;
  double thread_cycles;
  int32_t num_arrived = 0;
  int32_t num_going = 0;
  double latest = 0.0;
  int32_t num_latest_threads = 0;
  Vector<Role*> waiting;

  ThreadBarrier(int32_t its_number, double threads, double latency, double warp_cycles)
      : number(its_number),
        num_threads(int32_t(threads)),
        latency_cycles(latency),
        thread_cycles(warp_cycles / 2 / 32) {}
  // Arrives; returns when all go on, where this was the last arrival.
  double arrive(int32_t threads, double at_cycle, bool waits, const Role* who);
};

// CTAs that share a cluster barrier and can reach one another's shared memory.
struct Cluster {
  Vector<Cta*> ctas;
  ThreadBarrier barrier{ThreadBarrier::CLUSTER, input.launch->num_threads * input.launch->cluster_size,
                        input.launch->cluster_barrier_cycles, 0.0};
  uint32_t num_running = 0;
};

// Who waits for registers of the CTA's pool.
struct RegisterWaiter {
  int32_t num_registers;
  Role* role;
};

// A thread block on an SM.
struct Cta : public Action {
  int32_t idx;
  int32_t rank;
  int32_t wave;
  uint32_t sm;
  Cluster* cluster;
  double dispatched_at = 0.0;
  bool has_math = false;  // whether a role has begun to multiply
  uint32_t num_roles_running = input.roles.size;
  int32_t num_copies = 0;  // on their way to or from its shared memory: it is kept until they are over
  int32_t free_registers = 0;
  const int32_t* panels;  // its row of cta_panels
  Array<Role> roles;
  Array<Mbarrier> mbarriers;
  Array<Stage> stages;
  Array<ThreadBarrier> barriers;  // named ones, and __syncthreads behind them
  Vector<RegisterWaiter> register_waiters;
  Vector<TileState*> own_tiles;  // in L2, of panels that nobody else touches
  Cta* older = nullptr;          // of live ones, in order of start
  Cta* newer = nullptr;

  Cta(uint32_t its_idx, uint32_t its_rank, uint32_t its_sm, Cluster* its_cluster);
  // It exits.
  void act(uint8_t what) override;
  // Notes a copy into one of its stages that is complete.
  void copied(const Op* op, double start_cycle, double end_cycle, double num_bytes, int32_t barrier) const;
  void copy_ended();
  // A role multiplies: the first one ends the time in which the CTA fills its pipeline.
  void multiplies(double at_cycle);
  // Gives to those who wait, in order, what has become free of the register pool.
  void hand_out_registers(double at_cycle);
};

}  // namespace gpusim
