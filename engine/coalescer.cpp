// The L2 request coalescer: line requests that ride on a neighbour's, and what the others wait at their
// slices.
#include "coalescer.h"

#include "machine.h"
#include "numeric.h"

namespace gpusim {

namespace {

constexpr double MOST_SHARE = 0.95;  // of the peak rate that queues are worked out for

}  // namespace

BatchPrice Coalescer::price(const LineBatch& batch, Reader* reader, double behind_bytes, double pace) {
  if (!batch.zeros.is_any) return price_lines(batch, reader, behind_bytes, pace);
  BatchPrice price{0.0, 0.0, INFINITE};
  if (batch.num_bytes != 0.0) price = price_lines(batch, reader, behind_bytes, pace);
  double more = batch.zeros.num_carried_bytes;
  counters.xbar.passed_bytes += batch.zeros.num_bytes;
  counters.xbar.carried_bytes += more;
  if (more != 0.0)  // rows of zeros are one line, which is read once for as many requests as can be one
    counters.xbar.served_bytes += batch.zeros.num_bytes / input.xbar->coalesce_max_requests;
  price.moved_bytes += batch.zeros.num_bytes;
  price.carried_bytes += more;
  return price;
}

BatchPrice Coalescer::price_lines(const LineBatch& batch, Reader* reader, double behind_bytes, double pace) {
  TileState* tile = batch.tile;
  double num_bytes = batch.num_bytes;
  double asked_at = batch.asked_at;
  double of_requests = batch.request_bytes;
  if (!batch.coalesces) {
    double carried = larger(num_bytes * batch.weight, of_requests);
    counters.xbar.carried_bytes += carried;
    return BatchPrice{num_bytes, carried, 0.0};
  }
  SharedPipe* slices = reader->slices;
  double moved = slices->moved();
  double rate = slices->rate;
  double begin = moved + behind_bytes / pace;
  if (asked_at > begin)
    begin = asked_at;
  else if (asked_at < begin - ahead_bytes_)
    asked_at = begin - ahead_bytes_;
  double gone_bytes = (begin - asked_at) * (1.0 - input.xbar->coalesce_wait_fraction);
  LineRequest* asked = tile->asked.begin();
  while (asked != tile->asked.end() && asked->region != reader->coalesce_region) asked++;
  bool has_neighbour = asked != tile->asked.end();
  double asking = num_bytes * rate / slices->alone();
  double read = num_bytes;
  double length = num_bytes;
  double served = 1.0;
  double passing = num_bytes;
  double ahead = 0.0;
  if (has_neighbour) {
    double merged = 1.0;
    double joins = 1.0;
    double late = 0.0;
    if (tile->is_filling) {
      // no line of it is there
    } else if (tile->done_at > agenda.cycle) {
      joins = pending_share(tile, agenda.cycle + (asked_at - moved) / rate);
      merged = joins;
    } else {
      late = (asked_at - asked->begin) / rate;
      double waits = larger(0.0, (asked->last - asked->begin - asking) / rate);
      joins = merged_share(late, waits);
      merged = merged_share(late + asked->gone_bytes / rate, waits);
      late = larger(0.0, late - waits);  // the last line
    }
    double room = smaller(1.0, input.xbar->coalesce_max_requests - asked->num_served);
    joins *= room * batch.sharing;
    merged *= room;
    bool is_other = asked->port != reader;
    if (is_other) of_requests *= 1.0 - merged * batch.request_sharing;
    merged *= batch.sharing;
    if (joins > 0.0) {
      read = num_bytes * (1.0 - merged);
      served += merged * asked->num_served;
      if (is_other) {  // what an SM asks for twice is read once and sent to it twice
        double window = input.xbar->coalesce_window_cycles;
        passing = read;
        ahead = smaller(window, larger(0.0, late_cycles_ - late));
        double early = window * rate;
        double lag = larger(0.0, 2.0 * late - late_cycles_) * rate;
        double at_least = larger(larger(asked->last - begin + lag, asking - early), SECTOR_BYTES);
        length = larger(num_bytes * (1.0 - joins), pace * at_least);
      }
    }
  }
  LineRequest mine{reader->coalesce_region, begin, begin + length / pace, served, reader, gone_bytes};
  if (has_neighbour)
    *asked = mine;
  else
    tile->asked.push(mine);
  counters.xbar.passed_bytes += num_bytes;
  counters.xbar.served_bytes += read * batch.reads;
  double carried = larger(passing * batch.weight, of_requests);
  counters.xbar.carried_bytes += carried;
  return BatchPrice{length, carried, ahead};
}

// What of a fill's lines one that asks at `at_cycle` can still join: they come evenly, the other partition's
// later.
double Coalescer::pending_share(const TileState* tile, double at_cycle) const {
  double last_at = tile->done_at + far_cycles_;
  double first_at = tile->began_at + input.xbar->coalesce_fill_cycles;
  double since = at_cycle - input.xbar->coalesce_window_cycles - first_at;
  if (since <= 0.0 || since >= last_at - first_at) return since <= 0.0 ? 1.0 : 0.0;
  return 1.0 - since / (last_at - first_at);
}

// What of a request's lines joins another's that was so much earlier, where its last line gained
// `waits_cycles`.
double Coalescer::merged_share(double late_cycles, double waits_cycles) const {
  if (late_cycles <= early_cycles_) return 1.0;
  if (late_cycles - waits_cycles >= late_cycles_) return 0.0;
  if (waits_cycles <= 0.0) return (late_cycles_ - late_cycles) / (late_cycles_ - early_cycles_);
  return (joined(late_cycles) - joined(late_cycles - waits_cycles)) / waits_cycles;
}

// The integral, up to `late_cycles`, of the chance that a line so late joins.
double Coalescer::joined(double late_cycles) const {
  if (late_cycles <= early_cycles_ || early_cycles_ == late_cycles_)
    return smaller(late_cycles, early_cycles_);
  double beyond = smaller(late_cycles, late_cycles_) - early_cycles_;
  return early_cycles_ + beyond - beyond * beyond / (2.0 * (late_cycles_ - early_cycles_));
}

// What slices gave lately, over what they could have given.
double Coalescer::busy_share(Reader* reader) {
  double now = agenda.cycle;
  double served = reader->slices->served();
  Lately& lately = lately_[reader->partition];
  if (now > lately.since) {
    double gave = (served - lately.served) / ((now - lately.since) * reader->slices->total) *
                  input.l2->sustained_fraction;
    double share = gave + (lately.share - gave) * exp((lately.since - now) / lately_cycles_);
    lately.served = served;
    lately.since = now;
    lately.share = share;
  }
  return lately.share;
}

double Coalescer::queued_cycles(Reader* reader, TileState* tile, double num_bytes) {
  if (queue_cycles_ == 0.0) return 0.0;
  double now = agenda.cycle;
  if (now < tile->queued_until) return tile->queued_cycles;
  tile->queued_until = now + lately_cycles_;
  double own = num_bytes * input.l2->sustained_fraction / (lately_cycles_ * reader->slices->total);
  double share = smaller(MOST_SHARE, busy_share(reader) - own);
  double missed = 0.0;
  if (share > 0.0) {
    double place = reader->draws.next(GOLDEN);
    missed = 1.0 - power(place, LINE_BYTES / larger(num_bytes, LINE_BYTES));
  }
  tile->queued_cycles =
      missed > 0.0 ? larger(0.0, -queue_cycles_ / (1.0 - share) * log(missed / share)) : 0.0;
  return tile->queued_cycles;
}

}  // namespace gpusim
