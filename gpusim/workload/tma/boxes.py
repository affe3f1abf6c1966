"""TMA boxes, and the tensor map that describes them to the driver.

In: extents, strides, a type, a swizzle. Out: :class:`TmaBox`, :class:`TensorMap`, access patterns. ``make_tma_copy``
derives both from layouts.

Models: tiled tensor maps of one to five dimensions, with the limits in the driver's documentation; the addresses of a box's
rows in shared memory.
Ignores: the documented relation between one stride and the next (CUTLASS passes strides of 0, and others that violate it);
im2col maps. Also: packed types of 4 and 6 bits; swizzles of chunks of 32 and 64 bytes (CUDA 12.8).
Source: CUDA driver API, ``cuTensorMapEncodeTiled`` as documented in ``cuda.h`` 13.0 (not tested with a driver); PTX ISA,
``cp.async.bulk.tensor``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from gpusim.errors import LayoutError, nearest, nearest_multiple
from gpusim.layout import int_tuple as it
from gpusim.layout.int_tuple import show
from gpusim.layout.swizzle import SWIZZLE_MODES, span_bytes, swizzle_mode
from gpusim.units import LINE_BYTES, SECTOR_BYTES
from gpusim.workload.dtypes import DType
from gpusim.workload.smem.access import AccessPattern
from gpusim.workload.smem.smem_ops import BANK_BYTES, MATRIX_ROW_BYTES

MAX_BOX_ELEMENTS = 256
MAX_BOX_RANK = 5
"""Limit on the dimensions of a TMA box, each of at most 256 elements. Source: CUDA driver API,
``cuTensorMapEncodeTiled``."""

MAX_ELEMENT_STRIDE = 8
MAX_GLOBAL_ELEMENTS = 1 << 32
GLOBAL_STRIDE_REACH_BYTES = 1 << 40
"""Upper limit of a tensor map's strides in bytes; a dimension has at most 2^32 elements. Source: CUDA driver API,
``cuTensorMapEncodeTiled``."""

SMEM_BOX_ALIGNMENT_BYTES = 128
"""Alignment in bytes of a box without swizzle in shared memory. Source: PTX ISA, ``cp.async.bulk.tensor``."""

_DATA_TYPES: Mapping[str, int] = MappingProxyType(
    {"fp8": 0, "int8": 0, "int32": 3, "fp16": 6, "fp32": 7, "fp64": 8, "bf16": 9, "tf32": 11}
)
_INTERLEAVES: Mapping[str, int] = MappingProxyType({"none": 0, "16B": 1, "32B": 2})
_SWIZZLES: Mapping[str, int] = MappingProxyType({"none": 0, "32B": 1, "64B": 2, "128B": 3})
_L2_PROMOTIONS: Mapping[str, int] = MappingProxyType({"none": 0, "64B": 1, "128B": 2, "256B": 3})
_OOB_FILLS: Mapping[str, int] = MappingProxyType({"zero": 0, "nan": 1})
# Values of the driver's enumerations, in cuda.h.


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaBox:
    """The box that one TMA instruction copies: an inner row and up to four outer dimensions.

    Args:
        inner_elements: elements of the contiguous dimension.
        outer: elements of the other dimensions, from the innermost to the outermost; empty for a single row.
        dtype: the element type.
        swizzle: a name in ``SWIZZLE_MODES``.

    Source: CUDA driver API, ``cuTensorMapEncodeTiled``.

    Raises:
        LayoutError: a box that the hardware refuses.
    """

    inner_elements: int
    outer: tuple[int, ...]
    dtype: DType
    swizzle: str = "none"

    def __post_init__(self) -> None:
        span = span_bytes(self.swizzle)
        if 1 + len(self.outer) > MAX_BOX_RANK:
            raise LayoutError(f"TMA box: {1 + len(self.outer)} dimensions: use at most {MAX_BOX_RANK}")
        for extent in (self.inner_elements, *self.outer):
            if not 1 <= extent <= MAX_BOX_ELEMENTS:
                raise LayoutError(f"TMA box: a dimension of {extent} elements: use 1 to {MAX_BOX_ELEMENTS}")
        if self.inner_bytes % MATRIX_ROW_BYTES:
            close = nearest_multiple(self.inner_bytes, MATRIX_ROW_BYTES)
            raise LayoutError(
                f"TMA box: an inner row of {self.inner_bytes} bytes is no multiple of {MATRIX_ROW_BYTES}: "
                f"use {close // self.dtype.num_bytes} elements of {self.dtype.name}"
            )
        if swizzle_mode(self.swizzle).num_bits and self.inner_bytes > span:
            raise LayoutError(
                f"TMA box: an inner row of {self.inner_bytes} bytes is wider than swizzle {self.swizzle!r}: "
                f"use at most {span // self.dtype.num_bytes} elements of {self.dtype.name}"
            )

    @property
    def inner_bytes(self) -> int:
        """Bytes of one row."""
        return self.inner_elements * self.dtype.num_bytes

    @property
    def num_rows(self) -> int:
        """Number of rows of ``inner_elements``: the product of the outer dimensions."""
        return math.prod(self.outer)

    @property
    def num_bytes(self) -> int:
        """Bytes of the box, zero-filled ones included: the transaction count of its mbarrier."""
        return self.num_rows * self.inner_bytes


def outside_rows(boxes: Sequence[TmaBox], num_rows: int, num_elements: int) -> tuple[int, int]:
    """Box rows outside of the tensor, and those of them in boxes that are completely outside.

    Equal ``boxes`` divide a tile along both modes. ``num_rows`` of its rows, and ``num_elements`` of each row, are inside.

    >>> from gpusim.workload.dtypes import BF16
    >>> box = TmaBox(inner_elements=64, outer=(160,), dtype=BF16, swizzle="128B")
    >>> outside_rows((box, box), 320, 64), outside_rows((box, box), 200, 64), outside_rows((box, box), 100, 64)
    ((0, 0), (120, 0), (220, 160))
    """
    first = boxes[0]
    panels = -(-num_elements // first.inner_elements) if num_rows else 0
    inside = panels * -(-num_rows // first.num_rows)  # boxes
    of_all = sum(box.num_rows for box in boxes)
    return of_all - panels * num_rows, of_all - inside * first.num_rows


def tma_fill(boxes: Iterable[TmaBox]) -> AccessPattern:
    """Access pattern of loading ``boxes``: one request each, the sectors and lines of each row, and writes to shared memory.

    Each row starts at a multiple of its width.

    >>> tma_fill([TmaBox(inner_elements=64, outer=(128,), dtype=DType("bf16", 16, "float"), swizzle="128B")])
    AccessPattern(num_requests=1, num_sectors=512, num_lines=128, num_wavefronts=128, num_bytes=16384)

    Raises:
        LayoutError: see ``tma_wavefronts``.
    """
    total = AccessPattern()
    for box in boxes:
        total += AccessPattern(
            num_requests=1, num_sectors=box.num_rows * math.ceil(box.inner_bytes / SECTOR_BYTES),
            num_lines=box.num_rows * math.ceil(box.inner_bytes / LINE_BYTES), num_wavefronts=tma_wavefronts(box),
            num_bytes=box.num_bytes,
        )
    return total


def tma_bank_writes(box: TmaBox) -> int:
    """4-byte words that one box writes to shared memory, as ``l1tex__data_bank_writes`` counts them.

    Models: one write for each word, for any shape, type and swizzle; the gaps of padded rows are not written.
    Ignores: elements outside of the tensor.
    Source: measured: H200, validation/measured/h200_sxm/tma_writes.csv, every row exact.

    >>> tma_bank_writes(TmaBox(inner_elements=64, outer=(128,), dtype=DType("bf16", 16, "float"), swizzle="128B"))
    4096
    """
    return box.num_bytes // BANK_BYTES


def row_pitch_bytes(box: TmaBox) -> int:
    """Bytes from row to row of a box in shared memory. Rows narrower than the swizzle's span are padded to it.

    Source: measured: H200, validation/measured/h200_sxm/tma_writes.csv: every byte of every box checked.

    >>> row_pitch_bytes(TmaBox(inner_elements=8, outer=(64,), dtype=DType("bf16", 16, "float"), swizzle="64B"))
    64
    """
    return box.inner_bytes if box.swizzle == "none" else max(box.inner_bytes, span_bytes(box.swizzle))


def tma_wavefronts(box: TmaBox, swizzle: str | None = None) -> int:
    """Shared-memory wavefronts of the writes of one box.

    Models: each row is written separately, in one wavefront for each 128-byte line that it touches. Half a sector at the end
    of a row takes a separate wavefront. A swizzle moves 16-byte chunks of a row within lines, at no cost.
    Ignores: whether the port or the unit that generates the rows takes the cycle. Also: a tenth more for packed rows of 80
    bytes, and a twelfth more for boxes of three dimensions.
    Source: measured: H200, validation/measured/h200_sxm/tma_writes.csv: the rate at which a full queue accepts narrow boxes,
    exact to the cycle. The counter of these writes, ``l1tex__data_bank_writes``, counts words (``tma_bank_writes``), not
    wavefronts.

    >>> tma_wavefronts(TmaBox(inner_elements=64, outer=(128,), dtype=DType("bf16", 16, "float"), swizzle="128B"))
    128
    >>> tma_wavefronts(TmaBox(inner_elements=48, outer=(128,), dtype=DType("bf16", 16, "float")))
    192

    Args:
        box: the box that is written.
        swizzle: a name in ``SWIZZLE_MODES`` instead of the box's swizzle.

    Raises:
        LayoutError: a row wider than the swizzle's span.
    """
    placed = box if swizzle is None else replace(box, swizzle=swizzle)
    starts = row_pitch_bytes(placed) * np.arange(placed.num_rows)
    whole = max(placed.inner_bytes // SECTOR_BYTES * SECTOR_BYTES, MATRIX_ROW_BYTES)
    lines = (starts + whole - 1) // LINE_BYTES - starts // LINE_BYTES + 1
    return int(lines.sum()) + placed.num_rows * (placed.inner_bytes > whole)


def check_full_rows(box: TmaBox) -> None:
    """Refuse a swizzled box whose rows are narrower than the swizzle's span: padded rows do not form a packed tile.

    Raises:
        LayoutError: rows narrower than the span.
    """
    span = span_bytes(box.swizzle)
    if swizzle_mode(box.swizzle).num_bits and box.inner_bytes != span:
        fitting = [mode for mode in SWIZZLE_MODES if box.inner_bytes in (span_bytes(mode), 0)]
        raise LayoutError(
            f"TMA box: rows of {box.inner_bytes} bytes are narrower than swizzle {box.swizzle!r} and land {span} bytes "
            f"apart, with gaps that the tile does not have: use {span // box.dtype.num_bytes} elements of {box.dtype.name}"
            + (f", or swizzle {fitting[0]!r}" if fitting else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """Arguments of ``cuTensorMapEncodeTiled``, in its order. Dimensions are listed from the contiguous one outwards.

    >>> from gpusim.workload.dtypes import BF16
    >>> TensorMap(
    ...     dtype=BF16, global_address=4096, global_dim=(512, 1024), global_strides_bytes=(1024,), box_dim=(64, 128),
    ...     swizzle="128B",
    ... ).arguments
    (9, 2, 4096, (512, 1024), (1024,), (64, 128), (1, 1), 0, 3, 2, 0)

    Args:
        dtype: the element type; fp8 and int8 are encoded as bytes.
        global_address: start of the tensor, in bytes; a multiple of 16 (32 for interleave "32B").
        global_dim: elements of each dimension.
        global_strides_bytes: strides in bytes of all dimensions except the contiguous one; multiples of 16 (32 for
            interleave "32B") below 2^40. 0 is valid: CUTLASS passes it for a batch of one.
        box_dim: elements that one instruction traverses along each dimension.
        element_strides: n takes every n-th element (1 to 8), so ``ceil(box_dim / n)`` elements are written to shared memory.
            Without interleave the first one is ignored. None: 1 everywhere.
        interleave: "none", or channels in slices of "16B" or "32B".
        swizzle: a name in ``SWIZZLE_MODES``.
        l2_promotion: bytes that L2 fetches on a miss: "none", "64B", "128B", "256B".
        oob_fill: value of elements outside of the tensor: "zero", or a special "nan" for floats.

    Source: CUDA driver API, ``cuTensorMapEncodeTiled``.

    Raises:
        LayoutError: arguments for which the driver is documented to return ``CUDA_ERROR_INVALID_VALUE``.
    """

    dtype: DType
    global_address: int = 0
    global_dim: tuple[int, ...]
    global_strides_bytes: tuple[int, ...]
    box_dim: tuple[int, ...]
    element_strides: tuple[int, ...] | None = None
    interleave: str = "none"
    swizzle: str = "none"
    l2_promotion: str = "128B"
    oob_fill: str = "zero"

    def __post_init__(self) -> None:
        if self.element_strides is None:
            object.__setattr__(self, "element_strides", (1,) * self.rank)
        for what, value, known in (
            ("data type", self.dtype.name, _DATA_TYPES),
            ("interleave", self.interleave, _INTERLEAVES),
            ("swizzle", self.swizzle, _SWIZZLES),
            ("L2 promotion", self.l2_promotion, _L2_PROMOTIONS),
            ("out-of-bounds fill", self.oob_fill, _OOB_FILLS),
        ):
            if value not in known:
                raise LayoutError(f"tensor map: {what} {value!r} is unknown; {nearest(value, known)}")
        self._check_integers()
        self._check_rank()
        self._check_tensor()
        self._check_box()
        if self.oob_fill == "nan" and (self.dtype.kind != "float" or self.dtype.bits == 8):
            raise LayoutError(f"tensor map: {self.dtype.name} goes as integers, which have no nan: use oob_fill 'zero'")

    def _check_integers(self) -> None:
        for what in ("global_address", "global_dim", "global_strides_bytes", "box_dim", "element_strides"):
            value = getattr(self, what)
            for number in value if isinstance(value, tuple) else (value,):
                if isinstance(number, bool) or not isinstance(number, int):
                    raise LayoutError(f"tensor map: {what} has {number!r}: use integers")

    def _check_rank(self) -> None:
        least = 1 if self.interleave == "none" else 3
        if not least <= self.rank <= MAX_BOX_RANK:
            raise LayoutError(
                f"tensor map: {self.rank} dimensions with interleave {self.interleave!r}: use {least} to {MAX_BOX_RANK}"
            )
        for what, values, wanted in (
            ("global_strides_bytes", self.global_strides_bytes, self.rank - 1),
            ("box_dim", self.box_dim, self.rank),
            ("element_strides", self._steps, self.rank),
        ):
            if len(values) != wanted:
                raise LayoutError(f"tensor map: {what} has {len(values)} numbers for {self.rank} dimensions: use {wanted}")

    def _check_tensor(self) -> None:
        unit = 32 if self.interleave == "32B" else MATRIX_ROW_BYTES
        if self.global_address % unit or not 0 <= self.global_address < 1 << 64:
            raise LayoutError(f"tensor map: the tensor starts at {self.global_address}: use a multiple of {unit}")
        for extent in self.global_dim:
            if not 1 <= extent <= MAX_GLOBAL_ELEMENTS:
                raise LayoutError(f"tensor map: a dimension of {extent} elements: use 1 to 2^32")
        for stride in self.global_strides_bytes:
            if stride % unit or not 0 <= stride < GLOBAL_STRIDE_REACH_BYTES:
                raise LayoutError(
                    f"tensor map: a stride of {stride} bytes: use a multiple of {unit} below 2^40: pad the tensor's rows"
                )

    def _check_box(self) -> None:
        for extent in self.box_dim:
            if not 1 <= extent <= MAX_BOX_ELEMENTS:
                raise LayoutError(f"tensor map: a box of {show(self.box_dim)}: use 1 to {MAX_BOX_ELEMENTS} elements each")
        for step in self._steps:
            if not 1 <= step <= MAX_ELEMENT_STRIDE:
                raise LayoutError(f"tensor map: an element stride of {step}: use 1 to {MAX_ELEMENT_STRIDE}")
        if self.interleave == "32B" and self.swizzle != "32B":
            raise LayoutError(f"tensor map: interleave '32B' with swizzle {self.swizzle!r}: use swizzle '32B'")
        if self.interleave == "none":
            self._plain_box()

    @property
    def _steps(self) -> tuple[int, ...]:
        return cast("tuple[int, ...]", self.element_strides)

    @property
    def rank(self) -> int:
        """Number of dimensions of the tensor and of the box."""
        return len(self.global_dim)

    @property
    def box(self) -> TmaBox:
        """The box that one instruction writes to shared memory, with element strides applied.

        Raises:
            LayoutError: an interleaved map, whose rows are not plain rows.
        """
        if self.interleave != "none":
            raise LayoutError(f"tensor map: interleave {self.interleave!r} brings no plain box: use interleave 'none'")
        return self._plain_box()

    def _plain_box(self) -> TmaBox:
        outer = zip(self.box_dim[1:], self._steps[1:], strict=True)
        return TmaBox(
            inner_elements=self.box_dim[0], outer=tuple(it.ceil_div(extent, step) for extent, step in outer),
            dtype=self.dtype, swizzle=self.swizzle,
        )

    @property
    def smem_alignment_bytes(self) -> int:
        """Alignment of a tile's start in shared memory, in bytes: 128, or the swizzle's period.

        The hardware requires 128. It swizzles by address. A tile that starts within a period is therefore permuted
        differently from a layout whose swizzle counts from the tile's start.
        """
        return max(SMEM_BOX_ALIGNMENT_BYTES, swizzle_mode(self.swizzle).period)

    def check_smem_address(self, address_bytes: int) -> None:
        """Refuse a shared-memory address that TMA does not accept, or at which the swizzle pattern differs.

        Raises:
            LayoutError: an address that is no multiple of ``smem_alignment_bytes``.
        """
        if address_bytes % self.smem_alignment_bytes or address_bytes < 0:
            raise LayoutError(
                f"tensor map: a box with swizzle {self.swizzle!r} at shared-memory address {address_bytes}: use a multiple "
                f"of {self.smem_alignment_bytes}"
            )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """Arguments of the driver's function after the map itself, with enumerations as numbers.

        (data type, rank, address, dimensions, strides, box, element strides, interleave, swizzle, promotion, fill)
        """
        return (
            _DATA_TYPES[self.dtype.name],
            self.rank,
            self.global_address,
            self.global_dim,
            self.global_strides_bytes,
            self.box_dim,
            self._steps,
            _INTERLEAVES[self.interleave],
            _SWIZZLES[self.swizzle],
            _L2_PROMOTIONS[self.l2_promotion],
            _OOB_FILLS[self.oob_fill],
        )
