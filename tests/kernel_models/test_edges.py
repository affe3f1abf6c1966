"""Rows of a GEMM's boxes that lie outside of its operands: how many, and how many in boxes all outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpusim import GemmParams, load_gpu, simulate
from gpusim.kernel_models.gemm import resolve
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.loader import Loader, slot
from gpusim.kernel_models.mainloop.shape import Coordinates
from gpusim.workload import ops

GPU = load_gpu("h200_sxm")


def loads(at: tuple[int, int], step: int, **options: object) -> tuple[ops.TmaLoad, ops.TmaLoad]:
    """What the CTA of a tile asks for of A and B."""
    given = {"stages": 3, "schedule": "cooperative", "tile": "128x128x64", **options}
    plan = TilePlan(resolve(GemmParams.model_validate(given), GPU))
    loader = Loader(plan.shape, plan, num_threads=1)
    found = tuple(loader.panels(Coordinates(*at, 0, 0), 0)[which][slot(step, 0)] for which in (0, 1))
    assert all(isinstance(op, ops.TmaLoad) for op in found)
    return found  # type: ignore[return-value]  # just asserted


@pytest.mark.parametrize(
    ("options", "at", "step", "of_a", "of_b"),
    [
        ({"m": 256, "n": 256, "k": 128}, (1, 1), 1, (0, 0), (0, 0)),
        ({"m": 136, "n": 256, "k": 128}, (1, 1), 1, (120, 0), (0, 0)),
        ({"m": 256, "n": 192, "k": 128}, (1, 1), 1, (0, 0), (64, 0)),
        ({"m": 256, "n": 256, "k": 72}, (1, 1), 1, (0, 0), (0, 0)),  # columns outside are no rows
        ({"m": 256, "n": 136, "k": 128, "layout": "nt"}, (1, 1), 1, (0, 0), (64, 64)),  # two boxes
        ({"m": 420, "n": 256, "k": 128, "tile": "320x128x64"}, (1, 1), 1, (220, 160), (0, 0)),  # two boxes of 160 rows
        ({"m": 256, "n": 136, "k": 72, "layout": "nt"}, (1, 1), 1, (112, 0), (120, 64)),
    ],
)  # fmt: skip
def test_rows_outside_are_those_that_the_boxes_have_beyond_the_tensor(
    options: dict[str, object], at: tuple[int, int], step: int, of_a: tuple[int, int], of_b: tuple[int, int]
) -> None:
    found = [(op.num_zero_rows, op.num_outside_rows) for op in loads(at, step, **options)]
    assert found == [of_a, of_b]


def test_tiles_over_an_edge_take_longer_where_all_ctas_have_them() -> None:
    """One tile along m, of which 64 rows lie inside; as many columns of tiles as SMs."""
    params = GemmParams(m=64, n=128 * 132, k=4096, tile="128x128x64", stages=4, schedule="cooperative")
    assert GPU.tma is not None
    free = replace(GPU, tma=replace(GPU.tma, oob_row_bytes=0.0, oob_box_row_bytes=0.0))
    dear, cheap = (simulate(params.launch(gpu), gpu).cycles for gpu in (GPU, free))
    assert dear > 1.01 * cheap
