"""Shared memory: 32 banks, served a wavefront at a time."""

from __future__ import annotations

from dataclasses import dataclass, field

from gpusim.machine.component import Counters, idealized, ncu


@dataclass(frozen=True, slots=True, kw_only=True)
class SmemSpec:
    """Shared memory of one SM."""

    wavefronts_per_cycle: float
    load_latency_cycles: float = field(metadata=idealized(latency=0.0))
    """From issue to use of an access of one wavefront."""
    warp_cycles_per_wavefront: float
    """What a lone warp waits for each wavefront of its own beyond the first."""
    vector_word_cycles: float = field(metadata=idealized(latency=0.0))
    """What each 32 bits of a lane's vector beyond the first add to the latency of a load (``ldmatrix`` has none)."""
    atomic_latency_cycles: float = field(metadata=idealized(latency=0.0))
    store_latency_cycles: float
    """From when the data stage has served a store to when its registers may be written and a fence is past it."""
    replay_wavefronts: float
    """Wavefronts that wait past the line before the data stage, so that what stands behind them passes: stores' registers
    have been read then, loads of global memory are on their way. 0: these wait for nothing."""
    global_load_wavefronts: float
    """What a wavefront of global loads, hit or miss, takes of the data stage, in wavefronts of shared memory's."""
    global_store_wavefronts: float
    """The same of a line of global stores."""
    copied_row_wavefronts: float
    """The same of a row of a tile, or a line of it, that cp.async copies around L1."""
    operand_load_registers_per_cycle: float
    """What loads of warps return beside operand reads of wgmma, in registers of a warp (128 bytes)."""
    operand_store_wavefronts_per_cycle: float
    """What stores of warps, to shared memory or past it, take of the stage beside them at most."""


SASS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
"""Nsight Compute's wavefronts by opcode begin so."""


@dataclass(slots=True)
class SmemCounters(Counters):
    """Wavefronts of the LSU pipe, as Nsight Compute counts them (kernels/shared_counter).

    A shuffle is one, however many lanes take part, and so is a proxy fence or a wait for bulk stores; votes, redux,
    arrivals, tries and TMA are none. A copy by cp.async is one where it goes through L1 and none where it goes around
    it, beside what its commit is. Ignored: what a CTA's first barriers are (one or two a CTA).
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
    """Of cp.async through L1; what the counter shows of copies around it is not known."""
    plain_loads: float = ncu("smsp__inst_executed_op_shared_ld.sum")
    plain_stores: float = ncu("smsp__inst_executed_op_shared_st.sum")
    matrix_loads: float = ncu("smsp__inst_executed_op_ldsm.sum")
    matrix_stores: float = ncu("sm__inst_executed_op_shared_stsm.sum")
    fill_wavefronts: float = 0.0
    """Of what cp.async writes, which no counter shows."""
