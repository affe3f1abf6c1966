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
from gpusim.workload.data_access import Registers
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


def _row_role(
    params: ReductionParams, passes_of: list[tuple[int, int]], num_alone: int, first_warp: int, num_warps: int
) -> WarpRole:
    """Some warps of a row. ``passes_of``: number of threads that load in each pass over it, and its first vector."""
    threads_of, begins = zip(*passes_of, strict=True)
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
                data = partial(load, row, step - first_step, 1)
                yield ops.Use((yield ops.GlobalLoad("in", (row, step), access, data=data)))
                yield unpack_one
                yield add_one
        for turn in cta.loop(len(turns)) if len(turns) > 1 else range(len(turns)):
            data = partial(load, row, num_alone + turn * UNROLLED, UNROLLED)
            token = yield ops.GlobalLoad("in", (row, first_step + len(alone) + turn), turns[turn], data=data)
            yield ops.Use(token)
            yield unpack
            yield add
        yield shuffle
        yield sums
        yield ops.SharedStore(word, data=left)
        yield ops.Syncthreads()
        if first:
            return
        yield ops.Use((yield ops.SharedLoad(words, data=taken)))
        yield shuffle_words
        yield add_words
        yield after
        yield ops.GlobalStore("out", (row, 0), result, data=lambda op: stored("out", np.array([[row]]), "row")(op))

    def load(row: int, begin: int, num: int, op: ops.Op) -> Any:
        """Data access of the passes ``begin`` to ``begin + num`` over a row, whose elements are added to the sum."""
        thread = first + np.arange(num_warps * WARP_SIZE)[:, None, None]
        vector = np.array(begins[begin : begin + num])[:, None]
        is_inside = thread < np.array(threads_of[begin : begin + num])[:, None]
        element = row * params.columns + (vector + thread) * elements + np.arange(elements)
        return loaded("in", np.where(is_inside, element, -1).reshape(len(thread), -1), LOADED, add_loaded)(op)

    def add_loaded(registers: Registers) -> None:
        registers["sum"] = registers.get("sum", 0) + registers[LOADED].sum(axis=1, keepdims=True)

    def leave(registers: Registers) -> None:
        registers["word"] = of_warps(registers.get("sum", np.zeros((num_warps * WARP_SIZE, 1), dtype=np.float32)), np.sum)

    def take(registers: Registers) -> None:
        registers["row"] = registers["words"].sum(axis=1, keepdims=True)[:1]

    lane = np.arange(num_warps * WARP_SIZE)[:, None]
    left = shared(np.where(lane % WARP_SIZE == 0, WORD_BYTES * (first_warp + lane // WARP_SIZE), -1), FP32, "word", leave)
    taken = shared(np.broadcast_to(WORD_BYTES * np.arange(num_all), (len(lane), num_all)), FP32, "words", take)
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
    leave, take = left_words(params, num_warps), taken_words(params)
    finishing = params.width / params.threads  # part of the threads
    finish = ops.Fma(num_warps * finishing, is_chain=True)
    result = dense_access(0, params.width, WORD_BYTES)

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        yield before
        token = yield ops.GlobalLoad("in", (cta.cta_idx, 0), loads[0], data=partial(load, cta.cta_idx, 0))
        for step in range(1, len(loads) + 1):
            yield ops.Use(token)
            if step < len(loads):
                token = yield ops.GlobalLoad("in", (cta.cta_idx, step), loads[step], data=partial(load, cta.cta_idx, step))
            yield unpack
            yield add
        yield ops.SharedStore(leave, data=left)
        yield ops.Syncthreads()
        yield ops.Use((yield ops.SharedLoad(take, data=taken)))
        yield finish
        yield after
        group = cta.cta_idx % num_groups
        of_group = (lambda op: stored("out", np.where(column < params.width, group * params.width + column, -1), "result")(op))
        yield ops.GlobalAtomic("out", (group, 0), result, data=of_group)

    thread = np.arange(params.threads)[:, None]
    column = thread

    def load(cta_idx: int, step: int, op: ops.Op) -> Any:
        """Data access of some rows of a CTA's columns, which are added to sums of each lane's columns."""
        part, group = divmod(cta_idx, num_groups)
        turn = np.arange(step * UNROLLED, min((step + 1) * UNROLLED, turns))[:, None]
        row = part * params.rows_per_cta + turn * num_warps + thread[:, :, None] // WARP_SIZE
        of_lane = group * params.width + thread[:, :, None] % WARP_SIZE * elements + np.arange(elements)
        index = np.where(row < params.rows, row * params.columns + of_lane, -1)
        return loaded("in", index.reshape(len(thread), -1), LOADED, add_loaded)(op)

    def add_loaded(registers: Registers) -> None:
        registers["sum"] = registers.get("sum", 0) + registers[LOADED].reshape(params.threads, -1, elements).sum(axis=1)

    def add_words(registers: Registers) -> None:
        registers["result"] = registers["words"].sum(axis=1, keepdims=True)

    words = thread // WARP_SIZE * params.width + thread % WARP_SIZE * elements + np.arange(elements)
    left = shared(WORD_BYTES * words, FP32, "sum")
    rows_of_words = np.arange(num_warps) * params.width + np.minimum(column, params.width - 1)
    taken = shared(WORD_BYTES * rows_of_words, FP32, "words", add_words)

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
