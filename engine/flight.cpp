// What is on its way by itself: loads, copies by TMA and cp.async, stores.
#include "flight.h"

#include "machine.h"
#include "ops.h"

namespace gpusim {

// ------------------------------------------------------------------------------------------ loads

void MemorySpan::begin(const Role* role, bool is_store, double at_cycle, double num_bytes) {
  if (!role->is_recorded) return;
  row_ = int32_t(machine.recorder.memory_spans.size());
  machine.recorder.memory_spans.push(MemorySpanRecord{role->cta->idx, role->cta->sm, role->idx,
                                                      int64_t(is_store), at_cycle, at_cycle, num_bytes});
}

void MemorySpan::end(double cycle) const {
  if (row_ >= 0) machine.recorder.memory_spans[uint32_t(row_)].end_cycle = cycle;
}

void LoadInFlight::complete(double cycle) {
  Token* told = token;
  double at = cycle + latency_cycles;
  double late = request.late_cycles;
  span.end(at);
  machine.flights.loads.release(this);
  told->become_ready(at, late);
  told->drop();
}

// ------------------------------------------------------------------------------------------ TMA

TmaInFlight::TmaInFlight(const Op* its_op, Cta* cta, double at_cycle)
    : op_(its_op), cta_(cta), started_at_(at_cycle) {
  sm = cta->sm;
  cta->num_copies++;
}

void TmaInFlight::complete(double cycle) {
  const TmaLoadRecord& cost = input.tma_loads[uint32_t(op_->cost)];
  Cta* cta = cta_;
  double at = larger(started_at_, cycle + cost.latency_cycles);  // a latency is what it is beyond a load's
  cta->stages[op_->stage].end_write(at);
  cta->mbarriers[op_->barrier].complete_tx(cost.num_bytes, at);
  cta->copied(op_, started_at_, at, double(cost.num_bytes), op_->barrier);
  machine.flights.tma_copies.release(this);
  cta->copy_ended();
}

void TmaTransfer::begin(double begins_at, double cursor) {
  if (begins_at > cursor)
    agenda.later(begins_at - agenda.cycle, machine.flights.tma_transfers.make(*this), 0);
  else
    ask();
}

void TmaTransfer::act(uint8_t) {
  ask();
  machine.flights.tma_transfers.release(this);
}

void TmaTransfer::ask() {
  if (store != nullptr && store->is_reduce) l2.fetch_reduced(request.tensor, store->num_bytes);
  if (store != nullptr)
    crossbar.write(request, left, arrived, store->num_bytes,
                   store->is_reduce ? StoreKind::RED : StoreKind::ST, 0.0, LINE_BYTES, store->more_bytes);
  else if (group != nullptr)
    crossbar.read(request, receivers, group, nullptr, zeros);
  else
    crossbar.multicast(request, receivers, input.tma->bytes_per_cycle, zeros);
}

// ------------------------------------------------------------------------------------------ cp.async

void CountedCopies::complete(double cycle) {
  mbarrier->arrive(num_arrivals, cycle, nullptr);
  machine.flights.counted.release(this);
}

// Latency of the last instruction's data: that of L1, of L2 or of memory.
double CpAsyncInFlight::latency_cycles(double cycle) const {
  double soonest = issued.hits ? input.l1->hit_latency_cycles : input.l2->near_latency_cycles;
  bool is_late = issued.hits && input.l1->cp_async_latency_cycles != 0.0;
  if (is_late || input.l1->cp_async_row_cycles == 0.0) return soonest;
  double waited = cycle - request.issued_at - request.num_bytes / input.xbar->sm_read_bytes_per_cycle;
  double of_memory = l2.hit_latency_cycles() + input.hbm->latency_cycles;
  return waited > of_memory && l2.was_coming(request.tile, request.issued_at) ? of_memory : soonest;
}

void CpAsyncInFlight::complete(double cycle) {
  Cta* cta = stage->cta;
  Sm& sm = sm_of(cta->sm);
  double now = agenda.cycle;  // queued now, though they come at `cycle`
  double more_cycles = issued.hits ? input.l1->cp_async_latency_cycles : 0.0;
  double there = larger(cycle, last_cycle + latency_cycles(cycle)) + more_cycles;
  double end = there;
  double left = issued.num_wavefronts;
  double rate = input.smem->wavefronts_per_cycle;
  double queued_until = left != 0.0 ? sm.smem.fill(left, now) : now;
  // wavefronts that arrive while the transfer is under way hide behind it; only the excess shows
  if (op->flags & 1) {  // what is queued now has mostly passed by then
    double cycles = left / rate;
    if (!issued.hits) {  // they pass the load/store unit again
      double num = input.accesses[uint32_t(input.async_copies[uint32_t(op->cost)].access)].num_requests;
      queued_until = larger(queued_until, sm.l1.accept(num, 0.0, 0.0, now, cycles).end);
      cycles += num / input.l1->requests_per_cycle;
    }
    end = larger(queued_until, there + larger(0.0, cycles - issued.num_hidden / rate));
  } else if (left != 0.0) {
    end = there + larger(0.0, queued_until - now - smaller(left, issued.num_hidden));
  }
  stage->end_write(end);
  group->complete(end);
  cta->copied(op, request.issued_at, end, request.num_bytes, -1);
  machine.flights.cp_asyncs.release(this);
  cta->copy_ended();
}

// ------------------------------------------------------------------------------------------ stores

StoreInFlight::StoreInFlight(AsyncGroup* group) : group_(group) { machine.run.store_began(); }

void StoreInFlight::complete(double cycle) {
  span.end(cycle);
  if (group_ != nullptr) group_->complete(cycle);
  machine.flights.stores.release(this);
  machine.run.store_ended(cycle);
}

BulkStoreInFlight::BulkStoreInFlight(const BulkGroups& groups, Cta* cta, Stage* stage)
    : groups_(groups), cta_(cta), stage_(stage) {
  machine.run.store_began();
  cta->num_copies++;
}

void BulkStoreInFlight::complete(double cycle) {
  double read_at = cycle + input.tma->store_latency_cycles;
  if (stage_ != nullptr) stage_->end_read(read_at);
  groups_.read->complete(read_at);
  groups_.whole->complete(read_at);
  Cta* cta = cta_;
  machine.flights.bulk_stores.release(this);
  machine.run.store_ended(cycle);
  cta->copy_ended();
}

}  // namespace gpusim
