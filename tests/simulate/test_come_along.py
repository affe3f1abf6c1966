"""Tiles that L2 takes from memory together with one that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from gpusim import Buffer, GemmParams, Launch, Mbarrier, WarpRole, simulate
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext

TOY, H200 = load_gpu("toy"), load_gpu("h200_sxm")
TILE_BYTES, NUM_STEPS = 8192, 8
READ, SECTORS = "dram__bytes_read.sum", "lts__t_sectors_srcunit_tex_op_read.sum"


def walk(*, is_pair: bool, new_fraction: float = 1.0, gpu: GpuSpec = TOY) -> tuple[list[float], dict[str, float]]:
    """(cycles of each step, counters) of one CTA that asks for a tile, waits for it, and asks for the next."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for step in range(NUM_STEPS):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.MbarrierArriveExpectTx("full", 0, TILE_BYTES)
            yield ops.TmaLoad(
                "A", (0, step), TILE_BYTES, TILE_BYTES, 64, "ring", 0, "full",
                promoted_tiles=((0, step ^ 1),) if is_pair else (), new_fraction=new_fraction if step else 1.0,
            )
            yield ops.MbarrierWait("full", 0, step & 1)
            yield ops.RangeEnd()

    launch = Launch(
        kernel="walk", num_ctas=1, num_tiles=1, roles=(WarpRole(name="loader", num_warps=1, program=program),),
        buffers=(Buffer(name="ring", stage_bytes=TILE_BYTES),), mbarriers=(Mbarrier(name="full", num_arrivals=1),),
    )  # fmt: skip
    result = simulate(launch, gpu, clock="max", recorded_sms="first")
    spans = result.timeline.roles[0].sections
    return [span.end_cycle - span.start_cycle for span in spans], dict(result.counters)


def test_every_second_tile_is_there_already_and_memory_gives_no_more() -> None:
    alone, counted_alone = walk(is_pair=False)
    pairs, counted = walk(is_pair=True)
    assert pairs[0] == alone[0]
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        assert second < first - 0.5 * TOY.hbm.latency_ns  # toy: a cycle is no longer than a nanosecond
    assert counted[READ] == counted_alone[READ] == NUM_STEPS * TILE_BYTES


def test_rows_that_begin_their_blocks_at_unlike_steps_wait_for_memory_at_each_and_are_promoted() -> None:
    """An H200 reads a quarter more of what comes with its neighbours (one tile of 64 rows of a line, eight steps)."""
    alone, counted_alone = walk(is_pair=False, gpu=H200)
    pairs, counted_pairs = walk(is_pair=True, gpu=H200)
    some, counted = walk(is_pair=False, new_fraction=0.5, gpu=H200)
    for each, other, second in zip(some[1::2], alone[1::2], pairs[1::2], strict=True):
        assert second < each - 0.5 * H200.hbm.latency_ns and each <= other  # fewer rows, of which the slowest counts
    assert sum(some) < sum(alone)
    assert counted[READ] == counted_alone[READ] == counted_pairs[READ] == NUM_STEPS * TILE_BYTES
    sectors = NUM_STEPS * TILE_BYTES / 32
    assert counted_alone[SECTORS] == sectors and counted_pairs[SECTORS] == 1.25 * sectors
    assert counted[SECTORS] == sectors * (1 + 0.25 * (NUM_STEPS - 1) / NUM_STEPS)  # the first has no tile before


@pytest.mark.parametrize("unasked", [None, 0.0, 0.25, 0.75])
def test_what_nobody_asked_for_is_missed_and_in_no_hit_rate(unasked: float | None) -> None:
    """Eight tiles of 256 sectors, each read once, cold: without neighbours that come along nothing is found."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for step in range(NUM_STEPS):
            yield ops.MbarrierArriveExpectTx("full", 0, TILE_BYTES)
            yield ops.TmaLoad("A", (0, step), TILE_BYTES, TILE_BYTES, 64, "ring", 0, "full")
            yield ops.MbarrierWait("full", 0, step & 1)

    launch = Launch(
        kernel="walk", num_ctas=1, num_tiles=1, roles=(WarpRole(name="loader", num_warps=1, program=program),),
        buffers=(Buffer(name="ring", stage_bytes=TILE_BYTES),), mbarriers=(Mbarrier(name="full", num_arrivals=1),),
        footprints=(Footprint(
            tensor="A", access="read", panel_of=np.zeros_like, panel_bytes=lambda tiles: 0 * tiles + NUM_STEPS * TILE_BYTES,
            num_steps=NUM_STEPS, unasked=None if unasked is None else lambda block_bytes: unasked,
        ),),
    )  # fmt: skip
    counters = simulate(launch, TOY, clock="max").counters
    assert counters["lts__t_sectors_srcunit_tex_lookup_miss.sum"] == NUM_STEPS * TILE_BYTES / 32
    assert counters["lts__t_sector_hit_rate.pct"] == pytest.approx(100.0 * (unasked or 0.0))


def unasked_of(which: int = 0, **options: Any) -> float:
    """Of A or B of a GEMM, what comes beside what is asked for where L2 takes 64 bytes at least."""
    params = {"m": 1024, "n": 1024, "k": 1024, "tile": "128x128x64", **options}
    found = GemmParams.model_validate(params).launch(load_gpu("h200_sxm")).footprints[which].unasked
    assert found is not None
    return found(64)


def test_copies_of_part_of_a_line_bring_the_rest_of_it() -> None:
    by_warps = {"copy": "cp_async", "math": "mma_sync", "schedule": "multistage"}
    assert unasked_of() == unasked_of(1) == 0.0
    assert unasked_of(tile="128x128x32", fetch_bytes=64, **by_warps) == 0.0  # 64 bytes, as L2 takes anyway
    assert unasked_of(tile="128x128x32", fetch_bytes=128, **by_warps) == 0.5
    # rows of 16 lines and 32 bytes: lines begin 0, 32, 64 and 96 bytes into a box, which brings so much of its last one
    assert unasked_of(k=1040) == pytest.approx((0 + 96 + 64 + 32) / 4 / 128, abs=0.02)
    # rows of N: tiles of 192 elements are whole lines, those of 96 come in boxes of half a line
    assert unasked_of(1, layout="tt", n=960, tile="128x192x64") == 0.0
    assert unasked_of(1, layout="tt", n=960, tile="128x96x64") == 0.5


def cycles(k: int, fetch_bytes: int | None) -> float:
    """Of a GEMM of one tile whose k-steps have rows of 64 bytes, a load ahead."""
    params = GemmParams(
        m=128, n=128, k=k, tile="128x128x32", stages=2, schedule="multistage", copy="cp_async", math="mma_sync",
        fetch_bytes=fetch_bytes,
    )  # fmt: skip
    gpu = load_gpu("h200_sxm")
    return simulate(params.launch(gpu), gpu, clock="max").cycles


def test_a_gemm_gains_where_lines_hold_two_of_its_steps() -> None:
    assert cycles(1024, 128) == cycles(1024, None)  # as ptxas has it with two register stages
    assert cycles(1024, 128) < 0.9 * cycles(1024, 64)
    assert cycles(32, 128) == cycles(32, 64)  # one step has no other


def test_what_comes_with_its_neighbour_is_read_for_a_quarter_more() -> None:
    """One CTA, 16 steps of 64 rows of A and of B, four sectors each; a step of two boxes promotes within itself."""
    gpu = load_gpu("h200_sxm")

    def read(fetch_bytes: int, depth: int) -> float:
        launch = GemmParams.model_validate({
            "m": 64, "n": 64, "k": 1024, "tile": (64, 64, depth), "copy": "tma", "schedule": "multistage", "stages": 2,
            "fetch_bytes": fetch_bytes, "epilogue": "direct", "persistent": False, "consumers": 1,
        }).launch(gpu)  # fmt: skip
        return simulate(launch, gpu, clock="max").counters["lts__t_sectors_srcunit_tex_op_read.sum"]

    asked = 16 * 128 * 4
    assert read(128, 64) == pytest.approx(asked)
    assert read(256, 64) == read(256, 128) == pytest.approx(1.25 * asked)
