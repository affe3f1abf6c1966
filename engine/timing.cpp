// What time costs: pipes that serve in order or share, and the queue of what is to come.
#include "timing.h"

#include "machine.h"

namespace gpusim {

namespace {

// that a GapPipe remembers
constexpr uint32_t MOST_GAPS = 64;
// Where the number of gaps is a multiple of this, those that nobody asks for any more are dropped.
constexpr uint32_t GAPS_BETWEEN = 8;
constexpr double EPSILON_BYTES = 1e-6;      // what rounding may leave of a transfer
constexpr double EPSILON_OF_CLOCK = 4e-16;  // rounding of the clock, as a fraction of it

}  // namespace

// ------------------------------------------------------------------------------------------ what is to come

EventQueue::Event EventQueue::pop() {
  Event* event = first_;
  if (event == nullptr) event = later_.pop();
  double end_at = __builtin_floor(event->at) + NUM_LISTS;
  if (first_ != nullptr) {
    uint32_t place = list_of(event->at);
    lists_[place].first = event->next;
    if (event->next == nullptr) is_used_[place / 64] &= ~(uint64_t(1) << place % 64);
    first_ = event->next != nullptr ? event->next : first_behind(place);
  }
  if (end_at > end_at_) {
    end_at_ = end_at;
    while (!later_.empty() && later_.first().at < end_at_) insert(later_.pop());
  }
  Event popped = *event;
  events_.release(event);
  return popped;
}

void EventQueue::insert(Event* event) {
  uint32_t place = list_of(event->at);
  List& list = lists_[place];
  Event** link = &list.first;
  if (list.first != nullptr && list.last->at <= event->at) link = &list.last->next;
  while (*link != nullptr && (*link)->at <= event->at) link = &(*link)->next;
  event->next = *link;
  *link = event;
  if (event->next == nullptr) list.last = event;
  is_used_[place / 64] |= uint64_t(1) << place % 64;
  if (first_ == nullptr || event->at < first_->at) first_ = event;
}

// The first event of the lists behind one that is empty now.
EventQueue::Event* EventQueue::first_behind(uint32_t list) const {
  uint32_t word = list / 64;
  uint64_t used = is_used_[word] >> list % 64 << list % 64;
  for (uint32_t seen = 0; !used && seen < NUM_LISTS / 64; seen++) {
    word = (word + 1) % (NUM_LISTS / 64);
    used = is_used_[word];
  }
  return used ? lists_[word * 64 + uint32_t(__builtin_ctzll(used))].first : nullptr;
}

// ------------------------------------------------------------------------------------------ agenda

bool Agenda::advance() {
  if (!queue_.empty()) {
    double at = queue_.first_at();
    if (rings_at > at) {
      EventQueue::Event event = queue_.pop();
      cycle = at;
      event.whom->act(event.what);
      return true;
    }
  } else if (rings_at == INFINITE) {
    return false;
  }
  ring();
  return true;
}

void Agenda::ring() {
  SharedPipe* first = first_pipe();
  if (first == nullptr || (!queue_.empty() && queue_.first_at() < rings_at)) return;
  num_rings_++;
  cycle = rings_at;
  first->ring();
  first_pipe();
}

// Looks anew when the first pipe rings, and which.
SharedPipe* Agenda::first_pipe() {
  SharedPipe* first = nullptr;
  rings_at = INFINITE;
  for (SharedPipe* pipe : pipes_) {
    if (pipe->rings_at < rings_at) {
      first = pipe;
      rings_at = pipe->rings_at;
    }
  }
  return first;
}

// ------------------------------------------------------------------------------------------ pipes in order

void GapPipe::become(GapPipe& other) {
  free_at = other.free_at;
  gaps_.clear();
  for (const Gap& gap : other.gaps_) gaps_.push(gap);
}

void GapPipe::add_gap(double since, double until) {
  if (!gaps_.empty() && gaps_.size() % GAPS_BETWEEN == 0) {
    uint32_t num_over = 0;
    double over_at = agenda.cycle - most_late_cycles_;
    while (num_over < gaps_.size() && gaps_[num_over].until <= over_at) num_over++;
    gaps_.keep_last(gaps_.size() - num_over);
  }
  gaps_.push(Gap{since, until});
  if (gaps_.size() > 2 * MOST_GAPS) gaps_.keep_last(MOST_GAPS);
}

// Takes what gaps have room for from `at_cycle` on, and the rest behind everything.
double GapPipe::fill(double cycles, double at_cycle) {
  gaps_.keep_last(MOST_GAPS);
  uint32_t first = gaps_.size() - 1;
  while (first > 0 && gaps_[first - 1].until > at_cycle) first--;
  Gap later[MOST_GAPS];
  uint32_t num_later = gaps_.size() - first;
  for (uint32_t place = 0; place < num_later; place++) later[place] = gaps_[first + place];
  gaps_.truncate(first);
  double end = at_cycle;
  for (uint32_t place = 0; place < num_later; place++) {
    Gap gap = later[place];
    double start = gap.since > at_cycle ? gap.since : at_cycle;
    if (cycles <= 0.0 || start >= gap.until) {
      gaps_.push(gap);
      continue;
    }
    end = start + cycles;
    if (end > gap.until) {
      end = gap.until;
      cycles -= end - start;
    } else {
      cycles = 0.0;
    }
    if (gap.since < start) gaps_.push(Gap{gap.since, start});
    if (end < gap.until) gaps_.push(Gap{end, gap.until});
  }
  gaps_.keep_last(MOST_GAPS);
  if (cycles > 0.0) {
    free_at = free_at + cycles;
    end = free_at;
  }
  return end;
}

// ------------------------------------------------------------------------------------------ a shared pipe

void SharedPipe::init(Agenda* agenda, double bytes_per_cycle, double cap_bytes_per_cycle) {
  agenda_ = agenda;
  total = bytes_per_cycle;
  cap = cap_bytes_per_cycle;
  rate = cap_bytes_per_cycle;
  agenda->add_pipe(this);
}

void SharedPipe::advance() {
  double gone = (agenda_->cycle - last_) * rate;
  virtual_ += gone;
  served_ += gone * weight_;
  last_ = agenda_->cycle;
}

double SharedPipe::moved() {
  advance();
  return base_ + virtual_;
}

// Transfers in flight have a weight in all.
void SharedPipe::share_among(double weight) {
  weight_ = weight;
  rate = weight * cap <= total ? cap : total / weight;
}

Ticket* SharedPipe::queue(double finish, double weight, double share, Completion* done) {
  Ticket* ticket = tickets_.make(finish, weight, share, done, false);
  heap_.push(finish, ticket);
  return ticket;
}

Ticket* SharedPipe::transfer(double num_bytes, Completion* done, double weight, double share) {
  advance();
  if (share != 1.0) {
    share = share_now(share);
    weight *= share;
  }
  Ticket* ticket = queue(virtual_ + num_bytes / share, weight, share, done);
  share_among(weight_ + weight);
  if (heap_.first().item == ticket) arm();
  return ticket;
}

Ticket* SharedPipe::extend(Ticket* ticket, double num_bytes, double weight) {
  advance();
  ticket->is_void = true;
  double share = ticket->share;
  weight *= share;
  Ticket* longer = queue(ticket->finish + num_bytes / share, weight, share, ticket->done);
  double before = rate;
  share_among(weight_ + weight - ticket->weight);
  if (rate > before) arm();  // a timer that rings too early is set anew then
  return longer;
}

// Sees to it that the timer rings no later than when the first transfer may end; it may ring too early.
void SharedPipe::arm() {
  while (heap_.first().item->is_void) tickets_.release(heap_.pop());
  double left = (heap_.first().at - virtual_) / rate;
  if (left < 0.0) left = 0.0;
  rings_at = agenda_->cycle + left;
  if (rings_at < agenda_->rings_at) agenda_->rings_at = rings_at;
}

void SharedPipe::ring() {
  advance();
  double now = agenda_->cycle;
  rings_at = INFINITE;
  double reached = virtual_ + EPSILON_BYTES + EPSILON_OF_CLOCK * now * rate;
  uint32_t first = finished_.size();
  while (!heap_.empty()) {
    Ticket* ticket = heap_.first().item;
    if (ticket->finish > reached && !ticket->is_void) break;
    heap_.pop();
    if (!ticket->is_void) {
      weight_ -= ticket->weight;
      finished_.push(ticket->done);
    }
    tickets_.release(ticket);
  }
  if (heap_.empty()) {
    weight_ = 0.0;
    base_ += virtual_;
    virtual_ = 0.0;
  }
  share_among(weight_);
  for (uint32_t place = first; place < finished_.size(); place++) finished_[place]->complete(now);
  finished_.truncate(first);
  if (!heap_.empty()) arm();
}

}  // namespace gpusim
