// What is on its way by itself: loads, copies by TMA and cp.async, stores, reads that begin later.
#pragma once
#include "cta.h"
#include "request.h"
#include "store_port.h"
#include "coalescer.h"
#include "crossbar.h"
#include "mio_queue.h"
#include "role.h"

namespace gpusim {

// A load's data are on their way to registers.
class LoadInFlight : public Completion {
 public:
  Token* token = nullptr;
  double latency_cycles = 0.0;  // from when it is told
  MemoryRequest request;
  void complete(double cycle) override;
};

// cp.async that an mbarrier is to count once they are there.
class CountedCopies : public Completion {
 public:
  Mbarrier* mbarrier = nullptr;
  int32_t num_arrivals = 0;
  void complete(double cycle) override;
};

// A TMA copy on its way to one CTA.
class TmaInFlight : public Completion {
 public:
  const Op* op = nullptr;
  const TmaLoadRecord* cost = nullptr;
  Stage* stage = nullptr;
  Mbarrier* mbarrier = nullptr;
  double started_at = 0.0;
  void complete(double cycle) override;
};

// A cp.async batch on its way: it is written into shared memory, wavefront by wavefront.
class CpAsyncInFlight : public Completion {
 public:
  const Op* op = nullptr;
  Stage* stage = nullptr;
  AsyncGroup* group = nullptr;
  MemoryRequest request;
  double num_wavefronts = 0.0;
  double num_hidden = 0.0;      // of them, those that come while the transfer is under way
  double last_cycle = 0.0;      // when the last of its instructions asks
  double soonest_cycles = 0.0;  // after which that one may have its data
  double more_cycles = 0.0;     // what it takes from there
  double num_requests = 0.0;
  bool is_again = false;  // L1 had it not, so that it passes the load/store unit again
  bool allocates = false;
  void complete(double cycle) override;

 private:
  double latency_cycles(double cycle) const;
};

// A store has left the SM, and has arrived: the kernel does not end before both.
class StoreInFlight : public Completion, public StoreArrival {
 public:
  AsyncGroup* left = nullptr;         // complete when it has left
  AsyncGroup* has_arrived = nullptr;  // complete when it has arrived
  // Of a bulk store: its source has been read, it is complete, and where its source lies.
  BulkGroups bulk = {nullptr, nullptr};
  Cta* cta = nullptr;
  Stage* stage = nullptr;
  void complete(double cycle) override;
  void arrived(double cycle) override;

 private:
  void over(double cycle);
  double at_ = 0.0;
  bool has_one_ = false;
};

// A TMA read or store that begins when its tensor map is there, or what stands before it has left the SM.
class DelayedTma : public Action {
 public:
  enum Kind : uint8_t { READ, MULTICAST, ZEROS, STORE };
  Kind kind = READ;
  MemoryRequest request;
  Vector<Receiver> receivers;
  const void* group = nullptr;
  ZeroRows zeros;
  StoreInFlight* store = nullptr;
  const TmaStoreRecord* cost = nullptr;
  // It begins.
  void act(uint8_t what) override;
};

// Pools of all that is on its way.
struct Flights {
  Pool<LoadInFlight> loads;
  Pool<CountedCopies> counted;
  Pool<TmaInFlight> tma_copies;
  Pool<CpAsyncInFlight> cp_asyncs;
  Pool<StoreInFlight> stores;
  Pool<DelayedTma> delayed;
  Pool<Token> tokens;
  Pool<AsyncGroup> groups;
  Pool<QueuedRole> queued_roles;
  Pool<QueuedLoad> queued_loads;
};

}  // namespace gpusim
