"""Naive SGEMM: D = A B in fp32, one thread for each element of D."""

from __future__ import annotations

from collections.abc import Generator
from functools import cache, partial
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from gpusim.errors import KernelError, nearest_multiple
from gpusim.kernel_models.options import KernelParams
from gpusim.kernel_models.stream_data import loaded, nothing, shared, stored
from gpusim.kernel_models.streaming import IntArray, TileGrid, check_grid, shared_passes, total
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.data_access import Compute, GlobalElements, Registers, SharedElements
from gpusim.workload.dtypes import FP32
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.gmem.line_fetches import unasked_fraction
from gpusim.workload.launch import Buffer, Footprint, Launch, RoleContext, Target, WarpRole
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.tensor import MemRef

TILE, WORD_BYTES = 32, 4
"""Rows and columns of a CTA's tile of D, and of its threads; ``WORD_BYTES``: bytes of an element."""
AT_ONCE = 8
"""Elements of A and of B that a thread loads together from global memory."""
VECTOR = 4
"""Elements of A that a thread loads from shared memory at once."""

BEFORE_LOOP = {"naive": 32, "coalesced": 32, "tiled": 38}
IN_LOOP = {"naive": 13, "coalesced": 5, "tiled": 8}
"""Integer instructions of a thread per loop iteration; ``BEFORE_LOOP``: before its first load. In ``coalesced``, eight
more are IMAD.WIDE for addresses, which wait for loads on the same pipe. Source of this and the next constants: SASS of
kernels/sgemm_naive, sm_90a."""
WARPS_OF_ROLE = {"naive": 32, "coalesced": 16, "tiled": 32}
"""Warps of a role. Warps without barriers run ahead of others, and the others' loads hit lines in flight. All warps of
``naive`` wait for tags."""
REGISTERS = 32
MOST_PIECES = 64
"""Maximum pieces of a row that are examined for additional bytes."""

Extent = Annotated[int, Field(ge=1, le=1 << 20)]


class SgemmNaiveParams(KernelParams):
    """D = A B, all row-major. CTAs have 32 x 32 threads and a tile of 32 x 32.

    * ``naive``: a warp has 32 rows of one column. It loads its operands for eight k at a time, through L1.
    * ``coalesced``: a warp has 32 columns of one row, with the same loads.
    * ``tiled``: a CTA loads tiles of 32 x 32 to shared memory, waits at a barrier, multiplies them, and waits again.
      Nothing overlaps within a CTA.
    """

    m: Extent = Field(description="GEMM M: rows of A and D")
    n: Extent = Field(description="GEMM N: columns of B and D")
    k: Extent = Field(description="GEMM K: columns of A, rows of B, a multiple of 32")
    way: Literal["naive", "coalesced", "tiled"] = Field(
        "coalesced", description="Threads of a warp: along rows of D, along columns, or with A and B tiled in shared memory"
    )

    @property
    def grid(self) -> TileGrid:
        """Tiles of D."""
        return TileGrid(num_rows=self.m, num_columns=self.n, tile_rows=TILE, tile_columns=TILE)

    @property
    def step(self) -> int:
        """Number of k in a loop iteration."""
        return TILE if self.way == "tiled" else AT_ONCE

    def _check(self) -> None:
        if self.k % TILE:
            raise KernelError(
                f"sgemm_naive: k is {self.k}, wants a multiple of {TILE}: use --k {nearest_multiple(self.k, TILE)}"
            )
        check_grid("sgemm_naive", self.grid.num_x, self.grid.num_y, use="use fewer rows")


def first_and_again(addresses: IntArray, active: NDArray[np.bool_]) -> tuple[AccessPattern, AccessPattern]:
    """Accesses to new sectors, and accesses that hit sectors in flight, request by request.

    ``addresses`` and ``active`` have the shape [..., 32], in the order of the requests.
    """
    everything = global_access(np.where(active, addresses, 0), WORD_BYTES, active)
    sectors = (addresses // SECTOR_BYTES).reshape(-1, WARP_SIZE)
    mask = active.reshape(-1, WARP_SIZE)
    _, where = np.unique(sectors[mask], return_index=True)
    requests = np.repeat(np.arange(len(sectors))[:, None], WARP_SIZE, axis=1)[mask]
    is_new = np.zeros(mask.shape, dtype=np.bool_)
    is_new[np.isin(np.arange(len(sectors)), requests[where])] = True
    is_new &= mask
    asking = global_access(np.where(is_new, addresses.reshape(mask.shape), 0), WORD_BYTES, is_new)
    new = AccessPattern(
        num_requests=asking.num_requests, num_sectors=len(where), num_lines=min(asking.num_lines, len(where)),
        num_wavefronts=asking.num_wavefronts, num_bytes=asking.num_bytes,
    )
    return new, AccessPattern(
        num_requests=everything.num_requests - new.num_requests, num_sectors=everything.num_sectors - new.num_sectors,
        num_lines=everything.num_lines - new.num_lines, num_wavefronts=everything.num_wavefronts - new.num_wavefronts,
        num_bytes=everything.num_bytes - new.num_bytes,
    )


class _Data:
    """Data accesses of a role whose threads have these rows and columns of a tile, int64[threads, 1]."""

    def __init__(self, params: SgemmNaiveParams, row: IntArray, column: IntArray) -> None:
        self._params, self._row, self._column = params, row, column
        self.multiply = Compute(function=self._add)

    def load(self, tensor: str, y: int, x: int, step: int, _op: ops.Op) -> GlobalElements:
        """A step's elements of A or B; the role's first row is ``y``."""
        params = self._params
        row, column, k = y + self._row, x + self._column, step * params.step + np.arange(params.step)
        is_tiled = params.way == "tiled"
        of_a, of_b = (k[:1] + self._column, k[:1] + self._row) if is_tiled else (k, k)
        if tensor == "A":
            return loaded("A", np.where(row < params.m, row * params.k + of_a, -1), "A")
        return loaded("B", np.where(column < params.n, of_b * params.n + column, -1), "B")

    def store_tiles(self, _op: ops.Op) -> tuple[SharedElements, ...]:
        """The store of an element of A and one of B."""
        place = (self._row * TILE + self._column) * WORD_BYTES
        return shared(place, FP32, "A"), shared(TILE * TILE * WORD_BYTES + place, FP32, "B")

    def load_tiles(self, first: int, _op: ops.Op) -> tuple[SharedElements, ...]:
        """The load of a thread's row of A and column of B, for a few k."""
        k = first + np.arange(AT_ONCE)
        of_b = TILE * TILE + k * TILE + self._column
        return shared((self._row * TILE + k) * WORD_BYTES, FP32, "A"), shared(of_b * WORD_BYTES, FP32, "B")

    def _add(self, registers: Registers) -> None:
        total = registers.get("sum", np.zeros(self._row.shape, dtype=np.float32))
        for k in range(AT_ONCE):
            exact = registers["A"][:, k : k + 1].astype(np.float64) * registers["B"][:, k : k + 1]
            total = (total + exact).astype(np.float32)
        registers["sum"] = total

    def store(self, y: int, x: int, _op: ops.Op) -> GlobalElements:
        """The store of D."""
        row, column, params = y + self._row, x + self._column, self._params
        inside = (row < params.m) & (column < params.n)
        return stored("D", np.where(inside, row * params.n + column, -1), "sum")


def sgemm_naive_launch(params: SgemmNaiveParams, _gpu: Target) -> Launch:
    """The Launch of checked ``params``.

    In each loop iteration, the first requests for a sector go to L2. The others hit it in L1 or in flight.

    Ignores:
    * That warps of a role drift (all warps of a CTA, except in coalesced).
    * That the loads of an iteration overlap with its first FFMA (naive, coalesced).
    * That an address waits until the previous load has read its registers.
    """
    grid, n, way = params.grid, params.n, params.way
    num_warps, num_roles = WARPS_OF_ROLE[way], TILE // WARPS_OF_ROLE[way]
    lane, warp = np.arange(TILE), np.arange(num_warps)[:, None]
    row, column = (lane, warp) if way == "naive" else (warp, lane)
    row, column = (np.broadcast_to(each, (num_warps, WARP_SIZE)).astype(np.int64) for each in (row, column))
    data = _Data(params, row.reshape(-1, 1), column.reshape(-1, 1))

    @cache
    def loads_of_a(rows: int, columns: int) -> tuple[AccessPattern, AccessPattern]:
        if way == "tiled":
            return first_and_again((row * params.k + column) * WORD_BYTES, row < rows)
        k = np.arange(AT_ONCE)[:, None, None]
        inside = np.broadcast_to((row < rows) & (column < columns), (AT_ONCE, *row.shape))
        return first_and_again((row * params.k + k) * WORD_BYTES, inside)

    @cache
    def loads_of_b(first_byte: int, rows: int, columns: int) -> tuple[AccessPattern, AccessPattern]:
        if way == "tiled":
            return first_and_again(first_byte + (row * n + column) * WORD_BYTES, column < columns)
        k = np.arange(AT_ONCE)[:, None, None]
        inside = np.broadcast_to((row < rows) & (column < columns), (AT_ONCE, *row.shape))
        return first_and_again(first_byte + (k * n + column) * WORD_BYTES, inside)

    @cache
    def stores(first_byte: int, rows: int, columns: int) -> AccessPattern:
        inside = (row < rows) & (column < columns)
        return global_access(np.where(inside, first_byte + (row * n + column) * WORD_BYTES, 0), WORD_BYTES, inside)

    before, between, addresses = ops.Alu(BEFORE_LOOP[way], is_chain=True), ops.Alu(IN_LOOP[way]), ops.ImadWide(AT_ONCE)
    multiply, meet = ops.Fma(AT_ONCE, is_chain=True, data=data.multiply), ops.Syncthreads()
    written, parts = _shared_accesses()
    store_tile = ops.SharedStore(written, "tiles", 0, data=data.store_tiles)
    reads = [
        ops.SharedLoad(part, "tiles", 0, data=partial(data.load_tiles, idx * AT_ONCE)) for idx, part in enumerate(parts)
    ]

    def program(role: int, cta: RoleContext) -> Generator[ops.Op, Any, None]:
        panel, first_row = cta.cta_idx, role * num_warps
        (y, x), (rows, columns) = grid.origin(panel), grid.extent(panel)
        rows = min(num_warps, rows - first_row)
        if rows <= 0:
            return
        of_a = loads_of_a(rows, columns)
        yield before
        for step in cta.loop(params.k // params.step):
            of_b = loads_of_b((step * params.step * n + x) * WORD_BYTES % LINE_BYTES, rows, columns)
            tokens = []
            slice_of_a = step * num_roles + role
            for tensor, of_tensor, tile in (("A", of_a, (y // TILE, slice_of_a)), ("B", of_b, (x // TILE, step))):
                for access in of_tensor:
                    if access.num_requests:
                        tokens.append((yield ops.GlobalLoad(
                            tensor, tile, access,  # the first load takes all elements
                            data=partial(data.load, tensor, y + first_row, x, step) if access is of_tensor[0]
                            else nothing(tensor),
                        )))  # fmt: skip
            yield between
            if way == "coalesced":
                yield addresses
            for token in tokens:
                yield ops.Use(token)
            if way != "tiled":
                yield multiply
                continue
            yield store_tile
            yield meet
            token = yield reads[0]
            for following in (*reads[1:], None):
                behind = None if following is None else (yield following)
                yield ops.Use(token)
                yield multiply
                token = behind
            yield meet
        yield ops.GlobalStore(
            "D", (panel, role), stores(((y + first_row) * n + x) * WORD_BYTES % LINE_BYTES, rows, columns),
            data=partial(data.store, y + first_row, x),
        )

    return Launch(
        kernel="sgemm_naive",
        num_ctas=grid.num_tiles,
        num_tiles=grid.num_tiles,
        roles=tuple(
            WarpRole(name=f"warps{role}", num_warps=num_warps, program=partial(program, role)) for role in range(num_roles)
        ),
        buffers=(Buffer(name="tiles", stage_bytes=2 * TILE * TILE * WORD_BYTES),) if way == "tiled" else (),
        registers_per_thread=REGISTERS,
        registers_source="SASS of kernels/sgemm_naive",
        footprints=(*_operands(params), grid.footprint("D", "write", element_bytes=WORD_BYTES, num_steps=num_roles)),
        num_flops=2 * params.m * n * params.k,
        math_class="fp32",
        has_uniform_programs=True,
        tensors=tuple(
            MemRef.row_major(name, shape, FP32)
            for name, shape in (("A", (params.m, params.k)), ("B", (params.k, n)), ("D", (params.m, n)))
        ),
    )


def _shared_accesses() -> tuple[AccessPattern, list[AccessPattern]]:
    """Accesses to shared memory by all warps: (stores of both tiles, loads for eight k each). A's loads are vectors."""
    place = np.arange(TILE * TILE).reshape(1, TILE, WARP_SIZE)
    everyone = np.ones(place.shape, dtype=np.bool_)
    written = total(shared_passes(f"st_shared_b{8 * WORD_BYTES}", WORD_BYTES * place, everyone))
    warp, lane = place // WARP_SIZE, place % WARP_SIZE
    parts = []
    for first in range(0, TILE, AT_ONCE):
        of_a = [WORD_BYTES * (warp * TILE + k) for k in range(first, first + AT_ONCE, VECTOR)]
        of_b = [WORD_BYTES * (k * TILE + lane) for k in range(first, first + AT_ONCE)]
        parts.append(total(
            access for width, offsets in ((VECTOR, of_a), (1, of_b)) for each in offsets
            for access in shared_passes(f"ld_shared_b{8 * width * WORD_BYTES}", each, everyone)
        ))  # fmt: skip
    return written.scaled(2), parts


def _operands(params: SgemmNaiveParams) -> tuple[Footprint, Footprint]:
    """Footprints of A and B: a row of tiles reads its rows of A, a column of tiles its columns of B."""
    grid, row_bytes = params.grid, params.k * WORD_BYTES

    def bytes_of_a(tiles: IntArray) -> IntArray:
        return np.asarray(np.minimum(TILE, params.m - tiles // grid.num_x * TILE) * row_bytes)

    def bytes_of_b(tiles: IntArray) -> IntArray:
        return np.asarray(np.minimum(TILE, params.n - tiles % grid.num_x * TILE) * row_bytes)

    num_steps = params.k // params.step
    of_a = TILE * WORD_BYTES if params.way == "tiled" else SECTOR_BYTES  # contiguous bytes of a warp's load
    of_b = SECTOR_BYTES if params.way == "naive" else TILE * WORD_BYTES
    return (
        Footprint(
            tensor="A", access="read", panel_of=lambda tiles: tiles // grid.num_x, panel_bytes=bytes_of_a,
            num_steps=num_steps * (TILE // WARPS_OF_ROLE[params.way]), unasked=partial(_unasked, row_bytes, of_a),
        ),
        Footprint(
            tensor="B", access="read", panel_of=lambda tiles: tiles % grid.num_x, panel_bytes=bytes_of_b,
            num_steps=num_steps, unasked=partial(_unasked, params.n * WORD_BYTES, of_b),
        ),
    )


def _unasked(row_bytes: int, piece_bytes: int, block_bytes: int) -> float:
    """Fraction of the bytes of contiguous pieces of rows that no request asked for: see ``Footprint.unasked``."""
    end = min(row_bytes, MOST_PIECES * piece_bytes)
    edges = np.unique(np.minimum(np.arange(0, end + piece_bytes, piece_bytes), end))
    return unasked_fraction(np.arange(LINE_BYTES) * row_bytes, edges, block_bytes)
