"""Numbers of a launch, of its roles and of its buffers and barriers: types and limits.

In: a launch. Out: a sentence with the name and the number, where one is none that a kernel can have.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from gpusim.errors import LaunchError

MOST_ROLES = 32
"""Warps of a CTA at most; each role has one or more."""

MOST_STAGES = 1 << 16
"""Stages of one ring at most, far more than shared memory holds mbarriers."""

MOST_COUNT = (1 << 31) - 1


def check_launch(launch: Any) -> None:
    """Refuse a launch whose numbers or names no kernel can have.

    Raises:
        LaunchError: the first wrong number, program or name.
    """
    kernel = launch.kernel
    if len(launch.roles) > MOST_ROLES:
        raise LaunchError(f"{kernel}: {len(launch.roles)} roles of one warp or more, a CTA has at most {MOST_ROLES} warps")
    for role in launch.roles:
        if not callable(role.program):
            raise LaunchError(
                f"{kernel}: role {role.name!r} has the program {role.program!r}, wants a function that takes the role's "
                "context and yields ops"
            )
    for what, number, least, most in _counts(launch):
        if not isinstance(number, int | np.integer) or isinstance(number, bool) or not least <= number <= most:
            raise LaunchError(f"{kernel}: {what} is {number!r}, wants an integer from {least} to {most}")
    if not isinstance(launch.num_flops, int | float | np.number) or not 0.0 <= launch.num_flops < math.inf:
        raise LaunchError(f"{kernel}: num_flops is {launch.num_flops!r}, wants a number of 0 or more")
    for kind, names in (
        ("role", [role.name for role in launch.roles]),
        ("buffer", [buffer.name for buffer in launch.buffers]),
        ("barrier", [barrier.name for barrier in (*launch.mbarriers, *launch.named_barriers)]),
    ):
        for name in names:
            if not isinstance(name, str):
                raise LaunchError(f"{kernel}: a {kind} is named {name!r}, wants a text")
        for name, number in Counter(names).items():
            if number > 1:
                raise LaunchError(f"{kernel}: two {kind}s are named {name!r}, wants distinct names")


def _counts(launch: Any) -> Iterator[tuple[str, Any, int, int]]:
    """Name, number, least and most of each count."""
    if launch.num_ctas is not None:
        yield "num_ctas", launch.num_ctas, -MOST_COUNT, MOST_COUNT
    yield "num_tiles", launch.num_tiles, int(launch.num_ctas is None or launch.num_ctas > 0), MOST_COUNT
    yield "cluster_size", launch.cluster_size, 1, MOST_COUNT
    yield "registers_per_thread", launch.registers_per_thread, 1, MOST_COUNT
    yield "set_aside_bytes", launch.set_aside_bytes, -MOST_COUNT, MOST_COUNT
    yield "extra_smem_bytes", launch.extra_smem_bytes, 0, MOST_COUNT
    for role in launch.roles:
        yield f"num_warps of role {role.name!r}", role.num_warps, 1, MOST_COUNT
        yield f"num_exiting_warps of role {role.name!r}", role.num_exiting_warps, 0, role.num_warps - 1
        yield f"num_idle_warps of role {role.name!r}", role.num_idle_warps, 0, MOST_COUNT
    for item in launch.buffers:
        yield f"num_stages of buffer {item.name!r}", item.num_stages, 1, MOST_STAGES
        yield f"stage_bytes of buffer {item.name!r}", item.stage_bytes, 0, MOST_COUNT
    for item in launch.mbarriers:
        yield f"num_stages of mbarrier {item.name!r}", item.num_stages, 1, MOST_STAGES
        yield f"num_arrivals of mbarrier {item.name!r}", item.num_arrivals, 1, MOST_COUNT
    for item in launch.named_barriers:
        yield f"num_threads of barrier {item.name!r}", item.num_threads, 1, MOST_COUNT
