"""Memory: what a read waits beside others, for a refresh and for writes; what is resident in an L2 without a plan."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from gpusim import GpuSpec
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, RoleContext

from .kernels import TOY, changed, expect, load, miss_cycles, run, wait

NUM_BYTES, ROWS = 4096, 32
KIB = 1024


def read_cycles(
    gpu: GpuSpec, num: int = 3, *, num_bytes: int = NUM_BYTES, num_rows: int = ROWS, **fields: Any
) -> list[float]:
    """Cycles of TMA loads of a cold L2, each behind the one before."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for step in range(num):
            yield expect(step % 4, num_bytes)
            yield load(step % 4, num_bytes, step=step, num_rows=num_rows)
            yield wait(step % 4, step // 4 & 1)

    return [span.end_cycle - span.start_cycle for span in run(program, gpu=gpu, l2="cold", **fields).timeline.copies]


ALONE = read_cycles(TOY)[0]


def test_a_lone_read_waits_for_nobody() -> None:
    assert read_cycles(changed(hbm={"queue_wait_at_half_load_ns": 20.0}))[0] == ALONE


def test_a_read_waits_by_what_was_taken_lately_over_what_is_left() -> None:
    """In proportion to the length of queues, however short they are."""
    times = []
    for queue in (10.0, 20.0, 40.0):
        took = read_cycles(changed(hbm={"queue_wait_at_half_load_ns": queue}), num=200, num_rows=1)[-1]
        share = NUM_BYTES / took / TOY.hbm.peak_gb_per_s
        times.append((took - read_cycles(TOY, num_rows=1)[0]) / (queue * share / (1.0 - share)))
    assert times == pytest.approx([times[0]] * 3, rel=0.03) and times[0] > 1.0


def test_one_row_is_seldom_refreshed_and_of_many_one_is() -> None:
    """Of a tenth of the rows the last waits up to 500 cycles: of more rows one waits longer, and none beyond that."""
    gpu = changed(hbm={"refresh_fraction": 0.1, "refresh_ns": 500.0})
    later = [
        read_cycles(gpu, num_bytes=32 * rows, num_rows=rows)[0] - read_cycles(TOY, num_bytes=32 * rows, num_rows=rows)[0]
        for rows in (1, 16, 64, 256)
    ]
    assert later[0] == 0.0 and later == sorted(set(later)) and later[-1] < 500.0


def test_fills_are_spread_evenly_about_the_mean_and_alike_in_every_run() -> None:
    gpu = changed(hbm={"fill_spread_ns": 100.0})
    later = np.array(read_cycles(gpu, num=400)) - ALONE
    assert -50.0 <= later.min() < -49.0 and 49.0 < later.max() <= 50.0
    assert later.mean() == pytest.approx(0.0, abs=0.5)
    assert (np.array(read_cycles(gpu, num=400)) - ALONE == later).all()


@pytest.mark.parametrize(("piece_bytes", "more"), [(0, 0.0), (360, 0.1), (72, 0.5)])
def test_a_piece_that_is_read_alone_takes_some_bytes_more(piece_bytes: int, more: float) -> None:
    """36 bytes each."""
    num_bytes = 32 * KIB
    footprint = Footprint(
        tensor="A", access="read", panel_of=np.zeros_like, panel_bytes=lambda tiles: 0 * tiles + num_bytes,
        piece_bytes=piece_bytes,
    )
    plain, pieces = (
        read_cycles(changed(hbm={"row_open_read_bytes": each}), 1, num_bytes=num_bytes, footprints=(footprint,))[0]
        for each in (0.0, 36.0)
    )
    assert pieces - plain == pytest.approx(more * num_bytes / TOY.hbm.sustained_read_gb_per_s)


# ---------------------------------------------------------------------------------------------- what is in L2

HIT, MISS = KIB / 64 + 300.0, miss_cycles(KIB) + 100.0
"""Of a TMA load of a KiB."""


def looked_up(panels: list[int], capacity: int, l2: Literal["cold", "warm"] = "cold") -> list[bool]:
    """Of a KiB each, one behind the other: whether L2 had it."""

    def program(cta: RoleContext) -> Iterator[Any]:
        for step, panel in enumerate(panels):
            yield expect(step % 4, KIB)
            yield ops.TmaLoad("A", (panel, 0), KIB, KIB, 1, "a", step % 4, "full")
            yield wait(step % 4, step // 4 & 1)

    found = run(program, gpu=changed(l2={"capacity_bytes": capacity}), l2=l2)
    took = [span.end_cycle - span.start_cycle for span in found.timeline.copies]
    assert set(took) <= {HIT, MISS}
    assert found.counters["dram__bytes_read.sum"] == KIB * took.count(MISS)
    return [each == HIT for each in took]


def test_the_least_recently_used_tile_leaves() -> None:
    assert looked_up([0, 1, 0, 2, 0, 1], 2 * KIB) == [False, False, True, False, True, False]


@pytest.mark.parametrize(("capacity", "stays"), [(3 * KIB, True), (3 * KIB - 1, False)])
def test_a_cycle_of_three_tiles_stays_exactly_when_it_fits(capacity: int, stays: bool) -> None:
    assert looked_up([0, 1, 2] * 3, capacity) == [False] * 3 + [stays] * 6


def test_a_warm_cache_misses_only_what_was_evicted_since() -> None:
    assert looked_up([0, 1, 0], KIB, "warm") == [True, True, False]


def test_lines_of_the_other_partition_cross_over_a_link_once_memory_has_given_them() -> None:
    """Half of 16 KiB, over a link of 8, 4 and 2 bytes a cycle; a link that is faster than memory costs nothing."""
    num_bytes = 16 * KIB

    def read(link: float) -> float:
        gpu = changed(l2={"num_partitions": 2, "fabric_bytes_per_cycle": link, "far_latency_cycles": 200.5})
        gpu = replace(gpu, device=replace(gpu.device, gpcs={"2": 2}, gpc_l2_partition=(0, 1)))
        return read_cycles(gpu, 1, num_bytes=num_bytes, num_rows=128)[0]

    fast, *slow = (read(link) for link in (1e6, 8.0, 4.0, 2.0))
    assert slow[2] - slow[1] == pytest.approx(num_bytes / 2 * (1 / 2 - 1 / 4))
    assert slow[1] - slow[0] == pytest.approx(num_bytes / 2 * (1 / 4 - 1 / 8))
    assert fast < slow[0]
