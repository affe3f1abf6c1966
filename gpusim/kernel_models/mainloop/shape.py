"""Shape of a main loop: tiles of A and B in shared memory, their layouts, and where they lie in the matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import NamedTuple, Protocol, TypeVar, cast

from gpusim.errors import LayoutError
from gpusim.kernel_models.mainloop.threads import ThreadTile
from gpusim.workload.atoms import MmaAtom, mma_sync
from gpusim.workload.atoms.mma import MmaKind
from gpusim.workload.dtypes import DType
from gpusim.workload.gmem.line_fetches import CHUNK_BYTES
from gpusim.workload.operands import OperandTile, tma_boxes
from gpusim.workload.smem.smem_ops import MATRIX_ROWS
from gpusim.workload.tma.boxes import MAX_BOX_ELEMENTS, TmaBox

Method = TypeVar("Method", bound=Callable[..., object])

MAX_STAGES = 64

FMA_PAD = 4
"""Elements of padding after each row of an fma operand that is transposed on its way to shared memory. It distributes a
column over the banks."""


class Coordinates(NamedTuple):
    """A work tile: its row and column in the grid of tiles, its batch, its part of K."""

    m: int
    n: int
    batch: int
    part: int


class OperandGrid(Protocol):
    """Work tiles of a kernel, as its main loop and its epilogue see them. Operand A is 0, and B is 1."""

    @property
    def extents(self) -> tuple[int, int, int]:
        """Rows of A, rows of B (columns of D), and K."""

    def panel(self, which: int, at: Coordinates) -> int:
        """Panel of A or B that a work tile reads."""

    def panel_of_d(self, at: Coordinates) -> int:
        """Tile of D that a work tile contributes to."""

    def rows_inside(self, which: int, idx: int) -> int:
        """Rows inside of the matrix of the ``idx``-th tile along M (0) or N (1)."""

    def first_k_step(self, part: int) -> int:
        """First k-step of a part of K."""

    def num_k_steps(self, part: int) -> int:
        """Number of k-steps of a part of K."""


@dataclass(frozen=True)
class MainloopShape:
    """Tiles of A and B: a k-step multiplies a stage of both."""

    tile: tuple[int, int, int]
    """CTA tile M, N, K."""
    stages: int
    element: DType
    """Type of A and B."""
    math: MmaKind
    copy: str
    """``cp_async``, ``ldg`` or ``tma``."""
    are_k_major: tuple[bool, bool] = (True, True)
    """Whether A and B are contiguous along K in global memory."""
    swizzle: str = "128B"
    pad: int = 0
    """Elements after each row in shared memory."""
    cluster: tuple[int, int] = (1, 1)
    """CTAs of a cluster along M and N, to which TMA multicasts."""
    l2_promotion: int = 0
    """Minimum bytes that L2 fetches from memory; 0: the bytes that are requested."""
    copy_bytes: int = CHUNK_BYTES
    """Bytes of a copy of a lane, to which rows of A and B are aligned in global memory."""
    alignment: int = 1
    """Elements to which rows of A and B are padded in global memory."""
    accumulator: DType | None = None
    """Type of the sums; None: the usual one of ``element``."""
    thread_tile: ThreadTile = ThreadTile()  # noqa: RUF009 - frozen
    """Elements of a thread of FFMA, and whether it accesses them one by one."""

    @property
    def mma_sync(self) -> MmaAtom:
        """The mma.sync of these types."""
        return mma_sync(self.element, self.accumulator)

    @property
    def sum_bits(self) -> int:
        """Bits of a sum; of integers and of most floats 32."""
        return self.accumulator.bits if self.accumulator else 32

    @property
    def by_tma(self) -> bool:
        """Whether TMA copies."""
        return self.copy == "tma"

    def is_transposed(self, which: int) -> bool:
        """Whether A (0) or B (1) is transposed on its way to shared memory: vectors of fma have one k."""
        return self.math == "fma" and self.are_k_major[which] and not self.thread_tile.is_scalar

    def is_by_element(self, which: int) -> bool:
        """Whether A (0) or B (1) is copied element by element."""
        return self.is_transposed(which) or self.thread_tile.is_scalar

    def bytes_of_copy(self, which: int) -> int:
        """Bytes of a copy of a lane."""
        return self.element.num_bytes if self.is_by_element(which) else self.copy_bytes

    def is_through_l1(self, which: int) -> bool:
        """Whether copies pass through L1: LDG, and cp.async of less than 16 bytes."""
        return self.copy == "ldg" or self.bytes_of_copy(which) < CHUNK_BYTES

    def pitch_bytes(self, extent: int) -> int:
        """Bytes from row to row in global memory of an operand with ``extent`` contiguous elements."""
        return -(-extent // self.alignment) * self.alignment * self.element.num_bytes

    @property
    def stage_bytes(self) -> int:
        """Shared memory of one stage in bytes. The tile need not be valid."""
        rows = sum(self.tile[which] + (FMA_PAD if self.is_transposed(which) else 0) for which in (0, 1))
        strided = (self.tile[which] if is_k_major else self.tile[2] for which, is_k_major in enumerate(self.are_k_major))
        return (rows * self.tile[2] + self.pad * sum(strided)) * self.element.num_bytes

    @cached_property
    def operands(self) -> tuple[OperandTile, OperandTile]:
        """One stage of A, and one of B."""
        return self._operand(0), self._operand(1)

    def _operand(self, which: int) -> OperandTile:
        rows, _, tile_k = self.tile[which], *self.tile[1:]
        if self.math == "fma":  # for vectors, M and N are contiguous for each k, with any layout in global memory
            rows += FMA_PAD if self.is_transposed(which) else 0
            is_k_major = self.are_k_major[which] and self.thread_tile.is_scalar
            return OperandTile(rows=rows, k=tile_k, dtype=self.element, is_k_major=is_k_major, swizzle="none")
        return OperandTile(
            rows=rows, k=tile_k, dtype=self.element, is_k_major=self.are_k_major[which], swizzle=self.swizzle,
            is_interleaved=self.swizzle == "none" and self.math == "wgmma", pad=self.pad,
        )  # fmt: skip

    # -------------------------------------------------------------------------------------- slices of a cluster's CTAs
    def num_sharing(self, which: int) -> int:
        """CTAs of a cluster that divide an operand and multicast their parts; 1 where each loads all that it needs.

        Each loads its own if the tile does not part into boxes.
        """
        num_ctas = self.cluster[1 - which]
        return num_ctas if self.can_slice(which, num_ctas) else 1

    def can_slice(self, which: int, num_ctas: int) -> bool:
        """Whether ``num_ctas`` CTAs can divide an operand."""
        try:
            self.boxes(which, num_ctas)
        except LayoutError:
            return False
        return True

    def boxes(self, which: int, num_ctas: int) -> tuple[TmaBox, ...]:
        """TMA boxes that one of ``num_ctas`` CTAs loads of A or B, and multicasts.

        Parts of a K-major tile may begin within a swizzle's period, because TMA swizzles by address. Source: cuBLAS divides
        tiles of 152, 168 and 248 rows among pairs, with one multicast of each CTA a k-step (SASS).

        Raises:
            LayoutError: the tile cannot be divided into boxes.
        """
        tile = self.operands[which]
        rows = tile.rows // num_ctas
        is_amid = rows % MATRIX_ROWS != 0 and tile.rows % num_ctas == 0 and MATRIX_ROWS < rows <= MAX_BOX_ELEMENTS
        if tile.is_k_major and tile.is_in_panels and is_amid:
            width = tile.panel_bytes // tile.dtype.num_bytes
            box = TmaBox(inner_elements=width, outer=(rows,), dtype=tile.dtype, swizzle=tile.swizzle)
            return (box,) * (tile.contiguous_bytes // tile.panel_bytes)
        if self.slices_k(which, num_ctas):
            return tma_boxes(replace(tile, k=_divided(tile.k, num_ctas)))
        return tma_boxes(replace(tile, rows=_divided(tile.rows, num_ctas)))

    def slices_k(self, which: int, num_ctas: int) -> bool:
        """Whether CTAs divide K: rows are contiguous, and a slice of them would be narrower than a panel."""
        tile = self.operands[which]
        return not tile.is_k_major and (tile.contiguous_bytes // num_ctas) % tile.panel_bytes != 0


def _divided(extent: int, num_ctas: int) -> int:
    if extent % num_ctas:
        raise LayoutError(f"operand tile: {extent} do not part into {num_ctas}: use {max(1, extent // num_ctas) * num_ctas}")
    return extent // num_ctas


def cached_method(method: Method) -> Method:
    """A method that keeps its results, for each object."""
    return cast("Method", cached_property(lambda owner: cache(partial(method, owner))))
