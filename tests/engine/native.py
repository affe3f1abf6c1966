"""What the native engine says of a launch, as ``oracle.py`` has it of the Python engine."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gpusim.errors import GpusimError
from gpusim.machine.config import GpuSpec
from gpusim.program.records import COUNTERS, SM_TOTALS
from gpusim.simulate.ideal import idealize
from gpusim.simulate.native import NativeRun, native_runs
from gpusim.simulate.plan import plan_launch
from gpusim.units import Clock
from gpusim.workload.launch import Launch

from .oracle import Answer, L2State

TOTALS = ("last_exit_cycle", "exit_cycles", "copy_cycles", "num_copies", "link_busy_cycles")
MOST_OPS, MOST_EVENTS = 1_000_000, 100_000_000


def native_answer(
    launch: Launch, gpu: GpuSpec, *, mhz: float, l2: L2State = "cold", ideals: Collection[str] = ()
) -> Answer:
    """Simulate a launch and those that follow it."""
    chosen = frozenset(ideals)
    free = idealize(gpu, chosen)
    try:
        first = _answer(launch, free, mhz, l2, chosen)
        others = [
            _answer(other, free, mhz, "flushed" if l2 == "flushed" else "warm", chosen) for other in launch.following
        ]
    except GpusimError as error:
        return Answer(error={"type": type(error).__name__, "sentence": str(error)})
    return replace(first, following=[other.frozen() for other in others])


def _answer(launch: Launch, gpu: GpuSpec, mhz: float, l2: L2State, ideals: frozenset[str]) -> Answer:
    plan = plan_launch(launch, gpu, is_warm=l2 == "warm")
    run_at = native_runs(
        plan, ideals=ideals, is_flushed=l2 == "flushed", recorded_sms=frozenset(), max_ops=MOST_OPS, max_events=MOST_EVENTS,
        on_progress=None,
    )  # fmt: skip
    ran = run_at(Clock(sm_mhz=mhz))
    totals = ran.totals
    return Answer(
        cycles=ran.end_cycle, num_events=ran.num_events,
        trace_hash=f"{int(totals['trace_hash_high']) << 32 | int(totals['trace_hash_low']):016x}",
        totals={name: totals[name] for name in TOTALS}, counters=_counters(ran),
        role_totals={name: list(cycles) for name, cycles in ran.role_totals.items()},
        epilogue_cycles=dict(ran.epilogue_cycles),
        sm_totals=dict(zip(SM_TOTALS, ran.results["sm_totals"].reshape(-1, len(SM_TOTALS)).T.tolist(), strict=True)),
        ideals_met=sorted(ran.met),
    )  # fmt: skip


def _counters(ran: NativeRun) -> dict[str, dict[str, float]]:
    return {part: {name: getattr(getattr(ran.counted, part), name) for name in names} for part, names in COUNTERS.items()}
