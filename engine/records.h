// What crosses between Python and the engine. Written by scripts/engine_header.py: do not edit.
#pragma once
#include "containers.h"

namespace gpusim {

constexpr uint32_t BUFFER_MAGIC = 0x4753494d;
constexpr uint32_t BUFFER_VERSION = 1;

enum class OpKind : uint8_t {
  GLOBAL_LOAD = 0,
  GLOBAL_STORE = 1,
  GLOBAL_ATOMIC = 2,
  USE = 3,
  CP_ASYNC = 4,
  CP_ASYNC_COMMIT_GROUP = 5,
  CP_ASYNC_WAIT_GROUP = 6,
  CP_ASYNC_MBARRIER_ARRIVE = 7,
  TMA_LOAD = 8,
  TMA_STORE = 9,
  BULK_COMMIT_GROUP = 10,
  BULK_WAIT_GROUP = 11,
  PREFETCH_TENSORMAP = 12,
  FENCE_PROXY_TENSORMAP = 13,
  MBARRIER_INIT = 14,
  MBARRIER_ARRIVE = 15,
  MBARRIER_ARRIVE_EXPECT_TX = 16,
  MBARRIER_WAIT = 17,
  BAR_SYNC = 18,
  BAR_ARRIVE = 19,
  SYNCTHREADS = 20,
  CLUSTER_ARRIVE = 21,
  CLUSTER_WAIT = 22,
  FENCE_PROXY_ASYNC = 23,
  FENCE_MBARRIER_INIT = 24,
  FENCE_ACQ_REL = 25,
  SHARED_LOAD = 26,
  SHARED_STORE = 27,
  SHARED_ATOMIC = 28,
  LDMATRIX = 29,
  STMATRIX = 30,
  DSMEM_LOAD = 31,
  DSMEM_STORE = 32,
  ST_ASYNC = 33,
  MMA_SYNC = 34,
  WGMMA_FENCE = 35,
  WGMMA = 36,
  WGMMA_COMMIT_GROUP = 37,
  WGMMA_WAIT_GROUP = 38,
  FETCH_CODE = 39,
  FETCH_COLD_CODE = 40,
  LOOP_BODY = 41,
  FMA = 42,
  ALU = 43,
  IMAD_WIDE = 44,
  MUFU = 45,
  SHFL = 46,
  SET_MAX_NREG = 47,
  RANGE_START = 48,
  RANGE_END = 49,
  TURN = 50,
};

enum class Section : uint8_t {
  PROLOGUE = 0,
  MAINLOOP = 1,
  EPILOGUE = 2,
};

enum class Ideal : uint8_t {
  BANK_CONFLICTS = 0,
  EPILOGUE = 1,
  OVERHEAD_CODE = 2,
  IMAD_WIDE = 3,
  PROLOGUE = 4,
  MAINLOOP = 5,
};

enum class StoreKind : uint8_t {
  ST = 0,
  ATOM = 1,
  RED = 2,
};

enum class Failure : uint8_t {
  NONE = 0,
  DEADLOCK = 1,
  REFILLED_WHILE_READ = 2,
  READ_NEVER_WRITTEN = 3,
  READ_BEFORE_FULL = 4,
  TOO_MANY_ARRIVALS = 5,
  BARRIER_THREADS = 6,
  EXIT_WITH_BYTES = 7,
  CLUSTER_NOT_ARRIVED = 8,
  RANGE_NOT_STARTED = 9,
  SETMAXNREG_DIRECTION = 10,
  CODE_LENGTH = 11,
  NO_SUCH_RANK = 12,
  EVENT_LIMIT = 13,
  BAD_BUFFER = 14,
  OUT_OF_MEMORY = 15,
};

enum class Wait : uint8_t {
  NOTHING = 0,
  MBARRIER = 1,
  NAMED_BARRIER = 2,
  SYNCTHREADS = 3,
  CLUSTER_BARRIER = 4,
  STORE_QUEUE = 5,
  ITS_STORES = 6,
  DATA_STAGE = 7,
  A_LOAD = 8,
  CP_ASYNC_GROUP = 9,
  BULK_GROUP = 10,
  ITS_COPIES = 11,
  REGISTERS = 12,
  OVERHEAD_CODE = 13,
  PRODUCTS_TURN = 14,
  TENSOR_CORES = 15,
  FMA_PIPE = 16,
  SCHEDULERS_TURN = 17,
  PLACE_BEFORE_DATA_STAGE = 18,
};

enum class WarpState : uint8_t {
  START = 0,
  ISSUE = 1,
  TENSOR = 2,
  WAIT_MBARRIER = 3,
  WAIT_WGMMA = 4,
  WAIT_BARRIER = 5,
  WAIT_CLUSTER = 6,
  WAIT_CP_ASYNC = 7,
  WAIT_BULK = 8,
  LONG_SCOREBOARD = 9,
  SHORT_SCOREBOARD = 10,
  LSU = 11,
  MATH_PIPE = 12,
  WAIT_REGISTERS = 13,
  NO_INSTRUCTION = 14,
};

constexpr uint32_t NUM_STATES = 15;

struct Op {
  uint8_t kind;
  uint8_t flags;
  uint16_t panel;
  int32_t cost;
  int32_t step;
  int32_t stage;
  int32_t barrier;
  int32_t extra;
  double number;
};

static_assert(sizeof(Op) == 32, "an op is 32 bytes");

struct AccessRecord {
  double num_requests;
  double num_sectors;
  double num_lines;
  double num_wavefronts;
  double num_bytes;
};

struct StoreRecord {
  int64_t access;
  int64_t num_warps;
  int64_t kind;
};

struct AsyncCopyRecord {
  int64_t access;
  double num_rows;
  double num_passes;
  double num_between;
  double new_fraction;
  int64_t fetches;
  int64_t neighbours_begin;
  int64_t num_neighbours;
};

struct TmaLoadRecord {
  double cycles;
  double latency_cycles;
  double num_lines;
  int64_t num_bytes;
  double num_fetched_bytes;
  double num_rows;
  int64_t num_boxes;
  double zero_bytes;
  double zero_carried_bytes;
  int64_t has_zeros;
  double new_fraction;
  int64_t fetches;
  int64_t ranks_begin;
  int64_t num_ranks;
  int64_t neighbours_begin;
  int64_t num_neighbours;
  double counted_bytes;
};

struct TmaStoreRecord {
  double num_bytes;
  int64_t num_boxes;
  double cycles;
  double more_bytes;
  int64_t is_reduce;
};

struct FetchRecord {
  double crossings;
  double reads;
  double sharing;
  double num_line_requests;
  double request_sharing;
  double num_sectors;
  double num_bytes;
};

struct WgmmaRecord {
  double cycles;
  double tail_cycles;
  double queued_cycles;
  double free_share;
  double wavefronts;
  double num_warp_instructions;
  double num_between;
};

struct MmaSyncRecord {
  double interval_cycles;
  double latency_cycles;
  int64_t is_integer;
};

struct ColdCodeRecord {
  int64_t name;
  double begin_bytes;
  double end_bytes;
  double overhead_cycles;
};

struct LoopBodyRecord {
  double num_instructions;
  double overhead_cycles;
};

struct FmaRecord {
  double num_instructions;
  double turns_each;
  int64_t num_runs;
};

struct AluRecord {
  double num_instructions;
  double num_beside;
  double num_more;
};

struct ProgramRecord {
  int64_t begin;
  int64_t num_ops;
  int64_t num_tokens;
};

struct RoleRecord {
  int64_t num_warps;
  int64_t num_threads;
  int64_t num_warpgroups;
};

struct MbarrierRecord {
  int64_t num_arrivals;
};

struct NamedBarrierRecord {
  int64_t num_threads;
};

struct TensorRecord {
  int64_t is_planned;
  int64_t has_map;
  double fetch_scale;
  double piece_bytes;
  int64_t are_pieces_anywhere;
  int64_t written_back_begin;
  int64_t num_written_back;
  int64_t times_fetched_begin;
  int64_t num_times_fetched;
  int64_t first_walk;
  int64_t has_own_panels;
};

struct WalkRecord {
  int64_t num_panels;
  int64_t groups_begin;
  int64_t rows_begin;
  int64_t num_groups;
};

struct LossRowRecord {
  int64_t wave;
  double memory_0;
  double memory_1;
  double crossing_0;
  double crossing_1;
};

struct GpcLinkRecord {
  int64_t partition;
  double bytes_per_cycle;
  double whole_share_bytes_per_cycle;
};

struct WriteLinkRecord {
  int64_t gpc;
  double width;
  double bytes_per_cycle;
};

struct SmRecord {
  int64_t partition;
  int64_t gpc;
  int64_t write_link;
  int64_t coalesce_region;
  int64_t is_lone;
  double distance_cycles;
  double pace;
  double loop_bytes_per_cycle;
  int64_t cluster_place;
  int64_t num_free_ctas;
  int64_t is_recorded;
};

struct PartitionRecord {
  double slices_bytes_per_cycle;
  double fabric_bytes_per_cycle;
  double store_bytes_per_cycle;
};

struct RoleStateRecord {
  int64_t cta;
  int64_t role;
  int64_t state;
  double start_cycle;
  double end_cycle;
};

struct RoleBeginRecord {
  int64_t cta;
  int64_t role;
  int64_t sm;
};

struct RoleSectionRecord {
  int64_t cta;
  int64_t role;
  int64_t section;
  double start_cycle;
  double end_cycle;
};

struct CopySpanRecord {
  int64_t cta;
  int64_t sm;
  int64_t stage;
  int64_t tensor;
  double start_cycle;
  double end_cycle;
  double num_bytes;
  int64_t barrier;
};

struct ReadSpanRecord {
  int64_t cta;
  int64_t sm;
  int64_t role;
  int64_t stage;
  double start_cycle;
  double end_cycle;
};

struct MmaSpanRecord {
  int64_t cta;
  int64_t sm;
  int64_t role;
  double start_cycle;
  double end_cycle;
  int64_t num_issues;
};

struct PhaseFlipRecord {
  int64_t cta;
  int64_t sm;
  int64_t barrier;
  double cycle;
  int64_t parity;
};

struct BlockedRoleRecord {
  int64_t cta;
  int64_t role;
  int64_t op;
  double since_cycle;
  int64_t wait;
  int64_t barrier;
  int64_t parity;
  int64_t pending;
  int64_t num_arrivals;
  int64_t tx_bytes;
  int64_t announced_bytes;
  int64_t delivered_bytes;
  int64_t number;
};

struct TraceRecord {
  double cycle;
};

struct MemorySpanRecord {
  int64_t cta;
  int64_t sm;
  int64_t role;
  int64_t is_store;
  double start_cycle;
  double end_cycle;
  double num_bytes;
};

struct LaunchConstants {
  double num_ctas;
  double num_at_once;
  double cluster_size;
  double ctas_per_sm;
  double num_threads;
  double registers_per_thread;
  double smem_bytes;
  double num_panels;
  double cluster_barrier_cycles;
  double has_traffic_plan;
  double is_warm;
  double is_stored;
  double is_flushed;
  double code_latency_cycles;
  double max_events;
  double keeps_trace;
  double partition_bytes;
  double dirty_bytes;
  double num_stages;
};

struct IdealsConstants {
  double bank_conflicts;
  double epilogue;
  double overhead_code;
  double imad_wide;
  double prologue;
  double mainloop;
};

struct DispatcherConstants {
  double launch_cycles;
  double dispatch_cycles_per_cta;
  double round_cycles;
  double cta_start_cycles;
  double cold_start_cycles;
  double cta_exit_cycles;
  double retire_cycles;
  double cluster_start_cycles;
  double drain_cycles;
  double store_end_cycles;
  double store_exit_cycles;
};

struct HbmConstants {
  double latency_cycles;
  double refresh_cycles;
  double refresh_granularity_bytes;
  double refresh_fraction;
  double channel_bytes;
  double interleaved_variance_fraction;
  double write_cycles;
  double mixed_cycles;
  double turn_cycles;
  double spread_cycles;
  double queue_cycles;
  double peak_bytes_per_cycle;
  double most_share;
  double window_cycles;
  double write_cost;
  double wire_bytes_per_cycle;
  double sm_bytes_per_cycle;
  double channel_cycles;
  double per_channel_bytes;
  double turnaround_fraction;
  double queued_turnaround_per_mb;
  double row_open_read_bytes;
  double row_open_write_bytes;
  double partial_line_request_bytes;
};

struct L2Constants {
  double num_partitions;
  double num_links;
  double far_share;
  double near_latency_cycles;
  double far_latency_cycles;
  double slice_spread_cycles;
  double queue_cycles;
  double request_bytes;
  double sustained_fraction;
  double write_back_queue_bytes;
  double fabric_turnaround_fraction;
  double num_lanes;
  double eviction_width_fraction;
};

struct XbarConstants {
  double sm_read_bytes_per_cycle;
  double sm_write_bytes_per_cycle;
  double alone_bytes_per_cycle;
  double store_in_flight_bytes;
  double line_request_bytes;
  double request_interval_packets;
  double request_wait_per_efold_fraction;
  double red_header_fraction;
  double store_packet_bytes;
  double gpc_write_bytes_per_cycle;
  double num_gpc_store_ports;
  double bulk_weight;
  double multicast_weight;
  double coalesces;
  double coalesce_max_requests;
  double coalesce_window_cycles;
  double coalesce_wait_fraction;
  double coalesce_fill_cycles;
};

struct L1Constants {
  double capacity_bytes;
  double hit_latency_cycles;
  double lines_per_cycle;
  double requests_per_cycle;
  double wavefronts_per_cycle;
  double hit_on_miss_cycles;
  double outstanding_bytes;
  double queue_cycles;
  double cp_async_cycles;
  double cp_async_miss_first_pass_fraction;
  double cp_async_bypass_cycles;
  double cp_async_row_cycles;
  double max_queued_rows;
  double max_queued_copies;
  double cp_async_latency_cycles;
  double cp_async_interval_cycles;
  double commit_cycles;
  double max_queued_stores;
  double store_queue_bytes;
  double max_queued_scheduler_stores;
  double store_release_cycles;
  double has_store_queue;
  double half_kept_bytes;
  double eviction_width_fraction;
};

struct SmemConstants {
  double wavefronts_per_cycle;
  double load_latency_cycles;
  double warp_cycles_per_wavefront;
  double vector_word_cycles;
  double atomic_latency_cycles;
  double store_latency_cycles;
  double overtakable_wavefronts;
  double global_load_wavefronts;
  double global_store_wavefronts;
  double cp_async_row_wavefronts;
  double wgmma_lds_registers_per_cycle;
  double wgmma_sts_wavefronts_per_cycle;
};

struct WarpSchedulerConstants {
  double num_schedulers;
  double fma_rate;
  double alu_rate;
  double imad_wide_rate;
  double mufu_rate;
  double beside_rate;
  double shuffle_rate;
  double shuffle_cycles;
  double dependent_cycles;
  double imad_wide_cycles;
  double imad_wide_during_wgmma_cycles;
  double imad_wide_interleaved_cycles;
  double math_interval_during_wgmma_cycles;
  double barrier_base_cycles;
  double barrier_warp_cycles;
  double bar_arrive_cycles;
  double fence_cycles;
  double proxy_fence_visible_cycles;
  double fence_warp_cycles;
  double gpu_fence_cycles;
  double gpu_fence_warp_cycles;
};

struct TensorCoreConstants {
  double mma_sync_load_cycles;
  double wgmma_latency_cycles;
  double wgmma_max_groups;
};

struct TmaConstants {
  double issue_cycles;
  double max_queued_boxes;
  double bytes_per_cycle;
  double store_latency_cycles;
  double group_wait_cycles;
  double tensormap_miss_cycles;
  double tensormap_prefetch_cycles;
  double tensormap_release_cycles;
  double map_memory_cycles;
};

struct MbarrierConstants {
  double arrive_cycles;
  double arrive_interval_cycles;
  double max_queued_arrivals;
  double try_wait_cycles;
  double wake_cycles;
  double one_lane_try_wait_cycles;
  double one_lane_retry_cycles;
};

struct DsmemConstants {
  double latency_cycles;
  double one_way_cycles;
  double same_tpc_saving_cycles;
  double bytes_per_cycle;
  double serve_fraction;
};

struct InstructionCacheConstants {
  double l0_bytes;
  double l1_bytes;
  double l1_latency_cycles;
  double prefetched_bytes;
  double loop_kept_bytes;
  double launch_fetched_bytes;
};

struct HbmCounters {
  double read_bytes;
  double write_bytes;
};

struct L2Counters {
  double read_sectors;
  double write_sectors;
  double atom_sectors;
  double red_sectors;
  double unplanned_miss_bytes;
  double unplanned_write_back_bytes;
  double unplanned_crossing_bytes;
  double unplanned_crossing_miss_bytes;
  double miss_sectors;
  double promoted_sectors;
};

struct XbarCounters {
  double passed_bytes;
  double served_bytes;
  double carried_bytes;
  double read_bytes;
  double write_bytes;
  double asked_bytes;
};

struct L1Counters {
  double load_requests;
  double load_sectors;
  double store_requests;
  double store_sectors;
};

struct SmemCounters {
  double wavefronts;
  double load_wavefronts;
  double store_wavefronts;
  double gmma_wavefronts;
  double plain_load_wavefronts;
  double matrix_load_wavefronts;
  double plain_store_wavefronts;
  double matrix_store_wavefronts;
  double copy_wavefronts;
  double plain_loads;
  double plain_stores;
  double matrix_loads;
  double matrix_stores;
  double fill_wavefronts;
};

struct TmaCounters {
  double load_instructions;
  double store_instructions;
  double load_bytes;
};

struct DsmemCounters {
  double read_bytes;
  double write_bytes;
};

struct WarpSchedulerCounters {
  double instructions;
  double fma_instructions;
};

struct TensorCoreCounters {
  double hmma_instructions;
  double imma_instructions;
  double gmma_instructions;
  double busy_cycles;
};

struct Counters {
  HbmCounters hbm;
  L2Counters l2;
  XbarCounters xbar;
  L1Counters l1;
  SmemCounters smem;
  TmaCounters tma;
  DsmemCounters dsmem;
  WarpSchedulerCounters warp_scheduler;
  TensorCoreCounters tensor_core;
};

struct Totals {
  double end_cycle;
  double last_exit_cycle;
  double exit_cycles;
  double num_exits;
  double num_events;
  double trace_hash_low;
  double trace_hash_high;
  double copy_cycles;
  double num_copies;
  double has_bank_conflicts;
  double has_epilogue;
  double has_overhead_code;
  double has_imad_wide;
  double has_prologue;
  double has_mainloop;
  double link_busy_cycles;
  double fill_cycles;
};

struct SmTotals {
  double active_cycles;
  double fma_busy_cycles;
  double issue_busy_cycles;
  double smem_busy_cycles;
  double lsu_busy_cycles;
  double tma_busy_cycles;
};

struct FailureRecord {
  double kind;
  double cycle;
  double cta;
  double role;
  double op;
  double barrier;
  double stage;
  double first;
  double second;
  double third;
};

enum class Input : uint32_t {
  CONSTANTS_LAUNCH = 0,
  CONSTANTS_IDEALS = 1,
  CONSTANTS_DISPATCHER = 2,
  CONSTANTS_HBM = 3,
  CONSTANTS_L2 = 4,
  CONSTANTS_XBAR = 5,
  CONSTANTS_L1 = 6,
  CONSTANTS_SMEM = 7,
  CONSTANTS_WARP_SCHEDULER = 8,
  CONSTANTS_TENSOR_CORE = 9,
  CONSTANTS_TMA = 10,
  CONSTANTS_MBARRIER = 11,
  CONSTANTS_DSMEM = 12,
  CONSTANTS_INSTRUCTION_CACHE = 13,
  ACCESSES = 14,
  STORES = 15,
  ASYNC_COPIES = 16,
  TMA_LOADS = 17,
  TMA_STORES = 18,
  FETCHES = 19,
  WGMMAS = 20,
  MMA_SYNCS = 21,
  COLD_CODES = 22,
  LOOP_BODIES = 23,
  FMAS = 24,
  ALUS = 25,
  PROGRAMS = 26,
  ROLES = 27,
  MBARRIERS = 28,
  NAMED_BARRIERS = 29,
  TENSORS = 30,
  WALKS = 31,
  LOSS_ROWS = 32,
  GPC_LINKS = 33,
  WRITE_LINKS = 34,
  SMS = 35,
  PARTITIONS = 36,
  OPS = 37,
  LISTS = 38,
  NEIGHBOURS = 39,
  SLOTS = 40,
  CTA_CLASS = 41,
  CLASS_PROGRAMS = 42,
  CTA_PANELS = 43,
  PANEL_GROUPS = 44,
  GROUP_ROWS = 45,
  WRITTEN_BACK = 46,
  TIMES_FETCHED = 47,
};
constexpr uint32_t NUM_INPUT_SECTIONS = 48;

enum class Output : uint32_t {
  TOTALS = 0,
  FAILURE = 1,
  SM_TOTALS = 2,
  ROLE_TOTALS = 3,
  EPILOGUE_CYCLES = 4,
  COUNTERS = 5,
  ROLE_STATES = 6,
  ROLE_BEGINS = 7,
  ROLE_SECTIONS = 8,
  COPY_SPANS = 9,
  READ_SPANS = 10,
  MMA_SPANS = 11,
  PHASE_FLIPS = 12,
  BLOCKED_ROLES = 13,
  TRACE = 14,
  MEMORY_SPANS = 15,
};
constexpr uint32_t NUM_OUTPUT_SECTIONS = 16;

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
  Table<ColdCodeRecord> cold_codes;
  Table<LoopBodyRecord> loop_bodies;
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

  template <class Visit>
  void for_each(Visit& visit) {
    visit(Input::CONSTANTS_LAUNCH, launch);
    visit(Input::CONSTANTS_IDEALS, ideals);
    visit(Input::CONSTANTS_DISPATCHER, dispatcher);
    visit(Input::CONSTANTS_HBM, hbm);
    visit(Input::CONSTANTS_L2, l2);
    visit(Input::CONSTANTS_XBAR, xbar);
    visit(Input::CONSTANTS_L1, l1);
    visit(Input::CONSTANTS_SMEM, smem);
    visit(Input::CONSTANTS_WARP_SCHEDULER, warp_scheduler);
    visit(Input::CONSTANTS_TENSOR_CORE, tensor_core);
    visit(Input::CONSTANTS_TMA, tma);
    visit(Input::CONSTANTS_MBARRIER, mbarrier);
    visit(Input::CONSTANTS_DSMEM, dsmem);
    visit(Input::CONSTANTS_INSTRUCTION_CACHE, instruction_cache);
    visit(Input::ACCESSES, accesses);
    visit(Input::STORES, stores);
    visit(Input::ASYNC_COPIES, async_copies);
    visit(Input::TMA_LOADS, tma_loads);
    visit(Input::TMA_STORES, tma_stores);
    visit(Input::FETCHES, fetches);
    visit(Input::WGMMAS, wgmmas);
    visit(Input::MMA_SYNCS, mma_syncs);
    visit(Input::COLD_CODES, cold_codes);
    visit(Input::LOOP_BODIES, loop_bodies);
    visit(Input::FMAS, fmas);
    visit(Input::ALUS, alus);
    visit(Input::PROGRAMS, programs);
    visit(Input::ROLES, roles);
    visit(Input::MBARRIERS, mbarriers);
    visit(Input::NAMED_BARRIERS, named_barriers);
    visit(Input::TENSORS, tensors);
    visit(Input::WALKS, walks);
    visit(Input::LOSS_ROWS, loss_rows);
    visit(Input::GPC_LINKS, gpc_links);
    visit(Input::WRITE_LINKS, write_links);
    visit(Input::SMS, sms);
    visit(Input::PARTITIONS, partitions);
    visit(Input::OPS, ops);
    visit(Input::LISTS, lists);
    visit(Input::NEIGHBOURS, neighbours);
    visit(Input::SLOTS, slots);
    visit(Input::CTA_CLASS, cta_class);
    visit(Input::CLASS_PROGRAMS, class_programs);
    visit(Input::CTA_PANELS, cta_panels);
    visit(Input::PANEL_GROUPS, panel_groups);
    visit(Input::GROUP_ROWS, group_rows);
    visit(Input::WRITTEN_BACK, written_back);
    visit(Input::TIMES_FETCHED, times_fetched);
  }
};

// Timelines of recorded SMs: rows in the order in which they happened.
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
  Vector<MemorySpanRecord> memory_spans;

  template <class Visit>
  void for_each(Visit& visit) {
    visit(Output::ROLE_STATES, role_states);
    visit(Output::ROLE_BEGINS, role_begins);
    visit(Output::ROLE_SECTIONS, role_sections);
    visit(Output::COPY_SPANS, copy_spans);
    visit(Output::READ_SPANS, read_spans);
    visit(Output::MMA_SPANS, mma_spans);
    visit(Output::PHASE_FLIPS, phase_flips);
    visit(Output::BLOCKED_ROLES, blocked_roles);
    visit(Output::TRACE, trace);
    visit(Output::MEMORY_SPANS, memory_spans);
  }
};

class Role;

// What each op costs; ops.h says more.
bool global_load(Role* role, const Op& op);
bool global_store(Role* role, const Op& op);
bool global_atomic(Role* role, const Op& op);
bool use(Role* role, const Op& op);
bool cp_async(Role* role, const Op& op);
bool cp_async_commit_group(Role* role, const Op& op);
bool cp_async_wait_group(Role* role, const Op& op);
void cp_async_mbarrier_arrive(Role* role, const Op& op);
void tma_load(Role* role, const Op& op);
void tma_store(Role* role, const Op& op);
void bulk_commit_group(Role* role, const Op& op);
bool bulk_wait_group(Role* role, const Op& op);
void prefetch_tensormap(Role* role, const Op& op);
void fence_proxy_tensormap(Role* role, const Op& op);
void mbarrier_init(Role* role, const Op& op);
void mbarrier_arrive(Role* role, const Op& op);
void mbarrier_arrive_expect_tx(Role* role, const Op& op);
bool mbarrier_wait(Role* role, const Op& op);
bool bar_sync(Role* role, const Op& op);
void bar_arrive(Role* role, const Op& op);
bool syncthreads(Role* role, const Op& op);
void cluster_arrive(Role* role, const Op& op);
bool cluster_wait(Role* role, const Op& op);
void fence_proxy_async(Role* role, const Op& op);
void fence_mbarrier_init(Role* role, const Op& op);
bool fence_acq_rel(Role* role, const Op& op);
bool shared_load(Role* role, const Op& op);
bool shared_store(Role* role, const Op& op);
void shared_atomic(Role* role, const Op& op);
bool ldmatrix(Role* role, const Op& op);
bool stmatrix(Role* role, const Op& op);
void dsmem_load(Role* role, const Op& op);
void dsmem_store(Role* role, const Op& op);
void st_async(Role* role, const Op& op);
bool mma_sync(Role* role, const Op& op);
void wgmma_fence(Role* role, const Op& op);
void wgmma(Role* role, const Op& op);
void wgmma_commit_group(Role* role, const Op& op);
void wgmma_wait_group(Role* role, const Op& op);
void fetch_code(Role* role, const Op& op);
void fetch_cold_code(Role* role, const Op& op);
void loop_body(Role* role, const Op& op);
bool fma(Role* role, const Op& op);
bool alu(Role* role, const Op& op);
bool imad_wide(Role* role, const Op& op);
void mufu(Role* role, const Op& op);
void shfl(Role* role, const Op& op);
bool set_max_nreg(Role* role, const Op& op);
void range_start(Role* role, const Op& op);
void range_end(Role* role, const Op& op);
void turn(Role* role, const Op& op);

inline bool carry_out(Role* role, const Op& op) {
  switch (OpKind(op.kind)) {
    case OpKind::GLOBAL_LOAD: return global_load(role, op);
    case OpKind::GLOBAL_STORE: return global_store(role, op);
    case OpKind::GLOBAL_ATOMIC: return global_atomic(role, op);
    case OpKind::USE: return use(role, op);
    case OpKind::CP_ASYNC: return cp_async(role, op);
    case OpKind::CP_ASYNC_COMMIT_GROUP: return cp_async_commit_group(role, op);
    case OpKind::CP_ASYNC_WAIT_GROUP: return cp_async_wait_group(role, op);
    case OpKind::CP_ASYNC_MBARRIER_ARRIVE: cp_async_mbarrier_arrive(role, op); break;
    case OpKind::TMA_LOAD: tma_load(role, op); break;
    case OpKind::TMA_STORE: tma_store(role, op); break;
    case OpKind::BULK_COMMIT_GROUP: bulk_commit_group(role, op); break;
    case OpKind::BULK_WAIT_GROUP: return bulk_wait_group(role, op);
    case OpKind::PREFETCH_TENSORMAP: prefetch_tensormap(role, op); break;
    case OpKind::FENCE_PROXY_TENSORMAP: fence_proxy_tensormap(role, op); break;
    case OpKind::MBARRIER_INIT: mbarrier_init(role, op); break;
    case OpKind::MBARRIER_ARRIVE: mbarrier_arrive(role, op); break;
    case OpKind::MBARRIER_ARRIVE_EXPECT_TX: mbarrier_arrive_expect_tx(role, op); break;
    case OpKind::MBARRIER_WAIT: return mbarrier_wait(role, op);
    case OpKind::BAR_SYNC: return bar_sync(role, op);
    case OpKind::BAR_ARRIVE: bar_arrive(role, op); break;
    case OpKind::SYNCTHREADS: return syncthreads(role, op);
    case OpKind::CLUSTER_ARRIVE: cluster_arrive(role, op); break;
    case OpKind::CLUSTER_WAIT: return cluster_wait(role, op);
    case OpKind::FENCE_PROXY_ASYNC: fence_proxy_async(role, op); break;
    case OpKind::FENCE_MBARRIER_INIT: fence_mbarrier_init(role, op); break;
    case OpKind::FENCE_ACQ_REL: return fence_acq_rel(role, op);
    case OpKind::SHARED_LOAD: return shared_load(role, op);
    case OpKind::SHARED_STORE: return shared_store(role, op);
    case OpKind::SHARED_ATOMIC: shared_atomic(role, op); break;
    case OpKind::LDMATRIX: return ldmatrix(role, op);
    case OpKind::STMATRIX: return stmatrix(role, op);
    case OpKind::DSMEM_LOAD: dsmem_load(role, op); break;
    case OpKind::DSMEM_STORE: dsmem_store(role, op); break;
    case OpKind::ST_ASYNC: st_async(role, op); break;
    case OpKind::MMA_SYNC: return mma_sync(role, op);
    case OpKind::WGMMA_FENCE: wgmma_fence(role, op); break;
    case OpKind::WGMMA: wgmma(role, op); break;
    case OpKind::WGMMA_COMMIT_GROUP: wgmma_commit_group(role, op); break;
    case OpKind::WGMMA_WAIT_GROUP: wgmma_wait_group(role, op); break;
    case OpKind::FETCH_CODE: fetch_code(role, op); break;
    case OpKind::FETCH_COLD_CODE: fetch_cold_code(role, op); break;
    case OpKind::LOOP_BODY: loop_body(role, op); break;
    case OpKind::FMA: return fma(role, op);
    case OpKind::ALU: return alu(role, op);
    case OpKind::IMAD_WIDE: return imad_wide(role, op);
    case OpKind::MUFU: mufu(role, op); break;
    case OpKind::SHFL: shfl(role, op); break;
    case OpKind::SET_MAX_NREG: return set_max_nreg(role, op);
    case OpKind::RANGE_START: range_start(role, op); break;
    case OpKind::RANGE_END: range_end(role, op); break;
    case OpKind::TURN: turn(role, op); break;
  }
  return true;
}

}  // namespace gpusim
