"""The second kernel of split-K: adds the parts and writes D."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpusim.kernel_models.gemm.epilogue import ACTIVATION_COST
from gpusim.kernel_models.gemm.params import GemmParams
from gpusim.kernel_models.gemm.tiles import SUM_BYTES, ceil_div
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.access import AccessPattern
from gpusim.workload.launch import Footprint, Launch, RoleContext, WarpRole

THREADS = 256
ELEMENTS_PER_THREAD = 4
PER_CTA = THREADS * ELEMENTS_PER_THREAD


def reduction_launch(params: GemmParams) -> Launch:
    """A kernel in which each thread adds ``split_k`` parts of four elements, finishes and stores them.

    Ignores: where in the workspace a tile's elements lie; it is walked from end to end.
    """
    num_elements = params.m * params.n * params.batch
    num_ctas = ceil_div(num_elements, PER_CTA)
    parts, width = params.split_k, params.out_element.num_bytes
    alu, mufu = ACTIVATION_COST[params.activation]
    per_element = 1.0 + alu + (params.beta != 0.0) + params.bias  # alpha and conversion

    def elements_of(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.asarray(np.clip(num_elements - tiles * PER_CTA, 0, PER_CTA))

    def vectors(cta: RoleContext, num_bytes: int) -> AccessPattern:
        count = min(PER_CTA, num_elements - cta.cta_idx * PER_CTA)
        total = count * num_bytes
        return AccessPattern(
            num_requests=ceil_div(count, ELEMENTS_PER_THREAD * WARP_SIZE),
            num_sectors=ceil_div(total, SECTOR_BYTES), num_lines=ceil_div(total, LINE_BYTES), num_bytes=total,
        )

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        load = vectors(cta, SUM_BYTES)
        tokens = []
        for part in range(parts):
            tokens.append((yield ops.GlobalLoad("workspace", (cta.cta_idx, part), load)))
        others = []
        if params.beta != 0.0:
            others.append((yield ops.GlobalLoad("C", (cta.cta_idx, 0), vectors(cta, width))))
        if params.bias:
            others.append((yield ops.GlobalLoad("bias", (0, 0), load)))
        for token in tokens:
            yield ops.Use(token)
            yield ops.Fma(ELEMENTS_PER_THREAD)
        for token in others:
            yield ops.Use(token)
        yield ops.Alu(ELEMENTS_PER_THREAD * per_element)
        if mufu:
            yield ops.Mufu(ELEMENTS_PER_THREAD * mufu)
        yield ops.GlobalStore("D", (cta.cta_idx, 0), vectors(cta, width))

    def out_bytes(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return elements_of(tiles) * width

    def same(tiles: NDArray[np.int64]) -> NDArray[np.int64]:
        return tiles

    found = [
        Footprint(
            tensor="workspace", access="read", panel_of=same,
            panel_bytes=lambda tiles: elements_of(tiles) * SUM_BYTES * parts, num_steps=parts,
        ),
        Footprint(tensor="D", access="write", panel_of=same, panel_bytes=out_bytes),
    ]
    if params.beta != 0.0:
        found.append(Footprint(tensor="C", access="read", panel_of=same, panel_bytes=out_bytes))
    return Launch(
        kernel="gemm_reduction",
        num_ctas=num_ctas,
        num_tiles=num_ctas,
        roles=(WarpRole(name="reduce", num_warps=THREADS // WARP_SIZE, program=program),),
        registers_per_thread=32,
        registers_source="4 accumulators, addresses; a light kernel",
        footprints=tuple(found),
        num_flops=num_elements * parts,
        math_class="fp32",
    )
