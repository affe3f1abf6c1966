"""Issue slots and the plain arithmetic pipes of one SM."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from random import Random

from gpusim.machine.component import Counters, idealized
from gpusim.machine.exact_math import coarse, sum_in_order

PACES_SEED = 1
"""Of SMs' own paces. Which SM is quick changes from launch to launch."""

LEAST_PACE = 0.5
"""No SM is quicker than that, whatever is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpSchedulerSpec:
    """The four schedulers of an SM and the lanes behind them."""

    num_schedulers: int
    fp32_lanes: int
    int32_lanes: int
    mad_wide_lanes: int
    """Of ``IMAD.WIDE``."""
    mufu_lanes: int
    shuffle_lanes: int
    shuffle_cycles: float
    """From a shuffle to the next that uses what it gives."""
    bank_reads_per_cycle: float
    """Registers that each of a scheduler's two banks gives arithmetic."""
    dependent_cycles: float
    """From an arithmetic instruction to the next that uses what it gives."""
    mad_wide_cycles: float
    """From an ``IMAD.WIDE`` of a warp to its next, of other registers."""
    mad_wide_beside_cycles: float
    """The same while wgmma runs on the SM."""
    mad_wide_apart_cycles: float
    """What one amid other instructions takes of wgmma that runs, as warps of the schedulers do not come to it at once."""
    mad_wide_spread_fraction: float
    """By how much of its turns an SM's ``IMAD.WIDE`` take longer or shorter than another's, for a whole launch, where warps
    of several CTAs share its schedulers: the deviation, from SM to SM."""
    beside_interval_cycles: float
    """From an arithmetic instruction of a scheduler to its next while wgmma runs on the SM, at least."""
    barrier_base_cycles: float = field(metadata=idealized(latency=0.0))
    """``bar.sync``: from the last arrival to the first warp that goes on, without what follows."""
    barrier_warp_cycles: float = field(metadata=idealized(latency=0.0))
    """... and for each warp: half of it as the last to arrive, half as one to go on."""
    bar_arrive_cycles: float = field(metadata=idealized(latency=0.0))
    """What ``bar.arrive`` takes of the issuing warp."""
    fence_cycles: float
    """What a proxy or wgmma fence costs where nothing is outstanding."""
    fence_view_cycles: float
    """From a proxy fence's end to where asynchronous copies see what was stored before it: a barrier waits for that."""
    fence_warp_cycles: float
    """How much later that is for each further warp: a barrier waits for the last."""
    gpu_fence_cycles: float = field(metadata=idealized(latency=0.0))
    """``fence.acq_rel`` of scope gpu or cluster where nothing is outstanding, by as many warps as there are schedulers."""
    gpu_fence_warp_cycles: float = field(metadata=idealized(latency=0.0))
    """... and for each warp more."""


@dataclass(slots=True)
class WarpSchedulerCounters(Counters):
    """Warp instructions."""

    instructions: float = 0.0
    """Of the ops that do work; synchronization and addresses are not counted, so this is not ``sm__inst_executed``."""
    fma_instructions: float = 0.0


def own_paces(num_sms: int, spread: float) -> list[float]:
    """What ``IMAD.WIDE`` take on each of ``num_sms`` SMs, over their mean: drawn, each time alike; deviates by ``spread``.

    >>> from statistics import fmean, pstdev
    >>> paces = own_paces(132, 0.02)
    >>> round(fmean(paces), 6), round(pstdev(paces), 6), own_paces(3, 0.0)
    (1.0, 0.02, [1.0, 1.0, 1.0])
    """
    if not spread or num_sms < 2:
        return [1.0] * num_sms
    draw = Random(PACES_SEED)
    drawn = [coarse(draw.gauss(0.0, 1.0)) for _ in range(num_sms)]
    mean = sum_in_order(drawn) / num_sms
    deviation = sqrt(sum_in_order((each - mean) * (each - mean) for each in drawn) / num_sms)
    return [max(LEAST_PACE, 1.0 + spread * (each - mean) / deviation) for each in drawn]
