"""A launch planned, traced and packed at once."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.machine.config import GpuSpec
from gpusim.program.programs import Programs
from gpusim.simulate.pack import RunSettings, pack, trace_plan
from gpusim.simulate.plan import LaunchPlan, plan_launch
from gpusim.workload.launch import Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedLaunch:
    """A launch ready for the engine; plan and programs hold at every clock."""

    plan: LaunchPlan
    programs: Programs
    buffer: bytes


def pack_launch(launch: Launch, gpu: GpuSpec, settings: RunSettings, *, is_warm: bool = False) -> PackedLaunch:
    """``gpu`` as :func:`gpusim.simulate.ideal.idealize` gives it."""
    plan = plan_launch(launch, gpu, is_warm=is_warm)
    programs = trace_plan(plan)
    return PackedLaunch(plan=plan, programs=programs, buffer=pack(plan, programs, settings))
