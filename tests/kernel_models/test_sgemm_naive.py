"""A thread an element of D: what is asked for, how often, and what of it is new."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from gpusim.errors import KernelError
from gpusim.kernel_models.sgemm_naive import SgemmNaiveParams, first_and_again
from gpusim.machine.config import GpuSpec
from gpusim.simulate.run import simulate
from gpusim.units import SECTOR_BYTES
from gpusim.workload import ops
from gpusim.workload.launch import Launch

from .conftest import dry_run, footprint_bytes, ops_of

WAYS = ("naive", "coalesced", "tiled")


def launch_of(gpu: GpuSpec, **options: Any) -> Launch:
    return SgemmNaiveParams(**options).launch(gpu)


def counts(launch: Launch) -> Counter[tuple[str, str]]:
    """Requests and sectors of loads, by tensor."""
    found: Counter[tuple[str, str]] = Counter()
    for _, op in ops_of(launch, ops.GlobalLoad):
        found[op.tensor, "requests"] += op.access.num_requests
        found[op.tensor, "sectors"] += op.access.num_sectors
    return found


@pytest.mark.parametrize(
    ("way", "of_a", "of_b"),
    [
        ("naive", (1024, 32 * 1024), (1024, 1024)), ("coalesced", (1024, 1024), (1024, 4 * 1024)),
        ("tiled", (32, 128), (32, 128)),
    ],
)
def test_a_tile_of_32_asks_as_often_as_its_threads_say(
    h200: GpuSpec, way: str, of_a: tuple[int, int], of_b: tuple[int, int]
) -> None:
    """32 warps, 32 k: a warp of ``naive`` has 32 rows of A in 32 sectors and a word of B, ``coalesced`` a word and a row."""
    found = counts(launch_of(h200, m=32, n=32, k=32, way=way))
    assert (found["A", "requests"], found["A", "sectors"]) == of_a
    assert (found["B", "requests"], found["B", "sectors"]) == of_b


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("m", "n"), [(64, 96), (40, 72), (33, 8)])
def test_what_is_new_of_each_panel_is_its_footprint(h200: GpuSpec, way: str, m: int, n: int) -> None:
    launch = launch_of(h200, m=m, n=n, k=64, way=way)
    new: dict[str, dict[int, dict[int, int]]] = {"A": {}, "B": {}}
    for _, op in ops_of(launch, ops.GlobalLoad):
        new[op.tensor].setdefault(op.tile[0], {}).setdefault(op.tile[1], op.access.num_sectors)
    wanted = footprint_bytes(launch, "read")
    for tensor, panels in new.items():
        found = {panel: SECTOR_BYTES * sum(of_step.values()) for panel, of_step in panels.items()}
        assert found == wanted[tensor]


def test_the_first_requests_for_sectors_are_new_and_the_others_are_not() -> None:
    lanes = np.arange(32)
    addresses = 4 * np.stack([lanes, lanes, lanes + 4, lanes * 0])  # a line, again, half a sector more, one word of it
    new, again = first_and_again(addresses, np.ones(addresses.shape, dtype=np.bool_))
    assert (new.num_requests, new.num_sectors, again.num_requests, again.num_sectors) == (2, 5, 2, 9)
    none = first_and_again(addresses, np.zeros(addresses.shape, dtype=np.bool_))
    assert [item.num_requests for item in none] == [0, 0]


def test_a_warp_multiplies_k_times_and_a_tiled_cta_meets_twice_a_step(h200: GpuSpec) -> None:
    for way in WAYS:
        programs = dry_run(launch_of(h200, m=32, n=32, k=64, way=way))
        assert len(programs) == (2 if way == "coalesced" else 1)
        for program in programs.values():
            assert sum(op.num_instructions for _, op in program if isinstance(op, ops.Fma)) == 64
            assert sum(isinstance(op, ops.Syncthreads) for _, op in program) == (4 if way == "tiled" else 0)


def test_rows_of_an_edge_belong_to_the_first_warps(h200: GpuSpec) -> None:
    """20 rows of D: sixteen of one role, four of the other; of 10 the other has nothing to do, and stores nothing."""
    for m, stored in ((20, [16, 4]), (10, [10, 0])):
        programs = dry_run(launch_of(h200, m=m, n=32, k=32))
        told = [[op.access for _, op in each if isinstance(op, ops.GlobalStore)] for each in programs.values()]
        assert [sum(access.num_requests for access in each) for each in told] == stored


def test_shared_reads_of_a_tile_are_a_broadcast_vector_and_a_row(h200: GpuSpec) -> None:
    """32 warps: for 32 k eight vectors of A, the same for all lanes, and 32 rows of B, a wavefront each."""
    launch = launch_of(h200, m=32, n=32, k=32, way="tiled")
    reads = [op.access for _, op in ops_of(launch, ops.SharedLoad)]
    assert sum(access.num_requests for access in reads) == 32 * (8 + 32)
    assert sum(access.num_bytes for access in reads) == 32 * 32 * (8 * 16 + 32 * 4)
    (written,) = (op.access for _, op in ops_of(launch, ops.SharedStore))
    assert (written.num_requests, written.num_wavefronts) == (64, 64)


def test_each_rung_of_the_ladder_is_faster(h200: GpuSpec) -> None:
    cycles = [simulate(launch_of(h200, m=512, n=512, k=256, way=way), h200, clock="max").cycles for way in WAYS]
    assert cycles[0] > 3 * cycles[1] and cycles[1] > cycles[2]


def test_a_k_that_is_no_multiple_of_32_is_refused_in_one_sentence(h200: GpuSpec) -> None:
    with pytest.raises(KernelError, match=r"k is 100, wants a multiple of 32: use --k 96$"):
        launch_of(h200, m=64, n=64, k=100)
