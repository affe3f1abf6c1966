"""Two levels of tiles of a GEMM kernel: the CTA tile, and how each step cuts it, as CuTe's tiled MMA and tiled copies.

In: a config and a GPU. Out: :class:`TilePartition`. Its steps are mma and copies like g2s: g is global memory, s shared
memory, r registers.

Ignores: predicates at edges of the matrices, and FFMA, whose threads are no tiled MMA of a warp's instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from gpusim.errors import KernelError
from gpusim.kernel_models.gemm.config import GemmConfig
from gpusim.kernel_models.gemm.launch import epilogues_of
from gpusim.kernel_models.gemm.smem_budget import staging_of
from gpusim.kernel_models.gemm.tile_grid import TilePlan
from gpusim.kernel_models.mainloop.output import Staging
from gpusim.kernel_models.mainloop.warp_partition import PRODUCER_WARPS
from gpusim.kernel_models.streaming import ceil_div
from gpusim.layout import Layout, Tensor, TiledCopy, TiledMma, make_tiled_copy_A, make_tiled_copy_B, make_tiled_copy_C, size
from gpusim.units import WARP_SIZE
from gpusim.workload.atoms import CopyAtom, MmaAtom, copy_atom, wgmma
from gpusim.workload.dtypes import FP32, DType
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.launch import Target
from gpusim.workload.operands import tma_boxes
from gpusim.workload.tiled import mma_counts, tiled_copy, tiled_mma
from gpusim.workload.tma.boxes import TmaBox

WORD_BITS = 32
PAIR_COLUMNS = 16
"""Columns of two accumulator fragments, which ldmatrix and stmatrix of four matrices cover."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledStep:
    """One step of a CTA tile."""

    name: str
    """``mma``, or a copy from and to: ``g2s``, ``g2r``, ``s2r``, ``r2s``, ``s2g``, ``r2g``."""
    what: str
    """Tensor that is copied; empty for the MMA."""
    atom: CopyAtom | MmaAtom
    num_threads: int
    """Threads that execute it together."""
    extents: tuple[int, ...]
    """Extents of the part of the CTA tile: (M,K), (N,K), (M,N) or (M,N,K), as CuTe orders modes."""
    tile: tuple[int, ...]
    """Extents that all these threads cover together: CuTe's tiler. Of TMA: the box."""
    num_instructions: int
    """Instructions of a warp for the part; of wgmma of a warpgroup, of TMA of a thread that issues them."""
    layout_tv: Layout | None = None
    """Layout from (thread, value) to a position in the tile; None for boxes and MMAs."""

    @property
    def repeats(self) -> tuple[int, ...]:
        """Number of tiles along each mode."""
        return tuple(ceil_div(extent, step) for extent, step in zip(self.extents, self.tile, strict=True))


@dataclass(frozen=True)
class TilePartition:
    """Partition of the CTA tile of ``config`` on ``gpu``.

    Raises:
        KernelError: the kernel multiplies by FFMA.
    """

    config: GemmConfig
    gpu: Target

    def __post_init__(self) -> None:
        if self.config.math == "fma":
            raise KernelError(
                "--math fma: threads of FFMA have tiles of single elements, which are no tiled MMA; use a type of tensor "
                "cores, for example --dtype tf32"
            )

    # -------------------------------------------------------------------------------------- math
    @cached_property
    def _grid(self) -> tuple[int, int]:
        """Warps (wgmma: warpgroups) along M and N that share a tile."""
        return self.config.partition.warp_grid

    @cached_property
    def mma(self) -> TiledMma:
        """The tiled MMA: one instruction of each warp, or of each warpgroup."""
        return tiled_mma(self._atom, Layout((*self._grid, 1)))

    @cached_property
    def _atom(self) -> MmaAtom:
        config = self.config
        return config.partition.atom if config.math == "wgmma" else config.mainloop.mma_sync

    @cached_property
    def _paired(self) -> TiledMma:
        """The tiled MMA over 16 columns of each warp, for copies of four matrices."""
        if self.config.math == "wgmma":
            columns = self.config.partition.warp_tile[1]
            narrow = wgmma(8 if columns % PAIR_COLUMNS else PAIR_COLUMNS, self.config.element)
            return tiled_mma(narrow, Layout((*self._grid, 1)))
        return tiled_mma(self._atom, Layout((*self._grid, 1)), (None, PAIR_COLUMNS * self._grid[1], None))

    def fragments(self) -> dict[str, str]:
        """Shapes of thread 0's fragments, as CuTe's ``partition_fragment``: (values, MMA_M or MMA_N, MMA_K or MMA_N)."""
        (m, n, k), thread = self.config.tile, self.mma.get_slice(0)
        shapes = {"C": thread.partition_C(Tensor(Layout((m, n))))}
        if self.config.math == "mma_sync":
            shapes |= {"A": thread.partition_A(Tensor(Layout((m, k)))), "B": thread.partition_B(Tensor(Layout((n, k))))}
        return {name: str(Layout(part.inner.shape)).partition(":")[0] for name, part in sorted(shapes.items())}

    # -------------------------------------------------------------------------------------- steps
    @cached_property
    def _staging(self) -> Staging:
        return staging_of(self.config, self.gpu)

    @property
    def slice_columns(self) -> int:
        """Columns of D that all roles stage in shared memory at once; 0: D leaves from registers."""
        parts = self._grid[1] if self.config.is_specialized else 1
        return self._staging.slice_n * parts if self._staging.num_bytes else 0

    @cached_property
    def steps(self) -> tuple[TiledStep, ...]:
        """All steps, in the order in which a tile takes them."""
        return (*self._fills(), *self._reads(), self._math(), *self._leaving())

    def _fills(self) -> Iterator[TiledStep]:
        shape = self.config.mainloop
        num_warps = PRODUCER_WARPS if self.config.is_specialized else self.config.partition.num_warps
        for which, name in enumerate("AB"):
            extents = shape.tile[which], shape.tile[2]
            if shape.by_tma:
                num_ctas = shape.num_sharing(which)
                kind = "tma_load_multicast" if num_ctas > 1 else "tma_load"
                boxes = shape.boxes(which, num_ctas)
                yield _boxed("g2s", name, kind, extents, boxes, is_turned=not shape.are_k_major[which])
                continue
            bits, is_turned = 8 * shape.bytes_of_copy(which), not shape.are_k_major[which]
            kinds = {"g2s": f"cp_async_{'cg' if bits == 8 * CHUNK_BYTES else 'ca'}_b{bits}"}
            if shape.copy == "ldg":
                kinds = {"g2r": f"ld_global_b{bits}", "r2s": "st_shared_b128"}
            for step, kind in kinds.items():
                atom, num_along = copy_atom(kind), extents[0 if is_turned else 1]
                copy = by_rows(atom, shape.element, num_along, WARP_SIZE * num_warps, is_turned=is_turned)
                yield _copied(step, name, atom, copy, extents)

    def _reads(self) -> Iterator[TiledStep]:
        if self.config.math != "mma_sync":
            return
        (m, _, k), (_, columns) = self.config.tile, self.config.partition.warp_tile
        yield self._read(0, 4, self.mma, (m, k))
        if pairs := columns // PAIR_COLUMNS:
            yield self._read(1, 4, self._paired, (pairs * PAIR_COLUMNS * self._grid[1], k))
        if rest := columns % PAIR_COLUMNS:
            yield self._read(1, 2, self.mma, (rest * self._grid[1], k))

    def _read(self, which: int, num_matrices: int, mma: TiledMma, extents: tuple[int, int]) -> TiledStep:
        """Fragments of A (0) or B (1): ldmatrix, which cannot transpose words."""
        element, is_k_major = self.config.element, self.config.are_k_major[which]
        name = f"ldmatrix_x{num_matrices}" + ("" if is_k_major else "_trans")
        atom = copy_atom(name if is_k_major or element.bits < WORD_BITS else "ld_shared_b32")
        copy = (make_tiled_copy_B if which else make_tiled_copy_A)(atom.tv(element), mma)
        return _copied("s2r", "AB"[which], atom, copy, extents)

    def _math(self) -> TiledStep:
        tile = self.config.tile
        return TiledStep(
            name="mma", what="", atom=self._atom, num_threads=self.mma.num_threads, extents=tile, tile=self.mma.tile_shape,
            num_instructions=mma_counts(self.mma, tile).num_instructions,
        )

    def _leaving(self) -> Iterator[TiledStep]:
        """The steps of an epilogue, for a slice of columns. s2g is that of each role, the others those of all together."""
        config, (m, n, _) = self.config, self.config.tile
        if config.split_k > 1 and config.split_k_mode != "serial":
            yield self._scattered("r2g", "st_global", FP32, (m, n))
            return
        element, columns, staging = config.out_element, self.slice_columns, self._staging
        if not columns:
            yield self._scattered("r2g", "st_global", element, (m, n), most_bytes=config.stored_bytes)
            return
        epilogue = epilogues_of(TilePlan(config), staging, has_stmatrix="stmatrix" in self.gpu.features)[0][0]
        if epilogue.uses_stmatrix:
            atom = copy_atom("stmatrix_x4")
            yield _copied("r2s", "D", atom, make_tiled_copy_C(atom.tv(element), self._paired), (m, columns))
        else:
            yield self._scattered("r2s", "st_shared", element, (m, columns))
        part = epilogue.share_m, staging.slice_n
        if config.stores_by_tma:
            boxes = tma_boxes(epilogue.slice_tile)
            yield _boxed("s2g", "D", "tma_store", part, boxes, is_turned=False)
            return
        atom = copy_atom(f"st_global_b{8 * config.stored_bytes}")
        num_threads, lane_bytes = WARP_SIZE * epilogue.num_warps, config.stored_bytes
        copy = by_rows(atom, element, staging.slice_n, num_threads, is_turned=False, lane_bytes=lane_bytes)
        yield _copied("s2g", "D", atom, copy, part)

    def _scattered(
        self, name: str, verb: str, element: DType, extents: tuple[int, int], most_bytes: int = CHUNK_BYTES
    ) -> TiledStep:
        """Fragments as they lie in registers: two adjacent elements of a row, at most ``most_bytes``."""
        atom = copy_atom(f"{verb}_b{min(2 * element.bits, 8 * most_bytes)}")
        mma = self._paired if self.config.math == "wgmma" else self.mma
        return _copied(name, "D", atom, make_tiled_copy_C(atom.tv(element), mma), extents)


def _copied(name: str, what: str, atom: CopyAtom, copy: TiledCopy, extents: tuple[int, int]) -> TiledStep:
    tile = tuple(size(Layout(extent)) for extent in copy.tiler)
    num_tiles = prod(map(ceil_div, extents, tile))
    return TiledStep(
        name=name, what=what, atom=atom, num_threads=copy.num_threads, extents=extents, tile=tile,
        num_instructions=num_tiles * size(copy.layout_tv, 1) // size(copy.atom.ref, 1), layout_tv=copy.layout_tv,
    )


def by_rows(
    atom: CopyAtom, element: DType, num_along: int, num_threads: int, *, is_turned: bool, lane_bytes: int = CHUNK_BYTES
) -> TiledCopy:
    """A copy whose threads take ``lane_bytes`` along a row of ``num_along`` elements, then along the next row.

    ``is_turned``: the rows of memory are columns of the tile.

    >>> from gpusim.workload.dtypes import FP16
    >>> by_rows(copy_atom("cp_async_cg_b128"), FP16, 32, 128, is_turned=False).tiler
    (32, 32)
    """
    vector = lane_bytes // element.num_bytes
    along = next(num for num in range(min(num_threads, ceil_div(num_along, vector)), 0, -1) if num_threads % num == 0)
    across = num_threads // along
    if is_turned:
        return tiled_copy(atom, element, Layout((along, across), (1, along)), Layout((vector, 1)))
    return tiled_copy(atom, element, Layout((across, along), (along, 1)), Layout((1, vector)))


def _boxed(
    name: str, what: str, atom: str, extents: tuple[int, int], boxes: tuple[TmaBox, ...], *, is_turned: bool
) -> TiledStep:
    """A copy by TMA: the box of one instruction, whose inner dimension comes last unless ``is_turned``."""
    tile = (boxes[0].outer[0], boxes[0].inner_elements)
    return TiledStep(
        name=name, what=what, atom=copy_atom(atom), num_threads=1, extents=extents,
        tile=tile[::-1] if is_turned else tile, num_instructions=len(boxes),
    )
