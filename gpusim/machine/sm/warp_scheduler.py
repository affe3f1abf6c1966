"""Issue slots, math pipes, thread barriers and fences of one SM."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import sqrt
from random import Random

from gpusim.machine.component import Counters, idealized
from gpusim.machine.exact_math import coarse, sum_in_order

PACES_SEED = 1
"""Seed of the SMs' paces. On a GPU the fast SMs change from launch to launch."""

LEAST_PACE = 0.5
"""Least pace of an SM, whatever is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpSchedulerSpec:
    """Warp schedulers of an SM, their math lanes, barriers and fences."""

    num_schedulers: int
    """Sub-cores of an SM, each with a warp scheduler, a tensor core and an equal part of the registers (vendor)."""
    fp32_lanes: int
    """FP32 lanes of an SM (math_rate)."""
    int32_lanes: int
    """INT32 lanes of an SM (math_rate)."""
    imad_wide_lanes: int
    """Lanes of an SM for ``IMAD.WIDE`` (pipe_beside_wgmma)."""
    mufu_lanes: int
    """Special-function (MUFU) lanes of an SM (math_rate)."""
    shuffle_lanes: int
    """Shuffle lanes of an SM (math_rate)."""
    shuffle_cycles: float
    """Latency of a shuffle until a dependent one (barriers)."""
    bank_reads_per_cycle: float
    """Operand reads of each of a scheduler's two register banks (math_rate)."""
    dependent_cycles: float
    """Latency of a math instruction until a dependent one (math_rate)."""
    imad_wide_cycles: float
    """Interval between two independent ``IMAD.WIDE`` of a warp (pipe_beside_wgmma)."""
    imad_wide_during_wgmma_cycles: float
    """Interval between two ``IMAD.WIDE`` of a warp while wgmma runs on the SM (turn_taking)."""
    imad_wide_interleaved_cycles: float
    """Time that wgmma loses per ``IMAD.WIDE`` interleaved with other instructions, as warps reach it at different times
    (turn_taking)."""
    imad_wide_sm_cv: float
    """Standard deviation of SMs' ``IMAD.WIDE`` time in a launch with several CTAs an SM, relative to the mean
    (validation/studies)."""
    math_interval_during_wgmma_cycles: float
    """Minimum interval between math instructions of a scheduler while wgmma runs on the SM (turn_taking)."""
    barrier_base_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of ``bar.sync`` from the last arrival to the first release, without the term per warp (barriers)."""
    barrier_warp_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of ``bar.sync`` per warp: half of it at the last arrival, half at the release (barriers)."""
    bar_arrive_cycles: float = field(metadata=idealized(latency=0.0))
    """Issue time of ``bar.arrive`` (barriers)."""
    fence_cycles: float
    """Latency of a proxy or wgmma fence with nothing outstanding (barriers)."""
    proxy_fence_visible_cycles: float
    """Time from a proxy fence's end until the async proxy sees earlier stores; a later barrier waits for it
    (store_fence)."""
    fence_warp_cycles: float
    """Extra time of each further warp until the async proxy sees its stores; a later barrier waits for the last
    (store_fence)."""
    gpu_fence_cycles: float = field(metadata=idealized(latency=0.0))
    """Latency of ``fence.acq_rel`` of scope gpu or cluster with nothing outstanding, for one warp a scheduler
    (barriers)."""
    gpu_fence_warp_cycles: float = field(metadata=idealized(latency=0.0))
    """Extra latency of ``fence.acq_rel`` of scope gpu or cluster per warp beyond one a scheduler (barriers)."""


@dataclass(slots=True)
class WarpSchedulerCounters(Counters):
    """Warp instructions of all SMs."""

    instructions: float = 0.0
    """Instructions of ops that do work. Synchronization and addresses are excluded, so this is not ``sm__inst_executed``."""
    fma_instructions: float = 0.0


def own_paces(num_sms: int, spread: float) -> list[float]:
    """``IMAD.WIDE`` time of each of ``num_sms`` SMs relative to the mean: reproducible draws with deviation ``spread``.

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
