"""Reduction: sums of the rows or of the columns of an array, in fp32."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import numpy as np

from gpusim.kernel_models.grid_reduction import grid_launch
from gpusim.kernel_models.reduction_options import UNROLLED, ReductionParams, left_words, taken_words
from gpusim.kernel_models.rows import WARP_STEPS, WORD_BYTES, unpacking
from gpusim.kernel_models.stream_data import LOADED, loaded, of_warps, shared, stored
from gpusim.kernel_models.streaming import IntArray, dense_access, share_footprint, total
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, Registers, SharedElements
from gpusim.workload.dtypes import FP32
from gpusim.workload.launch import Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

# In a row, remaining loads come first, one by one. In columns, all loads of a block are in straight-line code, but there are
# registers for four.
BEFORE_ROW, EACH_TURN, AFTER_ROW = 33, 5, 9
"""Instructions of a thread: before its first load, per loop iteration besides loads and sums, and after the last sum.
Source of this and the next constants: SASS of kernels/reduction, sm_90a."""
BEFORE_COLUMNS, AFTER_COLUMNS = 44, 8
"""Instructions of a thread that sums columns: before the first load, and from the warps' sums to the atomic."""


def reduction_launch(params: ReductionParams, gpu: Target) -> Launch:
    """The Launch of checked ``params``."""
    if params.is_in_steps:
        return grid_launch(params, gpu)
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
    passes_of = [(min(params.threads, num_vectors - begin), begin) for begin in range(0, num_vectors, params.threads)]
    num_alone = len(passes_of) % UNROLLED
    if passes_of[-1][0] < params.threads:  # a partial pass: it makes no difference which one is executed separately
        passes_of = passes_of[-1:] + passes_of[:-1] if num_alone else passes_of
    num_turns = len(passes_of) // UNROLLED
    at_once = 1 if num_turns > 1 and params.rows <= num_sms else params.num_warps
    roles = tuple(_row_role(params, passes_of, num_alone, first, at_once) for first in range(0, params.num_warps, at_once))
    num_steps = num_alone + num_turns
    return Launch(
        kernel="reduction",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=roles,
        registers_per_thread=params.registers_per_thread,
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
        tensors=_tensors(params, params.rows),
    )


class _RowData:
    """Data accesses of some warps of a row. ``passes_of``: as in :func:`_row_role`."""

    def __init__(self, params: ReductionParams, passes_of: list[tuple[int, int]], first_warp: int, num_warps: int) -> None:
        self._params, self._passes, self._num_threads = params, passes_of, num_warps * WARP_SIZE
        self._lane = np.arange(self._num_threads)[:, None]
        self._first_warp = first_warp

    def load(self, row: int, begin: int, num: int, _op: ops.Op) -> GlobalElements:
        """The passes ``begin`` to ``begin + num`` over a row, whose elements are added to the sum."""
        elements, thread = self._params.vector_elements, self._first_warp * WARP_SIZE + self._lane[:, :, None]
        threads_of, begins = (np.array(each)[:, None] for each in zip(*self._passes[begin : begin + num], strict=True))
        element = row * self._params.columns + (begins + thread) * elements + np.arange(elements)
        return loaded("in", np.where(thread < threads_of, element, -1).reshape(len(thread), -1), LOADED, self._add)

    @staticmethod
    def _add(registers: Registers) -> None:
        registers["sum"] = registers.get("sum", 0) + registers[LOADED].sum(axis=1, keepdims=True)

    def _leave(self, registers: Registers) -> None:
        zeros = np.zeros((self._num_threads, 1), dtype=np.float32)
        registers["word"] = of_warps(registers.get("sum", zeros), np.sum)

    @staticmethod
    def _take(registers: Registers) -> None:
        registers["row"] = registers["words"].sum(axis=1, keepdims=True)[:1]

    def left(self, _op: ops.Op) -> SharedElements:
        """The word of each warp, by its first lane."""
        is_first, word = self._lane % WARP_SIZE == 0, self._first_warp + self._lane // WARP_SIZE
        return shared(np.where(is_first, WORD_BYTES * word, -1), FP32, "word", self._leave)

    def taken(self, _op: ops.Op) -> SharedElements:
        """The words of all warps."""
        num = self._params.num_warps
        return shared(np.broadcast_to(WORD_BYTES * np.arange(num), (self._num_threads, num)), FP32, "words", self._take)

    @staticmethod
    def store(row: int, _op: ops.Op) -> GlobalElements:
        """The sum of a row."""
        return stored("out", np.array([[row]]), "row")


def _row_role(
    params: ReductionParams, passes_of: list[tuple[int, int]], num_alone: int, first_warp: int, num_warps: int
) -> WarpRole:
    """Some warps of a row. ``passes_of``: number of threads that load in each pass over it, and its first vector."""
    threads_of, data = [threads for threads, _ in passes_of], _RowData(params, passes_of, first_warp, num_warps)
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
                of_pass = partial(data.load, row, step - first_step, 1)
                yield ops.Use((yield ops.GlobalLoad("in", (row, step), access, data=of_pass)))
                yield unpack_one
                yield add_one
        for turn in cta.loop(len(turns)) if len(turns) > 1 else range(len(turns)):
            of_turn = partial(data.load, row, num_alone + turn * UNROLLED, UNROLLED)
            token = yield ops.GlobalLoad("in", (row, first_step + len(alone) + turn), turns[turn], data=of_turn)
            yield ops.Use(token)
            yield unpack
            yield add
        yield shuffle
        yield sums
        yield ops.SharedStore(word, data=data.left)
        yield ops.Syncthreads()
        if first:
            return
        yield ops.Use((yield ops.SharedLoad(words, data=data.taken)))
        yield shuffle_words
        yield add_words
        yield after
        yield ops.GlobalStore("out", (row, 0), result, data=partial(data.store, row))

    name = "row" if num_warps == num_all else f"warp {first_warp}"
    return WarpRole(name=name, num_warps=num_warps, program=program)


class _ColumnData:
    """Data accesses of a CTA of a sum of columns."""

    def __init__(self, params: ReductionParams) -> None:
        self._params, self._thread = params, np.arange(params.threads)[:, None]
        self._lane_column = self._thread % WARP_SIZE * params.vector_elements + np.arange(params.vector_elements)

    def load(self, cta_idx: int, step: int, _op: ops.Op) -> GlobalElements:
        """Some rows of a CTA's columns, which are added to sums of each lane's columns."""
        params, turns = self._params, self._params.rows_per_cta // self._params.num_warps
        part, group = divmod(cta_idx, params.columns // params.width)
        turn = np.arange(step * UNROLLED, min((step + 1) * UNROLLED, turns))[:, None]
        row = part * params.rows_per_cta + turn * params.num_warps + self._thread[:, :, None] // WARP_SIZE
        element = row * params.columns + group * params.width + self._lane_column[:, None, :]
        index = np.where(row < params.rows, element, -1).reshape(len(element), -1)
        return loaded("in", index, LOADED, self._add_rows)

    def _add_rows(self, registers: Registers) -> None:
        rows = registers[LOADED].reshape(self._params.threads, -1, self._params.vector_elements)
        registers["sum"] = registers.get("sum", 0) + rows.sum(axis=1)

    def left(self, _op: ops.Op) -> SharedElements:
        """The sums of each lane's columns."""
        return shared(WORD_BYTES * (self._thread // WARP_SIZE * self._params.width + self._lane_column), FP32, "sum")

    def taken(self, _op: ops.Op) -> SharedElements:
        """The sums of all warps of a thread's column."""
        column = np.minimum(self._thread, self._params.width - 1)
        words = np.arange(self._params.num_warps) * self._params.width + column
        return shared(WORD_BYTES * words, FP32, "words", _add_words)

    def add(self, group: int, _op: ops.Op) -> GlobalElements:
        """The atomic of a thread's column."""
        width = self._params.width
        return stored("out", np.where(self._thread < width, group * width + self._thread, -1), "result")


def _add_words(registers: Registers) -> None:
    registers["result"] = registers["words"].sum(axis=1, keepdims=True)


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
    leave, take = left_words(params, num_warps), taken_words(params)
    finishing = params.width / params.threads  # part of the threads
    finish = ops.Fma(num_warps * finishing, is_chain=True)
    result, data = dense_access(0, params.width, WORD_BYTES), _ColumnData(params)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        yield before
        token = yield ops.GlobalLoad("in", (cta.cta_idx, 0), loads[0], data=partial(data.load, cta.cta_idx, 0))
        for step in range(1, len(loads) + 1):
            yield ops.Use(token)
            if step < len(loads):
                rows = partial(data.load, cta.cta_idx, step)
                token = yield ops.GlobalLoad("in", (cta.cta_idx, step), loads[step], data=rows)
            yield unpack
            yield add
        yield ops.SharedStore(leave, data=data.left)
        yield ops.Syncthreads()
        yield ops.Use((yield ops.SharedLoad(take, data=data.taken)))
        yield finish
        yield after
        group = cta.cta_idx % num_groups
        yield ops.GlobalAtomic("out", (group, 0), result, data=partial(data.add, group))

    def group_of(tiles: IntArray) -> IntArray:
        return tiles % num_groups

    def group_bytes(tiles: IntArray) -> IntArray:
        return np.full_like(tiles, params.width * WORD_BYTES)

    return Launch(
        kernel="reduction",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name="column", num_warps=num_warps, program=program),),
        registers_per_thread=params.registers_per_thread,
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
        tensors=_tensors(params, params.columns),
    )


def _tensors(params: ReductionParams, num_sums: int) -> tuple[MemRef, ...]:
    array = MemRef.row_major("in", (params.rows, params.columns), params.element)
    return array, MemRef.row_major("out", (num_sums,), FP32)
