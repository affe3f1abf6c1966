"""Named parts of a program: no instructions."""

from __future__ import annotations

from gpusim.errors import LaunchError
from gpusim.simulate.role import Pause, Role
from gpusim.simulate.timeline import Span, WarpState
from gpusim.workload import ops


def range_start(role: Role, op: ops.RangeStart) -> Pause:
    """A part begins; it may be one that a counterfactual makes free."""
    if op.section is ops.Section.EPILOGUE:  # the accumulators are read
        role.spend(WarpState.MATH_PIPE, role.mma_done)
    role.sections.append((op.section.value, role.t + role.engine.offset_cycles))
    if role.engine.is_ideal(op.section.value):
        role.handlers = role.engine.free_handlers
    return None


def range_end(role: Role, op: ops.RangeEnd) -> Pause:
    """The part that began last ends."""
    if not role.sections:
        raise LaunchError(f"{role.who()} ends a range that it never started; yield RangeStart first")
    name, start = role.sections.pop()
    role.handlers = role.engine.handlers
    role.engine.section_ended(role, name, role.t + role.engine.offset_cycles - start)
    if role.record is not None:
        role.record.sections.append(Span(start, role.t + role.engine.offset_cycles, name))
    return None
