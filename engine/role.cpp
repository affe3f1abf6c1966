// A role while it runs: drives its program, op by op, and keeps the account of its time.
#include "role.h"

#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

// how far a cursor may run ahead before it queues work on something shared
constexpr double SYNC_CYCLES = 48.0;
// the same before it loads from shared memory, whose latency is short
constexpr double SHARED_SYNC_CYCLES = 16.0;

constexpr uint64_t bit(OpKind kind) { return uint64_t(1) << uint32_t(kind); }

// Ops that touch nothing shared, or say when what they do counts, so that the clock need not catch up first.
constexpr uint64_t LAZY =
    bit(OpKind::WGMMA_COMMIT_GROUP) | bit(OpKind::WGMMA_WAIT_GROUP) | bit(OpKind::MBARRIER_WAIT) |
    bit(OpKind::MBARRIER_ARRIVE) | bit(OpKind::CP_ASYNC_WAIT_GROUP) | bit(OpKind::BULK_COMMIT_GROUP) |
    bit(OpKind::BULK_WAIT_GROUP) | bit(OpKind::USE) | bit(OpKind::RANGE_START) | bit(OpKind::RANGE_END);

// Ops that give a token back within some twenty cycles.
constexpr uint64_t QUICK = bit(OpKind::SHARED_LOAD) | bit(OpKind::SHARED_ATOMIC) | bit(OpKind::LDMATRIX);

// Ops that are carried out even in a section that a counterfactual makes free: others depend on them.
constexpr uint64_t WHEN_FREE =
    bit(OpKind::MBARRIER_ARRIVE) | bit(OpKind::MBARRIER_ARRIVE_EXPECT_TX) | bit(OpKind::MBARRIER_WAIT) |
    bit(OpKind::BAR_SYNC) | bit(OpKind::BAR_ARRIVE) | bit(OpKind::SYNCTHREADS) | bit(OpKind::CLUSTER_ARRIVE) |
    bit(OpKind::CLUSTER_WAIT) | bit(OpKind::SET_MAX_NREG) | bit(OpKind::RANGE_START) |
    bit(OpKind::RANGE_END) | bit(OpKind::USE) | bit(OpKind::TMA_LOAD) | bit(OpKind::CP_ASYNC) |
    bit(OpKind::CP_ASYNC_COMMIT_GROUP) | bit(OpKind::CP_ASYNC_WAIT_GROUP);

bool is_in(uint64_t set, uint8_t kind) { return (set >> kind) & 1; }

}  // namespace

// ------------------------------------------------------------------------------------------ the last warp

double Laggard::asks(Token* token, double num_bytes) {
  token->late_before = cycles;
  token->num_meetings = num_meetings;
  asked_bytes += num_bytes;
  return num_bytes != 0.0 ? asked_bytes / num_bytes : 1.0;
}

void Laggard::fall_behind(const Token* token, double late, double worked) {
  if (late <= 0.0) return;
  double still = larger(0.0, cycles - (worked - worked_before));
  double before = token->num_meetings == num_meetings ? smaller(token->late_before, still) : 0.0;
  double all = __builtin_sqrt(before * before + late * late);
  cycles = larger(all, still);
  worked_before = worked;
}

double Laggard::meet(double worked) {
  num_meetings++;
  double late = cycles - (worked - worked_before);
  cycles = 0.0;
  return larger(0.0, late);
}

// ------------------------------------------------------------------------------------------ life

void Role::reset(Cta* its_cta, uint32_t its_idx, double start_cycle, double created_cycle) {
  const RoleRecord& shape = input.roles[its_idx];
  cta = its_cta;
  idx = its_idx;
  num_warps = int32_t(shape.num_warps);
  num_threads = int32_t(shape.num_threads);
  num_warpgroups = int32_t(shape.num_warpgroups);
  wave = its_cta->wave;
  t = created_cycle;
  for (double& total : totals) total = 0.0;
  is_done = false;
  is_recorded = input.sms[its_cta->sm].is_recorded != 0;
  is_free = false;
  must_retry = false;
  has_entered = false;
  copy_pass = CopyPass::NONE;
  laggard = Laggard();
  is_partly_done = false;
  copies_until = 0.0;
  loads_since = 0.0;
  wgmma_open = 0.0;
  wgmma_through = 0.0;
  mma_done = 0.0;
  arrives_far_at = 0.0;
  stored_at = 0.0;
  stored_out_at = -1e9;
  delivered_at = 0.0;
  all_fenced_at = 0.0;
  passed_bytes = 0.0;
  cluster_release = NOT_ARRIVED;
  registers = int32_t(input.launch->registers_per_thread);
  uint32_t of_class = uint32_t(input.cta_class[uint32_t(its_cta->idx)]) * input.roles.size;
  const ProgramRecord& program = input.programs[uint32_t(input.class_programs[of_class + its_idx])];
  first_op_ = input.ops.items + program.begin;
  next_op_ = first_op_;
  end_op_ = first_op_ + program.num_ops;
  op_ = first_op_;
  tokens_.fill(uint32_t(program.num_tokens), nullptr);
  sections_.clear();
  waits_for_ = Wait::NOTHING;
  blocked_since_ = 0.0;
  if (is_recorded) machine.recorder.role_begins.push(RoleBeginRecord{cta->idx, idx, cta->sm});
  spend(WarpState::START, start_cycle);
}

void Role::clear() {
  for (Token*& token : tokens_) {
    if (token != nullptr) {
      token->drop();
      token = nullptr;
    }
  }
  if (last_store != nullptr) {
    last_store->drop();
    last_store = nullptr;
  }
  while (!queued_stores.empty()) queued_stores.pop().group->drop();
  while (!cp_groups.empty()) cp_groups.pop()->drop();
  if (cp_open != nullptr) {
    cp_open->drop();
    cp_open = nullptr;
  }
  while (!bulk_groups.empty()) {
    BulkGroups groups = bulk_groups.pop();
    groups.read->drop();
    groups.whole->drop();
  }
  if (bulk_open.read != nullptr) {
    bulk_open.read->drop();
    bulk_open.whole->drop();
    bulk_open = BulkGroups{nullptr, nullptr};
  }
  wgmma_groups.clear();
}

void Role::start() { agenda.later(larger(0.0, t - agenda.cycle), this, BEGIN); }

void Role::act(uint8_t what) {
  if (what == BEGIN) {
    go_on(false);
  } else if (what == CAUGHT_UP) {
    go_on(true);
  } else if (what == COPIES_ISSUED) {
    fire(larger(0.0, sm_of(this).l1.rows_taken_at - agenda.cycle));
  } else {
    waits_for_ = Wait::NOTHING;
    spend(wait_state_, agenda.cycle);
    bool is_retry = must_retry;
    must_retry = false;
    go_on(is_retry);
  }
}

// Carries out the op that waited, if `is_retry`, and those that follow, until one must wait.
void Role::go_on(bool is_retry) {
  for (;;) {
    if (!is_retry) {
      while (next_op_ < end_op_ && next_op_->kind == uint8_t(OpKind::TURN)) {
        wave = next_op_->extra;
        next_op_++;
      }
      if (next_op_ == end_op_) break;
      op_ = next_op_++;
      double ahead = t - agenda.cycle;
      if (ahead > SHARED_SYNC_CYCLES &&
          ((ahead > SYNC_CYCLES && !is_in(LAZY, op_->kind)) || is_in(QUICK, op_->kind))) {
        agenda.later(ahead, this, CAUGHT_UP);
        return;
      }
    }
    is_retry = false;
    bool goes_on = is_free && !is_in(WHEN_FREE, op_->kind) ? carry_out_free(*op_) : carry_out(*op_);
    if (!goes_on || machine.failure.is_any()) return;
  }
  meet();
  is_done = true;
  machine.run.role_ended(this);
}

// An op in a section that a counterfactual makes free.
bool Role::carry_out_free(const Op& op) {
  OpKind kind = OpKind(op.kind);
  int32_t slot = -1;
  if (kind == OpKind::GLOBAL_LOAD || (kind == OpKind::GLOBAL_ATOMIC && (op.flags & 1))) {
    slot = op.stage;
  } else if (kind == OpKind::SHARED_LOAD || kind == OpKind::SHARED_ATOMIC || kind == OpKind::LDMATRIX ||
             kind == OpKind::DSMEM_LOAD) {
    slot = op.extra;
  } else if ((kind == OpKind::SHARED_STORE || kind == OpKind::STMATRIX) && (op.flags & 1)) {
    slot = op.extra;
  }
  if (slot >= 0) {
    Token* token = Token::make(false);
    token->is_ready = true;
    token->ready_at = t;
    give_token(slot, token);
  }
  return true;
}

bool Role::carry_out(const Op& op) {
  switch (OpKind(op.kind)) {
    case OpKind::GLOBAL_LOAD: return global_load(this, op);
    case OpKind::GLOBAL_STORE: return global_store(this, op);
    case OpKind::GLOBAL_ATOMIC: return global_atomic(this, op);
    case OpKind::USE: return use(this, op);
    case OpKind::CP_ASYNC: return cp_async(this, op);
    case OpKind::CP_ASYNC_COMMIT_GROUP: return cp_async_commit_group(this, op);
    case OpKind::CP_ASYNC_WAIT_GROUP: return cp_async_wait_group(this, op);
    case OpKind::CP_ASYNC_MBARRIER_ARRIVE: return cp_async_mbarrier_arrive(this, op);
    case OpKind::TMA_LOAD: return tma_load(this, op);
    case OpKind::TMA_STORE: return tma_store(this, op);
    case OpKind::BULK_COMMIT_GROUP: return bulk_commit_group(this, op);
    case OpKind::BULK_WAIT_GROUP: return bulk_wait_group(this, op);
    case OpKind::PREFETCH_TENSORMAP: return prefetch_tensormap(this, op);
    case OpKind::MBARRIER_INIT: issue(1.0); return true;
    case OpKind::MBARRIER_ARRIVE: return mbarrier_arrive(this, op);
    case OpKind::MBARRIER_ARRIVE_EXPECT_TX: return mbarrier_arrive_expect_tx(this, op);
    case OpKind::MBARRIER_WAIT: return mbarrier_wait(this, op);
    case OpKind::BAR_SYNC: return bar_sync(this, op);
    case OpKind::BAR_ARRIVE: return bar_arrive(this, op);
    case OpKind::SYNCTHREADS: return syncthreads(this, op);
    case OpKind::CLUSTER_ARRIVE: return cluster_arrive(this, op);
    case OpKind::CLUSTER_WAIT: return cluster_wait(this, op);
    case OpKind::FENCE_PROXY_ASYNC: return fence_proxy_async(this, op);
    case OpKind::FENCE_MBARRIER_INIT: issue(1.0); return true;
    case OpKind::FENCE_ACQ_REL: return fence_acq_rel(this, op);
    case OpKind::SHARED_LOAD:
    case OpKind::LDMATRIX: return shared_load(this, op);
    case OpKind::SHARED_STORE:
    case OpKind::STMATRIX: return shared_store(this, op);
    case OpKind::SHARED_ATOMIC: return shared_atomic(this, op);
    case OpKind::DSMEM_LOAD: return dsmem_load(this, op);
    case OpKind::DSMEM_STORE: return dsmem_store(this, op);
    case OpKind::ST_ASYNC: return st_async(this, op);
    case OpKind::MMA_SYNC: return mma_sync(this, op);
    case OpKind::WGMMA_FENCE: spend(WarpState::ISSUE, t + input.warp_scheduler->fence_cycles); return true;
    case OpKind::WGMMA: return wgmma(this, op);
    case OpKind::WGMMA_COMMIT_GROUP: wgmma_groups.push(wgmma_open); return true;
    case OpKind::WGMMA_WAIT_GROUP: return wgmma_wait_group(this, op);
    case OpKind::CODE: return fetch_code(this, op);
    case OpKind::FAR_CODE: return fetch_far_code(this, op);
    case OpKind::LOOP_CODE: return fetch_loop_code(this, op);
    case OpKind::FMA: return fma(this, op);
    case OpKind::ALU: return alu(this, op);
    case OpKind::MAD_WIDE: return mad_wide(this, op);
    case OpKind::MUFU: return mufu(this, op);
    case OpKind::SHFL: return shfl(this, op);
    case OpKind::SET_MAX_NREG: return set_max_nreg(this, op);
    case OpKind::RANGE_START: begin_section(op.extra); return true;
    case OpKind::RANGE_END: end_section(); return true;
    case OpKind::TURN: return true;
  }
  return true;
}

// ------------------------------------------------------------------------------------------ time

void Role::spend(WarpState state, double until) {
  double since = t;
  if (until > since) {
    totals[uint32_t(state)] += until - since;
    if (is_recorded)
      machine.recorder.role_states.push(RoleStateRecord{cta->idx, idx, int64_t(state), since, until});
    t = until;
  }
}

void Role::step(double num_cycles) {
  if (is_recorded) {
    spend(WarpState::ISSUE, t + num_cycles);
    return;
  }
  totals[uint32_t(WarpState::ISSUE)] += num_cycles;
  t += num_cycles;
}

void Role::issue(double num_instructions) {
  if (num_instructions != 0.0) {
    double end = sm_of(this).scheduler.issue(num_instructions, num_warps, t, 1.0);
    spend(WarpState::ISSUE, end);
  }
}

void Role::meet() {
  double late = laggard.cycles != 0.0 ? laggard.meet(worked()) : 0.0;
  if (late != 0.0) spend(WarpState::LONG_SCOREBOARD, t + late);
}

double Role::worked() const {
  return totals[uint32_t(WarpState::ISSUE)] + totals[uint32_t(WarpState::LSU)] +
         totals[uint32_t(WarpState::MATH_PIPE)];
}

// ------------------------------------------------------------------------------------------ waiting

bool Role::block(WarpState state, Wait wait) {
  wait_state_ = state;
  waits_for_ = wait;
  blocked_since_ = t;
  return false;
}

void Role::fire(double delay_cycles) { agenda.later(delay_cycles, this, WOKEN); }

void Role::resume(double cycle) {
  double now = agenda.cycle;
  double until = cycle > t ? cycle : t;
  fire(until > now ? until - now : 0.0);
}

void Role::wake_after_phase(double completed_at, bool by_lane) {
  double now = agenda.cycle;
  double until;
  if (by_lane) {
    until = looked_at(t, completed_at);
  } else {
    double asleep_at = t + input.mbarrier->try_wait_cycles;
    until = asleep_at;
    if (completed_at > t)  // the role may be ahead of the clock, and the phase already over when it asked
      until = larger(completed_at, asleep_at) + input.mbarrier->wake_cycles;
  }
  fire(until > now ? until - now : 0.0);
}

bool Role::wait_group(AsyncGroup* group, WarpState state, Wait wait) {
  if (group->num_pending) {
    block(state, wait);
    group->on_complete.push(GroupWaiter{GroupWaiter::WAKE, this, nullptr, 0, nullptr, 0.0});
    return false;
  }
  spend(state, group->ready_at);
  return true;
}

bool Role::ask_again(double cycle, double asked_at, double left, WarpState state, Wait wait) {
  is_partly_done = true;
  partly_since = asked_at;
  partly_left = left;
  must_retry = true;
  block(state, wait);
  resume(cycle);
  return false;
}

void Role::token_ready(const Token* token, double cycle) {
  if (token->late_cycles != 0.0) {
    double late = token->late_cycles - larger(0.0, t - cycle);
    laggard.fall_behind(token, late, worked());
  }
  resume(cycle);
}

// ------------------------------------------------------------------------------------------ what ops need

void Role::give_token(int32_t slot, Token* token) {
  Token*& held = tokens_[uint32_t(slot)];
  if (held != nullptr) held->drop();
  held = token;
}

MemoryRequest Role::request(const Op& op, double num_bytes, double at) const {
  MemoryRequest request;
  request.sm = cta->sm;
  request.tensor = uint32_t(op.extra);
  request.tile = TileKey::of(request.tensor, cta->panels[op.panel], op.step);
  request.num_bytes = num_bytes;
  request.wave = wave;
  request.issued_at = at;
  request.panels = cta->panels;
  request.own_tiles = &cta->own_tiles;
  return request;
}

void Role::begin_section(int32_t section) {
  if (section == int32_t(Section::EPILOGUE))  // the accumulators are read
    spend(WarpState::MATH_PIPE, mma_done);
  sections_.push(OpenSection{section, t});
  Ideal ideal = section == int32_t(Section::EPILOGUE)   ? Ideal::EPILOGUE
                : section == int32_t(Section::PROLOGUE) ? Ideal::PROLOGUE
                                                        : Ideal::MAINLOOP;
  if (machine.run.is_ideal(ideal)) is_free = true;
}

void Role::end_section() {
  OpenSection open = sections_.back();
  sections_.pop();
  is_free = false;
  if (open.section == int32_t(Section::EPILOGUE)) {
    double& spent = machine.run.epilogue_cycles[idx];
    spent = (spent < 0.0 ? 0.0 : spent) + (t - open.start_cycle);
  }
  if (is_recorded)
    machine.recorder.role_sections.push(RoleSectionRecord{cta->idx, idx, open.section, open.start_cycle, t});
}

void Role::record_read(int32_t stage_idx, double start, double end) const {
  if (is_recorded)
    machine.recorder.read_spans.push(ReadSpanRecord{cta->idx, cta->sm, idx, stage_idx, start, end});
}

}  // namespace gpusim
