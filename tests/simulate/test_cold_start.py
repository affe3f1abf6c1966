"""Flushed caches hold up the first CTAs of a launch, and those alone. Toy's numbers are round."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import pytest

from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

TOY = load_gpu("toy")
COLD = replace(TOY, dispatcher=replace(TOY.dispatcher, cold_start_cycles=100.0))


def cycles(gpu: Any, l2: Literal["cold", "warm"], *, num_waves: int, ideals: tuple[str, ...] = ()) -> float:
    """Of CTAs that fill an SM each and touch no memory."""

    def program(cta: RoleContext) -> Iterator[Any]:
        del cta
        yield ops.Alu(40.0)

    num_ctas = num_waves * gpu.num_sms
    launch = Launch(
        kernel="nothing", num_ctas=num_ctas, num_tiles=num_ctas, registers_per_thread=255,
        roles=(WarpRole(name="all", num_warps=8, program=program),),
    )
    return simulate(launch, gpu, clock="max", l2=l2, ideals=ideals).cycles


@pytest.mark.parametrize("num_waves", [1, 3])
def test_a_cold_launch_takes_that_much_longer_however_many_waves_follow(num_waves: int) -> None:
    warm = cycles(COLD, "warm", num_waves=num_waves)
    assert warm == cycles(TOY, "cold", num_waves=num_waves)
    assert cycles(COLD, "cold", num_waves=num_waves) == warm + 100.0


def test_a_free_launch_has_no_cold_start() -> None:
    assert cycles(COLD, "cold", num_waves=1, ideals=("launch",)) == cycles(TOY, "warm", num_waves=1, ideals=("launch",))
