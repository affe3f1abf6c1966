"""Shared memory: 32 banks, one wavefront at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemSpec:
    """Shared memory of one SM."""

    wavefronts_per_cycle: float
    """Wavefronts of 128 bytes that the data stage serves (paper)."""
    load_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of a load of one wavefront, from issue to use (shared_rate)."""
    warp_cycles_per_wavefront: float
    """Wait of a lone warp for each wavefront of its access beyond the first (shared_rate)."""
    vector_word_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra load latency of each 32-bit word of a lane beyond the first; none for ``ldmatrix`` (shared_rate)."""
    atomic_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of an atomic of one wavefront, from issue to use (shared_rate)."""
    store_latency_cycles: float
    """Time from a store's last wavefront until its registers are free and a fence is past it (store_fence)."""
    overtakable_wavefronts: float
    """Queued wavefronts of the data stage that younger global accesses need not wait for; 0: they wait for none
    (store_fence)."""
    global_load_wavefronts: float
    """Data-stage time of one wavefront of a global load, hit or miss, in shared-memory wavefronts (shared_data_stage)."""
    global_store_wavefronts: float
    """Data-stage time of one line of a global store, in shared-memory wavefronts (shared_data_stage)."""
    cp_async_row_wavefronts: float
    """Data-stage time of a tile row, or a line of it, of bypassing cp.async, in shared-memory wavefronts
    (copies_beside_reads)."""
    wgmma_lds_registers_per_cycle: float
    """Warp registers (128 bytes) that loads return while wgmma reads its operands, at most (fill_beside_wgmma)."""
    wgmma_sts_wavefronts_per_cycle: float
    """Wavefronts of shared or global stores while wgmma reads its operands, at most (fill_beside_wgmma)."""


SASS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
"""Prefix of Nsight Compute's metrics of wavefronts by opcode."""


@dataclass(slots=True)
class SmemCounters(Counters):
    """Wavefronts of the LSU pipe, as Nsight Compute counts them (kernels/shared_counter).

    Models:

    * one wavefront for a shuffle with any number of lanes, a proxy fence, or a wait for bulk stores;
    * none for votes, redux, mbarrier arrivals and tries, and TMA;
    * one for a cp.async through L1 and none for one that bypasses it, in addition to those of the commit.

    Ignores:

    * wavefronts of a CTA's first barriers (one or two a CTA).
    """

    wavefronts: float = ncu("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    load_wavefronts: float = ncu("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum")
    store_wavefronts: float = ncu("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum")
    gmma_wavefronts: float = ncu("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum")
    plain_load_wavefronts: float = ncu(f"{SASS}_ld.sum")
    matrix_load_wavefronts: float = ncu(f"{SASS}_ldsm.sum")
    plain_store_wavefronts: float = ncu(f"{SASS}_st.sum")
    matrix_store_wavefronts: float = ncu(f"{SASS}_stsm.sum")
    copy_wavefronts: float = ncu(f"{SASS}_ldgsts.sum")
    """Wavefronts of cp.async through L1; the counter's value for copies that bypass L1 is not known."""
    plain_loads: float = ncu("smsp__inst_executed_op_shared_ld.sum")
    plain_stores: float = ncu("smsp__inst_executed_op_shared_st.sum")
    matrix_loads: float = ncu("smsp__inst_executed_op_ldsm.sum")
    matrix_stores: float = ncu("sm__inst_executed_op_shared_stsm.sum")
    fill_wavefronts: float = 0.0
    """Wavefronts that cp.async writes; no Nsight Compute counter shows them."""
