// What time costs: pipes that serve in order or share, and the queue of what is to come.
#pragma once
#include "containers.h"
#include "units.h"

namespace gpusim {

// Something that happens at a cycle: `what` tells which of its events it is.
class Action {
 public:
  virtual void act(uint8_t what) = 0;
};

// Told the cycle at which something is complete; that cycle is never in the past.
class Completion {
 public:
  virtual void complete(double cycle) = 0;
};

class SharedPipe;

// What is to come, by cycle: a list for each of the next cycles, and a heap of what is later. Events of one
// cycle come in the order in which they were queued.
class EventQueue {
 public:
  struct Event {
    double at;
    Action* whom;
    Event* next;
    uint8_t what;
  };

  bool empty() const { return first_ == nullptr && later_.empty(); }
  double first_at() const { return first_ != nullptr ? first_->at : later_.first().at; }
  uint64_t num_pushed() const { return num_pushed_; }

  // `at` is finite and not before what was popped last.
  void push(double at, Action* whom, uint8_t what) {
    num_pushed_++;
    Event* event = events_.make(at, whom, nullptr, what);
    if (at < end_at_)
      insert(event);
    else
      later_.push(at, event);
  }
  Event pop();

 private:
  static constexpr uint32_t NUM_LISTS = 1024;
  struct List {
    Event* first = nullptr;
    Event* last = nullptr;
  };

  static uint32_t list_of(double at) { return uint32_t(int64_t(at)) % NUM_LISTS; }
  void insert(Event* event);
  Event* first_behind(uint32_t list) const;

  List lists_[NUM_LISTS];
  uint64_t is_used_[NUM_LISTS / 64] = {};  // a bit for each list
  Event* first_ = nullptr;                 // of the lists
  double end_at_ = NUM_LISTS;              // events before this cycle are in lists, later ones in the heap
  Heap<double, Event*> later_;
  Pool<Event> events_;
  uint64_t num_pushed_ = 0;
};

// The present and what is to come: a queue of events, and beside it one timer for each SharedPipe. A pipe's
// timer comes before the events of its cycle.
class Agenda {
 public:
  double cycle = 0.0;
  // Cycle before which no pipe rings.
  double rings_at = INFINITE;

  // Lets `whom->act(what)` happen after `num_cycles`, 0 or more, behind what is queued for then already.
  void later(double num_cycles, Action* whom, uint8_t what) { queue_.push(cycle + num_cycles, whom, what); }
  // The same at a cycle, or now where that is over.
  void at(double at_cycle, Action* whom, uint8_t what) { later(larger(0.0, at_cycle - cycle), whom, what); }

  // Lets happen what is next; false where nothing is.
  bool advance();

  void add_pipe(SharedPipe* pipe) { pipes_.push(pipe); }
  uint64_t num_events() const { return queue_.num_pushed() + num_rings_; }

 private:
  void ring();
  SharedPipe* first_pipe();

  EventQueue queue_;
  Vector<SharedPipe*> pipes_;
  uint64_t num_rings_ = 0;
};

// A unit that serves one thing after the other, with a rate and a busy-until.
// Models:
// * rate; queueing in order of arrival.
// Ignores:
// * gaps: work reserved ahead of time is never overtaken.
// Source: rates come from the GPU's description.
struct Pipe {
  double rate;
  double free_at = 0.0;
  double busy_cycles = 0.0;

  explicit Pipe(double its_rate = 1.0) : rate(its_rate) {}

  double reserve(double units, double at_cycle) {
    double cycles = units / rate;
    double start = free_at;
    if (start < at_cycle) start = at_cycle;
    busy_cycles += cycles;
    free_at = start + cycles;
    return free_at;
  }
};

// A pipe that is asked out of order, by roles whose cursors run ahead of the clock.
// Models:
// * a gap before work reserved ahead is filled by work that is ready earlier, split if needed.
// Ignores:
// * gaps but the last few, which is as far as cursors run ahead.
// Source: order of arrival, as of any queue.
class GapPipe : public Pipe {
 public:
  // No caller asks for a cycle more than `most_late_cycles` before the clock.
  explicit GapPipe(double its_rate = 1.0, double most_late_cycles = MOST_LATE_CYCLES)
      : Pipe(its_rate), most_late_cycles_(most_late_cycles) {}

  double reserve(double units, double at_cycle) {
    double cycles = units / rate;
    busy_cycles += cycles;
    if (free_at < at_cycle) {
      add_gap(free_at, at_cycle);
      free_at = at_cycle + cycles;
      return free_at;
    }
    if (!gaps_.empty() && gaps_.back().until > at_cycle) return fill(cycles, at_cycle);
    free_at = free_at + cycles;
    return free_at;
  }

  // Is as busy as another one is.
  void become(GapPipe& other);

 private:
  struct Gap {
    double since;
    double until;
  };

  void add_gap(double since, double until);
  double fill(double cycles, double at_cycle);

  double most_late_cycles_;
  Vector<Gap> gaps_;
};

// One transfer in a SharedPipe.
struct Ticket {
  double finish = 0.0;  // where it ends in virtual time
  double weight = 0.0;  // what it takes of the pipe while others take 1
  double share = 1.0;   // how fast it moves while others move at 1
  Completion* done = nullptr;
  bool is_void = false;
};

// A part that many share: transfers in flight split its rate equally, each capped by its own port.
// Models:
// * processor sharing with equal shares and one cap, in virtual time;
// * transfers of weight 0, which ride on another;
// * unequal shares among transfers that begin while the rate is short.
// Ignores:
// * unequal caps; distance; shares of those in flight when the rate is no longer short.
// Source: fluid model of generalized processor sharing (Parekh and Gallager, 1993).
class SharedPipe {
 public:
  double total = 1.0;
  double cap = 1.0;
  double rate = 1.0;  // bytes a cycle that each transfer moves now, or would
  double rings_at = INFINITE;

  void init(Agenda* agenda, double bytes_per_cycle, double cap_bytes_per_cycle);

  // Rate of a transfer that has the pipe to itself.
  double alone() const { return smaller(total, cap); }
  // Bytes that a transfer which never ended would have moved up to now.
  double moved();
  // Bytes of all transfers up to now, each by its weight.
  double served() const { return served_ + (agenda_->cycle - last_) * rate * weight_; }
  // Bytes that a transfer in flight has to move.
  double left(const Ticket* ticket) const {
    return (ticket->finish - virtual_ - (agenda_->cycle - last_) * rate) * ticket->share;
  }
  double share_now(double share) const { return rate < cap ? share : 1.0; }

  // Moves `num_bytes`; `done` is told when the last byte has passed.
  Ticket* transfer(double num_bytes, Completion* done, double weight = 1.0, double share = 1.0);
  // Lets a transfer in flight carry `num_bytes` more, at `weight` from now on; returns its new ticket.
  Ticket* extend(Ticket* ticket, double num_bytes, double weight);
  // Transfers that have ended leave, and those whom it concerns are told.
  void ring();

 private:
  Ticket* queue(double finish, double weight, double share, Completion* done);
  void advance();
  void share_among(double weight);
  void arm();

  Agenda* agenda_ = nullptr;
  Heap<double, Ticket*> heap_;  // by where they end
  Vector<Completion*> finished_;
  Pool<Ticket> tickets_;
  double base_ = 0.0;
  double virtual_ = 0.0;
  double served_ = 0.0;
  double last_ = 0.0;
  double weight_ = 0.0;
};

}  // namespace gpusim
