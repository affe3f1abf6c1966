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
constexpr uint64_t LAZY = bit(OpKind::WGMMA_COMMIT_GROUP) | bit(OpKind::WGMMA_WAIT_GROUP) |
                          bit(OpKind::MBARRIER_WAIT) | bit(OpKind::MBARRIER_ARRIVE) |
                          bit(OpKind::CP_ASYNC_WAIT_GROUP) | bit(OpKind::BULK_COMMIT_GROUP) |
                          bit(OpKind::BULK_WAIT_GROUP) | bit(OpKind::USE) | bit(OpKind::RANGE_START) |
                          bit(OpKind::RANGE_END) | bit(OpKind::TURN);

// Ops that give a token back within some twenty cycles.
constexpr uint64_t QUICK = bit(OpKind::SHARED_LOAD) | bit(OpKind::SHARED_ATOMIC) | bit(OpKind::LDMATRIX);

// Ops that are carried out even in a section that a counterfactual makes free: others depend on them.
constexpr uint64_t WHEN_FREE =
    bit(OpKind::MBARRIER_ARRIVE) | bit(OpKind::MBARRIER_ARRIVE_EXPECT_TX) | bit(OpKind::MBARRIER_WAIT) |
    bit(OpKind::BAR_SYNC) | bit(OpKind::BAR_ARRIVE) | bit(OpKind::SYNCTHREADS) | bit(OpKind::CLUSTER_ARRIVE) |
    bit(OpKind::CLUSTER_WAIT) | bit(OpKind::SET_MAX_NREG) | bit(OpKind::RANGE_START) |
    bit(OpKind::RANGE_END) | bit(OpKind::USE) | bit(OpKind::TMA_LOAD) | bit(OpKind::CP_ASYNC) |
    bit(OpKind::CP_ASYNC_COMMIT_GROUP) | bit(OpKind::CP_ASYNC_WAIT_GROUP) | bit(OpKind::TURN);

bool is_in(uint64_t set, uint8_t kind) { return (set >> kind) & 1; }

}  // namespace

// ------------------------------------------------------------------------------------------ the last warp

double SlowestWarp::asks(Token* token, double num_bytes) {
  token->late_before = cycles;
  token->num_meetings = num_meetings;
  asked_bytes += num_bytes;
  return num_bytes != 0.0 ? asked_bytes / num_bytes : 1.0;
}

void SlowestWarp::fall_behind(const Token* token, double late, double worked) {
  if (late <= 0.0) return;
  double still = larger(0.0, cycles - (worked - worked_before));
  double before = token->num_meetings == num_meetings ? smaller(token->late_before, still) : 0.0;
  double all = __builtin_sqrt(before * before + late * late);
  cycles = larger(all, still);
  worked_before = worked;
}

double SlowestWarp::meet(double worked) {
  num_meetings++;
  double late = cycles - (worked - worked_before);
  cycles = 0.0;
  return larger(0.0, late);
}

// ------------------------------------------------------------------------------------------ life

Role::Role(Cta* its_cta, uint32_t its_idx)
    : cta(its_cta),
      idx(its_idx),
      num_warps(int32_t(input.roles[idx].num_warps)),
      num_threads(int32_t(input.roles[idx].num_threads)),
      num_warpgroups(int32_t(input.roles[idx].num_warpgroups)),
      wave(cta->wave),
      is_recorded(input.sms[cta->sm].is_recorded != 0) {
  uint32_t of_class = uint32_t(input.cta_class[uint32_t(cta->idx)]) * input.roles.size;
  const ProgramRecord& program = input.programs[uint32_t(input.class_programs[of_class + idx])];
  first_op_ = input.ops.items + program.begin;
  next_op_ = first_op_;
  end_op_ = first_op_ + program.num_ops;
  op_ = first_op_;
  tokens_.fill(uint32_t(program.num_tokens), nullptr);
}

Role::~Role() {
  for (Token* token : tokens_)
    if (token != nullptr) token->drop();
  if (last_store != nullptr) last_store->drop();
  while (!queued_stores.empty()) queued_stores.pop().group->drop();
  while (!cp_groups.empty()) cp_groups.pop()->drop();
  if (cp_open != nullptr) cp_open->drop();
  while (!bulk_groups.empty()) bulk_groups.pop().drop();
  if (bulk_open.read != nullptr) bulk_open.drop();
}

void Role::start(double created_cycle, double start_cycle) {
  t = created_cycle;
  if (is_recorded) machine.recorder.role_begins.push(RoleBeginRecord{cta->idx, idx, cta->sm});
  spend(WarpState::START, start_cycle);
  agenda.at(t, this, BEGIN);
}

void Role::act(uint8_t what) {
  if (what == BEGIN) {
    go_on(false);
  } else if (what == CAUGHT_UP) {
    go_on(true);
  } else if (what == COPIES_ISSUED) {
    agenda.at(sm_of(this).l1.rows_taken_at, this, WOKEN);
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
    bool goes_on = is_free && !is_in(WHEN_FREE, op_->kind) ? carry_out_free(*op_) : carry_out(this, *op_);
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
  if (slot >= 0) give_token(slot, Token::make(false, t));
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
    double end = sm_of(this).scheduler.issue(num_instructions, num_warps, t);
    spend(WarpState::ISSUE, end);
  }
}

void Role::meet() {
  double late = slowest_warp.cycles != 0.0 ? slowest_warp.meet(worked()) : 0.0;
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

void Role::resume(double cycle) { agenda.at(larger(cycle, t), this, WOKEN); }

bool Role::wait_group(AsyncGroup* group, WarpState state, Wait wait) {
  if (group->num_pending) {
    group->on_complete.push(this);
    return block(state, wait);
  }
  spend(state, group->ready_at);
  return true;
}

bool Role::ask_again(double cycle, double asked_at, double left, WarpState state, Wait wait) {
  is_partly_done = true;
  partly_since = asked_at;
  partly_left = left;
  must_retry = true;
  resume(cycle);
  return block(state, wait);
}

void Role::fall_behind(const Token* token) {
  if (token->late_cycles == 0.0) return;
  double late = token->late_cycles - larger(0.0, t - token->ready_at);
  slowest_warp.fall_behind(token, late, worked());
}

// ------------------------------------------------------------------------------------------ what ops need

void Role::give_token(int32_t slot, Token* token) {
  Token*& held = tokens_[uint32_t(slot)];
  if (held != nullptr) held->drop();
  held = token;
}

MemoryRequest Role::request(const Op& op, double num_bytes, double at) const {
  uint32_t tensor = uint32_t(op.extra);
  TileKey tile = TileKey::of(tensor, cta->panels[op.panel], op.step);
  return MemoryRequest{{cta->sm, tensor, tile, num_bytes, wave, at, 1.0, cta->panels, &cta->own_tiles}};
}

void Role::record_read(int32_t stage_idx, double start, double end) const {
  if (is_recorded)
    machine.recorder.read_spans.push(ReadSpanRecord{cta->idx, cta->sm, idx, stage_idx, start, end});
}

BlockedRoleRecord Role::blocked() const {
  BlockedRoleRecord row = {};
  row.cta = cta->idx;
  row.role = idx;
  row.op = op_idx();
  row.since_cycle = blocked_since_;
  row.wait = int64_t(waits_for_);
  row.barrier = -1;
  if (waits_for_ == Wait::MBARRIER || waits_for_ == Wait::NAMED_BARRIER) row.barrier = op_->barrier;
  if (waits_for_ == Wait::MBARRIER) {
    const Mbarrier& barrier = cta->mbarriers[op_->barrier];
    row.parity = op_->extra;
    row.pending = barrier.pending;
    row.num_arrivals = barrier.num_arrivals;
    row.tx_bytes = barrier.tx_bytes;
    row.announced_bytes = barrier.announced_bytes;
    row.delivered_bytes = barrier.delivered_bytes;
  } else if (waits_for_ == Wait::CP_ASYNC_GROUP || waits_for_ == Wait::BULK_GROUP) {
    row.number = op_->extra;
  } else if (waits_for_ == Wait::REGISTERS) {
    row.number = op_->extra;
    for (const RegisterWaiter& waiter : cta->register_waiters)
      if (waiter.role == this) row.pending = waiter.num_registers;
  }
  return row;
}

}  // namespace gpusim
