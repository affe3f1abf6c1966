"""A least time is never above the prediction, and is what a hand works out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim import KERNEL_MODELS, GemmParams, load_gpu, simulate
from gpusim.errors import GpusimError
from gpusim.machine.config import GpuSpec
from gpusim.simulate.bound import lower_bound

TOY, H200 = load_gpu("toy"), load_gpu("h200_sxm")
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("elementwise", {"op": "copy", "elements": 1 << 20}), ("transpose", {"m": 1000, "n": 1024}),
    ("softmax", {"rows": 512, "columns": 1024}), ("layer_norm", {"rows": 512, "columns": 1024}),
    ("reduction", {"rows": 512, "columns": 4096}), ("smem_copy", {"m": 512, "n": 1024}),
]


def holds(params: Any, gpu: GpuSpec, **settings: Any) -> None:
    launch = params.launch(gpu)
    least = lower_bound(launch, gpu, is_cold=settings.get("l2", "cold") == "cold").time_us
    assert 0.0 <= least <= simulate(launch, gpu, **settings).time_us * (1 + 1e-9)


@given(
    m=st.integers(1, 700), n=st.integers(1, 700), k=st.integers(1, 700), tile_m=st.sampled_from((64, 128)),
    tile_n=st.sampled_from((16, 64, 128)), stages=st.integers(1, 4), copy=st.sampled_from(("tma", "cp_async")),
    schedule=st.sampled_from(("multistage", "warp_specialized", "cooperative", "pingpong")),
    cluster=st.sampled_from(((1, 1), (2, 1), (1, 2))), split_k=st.sampled_from((1, 2)), gpu=st.sampled_from((TOY, H200)),
    clock=st.sampled_from(("max", "single", 900.0)), l2=st.sampled_from(("cold", "warm")),
)
@settings(max_examples=60)
def test_no_gemm_is_predicted_faster_than_it_can_be(
    m: int, n: int, k: int, tile_m: int, tile_n: int, stages: int, copy: str, schedule: str, cluster: tuple[int, int],
    split_k: int, gpu: GpuSpec, clock: Any, l2: str,
) -> None:
    params = GemmParams(
        m=m, n=n, k=k, tile=(tile_m, tile_n, 64), stages=stages, copy=copy, schedule=schedule, cluster=cluster,
        split_k=split_k,
    )
    try:
        params.launch(gpu)
    except GpusimError:
        return
    holds(params, gpu, clock=gpu.clock.min_mhz if clock == 900.0 else clock, l2=l2)


@pytest.mark.parametrize(("name", "options"), OTHERS, ids=[name for name, _ in OTHERS])
@pytest.mark.parametrize("gpu", [TOY, H200], ids=lambda gpu: gpu.name)
def test_no_other_kernel_is_either(name: str, options: dict[str, Any], gpu: GpuSpec) -> None:
    for l2 in ("cold", "warm"):
        holds(KERNEL_MODELS[name].params(**options), gpu, l2=l2)


@pytest.mark.parametrize("options", [
    {"m": 2048, "n": 2048, "k": 1024, "tile": (128, 256, 64), "schedule": "cooperative", "cluster": (2, 1)},
    {"m": 2048, "n": 1024, "k": 8192, "tile": (128, 128, 64), "schedule": "pingpong"},
    {"m": 64, "n": 16384, "k": 8192, "tile": (64, 128, 64)},
])
def test_nor_one_whose_parts_are_near_their_peaks(options: dict[str, Any]) -> None:
    holds(GemmParams(**options), H200)


def test_the_sm_with_most_tiles_multiplies_them_all() -> None:
    """One tile more than SMs: twice the time of one tile, at the peak of one SM, then launch and drain."""
    num_sms, k = TOY.num_sms, 640
    rate = TOY.tensor_core.wgmma_flops_per_cycle["16bit"]
    params = GemmParams(m=64 * (num_sms + 1), n=64, k=k, tile=(64, 64, 64), schedule="warp_specialized")
    cycles = 2 * (2 * 64 * 64 * k / rate) + TOY.dispatcher.launch_cycles + TOY.dispatcher.drain_cycles
    found = lower_bound(params.launch(TOY), TOY, is_cold=False)
    if found.part == "tensor":
        assert found.time_us == pytest.approx(cycles / TOY.clock.max_mhz)
    else:
        assert found.time_us > cycles / TOY.clock.max_mhz


def test_what_is_read_once_comes_from_a_cold_memory_alone() -> None:
    launch = KERNEL_MODELS["elementwise"].params(op="copy", elements=1 << 22).launch(H200)
    cold, warm = lower_bound(launch, H200), lower_bound(launch, H200, is_cold=False)
    assert cold.part == "hbm"
    assert warm.part == "launch"
    assert cold.is_of_strangers
    num_bytes = sum(int(item.panel_bytes(np.arange(launch.num_tiles)).sum())
                    for item in launch.footprints if item.access == "read")
    assert cold.time_us - warm.time_us == pytest.approx(num_bytes / H200.hbm.peak_gb_per_s * 1e-3)
