"""Nsight Compute metrics of validation kernels, the tier at which each is judged, and its limits.

This module has names, tiers and limits only. :mod:`gpusim.evidence.cases.validation_kernel` predicts them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from gpusim.evidence.cases import paths as places
from gpusim.evidence.cases.case import Limit

CYCLES, DURATION, ESTIMATED_CYCLES = places.CYCLES, places.DURATION, places.ESTIMATED_CYCLES
CLOCK = "sm__cycles_elapsed.avg.per_second"
"""Clock of one profiler pass, cycles over its time.

Cycles over duration may combine two passes, which differ by some percent in launches of some us."""
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
DRAM_ACCESS: Mapping[str, str] = MappingProxyType(dict(zip(DRAM, ("read", "write"), strict=True)))
HIT_RATE = "lts__t_sector_hit_rate.pct"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
THREAD_NUMBERS = 1
"""Reads of ``SR_TID`` by each warp: one, along x, where blocks have one dimension.

Nsight Compute counts each as a wavefront of shared memory (``SHARED``). Source: kernels/shared_counter; the number is from
SASS."""
JUDGED_COUNTS = (
    *DRAM,
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    HIT_RATE,
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    SHARED,
)
COUNTED = (
    CYCLES,
    DURATION,
    *JUDGED_COUNTS,
    CLOCK,
    "smsp__inst_executed.sum",
    "lts__cycles_elapsed.avg.per_second",
    "dram__cycles_elapsed.avg.per_second",
    "launch__registers_per_thread",
)
"""Metrics counted for every validation kernel, besides the other cycle counts of every row. Some five passes on a GH100."""

_SASS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
EXACT = (
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.sum",
    "smsp__inst_executed_op_ldsm.sum",
    "sm__inst_executed_op_shared_stsm.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "smsp__inst_executed_op_tma_ld.sum",
    "smsp__inst_executed_op_tma_st.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
    *(f"{_SASS}_{op}.sum" for op in ("ldsm", "ld", "st", "stsm")),
)
"""Counts that follow from the kernel alone: instructions by opcode, and shared-memory wavefronts by opcode.

Wavefronts of cp.async are not in it, because they depend on concurrent accesses: validation/deviations/08_wavefronts.md.
Loads and stores as the data stage counts them (:data:`TIMED_WAVEFRONTS`) are not in it either."""
TENSOR = "sm__inst_executed_pipe_tensor.sum"
"""Tensor-core instructions, exact for GEMMs of libraries. Without tensor cores the metric counts other instructions."""
EXACT_LIMIT = Limit(worst_pct=0.0)

TIMED_WAVEFRONTS = tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
"""Wavefronts of shared-memory loads and stores, including those repeated while wgmma and TMA run."""

REGISTERS, CTAS_OF_SM = "launch__registers_per_thread", "ctas_of_sm"
"""Registers by the model's rule, whatever the row's kernel was compiled to, and the resident CTAs per SM that follow."""

SINGLE, SUSTAINED = ("single_us", "single_clock_mhz"), ("sustained_us", "sustained_clock_mhz")
EMPTY = ("empty_single_us", "empty_sustained_us")
POWER = "sustained_power_w"
TIERS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys((*JUDGED_COUNTS, *EXACT, *TIMED_WAVEFRONTS), 5), CYCLES: 6,
        **dict.fromkeys((*SINGLE, *SUSTAINED, POWER), 7),
    }
)
"""Tier of each number of a validation kernel."""
PRODUCT_TIERS: Mapping[str, int] = MappingProxyType({REGISTERS: 5, CTAS_OF_SM: 5, ESTIMATED_CYCLES: 6})
"""Tiers of further numbers of a GEMM, for whose registers there is a rule."""


def tiers_of(names: Collection[str], *, has_rule: bool = False) -> dict[str, int]:
    """Tiers of those ``names`` that are judged; ``has_rule``: with those of registers."""
    return {name: tier for name, tier in {**TIERS, **(PRODUCT_TIERS if has_rule else {})}.items() if name in names}


CLOCK_LIMIT = Limit(worst_pct=4.0)
LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        HIT_RATE: Limit(mean_pct=3.0, is_points=True),
        SINGLE[1]: CLOCK_LIMIT,
        SUSTAINED[1]: CLOCK_LIMIT,
        POWER: Limit(mean_pct=10.0),
        **dict.fromkeys((*EXACT, TENSOR), EXACT_LIMIT),
    }
)
"""Limits of names whose rows must be closer than their tier requires, or may be further off."""

GEMM_LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        **LIMITS,
        **dict.fromkeys((*DRAM, *JUDGED_COUNTS[2:4]), Limit(mean_pct=8.0)),
        CYCLES: Limit(mean_pct=5.0, p90_pct=10.0, worst_pct=20.0),
        ESTIMATED_CYCLES: Limit(mean_pct=6.0, p90_pct=15.0),
    }
)
"""Limits of GEMMs. Cycles must be closer than for other kernels, but for those that are predicted before it is written.

Bytes and sectors may be 8 % off, since tiles share data in L2."""

FLOOR_SHARE = 0.25
"""Fraction of a kernel's touched bytes, each counted once, that is the floor for errors of DRAM bytes.

A measured value near zero (writes that stay in L2) then gives no infinite error, and a direction that is used is still
judged."""
