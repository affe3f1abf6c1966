"""Wrong kernels on request: a launch one of whose ops moves or multiplies other elements, or is left out.

In: a launch, a class of ops, and a change of their data accesses. Out: a launch. Tests and the explorer run it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from gpusim.workload.data_access import DataAccess
from gpusim.workload.launch import Launch


def mutated(launch: Launch, kind: type[Any], change: Callable[[DataAccess], DataAccess] | None) -> Launch:
    """``launch`` with the data accesses of ops of a class changed, or without these ops."""

    def program_of(program: Any) -> Any:
        def wrong(cta: Any) -> Iterator[Any]:
            steps, answer = program(cta), None
            while True:
                try:
                    op = steps.send(answer)
                except StopIteration:
                    return
                answer = None
                if not isinstance(op, kind):
                    answer = yield op
                elif change is not None:
                    answer = yield replace(op, data=partial(changed, op))

        return wrong

    def changed(op: Any, _new: Any) -> Any:
        assert change is not None
        accesses = op.data(op) if callable(op.data) else op.data
        return tuple(map(change, accesses)) if isinstance(accesses, tuple) else change(accesses)

    roles = tuple(replace(role, program=program_of(role.program)) for role in launch.roles)
    return replace(launch, roles=roles, following=tuple(mutated(each, kind, change) for each in launch.following))


def other_swizzle(access: Any) -> Any:
    """Elements in shared memory at places that another swizzle gives them: every second row of 128 bytes is shifted."""

    def moved(offsets: Any) -> Any:
        return np.where(offsets < 0, -1, offsets ^ (offsets >> 3 & 16))

    if hasattr(access, "issues"):
        return replace(
            access, issues=tuple(tuple(replace(issue, a=moved(issue.a)) for issue in issues) for issues in access.issues)
        )
    return replace(access, offsets=moved(access.offsets))
