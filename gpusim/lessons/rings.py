"""Ring of lesson 6: the mbarrier phase that each step waits for, and a launch with a reader's roles, right or wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpusim.errors import LaunchError
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import Buffer, Launch, Mbarrier, Program, WarpRole

if TYPE_CHECKING:
    import pandas as pd

TILE_BYTES = 128 * 64 * 2
"""Bytes of a tile of A or B: 128 rows of 64 bf16."""
MATH = wgmma(128, BF16)
"""Atom m64n128k16 on two tiles in shared memory."""


def phases(num_stages: int, num_steps: int) -> pd.DataFrame:
    """Table of the slot of each step, and of the parities that consumer and producer wait for, with its round.

    >>> phases(2, 5)[["stage", "round"]].to_numpy().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2]]
    >>> phases(2, 5)["full: consumer waits for parity"].tolist(), phases(2, 5)["empty: producer waits for parity"].tolist()
    ([0, 0, 1, 1, 0], [1, 1, 0, 0, 1])

    Raises:
        LaunchError: there is no stage or no step.
    """
    import pandas as pd

    if num_stages < 1 or num_steps < 1:
        raise LaunchError(f"phases: {num_stages} stages and {num_steps} steps, wants 1 or more of each")
    steps = range(num_steps)
    return pd.DataFrame({
        "stage": [step % num_stages for step in steps], "round": [step // num_stages for step in steps],
        "full: consumer waits for parity": [step // num_stages & 1 for step in steps],
        "empty: producer waits for parity": [step // num_stages & 1 ^ 1 for step in steps],
    }, index=pd.Index(steps, name="step"))  # fmt: skip


def ring_launch(
    producer: Program, consumer: Program, *, num_stages: int, num_consumers: int = 1, arrivals_on_empty: int = 1
) -> Launch:
    """Launch of one CTA with a producer warp and one or more consumer warpgroups, on rings ``a`` and ``b`` of tiles.

    The mbarriers ``full`` need one arrival per phase, ``empty`` as many as ``arrivals_on_empty``.

    Raises:
        LaunchError: there is no stage, no consumer, or no arrival.
    """
    if min(num_stages, num_consumers, arrivals_on_empty) < 1:
        raise LaunchError(
            f"ring: {num_stages} stages, {num_consumers} consumers, {arrivals_on_empty} arrivals; wants 1 or more of each"
        )
    names = ["consumer"] if num_consumers == 1 else [f"consumer{idx}" for idx in range(num_consumers)]
    return Launch(
        kernel="ring", num_ctas=1, num_tiles=1, registers_per_thread=128,
        roles=(
            WarpRole(name="producer", num_warps=1, program=producer),
            *(WarpRole(name=name, num_warps=4, program=consumer) for name in names),
        ),
        buffers=tuple(Buffer(name=name, stage_bytes=TILE_BYTES, num_stages=num_stages) for name in ("a", "b")),
        mbarriers=(
            Mbarrier(name="full", num_arrivals=1, num_stages=num_stages),
            Mbarrier(name="empty", num_arrivals=arrivals_on_empty, num_stages=num_stages),
        ),
        math_class="16bit",
    )  # fmt: skip


def lone_ring(program: Program, *, num_stages: int) -> Launch:
    """Launch of one CTA whose one warpgroup loads and multiplies, on rings ``a`` and ``b`` and mbarriers ``full``.

    Raises:
        LaunchError: there is no stage.
    """
    both = ring_launch(program, program, num_stages=num_stages)
    return replace(both, kernel="lone_ring", roles=both.roles[1:], mbarriers=both.mbarriers[:1])
