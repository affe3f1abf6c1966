// Timelines of recorded SMs, as they come back.
#pragma once
#include "containers.h"
#include "records.h"

namespace gpusim {

// Rows in the order in which they happened.
struct Recorder {
  Vector<RoleStateRecord> role_states;
  Vector<RoleBeginRecord> role_begins;
  Vector<RoleSectionRecord> role_sections;
  Vector<CopySpanRecord> copy_spans;
  Vector<ReadSpanRecord> read_spans;
  Vector<MmaSpanRecord> mma_spans;
  Vector<PhaseFlipRecord> phase_flips;
  Vector<BlockedRoleRecord> blocked_roles;
  Vector<TraceRecord> trace;
};

}  // namespace gpusim
