"""Models of microbenchmarks: simulated launches and the cycles of their ranges.

In: roles and launches. Out: cycles between ``RangeStart`` and ``RangeEnd``, and programs without some of their ops.

Models:

* data in L2, at the highest clock
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.launch import Launch, Program, RoleContext, WarpRole
from gpusim.workload.smem.access import AccessPattern


def chained_code(num_cycles: float, gpu: GpuSpec) -> ops.Alu:
    """Instructions that take a warp ``num_cycles``, most of which it waits for its own results."""
    return ops.Alu(num_cycles / gpu.warp_scheduler.dependent_cycles, is_chain=True)


def range_cycles(launch: Launch, gpu: GpuSpec) -> dict[str, list[float]]:
    """Cycles of each range of each role, in the order in which ranges end, CTA by CTA."""
    result = simulate(launch, gpu, clock="max", l2="warm", recorded_sms=range(gpu.num_sms))
    found: dict[str, list[float]] = {}
    for role in result.timeline.roles:
        found.setdefault(role.role, []).extend(span.end_cycle - span.start_cycle for span in role.sections)
    return found


def cta_cycles(gpu: GpuSpec, *roles: WarpRole, **fields: Any) -> float:
    """Cycles that one CTA of these roles takes on ``gpu``, from the first instruction to the end of the last role."""
    launch = Launch(kernel="rate", num_ctas=1, num_tiles=1, roles=roles, **fields)
    result = simulate(launch, gpu, clock="max", l2="warm", recorded_sms="first")
    states = [state for role in result.timeline.roles for state in role.states if state[0] is not WarpState.START]
    return max(end for _, _, end in states) - min(begin for _, begin, _ in states)


@dataclass(frozen=True)
class Without:
    """A GEMM's program without ops of some types, for a kernel that has the same loop without these instructions."""

    program: Program
    lacks: tuple[type[ops.Op], ...]
    num_filled: int = 0
    """Slots of each ring that a store fills once, where copies are lacking."""
    num_others: float = 0.0
    """Instructions that go with what is lacking, of each step's own."""

    def __call__(self, cta: RoleContext) -> Iterator[ops.Op]:
        """Ops of the CTA."""
        for buffer, idx in product("ab", range(self.num_filled)):
            yield ops.SharedStore(AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=128), buffer, idx)
        if self.num_filled:
            yield ops.Syncthreads()
        program: Any = self.program(cta)
        token = None
        try:
            while True:
                op = program.send(token)
                if isinstance(op, ops.LoopBody) and self.num_others:
                    op = replace(op, num_others=op.num_others - self.num_others)
                token = None if isinstance(op, self.lacks) else (yield op)
        except StopIteration:
            return
