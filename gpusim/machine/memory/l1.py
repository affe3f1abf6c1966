"""The L1 cache and its load/store unit, as one SM sees them."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class L1Spec:
    """L1 and the load/store unit of one SM."""

    unified_bytes: int
    """L1 and shared memory together."""
    hit_latency_cycles: float = field(metadata=idealized(latency=0.0))
    tag_lines_per_cycle: float
    """128-byte lines that the tag stage looks up a cycle."""
    requests_per_cycle: float
    """Warp instructions that the load/store unit takes a cycle."""
    wavefronts_per_cycle: float
    """Wavefronts, of 128 bytes at most, that the data stage reads for loads a cycle."""
    coming_request_cycles: float
    """What a load takes of the load/store unit more where its line has been asked for, by others, and is not there yet."""
    outstanding_bytes: float = field(metadata=idealized(l2=INFINITE))
    """What loads and cp.async of one SM may have asked for and not got."""
    queue_cycles: float
    """How far the load/store unit may lag behind the warps that feed it before they stall."""
    cp_async_cycles: float
    """What a cp.async through L1 takes of the load/store unit beyond a load of its width."""
    cp_async_first_fraction: float
    """Of the wavefronts of one through L1 that misses, those that it takes before it is known to; the others when its data
    have come."""
    cp_async_bypass_cycles: float
    """What one that goes around L1 takes of it in all."""
    cp_async_row_cycles: float
    """From one row to the next of a tile that goes around L1: rows lie apart, and pass a stage of their own."""
    max_queued_rows: float
    """Of these rows that wait for that stage while what was asked for behind their copies passes the load/store unit."""
    max_queued_copies: float
    """cp.async around L1 that wait for that unit and that stage while their warps go on; 0: ``queue_cycles``."""
    cp_async_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """What one that hits in L1 takes until it is seen to be in shared memory, beyond a load that hits."""
    cp_async_interval_cycles: float
    """Between two cp.async of one warp, of four bytes a lane."""
    commit_cycles: float
    """What a ``cp.async.commit_group`` takes of the load/store unit."""
    max_queued_stores: float
    """Store instructions that wait for shared memory or the way out while their warps go on, of all warps."""
    store_queue_bytes: float
    """... and the bytes of these, which may be fewer instructions."""
    max_queued_scheduler_stores: float
    """... and instructions more for each scheduler that has one of the warps."""
    store_release_cycles: float
    """From when an instruction leaves that queue until its place is taken again."""

    @property
    def has_store_queue(self) -> bool:
        """Whether stores wait in a queue by the instruction; else a role's next one waits until its last has left."""
        return self.max_queued_stores + self.max_queued_scheduler_stores > 0.0


@dataclass(slots=True)
class L1Counters(Counters):
    """Requests and sectors of global accesses; copies by cp.async count as loads, around L1 too (kernels/smem_copy)."""

    load_requests: float = ncu("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    load_sectors: float = ncu("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    store_requests: float = ncu("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum")
    store_sectors: float = ncu("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum")
