// The machine of a run: every part is a global, since a module runs one launch.
#pragma once
#include "crossbar.h"
#include "flight.h"
#include "instruction_cache.h"
#include "l1.h"
#include "l2.h"
#include "mio_queue.h"
#include "mma_arbiter.h"
#include "run.h"
#include "shared_memory.h"
#include "tma.h"
#include "warp_scheduler.h"

namespace gpusim {

// One streaming multiprocessor.
struct Sm {
  L1 l1;
  SharedMemory smem;
  MioQueue mio_queue;
  WarpScheduler scheduler;
  TensorCore tensor_core;
  MmaArbiter tensor_arbiter{WarpState::TENSOR, Wait::TENSOR_CORES};
  MmaArbiter fma_arbiter{WarpState::MATH_PIPE, Wait::FMA_PIPE};
  InstructionCache instruction_cache;
  Tma tma;
  Dsmem dsmem;
  MbarrierUnit mbarrier_unit;
  Fifo<QueuedStore> queued_stores;  // stores to memory that may not have left the SM, oldest first
  uint32_t num_ctas = 0;
  double active_since = 0.0;
  double active_cycles = 0.0;

  explicit Sm(const SmRecord& record)
      : scheduler(record.pace), instruction_cache(record.loop_bytes_per_cycle) {}
};

// Everything of a run but its input.
struct Machine {
  Agenda agenda;
  Counters counters = {};
  Hbm hbm;
  L2 l2;
  Crossbar crossbar;
  FirstAsked tensor_maps;   // by an SM that had to fetch one
  FirstAsked fetched_code;  // stretches of far code, out of memory
  Dispatcher dispatcher;
  Run run;
  Recorder recorder;
  FailureLog failure;
  Array<Sm> sms;
  Pool<L1Tile> l1_tiles;
  Flights flights;
};

// Room for a machine at a fixed address, so that its parts are reached without a pointer.
union MachineRoom {
  char nothing;
  Machine machine;
  constexpr MachineRoom() : nothing(0) {}
  ~MachineRoom() {}
};
extern MachineRoom machine_room;

static Machine& machine = machine_room.machine;
static Agenda& agenda = machine_room.machine.agenda;
static Counters& counters = machine_room.machine.counters;
static Hbm& hbm = machine_room.machine.hbm;
static L2& l2 = machine_room.machine.l2;
static Crossbar& crossbar = machine_room.machine.crossbar;
static FirstAsked& tensor_maps = machine_room.machine.tensor_maps;
static FirstAsked& fetched_code = machine_room.machine.fetched_code;
static Pool<L1Tile>& l1_tiles = machine_room.machine.l1_tiles;

// Builds the machine anew from the input.
void build_machine();

inline Sm& sm_of(uint32_t idx) { return machine.sms[idx]; }
inline Sm& sm_of(const Role* role) { return machine.sms[role->cta->sm]; }

}  // namespace gpusim
