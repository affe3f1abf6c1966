"""Quick answers: what they leave out, and that they say so."""

from __future__ import annotations

import pytest

from gpusim.errors import LaunchError
from gpusim.kernel_models import KERNEL_MODELS
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import load_gpu
from gpusim.machine.floorplan import Floorplan
from gpusim.simulate.quick import NINE_IN_TEN_WITHIN_PCT
from gpusim.simulate.run import simulate

H200 = load_gpu("h200_sxm")
LARGE = GemmParams(m=4096, n=4096, k=1024, tile=(128, 256, 64), stages=4, schedule="cooperative")


def test_a_quick_answer_is_near_the_full_one_at_a_fifth_of_the_events() -> None:
    launch = LARGE.launch(H200)
    full, quick = (simulate(launch, H200, clock=1700.0, quality=quality) for quality in ("full", "quick"))
    assert quick.cycles == pytest.approx(full.cycles, rel=NINE_IN_TEN_WITHIN_PCT / 100)
    assert quick.num_events < full.num_events / 5
    assert quick.num_tiles == full.num_tiles


def test_a_quick_answer_says_that_it_is_one_and_a_full_one_does_not() -> None:
    launch = LARGE.launch(H200)
    full, quick = (simulate(launch, H200, clock=1700.0, quality=quality) for quality in ("full", "quick"))
    assert any("a quick answer" in remark for remark in quick.remarks)
    assert not any("a quick answer" in remark for remark in full.remarks)
    assert (full.settings["quality"], quick.settings["quality"]) == ("full", "quick")


def test_what_is_cheap_in_full_is_simulated_in_full() -> None:
    launch = GemmParams(m=1024, n=1024, k=256, tile=(128, 128, 64), stages=4).launch(H200)
    full, quick = (simulate(launch, H200, clock=1700.0, quality=quality) for quality in ("full", "quick"))
    assert quick.cycles == pytest.approx(full.cycles, rel=5e-3)
    assert not any("sample" in remark for remark in quick.remarks)


def test_kernels_whose_ctas_are_strangers_are_quick_already() -> None:
    launch = KERNEL_MODELS["transpose"].params.model_validate({"m": 4096, "n": 4096}).launch(H200)
    assert simulate(launch, H200, quality="quick").cycles == pytest.approx(simulate(launch, H200).cycles, rel=2e-2)


def test_an_unknown_quality_is_refused() -> None:
    with pytest.raises(LaunchError, match="wants one of full, quick"):
        simulate(LARGE.launch(H200), H200, quality="best")  # type: ignore[arg-type]  # what a user may type


@pytest.mark.parametrize(("num_sms", "num_gpcs"), [(1, 1), (16, 1), (17, 2), (33, 4), (65, 6), (97, 8)])
def test_samples_take_as_many_gpcs_of_each_side(num_sms: int, num_gpcs: int) -> None:
    floorplan = Floorplan({"16": 8}, gpc_sides=(0, 0, 1, 1, 1, 0, 1, 0))
    taken = floorplan.sample(num_sms)
    assert len(taken) == num_gpcs
    assert num_gpcs == 1 or sum((0, 0, 1, 1, 1, 0, 1, 0)[gpc] for gpc in taken) == num_gpcs / 2


def test_nothing_is_busy_for_longer_than_the_kernel_takes_where_waves_are_left_out() -> None:
    # requests of waves that were left out merge as in the waves whose time stands for theirs (else L2: 103 % here)
    params = GemmParams(m=4096, n=4096, k=2048, tile="64x16x64", stages=3, schedule="warp_specialized")
    result = simulate(params.launch(load_gpu("h200_sxm")), load_gpu("h200_sxm"), clock=1786.0, quality="quick")
    assert result.num_skipped_cycles > 0.5 * result.cycles
    assert 0.9 < max(result.busy.values()) <= 1.0
