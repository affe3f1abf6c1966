"""What bounds a kernel is said of the role that computes."""

from __future__ import annotations

from collections.abc import Iterator

from gpusim.simulate.timeline import WarpState
from gpusim.workload import ops
from gpusim.workload.atoms import wgmma
from gpusim.workload.dtypes import BF16
from gpusim.workload.launch import RoleContext

from .kernels import TOY, expect, load, role, run, wait


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
