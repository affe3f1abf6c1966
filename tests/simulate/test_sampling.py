"""A sample of the SMs stands for all of them."""

from __future__ import annotations

import pytest

from gpusim.errors import LaunchError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.simulate.run import simulate
from gpusim.workload import ops
from gpusim.workload.launch import Launch, WarpRole

EXACT = (
    "sm__inst_executed_pipe_tensor_op_gmma.sum",
    "l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",
)
"""Counters that no timing can move."""


NEAR: list[tuple[dict[str, object], float]] = [
    ({"tile": "128x256x64", "stages": 4, "schedule": "cooperative"}, 0.02),
    ({"tile": "128x256x64", "stages": 2, "schedule": "cooperative"}, 0.035),
    ({"tile": "128x128x64", "schedule": "multistage", "copy": "cp_async"}, 0.045),
    ({"cluster": "2x1"}, 0.025),
    ({"persistent": True}, 0.04),
]


@pytest.mark.parametrize(
    ("options", "allowed", "num_sms"),
    [
        (options, allowed, num_sms) for options, allowed in NEAR for num_sms in (32, 64)
    ],
)  # fmt: skip
def test_a_sample_of_sms_comes_near_all_of_them(options: dict[str, object], allowed: float, num_sms: int) -> None:
    """Within what deviations 3 says."""
    gpu = load_gpu("h200_sxm")
    launch = GemmParams.model_validate({"m": 4096, "n": 4096, "k": 1024, **options}).launch(gpu)
    whole = simulate(launch, gpu, clock=1700.0)
    sample = simulate(launch, gpu, clock=1700.0, num_sampled_sms=num_sms)
    assert sample.cycles == pytest.approx(whole.cycles, rel=allowed)
    assert sample.num_events < whole.num_events
    assert any("sample" in remark for remark in sample.remarks)
    assert {name: sample.counters[name] for name in EXACT} == pytest.approx(
        {name: whole.counters[name] for name in EXACT}, rel=1e-9
    )


def test_a_sample_as_large_as_the_device_is_the_device() -> None:
    gpu = load_gpu("toy")
    launch = GemmParams(m=512, n=512, k=256, tile=(64, 64, 64), stages=2, schedule="warp_specialized").launch(gpu)
    assert simulate(launch, gpu, num_sampled_sms=4).cycles == simulate(launch, gpu).cycles


@pytest.mark.parametrize(("num_sms", "says"), [(0, "wants 1 to"), (-4, "wants 1 to")])
def test_a_sample_of_nothing_is_refused(num_sms: int, says: str) -> None:
    gpu = load_gpu("h200_sxm")
    launch = GemmParams(m=1024, n=1024, k=1024).launch(gpu)
    with pytest.raises(LaunchError, match=says):
        simulate(launch, gpu, num_sampled_sms=num_sms)


def test_a_launch_without_footprints_cannot_be_sampled() -> None:
    def program(cta: object) -> object:
        yield ops.Alu(1)

    launch = Launch(
        kernel="bare", num_ctas=4, num_tiles=4, roles=(WarpRole(name="only", num_warps=1, program=program),)
    )
    with pytest.raises(LaunchError, match="footprints"):
        simulate(launch, load_gpu("toy"), num_sampled_sms=1)
