"""Reduction: sums of the rows or of the columns of an array, in fp32."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.rows import WARP_STEPS, WORD_BYTES, Columns, Count, unpacking
from gpusim.kernel_models.streaming import (
    IntArray,
    StreamParams,
    VectorBytes,
    ceil_div,
    check_grid,
    check_vector,
    dense_access,
    share_footprint,
    total,
)
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern, wavefronts

UNROLLED = 4
"""Number of loads of a thread in flight. In a row, remaining loads come first, one by one. In columns, all loads of a
block are in straight-line code, but there are registers for four."""
BEFORE_ROW, EACH_TURN, AFTER_ROW = 33, 5, 9
"""Instructions of a thread: before its first load, per loop iteration besides loads and sums, and after the last sum.
Source of this and the next constants: SASS of kernels/reduction, sm_90a."""
BEFORE_COLUMNS, AFTER_COLUMNS = 44, 8
"""Instructions of a thread that sums columns: before the first load, and from the warps' sums to the atomic."""
REGISTERS: Mapping[tuple[str, int], int] = {("row", 4): 24, ("row", 2): 26, ("column", 4): 32, ("column", 2): 32}
"""Registers of a thread, by axis and bytes of an element."""


class ReductionParams(StreamParams):
    """Sums along an axis: of each row, one CTA a row; or of each column.

    * ``row``: threads alternate over a row's vectors. Then come shuffles, one word a warp through shared memory, and one
      store.
    * ``column``: a CTA processes ``rows_per_cta`` rows of as many columns as a warp reads at once. Its warps alternate over
      rows and exchange sums in shared memory. One fp32 atomic a column adds them to the result, which was zero.
    """

    rows: Count = Field(description="Rows of the array")
    columns: Columns = Field(description="Elements per row")
    axis: Literal["row", "column"] = Field("row", description="Sum of each row, or of each column")
    vector_bytes: VectorBytes = Field(16, description="Vector width: bytes a thread loads at once")
    rows_per_cta: Annotated[int, Field(ge=1, le=65536)] = Field(
        64, description="Rows per CTA where columns are summed (--axis column)"
    )

    @property
    def vector_elements(self) -> int:
        """Elements of a vector."""
        return self.vector_bytes // self.element.num_bytes

    @property
    def num_warps(self) -> int:
        """Number of warps of a CTA."""
        return self.threads // WARP_SIZE

    @property
    def width(self) -> int:
        """Number of columns that a warp reads at once."""
        return WARP_SIZE * self.vector_elements

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        if self.axis == "row":
            return self.rows
        return ceil_div(self.rows, self.rows_per_cta) * ceil_div(self.columns, self.width)

    def _check(self) -> None:
        check_vector("reduction", self.vector_bytes, self.element.num_bytes)
        if self.columns % self.vector_elements:
            raise KernelError(
                f"reduction: {self.columns} columns are no whole vectors of {self.vector_elements} elements: use a multiple "
                f"or fewer --vector-bytes"
            )
        if self.axis == "column":
            self._check_columns()
        check_grid("reduction", self.num_ctas, use="use fewer --rows")

    def _check_columns(self) -> None:
        for name, has, unit, why in (
            ("columns", self.columns, self.width, "what a warp reads at once"),
            ("rows", self.rows, self.rows_per_cta, "the rows of a CTA"),
            ("rows per CTA", self.rows_per_cta, self.num_warps, "a row for each warp"),
        ):
            if has % unit:
                raise KernelError(f"reduction: {has} {name} are no multiple of {unit} ({why}): use one")
        if self.threads < self.width:
            raise KernelError(
                f"reduction: {self.threads} threads finish {self.width} columns, wants one each: use more --threads or "
                f"fewer --vector-bytes"
            )


def reduction_launch(params: ReductionParams, gpu: Target) -> Launch:
    """The Launch of checked ``params``."""
    return row_launch(params, gpu.num_sms) if params.axis == "row" else column_launch(params)


def row_launch(params: ReductionParams, num_sms: int) -> Launch:
    """The Launch of a kernel with one CTA a row.

    Warps run independently if a row takes more than one loop iteration and no SM has two of them. Otherwise they run
    together.

    Ignores:
    * Warps of one CTA that run ahead of others while other CTAs hide it.
    """
    width = params.element.num_bytes
    row_bytes = params.columns * width
    num_vectors = row_bytes // params.vector_bytes
    threads_of = [min(params.threads, num_vectors - begin) for begin in range(0, num_vectors, params.threads)]
    num_alone = len(threads_of) % UNROLLED
    if threads_of[-1] < params.threads:  # a partial pass: it makes no difference which one is executed separately
        threads_of = threads_of[-1:] + threads_of[:-1] if num_alone else threads_of
    num_turns = len(threads_of) // UNROLLED
    at_once = 1 if num_turns > 1 and params.rows <= num_sms else params.num_warps
    roles = tuple(_row_role(params, threads_of, num_alone, first, at_once) for first in range(0, params.num_warps, at_once))
    num_steps = num_alone + num_turns
    return Launch(
        kernel="reduction",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=roles,
        registers_per_thread=REGISTERS["row", width],
        registers_source="ptxas of kernels/reduction",
        extra_smem_bytes=params.num_warps * WORD_BYTES,
        footprints=(
            share_footprint(
                "in", "read", num_bytes=params.rows * row_bytes, share_bytes=row_bytes, num_steps=len(roles) * num_steps
            ),
            share_footprint("out", "write", num_bytes=params.rows * WORD_BYTES, share_bytes=WORD_BYTES),
        ),
        num_flops=params.rows * params.columns,
        math_class="fp32",
        has_uniform_programs=True,
    )


def _row_role(params: ReductionParams, threads_of: list[int], num_alone: int, first_warp: int, num_warps: int) -> WarpRole:
    """Some warps of a row. ``threads_of``: number of threads that load in each pass over it."""
    num_all, elements, unpacked = params.num_warps, params.vector_elements, unpacking(params.element.num_bytes)
    first = first_warp * WARP_SIZE
    loads = [
        dense_access(0, min(max(threads - first, 0), num_warps * WARP_SIZE), params.vector_bytes) for threads in threads_of
    ]
    alone = loads[:num_alone]
    turns = [total(loads[begin : begin + UNROLLED]) for begin in range(num_alone, len(loads), UNROLLED)]
    first_step = first_warp // num_warps * (len(alone) + len(turns))
    unpack_one, add_one = ops.Alu(EACH_TURN + elements * unpacked), ops.Fma(elements, is_chain=True)
    unpack, add = ops.Alu(EACH_TURN + UNROLLED * elements * unpacked), ops.Fma(UNROLLED * elements, is_chain=True)
    before, after = ops.Alu(BEFORE_ROW, is_chain=True), ops.Alu(AFTER_ROW, is_chain=True)
    shuffle, sums = ops.Shfl(WARP_STEPS, is_chain=True), ops.Fma(WARP_STEPS, is_chain=True)
    steps = (num_all - 1).bit_length()
    word = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=num_warps * WORD_BYTES)
    words = AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=num_all * WORD_BYTES)
    shuffle_words, add_words = ops.Shfl(steps, is_chain=True, num_warps=1), ops.Alu(steps, is_chain=True)
    result = dense_access(0, 1, WORD_BYTES)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        row = cta.cta_idx
        yield before
        for step, access in enumerate(alone, start=first_step):
            if access.num_requests:
                yield ops.Use((yield ops.GlobalLoad("in", (row, step), access)))
                yield unpack_one
                yield add_one
        for turn in cta.loop(len(turns)) if len(turns) > 1 else range(len(turns)):
            token = yield ops.GlobalLoad("in", (row, first_step + len(alone) + turn), turns[turn])
            yield ops.Use(token)
            yield unpack
            yield add
        yield shuffle
        yield sums
        yield ops.SharedStore(word)
        yield ops.Syncthreads()
        if first:
            return
        yield ops.Use((yield ops.SharedLoad(words)))
        yield shuffle_words
        yield add_words
        yield after
        yield ops.GlobalStore("out", (row, 0), result)

    name = "row" if num_warps == num_all else f"warp {first_warp}"
    return WarpRole(name=name, num_warps=num_warps, program=program)


def column_launch(params: ReductionParams) -> Launch:
    """The Launch of a kernel with one CTA for each block of rows and columns.

    Ignores:
    * That atomics on the same column wait for one another.
    """
    width, num_warps, elements = params.element.num_bytes, params.num_warps, params.vector_elements
    num_groups = params.columns // params.width
    turns = params.rows_per_cta // num_warps
    of_row = dense_access(0, WARP_SIZE, params.vector_bytes)
    loads = [of_row.scaled(num_warps * min(UNROLLED, turns - begin)) for begin in range(0, turns, UNROLLED)]
    share = params.rows_per_cta * params.width * width
    before, after = ops.Alu(BEFORE_COLUMNS, is_chain=True), ops.Alu(AFTER_COLUMNS)
    each = turns * elements / len(loads)
    unpack, add = ops.Alu(each * unpacking(width)), ops.Fma(each)
    leave, take = _left(params), _taken(params)
    finishing = params.width / params.threads  # part of the threads
    finish = ops.Fma(num_warps * finishing, is_chain=True)
    result = dense_access(0, params.width, WORD_BYTES)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        yield before
        token = yield ops.GlobalLoad("in", (cta.cta_idx, 0), loads[0])
        for step in range(1, len(loads) + 1):
            yield ops.Use(token)
            if step < len(loads):
                token = yield ops.GlobalLoad("in", (cta.cta_idx, step), loads[step])
            yield unpack
            yield add
        yield ops.SharedStore(leave)
        yield ops.Syncthreads()
        yield ops.Use((yield ops.SharedLoad(take)))
        yield finish
        yield after
        yield ops.GlobalAtomic("out", (cta.cta_idx % num_groups, 0), result)

    def group_of(tiles: IntArray) -> IntArray:
        return tiles % num_groups

    def group_bytes(tiles: IntArray) -> IntArray:
        return np.full_like(tiles, params.width * WORD_BYTES)

    return Launch(
        kernel="reduction",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name="column", num_warps=num_warps, program=program),),
        registers_per_thread=REGISTERS["column", width],
        registers_source="ptxas of kernels/reduction",
        extra_smem_bytes=num_warps * params.width * WORD_BYTES,
        footprints=(
            share_footprint(
                "in", "read", num_bytes=params.rows * params.columns * width, share_bytes=share, num_steps=len(loads)
            ),
            Footprint(tensor="out", access="write", panel_of=group_of, panel_bytes=group_bytes),
        ),
        num_flops=params.rows * params.columns,
        math_class="fp32",
        has_uniform_programs=True,
    )


def _left(params: ReductionParams) -> AccessPattern:
    """Stores of the sums of each lane's columns to shared memory, in vectors of four."""
    lanes = np.arange(WARP_SIZE)
    at_once = min(4, params.vector_elements)
    stores = [
        int(wavefronts(f"st_shared_b{32 * at_once}", WORD_BYTES * (lanes * params.vector_elements + first)))
        for first in range(0, params.vector_elements, at_once)
    ]
    return AccessPattern(
        num_requests=len(stores) * params.num_warps, num_wavefronts=sum(stores) * params.num_warps,
        num_bytes=params.num_warps * params.width * WORD_BYTES,
    )


def _taken(params: ReductionParams) -> AccessPattern:
    """Loads of the sums of all warps from shared memory, by one thread for each column."""
    num = params.num_warps * ceil_div(params.width, WARP_SIZE)
    return AccessPattern(num_requests=num, num_wavefronts=num, num_bytes=params.num_warps * params.width * WORD_BYTES)
