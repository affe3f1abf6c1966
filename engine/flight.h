// What is on its way by itself: loads, copies by TMA and cp.async, stores.
#pragma once
#include "cta.h"
#include "request.h"
#include "store_port.h"
#include "coalescer.h"
#include "crossbar.h"
#include "mio_queue.h"
#include "role.h"

namespace gpusim {

// A load or store of a recorded SM, in its timeline; of another SM it is nothing.
class MemorySpan {
 public:
  void begin(const Role* role, bool is_store, double at_cycle, double num_bytes);
  void end(double cycle) const;

 private:
  int32_t row_ = -1;
};

// A load's data are on their way to registers.
class LoadInFlight : public Completion {
 public:
  Token* token = nullptr;
  double latency_cycles = 0.0;  // from when it is told
  MemoryRequest request;
  MemorySpan span;
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
class TmaInFlight : public Receiver {
 public:
  TmaInFlight(const Op* its_op, Cta* cta, double at_cycle);
  void complete(double cycle) override;

 private:
  const Op* op_;
  Cta* cta_;
  double started_at_;
};

// How copies that were issued are asked for, and what they do once they are there.
struct IssuedCopies {
  double first;  // they pass the load/store unit from here
  double end;    // to here
  double lead;   // their warps go on so long before that
  double asked_at;
  bool hits;              // L1 has them
  double num_wavefronts;  // to be written once they are there
  double num_hidden;      // of these, those that come while the transfer is under way
};

// A cp.async batch on its way: it is written into shared memory, wavefront by wavefront.
class CpAsyncInFlight : public Completion {
 public:
  const Op* op = nullptr;
  Stage* stage = nullptr;
  AsyncGroup* group = nullptr;
  MemoryRequest request;
  IssuedCopies issued = {};
  double last_cycle = 0.0;  // when the last of its instructions asks
  void complete(double cycle) override;

 private:
  double latency_cycles(double cycle) const;
};

// One of a store's two ends: its last byte has left the SM, or L2 has taken it. The kernel ends after both.
class StoreInFlight : public Completion {
 public:
  explicit StoreInFlight(AsyncGroup* group);
  MemorySpan span;  // of the end at which L2 has it
  void complete(double cycle) override;

 private:
  AsyncGroup* group_;  // complete then, if there is one
};

// A bulk store's source is being read.
class BulkStoreInFlight : public Completion {
 public:
  BulkStoreInFlight(const BulkGroups& groups, Cta* cta, Stage* stage);
  void complete(double cycle) override;

 private:
  BulkGroups groups_;
  Cta* cta_;
  Stage* stage_;  // if it is declared
};

// What TMA asks of memory: a copy to one CTA or to several, or a store. It begins when its tensor map is
// there, and what stands before it has left the SM.
class TmaTransfer : public Action {
 public:
  MemoryRequest request;
  ZeroRows zeros;
  const void* group = nullptr;    // of a copy to one CTA
  Receiver* receivers = nullptr;  // of a copy
  const TmaStoreRecord* store = nullptr;
  Completion* left = nullptr;  // of a store
  Completion* arrived = nullptr;

  explicit TmaTransfer(const MemoryRequest& its_request) : request(its_request) {}
  // Begins at a cycle; at once unless that is behind the cursor of its role.
  void begin(double begins_at, double cursor);
  void act(uint8_t what) override;

 private:
  void ask();
};

// Pools of all that is on its way.
struct Flights {
  Pool<LoadInFlight> loads;
  Pool<CountedCopies> counted;
  Pool<TmaInFlight> tma_copies;
  Pool<CpAsyncInFlight> cp_asyncs;
  Pool<StoreInFlight> stores;
  Pool<BulkStoreInFlight> bulk_stores;
  Pool<TmaTransfer> tma_transfers;
  Pool<Token> tokens;
  Pool<AsyncGroup> groups;
  Pool<QueuedRole> queued_roles;
  Pool<QueuedLoad> queued_loads;
};

}  // namespace gpusim
