"""Accesses of one SM beside one another: global ones in shared memory's stage, operand reads, lines that L1 waits for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim import load_gpu
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .kernels import changed, contiguous, cycles, ends_of, role, run, shared

H200 = load_gpu("h200_sxm")
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"


# ---------------------------------------------------------------------------------------------- global beside shared


def read_at(num_passing: int, start: int) -> float:
    """When 100 wavefronts that are read from cycle ``start`` on are there, beside so many lines of global loads."""
    fast = {"requests_per_cycle": 1e3, "tag_lines_per_cycle": 1e3, "wavefronts_per_cycle": 1e3}
    gpu = changed(smem={"global_load_wavefronts": 1.0}, l1=fast)

    def passing(cta: RoleContext) -> Iterator[Any]:
        if num_passing:
            yield ops.GlobalLoad("A", (0, 0), contiguous(128 * num_passing))

    def reading(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(start / 2)  # an integer lane for two threads
        yield ops.Use((yield ops.SharedLoad(shared(100))))

    found = run(role(passing, "passing"), role(reading, "reading"), gpu=gpu)
    assert found.counters[WAVEFRONTS] == 100  # those that pass are no accesses of shared memory
    return ends_of(found, "reading")[0]


@pytest.mark.parametrize(
    ("num_passing", "start", "later"), [(50, 0, 50), (50, 40, 10), (50, 60, 0), (300, 120, 100)]
)
def test_a_busy_stage_lets_one_pass_beside_each_wavefront_and_an_idle_one_all(
    num_passing: int, start: int, later: float
) -> None:
    assert read_at(num_passing, start) - read_at(0, start) == pytest.approx(later, abs=1.0)


# ---------------------------------------------------------------------------------------------- operand reads go first


def test_warps_that_store_beside_anothers_train_take_the_rest_when_it_is_over() -> None:
    """64 wgmma of 64 cycles whose operands take 48 of them: in the train's 4096 cycles few of 4000 wavefronts pass."""

    def train(cta: RoleContext) -> Iterator[Any]:
        yield ops.WgmmaFence()
        yield ops.Wgmma(wgmma(128, BF16), 64)
        yield ops.WgmmaCommitGroup()
        yield ops.WgmmaWaitGroup(0)

    def store(cta: RoleContext) -> Iterator[Any]:
        yield ops.Alu(100, is_chain=True)
        yield ops.SharedStore(shared(4000, 4000))

    alone, math, both = (
        cycles(*(role(program, program.__name__, 4) for program in programs), gpu=H200)
        for programs in ((store,), (train,), (train, store))
    )
    assert math + 0.7 * 4000 < both < math + alone


# ---------------------------------------------------------------------------------------------- lines on their way to L1


def loads_cycles(num: int, cost: float, *, are_there: bool = False) -> float:
    """Of so many loads in a row of one line, which the first of them, or one before, has asked L2 for."""
    gpu = changed(H200, l1={"hit_on_miss_cycles": cost})

    def program(cta: RoleContext) -> Iterator[Any]:
        if are_there:
            yield ops.Use((yield ops.GlobalLoad("A", (0, 0), contiguous(128))))
        yield ops.RangeStart(ops.Section.MAINLOOP)
        tokens = []
        for _ in range(num):
            tokens.append((yield ops.GlobalLoad("A", (0, 0), contiguous(128))))
        for token in tokens:
            yield ops.Use(token)
        yield ops.RangeEnd()

    ((span,),) = (item.sections for item in run(program, gpu=gpu).timeline.roles)
    return span.end_cycle - span.start_cycle


@pytest.mark.parametrize("cost", [0.5, 1.0])
def test_who_asks_while_a_line_is_on_its_way_takes_longer(cost: float) -> None:
    """Of 1000 in a row those whose turn comes before the line is there; who asks when it is there does not."""
    there_at = loads_cycles(1, cost)
    assert loads_cycles(1000, cost) == pytest.approx(1000 + cost * there_at / (1.0 + cost), abs=1.0)
    assert loads_cycles(1000, cost, are_there=True) == loads_cycles(1000, 0.0, are_there=True)
