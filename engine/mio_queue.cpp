// The queue of instructions before an SM's shared-memory data stage, and warps that wait for a place.
#include "mio_queue.h"

#include "machine.h"

namespace gpusim {

namespace {

constexpr double QUEUE_PLACES = 60.0;           // instructions; kernels/behind_conflicts, h100_sxm
constexpr double LEAST_TURN_WAVEFRONTS = 32.0;  // fewer of a role's loads are no turn of their own; a choice
constexpr double EPSILON_WAVEFRONTS = 1e-6;

}  // namespace

bool takes_turns(const Role* role, double num_wavefronts) {
  return num_wavefronts > LEAST_TURN_WAVEFRONTS && sm_of(role).smem.takes_turns();
}

double way_wavefronts(const AccessRecord& access, double num_wavefronts) {
  return smaller(num_wavefronts, larger(access.num_requests, access.num_bytes / WAVEFRONT_BYTES));
}

double words_per_lane(const AccessRecord& access, bool is_matrix) {
  if (is_matrix || access.num_requests == 0.0) return 1.0;
  return access.num_bytes / (WAVEFRONT_BYTES * access.num_requests);
}

// ------------------------------------------------------------------------------------------ who waits

double QueuedRole::take(double at_cycle) {
  role->has_entered = true;
  role->resume(at_cycle);
  return at_cycle;
}

void QueuedRole::over() { machine.flights.queued_roles.release(this); }

QueuedLoad::QueuedLoad(Role* role, const Op& op, double wavefronts, bool is_matrix)
    : role_(role),
      stage_(role->stage(op.stage)),
      wavefronts_(wavefronts),
      turn_(larger(LEAST_TURN_WAVEFRONTS, wavefronts / role->num_warps)),
      asked_at_(role->t) {
  const AccessRecord& access = input.accesses[uint32_t(op.cost)];
  age = role->cta->idx;
  left = wavefronts;
  num_places = larger(1.0, access.num_requests * turn_ / wavefronts);
  registers_ = access.num_bytes / WAVEFRONT_BYTES / wavefronts;
  on_way_ = way_wavefronts(access, wavefronts);
  words_ = words_per_lane(access, is_matrix);
  num_parts_ = is_matrix ? 1 : op.step;
  first_left_ = wavefronts / num_parts_;
}

Token* QueuedLoad::begin(double at_cycle) {
  if (stage_ != nullptr) stage_->begin_read(role_->t, role_);
  role_->cta->num_copies++;
  Sm& sm = sm_of(role_);
  counters.smem.wavefronts += wavefronts_;
  counters.smem.load_wavefronts += wavefronts_;
  Token* token = token_->hold();
  sm.mio_queue.ask(this, at_cycle);
  return token;
}

double QueuedLoad::ready(double end_cycle, int32_t num_parts) const {
  return sm_of(role_).smem.ready(end_cycle, wavefronts_ / role_->num_warps / num_parts, words_, asked_at_);
}

double QueuedLoad::take(double at_cycle) {
  SharedMemory& smem = sm_of(role_).smem;
  double turn = smaller(left, turn_);
  Served served = smem.load(turn, registers_, at_cycle, on_way_);
  on_way_ = 0.0;
  double passed = turn - served.left;
  left -= passed;
  if (first_left_ > 0.0) {
    first_left_ -= passed;
    if (first_left_ <= EPSILON_WAVEFRONTS) {  // the first part has been served
      double at = served.end + first_left_ / input.smem->wavefronts_per_cycle;
      token_->become_ready(ready(at, num_parts_), 0.0);
    }
  }
  if (left <= EPSILON_WAVEFRONTS) {
    left = 0.0;
    if (stage_ != nullptr) {
      double until = ready(served.end, 1) - input.smem->load_latency_cycles;
      stage_->end_read(until);
      role_->record_read(stage_->idx, asked_at_, until);
    }
  }
  return served.end;
}

void QueuedLoad::over() {
  Cta* cta = role_->cta;
  token_->drop();
  machine.flights.queued_loads.release(this);
  cta->copy_ended();
}

// ------------------------------------------------------------------------------------------ the queue

void MioQueue::ask(QueuedLoad* load, double at_cycle) {
  waiting_.push(load->age, load);
  fill(at_cycle);
}

bool MioQueue::wait_for_place(Role* role) {
  int32_t mine = role->cta->idx;
  bool is_first = role->has_entered || waiting_.empty() || input.smem->overtakable_wavefronts == 0.0 ||
                  waiting_.first().at > mine || (waiting_.first().at == mine && role->num_warps == 1);
  role->has_entered = false;
  if (is_first) return true;
  role->must_retry = true;
  role->block(WarpState::LSU, Wait::PLACE_BEFORE_DATA_STAGE);
  QueuedRole* entrant = machine.flights.queued_roles.make();
  entrant->role = role;
  waiting_.push(mine, entrant);
  return false;
}

double MioQueue::num_ahead(const Role* role) const {
  double ahead = 0.0;
  int32_t mine = role->cta->idx;
  bool is_alone = role->num_warps == 1;
  for (const auto& entry : waiting_.entries())
    if (entry.at < mine || (entry.at == mine && !is_alone)) ahead += entry.item->left;
  return ahead;
}

// Lets in who waits while there is room.
void MioQueue::fill(double at_cycle) {
  while (!in_line_.empty() && in_line_.front().until <= at_cycle) num_places_ -= in_line_.pop().num_places;
  if (in_line_.empty()) num_places_ = 0.0;  // and not what rounding leaves
  while (!waiting_.empty()) {
    QueuedWarp* warp = waiting_.first().item;
    if (!in_line_.empty() && num_places_ + warp->num_places > QUEUE_PLACES) break;
    waiting_.pop();
    double end = warp->take(at_cycle);
    if (warp->num_places == 0.0) {
      warp->over();
      continue;
    }
    in_line_.push(Place{end, warp->num_places});
    num_places_ += warp->num_places;
    if (warp->left != 0.0)
      waiting_.push(warp->age, warp);
    else
      warp->over();
  }
  if (!waiting_.empty() && !is_watched_) {
    is_watched_ = true;
    agenda.at(in_line_.front().until, this, 0);
  }
}

void MioQueue::act(uint8_t) {
  is_watched_ = false;
  fill(agenda.cycle);
}

}  // namespace gpusim
