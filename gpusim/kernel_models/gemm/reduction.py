"""The second kernel of split-K: adds the parts and writes D."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.gemm.params import GemmParams
from gpusim.kernel_models.gemm.tiles import TilePlan
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.launch import Footprint, Launch, RoleContext, WarpRole

THREADS = 256
ELEMENTS_PER_THREAD = 4


def reduction_launch(params: GemmParams, plan: TilePlan) -> Launch:
    """A kernel in which each thread adds ``split_k`` fp32 parts of four elements and stores them as D's type."""
    num_elements = params.m * params.n * params.batch
    per_cta = THREADS * ELEMENTS_PER_THREAD
    num_ctas = -(-num_elements // per_cta)
    parts, out_bytes = params.split_k, params.out_element.num_bytes
    warps = THREADS // 32
    load = AccessPattern(
        num_requests=warps, num_sectors=per_cta * 4 // 32, num_lines=per_cta * 4 // 128, num_bytes=per_cta * 4
    )
    store = AccessPattern(
        num_requests=warps, num_sectors=per_cta * out_bytes // 32, num_lines=max(1, per_cta * out_bytes // 128),
        num_bytes=per_cta * out_bytes,
    )

    def program(cta: RoleContext) -> Iterator[ops.Op]:
        tokens = []
        for part in range(parts):
            tokens.append((yield ops.GlobalLoad("parts", (cta.cta_idx, part), load)))
        for token in tokens:
            yield ops.Use(token)
            yield ops.Fma(ELEMENTS_PER_THREAD)
        yield ops.Alu(ELEMENTS_PER_THREAD)
        yield ops.GlobalStore("D", (cta.cta_idx, 0), store)

    def same(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return tiles

    return Launch(
        kernel="gemm_reduction",
        num_ctas=num_ctas,
        num_tiles=num_ctas,
        roles=(WarpRole(name="reduce", num_warps=warps, program=program),),
        registers_per_thread=32,
        registers_source="4 accumulators, addresses; a light kernel",
        footprints=(
            Footprint(
                tensor="parts", access="read", panel_of=same,
                panel_bytes=lambda tiles: np.full(len(tiles), per_cta * 4 * parts, dtype=np.int64), num_steps=parts,
            ),
            Footprint(
                tensor="D", access="write", panel_of=same,
                panel_bytes=lambda tiles: np.full(len(tiles), per_cta * out_bytes, dtype=np.int64),
            ),
        ),
        num_flops=num_elements * parts,
        math_class="fp32",
    )
