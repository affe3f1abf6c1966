// cp.async: shared memory from global memory past the registers.
#include "machine.h"
#include "ops.h"

namespace gpusim {

namespace {

// what Nsight Compute counts for a warp's commit; kernels/shared_counter
constexpr double COMMIT_WAVEFRONTS = 3.0;
constexpr double TOGETHER_CYCLES = 4.0;  // within which copies take turns: the stall behind each in SASS

// The group that is not committed yet.
AsyncGroup* open_group(Role* role) {
  if (role->cp_open == nullptr) role->cp_open = AsyncGroup::make(nullptr);
  return role->cp_open;
}

double fetched_bytes(const AsyncCopyRecord& copy) {
  if (copy.fetches >= 0) return input.fetches[uint32_t(copy.fetches)].num_bytes;
  return input.accesses[uint32_t(copy.access)].num_sectors * SECTOR_BYTES;
}

void send_copies(Role* role, const Op& op, const AsyncCopyRecord& copy, const IssuedCopies& issued) {
  const AccessRecord& access = input.accesses[uint32_t(copy.access)];
  Sm& sm = sm_of(role);
  double num = access.num_requests;
  double turns = larger(1.0, num / role->num_warps);
  double pace = larger(turns * input.l1->cp_async_interval_cycles,
                       wavefronts_of(access) / role->num_warps * input.smem->warp_cycles_per_wavefront);
  double begun = larger(role->t, role->copies_until);
  role->copies_until = begun + pace;
  if (copy.num_between != 0.0) {
    double each = copy.num_between * num / role->num_warps;
    double made = sm.scheduler.execute(sm.scheduler.alu_pipe, each, role->num_warps, role->t);
    role->spend(WarpState::ISSUE, made);
  }
  role->spend(WarpState::LSU, larger(role->t, issued.end - issued.lead));
  Stage* stage = role->stage(op.stage);
  // at the soonest: reads pass before
  stage->begin_write(larger(issued.first, begun) + input.l2->near_latency_cycles, role);
  AsyncGroup* group = open_group(role);
  bool allocates = op.flags & 1;
  group->is_around_l1 |= !allocates;
  double asked_at = larger(larger(issued.asked_at, begun), agenda.cycle);
  double last = larger(
      larger(issued.end - (issued.end - issued.first) / larger(1.0, num), role->copies_until - pace / turns),
      issued.asked_at);
  role->cta->num_copies++;
  CpAsyncInFlight* flight = machine.flights.cp_asyncs.make();
  flight->op = &op;
  flight->stage = stage;
  flight->group = group->add();
  flight->request = copy_request(role, op, copy, fetched_bytes(copy), asked_at);
  flight->issued = issued;
  flight->last_cycle = last;
  sm.l1.read(flight->request, flight, allocates, last, true);
}

// Copies take the load/store unit, their lines one by one (narrow_copies), and the data stage in turn with
// loads. What L1 has passes once; of the rest a part, and all else when data have come.
void copy_through_l1(Role* role, const Op& op, const AsyncCopyRecord& copy) {
  const AccessRecord& access = input.accesses[uint32_t(copy.access)];
  Sm& sm = sm_of(role);
  double num = access.num_requests;
  double wavefronts = wavefronts_of(access);
  TileKey tile = TileKey::of(uint32_t(op.extra), role->cta->panels[op.panel], op.step);
  bool hits = sm.l1.holds(tile);
  counters.smem.wavefronts += num;
  counters.smem.copy_wavefronts += wavefronts;
  counters.smem.fill_wavefronts += wavefronts;
  double passing = wavefronts;
  double more = num * input.l1->cp_async_cycles;
  double later = 0.0;
  if (!hits) {
    passing *= input.l1->cp_async_miss_first_pass_fraction;
    later = wavefronts - passing;
  }
  double asking = access.num_lines / input.l1->requests_per_cycle;
  Passage passage = sm.l1.accept(num, access.num_lines, passing, role->t, more, asking);
  double rate = input.smem->wavefronts_per_cycle;
  double cycles = more + passing / rate;
  if (asking > cycles) sm.smem.pass_commits(asking - cycles, role->t);
  double passed = sm.smem.pass_copies(cycles * rate, role->t);
  double first = larger(passage.begin, passed - cycles);
  double end = larger(passage.end, passed);
  double hidden = access.num_sectors * SECTOR_BYTES / LINE_BYTES;
  send_copies(role, op, copy, IssuedCopies{first, end, input.l1->queue_cycles, first, hits, later, hidden});
}

// Copies take the load/store unit; their rows pass a stage of their own, and the way to the data stage.
void copy_around_l1(Role* role, const Op& op, const AsyncCopyRecord& copy) {
  const AccessRecord& access = input.accesses[uint32_t(copy.access)];
  Sm& sm = sm_of(role);
  double num = access.num_requests;
  double wavefronts = wavefronts_of(access);
  double row_cycles = input.l1->cp_async_row_cycles;
  double more = num * larger(0.0, input.l1->cp_async_bypass_cycles - 1.0 / input.l1->requests_per_cycle);
  Passage passage = sm.l1.accept(num, access.num_lines, 0.0, role->t, more);
  double rows = larger(copy.num_rows, copy.num_passes);
  double first = passage.begin;
  double lead = sm.l1.copy_lead_cycles(num, larger(passage.end - first, rows * row_cycles));
  double begin = sm.smem.copy_rows(row_cycles != 0.0 ? rows : 0.0, first);
  double end = larger(passage.end, sm.l1.accept_rows(rows, begin));
  double hidden = fetched_bytes(copy) / LINE_BYTES;
  if (rows * row_cycles == 0.0) {
    counters.smem.fill_wavefronts += wavefronts;
  } else {  // rows have a stage of their own, which writes them one by one, so that their banks do not matter
    sm.smem.pass_rows(smaller(wavefronts, hidden), sm.l1.rows_taken_at, first);
    wavefronts = 0.0;
    hidden = 0.0;
  }
  double asked_at = passes_at(role, first);
  send_copies(role, op, copy, IssuedCopies{first, end, lead, asked_at, false, wavefronts, hidden});
}

}  // namespace

// Like a load, but into a stage of shared memory and its group; a warp's own follow one another at a pace. A
// stage that is still read when the first bytes may come is a hazard; one whose readers end before is not
// found.
bool cp_async(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  const AsyncCopyRecord& copy = input.async_copies[uint32_t(op.cost)];
  const AccessRecord& access = input.accesses[uint32_t(copy.access)];
  bool takes_turns = machine.run.uses_fma_turns;
  if (takes_turns && !sm.fma_arbiter.hold(role, access.num_requests / role->num_warps)) return false;
  if (!sm.mio_queue.wait_for_place(role)) {
    if (takes_turns && role->copy_pass == CopyPass::NONE) role->copy_pass = CopyPass::ONCE;
    return false;
  }
  counters.l1.load_requests += access.num_requests;
  counters.l1.load_sectors +=
      copy.fetches < 0 ? access.num_sectors : input.fetches[uint32_t(copy.fetches)].num_sectors;
  role->issue(access.num_requests / role->num_warps);
  if (op.flags & 1)
    copy_through_l1(role, op, copy);
  else
    copy_around_l1(role, op, copy);
  return true;
}

// Closes the group; passes the load/store unit, too, and stalls where its copies' addresses are rewritten.
bool cp_async_commit_group(Role* role, const Op& op) {
  Sm& sm = sm_of(role);
  role->copy_pass = CopyPass::NONE;
  AsyncGroup* group = open_group(role);
  counters.smem.wavefronts += COMMIT_WAVEFRONTS * role->num_warps;
  if (input.l1->commit_cycles != 0.0) {
    double cycles = input.l1->commit_cycles * role->num_warps;
    sm.l1.accept(0.0, 0.0, 0.0, role->t, cycles);
    if (group->is_around_l1) sm.smem.pass_commits(cycles, role->t);
  }
  bool is_held = (op.flags & 1) && group->is_around_l1;
  role->cp_groups.push(group);
  role->cp_open = AsyncGroup::make(group);
  if (!is_held || input.l1->cp_async_row_cycles == 0.0) return true;
  agenda.later(larger(role->t - agenda.cycle, 0.0) + TOGETHER_CYCLES, role, Role::COPIES_ISSUED);
  return role->block(WarpState::LSU, Wait::ITS_COPIES);
}

// Until the group that must be there is.
bool cp_async_wait_group(Role* role, const Op& op) {
  AsyncGroup* latest = nullptr;
  while (int64_t(role->cp_groups.size()) > op.extra) {
    if (latest != nullptr) latest->drop();
    latest = role->cp_groups.pop();
  }
  if (latest == nullptr) return true;
  bool goes_on = role->wait_group(latest, WarpState::WAIT_CP_ASYNC, Wait::CP_ASYNC_GROUP);
  latest->drop();
  return goes_on;
}

// Arrives on an mbarrier when the copies so far are there.
void cp_async_mbarrier_arrive(Role* role, const Op& op) {
  AsyncGroup* group = open_group(role);
  Mbarrier& mbarrier = role->cta->mbarriers[op.barrier];
  if (group->num_pending) {
    CountedCopies* copies = machine.flights.counted.make();
    copies->mbarrier = &mbarrier;
    copies->num_arrivals = role->num_threads;
    group->on_complete.push(copies);
  } else {
    mbarrier.arrive(role->num_threads, larger(role->t, group->ready_at), role);
  }
  role->cp_open = AsyncGroup::make(group);
  group->drop();
}

}  // namespace gpusim
