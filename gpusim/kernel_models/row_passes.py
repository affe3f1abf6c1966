"""Row kernels as passes: what a lane does with each element of its row, pass by pass, and the Launch that follows.

Between the passes a row stays in registers, in shared memory, or nowhere. Then it is read again: from L1 as far as L1 still
holds it, otherwise from L2.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import accumulate, pairwise
from math import gcd
from typing import Any, Literal

import numpy as np

from gpusim.kernel_models.row_data import Reduction, Result, RowData
from gpusim.kernel_models.rows import WORD_BYTES, Meeting, Merge, RowParams, packing, unpacking
from gpusim.kernel_models.streaming import MAX_ELEMENTS, ceil_div, dense_access, share_footprint, whole_footprint
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import Data
from gpusim.workload.launch import Launch, RoleContext, WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

GROUP_WARPS = 8
"""Warps of a CTA that run in lockstep where a row is walked in a loop. The groups of a CTA meet at its reductions only."""
GROUP_THREADS = GROUP_WARPS * WARP_SIZE
UNROLLED, MOST_UNROLLED, LIGHT = 4, 16, 4
"""Loop iterations whose loads are in flight at once, as nvcc unrolls: ``MOST_UNROLLED`` in a pass of at most ``LIGHT``
instructions a vector. The remaining iterations come first, one by one. A pass that also stores loads one vector at a time,
because no load moves above a store that may alias. Source of this and the next constants: SASS of kernels/framework_rows,
sm_90a."""
BEFORE_LOADS = {"registers": 28, "smem": 43, "reread": 37}
"""Instructions of a thread before its first load."""
BEFORE_PASS, EACH_TURN = 22, 6
"""Instructions of a thread for each loop iteration; ``BEFORE_PASS``: from a reduction to the next pass's first load."""
MASK, BRANCHED = 3, 4
"""Instructions of a thread in each pass for each vector in registers that may be masked. Vectors of ``BRANCHED`` elements or
more are branched around; narrower ones have predicates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPass:
    """One pass over a row: instructions of a lane for each element, and the reduction after it.

    * ``chain``: FP32 instructions that depend on those of the element before. ``alu_chain``: of the integer pipe.
    * ``fma``, ``alu``, ``mufu``: independent FP32, integer and MUFU instructions.
    * ``weights``: vectors with an element for each column that the pass reads.
    * ``unrolled_elements``: most elements of a lane whose loads are in flight at once.
    * ``merge``: reduction after the pass; None: the pass stores the result. ``after``: ops of all lanes after the reduction.
    * ``reduction``, ``result``: what the reduction, or the pass that stores the result, does with elements.
    """

    fma: float = 0.0
    chain: float = 0.0
    alu_chain: float = 0.0
    alu: float = 0.0
    mufu: float = 0.0
    weights: tuple[str, ...] = ()
    weight_loads: int = 1
    """Loads of each weight for a vector of the row."""
    unrolled_elements: int = MAX_ELEMENTS
    trips: tuple[tuple[int, int], ...] = ()
    """Vectors whose weights a plain program loads at once, and those that it then finishes, in order; none: all."""
    merge: Merge | None = None
    after: tuple[ops.Op, ...] = ()
    reduction: Reduction | None = None
    result: Result | None = None

    def compute(self, num_elements: float) -> Iterator[ops.Op]:
        """Ops for ``num_elements`` elements of each lane."""
        if self.alu_chain:
            yield ops.Alu(num_elements * self.alu_chain, is_chain=True)
        if self.alu:
            yield ops.Alu(num_elements * self.alu)
        if self.fma:
            yield ops.Fma(num_elements * self.fma)
        if self.mufu:
            yield ops.Mufu(num_elements * self.mufu)
        if self.chain:
            yield ops.Fma(num_elements * self.chain, is_chain=True)

    def unrolled(self, vector_elements: int) -> tuple[int, ...]:
        """Numbers of loop iterations that nvcc unrolls, in descending order."""
        most = max(1, min(UNROLLED, self.unrolled_elements // vector_elements))
        if self.mufu == 0.0 and (self.fma + self.chain + self.alu_chain) * vector_elements <= LIGHT and most == UNROLLED:
            return MOST_UNROLLED, MOST_UNROLLED // 2, UNROLLED, 1
        return (most, 1) if most > 1 else (1,)


def row_launch(
    params: RowParams, row_passes: Sequence[RowPass], *, flops: int, has_residual: bool = False,
    group_threads: int = GROUP_THREADS, before_loads: int | None = None,
) -> Launch:
    """The Launch of a kernel that takes ``row_passes`` over each row. ``flops``: operations for an element.

    With ``has_residual`` the first pass adds a second array to the row and stores the sum, which later passes use.
    ``group_threads``: threads that run in lockstep. ``before_loads``: instructions of each before its first load.

    Ignores:
    * Where in a line a row begins. All rows have the mean of the sectors and lines.
    * Sectors that two stores share. They count once, in L1 as in L2.
    * That lanes with fewer vectors than others go on earlier.
    """
    size, share = params.rows * params.row_bytes, params.rows_per_cta * params.row_bytes
    before = BEFORE_LOADS[params.keep] if before_loads is None else before_loads
    walks = [
        RowWalk(params, row_passes, first, min(params.threads - first, group_threads), has_residual, before)
        for first in range(0, params.threads, group_threads)
    ]
    num_steps = params.vectors * len(walks)
    num_reads = len(row_passes) if params.keep == "reread" else 1
    arrays: list[tuple[str, Literal["read", "write"]]] = [("in", "read")]
    arrays += [("residual", "read"), ("sum", "write")] if has_residual else []
    arrays.append(("out", "write"))
    footprints = [
        replace(
            share_footprint(name, access, num_bytes=size, share_bytes=share, num_steps=num_steps),
            num_passes=num_reads if name == walks[0].read_again else 1,
            is_in_place=params.in_place and access == "write",
        )
        for name, access in arrays
    ]
    weights = dict.fromkeys(name for item in row_passes for name in item.weights)
    footprints += [whole_footprint(name, num_bytes=params.row_bytes, num_steps=num_steps) for name in weights]
    smem_bytes = share if params.keep == "smem" else 0
    if params.per == "block":
        smem_bytes += WORD_BYTES * params.reduction_warps * sum(item.merge.words for item in row_passes if item.merge)
    name = params.row.name if params.is_plain else "framework_rows"
    return Launch(
        kernel=params.row.name,
        num_ctas=params.num_ctas,
        num_tiles=params.num_tiles,
        roles=tuple(walk.role() for walk in walks),
        registers_per_thread=params.registers_of(params.values),
        registers_source="given" if params.registers else f"ptxas of kernels/{name}, or the values and 16 more",
        extra_smem_bytes=smem_bytes,
        footprints=tuple(footprints),
        num_flops=flops * params.rows * params.columns,
        math_class="fp32",
        has_uniform_programs=True,
        tensors=partial(_tensors, params, tuple(weights), has_residual),
    )


def _tensors(params: RowParams, weights: tuple[str, ...], has_residual: bool) -> tuple[MemRef, ...]:
    tensors = params.tensors(*weights)
    of_sum = tuple(replace(tensors[0], name=name) for name in ("residual", "sum"))
    return (*tensors, *of_sum) if has_residual else tensors


@lru_cache(maxsize=4096)
def every_access(first_byte: int, num_lanes: int, vector_bytes: int, row_bytes: int) -> tuple[AccessPattern, int]:
    """Loads or stores of ``num_lanes`` neighbouring lanes in rows that begin at all places of a line: sum and number.

    ``first_byte``: of the access in its row, and ``row_bytes``, both modulo a line.

    >>> every_access(0, 32, 4, 16)[0].num_sectors / 8
    4.5
    """
    num = LINE_BYTES // gcd(row_bytes, LINE_BYTES)
    found = [dense_access(row * row_bytes + first_byte, num_lanes, vector_bytes) for row in range(num)]
    return sum(found[1:], found[0]), num


def mean_accesses(params: RowParams, begins: Sequence[int], num_lanes: int) -> list[AccessPattern]:
    """Loads or stores of a row by up to ``num_lanes`` lanes, from each vector of ``begins`` on: the mean over all rows.

    Sectors and lines are rounded so that their sums are right.
    """
    found: list[AccessPattern] = []
    so_far, rounded = np.zeros(3), np.zeros(3, dtype=np.int64)
    width, row_bytes = params.vector_bytes, params.row_bytes % LINE_BYTES
    for begin in begins:
        lanes = min(max(params.num_vectors - begin, 0), num_lanes)
        every, num = every_access(begin * width % LINE_BYTES, lanes, width, row_bytes)
        so_far += np.array([every.num_sectors, every.num_lines, every.num_wavefronts]) / num
        sectors, lines, wavefronts = (int(each) for each in np.rint(so_far).astype(np.int64) - rounded)
        rounded += (sectors, lines, wavefronts)
        found.append(AccessPattern(
            num_requests=every.num_requests // num, num_sectors=sectors, num_lines=lines, num_wavefronts=wavefronts,
            num_bytes=every.num_bytes // num,
        ))  # fmt: skip
    return found


class RowWalk:
    """The program of some warps of a CTA: their passes over their part of a row, or over their rows."""

    def __init__(
        self, params: RowParams, row_passes: Sequence[RowPass], first_thread: int, num_threads: int, has_residual: bool,
        before_loads: int,
    ) -> None:
        """The warps of ``num_threads`` threads from ``first_thread`` on."""
        self.params, self.passes, self.has_residual = params, row_passes, has_residual
        self.before = ops.Alu(before_loads, is_chain=True)
        self.read_again = "in" if not has_residual else "residual" if params.in_place else "sum"
        """Tensor that later passes read. A store leaves a line in L1 that L1 has, and brings none."""
        self.out, self.sum = ("in", "residual") if params.in_place else ("out", "sum")
        """Tensors that functional runs write."""
        self.first_thread, self.num_threads = first_thread, num_threads
        self.first_step = first_thread // num_threads * params.vectors
        is_block, width = params.per == "block", params.element.num_bytes
        self.rows = 1 if is_block else self.num_threads // WARP_SIZE
        lanes, first = (self.num_threads, self.first_thread) if is_block else (WARP_SIZE, 0)
        begins = [turn * params.lanes + first for turn in range(params.vectors)]
        self.turns = mean_accesses(params, begins, lanes)
        self.unpack = params.vector_elements * unpacking(width)
        self.pack = params.vector_elements * packing(width)
        self.data = RowData(params, [item.reduction for item in row_passes], self.first_thread, self.num_threads)
        by_first = params.combine == "first_warp"
        self.words = [self.data.words(idx, by_first=by_first) if is_block else () for idx in range(len(row_passes))]
        self.meetings = [
            Meeting(
                params.threads // WARP_SIZE, of_block=is_block, merge=replace(item.merge, data=self.data.of_warp(idx)),
                by_first=by_first, num_role_warps=self.num_threads // WARP_SIZE, is_first=not first_thread,
            ) if item.merge else None
            for idx, item in enumerate(row_passes)
        ]  # fmt: skip

    def role(self) -> WarpRole:
        """The warps, as a role."""
        name = self.params.row.name if self.num_threads == self.params.threads else f"warps {self.first_thread // WARP_SIZE}"
        return WarpRole(name=name, num_warps=self.num_threads // WARP_SIZE, program=self.program)

    def program(self, cta: RoleContext) -> Generator[ops.Op, Any, None]:
        """All rows of a CTA."""
        params = self.params
        if params.num_ctas == params.num_tiles:
            yield self.before
            yield from self._tile(cta.cta_idx)
            return
        for _, tile in cta.tiles(params.num_tiles):
            yield self.before
            yield from self._tile(tile)
            if params.per == "block":
                yield ops.Syncthreads()

    def _tile(self, tile: int) -> Generator[ops.Op, Any, None]:
        """The rows of a work tile: for each pass its loads, instructions, stores and reduction."""
        params, rows = self.params, self.rows
        if params.per == "warp":
            rows = min(max(params.rows - tile * params.rows_per_cta - self.first_thread // WARP_SIZE, 0), rows)
        if not rows:
            return
        turns = [access.scaled(rows) for access in self.turns]
        for idx, (item, meeting) in enumerate(zip(self.passes, self.meetings, strict=True)):
            if idx:
                yield ops.Alu(BEFORE_PASS if params.keep != "registers" else 1)
            for loaded, done in self._chunks(idx):
                lists = [[turn for turn in part if turns[turn].num_requests] for part in (loaded, done)]
                yield from self._chunk(idx, lists[0], lists[1], turns, tile)
            if meeting is not None:
                yield from meeting(*self.words[idx])
            yield from item.after

    def _distinct(self, access: AccessPattern) -> AccessPattern:
        """The access with each sector once: rows that begin off the sectors share them between neighbouring requests."""
        return replace(access, num_sectors=min(access.num_sectors, ceil_div(access.num_bytes, SECTOR_BYTES)))

    def _parts(self, access: AccessPattern) -> Iterator[AccessPattern]:
        """Loads of distinct sectors, and those that hit the same sectors in flight."""
        new = self._distinct(access)
        again = access.num_sectors - new.num_sectors
        if not again:
            yield access
            return
        num = max(1, access.num_requests * again // access.num_sectors)
        share = replace(
            access, num_requests=num, num_sectors=again, num_lines=max(1, access.num_lines * num // access.num_requests),
            num_wavefronts=access.num_wavefronts * num // access.num_requests, num_bytes=0,
        )  # fmt: skip
        yield replace(
            new, num_requests=access.num_requests - num, num_lines=access.num_lines - share.num_lines,
            num_wavefronts=access.num_wavefronts - share.num_wavefronts,
        )  # fmt: skip
        yield share

    def _chunks(self, idx: int) -> list[tuple[range, range]]:
        """Turns whose loads are in flight at once, in the pass of index ``idx``, and those that are finished then."""
        params, item, num = self.params, self.passes[idx], self.params.vectors
        if params.keep == "registers" and (not item.weights or params.is_plain):
            sizes = item.trips or ((num, num),)
        elif item.merge is None or (not idx and self.has_residual):
            sizes = ((1, 1),) * num
        else:
            each: list[int] = []
            for unrolled in (params.unroll, 1) if params.unroll else item.unrolled(params.vector_elements):
                each += [unrolled] * ((num - sum(each)) // unrolled)
            sizes = tuple((size, size) for size in sorted(each))
        bounds = [pairwise(accumulate(part, initial=0)) for part in zip(*sizes, strict=True)]
        return [(range(*loaded), range(*done)) for loaded, done in zip(*bounds, strict=True)]

    def _chunk(
        self, idx: int, loaded: Sequence[int], chunk: Sequence[int], turns: Sequence[AccessPattern], tile: int
    ) -> Generator[ops.Op, Any, None]:
        """Loads of some turns, then what is done with those in ``chunk``."""
        if not loaded:
            return
        params, item = self.params, self.passes[idx]
        tensors: tuple[str, ...] = (("in", "residual") if self.has_residual else ("in",)) if not idx else ()
        if idx and params.keep == "reread":
            tensors = (self.read_again,)
        access = sum((turns[turn] for turn in chunk), AccessPattern())
        steps: list[tuple[int, AccessPattern, tuple[int, ...]]] = [
            (self.first_step + turn, turns[turn], (turn,)) for turn in chunk
        ]
        if params.keep == "registers" and not item.weights:  # nothing is read again: one op
            steps = [(self.first_step, access, tuple(chunk))]
        tokens: list[ops.Token] = []
        for step, of_step, of_turns in steps:
            for name in tensors:
                registers = name if not idx and self.has_residual else "x"
                data: Data = partial(self.data.load, name, registers, tile, of_turns)
                for part in self._parts(of_step):
                    tokens.append((yield ops.GlobalLoad(name, (tile, step), part, data=data)))
                    data = ()
        for together in ([loaded] if params.is_plain else [[turn] for turn in loaded]) if item.weights else ():
            for name in item.weights:  # the first row names the lines, and the others hit them
                step = together[0] + (self.first_step if params.per == "block" else 0)
                of_row = sum((self.turns[turn] for turn in together), AccessPattern())
                num_loads = turns[together[0]].num_requests // self.turns[together[0]].num_requests * item.weight_loads
                data = partial(self.data.weight, name, together)
                for loads in (1, num_loads - 1):
                    if loads:
                        tokens.append((yield ops.GlobalLoad(name, (0, step), of_row.scaled(loads), data=data)))
                        data = ()
        is_smem = params.keep == "smem"
        shared = AccessPattern(
            num_requests=access.num_requests, num_wavefronts=access.num_wavefronts, num_bytes=access.num_bytes
        )
        if idx and is_smem:
            tokens.append((yield ops.SharedLoad(shared, data=partial(self.data.kept, chunk))))
        for token in tokens:
            yield ops.Use(token)
        if not chunk:
            return
        num = access.num_requests / (self.num_threads // WARP_SIZE)  # vectors of a lane, less where warps have none
        is_read = bool(tensors) or (bool(idx) and is_smem)
        each = self.unpack * (max(len(tensors), is_read) + len(item.weights))
        each += EACH_TURN / len(chunk) if params.keep != "registers" else 0.0
        each += self.pack * ((item.merge is None) + (not idx and self.has_residual))
        if each:
            yield ops.Alu(num * each)
        if params.keep == "registers" and params.is_masked:
            yield ops.Alu(num * MASK, is_chain=params.vector_elements >= BRANCHED)
        if not idx and self.has_residual:
            yield ops.Fma(num * params.vector_elements, data=self.data.add(chunk))
            for step, of_step, of_turns in steps:
                data = partial(self.data.store, self.sum, tile, of_turns, None, ())
                yield ops.GlobalStore("sum", (tile, step), self._distinct(of_step), data=data)
        if not idx and is_smem:
            yield ops.SharedStore(shared, data=partial(self.data.kept, chunk))
        is_padded = params.keep == "registers" and len(chunk) == params.vectors
        yield from item.compute(params.computed if is_padded and params.pad else num * params.vector_elements)
        if item.merge is None:
            for step, of_step, of_turns in steps:
                data = partial(self.data.store, self.out, tile, of_turns, item.result, item.weights)
                yield ops.GlobalStore("out", (tile, step), self._distinct(of_step), data=data)
