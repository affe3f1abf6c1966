"""Register fragments of mma.sync and fma kernels: the loads of each slice of a k-step, and the math that uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from gpusim.kernel_models.mainloop.operand_data import MathData
from gpusim.kernel_models.mainloop.threads import LANES
from gpusim.kernel_models.mainloop.warp_partition import WarpPartition
from gpusim.units import WARP_SIZE
from gpusim.workload import ops
from gpusim.workload.atoms.mma import K_STEP_BYTES
from gpusim.workload.data_access import Data
from gpusim.workload.operands import OperandTile, ldmatrix_reads
from gpusim.workload.ops import Op
from gpusim.workload.smem.access import AccessPattern, wavefronts
from gpusim.workload.smem.smem_ops import BANK_BYTES, MATRIX_ROWS

Span = tuple[int, int]

MOST_KS = 2
"""Maximum k of a slice of an fma k-step. Smaller slices take longer to simulate, and change a kernel's time by some
percent."""


def pairs(num_ks: int) -> list[int]:
    """Slices of ``num_ks``: one, then twos as far as they fit, and the last one separately.

    >>> pairs(8), pairs(9), pairs(2), pairs(1)
    ([1, 2, 2, 2, 1], [1, 2, 2, 2, 1, 1], [1, 1], [1])
    """
    slices: list[int] = []
    left = num_ks - 1
    while left:
        slices.append(min(2 ** len(slices), left, MOST_KS))
        left -= slices[-1]
    return [*slices, 1]


def word_reads(tile: OperandTile, *, rows_per_warp: int, first_row: int = 0, k_step_idx: int = 0) -> AccessPattern:
    """Access pattern of one warp's ``ld.shared`` of 32-bit fragments from a tile that is not k-major, for one k-step.

    ldmatrix cannot transpose such elements. An instruction reads eight rows of four k: lane i has row ``i // 4``, k
    ``i % 4``. Swizzle 128B stands for CUTLASS's layout of such tiles, which has no conflicts.
    Source: NVIDIA/cutlass, ``TensorOpMultiplicandCongruous<32, 32>``, which swizzles parts of 32 bytes by k.

    >>> from gpusim.workload.dtypes import dtype
    >>> for mode in ("128B", "none"):  # rows of 512 bytes begin in one bank
    ...     tile = OperandTile(rows=128, k=32, dtype=dtype("tf32"), is_k_major=False, swizzle=mode)
    ...     print(word_reads(tile, rows_per_warp=64).num_wavefronts)
    16
    64
    """
    row, k = np.divmod(np.arange(WARP_SIZE), 4)
    rows = first_row + MATRIX_ROWS * np.arange(rows_per_warp // MATRIX_ROWS)[:, None, None] + row
    ks = K_STEP_BYTES // tile.dtype.num_bytes * k_step_idx + 4 * np.arange(2)[:, None] + k
    offsets = tile.byte_offsets(*np.broadcast_arrays(ks, rows * tile.dtype.num_bytes)).reshape(-1, WARP_SIZE)
    is_free = tile.swizzle == "128B"
    num_wavefronts = len(offsets) if is_free else int(wavefronts("ld_shared_b32", offsets).sum())
    return AccessPattern(num_requests=len(offsets), num_wavefronts=num_wavefronts, num_bytes=offsets.size * BANK_BYTES)


@dataclass(frozen=True)
class Fragments:
    """Slices of a k-step, for all warps together.

    For mma.sync a slice has the depth of one MMA. For fma the first slice and the last have a single
    k each, and the others have two.
    An fma kernel's registers hold the vectors of two k. Those of a k are loaded during the math of the one before. The first
    math of a stage therefore waits for one k's vectors only, and the wait for the next stage precedes the last k's math. The
    math of two k waits for the vectors of the first, because those of the second arrive during its math. With
    ``register_stages`` 1, each k's vectors are loaded before its own math, so the math waits for both.

    Ignores: that the vectors of the second k may arrive too late for that.
    """

    partition: WarpPartition
    warp_groups: tuple[int, int] = (1, 1)
    """Number of warp groups along M and N. All groups have the same loads; the record describes one of them."""
    bank_reads: float = 1.0
    """Register-bank reads of an FFMA: mean reads from the fuller bank."""
    data: MathData | None = None
    """Data accesses of the role; None: unknown."""

    @cached_property
    def slices(self) -> list[AccessPattern]:
        """Access patterns of the fragment loads of each slice."""
        if self.partition.shape.math != "mma_sync":
            return self._vector_slices()
        rows, columns = self.partition.warp_tile
        return [self._ldmatrix(idx, ((0, rows), (0, columns))) for idx in range(self._num_slices)]

    @property
    def _num_slices(self) -> int:
        return self.partition.shape.tile[2] // self.partition.shape.mma_sync.k

    def _ldmatrix(self, idx: int, spans: tuple[Span, Span]) -> AccessPattern:
        """Loads of slice ``idx``: spans of rows of A and columns of B, within each warp's part."""
        partition, reads = self.partition, AccessPattern()
        num_parts = [parts // groups for parts, groups in zip(partition.warp_grid, self.warp_groups, strict=True)]
        for which, (operand, (begin, end)) in enumerate(zip(self.partition.shape.operands, spans, strict=True)):
            for warp in range(num_parts[which] if end > begin else 0):
                first = warp * partition.warp_tile[which] + begin
                by_words = not operand.is_k_major and operand.dtype.bits == 32
                reads_of = word_reads if by_words else ldmatrix_reads
                read = reads_of(operand, rows_per_warp=end - begin, first_row=first, k_step_idx=idx)
                reads += read.scaled(num_parts[1 - which])
        return reads

    def _vector_slices(self) -> list[AccessPattern]:
        """``ld.shared`` of rows of A and columns of B for the thread tiles."""
        shape = self.partition.shape
        of_a, of_b = (
            shape.thread_tile.reads(shape.operands[which], which, extent // LANES[which])
            for which, extent in enumerate(self.partition.warp_tile)
        )
        return [(of_a + of_b).scaled(self.partition.num_math_warps * num_ks) for num_ks in self._depths]

    @cached_property
    def _depths(self) -> list[int]:
        """Number of k in each slice of an fma k-step."""
        return pairs(self.partition.shape.tile[2])

    @cached_property
    def reads(self) -> list[list[Op]]:
        """For each stage, the loads of its slices. Each load yields a token."""
        num_stages = self.partition.shape.stages
        if self.partition.shape.math == "mma_sync":
            spans = tuple((0, extent) for extent in self.partition.warp_tile)
            return [
                [
                    ops.Ldmatrix(access, "a", stage, data=self._reads_of(stage, idx, spans))
                    for idx, access in enumerate(self.slices)
                ]
                for stage in range(num_stages)
            ]
        parts = [1 if self.partition.register_stages == 1 else num_ks for num_ks in self._depths]
        return [
            [
                ops.SharedLoad(access, "a", stage, num, data=self._vectors_of(stage, idx))
                for idx, (access, num) in enumerate(zip(self.slices, parts, strict=True))
            ]
            for stage in range(num_stages)
        ]  # fmt: skip

    def _reads_of(self, stage: int, idx: int, spans: tuple[Span, ...]) -> Data | None:
        return partial(self.data.reads, stage, idx, spans) if self.data else None

    def _vectors_of(self, stage: int, idx: int) -> Data | None:
        first = sum(self._depths[:idx])
        return partial(self.data.vectors, stage, idx, first, self._depths[idx]) if self.data else None

    def math_of(self, slices: Sequence[int]) -> Data | None:
        """Data access of the mma.sync of slices."""
        return partial(self.data.mma, tuple(slices)) if self.data else None

    @cached_property
    def halves(self) -> list[list[list[tuple[ops.Ldmatrix, ops.MmaSync]]]]:
        """For each stage and slice of mma.sync: the first loads with their math, then the remaining loads and math.

        An instruction's rows of A and 16 columns of B come first, then the other columns, then the other rows. Math
        continues as they arrive: only the instructions of the last rows (or columns) wait for the last load.

        Functional runs multiply a slice as soon as its last load has arrived.

        Source: SASS of ``kernels/hgemm``.
        """
        (rows, columns), atom = self.partition.warp_tile, self.partition.shape.mma_sync
        wide = min(columns, 2 * atom.n)
        num, num_last = rows // atom.m * (columns // atom.n), columns // atom.n if rows > atom.m else wide // atom.n
        num_stages = self.partition.shape.stages
        slices: list[list[tuple[AccessPattern, ops.MmaSync]]] = []
        spans = [((0, atom.m), (0, wide)), ((atom.m, rows), (wide, columns))]
        for idx in range(self._num_slices):
            first = self._ldmatrix(idx, ((0, atom.m), (0, wide)))
            others = self._ldmatrix(idx, ((atom.m, rows), (0, 0))) + self._ldmatrix(idx, ((0, 0), (wide, columns)))
            if others.num_requests:
                last = ops.MmaSync(atom, num_last, data=self.math_of((idx,)))
                slices.append([(first, ops.MmaSync(atom, num - num_last, data=self.math_of(()))), (others, last)])
            else:
                slices.append([(first, ops.MmaSync(atom, num, data=self.math_of((idx,))))])
        return [
            [
                [
                    (ops.Ldmatrix(access, "a", stage, data=self._reads_of(stage, idx, spans[part])), math)
                    for part, (access, math) in enumerate(parts)
                ]
                for idx, parts in enumerate(slices)
            ]
            for stage in range(num_stages)
        ]  # fmt: skip

    @cached_property
    def math(self) -> list[Op]:
        """Math of each slice."""
        rows, columns = self.partition.warp_tile
        if self.partition.shape.math == "mma_sync":
            atom = self.partition.shape.mma_sync
            num = (rows // atom.m) * (columns // atom.n)
            return [ops.MmaSync(atom, num, data=self.math_of((idx,))) for idx in range(len(self.slices))]
        is_ring = self.partition.shape.stages > 1
        return [
            ops.Fma(
                rows * columns // 32 * num_ks, bank_reads=self.bank_reads, num_runs=num_ks, by_age=is_ring,
                data=partial(self.data.fma, idx, num_ks) if self.data else None,
            )
            for idx, num_ks in enumerate(self._depths)
        ]
