"""A slot that has fallen free takes the next CTA when the round of the distributor comes to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, RoleContext, WarpRole

NUM_WAVES = 4


def alike(cta: RoleContext) -> Iterator[Any]:
    """All CTAs take as long."""
    yield ops.Alu(4000.0)


def placed(gpu: GpuSpec) -> list[int]:
    """The SM of each CTA, in order of their numbers; all are held up by nothing but the distributor."""
    launch = Launch(
        kernel="alike", num_ctas=NUM_WAVES * gpu.num_sms, num_tiles=NUM_WAVES * gpu.num_sms, registers_per_thread=255,
        roles=(WarpRole(name="all", num_warps=8, program=alike),),
    )
    result = simulate(launch, gpu, clock="max", recorded_sms=range(gpu.num_sms))
    return [role.sm_idx for role in sorted(result.timeline.roles, key=lambda role: role.cta_idx)]


def waves(sms: list[int], size: int) -> list[list[int]]:
    return [sms[at : at + size] for at in range(0, len(sms), size)]


@pytest.mark.parametrize("round_cycles", [0.0, 132.0])
def test_every_sm_takes_one_cta_of_each_wave(round_cycles: float) -> None:
    gpu = load_gpu("h200_sxm")
    gpu = replace(gpu, dispatcher=replace(gpu.dispatcher, round_cycles=round_cycles))
    first, *later = waves(placed(gpu), gpu.num_sms)
    assert all(sorted(wave) == sorted(first) == list(range(gpu.num_sms)) for wave in later)


def test_without_a_round_slots_are_refilled_as_they_fall_free() -> None:
    gpu = load_gpu("h200_sxm")
    gpu = replace(gpu, dispatcher=replace(gpu.dispatcher, round_cycles=0.0))
    first, *later = waves(placed(gpu), gpu.num_sms)
    assert all(wave == first for wave in later)


def test_with_a_round_neighbours_of_later_waves_are_no_neighbours() -> None:
    """As launch_order's ``refill`` has it of CTAs that stay alike."""
    gpu = load_gpu("h200_sxm")
    first, *later = waves(placed(gpu), gpu.num_sms)

    def num_pairs(wave: list[int]) -> int:
        return sum(one // 2 == other // 2 for one, other in zip(wave[::2], wave[1::2], strict=True))

    assert num_pairs(first) > 60
    assert all(num_pairs(wave) < 10 for wave in later)
