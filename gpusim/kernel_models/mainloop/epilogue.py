"""Epilogue of a tile: accumulators are stored to D directly from registers, through shared memory, or by TMA."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from gpusim.kernel_models.mainloop.epilogue_data import EpilogueData
from gpusim.kernel_models.mainloop.instruction_fetch import cold_code
from gpusim.kernel_models.mainloop.output import SUM_BYTES, Output, Staging
from gpusim.kernel_models.mainloop.shape import Coordinates, OperandGrid, cached_method
from gpusim.kernel_models.mainloop.threads import ThreadTile
from gpusim.kernel_models.streaming import ceil_div
from gpusim.units import DEPENDENT_CYCLES, LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.atoms.mma import MmaKind
from gpusim.workload.data_access import Data
from gpusim.workload.operands import OperandTile, epilogue_store, stmatrix_writes, tma_boxes
from gpusim.workload.ops import Op, RangeEnd, RangeStart, Section
from gpusim.workload.smem.access import AccessPattern, wavefronts

NUM_CHUNKS = 2
"""Number of adjacent column blocks in which a direct epilogue alternates conversion and stores."""
Program = Generator[Op, Any, None]


@dataclass(frozen=True)
class Epilogue:
    """Epilogue of one math role for its part of the tile, which ``num_warps`` warps hold.

    Models:
    * Conversion, alpha, beta, bias, activation; predicated edges.
    * Stores of fragments; or slices of a staging buffer that are stored as full rows or by TMA.
    * D that TMA reductions change, each piece once. L2 adds them.
    * C is read once for each sector, by the warp that writes D.

    Ignores:
    * Rows of D that do not begin on a sector: the sectors that they share are not counted twice.
    """

    grid: OperandGrid
    math: MmaKind
    output: Output
    staging: Staging
    share_m: int
    share_n: int
    num_warps: int
    first_m: int = 0
    first_n: int = 0
    """First column of the role's part in the tile; ``first_m`` is its first row."""
    barrier: str = ""
    """Named barrier of the role's threads, for the staging buffer; empty: ``__syncthreads``."""
    drained: str = ""
    """Named barrier of all roles that read the stages, if the staging buffer reuses their memory."""
    buffer: str = "epilogue"
    slot: int = 0
    """Index of this role's slot in the staging buffer."""
    has_stmatrix: bool = True
    data: EpilogueData | None = None
    """Data accesses of the role; None: unknown."""

    def _data(self, name: str, *arguments: object) -> Data | None:
        """Data access of an op: a method of ``data``, with its arguments except the op."""
        return partial(getattr(self.data, name), *arguments) if self.data else None

    # -------------------------------------------------------------------------------------- parts inside of D
    def _inside(self, at: Coordinates) -> tuple[int, int]:
        """Rows and columns of the role's part inside of D."""
        rows = min(self.share_m, self.grid.rows_inside(0, at.m) - self.first_m)
        columns = min(self.share_n, self.grid.rows_inside(1, at.n) - self.first_n)
        return max(0, rows), max(0, columns)

    @cached_property
    def _fragment(self) -> tuple[int, int]:
        """Rows and columns that one warp instruction covers."""
        return (4, 32) if self.math == "fma" else (8, 8)

    @cached_method
    def _stores(self, rows: int, columns: int, width: int, vector_bytes: int = 16) -> AccessPattern:
        """Access pattern of direct stores to global memory: ``rows`` x ``columns``, ``width`` bytes an element.

        A lane's adjacent elements are one access if they are at most ``vector_bytes``.
        """
        if self.output.thread_tile != ThreadTile():
            return self.output.thread_tile.stores(rows, columns, self.output.thread_columns, width, vector_bytes)
        high, wide = self._fragment
        lane_bytes = high * wide // WARP_SIZE * width
        num_pieces = max(1, lane_bytes // max(width, vector_bytes))
        if rows % 64 == 0 and columns % wide == 0 and num_pieces == 1:
            return epilogue_store(rows, columns, width, self.math)
        num_full, rest = divmod(columns, wide)
        sectors = num_full * ceil_div(wide * width, SECTOR_BYTES) + ceil_div(rest * width, SECTOR_BYTES)
        requests = ceil_div(columns, wide)
        return AccessPattern(
            num_requests=num_pieces * ceil_div(rows, high) * requests, num_sectors=num_pieces * rows * sectors,
            num_lines=num_pieces * rows * requests, num_bytes=rows * columns * width,
        )

    def _loads(self, rows: int, columns: int, width: int, vector_bytes: int = 16) -> AccessPattern:
        """Access pattern of loads of the same fragments. Neighbouring lanes hit the other half of a sector in L1."""
        stored = self._stores(rows, columns, width, vector_bytes)
        return AccessPattern(
            num_requests=stored.num_requests, num_sectors=rows * ceil_div(columns * width, SECTOR_BYTES),
            num_lines=stored.num_lines, num_bytes=stored.num_bytes,
        )

    @staticmethod
    def full_rows(rows: int, columns: int, width: int, vector_bytes: int = 16) -> AccessPattern:
        """Access pattern of ``rows`` rows of a slice, ``vector_bytes`` a lane, row after row."""
        row_bytes = columns * width
        chunks = rows * ceil_div(row_bytes, max(width, vector_bytes))
        return AccessPattern(
            num_requests=ceil_div(chunks, WARP_SIZE), num_sectors=rows * ceil_div(row_bytes, SECTOR_BYTES),
            num_lines=rows * ceil_div(row_bytes, LINE_BYTES), num_bytes=rows * row_bytes,
        )

    # -------------------------------------------------------------------------------------- arithmetic
    @cached_method
    def _arithmetic(self, num_slices: int) -> list[Op]:
        """Scaling, C, bias, activation and conversion of a slice, as instructions of each warp."""
        output = self.output
        elements = self.share_m * self.share_n / (self.num_warps * WARP_SIZE) / num_slices
        per_element, mufu = map(float, output.finishing_cost)
        if output.alpha != 1.0 or output.reads_c:
            per_element += 1.0
        if output.reads_c:
            per_element += 0.5  # C's 16-bit pairs are unpacked
        if output.bias:
            per_element += 1.0
        is_done = output.has_packed_sums and output.element.name == "fp16" and not per_element
        per_element += 0.0 if is_done else {1: 1.0, 2: 0.5, 4: 0.0}[output.element.num_bytes]  # packing
        if output.has_packed_sums and not is_done:
            per_element += 1.0  # HADD2.F32 of each half
        instructions: list[Op] = [ops.Alu(elements * per_element), *self._walk(num_slices)]
        if mufu:
            instructions.append(ops.Mufu(elements * mufu))
        return instructions

    def _walk(self, num_slices: int) -> list[Op]:
        """Overhead instructions of a pass over a slice's accumulators: addresses, bounds."""
        own, instructions = self.output.code, list[Op]()
        if not num_slices:
            return instructions
        if own.chain_cycles:
            num, overlapped = (
                cycles / DEPENDENT_CYCLES / num_slices for cycles in (own.chain_cycles, own.chain_during_wgmma_cycles)
            )
            instructions.append(ops.Alu(num, is_chain=True, num_beside=overlapped))
        if own.imad_wide:
            instructions.append(ops.ImadWide(own.imad_wide / num_slices, is_interleaved=True))
        return instructions

    @cached_method
    def _cold_code(self, num_pieces: int) -> list[list[Op]]:
        """Cold instruction fetch of each piece of the epilogue."""
        output = self.output
        return cold_code("epilogue", output.code_bytes, output.code.chain_cycles, num_parts=num_pieces)

    def _cold_code_of_d(self) -> list[list[Op]]:
        """Cold instruction fetch of each column block of D."""
        return self._cold_code(self._num_chunks)

    # -------------------------------------------------------------------------------------- programs
    def program(self, at: Coordinates, turn: int) -> Program:
        """The epilogue of the tile ``at``, the CTA's tile number ``turn``."""
        yield RangeStart(Section.EPILOGUE, data=self._begin(at))
        rows, columns = self._inside(at)
        if self.drained and not turn:
            yield ops.BarSync(self.drained)
        yield from self._store(at, rows, columns, turn)
        yield RangeEnd()

    def _store(self, at: Coordinates, rows: int, columns: int, turn: int) -> Program:
        """Store the role's part."""
        if rows and columns and self.output.path == "direct":
            yield from self._direct(at, rows, columns)
        elif rows and columns:
            yield from self._staged(at, rows, columns, turn)

    def _begin(self, at: Coordinates) -> Data | None:
        """Data access before all others."""
        return self.data.begin if self.data else None

    def finish(self) -> Iterator[Op]:
        """Wait, before the CTA ends, until TMA has read the staging buffer."""
        if self.output.by_tma:
            yield ops.BulkWaitGroup(0, read=True)

    def _bias(self, at: Coordinates, rows: int, columns: int) -> Program:
        if self.output.bias:
            is_of_rows = self.output.bias_along == "m"
            num_bytes = (rows if is_of_rows else columns) * SUM_BYTES
            token = yield ops.GlobalLoad(
                "bias", (at.m, self.first_m) if is_of_rows else (at.n, self.first_n),
                AccessPattern(
                    num_requests=self.num_warps, num_sectors=ceil_div(num_bytes, SECTOR_BYTES),
                    num_lines=ceil_div(num_bytes, LINE_BYTES), num_bytes=num_bytes,
                ),
                data=self._data("bias", at),
            )
            yield ops.Use(token)

    @property
    def _num_chunks(self) -> int:
        """Number of column blocks of a part that is completely inside of D."""
        return NUM_CHUNKS

    @cached_property
    def _chunk_width(self) -> int:
        return ceil_div(ceil_div(self.share_n, self._num_chunks), self._fragment[1]) * self._fragment[1]

    def _chunks(self, columns: int) -> list[tuple[int, int]]:
        """(index, columns inside of D) of the column blocks of a direct epilogue."""
        num, width = self._num_chunks, self._chunk_width
        chunks = [(idx, min(width, columns - idx * width)) for idx in range(num)]
        return [(idx, inside) for idx, inside in chunks if inside > 0]

    def _added(self, at: Coordinates) -> str:
        """Tensor of which a tile is added to the accumulators; empty: none."""
        return "C" if self.output.reads_c else ""

    def _step(self, idx: int) -> int:
        """A slice's number in the tile. No two roles use the same number."""
        return self.slot * 1024 + idx

    def _direct(self, at: Coordinates, rows: int, columns: int) -> Program:
        """Store registers to global memory: load C and bias first, then alternate conversion and stores."""
        output, panel = self.output, self.grid.panel_of_d(at)
        width = output.element.num_bytes
        chunks = self._chunks(columns)
        tokens = []
        if added := self._added(at):
            for idx, inside in chunks:
                access = self._loads(rows, inside, width, output.vector_bytes)
                data = self._data("load_c", at, idx * self._chunk_width, self._chunk_width)
                tokens.append((yield ops.GlobalLoad(added, (panel, self._step(idx)), access, data=data)))
        yield from self._bias(at, rows, columns)
        arithmetic = self._arithmetic(len(chunks))
        far = self._cold_code_of_d()
        for position, (idx, inside) in enumerate(chunks):
            if tokens:
                yield ops.Use(tokens[position])
            yield from far[idx]
            yield from arithmetic
            stored = self._stores(rows, inside, width, output.vector_bytes)
            data = self._data("store", at, idx * self._chunk_width, self._chunk_width)
            yield ops.GlobalStore("D", (panel, self._step(idx)), stored, data=data)

    # ---------------------------------------------------------------------------------- through shared memory
    @cached_property
    def slice_tile(self) -> OperandTile:
        """A slice of D in the staging buffer, with the widest swizzle that its rows permit."""
        element, columns = self.output.element, self.staging.slice_n
        row_bytes = columns * element.num_bytes
        fitting = [mode for mode, span in (("128B", 128), ("64B", 64), ("32B", 32)) if row_bytes % span == 0]
        return OperandTile(
            rows=self.share_m, k=columns, dtype=element, is_k_major=True,
            swizzle=fitting[0] if fitting else "none",
        )

    @cached_property
    def uses_stmatrix(self) -> bool:
        """Whether stmatrix stores fragments to the staging buffer: for 16-bit elements and tensor cores."""
        return (
            self.has_stmatrix and self.math != "fma" and self.output.element.bits == 16
            and self.share_m % 16 == 0 and self.staging.slice_n % 16 == 0
        )

    @cached_method
    def _writes(self, idx: int) -> Op:
        """Store of fragments of slice ``idx`` to the staging buffer."""
        write, is_last = self._write, self.output.by_tma or not self.output.reads_c
        return replace(write, data=self._data("stage", self.slice_tile, idx * self.staging.slice_n, is_last))

    @cached_property
    def _write(self) -> ops.Stmatrix | ops.SharedStore:
        """Store of fragments to the staging buffer."""
        tile = self.slice_tile
        if self.uses_stmatrix:
            access = stmatrix_writes(tile.rows, tile.k, tile.dtype, tile.swizzle)
            return ops.Stmatrix(access, self.buffer, self.slot)
        high, wide = self._fragment
        lane_row, lane_column = np.divmod(np.arange(WARP_SIZE), WARP_SIZE // high)
        vector_bytes = high * wide // WARP_SIZE * tile.dtype.num_bytes
        rows = high * np.arange(tile.rows // high)[:, None, None] + lane_row
        first_columns = wide * np.arange(tile.k // wide)[None, :, None]
        offsets = tile.byte_offsets(rows, first_columns * tile.dtype.num_bytes + lane_column * vector_bytes)
        counted = wavefronts(f"st_shared_b{8 * vector_bytes}", offsets)
        access = AccessPattern(num_requests=counted.size, num_wavefronts=int(counted.sum()), num_bytes=tile.num_bytes)
        return ops.SharedStore(access, self.buffer, self.slot)

    def _staged(self, at: Coordinates, rows: int, columns: int, turn: int) -> Program:
        """For each slice: wait until the buffer is free, convert, store to the buffer, barrier, store to D."""
        output, panel = self.output, self.grid.panel_of_d(at)
        width = output.element.num_bytes
        slice_n, by_tma = self.staging.slice_n, output.by_tma
        num_slices = self.share_n // slice_n
        arithmetic, far = self._arithmetic(num_slices), self._cold_code(num_slices)
        meet: Op = ops.BarSync(self.barrier) if self.barrier else ops.Syncthreads()
        yield from self._bias(at, rows, columns)
        for idx in range(ceil_div(columns, slice_n)):
            inside, step = min(slice_n, columns - idx * slice_n), self._step(idx)
            leaving, begin = self.full_rows(rows, inside, width, output.vector_bytes), idx * slice_n
            by_rows = at, self.slice_tile, output.vector_bytes, begin
            token = None
            if added := self._added(at):
                access = self._loads(rows, inside, width, output.vector_bytes) if by_tma else leaving
                data = self._data("load_c", at, begin, slice_n) if by_tma else self._data("load_c_rows", *by_rows)
                token = yield ops.GlobalLoad(added, (panel, step), access, data=data)
            if by_tma:  # the slice's last reader was the TMA engine
                yield ops.BulkWaitGroup(0, read=True)
            if idx or turn or self._is_over_stages:
                yield meet
            if token is not None and by_tma:
                yield ops.Use(token)
            yield from far[idx]
            yield from arithmetic
            yield self._writes(idx)
            if by_tma:
                yield ops.FenceProxyAsync()
            yield meet
            if by_tma:
                yield self._tma_store(panel, step, rows, inside, self._data("boxes", at, self.slice_tile, begin))
                yield ops.BulkCommitGroup()
                continue
            data = self._data("read_rows", self.slice_tile, output.vector_bytes)
            read = yield ops.SharedLoad(self._reads(leaving), self.buffer, self.slot, data=data)
            yield ops.Use(read)
            if token is not None:
                yield ops.Use(token)
            yield ops.GlobalStore("D", (panel, step), leaving, data=self._data("store_rows", *by_rows))

    @property
    def _is_over_stages(self) -> bool:
        """Whether the first slice overwrites memory that the role's other warps may still read."""
        return self.staging.overlays_stages and not self.drained

    def _reads(self, leaving: AccessPattern) -> AccessPattern:
        """Loads of rows of the staging buffer, without bank conflicts."""
        return AccessPattern(
            num_requests=leaving.num_requests,
            num_wavefronts=max(leaving.num_requests, ceil_div(leaving.num_bytes, LINE_BYTES)),
            num_bytes=leaving.num_bytes,
        )

    def _tma_store(self, panel: int, step: int, rows: int, columns: int, data: Data | None) -> ops.TmaStore:
        boxes = tma_boxes(self.slice_tile)
        num_rows = sum(box.num_rows for box in boxes)
        return ops.TmaStore(
            "D", (panel, step), rows * columns * self.slice_tile.dtype.num_bytes, num_rows, self.buffer,
            self.slot, num_boxes=len(boxes), reduce=self.output.path == "tma_reduce", data=data,
        )
