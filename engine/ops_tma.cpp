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

}  // namespace

// The engine walks the boxes while the data come; completion counts on an mbarrier.
void tma_load(Role* role, const Op& op) {
  const TmaLoadRecord& cost = input.tma_loads[uint32_t(op.cost)];
  Tma& tma = sm_of(role).tma;
  role->spend(WarpState::LSU, tma.room_at());
  role->step(input.tma->issue_cycles);
  counters.tma.load_instructions += double(cost.num_boxes);
  counters.tma.load_bytes += cost.counted_bytes;
  double begins_at = tma.map_at(uint32_t(op.extra), role->t);
  double at = tma.take(cost.cycles, cost.num_boxes, begins_at);  // when the engine comes to it
  double behind = crossbar.behind_stores(role->cta->sm, cost.num_lines, at);
  if (behind > at) {
    begins_at = begins_at + behind - at;
    at = behind;
  }
  bool is_multicast = cost.num_ranks > 0;
  Receiver* receivers = nullptr;
  Receiver** link = &receivers;
  for (int64_t place = 0; place < (is_multicast ? cost.num_ranks : 1); place++) {
    Cta* cta = is_multicast ? Run::peer(role, input.lists[uint32_t(cost.ranks_begin + place)]) : role->cta;
    cta->stages[op.stage].begin_write(role->t, role);
    *link = machine.flights.tma_copies.make(&op, cta, role->t);
    link = &(*link)->next;
  }
  if (cost.num_fetched_bytes == 0.0 && !cost.has_zeros) {  // nothing crosses
    for (Receiver* next = receivers; next != nullptr;) {
      Receiver* receiver = next;
      next = receiver->next;
      receiver->complete(at);
    }
    return;
  }
  TmaTransfer copy(copy_request(role, op, cost, cost.num_fetched_bytes, larger(at, agenda.cycle)));
  copy.receivers = receivers;
  if (!is_multicast) copy.group = &role->cta->mbarriers[op.barrier];
  copy.zeros = ZeroRows{cost.has_zeros != 0, cost.zero_bytes, cost.zero_carried_bytes};
  copy.begin(begins_at, role->t);
}

// The engine reads shared memory and stores; the group knows when the source is free.
void tma_store(Role* role, const Op& op) {
  const TmaStoreRecord& cost = input.tma_stores[uint32_t(op.cost)];
  Tma& tma = sm_of(role).tma;
  role->spend(WarpState::LSU, tma.room_at());
  role->spend(WarpState::ISSUE, role->t + input.tma->issue_cycles);
  counters.tma.store_instructions += double(cost.num_boxes);
  double map_at = tma.map_at(uint32_t(op.extra), role->t);
  double at = tma.take(cost.cycles, cost.num_boxes, map_at);  // when the engine comes to it
  Stage* stage = role->stage(op.stage);
  BulkGroups& groups = open_bulk(role);
  if (stage != nullptr) stage->begin_read(role->t, role);
  machine.run.has_stored = true;
  BulkGroups mine{groups.read->add(), groups.whole->add()};
  TmaTransfer copy(role->request(op, cost.num_bytes, at));
  copy.request.part = op.number;
  copy.request.part_bytes = cost.num_bytes;
  copy.store = &cost;
  copy.left = machine.flights.bulk_stores.make(mine, role->cta, stage);
  StoreInFlight* arrival = machine.flights.stores.make(nullptr);
  arrival->span.begin(role, true, at, cost.num_bytes);
  copy.arrived = arrival;
  copy.begin(map_at, role->t);
}

// Closes the group.
void bulk_commit_group(Role* role, const Op&) {
  BulkGroups groups = open_bulk(role);
  role->bulk_groups.push(groups);
  role->bulk_open = BulkGroups{AsyncGroup::make(groups.read), AsyncGroup::make(groups.whole)};
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
void prefetch_tensormap(Role* role, const Op& op) {
  for (int32_t place = 0; place < op.extra; place++) {
    role->issue(1.0);
    sm_of(role).tma.prefetch(uint32_t(input.lists[uint32_t(op.cost + place)]), role->t);
  }
}

// Waits for L2 to have each map; the SM's copies of older ones are dropped.
void fence_proxy_tensormap(Role* role, const Op& op) {
  double release = input.tma->tensormap_release_cycles;
  double farther = release > 0.0 ? machine.l2.farther_cycles(role->cta->idx, role->cta->sm) : 0.0;
  for (int32_t place = 0; place < op.extra; place++) {
    role->spend(WarpState::LSU, role->t + larger(0.0, release + farther));
    sm_of(role).tma.drop(uint32_t(input.lists[uint32_t(op.cost + place)]), farther);
  }
}

}  // namespace gpusim
