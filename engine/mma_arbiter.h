// The tensor cores of an SM, and whose mma.sync (or FFMA) is issued where several roles multiply.
#pragma once
#include "role.h"

namespace gpusim {

// The tensor cores of one SM as one pipe, for mma.sync and for wgmma.
// Models:
// * wgmma's rate (computed before the run), arithmetic that begins once A is there;
// * groups of a warpgroup in flight, and the wgmma of all warpgroups in one queue;
// * mma.sync's rate, minimum interval and latency; ldmatrix that keeps others' mma.sync from being issued;
// * IMAD.WIDE and wgmma exclude one another, whichever role issued them.
// Ignores:
// * the order in which warpgroups alternate inside the pipe; the issue cost of a wgmma; sparsity.
// Source: the GPU's description; kernels/ring_math, pipe_beside_wgmma, turn_taking.
struct TensorCore {
  Pipe pipe;
  double wgmma_until = 0.0;  // when the last of the SM's wgmma that have been issued ends
  double wide_until = 0.0;   // and the last IMAD.WIDE

  // ldmatrix of warps beside others that multiply: mma.sync wait for what each takes of its sub-core.
  void pass_loads(double num_loads, double at_cycle) {
    if (pipe.free_at > at_cycle && at_cycle >= wgmma_until)
      pipe.free_at +=
          num_loads * input.tensor_core->mma_sync_load_cycles / input.warp_scheduler->num_schedulers;
  }
};

// Models:
// * greedy, then oldest: a role multiplies until it stops; then the one that has waited longest does;
// * FFMA leave a scheduler's other warps no turns: cp.async of other roles wait until they stop;
// * where each role has one warp on a scheduler, they wait for as many runs as there are CTAs that multiply;
// * CTAs of rings of two slots and more are served by age.
// Ignores:
// * copies that slip in within one request; more than 256 runs, except by a stop;
// * CTAs of fewer warps than schedulers; waits of instructions other than copies during FFMA.
// Source: kernels/mma_loops, h200_sxm, 2026-11-22; kernels/fma_loops, h200_sxm, 2026-11-23, and h100_sxm,
// 2026-11-27; validation/studies/sgemm_h100_sxm.csv, cta_ends_h100_sxm.csv.
class MmaArbiter : public Action {
 public:
  // Queues a role's math; afterwards the role's cursor is where the last of it has been issued.
  using Multiply = void (*)(Role* role, const Op& op);

  MmaArbiter(WarpState state, Wait wait) : state_(state), wait_(wait) {}
  // Multiplies now, `num_runs` times, or waits for the role's turn and does so then.
  bool ask(Role* role, const Op& op, Multiply multiply, int32_t num_runs, bool by_age);
  // Waits until a role that multiplies lets another issue `num_copies` of each of its warps; true: copy now.
  bool hold(Role* role, double num_copies);
  void act(uint8_t what) override;

 private:
  struct Waiter {
    Role* role;
    const Op* op;
    Multiply multiply;
    int32_t num_runs;
  };
  struct Held {
    Role* role;
    double since;
    double num_copies;
  };

  bool is_owner(const Role* role) const { return owner_ == role && owner_cta_ == role->cta->idx; }
  void begin(const Waiter& waiter);
  uint32_t num_runs_until(double cycle);
  void watch();
  void let_copy(double now, bool goes_on);
  int32_t num_older(const Role* role);
  void next();

  static constexpr uint32_t MOST_RUNS = 256;  // whose beginnings are known

  WarpState state_;
  Wait wait_;
  Role* owner_ = nullptr;
  int32_t owner_cta_ = -1;
  int32_t owner_warps_ = 0;
  double until_ = 0.0;  // when the last of the math so far will have been issued
  Fifo<Waiter> waiting_;
  Vector<Held> held_;
  Fifo<double> runs_;  // when runs of products began, or will, in order
  double watched_at_ = INFINITE;
  bool by_age_ = false;
};

}  // namespace gpusim
