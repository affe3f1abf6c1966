"""What bounds a kernel is said of the role that computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.bottleneck import SATURATED, TIMES
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.compiled_code import NO_CODE
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .kernels import TOY, expect, load, role, run, wait

H200 = load_gpu("h200_sxm")


def test_a_consumer_that_waits_for_each_of_its_products_is_told_from_its_producer() -> None:
    def producer(cta: RoleContext) -> Iterator[ops.Op]:
        for k in range(16):
            stage = k % 2
            yield wait(stage, k // 2 & 1 ^ 1, "empty")
            yield expect(stage)
            yield load(stage, step=k)

    def consumer(cta: RoleContext) -> Iterator[ops.Op]:
        for k in range(16):
            stage = k % 2
            yield wait(stage, k // 2 & 1)
            yield ops.Wgmma(wgmma(64, BF16), 1, (("a", stage),))
            yield ops.WgmmaCommitGroup()
            yield ops.WgmmaWaitGroup(0)
            yield ops.MbarrierArrive("empty", stage)

    result = run(role(producer, "producer"), role(consumer, "consumer", 4), l2="cold", num_ctas=TOY.num_sms)
    assert all(not shares.get(WarpState.TENSOR.label) for shares in result.states.values())
    assert result.bound_by == "latency"
    assert "role 'consumer' waits for loads" in result.reason
    assert set(result.time_shares) == set(TIMES) and sum(result.time_shares.values()) == pytest.approx(1.0)


def test_a_consumer_that_waits_while_its_products_run_is_not_stalled() -> None:
    """It waits at an mbarrier for more than half of its life, and the tensor cores hardly rest in the main loop."""
    options = {"m": 1536, "n": 1408, "k": 4096, "tile": "128x128x64", "schedule": "warp_specialized"}
    launches = {stages: GemmParams(**options, stages=stages, compiled_code=NO_CODE).launch(H200) for stages in (3, 4)}
    found = {stages: simulate(launch, H200) for stages, launch in launches.items()}
    assert found[4].states["consumer0"]["wait_mbarrier"] > 0.5
    assert found[4].busy["tensor"] < SATURATED  # of the whole time
    assert (found[3].bound_by, found[4].bound_by) == ("latency", "tensor")
    assert "the tensor cores are busy 99" in found[4].reason


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"m": 4096, "n": 4096, "k": 4096, "tile": "128x256x64", "schedule": "cooperative"}, "tensor"),
        ({"m": 1024, "n": 1024, "k": 128, "tile": "128x64x64"}, "launch"),
        ({"m": 4096, "n": 4096, "k": 64, "tile": "128x256x64", "schedule": "cooperative"}, "epilogue"),
        ({"m": 128, "n": 256, "k": 8192, "tile": "128x256x64", "schedule": "cooperative"}, "tail"),
    ],
    ids=str,
)
def test_what_fills_most_of_the_time_bounds_a_gemm(options: dict[str, Any], word: str) -> None:
    result = simulate(GemmParams(**options).launch(H200), H200)
    assert result.bound_by == word
    times = result.time_shares
    if word in times:
        assert times["main_loop"] < 0.5 and times[word] == max(share for name, share in times.items() if name != "main_loop")
    else:
        assert times["main_loop"] >= 0.5 and times["main_loop"] >= result.busy["tensor"]


def test_the_exposed_epilogue_is_what_a_free_one_would_save() -> None:
    """Of CTAs that are alone on their SMs; other CTAs then gain, too. Roles that take turns hide it."""
    options = {"m": 4096, "n": 4096, "k": 512, "tile": "128x256x64", "schedule": "cooperative", "epilogue": "direct"}
    launch = GemmParams(**options).launch(H200)
    plain, free = (simulate(launch, H200, clock=1500.0, ideals=ideals) for ideals in ((), {"epilogue"}))
    saved = 1.0 - free.cycles / plain.cycles
    assert 0.7 * saved < plain.time_shares["epilogue"] < saved
    turns = GemmParams(**{**options, "tile": "64x256x64", "schedule": "pingpong"}).launch(H200)
    assert simulate(turns, H200, clock=1500.0).time_shares["epilogue"] == 0.0


def test_fill_is_the_time_from_the_dispatch_of_a_cta_to_its_first_product() -> None:
    """Of one CTA: its first tiles come later by what memory's latency grows."""
    launch = GemmParams(m=64, n=64, k=64, tile=(64, 64, 64), stages=2).launch(TOY)
    later = replace(TOY, hbm=replace(TOY.hbm, latency_ns=TOY.hbm.latency_ns + 1000.0))
    near, far = (simulate(launch, gpu, clock=1000.0) for gpu in (TOY, later))
    fill = [result.time_shares["fill"] * result.cycles for result in (near, far)]
    assert far.cycles - near.cycles == pytest.approx(1000.0)
    assert fill[1] - fill[0] == pytest.approx((far.cycles - near.cycles) / TOY.num_sms, rel=0.05)


def test_copies_that_fill_the_link_between_the_sides_say_so_and_those_that_fill_memory_name_it() -> None:
    """64 MiB and 256."""
    found = []
    for exponent in (24, 26):
        launch = KERNEL_MODELS["elementwise"].params(op="copy", elements=2**exponent).launch(H200)
        found.append(simulate(launch, H200, clock=1980.0))
    small, large = found
    assert small.bound_by == "l2_link" and "the link between L2's partitions is busy" in small.reason
    assert small.busy["l2_link"] > 0.8 > small.busy["hbm"]
    assert large.bound_by == "hbm" and large.busy["hbm"] > 0.8
    assert 0.8 < large.busy["l2_link"] <= 1.0


def test_one_side_has_no_link() -> None:
    assert TOY.l2.num_partitions == 1
    launch = KERNEL_MODELS["elementwise"].params(op="copy", elements=2**14).launch(TOY)
    assert simulate(launch, TOY, clock=1000.0).busy["l2_link"] == 0.0


def test_who_waits_for_the_load_store_unit_is_not_said_to_wait_for_stores_alone() -> None:
    launch = KERNEL_MODELS["sgemm_naive"].params(m=512, n=512, k=256).launch(H200)
    result = simulate(launch, H200)
    assert result.bound_by == "lsu_latency"
    assert "waits for the load/store unit or its queue of stores" in result.reason


def test_stores_that_wait_in_their_queue_for_a_busy_link_are_bound_by_the_link() -> None:
    """Of a fill, which stores alone. L2 and crossbar without limit save most of its time, no latency hardly any."""
    launch = KERNEL_MODELS["elementwise"].params(**FILL).launch(H200)
    plain, l2, latency = (simulate(launch, H200, clock=1980.0, ideals=ideals) for ideals in ((), {"l2"}, {"latency"}))
    assert plain.bound_by == "l2_link"
    assert l2.cycles < 0.5 * plain.cycles < 0.9 * latency.cycles


FILL = {"op": "fill", "elements": 2**22, "vector_bytes": 16, "items_per_thread": 8}
