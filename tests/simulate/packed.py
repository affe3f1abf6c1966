"""A launch planned, traced and packed at once."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.machine.config import GpuSpec
from gpusim.program.programs import Programs
from gpusim.simulate.pack import pack, trace_plan
from gpusim.simulate.plan import LaunchPlan, plan_launch
from gpusim.simulate.settings import IN_L2, Settings
from gpusim.units import Clock
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLaunch:
    """A launch ready for the engine; plan and programs hold at every clock."""

    plan: LaunchPlan
    programs: Programs
    buffer: bytes


def pack_launch(launch: Launch, gpu: GpuSpec, clock: Clock, settings: Settings) -> PackedLaunch:
    """``gpu`` as :func:`gpusim.simulate.idealize.idealize` gives it."""
    plan = plan_launch(launch, gpu, is_warm=settings.l2 in IN_L2)
    programs = trace_plan(plan)
    return PackedLaunch(plan=plan, programs=programs, buffer=pack(plan, programs, clock, settings))
