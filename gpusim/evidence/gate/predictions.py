"""Predictions under Nsight Compute's names, as a profile of one launch has them.

In: a result, and the metrics that a profile has. Out: numbers by metric. What is not in them is not predicted.

Models:

* sums and bytes per second
* wgmma of floating-point types in ``..._op_hmma``, as Nsight Compute counts them on Hopper
* shares of peaks that are maxima of parts (:mod:`gpusim.evidence.gate.throughputs`)

Ignores:

* metrics that follow from no counter of the model

Source: section files of Nsight Compute for names; kernels/shared_counter for reads of ``SR_TID``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from gpusim.evidence.cases.validation_kernel import CYCLES, DRAM, THREAD_NUMBERS, as_counted
from gpusim.evidence.gate.throughputs import throughputs
from gpusim.evidence.nsight.metrics import SAME

if TYPE_CHECKING:
    from gpusim.evidence.nsight.launches import ProfiledLaunch
    from gpusim.machine.config import GpuSpec
    from gpusim.simulate.result import Result


SASS = "sm__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"
DRAM_ELAPSED = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
TENSOR = "sm__pipe_tensor_type_hmma_hgmma_qgmma_imma_igmma_bmma_bgmma_cycles_active"
TENSOR_ELAPSED = f"{TENSOR}.avg.pct_of_peak_sustained_elapsed"
TENSOR_PIPES = {
    "sm__pipe_tensor_cycles_active": True, TENSOR: True,
    "sm__pipe_tensor_op_hmma_cycles_active": False, "sm__pipe_tensor_op_hmma_type_hmma_hgmma_qgmma_cycles_active": False,
}
"""Names of the cycles of the tensor pipe, and whether integers count."""
WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
EXCESSIVE = "derived__memory_l1_wavefronts_shared_excessive"
WAVEFRONTS = "memory_l1_wavefronts_shared"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
SOURCE_WAVEFRONTS = frozenset({
    WAVEFRONTS, f"{WAVEFRONTS}_ideal", EXCESSIVE, f"{CONFLICTS}.sum", f"{CONFLICTS}_op_ld.sum", f"{CONFLICTS}_op_st.sum",
})
"""Wavefronts by address, and bank conflicts: of each, the model without bank conflicts has what is ideal."""
LOADS, STORES = ("ld", "ldsm"), ("st", "stsm")


def thread_numbers(launch: ProfiledLaunch) -> int:
    """Reads of ``SR_TID`` by each warp: one per dimension along which a block has more than one thread."""
    return max(THREAD_NUMBERS, sum(extent > 1 for extent in launch.block))


def predictions(
    result: Result, wanted: Iterable[str], *, gpu: GpuSpec, thread_numbers: int = THREAD_NUMBERS
) -> dict[str, float]:
    """Predicted numbers by metric: counters as Nsight Compute counts them, with sums and bytes per second."""
    numbers = as_counted(result.counters, thread_numbers)
    read, written = (numbers[name] for name in DRAM)
    numbers["dram__bytes.sum"] = read + written
    for name in ("read", "write"):
        numbers[f"dram__sectors_{name}.sum"] = numbers[f"dram__bytes_{name}.sum"] / 32.0
    numbers["dram__bytes.sum.per_second"] = numbers["dram__bytes.sum"] / (result.time_us or math.inf) * 1e6
    numbers |= _in_percent(result, numbers)
    active = numbers["sm__cycles_active.avg"] / (numbers[CYCLES] or math.inf)
    shares = throughputs(result, numbers, gpu)
    numbers |= shares | {
        f"{name.removesuffix('elapsed')}active": share / (active or math.inf)
        for name, share in shares.items() if not name.startswith("lts__")
    }
    numbers |= {name: numbers[same] for name, same in SAME.items() if same in numbers}
    numbers |= {f"smsp__{name.removeprefix('sm__')}": number for name, number in numbers.items()
                if name.startswith("sm__inst_executed_pipe")}
    for name in wanted:
        base = name.removesuffix(".per_second")
        if base != name and base in numbers and base.endswith(".sum") and result.time_us:
            numbers[name] = numbers[base] / result.time_us * 1e6
    return numbers


def _in_percent(result: Result, numbers: Mapping[str, float]) -> dict[str, float]:
    """Shares of peaks, active warps, and the launch: metrics of ``SpeedOfLight``, ``Occupancy`` and ``LaunchStats``.

    ``gpu__dram_throughput`` is the larger of bytes and cycles of the memory, which differ by 2 % in measured launches.
    """
    found = {"gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": numbers[DRAM_ELAPSED]}
    busy, active = numbers[TENSOR_ELAPSED], numbers["sm__cycles_active.avg"] / (numbers[CYCLES] or math.inf)
    is_float = not numbers["sm__inst_executed_pipe_tensor_op_imma.sum"]
    for name, has_integers in TENSOR_PIPES.items():
        share = busy if is_float or has_integers else 0.0
        found[f"{name}.avg.pct_of_peak_sustained_elapsed"] = share
        found[f"{name}.avg.pct_of_peak_sustained_active"] = share / (active or math.inf)
    if WARPS in numbers:
        found["sm__warps_active.avg.pct_of_peak_sustained_elapsed"] = numbers[WARPS] * active
        found["sm__warps_active.avg.per_cycle_active"] = numbers[WARPS] / 100.0 * result.occupancy.max_warps_per_sm
    return found | {
        "sm__maximum_warps_per_active_cycle_pct": result.occupancy.pct,
        "sm__maximum_warps_avg_per_active_cycle": float(result.occupancy.warps_per_sm),
        "launch__thread_count": numbers["launch__grid_size"] * numbers["launch__block_size"],
    }


def source_wavefronts(result: Result, without: Result) -> dict[str, float]:
    """Wavefronts of shared memory by address, those that were ideal, and the bank conflicts between.

    ``without``: the result of the same launch without bank conflicts. Where wgmma or TMA runs, too, Nsight Compute counts
    lost arbitration among the conflicts. Source: measured rows of kernels/shared_access (conflicts of full warps).
    """
    def summed(found: Result, kinds: Iterable[str]) -> float:
        return sum(found.counters.get(f"{SASS}_{kind}.sum", 0.0) for kind in kinds)

    every = (*LOADS, *STORES, "ldgsts")
    excess = {kinds: summed(result, kinds) - summed(without, kinds) for kinds in (every, LOADS, STORES)}
    return {
        WAVEFRONTS: summed(result, every), f"{WAVEFRONTS}_ideal": summed(without, every), EXCESSIVE: excess[every],
        f"{CONFLICTS}.sum": excess[every], f"{CONFLICTS}_op_ld.sum": excess[LOADS], f"{CONFLICTS}_op_st.sum": excess[STORES],
    }  # fmt: skip


def is_shown_only(metric: str, result: Result) -> bool:
    """Whether a metric of shared memory counts more than addresses tell, or something that nobody knows.

    Loads and stores lose turns to wgmma and TMA, which count as conflicts. Wavefronts of wgmma's operands and of cp.async
    that bypasses L1 are not known by source counter.
    """
    has_gmma = result.counters["sm__inst_executed_pipe_tensor_op_gmma.sum"] > 0.0
    has_tma = any(result.counters[f"smsp__inst_executed_op_tma_{way}.sum"] for way in ("ld", "st"))
    if metric.startswith(CONFLICTS):
        return has_gmma or has_tma or result.fill_wavefronts > 0.0
    return metric in SOURCE_WAVEFRONTS and (result.fill_wavefronts > 0.0 or (has_gmma and metric != EXCESSIVE))
