// TMA loads and stores, bulk groups.
#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

BulkGroups& open_bulk(Role* role) {
  if (role->bulk_open.read == nullptr)
    role->bulk_open = BulkGroups{AsyncGroup::make(nullptr), AsyncGroup::make(nullptr)};
  return role->bulk_open;
}

// A copy of a role's begins, to one of its receivers.
Receiver begin_copy(const Role* role, Cta* receiver, const Op& op, const TmaLoadRecord& cost) {
  TmaInFlight* flight = machine.flights.tma_copies.make();
  receiver->num_copies++;
  flight->op = &op;
  flight->cost = &cost;
  flight->started_at = role->t;
  flight->mbarrier = &receiver->mbarriers[op.barrier];
  flight->stage = &receiver->stages[op.stage];
  flight->stage->begin_write(role->t, role);
  return Receiver{receiver->sm, flight};
}

}  // namespace

// The engine walks the boxes while the data come; completion counts on an mbarrier.
bool tma_load(Role* role, const Op& op) {
  const TmaLoadRecord& cost = input.tma_loads[uint32_t(op.cost)];
  Sm& sm = sm_of(role);
  role->spend(WarpState::LSU, sm.tma.room_at());
  role->step(input.tma->issue_cycles);
  counters.tma.load_instructions += double(cost.num_boxes);
  counters.tma.load_bytes += cost.counted_bytes;
  uint32_t tensor = uint32_t(op.extra);
  double begins_at = sm.tma.map_at(tensor, role->t);
  double at = sm.tma.take(cost.cycles, cost.num_boxes, begins_at);  // when the engine comes to it
  double behind = crossbar.behind_stores(role->cta->sm, cost.num_lines, at);
  if (behind > at) {
    begins_at = begins_at + behind - at;
    at = behind;
  }
  DelayedTma* copy = machine.flights.delayed.make();
  copy->zeros = ZeroRows{cost.has_zeros != 0, cost.zero_bytes, cost.zero_carried_bytes};
  if (!cost.num_ranks) {
    copy->receivers.push(begin_copy(role, role->cta, op, cost));
    copy->group = &role->cta->mbarriers[op.barrier];
    copy->kind = DelayedTma::READ;
  } else {
    for (int64_t rank = 0; rank < cost.num_ranks; rank++) {
      Cta* receiver = Run::peer(role, input.lists[uint32_t(cost.ranks_begin + rank)]);
      copy->receivers.push(begin_copy(role, receiver, op, cost));
    }
    copy->kind = DelayedTma::MULTICAST;
  }
  if (cost.num_fetched_bytes == 0.0 && !cost.has_zeros) {
    for (const Receiver& receiver : copy->receivers) receiver.done->complete(at);
    machine.flights.delayed.release(copy);
    return true;
  }
  copy->request = role->request(op, cost.num_fetched_bytes, larger(at, agenda.cycle));
  if (cost.num_fetched_bytes == 0.0) {
    copy->kind = DelayedTma::ZEROS;
  } else {
    MemoryRequest& request = copy->request;
    request.num_rows = cost.num_rows;
    request.neighbours = input.neighbours.items + 2 * cost.neighbours_begin;
    request.num_neighbours = uint32_t(cost.num_neighbours);
    if (cost.fetches >= 0) request.fetched = input.fetches[uint32_t(cost.fetches)];
    request.new_fraction = cost.new_fraction;
  }
  if (begins_at > role->t)
    agenda.later(begins_at - agenda.cycle, copy, 0);
  else
    copy->act(0);
  return true;
}

void DelayedTma::act(uint8_t) {
  switch (kind) {
    case READ: crossbar.read(request, receivers[0].done, group, nullptr, zeros); break;
    case MULTICAST: crossbar.multicast(request, receivers, input.tma->bytes_per_cycle, zeros); break;
    case ZEROS: crossbar.read_zeros(request, receivers, zeros, group); break;
    case STORE:
      crossbar.write(request, store, store, cost->num_bytes, cost->is_reduce ? StoreKind::RED : StoreKind::ST,
                     cost->more_bytes, 0.0, LINE_BYTES);
      break;
  }
  machine.flights.delayed.release(this);
}

// The engine reads shared memory and stores; the group knows when the source is free.
bool tma_store(Role* role, const Op& op) {
  const TmaStoreRecord& cost = input.tma_stores[uint32_t(op.cost)];
  Sm& sm = sm_of(role);
  role->spend(WarpState::LSU, sm.tma.room_at());
  role->spend(WarpState::ISSUE, role->t + input.tma->issue_cycles);
  counters.tma.store_instructions += double(cost.num_boxes);
  double map_at = sm.tma.map_at(uint32_t(op.extra), role->t);
  double at = sm.tma.take(cost.cycles, cost.num_boxes, map_at);  // when the engine comes to it
  Stage* stage = role->stage(op.stage);
  BulkGroups& groups = open_bulk(role);
  if (stage != nullptr) stage->begin_read(role->t, role);
  machine.run.has_stored = true;
  StoreInFlight* flight = machine.flights.stores.make();
  machine.run.store_began();
  flight->bulk = BulkGroups{groups.read->add(), groups.whole->add()};
  flight->stage = stage;
  flight->cta = role->cta;
  role->cta->num_copies++;
  DelayedTma* copy = machine.flights.delayed.make();
  copy->kind = DelayedTma::STORE;
  copy->request = role->request(op, cost.num_bytes, at);
  copy->store = flight;
  copy->cost = &cost;
  if (map_at > role->t)
    agenda.later(map_at - agenda.cycle, copy, 0);
  else
    copy->act(0);
  return true;
}

// Closes the group.
bool bulk_commit_group(Role* role, const Op&) {
  BulkGroups groups = open_bulk(role);
  role->bulk_groups.push(groups);
  role->bulk_open = BulkGroups{AsyncGroup::make(groups.read), AsyncGroup::make(groups.whole)};
  return true;
}

// Until the group has read its source, or is complete.
bool bulk_wait_group(Role* role, const Op& op) {
  Fifo<BulkGroups>& groups = role->bulk_groups;
  if (int64_t(groups.size()) <= op.extra) return true;
  counters.smem.wavefronts += role->num_warps;
  role->spend(WarpState::ISSUE, role->t + input.tma->group_wait_cycles);
  bool is_read = op.flags & 1;
  BulkGroups waited = groups[groups.size() - 1 - uint32_t(op.extra)];
  AsyncGroup* group = (is_read ? waited.read : waited.whole)->hold();
  if (!is_read)
    while (int64_t(groups.size()) > op.extra) groups.pop().drop();
  bool goes_on = role->wait_group(group, WarpState::WAIT_BULK, Wait::BULK_GROUP);
  group->drop();
  return goes_on;
}

// One instruction each; the fetch goes on by itself.
bool prefetch_tensormap(Role* role, const Op& op) {
  for (int32_t place = 0; place < op.extra; place++) {
    role->issue(1.0);
    sm_of(role).tma.prefetch(uint32_t(input.lists[uint32_t(op.cost + place)]), role->t);
  }
  return true;
}

}  // namespace gpusim
