"""Strided copy: every n-th element of a tensor to a contiguous output."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from gpusim.kernel_models.stream_data import loaded, shares, stored
from gpusim.kernel_models.streaming import (
    Elements,
    IntArray,
    StreamParams,
    all_passes,
    ceil_div,
    check_grid,
    passes,
    same,
    share_footprint,
)
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements
from gpusim.workload.launch import Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.tensor import MemRef

BEFORE_LOADS, BEFORE_STORES, EACH_ELEMENT = 30, 2, 10
"""Integer instructions of a thread: before its first load, before its first store, and for each element of a partial last
CTA.
Source: SASS of kernels/strided_copy, sm_90a."""
LEAST_REGISTERS, OTHER_REGISTERS = 16, 12
"""Registers of a thread: at least, and besides the data. Source: SASS of kernels/strided_copy, sm_90a."""


class StridedCopyParams(StreamParams):
    """out[i] = in[i * stride].

    Thread t of a CTA processes its elements t, t + threads, ... All loads of a thread are issued before its first store. A
    CTA with a partial share processes it element by element.
    """

    elements: Elements = Field(description="Elements of the output")
    stride: Annotated[int, Field(ge=1, le=1 << 20)] = Field(description="Stride of the input, in elements")
    items_per_thread: Annotated[int, Field(ge=1, le=32)] = Field(1, description="Elements per thread")

    @property
    def share(self) -> int:
        """Elements of a CTA."""
        return self.threads * self.items_per_thread

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        return ceil_div(self.elements, self.share)

    def _check(self) -> None:
        check_grid("strided_copy", self.num_ctas, use="use more --items-per-thread or --threads")


def strided_copy_launch(params: StridedCopyParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``. The cost of loads is that of all sectors that contain one of their elements."""
    width, threads, share, num_elements = params.element.num_bytes, params.threads, params.share, params.elements
    pitch = params.stride * width
    before, between, each = ops.Alu(BEFORE_LOADS, is_chain=True), ops.Alu(BEFORE_STORES), ops.Alu(EACH_ELEMENT)

    def read(first: int, items: int, _op: ops.Op) -> GlobalElements:
        """Data access of ``items`` elements a thread, from element ``first`` on."""
        out = shares(first, num_elements, threads, items)
        return loaded("in", np.where(out < 0, -1, out * params.stride))

    def write(first: int, items: int, _op: ops.Op) -> GlobalElements:
        return stored("out", shares(first, num_elements, threads, items))

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        first = panel * share
        from_byte, to_byte = first * pitch % LINE_BYTES, first * width % LINE_BYTES
        yield before
        if first + share <= num_elements:
            items, access = params.items_per_thread, all_passes(from_byte, share, threads, width, pitch)
            token = yield ops.GlobalLoad("in", (panel, 0), access, data=partial(read, first, items))
            yield between
            yield ops.Use(token)
            access = all_passes(to_byte, share, threads, width)
            yield ops.GlobalStore("out", (panel, 0), access, data=partial(write, first, items))
            return
        rest = num_elements - first
        loads, stores = passes(from_byte, rest, threads, width, pitch), passes(to_byte, rest, threads, width)
        for step, (load, store) in enumerate(zip(loads, stores, strict=True)):
            at = first + step * threads
            yield ops.Use((yield ops.GlobalLoad("in", (panel, step), load, data=partial(read, at, 1))))
            yield ops.GlobalStore("out", (panel, step), store, data=partial(write, at, 1))
            yield each

    return Launch(
        kernel="strided_copy",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name="copy", num_warps=threads // WARP_SIZE, program=program),),
        registers_per_thread=max(LEAST_REGISTERS, min(255, params.items_per_thread + OTHER_REGISTERS)),
        registers_source="SASS of kernels/strided_copy",
        footprints=(
            _sectors_footprint(params),
            share_footprint("out", "write", num_bytes=num_elements * width, share_bytes=share * width),
        ),
        has_uniform_programs=share * width % LINE_BYTES == 0,  # CTAs begin at the same offset in a line
        tensors=(
            MemRef.row_major("in", ((num_elements - 1) * params.stride + 1,), params.element),
            MemRef.row_major("out", (num_elements,), params.element),
        ),
    )


def _sectors_footprint(params: StridedCopyParams) -> Footprint:
    """Footprint of the input: full sectors, and the blocks of memory that contain them."""
    width = params.element.num_bytes
    pitch = params.stride * width

    def block_bytes(tiles: IntArray, size: int) -> IntArray:
        count = np.minimum(params.share, params.elements - tiles * params.share)
        if pitch >= size:  # one block for each element
            return np.asarray(count * size)
        first = tiles * params.share * pitch
        end = first + (count - 1) * pitch + width
        return np.asarray((-(-end // size) - first // size) * size)

    return Footprint(
        tensor="in", access="read", panel_of=same, panel_bytes=lambda tiles: block_bytes(tiles, SECTOR_BYTES),
        block_bytes=block_bytes, piece_bytes=SECTOR_BYTES if pitch >= LINE_BYTES else 0,
        piece_stride_bytes=pitch if pitch >= LINE_BYTES else 0,
    )
