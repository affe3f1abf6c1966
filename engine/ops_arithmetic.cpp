// Tensor cores, FMA, ALU and MUFU work, shuffles, setmaxnreg, instructions that are fetched, sections.
#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

constexpr double EPSILON_INSTRUCTIONS = 1e-6;
constexpr double EPSILON_CYCLES = 1e-6;
constexpr double TURN_INSTRUCTIONS = 8.0;  // IMAD.WIDEs of a warp after which wgmma is looked for anew

void record_mma(const Role* role, double start, double end, int64_t num_issues) {
  if (!role->is_recorded) return;
  machine.recorder.mma_spans.push(
      MmaSpanRecord{role->cta->idx, role->cta->sm, role->idx, start, end, num_issues});
}

// Queues mma.sync of a role in the tensor cores.
void multiply(Role* role, const Op& op) {
  const MmaSyncRecord& cost = input.mma_syncs[uint32_t(op.cost)];
  double num_sub_cores = input.warp_scheduler->num_schedulers;
  double start = role->t;
  role->cta->multiplies(start);
  double num_issues = op.extra;
  double total = num_issues * role->num_warps;
  if (cost.is_integer)
    counters.tensor_core.imma_instructions += total;
  else
    counters.tensor_core.hmma_instructions += total;
  double cycles = total * cost.interval_cycles / num_sub_cores;
  counters.tensor_core.busy_cycles += cycles;
  double end = sm_of(role).tensor_core.pipe.reserve(cycles, start);
  double own = start + num_issues * cost.interval_cycles * warps_each(role->num_warps, num_sub_cores);
  end = end > own ? end : own;
  double issued = end - cost.interval_cycles;
  double done = end - cost.interval_cycles + cost.latency_cycles;
  record_mma(role, start, done, op.extra);
  role->spend(WarpState::TENSOR, larger(issued, role->t));
  role->mma_done = done;
}

// Queues FFMA of a role in the FP32 pipe.
void multiply_add(Role* role, const Op& op) {
  const FmaRecord& fma = input.fmas[uint32_t(op.cost)];
  WarpScheduler& scheduler = sm_of(role).scheduler;
  bool is_chain = op.flags & 1;
  role->cta->multiplies(role->t);
  double num = fma.num_instructions;
  double chained = is_chain ? role->t + num * input.warp_scheduler->dependent_cycles : 0.0;
  counters.warp_scheduler.fma_instructions += num * role->num_warps;
  double until = is_chain ? 0.0 : sm_of(role).tensor_core.wgmma_until;
  double end = scheduler.execute(scheduler.fma_pipe, num, role->num_warps, role->t, until, fma.turns_each);
  role->spend(WarpState::MATH_PIPE, larger(end, chained));
}

// A kernel's own instructions, each waiting for the one before it; `num_more` take turns between.
void chain(Role* role, double num_instructions, double num_more) {
  if (machine.run.is_ideal(Ideal::OVERHEAD_CODE)) return;
  WarpScheduler& scheduler = sm_of(role).scheduler;
  double chained = role->t + num_instructions * input.warp_scheduler->dependent_cycles;
  double end = scheduler.execute(scheduler.alu_pipe, num_instructions, role->num_warps, role->t);
  if (num_more != 0.0) end = larger(end, scheduler.issue(num_more, role->num_warps, role->t));
  role->spend(WarpState::ISSUE, end > chained ? end : chained);
}

// A chain that takes longer during wgmma: the rest goes on at its own pace when the running wgmma have ended.
bool slowed_chain(Role* role, const AluRecord& cost) {
  WarpScheduler& scheduler = sm_of(role).scheduler;
  double dependent = input.warp_scheduler->dependent_cycles;
  double share = 1.0;
  if (!role->is_partly_done)
    scheduler.execute(scheduler.alu_pipe, cost.num_instructions, role->num_warps, role->t);
  else
    share = role->partly_left;
  role->is_partly_done = false;
  double left_cycles = sm_of(role).tensor_core.wgmma_until - role->t;
  if (left_cycles <= EPSILON_CYCLES) {
    role->spend(WarpState::ISSUE, role->t + share * cost.num_instructions * dependent);
    return true;
  }
  double beside_cycles = cost.num_beside * dependent;
  double now = smaller(share, left_cycles / beside_cycles);
  double end = role->t + now * beside_cycles;
  if ((share - now) * cost.num_instructions > EPSILON_INSTRUCTIONS)
    return role->ask_again(end, role->t, share - now, WarpState::ISSUE, Wait::OVERHEAD_CODE);
  role->spend(WarpState::ISSUE, end);
  return true;
}

}  // namespace

// Tensor cores by warp: the warps are held up at the rate of the pipe, the result comes a latency later.
bool mma_sync(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  double num = double(op.extra) * role->num_warps;
  counters.warp_scheduler.instructions += num;
  sm.scheduler.issue_slots.reserve(num, role->t);
  if (input.roles.size == 1 && input.launch->ctas_per_sm == 1.0) {
    multiply(role, op);
    return true;
  }
  return sm.tensor_arbiter.ask(role, op, multiply, 1, false);
}

// Queues a batch in the tensor core; the warps go on, unless too many groups, or wgmma, are in flight.
// What they run between the first of a batch and its last, they run while these wait for room in the queue.
void wgmma(Role* role, const Op& op) {
  const WgmmaRecord& cost = input.wgmmas[uint32_t(op.cost)];
  Sm& sm = sm_of(role);
  TensorCore& core = sm.tensor_core;
  Fifo<double>& groups = role->wgmma_groups;
  uint32_t most = uint32_t(input.tensor_core->wgmma_max_groups);
  if (groups.size() >= most)
    role->spend(WarpState::TENSOR, groups[groups.size() - most] + input.tensor_core->wgmma_latency_cycles);
  double at = role->t;
  double begin = core.pipe.free_at > core.wide_until ? core.pipe.free_at : core.wide_until;
  if (begin < at) begin = at;
  role->cta->multiplies(begin);
  double mine = larger(at, role->wgmma_through);
  double free_at = begin + cost.cycles;
  core.pipe.free_at = free_at;
  role->wgmma_through = free_at;
  sm.smem.read_operands(cost.free_share, free_at);
  double end = free_at + cost.tail_cycles;
  counters.tensor_core.gmma_instructions += cost.num_warp_instructions;
  counters.tensor_core.busy_cycles += cost.cycles;
  counters.warp_scheduler.instructions += cost.num_warp_instructions;
  counters.smem.wavefronts += cost.wavefronts;
  counters.smem.gmma_wavefronts += cost.wavefronts;
  const int32_t* reads = input.lists.items + op.extra;
  for (int32_t place = 0; place < op.step; place++) {
    role->cta->stages[reads[place]].read(at, end, role);
    role->record_read(reads[place], begin, end);
  }
  record_mma(role, begin, free_at, op.barrier);
  if (end > role->wgmma_open) {
    role->wgmma_open = end;
    if (end > core.wgmma_until) core.wgmma_until = end;
  }
  double issued_at = free_at - cost.queued_cycles;
  if (cost.num_between != 0.0) chain(role, cost.num_between, 0.0);
  // alone in the queue a warpgroup has more room
  if (issued_at > role->t && (role->num_warpgroups > 1 || begin > mine))
    role->spend(WarpState::TENSOR, issued_at);
}

void wgmma_fence(Role* role, const Op&) {
  role->spend(WarpState::ISSUE, role->t + input.warp_scheduler->fence_cycles);
}

void wgmma_commit_group(Role* role, const Op&) { role->wgmma_groups.push(role->wgmma_open); }

// Until the group that must have ended has, and its latency is over.
void wgmma_wait_group(Role* role, const Op& op) {
  double end = -1.0;
  while (int64_t(role->wgmma_groups.size()) > op.extra) end = role->wgmma_groups.pop();
  if (end >= 0.0) role->spend(WarpState::WAIT_WGMMA, end + input.tensor_core->wgmma_latency_cycles);
}

// Waits for instructions that the SM's caches do not hold.
void fetch_code(Role* role, const Op& op) {
  int32_t num_each = warps_each(role->num_warps, input.warp_scheduler->num_schedulers);
  double waited = sm_of(role).instruction_cache.wait_cycles(op.cost, op.number, num_each);
  role->spend(WarpState::NO_INSTRUCTION, role->t + waited);
}

// Waits for loop code that a sub-core does not keep, where one warp issues it; two and more hide it.
void loop_body(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  if (role->num_warps * double(sm.num_ctas) > input.warp_scheduler->num_schedulers) return;
  const LoopBodyRecord& code = input.loop_bodies[uint32_t(op.cost)];
  double waited = sm.instruction_cache.loop_cycles(code.num_instructions, code.overhead_cycles);
  if (waited > 0.0 && !machine.run.is_ideal(Ideal::OVERHEAD_CODE))
    role->spend(WarpState::NO_INSTRUCTION, role->t + waited);
}

// Where caches of code were flushed, waits for instructions that the launch has not brought along.
void fetch_cold_code(Role* role, const Op& op) {
  if (input.launch->is_flushed == 0.0) return;
  double late = sm_of(role).instruction_cache.late_cycles(input.cold_codes[uint32_t(op.cost)], role->t);
  if (late > 0.0) role->spend(WarpState::NO_INSTRUCTION, role->t + late);
}

// FP32 pipe; in a chain each instruction waits for the one before it; in turns CTAs of an SM do.
bool fma(Role* role, const Op& op) {
  int32_t num_runs = int32_t(input.fmas[uint32_t(op.cost)].num_runs);
  if (!num_runs || input.launch->ctas_per_sm == 1.0) {
    multiply_add(role, op);
    return true;
  }
  machine.run.uses_fma_turns = true;
  return sm_of(role).fma_arbiter.ask(role, op, multiply_add, num_runs, op.flags & 2);
}

// Integer pipe; in a chain each instruction waits for the one before it.
bool alu(Role* role, const Op& op) {
  const AluRecord& cost = input.alus[uint32_t(op.cost)];
  if (op.flags & 1) {
    bool is_slowed = cost.num_beside > cost.num_instructions && cost.num_instructions > 0.0;
    if (is_slowed && !machine.run.is_ideal(Ideal::OVERHEAD_CODE)) return slowed_chain(role, cost);
    chain(role, cost.num_instructions, cost.num_more);
    return true;
  }
  Sm& sm = sm_of(role);
  double end = sm.scheduler.execute(sm.scheduler.alu_pipe, cost.num_instructions, role->num_warps, role->t,
                                    sm.tensor_core.wgmma_until);
  role->spend(WarpState::ISSUE, end);
  return true;
}

// IMAD.WIDE: while wgmma runs each waits for its turn, and takes it from wgmma; alone at their own pace.
bool imad_wide(Role* role, const Op& op) {
  if (machine.run.is_ideal(Ideal::IMAD_WIDE)) return true;
  Sm& sm = sm_of(role);
  WarpScheduler& scheduler = sm.scheduler;
  TensorCore& core = sm.tensor_core;
  const WarpSchedulerConstants& spec = *input.warp_scheduler;
  double pace = op.flags & 2 ? scheduler.pace : 1.0;
  double num = role->is_partly_done ? role->partly_left : op.number;
  role->is_partly_done = false;
  double left_cycles = core.wgmma_until - role->t;
  double now;
  double end;
  if (left_cycles > EPSILON_CYCLES) {
    // what an IMAD.WIDE of each warp takes of wgmma, and from one to the next beside them
    bool is_interleaved = (op.flags & 1) && role->num_warps > 1;
    double each = is_interleaved ? spec.imad_wide_interleaved_cycles : spec.imad_wide_cycles;
    double taken = pace * each * warps_each(role->num_warps, spec.num_schedulers);
    double turn = larger(pace * spec.imad_wide_during_wgmma_cycles, 2.0 * taken);
    now = smaller(num, left_cycles / (turn - taken));
    core.pipe.free_at += now * taken;
    core.wgmma_until += now * taken;
    scheduler.issue(now, role->num_warps, role->t);
    end = role->t + now * turn;
  } else {
    now = core.wgmma_until != 0.0 ? smaller(num, TURN_INSTRUCTIONS) : num;
    double own = role->t + now * pace * spec.imad_wide_cycles;
    end = scheduler.execute(scheduler.imad_wide_pipe, now * pace, role->num_warps, role->t);
    end = larger(end, own);
    if (end > core.wide_until) core.wide_until = end;
  }
  if (num - now > EPSILON_INSTRUCTIONS)
    return role->ask_again(end, role->t, num - now, WarpState::MATH_PIPE, Wait::PRODUCTS_TURN);
  role->spend(WarpState::MATH_PIPE, end);
  return true;
}

// Special-function pipe.
void mufu(Role* role, const Op& op) {
  WarpScheduler& scheduler = sm_of(role).scheduler;
  double end = scheduler.execute(scheduler.mufu_pipe, op.number, role->num_warps, role->t);
  role->spend(WarpState::MATH_PIPE, end);
}

// Shuffles; in a chain each waits until the one before has given its word.
void shfl(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  counters.smem.wavefronts += op.number * op.extra;
  double chained = op.flags & 1 ? role->t + op.number * input.warp_scheduler->shuffle_cycles : 0.0;
  double end = sm.scheduler.execute(sm.scheduler.shuffle_pipe, op.number, op.extra, role->t);
  role->spend(WarpState::SHORT_SCOREBOARD, end > chained ? end : chained);
}

// Trades registers with the CTA's pool; more of them may have to be waited for.
bool set_max_nreg(Role* role, const Op& op) {
  role->issue(1.0);
  Cta* cta = role->cta;
  int32_t needed = (op.extra - role->registers) * role->num_threads;
  role->registers = op.extra;
  if (needed <= 0 || needed <= cta->free_registers) {
    cta->free_registers -= needed;
    if (needed <= 0) cta->hand_out_registers(role->t);
    return true;
  }
  cta->register_waiters.push(RegisterWaiter{needed, role});
  return role->block(WarpState::WAIT_REGISTERS, Wait::REGISTERS);
}

// ------------------------------------------------------------------------------------------ sections, turns

void range_start(Role* role, const Op& op) {
  if (op.extra == int32_t(Section::EPILOGUE))  // the accumulators are read
    role->spend(WarpState::MATH_PIPE, role->mma_done);
  role->sections.push(OpenSection{op.extra, role->t});
  Ideal ideal = op.extra == int32_t(Section::EPILOGUE)   ? Ideal::EPILOGUE
                : op.extra == int32_t(Section::PROLOGUE) ? Ideal::PROLOGUE
                                                         : Ideal::MAINLOOP;
  role->is_free |= machine.run.is_ideal(ideal);
}

void range_end(Role* role, const Op&) {
  OpenSection open = role->sections.back();
  role->sections.pop();
  role->is_free = false;
  if (open.section == int32_t(Section::EPILOGUE)) {
    double& spent = machine.run.epilogue_cycles[role->idx];
    spent = larger(0.0, spent) + (role->t - open.start_cycle);
  }
  if (role->is_recorded)
    machine.recorder.role_sections.push(
        RoleSectionRecord{role->cta->idx, role->idx, open.section, open.start_cycle, role->t});
}

// A persistent CTA begins a work tile, in the plan's wave; a grid may have more CTAs than run at once.
void turn(Role* role, const Op& op) {
  double tile = role->cta->idx + op.extra * input.launch->num_ctas;
  role->wave = int32_t(tile / input.launch->num_at_once);
}

}  // namespace gpusim
