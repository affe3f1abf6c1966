// The crossbar between SMs and L2: ports, slices, links of GPCs, and the merging of requests.
#pragma once
#include "coalescer.h"
#include "store_port.h"

namespace gpusim {

// A request's share of a transfer.
struct TransferPart {
  TileState* tile;
  double earliest;  // cycle before which its last byte cannot pass
  double latency_cycles;
  Completion* done;
  MemoryRequest* by_warps;  // the request where its warps wait for a part each
};

class Transfer;

// One SM's reads: one transfer after the other, the first sharing the slices with other SMs; and its stores.
struct SmPort : public Reader {
  uint32_t gpc;  // row of gpc_links
  Transfer* active = nullptr;
  Fifo<Transfer*> waiting;
  StorePort stores;
  Pipe store_pipe{input.xbar->sm_write_bytes_per_cycle};

  SmPort(const SmRecord& record, uint32_t sm);
};

// Reads on their way through a port: one request, or neighbours that are waited for together.
// What it has to move is known when it begins: what merges with a neighbour's request comes with that.
class Transfer : public Completion {
 public:
  Transfer(SmPort* port, const void* its_group) : group(its_group), port_(port) {}
  // Takes a request along, and begins with it where the port has nothing else to do.
  void join(const LineBatch& batch, const TransferPart& part);
  void complete(double cycle) override;

  const void* group;

 private:
  struct QueuedTile {
    TileState* tile;
    double num_bytes;
    double moved_bytes;  // what the slices' clock has moved by when its last line passes
  };

  void start(Table<LineBatch> batches);
  void extend(const LineBatch& batch);
  BatchPrice take(const LineBatch& batch, double behind_bytes, double pace);

  SmPort* port_;
  Vector<LineBatch> batches_;  // until it begins
  Vector<TransferPart> parts_;
  Vector<QueuedTile> queued_;
  Ticket* ticket_ = nullptr;
  double num_bytes_ = 0.0;
  double num_moved_bytes_ = 0.0;
  double weight_ = 0.0;
  double ahead_cycles_ = INFINITE;
  double link_at_ = 0.0;  // when the link of the GPC has carried it
};

// Who is told that a copy has come to an SM.
class Receiver : public Completion {
 public:
  uint32_t sm = 0;
  Receiver* next = nullptr;  // of the same multicast
};

// Models:
// * what one SM takes in, and what the slices of a partition serve to its SMs, in turns of GPCs;
// * a link each way for each GPC; the way in counts only while so few GPCs are live that it can matter;
// * stores: an SM's own port, parts of GPCs in turns, what crosses between partitions (store_port.h);
// * reductions with a header a line, lines stored in part with a mask, packets of threads' stores;
// * bulk copies that are no boxes, and multicasts, which take more of links and slices than their bytes;
// * ways from L2 of unlike length; a queue at each slice; the coalescer of requests (coalescer.h);
// * a limit on what loads of an SM's threads have asked for and not got;
// * multicast: one read, several receivers; rows of boxes outside of their tensors;
// * requests of an SM's bulk copies behind its stores.
// Ignores:
// * that slices are queues in which all SMs stand; turns of parts of a GPC for loads;
// * the queue at slices of threads' loads and of what comes from memory;
// * fair shares of a link among requests of one moment; imbalance of slices within a partition;
// * which partition leads: here the first; what multicasts of zeros take.
// Source: the GPU's description; kernels/memory_bandwidth, l2_residency, first_loads, tile_sharing,
// multicast_rings, line_sharing, store_drift, half_stores, loads_beside_stores.
class Crossbar {
 public:
  SharedPipe stores;
  SharedPipe slices[2];  // of each partition
  Coalescer coalescer;

  Crossbar();

  // An SM has its first CTA, or has lost its last: whose link is in the way now?
  void set_live(uint32_t sm, bool is_live);
  // Lets an SM ask for the lines of a copy that comes at `at_cycle`, behind what the SM stores.
  double behind_stores(uint32_t sm, double num_lines, double at_cycle);
  // Fetches a tile into one SM. Bulk copies have a `group`; neighbours of one group move as one.
  // `places`: those for bytes that were asked for and are not there.
  void read(MemoryRequest& request, Completion* done, const void* group, Pipe* places,
            const ZeroRows& zeros = {});
  // Fetches a tile once and delivers it to receivers, each of which takes in so much at most.
  void multicast(const MemoryRequest& request, Receiver* receivers, double bytes_per_cycle,
                 const ZeroRows& zeros);
  // Stores a tile; `left` is called when its last byte has left the SM, `arrived` when L2 has taken it.
  void write(const MemoryRequest& request, Completion* left, Completion* arrived, double num_distinct_bytes,
             StoreKind kind, double num_packet_bytes = 0.0, double packet_bytes = LINE_BYTES,
             double num_more_bytes = 0.0);
  // When a store of an SM has crossed: from when the next can follow, and its last line.
  double cross_store(uint32_t sm, double crossing_bytes, double since, double* last_at);
  // Bytes of the port's time that threads' stores take, or their reductions.
  double packet_bytes(const AccessRecord& access, StoreKind kind) const;

  double distance_cycles(uint32_t sm) const { return input.sms[sm].distance_cycles; }

 private:
  friend class Transfer;

  // A GPC's way in: how many of its SMs are live, and what they get.
  struct GpcLink {
    const GpcLinkRecord& record;
    Pipe pipe{record.bytes_per_cycle};
    double share = 1.0;       // what threads of one of its SMs get of the slices while they are short
    double bulk_share = 1.0;  // the same of bulk copies
    int32_t num_live = 0;
    int32_t num_lone_live = 0;
    int32_t num_storing = 0;
    bool is_narrow = false;  // carries less than slices and ports would give its live SMs

    explicit GpcLink(const GpcLinkRecord& its_record) : record(its_record) {}
    int32_t num_turns() const { return int(num_live > num_lone_live) + int(num_lone_live > 0); }
  };

  void share_stores(uint32_t partition);
  TransferPart look_up(const MemoryRequest& request, const ZeroRows& zeros, Completion* done);
  void count_reads(double num_bytes, const ZeroRows& zeros, double num_receivers);
  void deliver(double num_bytes, uint32_t sm, const LineBatch& batch, const TransferPart& part,
               const void* group);

  Array<SmPort> ports_;  // of each SM
  Array<GpcLink> gpc_links_;
  Array<Pipe> write_links_;
  Pool<Transfer> transfers_;
  TileState zero_tile_;  // where rows of zeros come from
};

}  // namespace gpusim
