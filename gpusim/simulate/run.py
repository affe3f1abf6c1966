"""Simulate a Launch on a GPU: plan its traffic, run its events, and find the SM clock that its power allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, get_args

from gpusim.errors import LaunchError
from gpusim.machine.clock import Activity, PowerLimiter
from gpusim.machine.config import GpuSpec
from gpusim.machine.exact_math import sum_in_order
from gpusim.program.cta_classes import MAX_OPS
from gpusim.simulate.bottleneck import SATURATED, busy_shares
from gpusim.simulate.engine_run import Ran
from gpusim.simulate.idealize import IDEALS, idealize
from gpusim.simulate.native_run import native_runs
from gpusim.simulate.order_check import is_tested
from gpusim.simulate.plan import LaunchPlan, peak_flops_per_cycle, plan_launch
from gpusim.simulate.reference_run import reference_runs
from gpusim.simulate.result import Result
from gpusim.simulate.settings import IN_L2, MOST_EVENTS, ClockMode, Data, EngineName, L2State, Settings
from gpusim.simulate.summary import activity_of, one_after_the_other, result_of
from gpusim.simulate.wasm_module import Progress, Watch
from gpusim.units import Clock
from gpusim.workload.launch import Launch, launch_in_core

CLOCK_TOLERANCE, PART_TOLERANCE = 5e-3, 2e-3
"""Uncertainty of the cycles, as a fraction, at which the clock has settled: of a full launch, and of a part of one.

Both are choices."""

MOST_ROUNDS, MOST_PARTS = 4, 2
"""Simulations until the clock has settled, at most; and partial simulations before them, at most."""

MOST_MOVED = 2.5e-2
"""Relative change up to which cycles are rescaled to the settled clock. Beyond it the launch is simulated there.

A choice: a GEMM of 8192 x 28672 x 8192 changes by 2.3 %, and is 0.14 % off its simulation at the settled clock."""

CLOCK_DISTANCE = 0.04
"""Relative difference of two clocks from which on the change of the cycles between them is used."""

STEEPEST = 0.8
"""Slope of the line through two simulations, at most. Steeper lines, which contain noise, are not followed."""

STEP_TOLERANCE, MOST_STEPS = 1e-3, 12
"""Tolerance (a fraction of the clock) and steps of the search for a clock with the cycles of one simulation."""

IDLE_HBM = 0.75
"""Busy share of memory up to which only its latency depends on the clock."""


def simulate(
    launch: Launch, gpu: GpuSpec, *, clock: ClockMode | float = "single", l2: L2State = "cold", data: Data = "random",
    ideals: Collection[str] = (), recorded_sms: Collection[int] | Literal["first"] = (), engine: EngineName = "native",
    core_only: bool = False, max_ops: int = MAX_OPS, max_events: int = MOST_EVENTS, on_progress: Progress | None = None,
    simulated_mhz: float | None = None, watch: Watch | None = None,
) -> Result:
    """Predict ``launch`` on ``gpu``: every CTA, every iteration, every SM.

    A launch of your own is refused if nothing orders two accesses to shared memory, also if this timing does not show it
    (:meth:`gpusim.Launch.check`). Kernel models are not checked again.

    Args:
        launch: from a kernel model, or your own.
        gpu: from :func:`gpusim.load_gpu`.
        clock: ``max``, ``single``, ``sustained``, or a number of MHz.
        l2: ``cold`` (L2 is flushed before the launch), ``warm``, ``stored`` (the launch before stored the operands), or
            ``flushed``. ``flushed`` empties L2 and the instruction caches before the launch and before each kernel that
            follows in it, as Nsight Compute does by default.
        data: ``random`` or ``zeros``, for the power that arithmetic draws.
        ideals: names of :data:`gpusim.simulate.idealize.IDEALS` that cost nothing.
        recorded_sms: SMs whose timeline is kept; ``first``: the SM that CTA 0 starts on.
        engine: ``native``, the compiled module in the package; or ``reference``, the core of the model in simpy. The
            reference takes GPUs that have no mechanism beyond the core.
        core_only: switch off all mechanisms of the GPU beyond the core of the model. A remark lists them.
        max_ops: ops of one role of one CTA beyond which a program is refused as endless.
        max_events: events after which a run is ended with an error.
        on_progress: called during the run with CTAs that have exited, CTAs in all, and the present cycle.
        simulated_mhz: simulate once, at this SM clock. The result is rescaled to the clock that the mode allows. Launches
            simulated at one clock can be compared.
        watch: called during the run of the launch itself. An exception that it raises ends the simulation.

    Returns:
        Cycles (SM cycles), time (us), counters and timelines.

    Raises:
        LaunchError: the GPU cannot run it, or an argument has none of the values above.
        DeadlockError, HazardError: the kernel deadlocks, or reads and writes shared memory in a race.
    """
    for thing, kind, source in ((launch, Launch, "params.launch(gpu)"), (gpu, GpuSpec, "load_gpu('h200_sxm')")):
        if not isinstance(thing, kind):
            raise LaunchError(f"simulate: got a {type(thing).__name__}, wants a {kind.__name__}, for example from {source}")
    for name, found, known in (
        ("l2", l2, get_args(L2State)), ("data", data, get_args(Data)), ("engine", engine, get_args(EngineName)),
    ):
        if found not in known:
            raise LaunchError(f"{name} {found!r} is unknown, wants one of {', '.join(known)}")
    for sm_idx in () if recorded_sms == "first" else recorded_sms:
        if sm_idx not in range(gpu.num_sms):
            raise LaunchError(f"recorded_sms has {sm_idx!r}, wants numbers from 0 to {gpu.num_sms - 1}, or 'first'")
    for name in ideals:
        if name not in IDEALS:
            raise LaunchError(f"{name!r} is nothing that can be idealized, wants one of {', '.join(sorted(IDEALS))}")
    if not isinstance(clock, str) and not gpu.clock.min_mhz <= clock <= gpu.clock.max_mhz:
        raise LaunchError(
            f"--clock {clock:g}: {gpu.name} runs from {gpu.clock.min_mhz:g} to {gpu.clock.max_mhz:g} MHz; use one of these"
        )
    settings = Settings(
        clock=clock, l2=l2, data=data, ideals=frozenset(ideals),
        recorded_sms=recorded_sms if isinstance(recorded_sms, str) else frozenset(recorded_sms),
        engine=engine, max_ops=max_ops, max_events=max_events, on_progress=on_progress, simulated_mhz=simulated_mhz,
        watch=watch, checks_order=not is_tested(launch),
    )
    gpu, remarks = _engines_gpu(gpu, engine, core_only=core_only)
    launch, gpu = launch_in_core(launch) if core_only else launch, idealize(gpu, settings.ideals)
    result = _simulate(launch, gpu, settings)
    if launch.following:
        settings = replace(settings, l2="flushed" if l2 == "flushed" else "stored", simulated_mhz=None, watch=None)
        result = one_after_the_other(result, [_simulate(other, gpu, settings) for other in launch.following])
    return replace(result, remarks=(*result.remarks, *remarks)) if remarks else result


def _engines_gpu(gpu: GpuSpec, engine: str, *, core_only: bool) -> tuple[GpuSpec, tuple[str, ...]]:
    """The GPU as the engine takes it, and remarks on mechanisms that were switched off.

    Raises:
        LaunchError: the reference lacks mechanisms of the GPU.
    """
    if engine == "native" and not core_only:
        return gpu, ()
    from gpusim import reference

    beyond = reference.beyond_core(gpu)
    if not beyond:
        return gpu, ()
    if not core_only:
        raise LaunchError(
            f"engine 'reference' has the core of the model alone, {gpu.name} has {len(beyond)} parameters beyond it, "
            f"for example {', '.join(beyond[:3])}; use core_only (--core-only), or engine 'native'"
        )
    return reference.core_only(gpu), (f"switched off, as beyond the core of the model: {', '.join(beyond)}",)


def _simulate(launch: Launch, gpu: GpuSpec, settings: Settings) -> Result:
    """Simulate one launch, at a clock that its power allows."""
    began = time.perf_counter()
    plan = plan_launch(launch, gpu, is_warm=settings.l2 in IN_L2)
    clock, mode, mhz = settings.clock, settings.mode, settings.simulated_mhz
    if mhz is None:
        mhz = estimate_clock(plan, mode=mode, data=settings.data) if isinstance(clock, str) else float(clock)
    runs = reference_runs if settings.engine == "reference" else native_runs
    run_at: Callable[[Clock, Any], Ran] = runs(plan, settings)
    search = ClockSearch(limiter=PowerLimiter(gpu.clock), settings=settings)
    is_free = mode not in ("fixed", "max") and settings.simulated_mhz is None
    num_events = num_full = 0
    while num_full < MOST_ROUNDS:
        is_looked_at = is_free and not num_full and len(search.parts) < MOST_PARTS
        ran = run_at(Clock(sm_mhz=mhz), partial(search.is_off, mhz=mhz) if is_looked_at else None)
        simulated_mhz, num_full = mhz, num_full + (not ran.is_part)
        num_events += ran.num_events
        if mode in ("fixed", "max"):
            break
        step = search.found if ran.is_part else search.step(ran, mhz)
        if not ran.is_part and (step.unsure <= CLOCK_TOLERANCE or not is_free):
            mhz = step.settled_mhz
            if search.slope is not None or not is_free:
                ran = ran.taking(step.cycles, Clock(sm_mhz=mhz))
            break
        mhz = step.next_mhz
    return result_of(
        ran, settings, mhz=mhz, simulated_mhz=simulated_mhz, num_events=num_events, wall_s=time.perf_counter() - began
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockStep:
    """Clock that one simulation leads to."""

    settled_mhz: float
    """SM clock that the activity sustains, in MHz."""
    cycles: float
    """Cycles that the launch takes at that clock, approximately."""
    next_mhz: float
    """SM clock at which to simulate next, in MHz."""
    unsure: float
    """Fraction by which the cycles may change when the launch is simulated at the settled clock."""


@dataclass(slots=True, kw_only=True)
class ClockSearch:
    """Search for the clock that a launch sustains.

    From the second simulation on the search follows the line through the last two.
    """

    limiter: PowerLimiter
    settings: Settings
    last: tuple[float, float] | None = None
    """Clock of the previous simulation, and the clock that it led to, in MHz."""
    last_is_part: bool = False
    """Whether the previous simulation ran only a part of the launch. A part and a full launch lie on no common line."""
    parts: list[tuple[float, float]] = field(default_factory=list)
    """Clock in MHz and cycles of each partial simulation."""
    found: ClockStep = ClockStep(settled_mhz=0.0, cycles=0.0, next_mhz=0.0, unsure=1.0)
    """Result of the previous step."""

    def is_off(self, part: Ran, mhz: float) -> bool:
        """Whether a run that has begun at ``mhz`` needs another clock."""
        self.parts.append((mhz, part.end_cycle))
        return self.step(part, mhz).unsure > PART_TOLERANCE

    @property
    def slope(self) -> float | None:
        """Relative change of the cycles with the clock, from the first and the last partial run; None for close clocks."""
        if not self.parts or abs(self.parts[-1][0] / self.parts[0][0] - 1.0) < CLOCK_DISTANCE:
            return None
        (first, cycles), (last, others) = self.parts[0], self.parts[-1]
        return min(max((cycles / others - 1.0) / (first / last - 1.0), 0.0), 1.0)

    def step(self, ran: Ran, mhz: float) -> ClockStep:
        """Record the run ``ran`` at ``mhz``, and return the next step of the search."""
        share, slope = clock_share(ran), self.slope
        unsure = share if slope is None else min(share, abs(slope - share))
        share = share if slope is None else slope
        settled, cycles = self._settled(activity_of(ran), mhz, share)
        unsure *= abs(settled - mhz) / mhz
        if slope is not None and abs(cycles / ran.end_cycle - 1.0) > MOST_MOVED:
            unsure = 1.0
        next_mhz = settled
        if self.last is not None and mhz != self.last[0] and ran.is_part == self.last_is_part:
            steep = (settled - self.last[1]) / (mhz - self.last[0])
            if -STEEPEST <= steep <= STEEPEST:
                next_mhz = (settled - steep * mhz) / (1.0 - steep)
        self.last, self.last_is_part = (mhz, settled), ran.is_part
        next_mhz = min(max(next_mhz, self.limiter.spec.min_mhz), self.limiter.spec.max_mhz)
        self.found = ClockStep(settled_mhz=settled, cycles=cycles, next_mhz=next_mhz, unsure=unsure)
        return self.found

    def _settled(self, activity: Activity, mhz: float, share: float) -> tuple[float, float]:
        """Clock that ``activity``, measured at ``mhz``, sustains, and the cycles that it takes there, approximately.

        A fraction ``share`` of its cycles passes at parts with a separate clock. These cycles grow with the SM clock, which
        lowers the power and allows a higher clock. Without this term each simulation would cover only half of the distance.
        """
        settled, mode, data = mhz, self.settings.mode, self.settings.data
        for _ in range(MOST_STEPS):
            cycles = activity.cycles * (1.0 + share * (settled / mhz - 1.0))
            before, settled = settled, self.limiter.clock_mhz(replace(activity, cycles=cycles), mode=mode, data=data)
            if abs(settled - before) <= STEP_TOLERANCE * mhz:
                break
        return settled, cycles


def clock_share(ran: Ran) -> float:
    """Share of the cycles that the clock could change, because parts with a separate clock may hold up the rest.

    It is at most the share in which L2 or memory is busy and the arithmetic is not. If memory has spare bandwidth in every
    wave, only its latency counts. It counts once per wave, because later copies are issued ahead.
    """
    busy = busy_shares(ran)
    rest = 1.0 - max(busy["tensor"], busy.get("fma", 0.0))
    share = busy["hbm"] if busy["hbm"] >= SATURATED else min(busy["hbm"], rest)
    num_waves = len(ran.plan.miss_bytes_by_wave)
    looks_ahead = ran.launch.parity_period > 2  # a ring of several stages
    if looks_ahead and ran.plan.traffic and ran.hbm_share_at_most(ran.end_cycle / num_waves) <= IDLE_HBM:
        share = min(share, num_waves * ran.hbm["latency_cycles"] / ran.end_cycle)
    return max(share, min(max(busy["l2"], busy["store"]), rest))


def estimate_clock(plan: LaunchPlan, *, mode: str, data: str) -> float:
    """First estimate of the SM clock in MHz: full waves of arithmetic near its peak, and the planned traffic.

    Most launches need no second simulation with it. The first simulation corrects the estimate.
    """
    launch, gpu = plan.launch, plan.gpu
    waves = launch.num_tiles / plan.num_slots
    peak = peak_flops_per_cycle(launch, gpu)
    work = launch.num_flops / peak * -(-launch.num_tiles // plan.num_slots) / waves if peak else 0.0
    overhead = gpu.dispatcher.launch_cycles + gpu.dispatcher.drain_cycles + 2000.0 * max(1.0, waves)
    hbm_bytes = sum_in_order(item.read_miss_bytes for item in plan.traffic.values())
    l2_bytes = sum_in_order(float(row.bytes_of_tile.sum()) for row in plan.footprints.of_tensors)
    limit = gpu.xbar.coalesce_max_requests if gpu.xbar.coalesce_scope != "sm" else 1
    unmerged = 0.2 + 0.8 / max(1, limit)  # a fifth of the neighbours' requests comes too late to be coalesced
    by_tma = "tma" in launch.features
    clock = Clock(sm_mhz=gpu.clock.max_mhz)
    moved = hbm_bytes / clock.bytes_per_cycle(gb_per_s=gpu.hbm.sustained_read_gb_per_s)
    guess = Activity(
        cycles=max(work, moved) + overhead, num_flops=float(launch.num_flops), rate_class=launch.math_class,
        l2_bytes=0.0 if by_tma else l2_bytes * unmerged, bulk_bytes=l2_bytes * unmerged if by_tma else 0.0,
        fill_bytes=l2_bytes if by_tma else 0.0, hbm_bytes=hbm_bytes, busy_fraction=1.0,
    )
    return PowerLimiter(gpu.clock).clock_mhz(guess, mode=mode, data=data)
