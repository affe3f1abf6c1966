"""Gather: rows of a table by their indices, out[i] = table[index[i]]."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.rows import VECTOR_BYTES, Columns, Count
from gpusim.kernel_models.stream_data import loaded, nothing, stored
from gpusim.kernel_models.streaming import IntArray, StreamParams, ceil_div, check_grid, dense_access, same, share_footprint
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, Registers
from gpusim.workload.dtypes import INT32, dtype_in_memory
from gpusim.workload.launch import Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

MOST_VECTORS = 32
"""Maximum number of vectors of a row in one lane."""
AT_ONCE = 4
"""Minimum number of vectors of a thread. If rows are short, it processes several."""
BEFORE_INDEX, BEFORE_ROWS, BEFORE_STORES = 11, 17, 4
"""Instructions of a thread: to its first load of an index, from there to the first load of a row, and to the first store.
Source: SASS of kernels/gather, sm_90a."""
AT_MOST = 6
"""Maximum number of vectors of a thread in flight. The remaining vectors of a row are loaded as the first ones are
stored."""
REGISTERS, MOST_REGISTERS = 24, 32
"""Registers of a thread with more than four vectors; ``REGISTERS``: with four. Source: ptxas of kernels/gather."""


BEFORE_SLICE, BEFORE_LOAD = 30, 22
"""Instructions of a thread with ``per="block"``: to its load of the index, and from there to its load of the row. Source:
SASS of PyTorch 2.11's vectorized_gather_kernel, sm_90."""


MOST_SLICES = 64
"""Maximum CTAs of a row with ``per="block"``: rows of 256 KiB. Each slice of the table is a tensor of the model."""


class GatherParams(StreamParams):
    """Copies rows of a table, 16 bytes a lane.

    * ``per="warp"``: eight or more lanes, at most a warp, share a row. Each thread loads its indices, then its vectors (four
      of several rows, or six of one), then stores them.
    * ``per="block"``: a CTA copies one row, or ``threads`` vectors of a longer one, as PyTorch's embedding and index_select.
    """

    per: Literal["warp", "block"] = Field(
        "warp", description="Threads that copy a row: lanes of a warp, or a CTA with one vector a thread"
    )
    index_bytes: Literal[4, 8] = Field(4, description="Bytes of an index")

    rows: Count = Field(description="Rows that are gathered")
    columns: Columns = Field(description="Elements per row")
    table_rows: Count = Field(description="Rows of the table")
    index: Literal["random", "sequential"] = Field(
        "random", description="Row indices: random with replacement, or consecutive"
    )

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.columns * self.element.num_bytes

    @property
    def slices(self) -> int:
        """Number of CTAs that share a row, with ``per="block"``."""
        return ceil_div(self.row_bytes, self.cta_threads * VECTOR_BYTES)

    @property
    def cta_threads(self) -> int:
        """Threads of a CTA: with ``per="block"`` no more than a row has vectors, in full warps."""
        if self.per == "warp":
            return self.threads
        return min(self.threads, ceil_div(self.row_bytes // VECTOR_BYTES, WARP_SIZE) * WARP_SIZE)

    @property
    def lanes(self) -> int:
        """Number of lanes that share a row."""
        return min(WARP_SIZE, self.row_bytes // VECTOR_BYTES)

    @property
    def vectors(self) -> int:
        """Number of vectors of a row in one lane."""
        return self.row_bytes // (VECTOR_BYTES * self.lanes)

    @property
    def rows_at_once(self) -> int:
        """Number of rows whose vectors a lane has in flight."""
        return ceil_div(AT_ONCE, self.vectors) if self.vectors < AT_ONCE else 1

    @property
    def rows_per_cta(self) -> int:
        """Number of rows that a CTA copies."""
        return self.threads // self.lanes * self.rows_at_once

    @property
    def num_ctas(self) -> int:
        """Number of CTAs of the grid."""
        return self.rows * self.slices if self.per == "block" else ceil_div(self.rows, self.rows_per_cta)

    def _check(self) -> None:
        if self.per == "block":
            if self.row_bytes % VECTOR_BYTES:
                step = VECTOR_BYTES // self.element.num_bytes
                raise KernelError(
                    f"gather: rows of {self.row_bytes} bytes do not consist of vectors of {VECTOR_BYTES}: use --columns "
                    f"{ceil_div(self.columns, step) * step}, or another multiple of {step}"
                )
        elif self.row_bytes < LINE_BYTES or self.row_bytes & (self.row_bytes - 1):
            raise KernelError(
                f"gather: rows of {self.row_bytes} bytes, wants a power of two from {LINE_BYTES} bytes on: use "
                f"--columns {max(LINE_BYTES, 1 << (self.row_bytes.bit_length() - 1)) // self.element.num_bytes}"
            )
        elif self.vectors > MOST_VECTORS:
            raise KernelError(
                f"gather: rows of {self.row_bytes} bytes are more than {MOST_VECTORS} vectors a lane: use at most "
                f"{MOST_VECTORS * WARP_SIZE * VECTOR_BYTES // self.element.num_bytes} --columns"
            )
        if self.index == "sequential" and self.table_rows < self.rows:
            raise KernelError(f"gather: {self.rows} rows one behind the other, the table has {self.table_rows}: use fewer")
        check_grid("gather", self.num_ctas, use="use fewer --rows")


def gather_family(params: Mapping[str, Any]) -> str:
    """Family of measured rows that run the same program."""
    return "gather_block" if params.get("per") == "block" else "gather"


def gather_launch(params: GatherParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    Ignores:
    * The random distribution of rows over L2 partitions and DRAM channels.
    * Rows that a CTA copies twice.
    """
    if params.per == "block":
        return _block_launch(params)
    num_warps, at_once, per_cta = params.threads // WARP_SIZE, params.rows_at_once, params.rows_per_cta
    of_warp = dense_access(0, WARP_SIZE, VECTOR_BYTES)
    rows_of_warp = WARP_SIZE // params.lanes
    new, again = _indices(params)
    last_idx, rest = params.num_ctas - 1, params.rows % per_cta
    chunks = _chunks(at_once * params.vectors)
    full = [of_warp.scaled(num_warps * chunk) for chunk in chunks]
    last = [of_warp.scaled(ceil_div(ceil_div(rest, rows_of_warp) * chunk, at_once)) for chunk in chunks] if rest else full
    before, between, behind = ops.Alu(BEFORE_INDEX, is_chain=True), ops.Alu(BEFORE_ROWS), ops.Alu(BEFORE_STORES)

    def index(panel: int, _op: ops.Op) -> GlobalElements:
        """Data access of a thread's indices."""
        row = _places(params)[0] + panel * per_cta
        return loaded("index", np.where(row < params.rows, row, -1), "index")

    def vectors(panel: int, step: int, op: ops.Op) -> GlobalElements:
        """Data access of a chunk of vectors: of the table by a load, of the output by a store."""
        chunk = slice(sum(chunks[:step]), sum(chunks[: step + 1]))
        row, element, number = (places[:, chunk] for places in _places(params)[1:])
        of_cta = panel * per_cta + row

        def source(registers: Registers) -> IntArray:
            taken = np.take_along_axis(registers["index"], number, axis=1)
            return _elements(np.where(of_cta < params.rows, taken, -1), element, params)

        if isinstance(op, ops.GlobalLoad):
            return loaded("table", source, f"x{step % 2}")
        return stored("out", _elements(np.where(of_cta < params.rows, of_cta, -1), element, params), f"x{step % 2}")

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        first, *later = last if cta.cta_idx == last_idx else full
        yield before
        indices = [(yield ops.GlobalLoad("index", (cta.cta_idx, 0), new, data=partial(index, cta.cta_idx)))]
        if again.num_requests:
            indices.append((yield ops.GlobalLoad("index", (cta.cta_idx, 0), again, data=nothing("index"))))
        for token in indices:
            yield ops.Use(token)
        yield between
        token = yield ops.GlobalLoad("table", (cta.cta_idx, 0), first, data=partial(vectors, cta.cta_idx, 0))
        yield behind
        for step, access in enumerate(later):
            yield ops.Use(token)
            data = partial(vectors, cta.cta_idx, step + 1)
            token = yield ops.GlobalLoad("table", (cta.cta_idx, step + 1), access, data=data)
            yield ops.GlobalStore("out", (cta.cta_idx, step), first, data=partial(vectors, cta.cta_idx, step))
            first = access
        yield ops.Use(token)
        yield ops.GlobalStore("out", (cta.cta_idx, len(later)), first, data=partial(vectors, cta.cta_idx, len(later)))

    num_bytes, share = params.rows * params.row_bytes, per_cta * params.row_bytes
    return Launch(
        kernel="gather",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name="gather", num_warps=num_warps, program=program),),
        registers_per_thread=REGISTERS if at_once * params.vectors <= AT_ONCE else MOST_REGISTERS,
        registers_source="ptxas of kernels/gather",
        footprints=(
            share_footprint(
                "index", "read", num_bytes=params.rows * params.index_bytes, share_bytes=per_cta * params.index_bytes
            ),
            replace(
                share_footprint("table", "read", num_bytes=num_bytes, share_bytes=share, num_steps=len(chunks)),
                table_bytes=params.table_rows * params.row_bytes if params.index == "random" else 0,
                piece_bytes=params.row_bytes if params.index == "random" else 0,
            ),
            share_footprint("out", "write", num_bytes=num_bytes, share_bytes=share, num_steps=len(chunks)),
        ),
        math_class="fp32",
        has_uniform_programs=True,
        tensors=_tensors(params),
    )


def _tensors(params: GatherParams) -> tuple[MemRef, ...]:
    index = INT32 if params.index_bytes == INT32.num_bytes else dtype_in_memory("int64")
    return (
        MemRef.row_major("index", (params.rows,), index),
        MemRef.row_major("table", (params.table_rows, params.columns), params.element),
        MemRef.row_major("out", (params.rows, params.columns), params.element),
    )


def _places(params: GatherParams) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Of each thread: rows of its indices. Of each of its vectors: the row, the vector in it, the number of the index."""
    thread, each = np.arange(params.threads)[:, None], np.arange(params.rows_at_once)
    rows = each * (params.threads // params.lanes) + thread // params.lanes
    number, vector = np.divmod(np.arange(params.rows_at_once * params.vectors), params.vectors)
    numbers = np.broadcast_to(number, (params.threads, len(number)))
    return rows, rows[:, number], vector * params.lanes + thread % params.lanes, numbers


def _elements(rows: IntArray, vectors: IntArray, params: GatherParams) -> IntArray:
    """Elements of vectors of rows: int64[threads, values]; -1 for negative rows."""
    unit = VECTOR_BYTES // params.element.num_bytes
    first = rows * params.columns + vectors * unit
    element = first[:, :, None] + np.arange(unit)
    return np.where(rows[:, :, None] < 0, -1, element).reshape(len(rows), -1)


def _block_launch(params: GatherParams) -> Launch:
    """The Launch of a CTA per row, or per slice of a row. CTAs of neighbouring rows follow one another, slice by slice.

    All threads of a CTA load the same index. CTAs of one SM that need neighbouring indices hit in L1.
    """
    threads, width = params.cta_threads, VECTOR_BYTES
    num_warps, share = threads // WARP_SIZE, params.cta_threads * width
    row_bytes, rows, slices = params.row_bytes, params.rows, params.slices
    index = AccessPattern(
        num_requests=num_warps, num_sectors=num_warps, num_lines=num_warps, num_wavefronts=num_warps,
        num_bytes=num_warps * WARP_SIZE * params.index_bytes,
    )  # fmt: skip
    accesses = [dense_access(0, min(row_bytes - part * share, share) // width, width) for part in range(slices)]
    before, between = ops.Alu(BEFORE_SLICE, is_chain=True), ops.Alu(BEFORE_LOAD, is_chain=True)
    rows_of_sector = SECTOR_BYTES // params.index_bytes
    names = [f"table{part}" for part in range(slices)] if slices > 1 else ["table"]
    if slices > MOST_SLICES:
        raise KernelError(
            f"gather: a row of {row_bytes} bytes takes {slices} CTAs, the model knows at most {MOST_SLICES}: use fewer "
            "--columns"
        )

    def vector(part: int, row: int, op: ops.Op) -> GlobalElements:
        """Data access of a vector of each thread: of the table by a load, of the output by a store."""
        of_row = part * threads + np.arange(threads)[:, None]
        is_inside = of_row < row_bytes // width

        def source(registers: Registers) -> IntArray:
            return _elements(np.where(is_inside, registers["index"], -1), of_row, params)

        if isinstance(op, ops.GlobalLoad):
            return loaded("table", source)
        return stored("out", _elements(np.where(is_inside, row, -1), of_row, params))

    def index_of(row: int, _op: ops.Op) -> GlobalElements:
        return loaded("index", np.full((threads, 1), row), "index")

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        part, row = divmod(cta.cta_idx, rows)
        data = partial(vector, part, row)
        yield before
        yield ops.Use((yield ops.GlobalLoad("index", (row // rows_of_sector, 0), index, data=partial(index_of, row))))
        yield between
        yield ops.Use((yield ops.GlobalLoad(names[part], (cta.cta_idx, 0), accesses[part], data=data)))
        yield ops.GlobalStore("out", (cta.cta_idx, 0), accesses[part], data=data)

    def slice_bytes(ctas: IntArray) -> IntArray:
        return np.asarray(np.minimum(share, row_bytes - ctas // rows * share))

    def table(part: int) -> Footprint:
        """Slices of rows of the table: CTAs of one slice follow one another, and no other slice finds their rows."""
        return Footprint(
            tensor=names[part], access="read", panel_of=same, piece_bytes=piece if is_random or slices > 1 else 0,
            panel_bytes=lambda ctas: np.where(ctas // rows == part, slice_bytes(ctas), 0),
            table_bytes=params.table_rows * min(share, row_bytes - part * share) if is_random else 0,
        )

    piece, is_random = min(share, row_bytes), params.index == "random"
    return Launch(
        kernel="gather",
        num_ctas=params.num_ctas,
        num_tiles=params.num_ctas,
        roles=(WarpRole(name="gather", num_warps=num_warps, program=program),),
        registers_per_thread=MOST_REGISTERS,
        registers_source="launches of PyTorch 2.11",
        footprints=(
            Footprint(
                tensor="index", access="read", panel_of=lambda ctas: ctas % rows // rows_of_sector,
                panel_bytes=lambda ctas: np.full_like(ctas, SECTOR_BYTES),
            ),
            *map(table, range(slices)),
            Footprint(
                tensor="out", access="write", panel_of=same, panel_bytes=slice_bytes, piece_bytes=piece if slices > 1 else 0
            ),
        ),
        math_class="fp32",
        has_uniform_programs=True,
        tensors=_tensors(params),
    )


def _chunks(num_vectors: int) -> list[int]:
    """Numbers of vectors that a lane loads together.

    >>> _chunks(4), _chunks(8)
    ([4], [6, 2])
    """
    return [min(AT_MOST, num_vectors - begin) for begin in range(0, num_vectors, AT_MOST)]


def _indices(params: GatherParams) -> tuple[AccessPattern, AccessPattern]:
    """Loads of indices of a full CTA: those of new sectors, and those that hit sectors in flight.

    With each load a warp reads the indices of its rows. Neighbouring warps read those of neighbouring rows.
    """
    num_warps = params.threads // WARP_SIZE
    num_requests = num_warps * params.rows_at_once
    num_bytes = params.rows_per_cta * params.index_bytes
    num_new = min(num_requests, ceil_div(num_bytes, SECTOR_BYTES))
    lanes_bytes = num_requests * WARP_SIZE * params.index_bytes
    new = AccessPattern(
        num_requests=num_new, num_sectors=num_new, num_lines=num_new, num_wavefronts=num_new,
        num_bytes=lanes_bytes * num_new // num_requests,
    )
    rest = num_requests - num_new
    again = AccessPattern(
        num_requests=rest, num_sectors=rest, num_lines=rest, num_wavefronts=rest,
        num_bytes=lanes_bytes - new.num_bytes,
    )
    return new, again
