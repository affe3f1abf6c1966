"""Copy of a matrix through shared memory, tile by tile, in the ways that a GEMM's operands are loaded."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache, partial
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import BeforeValidator, Field

from gpusim.errors import KernelError
from gpusim.kernel_models.stream_data import loaded, per_thread, shared, stored
from gpusim.kernel_models.streaming import (
    IntArray,
    StreamParams,
    TileGrid,
    ceil_div,
    check_grid,
    global_passes,
    shared_passes,
    tile_lanes,
    total,
)
from gpusim.units import LINE_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import Copy, GlobalElements, SharedElements, box_copy
from gpusim.workload.launch import Buffer, Feature, Launch, Mbarrier, RoleContext, Target, WarpRole
from gpusim.workload.operands import OperandTile, tma_boxes
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef
from gpusim.workload.tma.boxes import TensorMap, outside_rows

MAX_TILE = 256
VECTOR_BYTES = 16
AT_ONCE = {"scalar": 8, "vectorized": 4, "cp_async": 4}
"""Accesses that a thread loads before it stores them. Source: kernels/smem_copy."""
TMA_THREADS = WARP_SIZE

BEFORE_LOADS = {"scalar": 30, "vectorized": 34, "cp_async": 40}
BEFORE_STORES = {"scalar": 3, "vectorized": 5, "cp_async": 0}
AFTER_BARRIER = {"scalar": 9, "vectorized": 9, "cp_async": 12}
EACH_ROUND = 10
"""Integer instructions of a thread for each further round. ``BEFORE_LOADS``: before its first load.
``BEFORE_STORES``: from there to its first store to shared memory. ``AFTER_BARRIER``: from the barrier to its first load from
there. Source: SASS of kernels/smem_copy, sm_90a."""
SWIZZLE = 14
"""Additional instructions if 16-byte chunks are swizzled."""
REGISTERS = {"scalar": 32, "vectorized": 30, "cp_async": 30, "tma": 16}
"""Registers of a thread. Source: SASS of kernels/smem_copy; 16 is the minimum of a launch."""

Passes = tuple[AccessPattern, ...]


def _tile(value: Any) -> Any:
    text = "x".join(str(part) for part in value) if isinstance(value, list | tuple) else value
    if not isinstance(text, str):
        return value
    parts = text.lower().split("x")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and 1 <= int(part) <= MAX_TILE for part in parts):
        raise ValueError(f"is {text!r}, wants 2 numbers from 1 to {MAX_TILE} joined by x, such as 128x64")
    return tuple(int(part) for part in parts)


class SmemCopyParams(StreamParams):
    """out = in, m x n and row-major. Each CTA copies a tile from global to shared memory and back.

    * scalar, vectorized: ld.global, st.shared, barrier, ld.shared, st.global, one element or 16 bytes at a time. Thread t
      has accesses t, t + threads, ... of its tile, row by row.
    * cp_async: 16 bytes at a time without registers, in one group, followed by a wait. Back as in vectorized.
    * tma: one thread, an mbarrier, one load and one store by tensor maps.
    """

    dtype: Literal["fp32", "bf16", "fp16"] = Field("bf16", description="Element type")
    m: Annotated[int, Field(ge=1, le=1 << 24)] = Field(description="Rows of the matrix")
    n: Annotated[int, Field(ge=1, le=1 << 24)] = Field(description="Columns of the matrix")
    tile: Annotated[tuple[int, int], BeforeValidator(_tile)] = Field(
        (128, 64), description="CTA tile in rows x columns, elements"
    )
    copy_: Literal["scalar", "vectorized", "cp_async", "tma"] = Field(
        "vectorized", alias="copy", description="Copy of a tile to shared memory"
    )
    raster: Literal["along_n", "along_m"] = Field(
        "along_n", description="Order of CTAs (blockIdx.x): tiles of a row first, or of a column"
    )
    swizzle: Literal["none", "32B", "64B", "128B"] = Field("none", description="Shared-memory swizzle of 16-byte chunks")

    @property
    def grid(self) -> TileGrid:
        """Tiles of the matrix."""
        return TileGrid(
            num_rows=self.m, num_columns=self.n, tile_rows=self.tile[0], tile_columns=self.tile[1],
            is_along_m=self.raster == "along_m",
        )  # fmt: skip

    @property
    def operand(self) -> OperandTile:
        """The tile's layout in shared memory."""
        return OperandTile(rows=self.tile[0], k=self.tile[1], dtype=self.element, is_k_major=True, swizzle=self.swizzle)

    @property
    def access_bytes(self) -> int:
        """Bytes of a thread's load or store."""
        return self.element.num_bytes if self.copy_ == "scalar" else VECTOR_BYTES

    def checked(self) -> Self:
        """The options, checked against each other. A tma copy has one warp.

        Raises:
            KernelError: incompatible options.
            LayoutError: a tile that the swizzle or TMA does not support.
        """
        across, down = self.grid.num_x, self.grid.num_y
        if self.raster == "along_n":
            check_grid("smem_copy", across, down, use="use a taller --tile")
        else:
            check_grid("smem_copy", down, across, use="use a wider --tile")
        width = self.element.num_bytes
        for what, extent in (("n", self.n), ("the tile's width", self.tile[1])):
            if self.copy_ != "scalar" and extent * width % VECTOR_BYTES:
                raise KernelError(
                    f"smem_copy: {what} of {extent} elements of {width} bytes is no whole number of 16-byte vectors: use a "
                    f"multiple of {VECTOR_BYTES // width}, or --copy scalar"
                )
        if self.copy_ == "tma":
            tma_boxes(self.operand)
            return self.model_copy(update={"threads": TMA_THREADS})
        if (self.tile[1] * width // self.access_bytes) * self.tile[0] % self.threads:
            raise KernelError(
                f"smem_copy: {self.threads} threads do not divide the {self.tile[0]} x {self.tile[1]} tile's accesses of "
                f"{self.access_bytes} bytes: use fewer --threads, or a larger --tile"
            )
        return self


class _Accesses:
    """Access patterns of the rounds over a tile, computed once for each kind of tile.

    A round consists of the passes that a thread has in flight together: its loads are one op, its stores another.
    """

    def __init__(self, params: SmemCopyParams) -> None:
        self._params = params
        self._in_row = params.tile[1] * params.element.num_bytes // params.access_bytes
        self._rows, self._columns = tile_lanes(params.tile[0], self._in_row, params.threads)
        self._at_once = AT_ONCE[params.copy_]
        self.of_global = cache(self._of_global)
        self.of_shared = cache(self._of_shared)

    # -------------------------------------------------------------------------------------- data
    def _of_round(self, step: int) -> tuple[IntArray, IntArray, int]:
        """Rows and accesses in a row of a round, (passes, warps, 32), and elements of an access."""
        begin = step * self._at_once
        unit = self._params.access_bytes // self._params.element.num_bytes
        return self._rows[begin : begin + self._at_once], self._columns[begin : begin + self._at_once], unit

    def index(self, row: int, column: int, step: int) -> IntArray:
        """Elements of the matrix that each thread accesses, for the tile at a row and a column; -1: outside."""
        (rows, columns, unit), params = self._of_round(step), self._params
        inside = (row + rows < params.m) & (column + columns * unit < params.n)
        return per_thread(np.where(inside, ((row + rows) * params.n + column) // unit + columns, -1), unit)

    def offsets(self, num_rows: int, num_columns: int, step: int) -> IntArray:
        """Byte offsets in the tile; -1: outside of the matrix."""
        (rows, columns, unit), params = self._of_round(step), self._params
        inside = (rows < num_rows) & (columns * unit < num_columns)
        width = params.element.num_bytes
        element = per_thread(np.where(inside, rows * (params.tile[1] // unit) + columns, -1), unit)
        row, column = np.divmod(np.maximum(element, 0), params.tile[1])
        return np.where(element < 0, -1, params.operand.byte_offsets(row, column * width))

    def _active(self, num_rows: int, num_columns: int) -> Any:
        inside = num_columns * self._params.element.num_bytes // self._params.access_bytes
        return (self._rows < num_rows) & (self._columns < inside)

    def _of_global(self, num_rows: int, num_columns: int, first_byte: int) -> Passes:
        params = self._params
        pitch, each = params.n * params.element.num_bytes, params.access_bytes
        active = self._active(num_rows, num_columns)
        return self._rounds(global_passes(first_byte + self._rows * pitch + self._columns * each, each, active))

    def _of_shared(self, op: str, num_rows: int, num_columns: int) -> Passes:
        offsets = self._params.operand.byte_offsets(self._rows, self._columns * self._params.access_bytes)
        name = f"{op}_b{8 * self._params.access_bytes}"
        return self._rounds(shared_passes(name, offsets, self._active(num_rows, num_columns)))

    def _rounds(self, by_pass: Passes) -> Passes:
        begins = range(0, len(by_pass), self._at_once)
        rounds = (total(by_pass[begin : begin + self._at_once]) for begin in begins)
        return tuple(access for access in rounds if access.num_requests)


def smem_copy_launch(params: SmemCopyParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    Ignores:
    * That a thread stores its first access as soon as it has arrived, not when all of a round have.
    * That tiles at the edges execute their accesses one by one.
    * The latency of the parameters in the constant cache.
    * The fetch of tensor maps.
    """
    grid, width, kind = params.grid, params.element.num_bytes, params.copy_
    by_tma = kind == "tma"
    program = _by_tma(params) if by_tma else _by_threads(params)
    num_passes = 1 if by_tma else params.operand.num_bytes // (params.threads * params.access_bytes)
    num_steps = 1 if by_tma else ceil_div(num_passes, AT_ONCE[kind])
    features: dict[str, frozenset[Feature]] = {"tma": frozenset({"tma", "mbarrier"}), "cp_async": frozenset({"cp_async"})}
    return Launch(
        kernel="smem_copy",
        num_ctas=grid.num_tiles,
        num_tiles=grid.num_tiles,
        roles=(WarpRole(name="copy", num_warps=params.threads // WARP_SIZE, program=program),),
        buffers=(Buffer(name="tile", stage_bytes=params.operand.num_bytes),),
        mbarriers=(Mbarrier(name="full", num_arrivals=1),) if by_tma else (),
        registers_per_thread=REGISTERS[kind],
        registers_source="SASS of kernels/smem_copy",
        features=features.get(kind, frozenset()),
        footprints=(
            grid.footprint("in", "read", element_bytes=width, num_steps=num_steps),
            grid.footprint("out", "write", element_bytes=width, num_steps=num_steps),
        ),
        tensor_maps=("in", "out") if by_tma else (),
        has_uniform_programs=(by_tma or _begin_alike(params)) and grid.tells_extents(),
        tensors=_tensors(params),
    )


def _begin_alike(params: SmemCopyParams) -> bool:
    """Whether all tiles begin at the same offset in a line."""
    (tile_rows, tile_columns), width, grid = params.tile, params.element.num_bytes, params.grid
    down = tile_rows * params.n * width % LINE_BYTES if grid.num_y > 1 else 0
    return not (down or (tile_columns * width % LINE_BYTES if grid.num_x > 1 else 0))


def _by_threads(params: SmemCopyParams) -> Any:
    """Program with loads by all threads, a barrier, and stores by all threads."""
    grid, kind, accesses = params.grid, params.copy_, _Accesses(params)
    pitch, width = params.n * params.element.num_bytes, params.element.num_bytes
    more = SWIZZLE if params.swizzle != "none" else 0
    before, first = ops.Alu(BEFORE_LOADS[kind], is_chain=True), ops.Alu(BEFORE_STORES[kind] + more)
    after, again = ops.Alu(AFTER_BARRIER[kind] + more, is_chain=True), ops.Alu(EACH_ROUND)
    commit, wait, meet = ops.CpAsyncCommitGroup(), ops.CpAsyncWaitGroup(0), ops.Syncthreads()

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        (row, column), (num_rows, num_columns) = grid.origin(panel), grid.extent(panel)
        outer = accesses.of_global(num_rows, num_columns, (row * pitch + column * width) % LINE_BYTES)
        yield before
        if kind == "cp_async":
            writes = accesses.of_shared("cp_async", num_rows, num_columns)
            for step, (load, write) in enumerate(zip(outer, writes, strict=True)):
                copy = partial(data, "copy", panel, step)
                yield ops.CpAsync("in", (panel, step), _copied(load, write), "tile", 0, data=copy)
            yield commit
            yield wait
        else:
            writes = accesses.of_shared("st_shared", num_rows, num_columns)
            for step, (load, write) in enumerate(zip(outer, writes, strict=True)):
                token = yield ops.GlobalLoad("in", (panel, step), load, data=partial(data, "in", panel, step))
                yield again if step else first
                yield ops.Use(token)
                yield ops.SharedStore(write, "tile", 0, data=partial(data, "tile", panel, step))
        yield meet
        yield after
        reads = accesses.of_shared("ld_shared", num_rows, num_columns)
        for step, (read, store) in enumerate(zip(reads, outer, strict=True)):
            token = yield ops.SharedLoad(read, "tile", 0, data=partial(data, "tile", panel, step))
            if step:
                yield again
            yield ops.Use(token)
            yield ops.GlobalStore("out", (panel, step), store, data=partial(data, "out", panel, step))

    def data(what: str, panel: int, step: int, _op: ops.Op) -> Copy | GlobalElements | SharedElements:
        """Data access of a round of a tile: to or from a tensor, or the tile, or a copy from one to the other."""
        (row, column), extent = grid.origin(panel), grid.extent(panel)
        if what == "tile":
            return shared(accesses.offsets(*extent, step), params.element)
        index = accesses.index(row, column, step)
        if what == "copy":
            return Copy(tensor="in", index=index, offsets=accesses.offsets(*extent, step))
        return (loaded if what == "in" else stored)(what, index)

    return program


def _tensors(params: SmemCopyParams) -> tuple[MemRef, ...]:
    return tuple(MemRef.row_major(name, (params.m, params.n), params.element) for name in ("in", "out"))


def _copied(outer: AccessPattern, inner: AccessPattern) -> AccessPattern:
    """Access pattern of a copy: sectors and lines of global memory, wavefronts of shared memory."""
    return AccessPattern(
        num_requests=outer.num_requests, num_sectors=outer.num_sectors, num_lines=outer.num_lines,
        num_wavefronts=inner.num_wavefronts, num_bytes=outer.num_bytes,
    )


def _by_tma(params: SmemCopyParams) -> Any:
    """Program in which one thread loads, waits and stores."""
    grid, width, boxes = params.grid, params.element.num_bytes, tma_boxes(params.operand)
    num_bytes, num_rows = sum(box.num_bytes for box in boxes), sum(box.num_rows for box in boxes)

    def data(op: ops.TmaLoad | ops.TmaStore) -> tuple[Copy, ...]:
        """Boxes of a tile."""
        (row, column), tile, box = grid.origin(op.tile[0]), params.operand, boxes[0]
        described = TensorMap(
            dtype=params.element, global_dim=(params.n, params.m), global_strides_bytes=(params.n * width,),
            box_dim=(box.inner_elements, *box.outer), swizzle=box.swizzle,
        )
        return tuple(
            box_copy(
                op.tensor, described, (column + right, row + down),
                (right // box.inner_elements * tile.rows + down) * tile.panel_bytes,
            )
            for right in range(0, tile.k, box.inner_elements) for down in range(0, tile.rows, *box.outer)
        )  # fmt: skip

    def program(cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel = cta.cta_idx
        rows, columns = grid.extent(panel)
        inside = rows * columns * width
        num_zero_rows, num_outside_rows = outside_rows(boxes, rows, columns)
        yield ops.MbarrierInit("full")
        yield ops.FenceMbarrierInit()
        yield ops.MbarrierArriveExpectTx("full", 0, num_bytes)
        yield ops.TmaLoad(
            "in", (panel, 0), num_bytes, inside, num_rows, "tile", 0, "full", num_boxes=len(boxes),
            num_zero_rows=num_zero_rows, num_outside_rows=num_outside_rows, data=data,
        )
        yield ops.MbarrierWait("full", 0, 0)
        yield ops.TmaStore("out", (panel, 0), inside, num_rows, "tile", 0, num_boxes=len(boxes), data=data)
        yield ops.BulkCommitGroup()
        yield ops.BulkWaitGroup(0)

    return program
