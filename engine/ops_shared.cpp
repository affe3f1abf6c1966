// Shared memory, distributed shared memory.
#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

constexpr double ISSUE_CYCLES = 1.0;  // of one instruction of a warp

// How long before its last wavefront goes in the warps of a store go on.
double posted_cycles(const Role* role, const AccessRecord& access, double wavefronts) {
  double pace =
      larger(1.0 / input.smem->wavefronts_per_cycle, input.smem->warp_cycles_per_wavefront / role->num_warps);
  double num_schedulers = smaller(role->num_warps, input.warp_scheduler->num_schedulers);
  return L1::posted_cycles(wavefronts * pace, access.num_requests, access.num_bytes, num_schedulers);
}

}  // namespace

// Wavefronts of the data stage; the token is ready a latency later.
bool shared_load(Role* role, const Op& op) {
  const AccessRecord& access = input.accesses[uint32_t(op.cost)];
  Sm& sm = sm_of(role);
  SharedMemory& smem = sm.smem;
  double wavefronts = wavefronts_of(access);
  bool is_matrix = OpKind(op.kind) == OpKind::LDMATRIX;
  double asked_at = role->partly_since;
  double left = role->partly_left;
  if (!role->is_partly_done) {
    // instructions of a warp go to memory and shared memory in their order
    if (!role->queued_stores.empty() && !until_stored(role, role->queued_stores, role->passed_bytes)) {
      role->must_retry = true;
      return false;
    }
    double first = role->t + ISSUE_CYCLES;
    role->issue(access.num_requests / role->num_warps);
    if (is_matrix) sm.tensor_core.pass_loads(access.num_requests, role->t);
    SmemCounters& count = counters.smem;
    (is_matrix ? count.matrix_load_wavefronts : count.plain_load_wavefronts) += wavefronts;
    (is_matrix ? count.matrix_loads : count.plain_loads) += access.num_requests;
    if (takes_turns(role, wavefronts)) {
      QueuedLoad* load = machine.flights.queued_loads.make(role, op, wavefronts, is_matrix);
      role->give_token(op.extra, load->begin(role->num_warps > 1 ? smaller(first, role->t) : role->t));
      return true;
    }
    asked_at = role->t;
    left = wavefronts;
  }
  double registers = wavefronts != 0.0 ? access.num_bytes / WAVEFRONT_BYTES / wavefronts : 0.0;
  double at = role->t;
  double on_way = role->is_partly_done ? 0.0 : way_wavefronts(access, wavefronts);
  Served served = smem.load(left, registers, at, on_way);
  counters.smem.wavefronts += left - served.left;
  counters.smem.load_wavefronts += left - served.left;
  Stage* stage = role->stage(op.stage);
  if (served.left != 0.0) {
    if (stage != nullptr) stage->read(at, served.end, role);
    return role->ask_again(served.end, asked_at, served.left, WarpState::LSU, Wait::DATA_STAGE);
  }
  double words = words_per_lane(access, is_matrix);
  double per_warp = wavefronts / role->num_warps;
  double whole = smem.ready(served.end, per_warp, words, asked_at);
  double ready = whole;
  int32_t num_parts = is_matrix ? 1 : op.step;
  if (num_parts != 1) {
    double rest = wavefronts * (1.0 - 1.0 / num_parts);
    ready = smem.ready(served.end - rest / input.smem->wavefronts_per_cycle, per_warp / num_parts, words,
                       asked_at);
  }
  role->is_partly_done = false;
  if (stage != nullptr) {
    double until = whole - input.smem->load_latency_cycles;
    stage->read(at, until, role);
    role->record_read(op.stage, at, until);
  }
  role->give_token(op.extra, Token::make(false, ready));
  return true;
}

bool ldmatrix(Role* role, const Op& op) { return shared_load(role, op); }

// Wavefronts of the data stage from the first instruction on; warps go on when the last is in its queue.
bool shared_store(Role* role, const Op& op) {
  const AccessRecord& access = input.accesses[uint32_t(op.cost)];
  SharedMemory& smem = sm_of(role).smem;
  Stage* stage = role->stage(op.stage);
  double wavefronts = wavefronts_of(access);
  double at = role->t;
  double begun = role->partly_since;
  double left = role->partly_left;
  if (!role->is_partly_done) {
    double first = at + ISSUE_CYCLES;
    role->issue(access.num_requests / role->num_warps);
    at = smaller(first, role->t);
    bool is_matrix = OpKind(op.kind) == OpKind::STMATRIX;
    SmemCounters& count = counters.smem;
    (is_matrix ? count.matrix_store_wavefronts : count.plain_store_wavefronts) += wavefronts;
    (is_matrix ? count.matrix_stores : count.plain_stores) += access.num_requests;
    begun = role->t;
    left = wavefronts;
  }
  Served served = smem.store(left, at, role->is_partly_done);
  if (served.left != 0.0)
    return role->ask_again(served.end, begun, served.left, WarpState::LSU, Wait::DATA_STAGE);
  role->is_partly_done = false;
  double rate = input.smem->wavefronts_per_cycle;
  double end =
      larger(served.end, begun + wavefronts / role->num_warps * input.smem->warp_cycles_per_wavefront);
  double last = 1.0 / rate;
  double ahead = smem.replay_cycles(wavefronts, access.num_bytes, end - begun);
  double each = wavefronts / larger(access.num_requests, 1.0) / rate;
  // half of the warps have their last one served behind a middle one's
  double others = each * (role->num_warps - 1) / 2.0;
  double delivered = end - ahead - others + input.smem->store_latency_cycles;
  if (end > role->stored_at) {
    role->stored_at = end;
    role->delivered_at = delivered;
  }
  role->spend(WarpState::LSU, end - last - ahead - posted_cycles(role, access, wavefronts));
  if (stage != nullptr) {
    stage->begin_write(begun, role);
    stage->end_write(role->t);  // whoever reads behind this warp goes behind it in the data stage, too
  }
  if (op.flags & 1) role->give_token(op.extra, Token::make(false, delivered));
  return true;
}

bool stmatrix(Role* role, const Op& op) { return shared_store(role, op); }

// Wavefronts, and a latency of its own.
void shared_atomic(Role* role, const Op& op) {
  const AccessRecord& access = input.accesses[uint32_t(op.cost)];
  role->issue(access.num_requests / role->num_warps);
  double wavefronts = wavefronts_of(access);
  double ready = sm_of(role).smem.swap(wavefronts, wavefronts / role->num_warps, role->t);
  role->give_token(op.extra, Token::make(false, ready));
}

// Over the network of SMs.
void dsmem_load(Role* role, const Op& op) {
  Dsmem& far = sm_of(Run::peer(role, op.cost)->sm).dsmem;
  role->issue(1.0);
  double ready = sm_of(role).dsmem.read(op.number, role->t, far, Run::is_pair(role));
  role->give_token(op.extra, Token::make(true, ready));
}

// Over the network of SMs; nobody waits.
void dsmem_store(Role* role, const Op& op) {
  role->issue(1.0);
  role->arrives_far_at = sm_of(role).dsmem.write(op.number, role->t, Run::is_pair(role));
}

// Over the network of SMs; counts on the far CTA's mbarrier.
void st_async(Role* role, const Op& op) {
  Cta* cta = Run::peer(role, op.cost);
  role->issue(1.0);
  double arrived = sm_of(role).dsmem.write(op.number, role->t, Run::is_pair(role));
  role->arrives_far_at = arrived;
  cta->mbarriers[op.barrier].complete_tx(int64_t(op.number), arrived);
}

}  // namespace gpusim
