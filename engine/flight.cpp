// What is on its way by itself: loads, copies by TMA and cp.async, stores.
#include "flight.h"

#include "machine.h"
#include "ops.h"

namespace gpusim {

// ------------------------------------------------------------------------------------------ loads

void LoadInFlight::complete(double cycle) {
  Token* told = token;
  double at = cycle + latency_cycles;
  double late = request.late_cycles;
  machine.flights.loads.release(this);
  told->become_ready(at, late);
  told->drop();
}

// ------------------------------------------------------------------------------------------ TMA

void TmaInFlight::complete(double cycle) {
  Cta* cta = stage->cta;
  double at = larger(started_at, cycle + cost->latency_cycles);  // a latency is what it is beyond a load's
  stage->end_write(at);
  mbarrier->complete_tx(cost->num_bytes, at);
  machine.run.totals.copy_cycles += at - started_at;
  machine.run.totals.num_copies += 1.0;
  if (input.sms[cta->sm].is_recorded) {
    machine.recorder.copy_spans.push(CopySpanRecord{cta->idx, cta->sm, op->stage, op->extra, started_at, at,
                                                    double(cost->num_bytes), op->barrier});
  }
  machine.flights.tma_copies.release(this);
  cta->copy_ended();
}

// ------------------------------------------------------------------------------------------ cp.async

void CountedCopies::complete(double cycle) {
  mbarrier->arrive(num_arrivals, cycle, nullptr);
  machine.flights.counted.release(this);
}

// What its last instruction's data take from when they are asked for: as long as L2's or, out of memory,
// memory's.
double CpAsyncInFlight::latency_cycles(double cycle) const {
  if (more_cycles != 0.0 || input.l1->cp_async_row_cycles == 0.0) return soonest_cycles;
  double waited = cycle - request.issued_at - request.num_bytes / input.xbar->sm_read_bytes_per_cycle;
  double of_memory = l2.hit_latency_cycles() + input.hbm->latency_cycles;
  return waited > of_memory && l2.was_coming(request.tile, request.issued_at) ? of_memory : soonest_cycles;
}

void CpAsyncInFlight::complete(double cycle) {
  Cta* cta = stage->cta;
  Sm& sm = sm_of(cta->sm);
  double now = agenda.cycle;  // queued now, though they come at `cycle`
  double there = larger(cycle, last_cycle + latency_cycles(cycle)) + more_cycles;
  double end = there;
  double left = num_wavefronts;
  double rate = input.smem->wavefronts_per_cycle;
  double queued_until = left != 0.0 ? sm.smem.fill(left, now) : now;
  // wavefronts that arrive while the transfer is under way hide behind it; only the excess shows
  if (allocates) {  // what is queued now has mostly passed by then
    double cycles = left / rate;
    if (is_again) {
      Passage passage = sm.l1.accept(num_requests, 0.0, 0.0, now, cycles);
      queued_until = larger(queued_until, passage.end);
      cycles += num_requests / input.l1->requests_per_cycle;
    }
    end = larger(queued_until, there + larger(0.0, cycles - num_hidden / rate));
  } else if (left != 0.0) {
    end = there + larger(0.0, queued_until - now - smaller(left, num_hidden));
  }
  stage->end_write(end);
  group->complete(end);
  machine.run.totals.copy_cycles += end - request.issued_at;
  machine.run.totals.num_copies += 1.0;
  if (input.sms[cta->sm].is_recorded) {
    machine.recorder.copy_spans.push(CopySpanRecord{cta->idx, cta->sm, op->stage, op->extra,
                                                    request.issued_at, end, request.num_bytes, -1});
  }
  machine.flights.cp_asyncs.release(this);
  cta->copy_ended();
}

// ------------------------------------------------------------------------------------------ stores

void StoreInFlight::complete(double cycle) {
  if (bulk.read != nullptr) {
    double read_at = cycle + input.tma->store_latency_cycles;
    if (stage != nullptr) stage->end_read(read_at);
    bulk.read->complete(read_at);
    bulk.whole->complete(read_at);
    Cta* source = cta;
    over(cycle);
    source->copy_ended();
    return;
  }
  if (left != nullptr) left->complete(cycle);
  over(cycle);
}

void StoreInFlight::arrived(double cycle) {
  if (has_arrived != nullptr) has_arrived->complete(cycle);
  over(cycle);
}

void StoreInFlight::over(double cycle) {
  if (cycle > at_) at_ = cycle;
  if (!has_one_) {
    has_one_ = true;
    return;
  }
  double at = at_;
  machine.flights.stores.release(this);
  machine.run.store_ended(at);
}

}  // namespace gpusim
