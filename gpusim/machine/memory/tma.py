"""The tensor memory accelerator of one SM."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaSpec:
    """One TMA unit."""

    latency_cycles: float = field(metadata=idealized(latency=0.0))
    """What a copy takes beyond a load of the same level, until its mbarrier's phase is complete; may be negative."""
    box_cycles: float = field(metadata=idealized(tma=0.0))
    """What the engine spends on each box."""
    row_cycles: float = field(metadata=idealized(tma=0.0))
    """What it spends on each row of a box, or on each request where a row needs several (the rows of a wide box hide behind
    its bytes)."""
    bytes_per_cycle: float = field(metadata=idealized(tma=INFINITE))
    """How fast the engine turns a box into requests."""
    max_queued_boxes: int
    """Boxes that the engine holds, the one that it walks among them, before the next one's issue waits."""
    issue_cycles: float = field(metadata=idealized(latency=0.0))
    """What the issuing thread spends on one copy instruction."""
    store_box_cycles: float = field(metadata=idealized(tma=0.0))
    """What the engine spends on a box that is stored, before the store port takes its bytes."""
    store_header_bytes: float = field(metadata=idealized(tma=0.0))
    """What a stored box takes of the SM's store port beside its bytes."""
    store_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """From a store's issue until its source may be written again, beyond its bytes."""
    group_wait_cycles: float = field(metadata=idealized(latency=0.0))
    """What a wait for bulk groups takes at least."""
    zero_row_bytes: float
    """What a row of zeros takes of the slices' time, in bytes that they could deliver meanwhile: of the first rows outside
    of a box that is in part inside of its tensor."""
    outside_row_bytes: float
    """The same of further ones, and of boxes all of which lie outside."""
    map_miss_cycles: float = field(metadata=idealized(latency=0.0))
    """For how long a copy waits whose tensor map the SM lacks and L2 has; 0: maps are always there."""
    map_prefetch_cycles: float = field(metadata=idealized(latency=0.0))
    """From a prefetch of a tensor map that L2 has until copies find it."""


@dataclass(slots=True)
class TmaCounters(Counters):
    """Instructions and bytes."""

    load_instructions: float = ncu("smsp__sass_inst_executed_op_tma_ld.sum")
    store_instructions: float = ncu("smsp__sass_inst_executed_op_tma_st.sum")
    load_bytes: float = ncu("l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum")
