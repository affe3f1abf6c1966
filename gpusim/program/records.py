"""Record layouts of the buffers between Python and the engine. Each field is named here, once.

In: nothing. Out: numpy dtypes and name lists. ``scripts/engine_header.py`` writes ``engine/records.h`` from this file.

A buffer is a header, a table of sections, and the sections, each aligned to 8 bytes. Every number is little endian. The
engine checks ``VERSION`` when it loads a buffer; change it with every change of meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum

import numpy as np

VERSION = 1

MAGIC = 0x4753_494D
"""First four bytes of every buffer ("GSIM")."""


OpKind = IntEnum("OpKind", [
    "GLOBAL_LOAD", "GLOBAL_STORE", "GLOBAL_ATOMIC", "USE", "CP_ASYNC", "CP_ASYNC_COMMIT_GROUP", "CP_ASYNC_WAIT_GROUP",
    "CP_ASYNC_MBARRIER_ARRIVE", "TMA_LOAD", "TMA_STORE", "BULK_COMMIT_GROUP", "BULK_WAIT_GROUP", "PREFETCH_TENSORMAP",
    "FENCE_PROXY_TENSORMAP",
    "MBARRIER_INIT", "MBARRIER_ARRIVE", "MBARRIER_ARRIVE_EXPECT_TX", "MBARRIER_WAIT", "BAR_SYNC", "BAR_ARRIVE",
    "SYNCTHREADS", "CLUSTER_ARRIVE", "CLUSTER_WAIT", "FENCE_PROXY_ASYNC", "FENCE_MBARRIER_INIT", "FENCE_ACQ_REL",
    "SHARED_LOAD", "SHARED_STORE", "SHARED_ATOMIC", "LDMATRIX", "STMATRIX", "DSMEM_LOAD", "DSMEM_STORE", "ST_ASYNC",
    "MMA_SYNC", "WGMMA_FENCE", "WGMMA", "WGMMA_COMMIT_GROUP", "WGMMA_WAIT_GROUP", "FETCH_CODE", "FETCH_COLD_CODE",
    "LOOP_BODY", "FMA", "ALU", "IMAD_WIDE", "MUFU", "SHFL", "SET_MAX_NREG", "RANGE_START", "RANGE_END", "TURN",
], start=0)  # fmt: skip
"""Kinds of op records, named after ``workload/ops.py``.

``TURN`` is no op: a persistent CTA begins turn ``extra`` (a work tile). It is carried out together with the next op."""


Section = IntEnum("Section", ["PROLOGUE", "MAINLOOP", "EPILOGUE"], start=0)
"""Named parts of a program, as ``ops.Section``."""

Ideal = IntEnum("Ideal", ["BANK_CONFLICTS", "EPILOGUE", "OVERHEAD_CODE", "IMAD_WIDE", "PROLOGUE", "MAINLOOP"], start=0)
"""Counterfactuals that the engine itself carries out; see ``simulate/idealize.py``."""


StoreKind = IntEnum("StoreKind", ["ST", "ATOM", "RED"], start=0)
"""Instructions that store to global memory."""

Failure = IntEnum("Failure", [
    "NONE", "DEADLOCK", "REFILLED_WHILE_READ", "READ_NEVER_WRITTEN", "READ_BEFORE_FULL", "TOO_MANY_ARRIVALS",
    "BARRIER_THREADS", "EXIT_WITH_BYTES", "CLUSTER_NOT_ARRIVED", "RANGE_NOT_STARTED", "SETMAXNREG_DIRECTION",
    "CODE_LENGTH", "NO_SUCH_RANK", "EVENT_LIMIT", "BAD_BUFFER", "OUT_OF_MEMORY",
], start=0)  # fmt: skip
"""Causes of a run's early end. ``simulate/failures.py`` has their messages."""


OPS = np.dtype({
    "names": ["kind", "flags", "panel", "cost", "step", "stage", "barrier", "extra", "number"],
    "formats": ["u1", "u1", "<u2", "<i4", "<i4", "<i4", "<i4", "<i4", "<f8"],
    "offsets": [0, 1, 2, 4, 8, 12, 16, 20, 24],
    "itemsize": 32,
})  # fmt: skip
"""One op, 32 bytes.

``panel`` is a column of the CTA's row in ``cta_panels``. ``stage`` and ``barrier`` are indices into the flat lists of all
stages and all mbarriers of a CTA, -1 for none. The meaning of the other fields, by kind::

  ============================  =====================================================================================
  GLOBAL_LOAD                   cost: row of ``accesses``; panel, step: its tile; extra: tensor; stage: token slot;
                                flags 1: allocates in L1
  GLOBAL_STORE                  cost: row of ``stores``; panel, step; extra: tensor; number: part of the tile
  GLOBAL_ATOMIC                 as GLOBAL_STORE; flags 1: returns; stage: token slot
  USE                           stage: token slot
  CP_ASYNC                      cost: row of ``async_copies``; panel, step; extra: tensor; stage; flags 1: allocates in L1
  CP_ASYNC_COMMIT_GROUP         flags 1: is held
  CP_ASYNC_WAIT_GROUP           extra: groups that may be in flight
  CP_ASYNC_MBARRIER_ARRIVE      barrier
  TMA_LOAD                      cost: row of ``tma_loads``; panel, step; extra: tensor; stage; barrier
  TMA_STORE                     cost: row of ``tma_stores``; panel, step; extra: tensor; stage (-1: none declared);
                                number: as GLOBAL_STORE
  BULK_COMMIT_GROUP
  BULK_WAIT_GROUP               extra: groups that may be in flight; flags 1: read only
  PREFETCH_TENSORMAP            cost, extra: begin and number of its tensors in ``lists``
  FENCE_PROXY_TENSORMAP         cost, extra: begin and number of its tensors in ``lists``
  MBARRIER_INIT
  MBARRIER_ARRIVE               barrier; extra: count; cost: rank of the CTA, -1 for its own
  MBARRIER_ARRIVE_EXPECT_TX     barrier; extra: bytes
  MBARRIER_WAIT                 barrier; extra: parity; flags 1: by one lane
  BAR_SYNC, BAR_ARRIVE          barrier: row of ``named_barriers``
  SYNCTHREADS, CLUSTER_ARRIVE, CLUSTER_WAIT, FENCE_PROXY_ASYNC, FENCE_MBARRIER_INIT, FENCE_ACQ_REL
  SHARED_LOAD, LDMATRIX         cost: row of ``accesses``; stage (-1: scratch); extra: token slot; step: parts
  SHARED_STORE, STMATRIX        cost: row of ``accesses``; stage; flags 1: gives a token; extra: token slot
  SHARED_ATOMIC                 cost: row of ``accesses``; extra: token slot
  DSMEM_LOAD                    cost: rank; number: bytes; extra: token slot
  DSMEM_STORE                   cost: rank; number: bytes
  ST_ASYNC                      cost: rank; number: bytes; barrier
  MMA_SYNC                      cost: row of ``mma_syncs``; extra: issues
  WGMMA_FENCE
  WGMMA                         cost: row of ``wgmmas``; extra, step: begin and number of the stages it reads in ``lists``;
                                barrier: issues times warpgroups
  WGMMA_COMMIT_GROUP
  WGMMA_WAIT_GROUP              extra: groups that may be in flight
  FETCH_CODE                    cost: number of its name; number: bytes
  FETCH_COLD_CODE               cost: row of ``cold_codes``
  LOOP_BODY                     cost: row of ``loop_bodies``
  FMA                           cost: row of ``fmas``; flags 1: chain, 2: by age
  ALU                           cost: row of ``alus``; flags 1: chain
  IMAD_WIDE                     number: instructions; flags 1: is interleaved, 2: sets pace
  MUFU                          number: instructions
  SHFL                          number: instructions; flags 1: chain; extra: warps
  SET_MAX_NREG                  extra: registers; flags 1: inc
  RANGE_START, RANGE_END        extra: :class:`Section`
  TURN                          extra: turn
  ============================  ====================================================================================="""


def _names(text: str) -> Sequence[str]:
    return tuple(text.split())


def _record(**fields: str) -> np.dtype[np.void]:
    """A record of 8-byte fields, each ``f8`` or ``i8``."""
    return np.dtype([(name, f"<{kind}") for name, kind in fields.items()])


TABLES: Mapping[str, np.dtype[np.void]] = {
    "accesses": _record(num_requests="f8", num_sectors="f8", num_lines="f8", num_wavefronts="f8", num_bytes="f8"),
    "stores": _record(access="i8", num_warps="i8", kind="i8"),
    "async_copies": _record(
        access="i8", num_rows="f8", num_passes="f8", num_between="f8", new_fraction="f8", fetches="i8",
        neighbours_begin="i8", num_neighbours="i8",
    ),
    "tma_loads": _record(
        cycles="f8", latency_cycles="f8", num_lines="f8", num_bytes="i8", num_fetched_bytes="f8", num_rows="f8",
        num_boxes="i8", zero_bytes="f8", zero_carried_bytes="f8", has_zeros="i8", new_fraction="f8", fetches="i8",
        ranks_begin="i8", num_ranks="i8", neighbours_begin="i8", num_neighbours="i8", counted_bytes="f8",
    ),
    "tma_stores": _record(num_bytes="f8", num_boxes="i8", cycles="f8", more_bytes="f8", is_reduce="i8"),
    "fetches": _record(
        crossings="f8", reads="f8", sharing="f8", num_line_requests="f8", request_sharing="f8", num_sectors="f8",
        num_bytes="f8",
    ),
    "wgmmas": _record(
        cycles="f8", tail_cycles="f8", queued_cycles="f8", free_share="f8", wavefronts="f8",
        num_warp_instructions="f8", num_between="f8",
    ),
    "mma_syncs": _record(interval_cycles="f8", latency_cycles="f8", is_integer="i8"),
    "cold_codes": _record(name="i8", begin_bytes="f8", end_bytes="f8", overhead_cycles="f8"),
    "loop_bodies": _record(num_instructions="f8", overhead_cycles="f8"),
    "fmas": _record(num_instructions="f8", turns_each="f8", num_runs="i8"),
    "alus": _record(num_instructions="f8", num_beside="f8", num_more="f8"),
    "programs": _record(begin="i8", num_ops="i8", num_tokens="i8"),
    "roles": _record(num_warps="i8", num_threads="i8", num_warpgroups="i8"),
    "mbarriers": _record(num_arrivals="i8"),
    "named_barriers": _record(num_threads="i8"),
    "tensors": _record(
        is_planned="i8", has_map="i8", fetch_scale="f8", piece_bytes="f8", are_pieces_anywhere="i8",
        written_back_begin="i8", num_written_back="i8", times_fetched_begin="i8", num_times_fetched="i8",
        first_walk="i8", has_own_panels="i8",
    ),
    "walks": _record(num_panels="i8", groups_begin="i8", rows_begin="i8", num_groups="i8"),
    "loss_rows": _record(wave="i8", memory_0="f8", memory_1="f8", crossing_0="f8", crossing_1="f8"),
    "gpc_links": _record(partition="i8", bytes_per_cycle="f8", whole_share_bytes_per_cycle="f8"),
    "write_links": _record(gpc="i8", width="f8", bytes_per_cycle="f8"),
    "sms": _record(
        partition="i8", gpc="i8", write_link="i8", coalesce_region="i8", is_lone="i8", distance_cycles="f8", pace="f8",
        loop_bytes_per_cycle="f8", cluster_place="i8", num_free_ctas="i8", is_recorded="i8",
    ),
    "partitions": _record(slices_bytes_per_cycle="f8", fabric_bytes_per_cycle="f8", store_bytes_per_cycle="f8"),
}
"""Tables of records, by name.

* ``walks``: for each walk over a tensor's panels, the lines that L2 lacks. ``num_panels`` 0: each panel is a separate group.
  Otherwise ``panel_groups[groups_begin + panel]`` is the panel's group, -1 for none.
* ``loss_rows``: sorted by wave within a group. Group g has the rows ``group_rows[rows_begin + g]`` up to
  ``group_rows[rows_begin + g + 1]``.
* ``write_links`` and ``sms`` name rows of ``gpc_links``. ``sms.write_link`` names a row of ``write_links``.
* ``sms.num_free_ctas``: CTAs that fit in addition to the clusters that fill the SM first."""

ARRAYS: Mapping[str, str] = {
    "ops": "ops",
    "lists": "i4",
    "neighbours": "i4",
    "slots": "i4",
    "cta_class": "i4",
    "class_programs": "i4",
    "cta_panels": "i4",
    "panel_groups": "i4",
    "group_rows": "i4",
    "written_back": "f8",
    "times_fetched": "f8",
}
"""Plain arrays, by name.

* ``neighbours``: pairs (column of ``cta_panels``, step) of tiles that L2 promotion fetches in addition.
* ``slots``: SM of each slot. SMs of a cluster are adjacent.
* ``class_programs``: program of each role, for each class.
* ``cta_panels``: ``launch.num_panels`` panels for each CTA."""

CONSTANTS: Mapping[str, Sequence[str]] = {
    "launch": (
        "num_ctas", "num_at_once", "cluster_size", "ctas_per_sm", "num_threads", "registers_per_thread",
        "smem_bytes", "num_panels", "cluster_barrier_cycles", "has_traffic_plan", "is_warm", "is_stored", "is_flushed",
        "code_latency_cycles", "max_events", "keeps_trace", "partition_bytes", "dirty_bytes", "num_stages",
    ),
    "ideals": tuple(ideal.name.lower() for ideal in Ideal),
    "dispatcher": _names("""launch_cycles dispatch_cycles_per_cta round_cycles cta_start_cycles cold_start_cycles
        cta_exit_cycles retire_cycles cluster_start_cycles drain_cycles store_end_cycles store_exit_cycles"""),
    "hbm": _names("""latency_cycles refresh_cycles refresh_granularity_bytes refresh_fraction channel_bytes
        interleaved_variance_fraction write_cycles mixed_cycles turn_cycles spread_cycles queue_cycles peak_bytes_per_cycle
        most_share window_cycles write_cost wire_bytes_per_cycle sm_bytes_per_cycle channel_cycles per_channel_bytes
        turnaround_fraction queued_turnaround_per_mb row_open_read_bytes row_open_write_bytes partial_line_request_bytes"""),
    "l2": _names("""num_partitions num_links far_share near_latency_cycles far_latency_cycles slice_spread_cycles
        queue_cycles request_bytes sustained_fraction write_back_queue_bytes fabric_turnaround_fraction num_lanes
        eviction_width_fraction"""),
    "xbar": _names("""sm_read_bytes_per_cycle sm_write_bytes_per_cycle alone_bytes_per_cycle
        store_in_flight_bytes line_request_bytes request_interval_packets request_wait_per_efold_fraction red_header_fraction
        store_packet_bytes gpc_write_bytes_per_cycle num_gpc_store_ports bulk_weight multicast_weight coalesces
        coalesce_max_requests coalesce_window_cycles coalesce_wait_fraction coalesce_fill_cycles"""),
    "l1": _names("""capacity_bytes hit_latency_cycles lines_per_cycle requests_per_cycle wavefronts_per_cycle
        hit_on_miss_cycles outstanding_bytes queue_cycles cp_async_cycles cp_async_miss_first_pass_fraction
        cp_async_bypass_cycles cp_async_row_cycles max_queued_rows max_queued_copies cp_async_latency_cycles
        cp_async_interval_cycles commit_cycles max_queued_stores store_queue_bytes max_queued_scheduler_stores
        store_release_cycles has_store_queue half_kept_bytes
        eviction_width_fraction"""),
    "smem": _names("""wavefronts_per_cycle load_latency_cycles warp_cycles_per_wavefront vector_word_cycles
        atomic_latency_cycles store_latency_cycles overtakable_wavefronts global_load_wavefronts global_store_wavefronts
        cp_async_row_wavefronts wgmma_lds_registers_per_cycle wgmma_sts_wavefronts_per_cycle"""),
    "warp_scheduler": _names("""num_schedulers fma_rate alu_rate imad_wide_rate mufu_rate beside_rate shuffle_rate
        shuffle_cycles dependent_cycles imad_wide_cycles imad_wide_during_wgmma_cycles imad_wide_interleaved_cycles
        math_interval_during_wgmma_cycles barrier_base_cycles barrier_warp_cycles bar_arrive_cycles fence_cycles
        proxy_fence_visible_cycles fence_warp_cycles gpu_fence_cycles gpu_fence_warp_cycles"""),
    "tensor_core": _names("mma_sync_load_cycles wgmma_latency_cycles wgmma_max_groups"),
    "tma": _names("""issue_cycles max_queued_boxes bytes_per_cycle store_latency_cycles group_wait_cycles
        tensormap_miss_cycles tensormap_prefetch_cycles tensormap_release_cycles map_memory_cycles"""),
    "mbarrier": _names("""arrive_cycles arrive_interval_cycles max_queued_arrivals try_wait_cycles wake_cycles
        one_lane_try_wait_cycles one_lane_retry_cycles"""),
    "dsmem": _names("latency_cycles one_way_cycles same_tpc_saving_cycles bytes_per_cycle serve_fraction"),
    "instruction_cache": _names("""l0_bytes l1_bytes l1_latency_cycles prefetched_bytes loop_kept_bytes
        launch_fetched_bytes"""),
}
"""Numbers of the machine at one clock and of the launch, all float64, by part. Cycles are SM cycles; flags are 0 or 1.

A GPU without TMA, mbarriers or distributed shared memory has zeros there: the packing refuses ops that need them."""

TOTALS: Sequence[str] = (
    "end_cycle", "last_exit_cycle", "exit_cycles", "num_exits", "num_events", "trace_hash_low", "trace_hash_high",
    "copy_cycles", "num_copies", "has_bank_conflicts", "has_epilogue", "has_overhead_code", "has_imad_wide", "has_prologue",
    "has_mainloop", "link_busy_cycles", "fill_cycles",
)
"""Sums of a run, all float64.

``has_...``: whether a counterfactual applies to the launch, in the order of :class:`Ideal`. ``fill_cycles``: from the
dispatch of each CTA to its first math, summed over the CTAs."""

SM_TOTALS: Sequence[str] = (
    "active_cycles", "fma_busy_cycles", "issue_busy_cycles", "smem_busy_cycles", "lsu_busy_cycles", "tma_busy_cycles",
)
"""Sums of each SM, float64."""

FAILURE: Sequence[str] = ("kind", "cycle", "cta", "role", "op", "barrier", "stage", "first", "second", "third")
"""Fields of a failure, float64. The meaning of the last three depends on the kind."""

RESULTS: Mapping[str, np.dtype[np.void]] = {
    "role_states": _record(cta="i8", role="i8", state="i8", start_cycle="f8", end_cycle="f8"),
    "role_begins": _record(cta="i8", role="i8", sm="i8"),
    "role_sections": _record(cta="i8", role="i8", section="i8", start_cycle="f8", end_cycle="f8"),
    "copy_spans": _record(
        cta="i8", sm="i8", stage="i8", tensor="i8", start_cycle="f8", end_cycle="f8", num_bytes="f8", barrier="i8",
    ),
    "read_spans": _record(cta="i8", sm="i8", role="i8", stage="i8", start_cycle="f8", end_cycle="f8"),
    "mma_spans": _record(cta="i8", sm="i8", role="i8", start_cycle="f8", end_cycle="f8", num_issues="i8"),
    "phase_flips": _record(cta="i8", sm="i8", barrier="i8", cycle="f8", parity="i8"),
    "blocked_roles": _record(
        cta="i8", role="i8", op="i8", since_cycle="f8", wait="i8", barrier="i8", parity="i8", pending="i8",
        num_arrivals="i8", tx_bytes="i8", announced_bytes="i8", delivered_bytes="i8", number="i8",
    ),
    "trace": _record(cycle="f8"),
    "memory_spans": _record(cta="i8", sm="i8", role="i8", is_store="i8", start_cycle="f8", end_cycle="f8", num_bytes="f8"),
}
"""Tables that come back: timelines of recorded SMs, blocked roles of a deadlock, and the trace if it was requested."""

RESULT_ARRAYS: Mapping[str, str] = {
    "totals": "f8", "failure": "f8", "sm_totals": "f8", "role_totals": "f8", "epilogue_cycles": "f8", "counters": "f8",
}
"""Plain arrays that come back.

* ``role_totals``: for each role the cycles in each of the 15 warp states.
* ``epilogue_cycles``: for each role.
* ``sm_totals``: :data:`SM_TOTALS` for each SM.
* ``counters``: those of ``machine/counters.py``, in order."""


Wait = IntEnum("Wait", [
    "NOTHING", "MBARRIER", "NAMED_BARRIER", "SYNCTHREADS", "CLUSTER_BARRIER", "STORE_QUEUE", "ITS_STORES", "DATA_STAGE",
    "A_LOAD", "CP_ASYNC_GROUP", "BULK_GROUP", "ITS_COPIES", "REGISTERS", "OVERHEAD_CODE", "PRODUCTS_TURN", "TENSOR_CORES",
    "FMA_PIPE", "SCHEDULERS_TURN", "PLACE_BEFORE_DATA_STAGE",
], start=0)  # fmt: skip
"""Causes of a blocked role's wait; ``simulate/failures.py`` has the words."""


INPUT_SECTIONS: Sequence[str] = (*(f"constants_{part}" for part in CONSTANTS), *TABLES, *ARRAYS)
"""Sections of a packed launch, in the order of their numbers."""

OUTPUT_SECTIONS: Sequence[str] = (*RESULT_ARRAYS, *RESULTS)
"""Sections that come back, in the order of their numbers."""


_DTYPES: Mapping[str, np.dtype[np.generic]] = {
    **{f"constants_{part}": np.dtype("<f8") for part in CONSTANTS}, **TABLES, **RESULTS,
    **{name: OPS if kind == "ops" else np.dtype(f"<{kind}") for name, kind in {**ARRAYS, **RESULT_ARRAYS}.items()},
}


def dtype_of(section: str) -> np.dtype[np.generic]:
    """Data type of one element of a section, in either direction."""
    return _DTYPES[section]
