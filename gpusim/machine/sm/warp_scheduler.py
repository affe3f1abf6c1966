"""Issue slots and the plain arithmetic pipes of one SM."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from statistics import fmean, pstdev

from gpusim.errors import LaunchError
from gpusim.machine.component import Component, Counters
from gpusim.machine.timing import GapPipe, Pipe
from gpusim.units import WARP_SIZE

LOAD_PRODUCTS = 0.5
"""``IMAD.WIDE``s that a load of global memory takes the pipe of: two cycles of four. Source: kernels/load_loops
(`global_wide`, `global_mad`: 16 loads by eight warps a scheduler take 256 cycles beside 16 and 32 of these)."""


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
    barrier_base_cycles: float
    """``bar.sync``: from the last arrival to the first warp that goes on, without what follows."""
    barrier_warp_cycles: float
    """... and for each warp: half of it as the last to arrive, half as one to go on."""
    bar_arrive_cycles: float
    """What ``bar.arrive`` takes of the issuing warp."""
    fence_cycles: float
    """What a proxy or wgmma fence costs where nothing is outstanding."""
    fence_view_cycles: float
    """From a proxy fence's end to where asynchronous copies see what was stored before it: a barrier waits for that."""
    fence_warp_cycles: float
    """How much later that is for each further warp: a barrier waits for the last."""
    gpu_fence_cycles: float
    """``fence.acq_rel`` of scope gpu or cluster where nothing is outstanding, by as many warps as there are schedulers."""
    gpu_fence_warp_cycles: float
    """... and for each warp more."""


@dataclass(slots=True)
class WarpSchedulerCounters(Counters):
    """Warp instructions."""

    instructions: float = 0.0
    """Of the ops that do work; synchronization and addresses are not counted, so this is not ``sm__inst_executed``."""
    fma_instructions: float = 0.0


def own_paces(num_sms: int, spread: float) -> list[float]:
    """What ``IMAD.WIDE`` take on each of ``num_sms`` SMs, over their mean: drawn, each time alike; deviates by ``spread``.

    >>> paces = own_paces(132, 0.02)
    >>> round(fmean(paces), 6), round(pstdev(paces), 6), own_paces(3, 0.0)
    (1.0, 0.02, [1.0, 1.0, 1.0])
    """
    if not spread or num_sms < 2:
        return [1.0] * num_sms
    draw = Random(PACES_SEED)
    drawn = [draw.gauss(0.0, 1.0) for _ in range(num_sms)]
    mean, deviation = fmean(drawn), pstdev(drawn)
    return [max(LEAST_PACE, 1.0 + spread * (each - mean) / deviation) for each in drawn]


class WarpScheduler(Component):
    """Issue slots, FMA, ALU and MUFU pipes, shuffles.

    Models: one warp instruction a cycle and scheduler, the lanes of each pipe; warps of a role spread evenly; chains of
    integer instructions and of shuffles where a program names them (a loop's branch is two). Beside wgmma a scheduler's
    arithmetic has one turn in four cycles (kernels/turn_taking, pipe_beside_wgmma: IMAD, IADD3, FFMA, F2FP, any N).
    FFMAs whose registers lie in one bank (a program tells) take more turns, and others of the scheduler wait behind them.
    Loads of global memory have the pipe of ``IMAD.WIDE`` for two cycles each. Where several CTAs share an SM those of
    k-steps whose warps copy have each SM's own pace (:func:`own_paces`), as warps stand to one another there.
    Ignores: that loads of shared memory have it, too (kernels/load_loops);
    other dependences inside a role's arithmetic, register banks of what tells no turns, dual roles of the INT
    pipe, what shuffles take of the way to shared memory, instruction cache.
    Source: the GPU's description; turns and what waits behind them: kernels/fma_loops, h200_sxm, 2026-11-23.
    """

    kind = "warp_scheduler"

    def __init__(self, spec: WarpSchedulerSpec, *, counters: WarpSchedulerCounters, pace: float = 1.0) -> None:
        """``counters`` are shared by all SMs; ``pace``: what ``IMAD.WIDE`` that set a pace take, over the mean of SMs."""
        self.spec = spec
        self.pace = pace
        self.counters = counters
        self._num_schedulers = spec.num_schedulers
        self.barrier_base_cycles, self.barrier_warp_cycles = spec.barrier_base_cycles, spec.barrier_warp_cycles
        self.dependent_cycles, self.shuffle_cycles = spec.dependent_cycles, spec.shuffle_cycles
        self.bank_reads_per_cycle = spec.bank_reads_per_cycle
        self.issue_slots = GapPipe(units_per_cycle=spec.num_schedulers)
        self.fma_pipe = GapPipe(units_per_cycle=spec.fp32_lanes / WARP_SIZE)
        self.alu_pipe = GapPipe(units_per_cycle=spec.int32_lanes / WARP_SIZE)
        self.mad_wide_pipe = GapPipe(units_per_cycle=spec.mad_wide_lanes / WARP_SIZE)
        self.mufu_pipe = GapPipe(units_per_cycle=spec.mufu_lanes / WARP_SIZE)
        self.beside_pipe = GapPipe(units_per_cycle=spec.num_schedulers / spec.beside_interval_cycles)
        self.shuffle_pipe = GapPipe(units_per_cycle=spec.shuffle_lanes / WARP_SIZE)

    def issue(
        self, num_instructions: float, *, num_warps: int, at_cycle: float, weight: float, turns_each: float = 1.0
    ) -> float:
        """Issue ``num_instructions`` of each of ``num_warps`` warps; returns when the last has been issued.

        ``turns_each``: turns that one takes, with the scheduler's others waiting behind it.
        """
        if num_instructions < 0:
            raise LaunchError(f"{num_instructions} instructions were issued, wants 0 or more")
        total = num_instructions * num_warps
        self.counters.instructions += total * weight
        end = self.issue_slots.reserve(total * turns_each, at_cycle=at_cycle, weight=weight)
        own = at_cycle + num_instructions * turns_each * -(-num_warps // self._num_schedulers)
        return end if end > own else own

    def execute(
        self, pipe: Pipe, num_instructions: float, *, num_warps: int, at_cycle: float, weight: float,
        wgmma_until: float = 0.0, turns_each: float = 1.0,
    ) -> float:
        """Issue to a pipe of fewer lanes than the schedulers could feed; returns when the pipe has taken all.

        ``wgmma_until``: beside wgmma that runs until then, which leaves arithmetic few turns. ``turns_each``: of the
        scheduler, for the registers that an instruction reads.
        """
        issued = self.issue(
            num_instructions, num_warps=num_warps, at_cycle=at_cycle, weight=weight, turns_each=turns_each
        )
        schedulers = self._num_schedulers
        total = num_instructions * num_warps
        end = pipe.reserve(total, at_cycle=at_cycle, weight=weight)
        own_cycles = total / (pipe.rate * (num_warps / schedulers if num_warps < schedulers else 1.0))
        if wgmma_until > at_cycle and total > 0.0:
            each = self.spec.beside_interval_cycles * -(-num_warps // self.spec.num_schedulers)
            beside = min(1.0, (wgmma_until - at_cycle) / (each * num_instructions))
            passed = self.beside_pipe.reserve(total * beside, at_cycle=at_cycle, weight=weight)
            passed = max(passed, at_cycle + each * num_instructions * beside) + (1.0 - beside) * own_cycles
            end = max(end, passed)
        if end < issued:
            end = issued
        own = at_cycle + own_cycles
        return end if end > own else own

    def pass_loads(self, num_requests: float, *, at_cycle: float, weight: float) -> None:
        """Loads of global memory on their way: products wait behind them."""
        self.mad_wide_pipe.reserve(LOAD_PRODUCTS * num_requests, at_cycle=at_cycle, weight=weight)

    def wide_turn_cycles(self, num_warps: int, *, is_apart: bool, pace: float = 1.0) -> tuple[float, float]:
        """(what an IMAD.WIDE of each warp takes of wgmma that run, from one to the next beside them)."""
        each = self.spec.mad_wide_apart_cycles if is_apart and num_warps > 1 else self.spec.mad_wide_cycles
        taken = pace * each * -(-num_warps // self.spec.num_schedulers)
        return taken, max(pace * self.spec.mad_wide_beside_cycles, 2.0 * taken)

    def gpu_fence_cycles(self, num_warps: int) -> float:
        """What a fence of scope gpu takes of ``num_warps`` warps at once."""
        more = max(0, num_warps - self.spec.num_schedulers)
        return self.spec.gpu_fence_cycles + more * self.spec.gpu_fence_warp_cycles
