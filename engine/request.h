// What one SM asks of the memory below L1, and the state of a tile in L2.
#pragma once
#include "input.h"
#include "timing.h"

namespace gpusim {

struct TileState;

// Sectors that one SM asks for at once: an operand tile of one k-step, or a warp's sectors.
struct TileRequest {
  uint32_t sm = 0;
  uint32_t tensor = 0;
  TileKey tile;
  double num_bytes = 0.0;
  int32_t wave = 0;        // how many-th work tile of its slot asks: tells a first touch from a later one
  double issued_at = 0.0;  // cycle at which the first byte is asked for, not before the present
  double num_rows = 1.0;   // rows of memory that it touches at least
  const int32_t* panels = nullptr;          // the CTA's row of cta_panels
  Vector<TileState*>* own_tiles = nullptr;  // of the CTA: tiles that nobody else touches
};

// The same with what else counts while it is on its way.
struct MemoryRequest : TileRequest {
  const int32_t* neighbours = nullptr;  // (column, step) pairs of tiles that L2 fetches with it
  uint32_t num_neighbours = 0;
  // Bytes that cross the SM's port for each that is asked for, bytes that L2 reads for each that crosses,
  // what of these may come with a neighbour's request; requests of lines (0: as few as its bytes need), and
  // what of them may.
  FetchRecord fetched = {1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0};
  int32_t num_warps = 1;  // warps that each wait for a part of it alone
  // Of a store: which part of its tile its op stores, and how many bytes that has.
  double part = 0.0;
  double part_bytes = 0.0;
  double new_fraction = 1.0;       // of its rows those that begin a block of memory that L2 takes as a whole
  double num_part_requests = 0.0;  // instructions that ask for parts of lines each
  double batch_scale = 1.0;        // bytes that are waited for together, over these
  // loads of a thread that ask for it, in turns with other warps'; 0: as a whole
  int32_t num_turns = 0;
  double asked_until = 0.0;  // cycle at which the last of these loads is issued
  double late_cycles = 0.0;  // by how much the last warp has its part later, once it is answered
};

// What of a tile's lines is not where it would be near; shares of all its lines, by L2 partition.
struct Loss {
  double memory[2] = {0.0, 0.0};    // of the lines at home there: L2 has them nowhere
  double crossing[2] = {0.0, 0.0};  // for readers of each partition: lines that only the other one has
  bool is_of_reader = false;        // worked out for the reader's partition alone
};

// Who asked for a tile last, of one merge region.
struct LineRequest {
  uint32_t region;
  double begin;       // what the slices had moved as its first line passed
  double last;        // as its last one did
  double num_served;  // how many are served with a line of it, on average
  const void* port;   // through whose port
  double gone_bytes;  // by how much of that clock most of its lines had passed before
};

// A request that waits for a tile's fill.
struct FillWaiter {
  double ready_at;
  double latency_cycles;
  Completion* done;
  MemoryRequest* by_warps;
};

// What crosses between partitions once a fill has come.
struct FillCrossing {
  uint32_t partition;
  double num_bytes;
  int32_t num_warps;
};

// A tile in L2: which wave fetched it, when its last byte is there, who waits, who has it, who asked for it
// lately.
struct TileState {
  TileKey key;
  int32_t wave = -1;
  uint32_t num_uses = 0;      // transfers that refer to it
  bool is_forgotten = false;  // nobody asks for it any more
  bool is_filling = false;    // its fill's end is not known yet
  uint8_t partitions = 0;     // a bit for each partition that has read it, and so has a copy
  bool has_loss = false;
  bool is_of_launch_before = false;  // which stored it: no SM of the other partition has read it since
  double done_at = 0.0;              // cycle at which the fill is in L2
  double part_at = 0.0;              // cycle at which most warps that wait for a part of it have theirs
  double began_at = 0.0;             // cycle at which the first byte of its fill passed HBM's wire
  double copied_at = 0.0;            // cycle at which the last lines asked for across the fabric are there
  double missed = 0.0;               // its place among the chances, where some of the lines were missing
  double queued_cycles = 0.0;        // what the last of its lines waits at its slice
  double queued_until = 0.0;         // cycle from which on the queues there are others
  Loss loss;                         // when it was last looked for
  Vector<FillWaiter> waiting;
  Vector<LineRequest> asked;
  Vector<FillCrossing> crossings;

  bool is_there_at(double cycle) const { return !is_filling && done_at <= cycle; }
};

}  // namespace gpusim
