// An SM's stores on their way to L2, one after the other, and requests of copies that stand behind them.
#include "store_port.h"

#include "machine.h"
#include "numeric.h"

namespace gpusim {

void StorePort::send(double num_bytes, double issued_at, double through_at, Completion* left,
                     Completion* arrived, double packet_bytes) {
  double begin = sent_;
  sent_ = begin + num_bytes;
  double leaves_at = sent_ - input.xbar->store_in_flight_bytes;
  if (begin < leaves_at && leaves_at < sent_) ends_.push(leaves_at);
  ends_.push(sent_);
  stores_.push(Store{begin, sent_, leaves_at, through_at, through_at, num_bytes, issued_at, packet_bytes,
                     left, arrived});
  if (!is_busy) start(agenda.cycle);
  tell_left(agenda.cycle);
}

double StorePort::behind(double num_lines, double at_cycle) {
  double now = agenda.cycle;
  double held = input.xbar->store_in_flight_bytes;
  double each = larger(pace(current_end_ - current_begin_, crossed_at_ - began_at_), 1.0 / pipe_->rate);
  double passed = smaller(current_end_, current_begin_ + (now - began_at_) / each);
  if (at_cycle > now) passed += (at_cycle - now) / each;
  double since = larger(at_cycle, requests_end_at_);
  double queued = sent_ - passed;
  if (queued <= 0.0) return since;
  double num = larger(num_lines, 1.0);
  double turn = packet_bytes_ * input.xbar->request_interval_packets;
  double turns = turn != 0.0 && queued < held ? smaller(num, queued / turn) : num;
  requests_end_at_ = since + turns * turn * each;
  since += turns * larger(0.0, turn * each - LINE_BYTES / input.xbar->sm_read_bytes_per_cycle);
  return since +
         smaller(queued, held) * each * (1.0 + input.xbar->request_wait_per_efold_fraction * log(num));
}

// Cycles a byte of so many that take so long and of those before them, as many as the way holds.
double StorePort::pace(double num_bytes, double cycles) const {
  double held = input.xbar->store_in_flight_bytes;
  double all_bytes = held + num_bytes;
  return all_bytes != 0.0 ? (cycles_per_byte_ * held + cycles) / all_bytes : cycles_per_byte_;
}

void StorePort::start(double cycle) {
  bool was_busy = is_busy;
  is_busy = !ends_.empty();
  for (; num_begun_ < stores_.size() && stores_[num_begun_].begin <= passed_; num_begun_++) {
    Store& store = stores_[num_begun_];
    double num_bytes = current_end_ - current_begin_;
    cycles_per_byte_ = was_busy ? pace(num_bytes, cycle - began_at_) : 1.0 / pipe_->rate;
    current_begin_ = store.begin;
    current_end_ = store.end;
    began_at_ = cycle;
    packet_bytes_ = store.packet_bytes;
    double last_at;
    crossed_at_ = crossbar.cross_store(sm_, store.crossing_bytes, larger(cycle, store.issued_at), &last_at);
    store.through_at = larger(store.through_at, crossed_at_);
    store.arrives_at = larger(store.arrives_at, last_at);
  }
  if (!ends_.empty()) pipe_->transfer(ends_.front() - passed_, this, 1.0);
}

// Bytes have passed up to the next end; the next store's turn comes when this one has crossed.
void StorePort::complete(double) {
  double wait_cycles = crossed_at_ - agenda.cycle;
  if (ends_.front() == current_end_ && wait_cycles > 0.0)
    agenda.later(wait_cycles, this, 0);
  else
    act(0);
}

void StorePort::act(uint8_t) {
  double cycle = agenda.cycle;
  passed_ = ends_.pop();
  start(cycle);
  tell_left(cycle);
  while (!stores_.empty() && stores_.front().end <= passed_) {
    Store store = stores_.pop();
    num_begun_--;
    num_left_--;
    store.arrived->complete(larger(cycle, store.arrives_at));
  }
}

void StorePort::tell_left(double cycle) {
  while (num_left_ < stores_.size() && stores_[num_left_].leaves_at <= passed_) {
    const Store& store = stores_[num_left_++];
    store.left->complete(larger(cycle, store.through_at));
  }
}

}  // namespace gpusim
