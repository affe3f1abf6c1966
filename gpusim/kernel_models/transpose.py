"""Transpose of a matrix in tiles of 32 x 32."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from gpusim.errors import KernelError
from gpusim.kernel_models.stream_data import loaded, per_thread, shared, shares, stored
from gpusim.kernel_models.streaming import (
    IntArray,
    StreamParams,
    TileGrid,
    ceil_div,
    check_grid,
    dense_access,
    global_passes,
    lanes_access,
    share_footprint,
    shared_passes,
    tile_lanes,
    total,
)
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import GlobalElements, SharedElements
from gpusim.workload.launch import Buffer, Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

TILE, THREADS = 32, 256

Smem = Literal["naive", "padded", "swizzled", "none"]

BEFORE_LOADS = {"none": 30, "naive": 36, "padded": 36, "swizzled": 36}
BEFORE_STORES = {"none": 2, "naive": 15, "padded": 15, "swizzled": 26}
"""Integer instructions of a thread before its first store (to shared memory, if the tile passes through it);
``BEFORE_LOADS``: before its first load. Source: SASS of kernels/transpose, sm_90a."""
REGISTERS = {"none": 18, "naive": 24, "padded": 24, "swizzled": 30}
"""Registers of a thread. Source: SASS of kernels/transpose, sm_90a."""


ELEMENT_CODE, ELEMENT_REGISTERS = 19, 18
"""ALU and branch instructions of a thread for each element with ``coalesced="stores"``: its index as row and column.
``ELEMENT_REGISTERS``: registers of a thread. Source: SASS of PyTorch 2.11's elementwise_kernel with a transposed input."""


class TransposeParams(StreamParams):
    """out[x][y] = in[y][x].

    * ``coalesced="tile"``: one CTA of 32 x 8 threads for each tile of 32 x 32. Loads follow rows of the input. Warp y
      processes rows y, y + 8, y + 16 and y + 24 of its tile.
    * ``coalesced="stores"``: threads follow rows of the output, element by element, as PyTorch copies a transposed tensor.
      A warp's load touches 32 rows of the input.

    Layouts of a tile:

    * ``none``: no shared memory. Stores follow the loads directly.
    * ``naive``: rows of 32 elements in shared memory, with a barrier between writing rows and reading columns.
    * ``padded``: rows of 33 elements.
    * ``swizzled``: rows of 32 elements, whose column index is XORed with the row index.
    """

    threads: Literal[128, 256, 512] = Field(256, description="Threads per CTA. Tiles of 32 x 32 have 256")
    m: Annotated[int, Field(ge=1, le=1 << 24)] = Field(description="Rows of the input")
    n: Annotated[int, Field(ge=1, le=1 << 24)] = Field(description="Columns of the input")
    smem: Smem = Field("padded", description="Layout of the tile in shared memory. With none there is no shared memory")
    coalesced: Literal["tile", "stores"] = Field(
        "tile", description="Accesses along rows: loads of 32 x 32 tiles, and stores too if these pass through shared "
        "memory; or stores alone, without tiles"
    )
    items_per_thread: Annotated[int, Field(ge=1, le=16)] = Field(
        4, description="Elements per thread. Without tiles each is stored before the next is loaded"
    )

    @property
    def grid(self) -> TileGrid:
        """Tiles of the input."""
        return TileGrid(num_rows=self.m, num_columns=self.n, tile_rows=TILE, tile_columns=TILE)

    def _check(self) -> None:
        if self.coalesced == "stores":
            if self.smem != "none":
                raise KernelError("transpose: without tiles nothing lies in shared memory: use --smem none")
            if self.m < WARP_SIZE:
                raise KernelError(
                    f"transpose: a warp's loads lie in several columns of {self.m} rows, which the model without tiles does "
                    f"not know: use --m {WARP_SIZE} or more, or --coalesced tile"
                )
            check_grid("transpose", ceil_div(self.m * self.n, self.threads * self.items_per_thread), use="use fewer rows")
            return
        if self.threads != THREADS or self.items_per_thread != TILE * TILE // THREADS:
            raise KernelError(
                f"transpose: a tile of {TILE} x {TILE} has {THREADS} threads of 4 elements: leave out --threads and "
                "--items-per-thread, or use --coalesced stores"
            )
        check_grid("transpose", self.grid.num_x, self.grid.num_y, use="use fewer rows")


def place(smem: Smem, rows: IntArray, columns: IntArray) -> IntArray:
    """Offsets of the tile's elements in shared memory, in elements."""
    pitch = TILE + 1 if smem == "padded" else TILE
    return rows * pitch + (columns ^ rows if smem == "swizzled" else columns)


def transpose_family(params: Mapping[str, Any]) -> str:
    """Family of measured rows that run the same program."""
    return "transpose_rowwise" if params.get("coalesced") == "stores" else "transpose"


def transpose_launch(params: TransposeParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    Without shared memory, a warp's stores go to 32 rows of the output, one sector each. The other warps' stores complete
    these sectors in L2. A thread's four loads are one op, and so are its stores.

    Ignores:
    * That a thread continues with its first element as soon as it has arrived, not when all four have.
    * That tiles at the edges execute their elements one by one.
    * That some partially written sectors are evicted from L2, fetched again and written twice. With ``none`` these are a
      sixth of the memory traffic at 8192 x 8192.
    """
    if params.coalesced == "stores":
        return _rowwise_launch(params)
    grid, width, smem = params.grid, params.element.num_bytes, params.smem
    in_pitch, out_pitch = params.n * width, params.m * width
    rows, columns = tile_lanes(TILE, TILE, THREADS)
    before, between = ops.Alu(BEFORE_LOADS[smem], is_chain=True), ops.Alu(BEFORE_STORES[smem])

    @cache
    def globals_of(num_rows: int, num_columns: int, in_first: int, out_first: int) -> tuple[AccessPattern, AccessPattern]:
        is_in, is_out = (rows < num_rows) & (columns < num_columns), (rows < num_columns) & (columns < num_rows)
        loads = global_passes(in_first + rows * in_pitch + columns * width, width, is_in)
        if smem == "none":
            stores = global_passes(out_first + columns * out_pitch + rows * width, width, is_in)
        else:
            stores = global_passes(out_first + rows * out_pitch + columns * width, width, is_out)
        return total(loads), total(stores)

    @cache
    def shared_of(num_rows: int, num_columns: int) -> tuple[AccessPattern, AccessPattern]:
        is_in, is_out = (rows < num_rows) & (columns < num_columns), (rows < num_columns) & (columns < num_rows)
        bits = params.element.bits
        return (
            total(shared_passes(f"st_shared_b{bits}", place(smem, rows, columns) * width, is_in)),
            total(shared_passes(f"ld_shared_b{bits}", place(smem, columns, rows) * width, is_out)),
        )

    def load_tile(x: int, y: int, _op: ops.Op) -> GlobalElements:
        return loaded("in", _tile_elements(y, x, rows, columns, params.m, params.n))

    def store_tile(x: int, y: int, _op: ops.Op) -> GlobalElements:
        lanes = (columns, rows) if smem == "none" else (rows, columns)
        return stored("out", _tile_elements(x, y, *lanes, params.n, params.m))

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        (y, x), (num_rows, num_columns) = grid.origin(panel), grid.extent(panel)
        in_first = (y * in_pitch + x * width) % LINE_BYTES
        out_first = (x * out_pitch + y * width) % LINE_BYTES
        load, store = globals_of(num_rows, num_columns, in_first, out_first)
        yield before
        token = yield ops.GlobalLoad("in", (panel, 0), load, data=partial(load_tile, x, y))
        yield between
        yield ops.Use(token)
        if smem != "none":
            write, read = shared_of(num_rows, num_columns)
            yield ops.SharedStore(write, "tile", 0, data=written)
            yield ops.Syncthreads()
            yield ops.Use((yield ops.SharedLoad(read, "tile", 0, data=read_back)))
        yield ops.GlobalStore("out", (panel, 0), store, data=partial(store_tile, x, y))

    def written(_op: ops.Op) -> SharedElements:
        return shared(per_thread(place(smem, rows, columns) * width), params.element)

    def read_back(_op: ops.Op) -> SharedElements:
        return shared(per_thread(place(smem, columns, rows) * width), params.element)

    tile_bytes = TILE * (TILE + (smem == "padded")) * width
    row_bytes = TILE * width
    is_aligned = row_bytes == LINE_BYTES or (in_pitch % row_bytes == 0 and out_pitch % row_bytes == 0)
    return Launch(
        kernel="transpose",
        num_ctas=grid.num_tiles,
        num_tiles=grid.num_tiles,
        roles=(WarpRole(name="transpose", num_warps=THREADS // WARP_SIZE, program=program),),
        buffers=() if smem == "none" else (Buffer(name="tile", stage_bytes=tile_bytes),),
        registers_per_thread=REGISTERS[smem],
        registers_source="SASS of kernels/transpose",
        footprints=(
            grid.footprint("in", "read", element_bytes=width),
            replace(grid.footprint("out", "write", element_bytes=width), piece_bytes=TILE * width if grid.num_x > 1 else 0),
        ),
        has_uniform_programs=is_aligned and grid.tells_extents(),  # rows of tiles begin at the same offset in a line
        tensors=_tensors(params),
    )


def _tile_elements(
    first_row: int, first_column: int, rows: IntArray, columns: IntArray, num_rows: int, num_columns: int
) -> IntArray:
    """Elements of a matrix of each thread, by rows and columns of a tile, (passes, warps, 32); -1: outside."""
    row, column = first_row + rows, first_column + columns
    return per_thread(np.where((row < num_rows) & (column < num_columns), row * num_columns + column, -1))


def _tensors(params: TransposeParams) -> tuple[MemRef, ...]:
    extents = {"in": (params.m, params.n), "out": (params.n, params.m)}
    return tuple(MemRef.row_major(name, shape, params.element) for name, shape in extents.items())


def _rowwise_launch(params: TransposeParams) -> Launch:
    """The Launch without tiles: CTA c stores ``threads * items_per_thread`` consecutive elements of the output.

    A warp's load takes one element of each of 32 rows of the input, a sector each. CTAs that need other elements of these
    sectors run later, so they read them again from L2 or from memory. So do later loads of a CTA that has several columns.

    Ignores:
    * Hits in L1: of CTAs of one SM, and of loads of one CTA, that need elements of the same sectors.
    * Requests of SMs for the same sectors that coalesce.
    """
    width, threads, items = params.element.num_bytes, params.threads, params.items_per_thread
    share, num_elements, pitch = threads * items, params.m * params.n, params.n * params.element.num_bytes
    num_ctas, of_columns = ceil_div(num_elements, share), params.m * max(1, SECTOR_BYTES // width)
    before, code = ops.Alu(BEFORE_LOADS["none"], is_chain=True), ops.Alu(ELEMENT_CODE, is_chain=True)

    def step_of(item: int) -> int:
        """Slice of its panel that a CTA reads, for its ``item``-th elements: further columns repeat earlier ones."""
        columns, first = divmod(item * threads, of_columns)
        return item if share <= params.m else columns * ceil_div(params.m, threads) + first % params.m // threads

    def panel_of(ctas: IntArray) -> IntArray:
        """Part of the rows of a sector's columns; or the CTA's own columns, if it has more than a sector's."""
        columns, first = np.divmod(ctas * share, of_columns)
        return ctas if share > of_columns else np.asarray(columns * ceil_div(params.m, share) + first % params.m // share)

    def of_item(first: int, tensor: str, _op: ops.Op) -> GlobalElements:
        """Data access of one element a thread, from element ``first`` of the output on."""
        out = shares(first, num_elements, threads, 1)
        column, row = np.divmod(out, params.m)
        return loaded(tensor, out if tensor == "out" else np.where(out < 0, -1, row * params.n + column))

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        at = int(panel_of(np.array(panel)))
        yield before
        for item in range(items):
            num = min(threads, num_elements - (panel * share + item * threads))
            if num <= 0:
                return
            yield code
            access, first = lanes_access(0, num, width, pitch), panel * share + item * threads
            read, write = partial(of_item, first, "in"), partial(of_item, first, "out")
            tile = at, step_of(item)
            yield ops.Use((yield ops.GlobalLoad("in", tile, access, allocates_in_l1=False, data=read)))
            yield ops.GlobalStore("out", (panel, item), dense_access(0, num, width), data=write)

    num_panels = int(panel_of(np.arange(num_ctas)).max()) + 1
    return Launch(
        kernel="transpose",
        num_ctas=num_ctas,
        num_tiles=num_ctas,
        roles=(WarpRole(name="transpose", num_warps=threads // WARP_SIZE, program=program),),
        registers_per_thread=ELEMENT_REGISTERS,
        registers_source="launches of PyTorch 2.11",
        footprints=(
            Footprint(
                tensor="in", access="read", panel_of=panel_of, num_steps=max(map(step_of, range(items))) + 1,
                panel_bytes=lambda ctas: np.full_like(ctas, num_elements * width // num_panels),
            ),
            share_footprint("out", "write", num_bytes=num_elements * width, share_bytes=share * width, num_steps=items),
        ),
        has_uniform_programs=True,
        tensors=_tensors(params),
    )
