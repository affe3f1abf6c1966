"""A finished launch is freed by itself: nobody has to search for what refers to one another in a circle."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from gpusim import simulate
from gpusim.kernel_models.streams import dense_access
from gpusim.workload import ops
from gpusim.workload.launch import RoleContext

from .kernels import TOY, Program, launch

MOST_LEFT = 100
"""Objects that may be left, however many CTAs there were: parts whose number is the machine's."""


def worker(cta: RoleContext) -> Iterator[ops.Op]:
    """Wait for a copy of its own, and meet."""
    yield ops.MbarrierArriveExpectTx("full", 0, 1024)
    yield ops.TmaLoad("A", (cta.cta_idx, 0), 1024, 1024, 8, "a", 0, "full")
    yield ops.MbarrierWait("full", 0, 0)
    yield ops.Syncthreads()


def loads_and_stores(cta: RoleContext) -> Iterator[ops.Op]:
    """Wait for a load of its threads, and store it."""
    access = dense_access(0, 32, 16)
    yield ops.Use((yield ops.GlobalLoad("A", (cta.cta_idx, 0), access)))
    yield ops.GlobalStore("B", (cta.cta_idx, 0), access)


@pytest.mark.parametrize(("program", "cluster_size"), [(worker, 1), (worker, 2), (loads_and_stores, 1)])
@pytest.mark.parametrize("skips", [True, False])
def test_what_is_left_to_the_garbage_collector_does_not_grow_with_the_grid(
    program: Program, cluster_size: int, skips: bool
) -> None:
    left = []
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for num_ctas in (8, 8, 400):  # the first fills caches
            of = launch(program, num_ctas=num_ctas, cluster_size=cluster_size)
            gc.collect()
            simulate(of, TOY, clock=1000.0, skips=skips)
            left.append(gc.collect())
    finally:
        if was_enabled:
            gc.enable()
    assert left[2] <= left[1] + MOST_LEFT
