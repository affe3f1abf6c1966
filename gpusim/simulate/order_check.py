"""Order check of a launch on a GPU: its grid is planned and its programs are traced, and nothing is timed.

In: a launch and a GPU. Out: findings, as errors and remarks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from gpusim.errors import DeadlockError, HazardError, SimulationError
from gpusim.machine.config import GpuSpec
from gpusim.program.order import order_findings
from gpusim.program.programs import Programs
from gpusim.simulate.pack import trace_plan
from gpusim.simulate.plan import plan_launch
from gpusim.workload.finding import Finding
from gpusim.workload.launch import Launch, Program, RoleContext

TESTED = "gpusim.", "gpusim_kernels_"
"""Beginnings of the names of modules whose programs tests have checked: kernel models, and cases of ``kernels/``."""

LEAST_OPS, SIMULATED_OPS = 600, 4500
"""Ops that are checked before a simulation: at least, and one of so many that are simulated.

Checking an op takes some 30 us, simulating one 0.3 us. So a check takes 20 ms, or 2 to 4 % of the simulation."""


def check_launch(launch: Launch, gpu: GpuSpec) -> list[Finding]:
    """Findings of a launch, and of the launches that follow it.

    >>> from gpusim import GemmParams, load_gpu
    >>> gpu = load_gpu("h200_sxm")
    >>> check_launch(GemmParams(m=512, n=512, k=512).launch(gpu), gpu)
    []

    Raises:
        LaunchError: the GPU cannot run it, or an op is refused.
    """
    found = order_findings(launch, trace_plan(plan_launch(launch, gpu, is_warm=False)))
    return found + [finding for other in launch.following for finding in check_launch(other, gpu)]


def is_tested(launch: Launch) -> bool:
    """Whether all programs of a launch are those of the library or of ``kernels/``."""
    return all(_module_of(role.program).startswith(TESTED) for role in launch.roles)


def _module_of(program: Program) -> str:
    inner = program.func if isinstance(program, partial) else program
    return getattr(inner, "__module__", None) or ""


def without_order_check(launch: Launch) -> Launch:
    """``launch`` as one whose order ``simulate`` does not check, for example because its data do not matter."""
    return replace(launch, roles=tuple(replace(role, program=partial(_as_it_is, role.program)) for role in launch.roles))


def _as_it_is(program: Program, cta: RoleContext) -> Any:
    return program(cta)


def errors_and_remarks(launch: Launch, programs: Programs) -> tuple[SimulationError | None, tuple[str, ...]]:
    """Error of the first finding that is one, and remarks of all others, for a launch that has been traced.

    Of a large launch only so many ops are checked that it takes a small part of the simulation. A remark says so.
    """
    of_classes = programs.programs["num_ops"][programs.class_programs].sum(axis=1)
    num_ops = int(of_classes[programs.cta_class].sum())
    found = order_findings(launch, programs, most_ops=max(LEAST_OPS, num_ops // SIMULATED_OPS))
    errors = [finding for finding in found if finding.is_error]
    if not errors:
        return None, tuple(finding.message for finding in found)
    more = f" (and {len(errors) - 1} more: gpusim lint)" if len(errors) > 1 else ""
    kind = DeadlockError if errors[0].kind == "deadlock" else HazardError
    return kind(f"{errors[0]}{more}"), ()
