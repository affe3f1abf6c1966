"""Whom the slices of L2 serve, and in whose turn: what SMs of an H200 get where they all read or store without end."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import Buffer, GpuSpec, Result, load_gpu, simulate
from gpusim.machine.memory.gpc_ports import parts_of_gpcs
from gpusim.simulate.constants import slots_of
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import changed, contiguous, expect, launch, role, wait

GPU = load_gpu("h200_sxm")
MAX_MHZ = GPU.clock.max_mhz
SLICES = GPU.l2.num_slices * GPU.l2.slice_bytes_per_cycle * GPU.l2.sustained_fraction
LEAD = GPU.l2.partition0_lead_fraction
SM_OF_CTA = slots_of(GPU.dispatcher, GPU.floorplan, 1, 1, GPU.num_sms).tolist()
EVERY_SM = range(GPU.num_sms)
NUM_BYTES, GROUP, NUM_GROUPS = 4096, 4, 75
FROM, UNTIL = 8_000.0, 28_000.0
"""While all are at it."""


def on_sms(program: Any, gpu: GpuSpec = GPU, l2: Any = "warm") -> Result:
    """A CTA on each SM, which runs ``program(sm_idx)``."""

    def of_cta(cta: RoleContext) -> Iterator[Any]:
        yield from program(SM_OF_CTA[cta.cta_idx])

    of = launch(role(of_cta, "all", 4), num_ctas=GPU.num_sms, buffers=(Buffer(name="a", stage_bytes=200_000),))
    return simulate(of, gpu, clock=MAX_MHZ, l2=l2, recorded_sms=EVERY_SM)


ROOMY = replace(GPU, l2=replace(GPU.l2, capacity_bytes=1 << 40))
"""The same with an L2 that writes nothing back."""


def rates(sms: Collection[int], *, stores: bool = False) -> dict[int, float]:
    """Bytes a cycle that each of ``sms`` reads or stores, all of which do so with tiles of their own, eight at once."""

    def program(sm_idx: int) -> Iterator[Any]:
        tokens: list[ops.Token] = []
        for group in range(NUM_GROUPS if sm_idx in sms else 0):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            for step in range(group * GROUP, (group + 1) * GROUP):
                if stores:
                    yield ops.GlobalStore("D", (sm_idx, step), contiguous(NUM_BYTES))
                    continue
                tokens.append((yield ops.GlobalLoad("A", (sm_idx, step), contiguous(NUM_BYTES))))
                if len(tokens) == 8:
                    yield ops.Use(tokens.pop(0))
            yield ops.RangeEnd()

    found = {}
    for of_role in on_sms(program, ROOMY).timeline.roles:
        num = sum(FROM <= span.end_cycle < UNTIL for span in of_role.sections)
        found[of_role.sm_idx] = num * GROUP * NUM_BYTES / (UNTIL - FROM)
    return {sm_idx: found[sm_idx] for sm_idx in sms}


@pytest.mark.parametrize("side", [0, 1])
def test_sms_of_one_side_get_half_of_what_all_slices_serve_but_for_its_lead(side: int) -> None:
    sms = [sm for sm, of_sm in enumerate(GPU.partition_of_sm) if of_sm == side]
    assert sum(rates(sms).values()) == pytest.approx(SLICES / 2 * (1 + LEAD * (1 - 2 * side)), rel=0.01)


def test_gpcs_of_a_side_get_alike_so_that_sms_of_a_larger_one_get_less() -> None:
    got = rates(EVERY_SM)
    of_gpc = [sum(got[sm] for sm in EVERY_SM if GPU.floorplan.gpc_of_sm[sm] == gpc) for gpc in range(8)]
    assert sum(of_gpc) == pytest.approx(SLICES, rel=0.01)
    for gpc in (2, 3, 4, 6):  # three of 16 and one of 18 on a side: a quarter each
        assert of_gpc[gpc] == pytest.approx(SLICES / 8 * (1 - LEAD), rel=0.01)


def test_stores_of_the_far_side_cross_in_turns_of_parts_of_gpcs() -> None:
    got = rates(EVERY_SM, stores=True)
    parts = parts_of_gpcs(GPU.floorplan.gpc_of_sm, GPU.xbar.num_gpc_store_ports)
    far = [sm for sm in EVERY_SM if GPU.partition_of_sm[sm] == 1]
    turn = 2 * GPU.l2.fabric_bytes_per_cycle / 12
    for part in {parts[sm] for sm in far}:  # four GPCs of three parts, of four SMs or six
        assert sum(got[sm] for sm in far if parts[sm] == part) == pytest.approx(turn, rel=0.04)


# ---------------------------------------------------------------------------------------------- one box each


def box_cycles(sms: Collection[int], gpu: GpuSpec = GPU) -> list[float]:
    """Of a box of 16 KiB that each of ``sms`` takes at once out of L2, each its own."""

    def program(sm_idx: int) -> Iterator[Any]:
        if sm_idx in sms:
            yield ops.Alu(4000)  # all have started by then
            yield expect(0, 16384)
            yield ops.TmaLoad("A", (sm_idx, 0), 16384, 16384, 128, "a", 0, "full")
            yield wait(0)

    return [span.end_cycle - span.start_cycle for span in on_sms(program, gpu).timeline.copies]


def test_sms_lie_so_far_apart_as_the_description_says() -> None:
    alone = [box_cycles([sm])[0] for sm in range(0, GPU.num_sms, 12)]
    assert 0.7 * GPU.xbar.sm_distance_cycles < max(alone) - min(alone) <= GPU.xbar.sm_distance_cycles
    alike = changed(GPU, xbar={"sm_distance_cycles": 0.0})
    assert box_cycles([5], alike) == pytest.approx(box_cycles([77], alike))


def test_a_line_waits_at_its_slice_where_others_have_asked_before() -> None:
    """Nobody waits on an idle machine; one of many SMs waits as the queue's length says, in proportion."""
    few, many = ([box_cycles(sms, changed(GPU, l2={"queue_cycles": queue})) for queue in (0.0, 5.0, 10.0)]
                 for sms in ([8, 9], EVERY_SM))  # fmt: skip
    assert few[0] == few[1] == few[2]
    free, single, double = map(sum, many)
    assert single > free and double - free == pytest.approx(2 * (single - free))


# ---------------------------------------------------------------------------------------------- neighbours

SERVED, CARRIED = "lts__t_sectors_srcunit_tex_op_read.sum", "l1tex__m_xbar2l1tex_read_bytes.sum"


@pytest.mark.parametrize(("is_evicted", "served"), [(False, 1), (True, 2)])
def test_a_neighbour_is_joined_in_the_same_fill_alone(is_evicted: bool, served: int) -> None:
    """One of the same GPC that asks later finds the lines in L2, or, when they have left since, reads them anew."""
    first, second = GPU.floorplan.members[0][:2]
    capacity = (2 if is_evicted else 100) * NUM_BYTES
    gpu = changed(GPU, l2={"capacity_bytes": 2 * capacity, "partition_capacity_fraction": 1.0})

    def ask(tile: tuple[int, int]) -> Iterator[Any]:
        yield ops.Use((yield ops.GlobalLoad("A", tile, contiguous(NUM_BYTES))))

    def program(sm_idx: int) -> Iterator[Any]:
        if sm_idx == first:
            yield from ask((0, 0))
            for step in range(8):
                yield from ask((1, step))
        elif sm_idx == second:
            yield ops.Alu(40_000)
            yield from ask((0, 0))

    read = on_sms(program, gpu, l2="cold").counters["dram__bytes_read.sum"]
    assert read == pytest.approx((8 + served) * NUM_BYTES)


def test_two_of_a_gpc_that_ask_at_once_are_served_once_and_each_is_sent_a_copy() -> None:
    first, second = GPU.floorplan.members[0][:2]

    def program(sm_idx: int) -> Iterator[Any]:
        if sm_idx in (first, second):
            yield ops.Alu(8000)
            yield ops.Use((yield ops.GlobalLoad("A", (0, 0), contiguous(NUM_BYTES))))

    counters = on_sms(program, l2="cold").counters
    assert counters[SERVED] * 32 == pytest.approx(NUM_BYTES)
    assert counters[CARRIED] == 2 * NUM_BYTES
