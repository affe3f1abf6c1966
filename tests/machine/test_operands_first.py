"""Operand reads of wgmma go first: until they end accesses of warps have what they leave, and then the whole stage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import Launch, WarpRole, load_gpu, simulate
from gpusim.machine.memory.smem import TURN_WAVEFRONTS, Smem, SmemCounters
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

TOY = load_gpu("toy")


def stage(*, returns: float = 100.0) -> Smem:
    """A stage of a wavefront a cycle, of which operand reads leave a quarter until cycle 40."""
    spec = replace(TOY.smem, operand_load_registers_per_cycle=returns)
    assert spec.wavefronts_per_cycle == 1.0
    smem = Smem(spec, counters=SmemCounters())
    smem.read_operands(0.25, 0.125, 40.0)
    return smem


@pytest.mark.parametrize(("wavefronts", "end", "left"), [(8, 32, 0), (10, 40, 0), (20, 40, 10), (300, 40, 290)])
def test_until_they_end_a_quarter_passes(wavefronts: float, end: float, left: float) -> None:
    assert stage().store(wavefronts, at_cycle=0.0, weight=1.0) == (pytest.approx(end), pytest.approx(left))


def test_then_all_of_it_a_turn_at_a_time() -> None:
    smem = stage()
    end, left = smem.store(20.0, at_cycle=0.0, weight=1.0)
    assert smem.store(left, at_cycle=end, weight=1.0) == (50.0, 0.0)
    assert smem.store(TURN_WAVEFRONTS + 8.0, at_cycle=60.0, weight=1.0) == (60.0 + TURN_WAVEFRONTS, 8.0)
    assert smem.counters.store_wavefronts == 20.0 + TURN_WAVEFRONTS


def test_an_access_behind_one_that_takes_all_they_leave_waits_for_their_end() -> None:
    smem = stage()
    smem.store(30.0, at_cycle=0.0, weight=1.0)
    assert smem.store(4.0, at_cycle=8.0, weight=1.0) == (40.0, 4.0)


def test_loads_use_no_more_than_returns() -> None:
    """An eighth of a register a cycle: 5 of 12 wavefronts of a register each by cycle 40."""
    assert stage(returns=0.125).load(12.0, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0) == (40.0, 7.0)


def test_loads_with_conflicts_have_a_share_of_their_own() -> None:
    assert stage().load(12.0, registers_per_wavefront=1.0, at_cycle=0.0, weight=1.0) == (40.0, 2.0)
    assert stage().load(12.0, registers_per_wavefront=0.5, at_cycle=0.0, weight=1.0) == (40.0, 7.0)


def test_lines_of_global_stores_pass_as_wavefronts_and_are_not_counted() -> None:
    smem = stage()
    assert smem.pass_lines(12.0, at_cycle=0.0, weight=1.0) == (40.0, 2.0)
    assert smem.counters.wavefronts == 0.0
    assert smem.is_read(39.0) and not smem.is_read(40.0)


def test_without_wgmma_an_access_is_one() -> None:
    smem = Smem(TOY.smem, counters=SmemCounters())
    assert smem.store(300.0, at_cycle=0.0, weight=1.0) == (300.0, 0.0)


def test_warps_that_store_beside_anothers_train_take_the_rest_when_it_is_over() -> None:
    """64 wgmma of 64 cycles whose operands take 48 of them: in the train's 4096 cycles few of 4000 wavefronts pass."""
    h200 = load_gpu("h200_sxm")
    big = AccessPattern(num_requests=4000, num_wavefronts=4000, num_bytes=128 * 4000)

    def train(cta: RoleContext) -> Iterator[Any]:
        del cta
        yield ops.WgmmaFence()
        yield ops.Wgmma(wgmma(128, BF16), 64)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    def store(cta: RoleContext) -> Iterator[Any]:
        del cta
        yield ops.Alu(100, is_chain=True)
        yield ops.SharedStore(big)

    def end_of(programs: dict[str, Any]) -> float:
        launch = Launch(
            kernel="beside", num_ctas=1, num_tiles=1, registers_per_thread=168, math_class="16bit",
            roles=tuple(WarpRole(name=name, num_warps=4, program=program) for name, program in programs.items()),
        )  # fmt: skip
        return simulate(launch, h200, clock="max").cycles

    alone, math, both = end_of({"store": store}), end_of({"train": train}), end_of({"train": train, "store": store})
    assert math + 0.7 * 4000 < both < math + alone
