"""Operand tiles in shared memory, the TMA boxes that load them, and the wavefronts of accesses to them.

In: extents, a type, a major mode, a swizzle. Out: :class:`OperandTile`, its boxes, access patterns.

Ignores: that L2 combines partial sectors of several stores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpusim.errors import KernelError, LayoutError, nearest, nearest_multiple
from gpusim.layout.layout import Layout, make_layout
from gpusim.layout.notation import parse_swizzle
from gpusim.layout.swizzle import SWIZZLE_MODES, ByteLayout, Swizzle, span_bytes, swizzle_mode
from gpusim.units import LINE_BYTES, WARP_SIZE
from gpusim.workload.atoms.mma import K_STEP_BYTES, WGMMA_M, MmaKind
from gpusim.workload.dtypes import DType
from gpusim.workload.gmem.global_access import global_access
from gpusim.workload.smem.access import AccessPattern, wavefronts
from gpusim.workload.smem.smem_ops import MATRIX_ROW_BYTES, MATRIX_ROWS
from gpusim.workload.tma.boxes import MAX_BOX_ELEMENTS, TmaBox


@dataclass(frozen=True, slots=True, kw_only=True)
class OperandTile:
    """One stage of an A, B or output tile in shared memory: ``rows`` (M for A, N for B) by ``k`` elements.

    The contiguous mode is k if ``is_k_major``, otherwise rows. The stage starts at a multiple of 1024 bytes, so a swizzle of
    addresses equals a swizzle of offsets. Layouts:

    * ``swizzle`` is a mode of TMA and wgmma ("32B", "64B", "128B"): the tile consists of adjacent panels.
      Panels follow one another along the contiguous mode. Each is as wide as the swizzle's span.
    * ``swizzle`` is ``B,M,S``, in elements: the tile is row-major, with one swizzle over all of it, as CuTe's
      ``composition(Swizzle, Layout)``.
    * ``swizzle`` is "none": the tile is row-major, with ``pad`` elements after each row.
    * ``is_interleaved``: the tile consists of panels of 16 bytes. This is wgmma's layout without swizzle, in core matrices.

    Source: PTX ISA, wgmma's shared-memory layouts; CUTLASS, ``mma_traits_sm90_gmma.hpp``.

    Raises:
        LayoutError: a contiguous mode that is no multiple of the panel width. Also: panels, or a tile, that are no multiple
            of the swizzle's period. Also: a swizzle that splits 16-byte vectors, or a tile both swizzled and interleaved.
            Also: padding of a tile that is not plain row-major.
    """

    rows: int
    k: int
    dtype: DType
    is_k_major: bool
    swizzle: str = "128B"
    is_interleaved: bool = False
    pad: int = 0
    """Elements after each row (along the contiguous mode) of a plain tile."""

    def __post_init__(self) -> None:
        swizzle = self.byte_swizzle
        if self.rows < 1 or self.k < 1:
            raise LayoutError(f"operand tile: {self.rows} x {self.k}: use 1 or more of each")
        if self.is_interleaved and swizzle.num_bits:
            raise LayoutError(f"operand tile: interleaved and swizzled {self.swizzle}: use swizzle 'none'")
        if not self.is_in_panels and swizzle.num_bits and swizzle.base < 4:
            least = 4 - (self.dtype.num_bytes.bit_length() - 1)
            raise LayoutError(
                f"operand tile: swizzle {self.swizzle!r} tears the 16-byte vectors that copies and ldmatrix take: use M of "
                f"{least} or more"
            )
        if self.pad and (self.is_interleaved or swizzle.num_bits or self.pad < 0 or self.pad_bytes % MATRIX_ROW_BYTES):
            raise LayoutError(
                f"operand tile: {self.pad} elements of {self.dtype.name} behind each row: use swizzle 'none', and multiples "
                f"of {MATRIX_ROW_BYTES // self.dtype.num_bytes}"
            )
        width = max(span_bytes(self.swizzle), MATRIX_ROW_BYTES) if self.is_in_panels else MATRIX_ROW_BYTES
        if self.contiguous_bytes % width:
            fitting = [m for m in SWIZZLE_MODES if self.contiguous_bytes % span_bytes(m) == 0]
            close = nearest_multiple(self.contiguous_bytes, width) // self.dtype.num_bytes
            raise LayoutError(
                f"operand tile: {self.contiguous_bytes} contiguous bytes are no multiple of the {width} of "
                f"swizzle {self.swizzle!r}: use {close} elements of {self.dtype.name}"
                + (f", or swizzle {fitting[-1]!r}" if fitting else "")
            )
        if not self.is_in_panels and self.num_bytes % swizzle.period:
            raise LayoutError(
                f"operand tile: swizzle {self.swizzle!r} repeats after {swizzle.period} bytes, which do not divide the "
                f"tile's {self.num_bytes}: use smaller B or S, or a larger tile"
            )
        if self.is_in_panels and swizzle.num_bits and self.num_strided * width % swizzle.period:
            close = nearest_multiple(self.num_strided, swizzle.period // width)
            raise LayoutError(
                f"operand tile: panels of {self.num_strided} rows break swizzle {self.swizzle!r}, which "
                f"repeats after {swizzle.period} bytes: use {close} rows"
            )

    @property
    def byte_swizzle(self) -> Swizzle:
        """Swizzle of byte addresses."""
        return _byte_swizzle(self.swizzle, self.dtype.bits)

    @property
    def is_in_panels(self) -> bool:
        """Whether ``swizzle`` names a mode of TMA and wgmma (or "none"), rather than three numbers."""
        return self.swizzle in SWIZZLE_MODES

    @property
    def num_bytes(self) -> int:
        """Bytes of the stage's elements, without padding."""
        return self.rows * self.k * self.dtype.num_bytes

    @property
    def pad_bytes(self) -> int:
        """Bytes of padding after each row."""
        return self.pad * self.dtype.num_bytes

    @property
    def padded_bytes(self) -> int:
        """Bytes of the stage in shared memory, with padding."""
        return self.num_bytes + self.num_strided * self.pad_bytes

    @property
    def contiguous_bytes(self) -> int:
        """Bytes of the contiguous mode."""
        return (self.k if self.is_k_major else self.rows) * self.dtype.num_bytes

    @property
    def num_strided(self) -> int:
        """Elements of the mode that is not contiguous: the rows of the tile in memory."""
        return self.rows if self.is_k_major else self.k

    @property
    def panel_bytes(self) -> int:
        """Bytes of a panel's width; for a plain row-major tile, of the full contiguous mode."""
        if self.is_interleaved or (self.is_in_panels and swizzle_mode(self.swizzle).num_bits):
            return span_bytes(self.swizzle)
        return self.contiguous_bytes

    @property
    def smem_layout(self) -> ByteLayout:
        """Layout (rows, k) of the stage, equivalent to ``byte_offsets``; for ``wgmma_descriptor`` and ``make_tma_copy``.

        >>> bf16 = DType("bf16", 16, "float")
        >>> print(OperandTile(rows=128, k=128, dtype=bf16, is_k_major=True).smem_layout)
        Sw<3,4,3>_smem_ptr[16b] o (128,(64,2)):(64,(1,8192))
        >>> print(OperandTile(rows=128, k=64, dtype=bf16, is_k_major=False).smem_layout)
        Sw<3,4,3>_smem_ptr[16b] o ((64,2),64):((1,4096),64)
        """
        width = self.panel_bytes // self.dtype.num_bytes
        panels = Layout((width, self.contiguous_bytes // self.panel_bytes), (1, width * self.num_strided))
        rows = Layout(self.num_strided, width + self.pad)
        layout = make_layout(rows, panels) if self.is_k_major else make_layout(panels, rows)
        return ByteLayout(self.byte_swizzle, layout, element_bits=self.dtype.bits)

    def byte_offsets(self, strided_idx: NDArray[np.int64], contiguous_offset_bytes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Byte offsets within the stage, swizzled: int64 of the arguments' common shape.

        >>> bf16 = DType("bf16", 16, "float")
        >>> tile = OperandTile(rows=8, k=64, dtype=bf16, is_k_major=True, swizzle="128B")
        >>> tile.byte_offsets(np.arange(3), np.array(0)).tolist()  # chunk 0 of row r lands at chunk r
        [0, 144, 288]
        """
        panel_idx, within = np.divmod(contiguous_offset_bytes, self.panel_bytes)
        plain = (panel_idx * self.num_strided + strided_idx) * (self.panel_bytes + self.pad_bytes) + within
        return self.byte_swizzle(np.asarray(plain))


@lru_cache(maxsize=64)
def _byte_swizzle(text: str, element_bits: int) -> Swizzle:
    return parse_swizzle(text, element_bits)


def tma_boxes(tile: OperandTile) -> tuple[TmaBox, ...]:
    """TMA boxes that load ``tile``, all of the same shape: one or more for each panel, as tall as TMA permits.

    A tensor map has a single box shape. More than 256 rows are therefore split evenly.

    >>> bf16 = DType("bf16", 16, "float")
    >>> boxes = tma_boxes(OperandTile(rows=128, k=128, dtype=bf16, is_k_major=True, swizzle="128B"))
    >>> len(boxes), boxes[0].inner_elements, boxes[0].outer
    (2, 64, (128,))

    Raises:
        LayoutError: a plain tile whose rows are wider than a box, which two boxes cannot fill; or a swizzle that TMA does
            not support.
    """
    if not tile.is_in_panels:
        raise LayoutError(f"TMA box: swizzle {tile.swizzle!r} is no mode of TMA: use {', '.join(SWIZZLE_MODES)}")
    # With a swizzle a box must start at a multiple of eight rows, the swizzle's period.
    unit = MATRIX_ROWS if swizzle_mode(tile.swizzle).num_bits else 1
    heights = range(unit, min(tile.num_strided, MAX_BOX_ELEMENTS) + 1, unit)
    box = TmaBox(
        inner_elements=tile.panel_bytes // tile.dtype.num_bytes,
        outer=(max(height for height in heights if tile.num_strided % height == 0),), dtype=tile.dtype, swizzle=tile.swizzle,
    )
    return (box,) * (tile.num_bytes // box.num_bytes)


def cp_async_fill(tile: OperandTile, num_threads: int) -> AccessPattern:
    """Access pattern of ``num_threads`` threads that load ``tile`` by 16-byte ``cp.async``.

    Threads advance along the contiguous mode, then to the next row. Lanes may be idle in the last round. In global memory
    each row starts on a 128-byte line, and no two rows share one. ``num_wavefronts`` counts writes to shared memory for
    ``cp.async.cg``, which bypasses L1: its reads take no wavefronts.

    Raises:
        LayoutError: ``num_threads`` is no positive multiple of 32.
    """
    if num_threads < 1 or num_threads % WARP_SIZE:
        close = nearest_multiple(num_threads, WARP_SIZE)
        raise LayoutError(f"cp.async fill: {num_threads} threads are no full warps: use {close}")
    # All warps are full: 32 consecutive chunks are one request for any number of threads.
    num_chunks = tile.num_bytes // MATRIX_ROW_BYTES
    chunk_idx = np.arange(math.ceil(num_chunks / WARP_SIZE) * WARP_SIZE).reshape(-1, WARP_SIZE)
    active = chunk_idx < num_chunks
    strided_idx, column_idx = np.divmod(chunk_idx, tile.contiguous_bytes // MATRIX_ROW_BYTES)
    pitch_bytes = math.ceil(tile.contiguous_bytes / LINE_BYTES) * LINE_BYTES
    read = global_access(strided_idx * pitch_bytes + column_idx * MATRIX_ROW_BYTES, MATRIX_ROW_BYTES, active)
    written = wavefronts("cp_async_b128", tile.byte_offsets(strided_idx, column_idx * MATRIX_ROW_BYTES), active)
    return AccessPattern(
        num_requests=read.num_requests, num_sectors=read.num_sectors, num_lines=read.num_lines,
        num_wavefronts=int(written.sum()), num_bytes=read.num_bytes,
    )


def ldmatrix_reads(tile: OperandTile, *, rows_per_warp: int, first_row: int = 0, k_step_idx: int = 0) -> AccessPattern:
    """Access pattern of one warp that loads ``rows_per_warp`` rows of its fragments for one k-step by ldmatrix.

    A k-step is 32 bytes along k: k16 for 16-bit elements. The warp issues x4 instructions, and one x2 if eight rows remain.
    A tile that is not k-major needs the ``.trans`` form, which exists for 16-bit elements only. ``rows_per_warp`` is the
    warp's part of M for A, and of N for B.

    >>> bf16 = DType("bf16", 16, "float")
    >>> for mode in ("none", "128B"):  # 16 matrices: eight rows in one bank group, or in eight
    ...     tile = OperandTile(rows=128, k=64, dtype=bf16, is_k_major=True, swizzle=mode)
    ...     print(ldmatrix_reads(tile, rows_per_warp=64).num_wavefronts)
    128
    16

    Raises:
        LayoutError: rows that are no multiple of 8 or lie outside of the tile, or a k-step outside of it. Also: a tile that
            ldmatrix cannot transpose.
    """
    k_step = K_STEP_BYTES // tile.dtype.num_bytes
    if not tile.is_k_major and tile.dtype.bits != 16:
        raise LayoutError(
            f"ldmatrix: cannot transpose {tile.dtype.name}, its elements have {tile.dtype.bits} bits: "
            "use a k-major tile, or 16-bit elements"
        )
    for what, value in (("rows_per_warp", rows_per_warp), ("first_row", first_row)):
        if value % MATRIX_ROWS or value < 0 or (value == 0 and what == "rows_per_warp"):
            raise LayoutError(f"ldmatrix: {what}={value}: use a multiple of {MATRIX_ROWS}")
    if first_row + rows_per_warp > tile.rows:
        raise LayoutError(
            f"ldmatrix: rows {first_row} to {first_row + rows_per_warp - 1} of a tile of {tile.rows}: "
            f"use rows_per_warp <= {tile.rows - first_row}"
        )
    if not 0 <= k_step_idx < tile.k // k_step:
        raise LayoutError(
            f"ldmatrix: k-step {k_step_idx} of a tile with k={tile.k}, that is {tile.k // k_step} "
            f"full k-steps of {k_step}: use an index from 0 on below that"
        )
    row_block, k_half = np.divmod(np.arange(rows_per_warp // MATRIX_ROWS * 2), 2)
    first_rows = first_row + MATRIX_ROWS * row_block
    if tile.is_k_major:
        return _matrix_access(tile, "ldmatrix", first_rows, K_STEP_BYTES * k_step_idx + MATRIX_ROW_BYTES * k_half)
    first_ks = k_step * k_step_idx + MATRIX_ROWS * k_half
    return _matrix_access(tile, "ldmatrix", first_ks, first_rows * tile.dtype.num_bytes)


def stmatrix_writes(tile_m: int, tile_n: int, out_dtype: DType, swizzle: str = "128B") -> AccessPattern:
    """Access pattern of all warps that store a row-major output tile to shared memory by stmatrix x4.

    Each instruction stores 16 x 16 elements. With a swizzle, the tile consists of panels, as a TMA store reads them.

    >>> stmatrix_writes(64, 64, DType("bf16", 16, "float")).num_wavefronts * 128 == 64 * 64 * 2
    True

    Raises:
        LayoutError: elements that are not of 16 bits, or a tile that 16 x 16 does not divide.
    """
    if out_dtype.bits != 16:
        raise LayoutError(f"stmatrix: {out_dtype.name} has {out_dtype.bits} bits: use 16-bit elements, or st_shared")
    for what, size in (("tile_m", tile_m), ("tile_n", tile_n)):
        if size < 1 or size % 16:
            close = nearest_multiple(size, 16)
            raise LayoutError(f"stmatrix: {what}={size} is no multiple of 16: use {close}")
    tile = OperandTile(rows=tile_m, k=tile_n, dtype=out_dtype, is_k_major=True, swizzle=swizzle)
    block, within = np.divmod(np.arange(tile_m * tile_n // MATRIX_ROWS**2), 4)
    block_m, block_n = np.divmod(block, tile_n // 16)
    first_rows = 16 * block_m + MATRIX_ROWS * (within % 2)
    return _matrix_access(tile, "stmatrix", first_rows, MATRIX_ROW_BYTES * (2 * block_n + within // 2))


def _matrix_access(
    tile: OperandTile, verb: Literal["ldmatrix", "stmatrix"], first_strided: NDArray[np.int64],
    offset_bytes: NDArray[np.int64],
) -> AccessPattern:
    """Access pattern of an even number of 8 x 16-byte matrices: x4 instructions, and one x2 for two that remain."""
    rows = tile.byte_offsets(first_strided[:, None] + np.arange(MATRIX_ROWS), offset_bytes[:, None])
    num_quads, num_left = divmod(len(rows), 4)
    num_wavefronts = int(wavefronts(f"{verb}_x4", rows[: 4 * num_quads].reshape(-1, WARP_SIZE)).sum())
    if num_left:
        last = np.zeros(WARP_SIZE, dtype=np.int64)
        last[: 2 * MATRIX_ROWS] = rows[4 * num_quads :].reshape(-1)
        num_wavefronts += int(wavefronts(f"{verb}_x2", last))
    return AccessPattern(
        num_requests=num_quads + (num_left > 0), num_wavefronts=num_wavefronts,
        num_bytes=len(rows) * MATRIX_ROWS * MATRIX_ROW_BYTES,
    )


# For each kind: divisors of the tile's m and n, and the rows and columns that one request writes.
_STORE_SHAPES: Mapping[str, tuple[int, int, int, int]] = MappingProxyType(
    {"mma_sync": (16, 8, 8, 8), "wgmma": (WGMMA_M, 8, 8, 8), "fma": (4, 32, 4, 32)}
)


def epilogue_store(tile_m: int, tile_n: int, out_bytes: int, kind: MmaKind) -> AccessPattern:
    """Access pattern of an epilogue that stores a tile of accumulators to row-major global memory, without shared memory.

    Each row starts on a 128-byte line.

    * mma_sync, wgmma: the four lanes of a quad hold eight adjacent columns of a row, two each. Eight quads hold eight rows.
      A request therefore writes 8 x 8 elements: one sector a row, half of it with 16-bit elements.
    * fma: eight lanes hold adjacent columns in each of four rows. Each lane writes a vector of four columns.

    ``num_wavefronts`` is 0, that is, unknown: the data-stage rule is validated for loads that hit in L1, not for stores.

    Ignores: that L2 combines the halves of a sector that two requests write.
    Source: PTX ISA, fragment layouts of ``mma.m16n8`` and ``wgmma.m64``; for fma a choice: that of a coalesced kernel.

    >>> epilogue_store(16, 8, 2, "mma_sync")
    AccessPattern(num_requests=2, num_sectors=16, num_lines=16, num_wavefronts=0, num_bytes=256)

    Raises:
        KernelError: an output size other than 1, 2 or 4 bytes, or a tile that the atom does not divide.
    """
    if out_bytes not in (1, 2, 4):
        raise KernelError(f"epilogue: outputs of {out_bytes} bytes: use 1, 2 or 4")
    if kind not in _STORE_SHAPES:
        raise KernelError(f"epilogue: kind {kind!r} is unknown; {nearest(kind, _STORE_SHAPES)}")
    atom_m, atom_n, rows, columns = _STORE_SHAPES[kind]
    for what, size, unit in (("tile_m", tile_m, atom_m), ("tile_n", tile_n, atom_n)):
        if size < 1 or size % unit:
            close = nearest_multiple(size, unit)
            raise KernelError(f"epilogue: {what}={size} is no multiple of {kind}'s {unit}: use {close}")
    lane_row, lane_column = np.divmod(np.arange(WARP_SIZE), WARP_SIZE // rows)
    vector = columns * rows // WARP_SIZE
    pitch_bytes = math.ceil(tile_n * out_bytes / LINE_BYTES) * LINE_BYTES
    first_column = columns * np.arange(tile_n // columns)[:, None]
    addresses = lane_row * pitch_bytes + (first_column + vector * lane_column) * out_bytes
    stored = replace(global_access(addresses, vector * out_bytes), num_wavefronts=0)
    return stored.scaled(tile_m // rows)
