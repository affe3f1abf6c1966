// Whose mma.sync an SM's tensor cores take, or whose FFMA its schedulers, where several roles multiply so.
#include "mma_arbiter.h"

#include "machine.h"

namespace gpusim {

namespace {

// for how long who multiplies may do something else, and still goes on first
constexpr double GREEDY_CYCLES = 16.0;
constexpr double EPSILON_CYCLES = 1e-6;
static_assert(GREEDY_CYCLES < MOST_LATE_CYCLES, "a role's turn begins so much behind the clock at most");

}  // namespace

bool MmaArbiter::ask(Role* role, const Op& op, Multiply multiply, int32_t num_runs, bool by_age) {
  by_age_ = by_age;
  Waiter waiter{role, &op, multiply, num_runs};
  bool goes_on = role->t <= until_ + GREEDY_CYCLES;
  bool is_free;
  if (is_owner(role))
    is_free = goes_on && !(by_age_ && !waiting_.empty() && num_older(role));
  else
    is_free = !goes_on && waiting_.empty();
  if (is_free) {
    begin(waiter);
    return true;
  }
  waiting_.push(waiter);
  watch();
  return role->block(state_, wait_);
}

void MmaArbiter::begin(const Waiter& waiter) {
  Role* role = waiter.role;
  double since = role->t;
  owner_ = role;
  owner_cta_ = role->cta->idx;
  owner_warps_ = role->num_warps;
  waiter.multiply(role, *waiter.op);
  until_ = role->t;
  double each = (until_ - since) / waiter.num_runs;
  // a role that is held later counts only runs that begin after that
  while (held_.empty() && !runs_.empty() && runs_.front() < agenda.cycle - MOST_LATE_CYCLES) runs_.pop();
  for (int32_t run = 0; run < waiter.num_runs; run++) {
    if (runs_.size() == MOST_RUNS) runs_.pop();
    runs_.push(since + run * each);
  }
}

// Runs that began by `cycle`.
uint32_t MmaArbiter::num_runs_until(double cycle) {
  uint32_t first = 0;
  for (uint32_t num = runs_.size(); num;) {
    uint32_t half = num / 2;
    bool is_over = runs_[first + half] <= cycle;
    first = is_over ? first + half + 1 : first;
    num = is_over ? num - half - 1 : half;
  }
  return first;
}

bool MmaArbiter::hold(Role* role, double num_copies) {
  if (role->copy_pass != CopyPass::NONE) {
    if (role->copy_pass == CopyPass::ONCE) role->copy_pass = CopyPass::NONE;
    return true;
  }
  if (is_owner(role) && !waiting_.empty()) next();
  if (is_owner(role) || owner_ == nullptr || role->t > until_ + GREEDY_CYCLES) return true;
  held_.push(Held{role, role->t, num_copies});
  watch();
  role->must_retry = true;
  return role->block(WarpState::ISSUE, Wait::SCHEDULERS_TURN);
}

void MmaArbiter::watch() {
  double now = agenda.cycle;
  double at = until_ + GREEDY_CYCLES;
  if (!held_.empty()) {
    uint32_t next = num_runs_until(now + EPSILON_CYCLES);
    if (next < runs_.size()) at = runs_[next];
  }
  if (at < watched_at_) {
    watched_at_ = at;
    agenda.at(at, this, 0);
  }
}

// Has the one that multiplies stopped?
void MmaArbiter::act(uint8_t) {
  if (waiting_.empty() && held_.empty()) {
    watched_at_ = INFINITE;
    return;
  }
  if (agenda.cycle < watched_at_ - EPSILON_CYCLES)
    return;  // an earlier look has been here, and wants the next one later
  watched_at_ = INFINITE;
  bool goes_on = agenda.cycle < until_ + GREEDY_CYCLES - EPSILON_CYCLES;
  let_copy(agenda.cycle, goes_on);
  if (!goes_on && !waiting_.empty()) next();
  if (!waiting_.empty() || !held_.empty()) watch();
}

void MmaArbiter::let_copy(double now, bool goes_on) {
  if (owner_ == nullptr || held_.empty()) return;
  bool has_stops = owner_warps_ <= input.warp_scheduler->num_schedulers;
  bool is_busy = goes_on || !waiting_.empty();
  double num_multiplying = 1.0 + waiting_.size();
  uint32_t num_begun = num_runs_until(now + EPSILON_CYCLES);
  Vector<Held> held;
  held.swap(held_);
  for (const Held& item : held) {
    double passed = num_begun > num_runs_until(item.since) ? num_begun - num_runs_until(item.since) : 0.0;
    bool is_first = false;
    double wanted = item.num_copies * num_multiplying;
    if (by_age_) {
      int32_t older = num_older(item.role);
      is_first = !older;
      wanted = older ? item.num_copies * (1 + older) : 1.0;
    }
    if (is_busy && (passed < wanted || !(has_stops || is_first))) {
      held_.push(item);
    } else {
      item.role->copy_pass = is_busy ? CopyPass::ONCE : CopyPass::UNTIL_COMMIT;
      agenda.later(0.0, item.role, Role::WOKEN);
    }
  }
}

// CTAs older than a role's that multiply or want to.
int32_t MmaArbiter::num_older(const Role* role) {
  int32_t mine = role->cta->idx;
  int32_t num = owner_ != nullptr && owner_cta_ < mine;
  for (uint32_t place = 0; place < waiting_.size(); place++) {
    const Role* other = waiting_[place].role;
    num += !is_owner(other) && other->cta->idx < mine;
  }
  return num;
}

// The turn of who has waited longest, or of the oldest.
void MmaArbiter::next() {
  uint32_t first = 0;
  if (by_age_) {
    for (uint32_t place = 1; place < waiting_.size(); place++)
      if (waiting_[place].role->cta->idx < waiting_[first].role->cta->idx) first = place;
  }
  Waiter waiter = waiting_[first];
  waiting_.erase(first);
  waiter.role->spend(state_, until_);
  begin(waiter);
  agenda.later(0.0, waiter.role, Role::WOKEN);
}

}  // namespace gpusim
