"""What a launch without footprints stores: when it leaves L2, and what reads find of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpusim import Launch, Result, load_gpu, simulate
from gpusim.simulate.settings import L2State
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext

from .kernels import contiguous, launch, role

GPU = load_gpu("h200_sxm")
DIRTY_BYTES = GPU.l2_partitions.dirty_bytes * GPU.l2.num_partitions
TILE_BYTES = 1 << 15
NUM_CTAS = 2048
STORED_BYTES = NUM_CTAS * TILE_BYTES
assert DIRTY_BYTES < STORED_BYTES < 4 * DIRTY_BYTES
Program = Callable[[RoleContext], Iterator[Any]]


def of(program: Program, **more: Any) -> Launch:
    return launch(role(program, num_warps=8), num_ctas=NUM_CTAS, **more)


def ran(program: Program, *, l2: L2State = "cold", **more: Any) -> Result:
    return simulate(of(program, **more), GPU, clock=GPU.clock.max_mhz, l2=l2)


def moved(result: Result) -> tuple[float, float]:
    """Bytes that memory delivers and takes."""
    return result.counters["dram__bytes_read.sum"], result.counters["dram__bytes_write.sum"]


def own_tiles(cta: RoleContext) -> Iterator[Any]:
    for part in range(4):
        yield ops.GlobalStore("out", (cta.cta_idx, 0), contiguous(TILE_BYTES // 4))
        yield ops.Alu(part)


def one_tile(cta: RoleContext) -> Iterator[Any]:
    for _ in range(4):
        yield ops.GlobalStore("out", (0, 0), contiguous(TILE_BYTES // 4))


def stored_then_read(cta: RoleContext) -> Iterator[Any]:
    yield ops.GlobalStore("out", (cta.cta_idx, 0), contiguous(TILE_BYTES))
    yield ops.Use((yield ops.GlobalLoad("out", (cta.cta_idx, 0), contiguous(TILE_BYTES), allocates_in_l1=False)))


def read_alone(cta: RoleContext) -> Iterator[Any]:
    yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, 0), contiguous(TILE_BYTES))))


def in_and_out(cta: RoleContext) -> Iterator[Any]:
    yield from read_alone(cta)
    yield from own_tiles(cta)


def whole(tensor: str, access: Any, **more: Any) -> Footprint:
    def num_bytes(tiles: Any) -> Any:
        return np.full(len(tiles), TILE_BYTES)

    return Footprint(tensor=tensor, access=access, panel_of=lambda tiles: tiles, panel_bytes=num_bytes, **more)


def test_all_that_is_stored_leaves_except_what_may_stay_dirty() -> None:
    assert moved(ran(own_tiles)) == (0.0, pytest.approx(STORED_BYTES - DIRTY_BYTES, abs=TILE_BYTES))


def test_behind_an_earlier_launch_as_much_leaves_and_a_remark_says_what_reads_find() -> None:
    result = ran(own_tiles, l2="warm")
    assert moved(result) == moved(ran(own_tiles))
    assert any("in L2 when it is first read" in remark for remark in result.remarks)


def test_a_tile_that_all_ctas_store_stays_dirty() -> None:
    assert moved(ran(one_tile)) == (0.0, 0.0)


def test_a_cta_that_comes_back_to_a_tile_stores_the_same_lines() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for step in range(512):
            yield ops.GlobalStore("out", (cta.cta_idx % 132, step % 4), contiguous(1024))

    assert moved(ran(program)) == (0.0, 0.0)


def test_reads_find_what_was_stored_shortly_before() -> None:
    assert moved(ran(stored_then_read))[0] == 0.0


def test_reads_of_other_lines_evict_what_is_dirty() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        if cta.cta_idx < 8:
            yield ops.GlobalStore("out", (cta.cta_idx, 0), contiguous(TILE_BYTES))
        yield from read_alone(cta)
        yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, 1), contiguous(TILE_BYTES))))

    assert 2 * GPU.l2.capacity_bytes < 2 * STORED_BYTES
    assert moved(ran(program))[1] == 8 * TILE_BYTES


def test_a_copy_takes_what_it_takes_with_footprints() -> None:
    declared, derived = ran(in_and_out, footprints=(whole("in", "read"), whole("out", "write"))), ran(in_and_out)
    assert derived.cycles == pytest.approx(declared.cycles, rel=0.03)
    assert moved(derived) == pytest.approx(moved(declared), abs=0.03 * STORED_BYTES)
    for name in ("lts__t_sectors_srcunit_ltcfabric.sum", "lts__t_sector_hit_rate.pct"):
        assert derived.counters[name] == pytest.approx(declared.counters[name], rel=0.02)


LEFT_BYTES = 24.5e6
"""What copies leave dirty on an H200: 24 to 26 MB (kernels/smem_copy, ``ladder``)."""


def test_a_tensor_without_footprint_leaves_as_well_where_another_has_one() -> None:
    result = ran(in_and_out, footprints=(whole("in", "read"),))
    for read, written in (moved(result), moved(ran(in_and_out))):
        assert read == STORED_BYTES
        assert written == pytest.approx(STORED_BYTES - LEFT_BYTES, abs=0.05 * STORED_BYTES)
    assert not result.remarks
    result = ran(in_and_out, footprints=(whole("out", "write"),))
    assert any("read from memory once" in remark for remark in result.remarks)


def test_two_walks_over_a_panel_are_found_during_the_run_and_a_remark_names_hints() -> None:
    def program(cta: RoleContext) -> Iterator[Any]:
        for _ in range(2):
            yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, 0), contiguous(TILE_BYTES), allocates_in_l1=False)))

    twice = whole("in", "read", num_passes=2)
    declared, derived = ran(program, footprints=(twice,)), ran(program)
    assert declared.cycles == derived.cycles and not declared.remarks
    hinted = ran(program, footprints=(replace(twice, cache_hint="evict_first"),))
    assert hinted.cycles == derived.cycles
    assert any("rows at random of in have no effect" in remark for remark in hinted.remarks)
