"""What bounds a kernel is said of the role that computes."""

from __future__ import annotations

from collections.abc import Iterator

from gpusim import load_gpu, simulate
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
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
    """Its queue of stores counts, too: of a fill, which stores alone."""
    for model, options in (("sgemm_naive", {"m": 512, "n": 512, "k": 256}), ("elementwise", FILL)):
        launch = KERNEL_MODELS[model].params(**options).launch(H200)
        result = simulate(launch, H200)
        assert result.bound_by == "lsu_latency"
        assert "waits for the load/store unit or its queue of stores" in result.reason


FILL = {"op": "fill", "elements": 2**22, "vector_bytes": 16, "items_per_thread": 8}
