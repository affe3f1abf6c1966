"""Tensor memory accelerator (TMA) of one SM."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaSpec:
    """TMA unit of one SM."""

    latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of a copy over a load from the same level, until its mbarrier phase completes; may be negative
    (copy_rate)."""
    row_cycles: float = field(metadata=idealized(tma=0.0))
    """Engine time of a box row, or of each of its requests; wide rows take their bytes' time instead (copy_rate)."""
    bytes_per_cycle: float = field(metadata=idealized(tma=INFINITE))
    """Rate at which the engine turns a box into requests (copy_rate)."""
    max_queued_boxes: int
    """Boxes that the engine holds, the current one included, before the next issue stalls (tma_writes)."""
    issue_cycles: float = field(metadata=idealized(latency=0.0))
    """Issue time of one copy instruction in its thread (copy_rate)."""
    store_box_cycles: float = field(metadata=idealized(tma=0.0))
    """Engine time of a stored box, before the store port takes its bytes (copy_rate)."""
    store_header_bytes: float = field(metadata=idealized(tma=0.0))
    """Header of a stored box on the SM's store port (copy_rate)."""
    store_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Time from when a store's bytes have left the SM until its source may be overwritten (copy_rate)."""
    group_wait_cycles: float = field(metadata=idealized(latency=0.0))
    """Minimum time of ``cp.async.bulk.wait_group`` (epilogue_pieces)."""
    oob_row_bytes: float
    """Slice time, in deliverable bytes, of an out-of-bounds row in a partly filled box, up to row 64
    (edges_beside_loads)."""
    oob_box_row_bytes: float
    """Slice time, in deliverable bytes, of further out-of-bounds rows and of boxes entirely outside (edges_beside_loads)."""
    tensormap_miss_cycles: float = field(metadata=idealized(latency=0.0))
    """Wait of a copy whose tensor map is in L2 but not in the SM; 0: maps are always there (tensor_map)."""
    tensormap_prefetch_cycles: float = field(metadata=idealized(latency=0.0))
    """Time from ``prefetch.tensormap`` of a map in L2 until copies find it (tensor_map)."""
    tensormap_release_cycles: float = field(default=0.0, metadata=idealized(latency=0.0))
    """Time to release a map that a CTA has made to L2 and to acquire it, the mean of near and far maps (tensor_map_grid)."""


@dataclass(slots=True)
class TmaCounters(Counters):
    """TMA instructions and bytes."""

    load_instructions: float = ncu("smsp__sass_inst_executed_op_tma_ld.sum")
    store_instructions: float = ncu("smsp__sass_inst_executed_op_tma_st.sum")
    load_bytes: float = ncu("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum")
