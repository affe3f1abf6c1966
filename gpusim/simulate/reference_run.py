"""Run of the reference engine in simpy: cycles, counters and warp states.

In: the plan of a launch. Out: a :class:`gpusim.simulate.engine_run.Ran`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.machine.counters import PartCounters
from gpusim.simulate.engine_run import Ran
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.settings import Settings
from gpusim.simulate.timeline import WarpState
from gpusim.units import Clock

if TYPE_CHECKING:
    from gpusim.reference import Answer


def reference_ran(plan: LaunchPlan, clock: Clock, answer: Answer) -> Ran:
    """Outcome of a run, from an answer of the reference.

    The reference does not report when SMs were empty, so they count as active during the full launch. Sections are not part
    of the core; nothing is recorded or idealized. The instructions are those that the launch declares.
    """
    parts: dict[str, dict[str, float]] = {}
    for name, value in answer.counters.items():
        part, _, counter = name.partition(".")
        parts.setdefault(part, {})[counter] = value
    return Ran(
        plan=plan, clock=clock, taking=lambda cycles, at: reference_ran(plan, at, replace(answer, cycles=cycles)),
        end_cycle=answer.cycles, num_events=answer.num_events, active_cycles=answer.cycles * plan.gpu.num_sms,
        counted=PartCounters.of(parts), instructions=plan.launch.features & {"tma", "mma_sync", "wgmma"},
        role_totals={
            role.name: [answer.states.get(role.name, {}).get(state.label, 0.0) for state in WarpState]
            for role in plan.launch.roles
        },
    )


def reference_runs(plan: LaunchPlan, settings: Settings) -> Callable[[Clock, object], Ran]:
    """Function that runs a planned launch at a clock, always to its end.

    Raises:
        LaunchError: a counterfactual that the reference does not have.
    """
    from gpusim.reference import simulate

    if settings.ideals:
        raise LaunchError(
            "engine 'reference' cannot make a part free, as explain does; use engine 'native' (--engine native)"
        )

    def run(clock: Clock, ends: object = None) -> Ran:
        return reference_ran(plan, clock, simulate(plan.launch, plan.gpu, sm_mhz=clock.sm_mhz, is_warm=plan.is_warm))

    return run
