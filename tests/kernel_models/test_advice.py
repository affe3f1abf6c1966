"""Advice in a refusal is followed to the letter: the tile that is advised is accepted, or none is advised."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gpusim.errors import GpusimError
from gpusim.kernel_models.gemm import GemmParams
from gpusim.machine.config import GpuSpec, load_gpu
from gpusim.simulate.plan import check

GPUS = tuple(load_gpu(name) for name in ("h200_sxm", "a100_sxm_40gb", "toy"))

extents = st.one_of(st.integers(1, 1024), st.integers(1, 64).map(lambda count: 16 * count))

asked = st.fixed_dictionaries(
    {"m": st.just(1000), "n": st.just(600), "k": st.just(500), "tile": st.tuples(extents, extents, st.integers(1, 300))},
    optional={
        "dtype": st.sampled_from(["bf16", "tf32", "fp8", "int8", "fp32"]), "layout": st.sampled_from(["nn", "nt", "tt"]),
        "stages": st.integers(1, 6), "copy": st.sampled_from(["cp_async", "tma"]),
        "math": st.sampled_from(["mma_sync", "wgmma", "fma"]),
        "schedule": st.sampled_from(["multistage", "warp_specialized", "cooperative", "pingpong"]),
        "warps": st.sampled_from(["1x1", "2x2", "4x2", "3x5"]), "consumer_warpgroups": st.integers(1, 3),
        "consumer_split": st.sampled_from(["m", "n"]), "cluster": st.sampled_from(["2x1", "1x2", "4x2"]),
        "persistent": st.booleans(),
        "split_k": st.integers(2, 5), "swizzle": st.sampled_from(["none", "32B", "64B", "128B"]),
        "epilogue": st.sampled_from(["direct", "smem", "tma_store"]),
        "setmaxnreg": st.sampled_from(["none", "40/232", "24/64"]), "registers": st.sampled_from([64, 168]),
    },
)


def advice_of(options: dict[str, Any], gpu: GpuSpec) -> str | None:
    """The tile that a refusal advises; None where nothing is refused, or no tile advised."""
    try:
        GemmParams(**options).launch(gpu)
    except GpusimError as error:
        found = re.search(r"--tile (\d+x\d+x\d+)", str(error).partition("; use ")[2])
        return found[1] if found else None
    return None


@settings(max_examples=400, deadline=None)
@given(asked, st.sampled_from(GPUS))
def test_the_tile_that_is_advised_is_accepted(options: dict[str, Any], gpu: GpuSpec) -> None:
    tile = advice_of(options, gpu)
    event("advised" if tile else "accepted, or no tile is advised")
    if tile is not None:
        launch = GemmParams(**{**options, "tile": tile}).launch(gpu)
        assert launch.params["tile"] == tile


@pytest.mark.parametrize(
    ("tile", "advised"),
    [("100x33x7", "128x32x16"), ("1x1x1", "64x8x16"), ("16x128x64", "64x128x64"), ("128x256x60", "128x256x64")],
)
def test_what_several_things_are_wrong_with_is_mended_at_once(tile: str, advised: str) -> None:
    gpu, options = GPUS[0], {"m": 4096, "n": 4096, "k": 4096, "tile": tile}
    assert advice_of(options, gpu) == advised
    assert check(GemmParams(**{**options, "tile": advised}).launch(gpu), gpu).ctas_per_sm


def test_where_no_tile_near_would_do_none_is_advised() -> None:
    options = {"m": 64, "n": 64, "k": 64, "tile": "100x33x7", "epilogue": "smem", "out_dtype": "fp8", "split_k": 3}
    with pytest.raises(GpusimError, match=r"; use another tile$"):
        GemmParams(**options).launch(GPUS[0])  # type: ignore[arg-type]  # as they are typed
