"""A run of the reference in simpy, as a summary reads it: cycles, counters and states.

In: the plan of a launch. Out: what :class:`.ran.Ran` asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.simulate.plan import LaunchPlan
from gpusim.simulate.ran import OpsRun, PartCounters, Ran
from gpusim.simulate.timeline import Timeline, WarpState
from gpusim.units import Clock

if TYPE_CHECKING:
    from gpusim.reference import Answer


@dataclass(frozen=True, kw_only=True)
class ReferenceRun(Ran):
    """One launch that the reference has run to its end."""

    answer: Answer

    def taking(self, cycles: float, clock: Clock) -> ReferenceRun:
        """The same at a clock near by, where it takes so many cycles."""
        return replace(self, clock=clock, answer=replace(self.answer, cycles=cycles))

    @property
    def end_cycle(self) -> float:
        """Cycles of the launch."""
        return self.answer.cycles

    @property
    def num_events(self) -> int:
        """Events that simpy has processed."""
        return self.answer.num_events

    @property
    def met(self) -> set[str]:
        """Nothing is idealized by the reference."""
        return set()

    @cached_property
    def role_totals(self) -> Mapping[str, list[float]]:
        """Cycles of each role in each :class:`WarpState`."""
        return {
            role.name: [self.answer.states.get(role.name, {}).get(state.label, 0.0) for state in WarpState]
            for role in self.launch.roles
        }

    @property
    def epilogue_cycles(self) -> Mapping[str, float]:
        """Sections have no part in the core."""
        return {}

    @property
    def timeline(self) -> Timeline:
        """Nothing is recorded."""
        return Timeline()

    @cached_property
    def counted(self) -> PartCounters:
        """Counters of each part."""
        parts: dict[str, dict[str, float]] = {}
        for name, value in self.answer.counters.items():
            part, _, counter = name.partition(".")
            parts.setdefault(part, {})[counter] = value
        return PartCounters.of(parts)

    @property
    def busy(self) -> None:
        """The reference does not say it."""
        return None

    @property
    def active_cycles(self) -> float:
        """The whole launch, for the reference does not say when SMs were empty."""
        return self.end_cycle * self.gpu.num_sms

    @property
    def ops_run(self) -> OpsRun:
        """Which kinds of instructions the launch says that it has."""
        features = self.launch.features
        return OpsRun(
            has_tma="tma" in features, has_mma_sync="mma_sync" in features, has_wgmma="wgmma" in features,
            wgmma_types=frozenset(),
        )


def reference_runs(plan: LaunchPlan, *, ideals: frozenset[str]) -> Callable[[Clock, object], ReferenceRun]:
    """What runs a planned launch at a clock, always to its end.

    Raises:
        LaunchError: a counterfactual that the reference does not have.
    """
    from gpusim.reference import simulate

    if ideals:
        raise LaunchError("engine 'reference' idealizes nothing; use engine 'native'")

    def run(clock: Clock, ends: object = None) -> ReferenceRun:
        answer = simulate(plan.launch, plan.gpu, sm_mhz=clock.sm_mhz, is_warm=plan.is_warm)
        return ReferenceRun(plan=plan, clock=clock, ideals=ideals, answer=answer)

    return run
