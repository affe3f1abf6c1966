"""Sums in two steps: CTAs sum parts, then the last CTA to arrive, atomics, or a second launch sum the parts.

Also sums of rows by a warp each. The launches of ``reduction`` with options that ask for this.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from gpusim.kernel_models.grid_reduction_data import GROUP_WARPS, GridDivision
from gpusim.kernel_models.reduction_options import ReductionParams, left_words, taken_words
from gpusim.kernel_models.rows import WARP_STEPS, WORD_BYTES, unpacking
from gpusim.kernel_models.streaming import IntArray, ceil_div, dense_access, lanes_access, same, share_footprint, total
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.launch import Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern

BEFORE, AFTER = 45, 12
"""Instructions of a thread around the store of a part; ``BEFORE``: before its first load. Source of this and the next
constants: SASS of kernels/grid_reduction, sm_90a."""
EACH_VECTOR, EACH_ALONE = 12, 8
"""Instructions of a thread for each of several vectors in flight, besides its sums; ``EACH_ALONE``: of one in flight."""
PARTS_UNROLLED = 16
"""Loads of parts of a thread that are in flight at once."""
COUNT = 73
"""Dependent instructions that take what fences, counter and barriers do beyond ours. Source: measured: kernels/grid_counter,
h200_sxm: 132 CTAs, eight counters, 1,801 cycles; ours take 1,508."""
EACH_PART_ALONE = 6
"""Dependent instructions of torch's threads from a part to the next load. Source: ``global_reduce`` of its ``Reduce.cuh``,
as nvcc 13 compiles it for sm_90."""
BEFORE_PARTS, EACH_PART = 35, 3
"""Instructions of a thread: before its first load of a part, and for each part."""
SECOND_THREADS = 256
"""Threads of a CTA of the second launch: a warp a row, or a thread a column."""
SECOND_REGISTERS = 32


def grid_launch(params: ReductionParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``, with a second one behind it where ``params.finish`` asks for it.

    Ignores:
    * That atomics on the same word wait for one another.
    * Which CTA arrives last. The CTA of a sum's last part sums the parts. The others read a sector instead, because any of
      them may be the last.
    * That the parts of a row, whose vectors alternate, are not contiguous.
    """
    sums = GridSums(params)
    element = params.element.num_bytes
    following = (_second_launch(params, sums),) if params.finish == "second_launch" else ()
    parts = sums.num_sums * sums.num_parts

    def of_sum(tiles: IntArray) -> IntArray:
        return tiles % sums.num_sums

    footprints = [Footprint(
        tensor="in", access="read", panel_of=same, panel_bytes=lambda tiles: sums.part_bytes(tiles // sums.num_sums),
        num_steps=sums.num_steps,
    )]  # fmt: skip
    if params.per == "warp":
        footprints = [share_footprint(
            "in", "read", num_bytes=params.rows * params.columns * element,
            share_bytes=sums.num_warps * params.columns * element, num_steps=sums.num_steps,
        )]  # fmt: skip
    out_bytes = sums.words * WORD_BYTES
    if following or params.finish == "last_cta":
        footprints.append(share_footprint("parts", "write", num_bytes=parts * out_bytes, share_bytes=out_bytes))
    if params.per == "warp":
        share = sums.num_warps * WORD_BYTES
        footprints.append(share_footprint("out", "write", num_bytes=params.rows * WORD_BYTES, share_bytes=share))
    elif not following:
        footprints.append(Footprint(
            tensor="out", access="write", panel_of=of_sum, panel_bytes=lambda tiles: np.full_like(tiles, out_bytes)
        ))  # fmt: skip
    if params.finish == "last_cta":
        footprints.append(Footprint(
            tensor="counter", access="write", panel_of=of_sum, panel_bytes=lambda tiles: np.full_like(tiles, WORD_BYTES)
        ))  # fmt: skip
    return Launch(
        kernel="reduction",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=tuple(sums.role(first) for first in range(0, sums.num_warps, GROUP_WARPS)),
        registers_per_thread=params.registers_per_thread,
        registers_source="ptxas of kernels/grid_reduction",
        extra_smem_bytes=sums.smem_bytes,
        footprints=tuple(footprints),
        num_flops=params.rows * params.columns,
        math_class="fp32",
        has_uniform_programs=params.per == "warp",
        following=following,
        tensors=sums.tensors,
    )


class GridSums(GridDivision):
    """The programs of a CTA's warps."""

    def part_bytes(self, parts: IntArray) -> IntArray:
        """Bytes of parts, int64[n]."""
        each = self.stride // self.num_parts
        has = self.num_rows if self.is_column else self.num_vectors
        full, rest = divmod(has, self.stride)
        num = full * each + np.clip(rest - parts * each, 0, each)
        return np.asarray(num * self.params.vector_bytes * (WARP_SIZE if self.is_column else 1))

    def access(self, part: int, turn: int, first_warp: int, num_warps: int) -> AccessPattern:
        """Loads of some warps of a CTA in one turn."""
        if self.is_column:
            first = turn * self.stride + part * self.num_warps + first_warp
            num = min(max(self.num_rows - first, 0), num_warps)
            return dense_access(0, WARP_SIZE, self.params.vector_bytes).scaled(num)
        first = turn * self.stride + (0 if self.params.per == "warp" else part * self.lanes + first_warp * WARP_SIZE)
        num_lanes = WARP_SIZE if self.params.per == "warp" else num_warps * WARP_SIZE
        return dense_access(0, min(max(self.num_vectors - first, 0), num_lanes), self.params.vector_bytes)

    def role(self, first_warp: int) -> WarpRole:
        """Some warps of a CTA, as a role."""
        params, num_warps = self.params, min(GROUP_WARPS, self.num_warps - first_warp)
        elements, unpack = params.vector_elements, unpacking(params.element.num_bytes)
        turns, each = range(self.num_turns), EACH_VECTOR if params.unroll > 1 else EACH_ALONE
        first_step = first_warp // GROUP_WARPS * self.num_turns

        def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
            part, of_sum = divmod(cta.cta_idx, self.num_sums)
            rows = 1
            if params.per == "warp":
                part, of_sum = 0, cta.cta_idx
                rows = min(max(params.rows - cta.cta_idx * self.num_warps - first_warp, 0), num_warps)
                if not rows:
                    return
            yield ops.Alu(BEFORE, is_chain=True)
            if params.overhead:  # half of them comparisons and shifts, half multiplications, branches and constants
                yield ops.Alu(params.overhead / 2)
                yield ops.Fma(params.overhead / 2)
            loads = [self.access(part, turn, first_warp, num_warps).scaled(rows) for turn in turns]
            for at_once in self._chunks([turn for turn in turns if loads[turn].num_requests]):
                access = total(loads[turn] for turn in at_once)
                data = partial(self.load, cta.cta_idx, at_once, first_warp, num_warps)
                yield ops.Use((yield ops.GlobalLoad("in", (cta.cta_idx, first_step + at_once[0]), access, data=data)))
                vectors = access.num_requests / num_warps
                yield ops.Alu(vectors * (each + elements * unpack))
                yield ops.Fma(vectors * elements)
            if params.per == "warp":
                yield from self._warp_sum(elements)
                of_rows = partial(self.store_rows, cta.cta_idx, first_warp, num_warps)
                yield ops.GlobalStore("out", (cta.cta_idx, first_step), dense_access(0, rows, WORD_BYTES), data=of_rows)
                return
            yield from self._block_sum(first_warp, num_warps, 0 if self.is_column else elements)
            if not first_warp:
                yield from self._leave(cta.cta_idx, of_sum, num_warps)
            if params.finish == "last_cta":
                yield from self._finish(part, of_sum, first_warp, num_warps)

        return WarpRole(name=f"warps {first_warp}", num_warps=num_warps, program=program)

    def _chunks(self, turns: Sequence[int]) -> list[Sequence[int]]:
        """Turns whose loads are in flight at once. torch unpacks the first two remaining 16-bit columns one by one."""
        unroll = self.params.unroll
        found = [turns[begin : begin + unroll] for begin in range(0, len(turns), unroll)]
        if self.is_torch and unpacking(self.params.element.num_bytes) and len(turns) % unroll:
            found += filter(len, ((rest := found.pop())[:1], rest[1:2], rest[2:]))
        return found

    def _warp_sum(self, elements: int) -> Iterator[ops.Op]:
        """The sum of a lane's ``elements`` accumulators, and of the lanes of each warp."""
        yield ops.Fma(max(elements - 1, 0), is_chain=True)
        yield ops.Shfl(WARP_STEPS, is_chain=True)
        yield ops.Fma(WARP_STEPS, is_chain=True)

    def _block_sum(self, first_warp: int, num_warps: int, elements: int) -> Generator[ops.Op, Any, None]:
        """The sums of a CTA, in its first warps: through a word a warp, or of columns through a word a lane's element."""
        left, taken = partial(self.left, first_warp, num_warps), partial(self.taken, num_warps)
        if self.is_column:
            yield ops.SharedStore(left_words(self.params, num_warps), data=left)
            yield ops.Syncthreads()
            if not first_warp:
                yield ops.Use((yield ops.SharedLoad(taken_words(self.params), data=taken)))
                yield ops.Fma(self.num_warps * self.words / (GROUP_WARPS * WARP_SIZE), is_chain=True)
            return
        yield from self._warp_sum(elements)
        yield ops.SharedStore(
            AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=num_warps * WORD_BYTES), data=left
        )
        yield ops.Syncthreads()
        if not first_warp:
            words = AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=self.num_warps * WORD_BYTES)
            yield ops.Use((yield ops.SharedLoad(words, data=taken)))
            yield ops.Shfl(WARP_STEPS, is_chain=True, num_warps=1)
            yield ops.Fma(WARP_STEPS, is_chain=True)

    def _result(self) -> AccessPattern:
        """Stores of the result: by torch column by column, in the array's type."""
        if not self.is_torch:
            return dense_access(0, self.words, WORD_BYTES)
        elements, width = self.params.vector_elements, self.params.element.num_bytes
        return lanes_access(0, WARP_SIZE, width, elements * width).scaled(elements)

    def _leave(self, cta_idx: int, of_sum: int, num_warps: int) -> Iterator[ops.Op]:
        """Store the CTA's part, or add it to the result."""
        words = dense_access(0, self.words, WORD_BYTES)
        yield ops.Alu(AFTER, is_chain=True)
        data = partial(self.result, "out", of_sum, num_warps)
        if self.num_parts == 1 and self.params.finish == "atomic":
            yield ops.GlobalStore("out", (of_sum, 0), self._result(), data=data)
        elif self.params.finish == "atomic":
            yield ops.GlobalAtomic("out", (of_sum, 0), words, data=data)
        else:
            yield ops.GlobalStore("parts", (cta_idx, 0), words, data=partial(self.result, "parts", cta_idx, num_warps))

    def _finish(self, part: int, of_sum: int, first_warp: int, num_warps: int) -> Generator[ops.Op, Any, None]:
        """Count the CTA, and sum the parts."""
        one, is_last = dense_access(0, 1, WORD_BYTES), part == self.num_parts - 1
        yield ops.FenceAcqRel()
        yield ops.Syncthreads()
        if not first_warp:
            yield ops.Alu(COUNT, is_chain=True)
            count = partial(self.count, of_sum, is_last)
            yield ops.Use((yield ops.GlobalAtomic("counter", (of_sum, 0), one, returns=True, data=count)))
            yield ops.SharedStore(AccessPattern(num_requests=1, num_wavefronts=1, num_bytes=WORD_BYTES), data=())
        yield ops.Syncthreads()
        yield ops.FenceAcqRel()
        flag = AccessPattern(num_requests=num_warps, num_wavefronts=num_warps, num_bytes=num_warps * WORD_BYTES)
        yield ops.Use((yield ops.SharedLoad(flag, data=())))
        if self.is_torch:
            if not is_last:
                return
            yield from self._sum_parts(of_sum, first_warp, num_warps)
        elif not first_warp:
            for step, access in enumerate(part_loads(self.num_parts, self.words)):
                at_once, begin = access if is_last else one, step * PARTS_UNROLLED
                num = min(PARTS_UNROLLED, self.num_parts - begin) if self.words > 1 else self.num_parts
                data = partial(self.parts, of_sum, begin, num, num_warps) if is_last else ()
                yield ops.Use((yield ops.GlobalLoad("parts", (of_sum, 1), at_once, allocates_in_l1=False, data=data)))
                yield ops.Fma(min(self.num_parts, PARTS_UNROLLED), is_chain=True)
        if self.is_torch or not self.is_column:  # warps of torch have sums of some parts each
            yield from self._block_sum(first_warp, num_warps, 0)
        if is_last and not first_warp:
            data = partial(self.result, "out", of_sum, num_warps)
            yield ops.GlobalStore("out", (of_sum, 0), self._result(), data=data)

    def _sum_parts(self, of_sum: int, first_warp: int, num_warps: int) -> Generator[ops.Op, Any, None]:
        """Load the parts of a sum as torch does: all warps, one part of a thread in flight, added before the next."""
        words = dense_access(0, WARP_SIZE, self.params.vector_elements * WORD_BYTES)
        for begin in range(first_warp, self.num_parts, self.num_warps):
            access = words.scaled(min(self.num_parts - begin, num_warps))
            data = partial(self.part_of_warp, of_sum, begin, num_warps)
            yield ops.Use((yield ops.GlobalLoad("parts", (of_sum, begin), access, data=data)))
            yield ops.Alu(EACH_PART_ALONE, is_chain=True)


def part_loads(num_parts: int, words: int) -> list[AccessPattern]:
    """Loads of the parts of a sum, grouped by those in flight at once. A thread loads a part, or a word of each part."""
    if words == 1:
        return [dense_access(0, num_parts, WORD_BYTES)]
    row = dense_access(0, words, WORD_BYTES)
    return [row.scaled(min(PARTS_UNROLLED, num_parts - begin)) for begin in range(0, num_parts, PARTS_UNROLLED)]


def _second_launch(params: ReductionParams, sums: GridSums) -> Launch:
    """The launch that sums the parts: a warp a row, or a thread a column."""
    num_words, num_parts = sums.num_sums * sums.words, sums.num_parts
    per_cta = SECOND_THREADS if sums.is_column else SECOND_THREADS // WARP_SIZE
    num_ctas = ceil_div(num_words, per_cta)
    share = per_cta * num_parts * WORD_BYTES

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        words = min(per_cta, num_words - cta.cta_idx * per_cta)
        row = (
            dense_access(0, words, WORD_BYTES) if sums.is_column else dense_access(0, min(num_parts, WARP_SIZE), WORD_BYTES)
        )
        loads = num_parts if sums.is_column else ceil_div(num_parts, WARP_SIZE)
        yield ops.Alu(BEFORE_PARTS, is_chain=True)
        for begin in range(0, loads, PARTS_UNROLLED):
            num = min(PARTS_UNROLLED, loads - begin)
            access = row.scaled(num * (1 if sums.is_column else words))
            data = partial(sums.second, cta.cta_idx, per_cta, SECOND_THREADS, begin, num)
            yield ops.Use((yield ops.GlobalLoad("parts", (cta.cta_idx, begin), access, data=data)))
            yield ops.Alu(num * EACH_PART)
            yield ops.Fma(num, is_chain=True)
        if not sums.is_column:
            yield ops.Shfl(WARP_STEPS, is_chain=True)
            yield ops.Fma(WARP_STEPS, is_chain=True)
        data = partial(sums.second_result, cta.cta_idx, per_cta, SECOND_THREADS)
        yield ops.GlobalStore("out", (cta.cta_idx, 0), dense_access(0, words, WORD_BYTES), data=data)

    return Launch(
        kernel="reduction_parts",
        num_ctas=num_ctas,
        num_tiles=num_ctas,
        roles=(WarpRole(name="parts", num_warps=SECOND_THREADS // WARP_SIZE, program=program),),
        registers_per_thread=SECOND_REGISTERS,
        registers_source="ptxas of kernels/grid_reduction",
        footprints=(
            share_footprint("parts", "read", num_bytes=num_words * num_parts * WORD_BYTES, share_bytes=share),
            share_footprint("out", "write", num_bytes=num_words * WORD_BYTES, share_bytes=per_cta * WORD_BYTES),
        ),
        num_flops=num_words * num_parts,
        math_class="fp32",
        has_uniform_programs=True,
        tensors=sums.tensors,
    )
