"""SMs whose IMAD.WIDE have a pace of their own: who shares tiles with whom drifts apart."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.machine.config import GpuSpec
from gpusim.simulate.result import Result
from gpusim.workload.compiled_code import NO_CODE

H200 = load_gpu("h200_sxm")
IN_STEP = replace(H200, warp_scheduler=replace(H200.warp_scheduler, imad_wide_sm_cv=0.0))
SECTORS = "lts__t_sectors_srcunit_tex_op_read.sum"
TRITON = {
    "tile": "64x128x64", "stages": 4, "schedule": "multistage", "math": "wgmma", "copy": "cp_async", "consumers": 1,
    "epilogue": "smem", "refill": "after_wait", "fence": False, "raster": "along_n", "raster_group": 4, "registers": 114,
}  # fmt: skip


def result(gpu: GpuSpec, *, num_rows: int = 4, wide: int = 1, ideals: tuple[str, ...] = ()) -> Result:
    """One wave of 66 columns of tiles: two CTAs an SM with four rows of them, one with two."""
    code = NO_CODE.replaced(mainloop={"imad_wide_per_copy": wide})
    params = GemmParams(**TRITON, m=num_rows * 64, n=66 * 128, k=4096, compiled_code=code)
    return simulate(params.launch(gpu), gpu, clock=1775, l2="warm", ideals=ideals)


def test_sharers_of_tiles_drift_apart_where_two_ctas_share_an_sm() -> None:
    apart, in_step = result(H200), result(IN_STEP)
    assert apart.occupancy.ctas_per_sm == 2
    assert apart.counters[SECTORS] > 1.15 * in_step.counters[SECTORS]
    assert in_step.cycles < apart.cycles < 1.1 * in_step.cycles


@pytest.mark.parametrize(
    "told", [{"num_rows": 2}, {"wide": 0}, {"ideals": ("imad_wide",)}], ids=["one CTA an SM", "no IMAD.WIDE", "ideal"]
)
def test_others_stay_in_step(told: dict[str, object]) -> None:
    apart, in_step = (result(gpu, **told) for gpu in (H200, IN_STEP))  # type: ignore[arg-type]
    assert apart.cycles == in_step.cycles and apart.counters[SECTORS] == in_step.counters[SECTORS]
