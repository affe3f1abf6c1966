"""What is counted of whole kernels, by Nsight Compute's names, at which tier each is judged, and how close it must come.

Names, tiers and limits alone: how they are predicted is in :mod:`gpusim.evidence.cases.validation_kernel`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpusim.evidence.cases import paths as places
from gpusim.evidence.cases.case import Limit

CYCLES, DURATION = places.CYCLES, places.DURATION
CLOCK = "sm__cycles_elapsed.avg.per_second"
"""Cycles and time of one pass; cycles over duration may be of two, which differ by some percent in launches of some us."""
DRAM = ("dram__bytes_read.sum", "dram__bytes_write.sum")
DRAM_ACCESS: Mapping[str, str] = MappingProxyType(dict(zip(DRAM, ("read", "write"), strict=True)))
HIT_RATE = "lts__t_sector_hit_rate.pct"
SHARED = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
THREAD_NUMBERS = 1
"""Numbers that a warp asks for of its threads (``SR_TID``): along x alone, where blocks have one dimension. Nsight
Compute counts each as a wavefront of shared memory (``SHARED``). Source: kernels/shared_counter; how many, SASS."""
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
"""Of every whole kernel, beside the other cycles that every row has: some five passes on a GH100."""

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
"""Counts that follow from the kernel alone: of instructions by opcode, and of wavefronts of shared memory by opcode.

Wavefronts of cp.async, and of loads and stores as the data stage counts them (:data:`TIMED_WAVEFRONTS`), depend on who is
beside them: validation/deviations/08_wavefronts.md."""
TENSOR = "sm__inst_executed_pipe_tensor.sum"
"""Of products of libraries, exact, too; kernels without tensor cores have others under that name."""
EXACT_LIMIT = Limit(worst_pct=0.0)

TIMED_WAVEFRONTS = tuple(f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" for op in ("ld", "st"))
"""Loads and stores of shared memory, with those that are taken again beside wgmma and TMA."""

REGISTERS, CTAS_OF_SM = "launch__registers_per_thread", "ctas_of_sm"
"""As the rule for registers has them, whatever the row's kernel was compiled to; CTAs that an SM holds, with those."""

SINGLE, SUSTAINED = ("single_us", "single_clock_mhz"), ("sustained_us", "sustained_clock_mhz")
EMPTY = ("empty_single_us", "empty_sustained_us")
POWER = "sustained_power_w"
TIERS: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys((*JUDGED_COUNTS, *EXACT, *TIMED_WAVEFRONTS), 5), CYCLES: 6,
        **dict.fromkeys((*SINGLE, *SUSTAINED, POWER), 7),
    }
)
"""What a whole kernel is judged by."""
PRODUCT_TIERS: Mapping[str, int] = MappingProxyType({REGISTERS: 5, CTAS_OF_SM: 5})
"""What a matrix product is judged by, too, as there is a rule for its registers."""

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
"""Where a name's rows must come closer, or may stay further off, than their tier says."""

GEMM_LIMITS: Mapping[str, Limit] = MappingProxyType(
    {
        **LIMITS,
        **dict.fromkeys((*DRAM, *JUDGED_COUNTS[2:4]), Limit(mean_pct=8.0)),
        CYCLES: Limit(mean_pct=5.0, p90_pct=10.0, worst_pct=20.0),
    }
)
"""Of matrix products: cycles closer than of other kernels, and, as tiles meet in L2, bytes and sectors within 8 %."""

FLOOR_SHARE = 0.25
"""Of all bytes that a kernel touches, each once: errors of memory's bytes are never taken relative to less. So next to
nothing measured (writes that stay in L2) is no reason for an endless error, and a direction that is used is not spared."""
