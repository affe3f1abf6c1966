// Global loads, stores and atomics.
#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

constexpr double EPSILON_BYTES = 1e-6;
constexpr double LOAD_PRODUCTS = 0.5;  // IMAD.WIDEs that a load of global memory takes the pipe of
constexpr double SMALL_PART = 0.05;    // of a store, what is not worth an event of its own

// Who is told when a role's next store has arrived; a fence waits for that.
StoreInFlight* next_arrival(Role* role) {
  if (role->last_store != nullptr) role->last_store->drop();
  role->last_store = AsyncGroup::make(nullptr);
  return machine.flights.stores.make(role->last_store->add());
}

// Sends a `share` of a store on its way; the group is complete when it has left.
AsyncGroup* send_store(Role* role, const Op& op, double num_packet_bytes, double share, double issued_at) {
  const StoreRecord& store = input.stores[uint32_t(op.cost)];
  const AccessRecord& access = input.accesses[uint32_t(store.access)];
  AsyncGroup* group = AsyncGroup::make(nullptr);
  role->stored_out_at = passes_at(role, role->t);  // it stands in line until then
  if (OpKind(op.kind) == OpKind::GLOBAL_STORE) machine.run.has_stored = true;
  MemoryRequest request = role->request(op, access.num_sectors * SECTOR_BYTES * share, issued_at);
  request.part = op.number;
  request.part_bytes = access.num_bytes;
  double packet_bytes =
      larger(num_packet_bytes, access.num_sectors * SECTOR_BYTES) / larger(access.num_lines, 1.0);
  StoreInFlight* arrival = next_arrival(role);
  arrival->span.begin(role, true, request.issued_at, request.num_bytes);
  crossbar.write(request, machine.flights.stores.make(group->add()), arrival, access.num_bytes * share,
                 StoreKind(store.kind), num_packet_bytes * share, packet_bytes);
  return group;
}

// The same of `num_bytes` of a store of `all_bytes`, of the port's time; it waits in the store queue.
void queue_store(Role* role, const Op& op, double all_bytes, double num_bytes, double share, double at) {
  AsyncGroup* group = send_store(role, op, all_bytes, share, larger(at, agenda.cycle));
  role->queued_stores.push(QueuedStore{num_bytes, group->hold()});
  sm_of(role).queued_stores.push(QueuedStore{num_bytes, group});
}

// Sends what is left of a store, a `whole_share`: its first part, what the schedulers hold of it, and what is
// past them. Waits until the queue has room.
bool queue_in_parts(Role* role, const Op& op, const AccessRecord& access, double all_bytes,
                    double begin_cycle, double whole_share) {
  double rate = input.xbar->sm_write_bytes_per_cycle;
  double num_requests = larger(access.num_requests, 1.0);
  double num_bytes = all_bytes * whole_share;
  double num_schedulers = smaller(role->num_warps, input.warp_scheduler->num_schedulers);
  // what may still wait when its warps go on
  double lead_bytes = rate * L1::posted_cycles(num_bytes / rate, num_requests * whole_share,
                                               access.num_bytes * whole_share, num_schedulers);
  // what an instruction behind it overtakes no more, but need not wait for
  double passed_bytes =
      smaller(lead_bytes, all_bytes / num_requests * L1::shared_places(num_requests, access.num_bytes));
  if (input.launch->smem_bytes == 0.0 && num_bytes - passed_bytes < SMALL_PART * num_bytes)
    passed_bytes = lead_bytes;  // instructions to shared memory alone would tell them apart
  double begin = 0.0;
  const double ends[3] = {num_bytes - lead_bytes, num_bytes - passed_bytes, num_bytes};
  for (double end : ends) {
    if (end <= begin) continue;
    queue_store(role, op, all_bytes, end - begin, (end - begin) / all_bytes, begin_cycle);
    begin = end;
  }
  role->passed_bytes = passed_bytes;
  return until_stored(role, sm_of(role).queued_stores, lead_bytes);
}

// What loads ask of L2: a request for each line. Those of lanes on lines of their own come in an order that
// no other SM has, so that none of them coalesces.
// Where instructions load the same lines again, L1 has them, and L2 sees a request for each sector at most.
void ask_by_lines(const AccessRecord& access, FetchRecord* fetched) {
  fetched->num_line_requests = smaller(access.num_lines, access.num_sectors);
  if (access.num_lines > access.num_sectors) return;
  bool is_narrow = access.num_sectors * SECTOR_BYTES < access.num_lines * input.l2->request_bytes;
  if (is_narrow && access.num_lines > access.num_requests) fetched->sharing = fetched->request_sharing = 0.0;
}

}  // namespace

double wavefronts_of(const AccessRecord& access) {
  if (machine.run.is_ideal(Ideal::BANK_CONFLICTS))
    return smaller(access.num_wavefronts, __builtin_ceil(access.num_bytes / WAVEFRONT_BYTES));
  return access.num_wavefronts;
}

double passes_at(const Role* role, double at_cycle) {
  Sm& sm = sm_of(role);
  return sm.smem.passes_at(at_cycle, sm.mio_queue.num_ahead(role));
}

// Through the load/store unit and L1; the token is ready when the last sector is there.
bool global_load(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  if (!sm.mio_queue.wait_for_place(role)) return false;
  const AccessRecord& access = input.accesses[uint32_t(op.cost)];
  bool allocates = op.flags & 1;
  counters.l1.load_requests += access.num_requests;
  counters.l1.load_sectors += access.num_sectors;
  role->issue(access.num_requests / role->num_warps);
  double at = passes_at(role, role->t);
  Passage passage = sm.l1.accept(access.num_requests, access.num_lines, access.num_wavefronts, at, 0.0);
  double end = passage.end;
  double waited = at - role->t;
  LoadInFlight* flight = machine.flights.loads.make();
  flight->request = role->request(op, access.num_sectors * SECTOR_BYTES, 0.0);
  MemoryRequest& request = flight->request;
  if (allocates) {
    if (role->slowest_warp.asked_bytes == 0.0) role->loads_since = role->t;
    double noted = sm.l1.wait_for_lines(request.tile, access.num_requests, role->loads_since + waited, at);
    if (noted > end) end = noted;
  }
  sm.scheduler.imad_wide_pipe.reserve(LOAD_PRODUCTS * access.num_requests, role->t);
  double of_stage = access.num_wavefronts * input.smem->global_load_wavefronts;
  if (of_stage != 0.0) sm.smem.pass_global(of_stage, role->t);
  role->spend(WarpState::LSU, larger(role->t, end - waited - input.l1->queue_cycles));
  Token* token = Token::make(true);
  flight->token = token->hold();
  request.issued_at = allocates && waited == 0.0 ? role->t : larger(passage.begin, agenda.cycle);
  request.num_warps = role->num_warps;
  request.num_turns = int32_t(larger(1.0, rounded(access.num_requests / role->num_warps)));
  request.asked_until = end;
  if (access.num_sectors * SECTOR_BYTES < access.num_lines * LINE_BYTES)
    request.num_part_requests = access.num_requests;
  ask_by_lines(access, &request.fetched);
  request.batch_scale = role->slowest_warp.asks(token, request.num_bytes);
  flight->span.begin(role, false, request.issued_at, request.num_bytes);
  role->give_token(op.stage, token);
  sm.l1.read(request, flight, allocates, passage.begin, false);
  return true;
}

// Stores and reductions: the load/store unit; the warps go on when the last waits in the store queue.
bool global_store(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  const StoreRecord& store = input.stores[uint32_t(op.cost)];
  const AccessRecord& access = input.accesses[uint32_t(store.access)];
  double all_bytes = crossbar.packet_bytes(access, StoreKind(store.kind));
  bool has_queue = input.l1->has_store_queue != 0.0;
  if (!has_queue && role->last_store != nullptr) {
    role->must_retry = role->last_store->num_pending > 0;
    if (!role->wait_group(role->last_store, WarpState::LSU, Wait::STORE_QUEUE)) return false;
  }
  double begin = role->t;
  double left = access.num_lines;
  bool has_passed = false;
  if (!role->is_partly_done) {
    if (OpKind(op.kind) == OpKind::GLOBAL_STORE) {
      counters.l1.store_requests += access.num_requests;
      counters.l1.store_sectors += access.num_sectors;
      sm.l1.store(role->request(op, 0.0, 0.0).tile, access.num_sectors * SECTOR_BYTES);
    }
    role->issue(access.num_requests / role->num_warps);
  } else {
    left = role->partly_left;
  }
  if (has_queue && left != 0.0 && sm.smem.is_read(role->t)) {
    Served served = sm.smem.pass_lines(left, role->t);
    if (served.left != 0.0) {  // asks again when operand reads end
      double share = (left - served.left) / access.num_lines;
      if (share != 0.0) {
        sm.l1.accept(access.num_requests * share, access.num_lines * share, 0.0, role->t, 0.0);
        queue_store(role, op, all_bytes, all_bytes * share, share, role->t);
      }
      return role->ask_again(served.end, role->t, served.left, WarpState::LSU, Wait::DATA_STAGE);
    }
    has_passed = true;
  }
  role->is_partly_done = false;
  double of_stage = left * input.smem->global_store_wavefronts;
  if (of_stage != 0.0 && !has_passed) sm.smem.pass_global(of_stage, begin);
  if (has_queue) {
    double share = access.num_lines != 0.0 ? left / access.num_lines : 1.0;
    sm.l1.accept(access.num_requests * share, left, 0.0, begin, 0.0);
    return queue_in_parts(role, op, access, all_bytes, begin, share);
  }
  Passage passage = sm.l1.accept(access.num_requests, access.num_lines, 0.0, role->t, 0.0);
  role->spend(WarpState::LSU, larger(role->t, passage.end - input.l1->queue_cycles));
  send_store(role, op, 0.0, 1.0, role->t)->drop();
  return true;
}

bool until_stored(Role* role, Fifo<QueuedStore>& queued, double num_left_bytes) {
  while (!queued.empty() && !queued.front().group->num_pending && queued.front().group->ready_at <= role->t)
    queued.pop().group->drop();
  double behind = 0.0;
  for (uint32_t place = 0; place < queued.size(); place++) behind += queued[place].num_bytes;
  AsyncGroup* waited = nullptr;
  for (uint32_t place = 0; place < queued.size(); place++) {
    if (behind <= num_left_bytes + EPSILON_BYTES) break;
    behind -= queued[place].num_bytes;
    waited = queued[place].group;
  }
  return waited == nullptr || role->wait_group(waited, WarpState::LSU, Wait::STORE_QUEUE);
}

// A store that L2 resolves; a result comes back a latency later. A fence waits for it as for any store.
bool global_atomic(Role* role, const Op& op) {
  if (!(op.flags & 1)) return global_store(role, op);
  const AccessRecord& access = input.accesses[uint32_t(input.stores[uint32_t(op.cost)].access)];
  role->issue(access.num_requests / role->num_warps);
  Passage passage = sm_of(role).l1.accept(access.num_requests, access.num_lines, 0.0, role->t, 0.0);
  role->spend(WarpState::LSU, larger(role->t, passage.end - input.l1->queue_cycles));
  MemoryRequest request = role->request(op, access.num_sectors * SECTOR_BYTES, role->t);
  request.part = op.number;
  request.part_bytes = access.num_bytes;
  crossbar.write(request, machine.flights.stores.make(nullptr), next_arrival(role), access.num_bytes,
                 StoreKind::ATOM);
  Token* token = Token::make(true);
  LoadInFlight* result = machine.flights.loads.make();
  result->token = token->hold();
  result->latency_cycles = l2.hit_latency_cycles();
  role->last_store->on_complete.push(result);
  role->give_token(op.stage, token);
  return true;
}

// Waits for the token.
bool use(Role* role, const Op& op) {
  Token* token = role->token_in(op.stage);
  WarpState state = WarpState::SHORT_SCOREBOARD;
  if (token->is_long) {
    state = WarpState::LONG_SCOREBOARD;
    role->slowest_warp.asked_bytes = 0.0;
  }
  if (token->is_ready) {
    role->spend(state, token->ready_at);
    role->fall_behind(token);
    return true;
  }
  token->waiting = role;
  return role->block(state, Wait::A_LOAD);
}

}  // namespace gpusim
