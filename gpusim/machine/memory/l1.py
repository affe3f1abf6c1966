"""L1 cache and load/store unit (LSU) of one SM."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import INFINITE, Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class L1Spec:
    """L1, LSU and cp.async of one SM."""

    unified_bytes: int
    """Capacity of L1 and shared memory together (vendor)."""
    hit_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of an L1 hit, from issue to use (pointer_chase)."""
    tag_lines_per_cycle: float
    """Lines of 128 bytes that the tag stage looks up (paper)."""
    requests_per_cycle: float
    """Warp instructions that the LSU accepts (inferred)."""
    wavefronts_per_cycle: float
    """Wavefronts of at most 128 bytes that the data stage reads for global loads (paper)."""
    hit_on_miss_cycles: float
    """Extra LSU time of a warp's load whose line is still in flight, a hit on miss (load_loops)."""
    outstanding_bytes: float = field(metadata=idealized(l2=INFINITE))
    """Most bytes in flight to one SM for global loads and cp.async through L1 (memory_bandwidth)."""
    queue_cycles: float
    """LSU backlog up to which the warps that feed it do not stall (guess)."""
    cp_async_cycles: float
    """Extra LSU time of a warp's cp.async through L1, beyond a load of the same width (copy_rate)."""
    cp_async_miss_first_pass_fraction: float
    """Wavefronts of a cp.async that misses L1 which pass before the miss is known, relative to all of them
    (narrow_copies)."""
    cp_async_bypass_cycles: float
    """LSU time of a warp's cp.async that bypasses L1 (copy_rate)."""
    cp_async_row_cycles: float
    """Interval between tile rows of cp.async that bypasses L1, in their stage behind the LSU (own_copies)."""
    max_queued_rows: float
    """Tile rows of bypassing cp.async that queue for their stage without blocking later shared-memory accesses
    (copies_beside_reads)."""
    max_queued_copies: float
    """Instructions of bypassing cp.async in the LSU queue while their warps go on; 0: ``queue_cycles`` counts
    (own_copies)."""
    cp_async_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of a cp.async that hits L1 until shared memory holds its data, beyond a load's hit (copy_rate)."""
    cp_async_interval_cycles: float
    """Interval between two cp.async of one warp, of four bytes a lane (copy_rate)."""
    commit_cycles: float
    """LSU time of a warp's ``cp.async.commit_group`` (copy_rate)."""
    max_queued_stores: float
    """Store instructions that queue in an SM while their warps go on, for all schedulers together (shared_rate)."""
    store_queue_bytes: float
    """Most bytes in the store-queue entries that all schedulers share, so that wide stores fill them sooner
    (shared_rate)."""
    max_queued_scheduler_stores: float
    """Further store instructions that queue for each scheduler with a storing warp (shared_rate)."""
    store_release_cycles: float
    """Time from when a store leaves the store queue until its entry is free (shared_rate)."""
    half_kept_bytes: float = 0.0
    """Bytes that an SM loads or stores until a full L1 has lost half of the lines used before them (row_rereads)."""
    eviction_width_fraction: float = 0.0
    """Width of the logistic step from kept to lost lines, relative to ``half_kept_bytes``; 0: lines leave at the capacity,
    and stores take no space (row_rereads)."""

    @property
    def has_store_queue(self) -> bool:
        """Whether store instructions queue; without a queue a role's next store waits until its last has left the SM."""
        return self.max_queued_stores + self.max_queued_scheduler_stores > 0.0


@dataclass(slots=True)
class L1Counters(Counters):
    """Requests and sectors of global accesses; cp.async counts as loads, also when it bypasses L1 (kernels/smem_copy)."""

    load_requests: float = ncu("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
    load_sectors: float = ncu("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    store_requests: float = ncu("l1tex__t_requests_pipe_lsu_mem_global_op_st.sum")
    store_sectors: float = ncu("l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum")
