"""Tiles that L2 takes from memory together with one that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from gpusim import Buffer, GemmParams, Launch, Mbarrier, WarpRole, simulate
from gpusim.machine.config import load_gpu
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

TOY = load_gpu("toy")
TILE_BYTES, NUM_STEPS = 8192, 8
READ = "dram__bytes_read.sum"


def walk(*, is_pair: bool) -> tuple[list[float], dict[str, float]]:
    """(cycles of each step, counters) of one CTA that asks for a tile, waits for it, and asks for the next."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for step in range(NUM_STEPS):
            yield ops.RangeStart(ops.Section.MAINLOOP)
            yield ops.MbarrierArriveExpectTx("full", 0, TILE_BYTES)
            yield ops.TmaLoad(
                "A", (0, step), TILE_BYTES, TILE_BYTES, 64, "ring", 0, "full", come_along=((0, step ^ 1),) if is_pair else ()
            )
            yield ops.MbarrierWait("full", 0, step & 1)
            yield ops.RangeEnd()

    launch = Launch(
        kernel="walk", num_ctas=1, num_tiles=1, roles=(WarpRole(name="loader", num_warps=1, program=program),),
        buffers=(Buffer(name="ring", stage_bytes=TILE_BYTES),), mbarriers=(Mbarrier(name="full", num_arrivals=1),),
    )  # fmt: skip
    result = simulate(launch, TOY, clock="max", skips=False, recorded_sms=range(1))
    spans = result.timeline.roles[0].sections
    return [span.end_cycle - span.start_cycle for span in spans], dict(result.counters)


def test_every_second_tile_is_there_already_and_memory_gives_no_more() -> None:
    alone, counted_alone = walk(is_pair=False)
    pairs, counted = walk(is_pair=True)
    assert pairs[0] == alone[0]
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        assert second < first - 0.5 * TOY.hbm.latency_ns  # toy: a cycle is no longer than a nanosecond
    assert counted[READ] == counted_alone[READ] == NUM_STEPS * TILE_BYTES


def cycles(k: int, fetch_bytes: int | None) -> float:
    """Of a GEMM of one tile whose k-steps have rows of 64 bytes, a load ahead."""
    params = GemmParams(
        m=128, n=128, k=k, tile="128x128x32", stages=2, schedule="multistage", copy="cp_async", math="mma_sync",
        fetch_bytes=fetch_bytes,
    )  # fmt: skip
    gpu = load_gpu("h200_sxm")
    return simulate(params.launch(gpu), gpu, clock="max", skips=False).cycles


def test_a_gemm_gains_where_lines_hold_two_of_its_steps() -> None:
    assert cycles(1024, 64) == cycles(1024, None)
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
