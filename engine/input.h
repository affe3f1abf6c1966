// The packed launch: sections of one buffer, as gpusim/program/records.py names them.
#pragma once
#include "records.h"
#include "units.h"

namespace gpusim {

// A section of the buffer: `size` records, which stay where they are while the run lasts.
template <class T>
struct Table {
  const T* items = nullptr;
  uint32_t size = 0;
  const T& operator[](uint32_t place) const { return items[place]; }
  const T* begin() const { return items; }
  const T* end() const { return items + size; }
};

// Everything that is known before the run.
struct InputData {
  const LaunchConstants* launch;
  const IdealsConstants* ideals;
  const DispatcherConstants* dispatcher;
  const HbmConstants* hbm;
  const L2Constants* l2;
  const XbarConstants* xbar;
  const L1Constants* l1;
  const SmemConstants* smem;
  const WarpSchedulerConstants* warp_scheduler;
  const TensorCoreConstants* tensor_core;
  const TmaConstants* tma;
  const MbarrierConstants* mbarrier;
  const DsmemConstants* dsmem;
  const InstructionCacheConstants* instruction_cache;

  Table<AccessRecord> accesses;
  Table<StoreRecord> stores;
  Table<AsyncCopyRecord> async_copies;
  Table<TmaLoadRecord> tma_loads;
  Table<TmaStoreRecord> tma_stores;
  Table<FetchRecord> fetches;
  Table<WgmmaRecord> wgmmas;
  Table<MmaSyncRecord> mma_syncs;
  Table<FarCodeRecord> far_codes;
  Table<LoopCodeRecord> loop_codes;
  Table<FmaRecord> fmas;
  Table<AluRecord> alus;
  Table<ProgramRecord> programs;
  Table<RoleRecord> roles;
  Table<MbarrierRecord> mbarriers;
  Table<NamedBarrierRecord> named_barriers;
  Table<TensorRecord> tensors;
  Table<WalkRecord> walks;
  Table<LossRowRecord> loss_rows;
  Table<GpcLinkRecord> gpc_links;
  Table<WriteLinkRecord> write_links;
  Table<SmRecord> sms;
  Table<PartitionRecord> partitions;

  Table<Op> ops;
  Table<int32_t> lists;
  Table<int32_t> neighbours;
  Table<int32_t> slots;
  Table<int32_t> cta_class;
  Table<int32_t> class_programs;
  Table<int32_t> cta_panels;
  Table<int32_t> panel_groups;
  Table<int32_t> group_rows;
  Table<double> written_back;
  Table<double> times_fetched;

  // Reads the table of sections. Returns -2 if all is well, -1 if the header is wrong, else the wrong
  // section.
  int read(const uint8_t* buffer, uint32_t num_bytes);
};

// The input of the run; its pointers lead into the packed buffer.
extern InputData input;

}  // namespace gpusim
