"""Two L2 partitions without a traffic plan: what crosses between them, and what is written back, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import TOY, changed, contiguous, role, run

H200 = load_gpu("h200_sxm")
TILE_BYTES, SMALL_BYTES = 1 << 14, 1 << 10
NEAR, FAR = 0, 2
"""CTAs, one an SM: of the first partition, and of the other one."""
LATER = 20_000
"""Instructions, behind which all earlier accesses are over: of a warp each, in 80,000 cycles."""


class Tiles(NamedTuple):
    """Over a tile's bytes."""

    crossed: float
    read: float
    written: float


def moved(*accesses: tuple[int, int, str, int, int]) -> Tiles:
    """(CTA, instructions before, access, tile, bytes) each; a partition of L2 holds two tiles."""
    l2 = {"num_partitions": 2, "fabric_bytes_per_cycle": 64.0, "far_latency_cycles": 400.5}
    gpu = changed(l2={**l2, "capacity_bytes": 4 * TILE_BYTES})
    gpu = replace(gpu, device=replace(gpu.device, gpcs={"2": 2}, gpc_l2_partition=(0, 1)))
    assert gpu.partition_of_sm[NEAR] != gpu.partition_of_sm[FAR]

    def program(cta: RoleContext) -> Iterator[Any]:
        for of_cta, before, access, tile, num_bytes in accesses:
            if of_cta != cta.cta_idx:
                continue
            yield ops.Alu(before)
            if access == "store":
                yield ops.GlobalStore("data", (0, tile), contiguous(num_bytes))
            else:
                yield ops.Use((yield ops.GlobalLoad("data", (0, tile), contiguous(num_bytes), allocates_in_l1=False)))

    found = run(role(program, num_warps=8), gpu=gpu, l2="cold", num_ctas=gpu.num_sms).counters
    names = ("lts__t_sectors_srcunit_ltcfabric.sum", "dram__bytes_read.sum", "dram__bytes_write.sum")
    crossed, *memory = (found[name] / TILE_BYTES for name in names)
    return Tiles(32 * crossed, *memory)


def whole(cta: int, before: int, access: str, tile: int = 0) -> tuple[int, int, str, int, int]:
    """An access to a whole tile."""
    return cta, before, access, tile, TILE_BYTES


def test_an_sm_finds_nearby_what_it_has_stored_even_if_the_other_partition_read_it_before() -> None:
    before = whole(NEAR, 0, "load"), whole(FAR, LATER, "store")
    assert moved(*before) == moved(*before, whole(FAR, LATER, "load")) == (0.5 + 0.5, 1.0, 0.0)


def test_an_sm_finds_nearby_what_it_has_stored_even_if_the_other_partition_has_read_it_since() -> None:
    between = whole(FAR, 0, "store"), whole(NEAR, LATER, "load")
    assert moved(*between) == moved(*between, whole(FAR, 2 * LATER, "load")) == (0.5 + 0.5, 0.0, 0.0)


def test_a_copy_that_leaves_alone_takes_no_dirty_lines_along() -> None:
    """The far copy of tile 0 was used last before the lines at home there, which tile 1 and a small one leave in place."""
    found = moved(
        whole(FAR, 0, "store"), whole(NEAR, LATER, "load"), whole(FAR, 2 * LATER, "load", 1),
        (FAR, 0, "load", 2, SMALL_BYTES), whole(FAR, LATER, "load"),
    )  # fmt: skip
    small = SMALL_BYTES / TILE_BYTES
    assert found == (0.5 + 0.5 + 0.5 + 0.5 * small + 0.5, 1.0 + small, 0.0)


@pytest.mark.parametrize("later", range(400, 900, 50))
def test_what_crosses_does_not_depend_on_whether_memory_still_gives_the_lines_at_home(later: int) -> None:
    """The near partition loses tile 0's lines at home. SMs of both read it again: at once, earlier or later."""
    lost = whole(NEAR, 0, "load"), whole(NEAR, 0, "load", 1), (NEAR, 0, "load", 2, SMALL_BYTES)
    found = moved(*lost, whole(NEAR, LATER, "load"), whole(FAR, LATER + later, "load"))
    small = SMALL_BYTES / TILE_BYTES
    is_first = later < 700  # the other partition asks first: its lines take the place of the near copy
    assert found == (1.0 + 0.5 * small + 0.5 * (1 + is_first), 2.0 + small + 0.5, 0.0)


# ------------------------------------------------------------------------------------- what the launch before stored
@pytest.mark.parametrize("is_planned", [False, True])
def test_a_quarter_of_what_the_launch_before_stored_crosses(is_planned: bool) -> None:
    """Half of the SMs are of the other partition, and read half of the lines from there; half of all stores cross, too."""
    launch = KERNEL_MODELS["elementwise"].params.model_validate({"op": "scale", "elements": 1 << 20}).launch(H200)
    launch = launch if is_planned else replace(launch, footprints=())
    warm, stored = (simulate(launch, H200, l2=l2).counters for l2 in ("warm", "stored"))
    crosses, reads, writes = (
        f"lts__t_sectors_srcunit_{name}.sum" for name in ("ltcfabric", "tex_op_read", "tex_op_write")
    )  # fmt: skip
    assert warm[crosses] == warm[writes] / 2
    assert stored[crosses] - warm[crosses] == pytest.approx(stored[reads] / 4, rel=0.05)
    assert warm["dram__bytes_read.sum"] == stored["dram__bytes_read.sum"] == 0.0


@pytest.mark.parametrize("is_planned", [False, True])
def test_on_one_partition_what_was_stored_is_what_was_read(is_planned: bool) -> None:
    launch = KERNEL_MODELS["elementwise"].params.model_validate({"elements": 1 << 14}).launch(TOY)
    launch = launch if is_planned else replace(launch, footprints=())
    warm, stored = (simulate(launch, TOY, l2=l2) for l2 in ("warm", "stored"))
    assert warm.cycles == stored.cycles and warm.counters == stored.counters
