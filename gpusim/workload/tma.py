"""TMA: boxes, the tensor map that describes them to the driver, and how a tile of shared memory becomes boxes.

In: layouts of tensors in global memory and of tiles in shared memory. Out: :class:`TmaBox`, :class:`TensorMap`,
:class:`TmaCopy`, access patterns.

Models: tiled tensor maps of one to five dimensions with the limits that the driver's documentation states, but not its
relation between one stride and the next (CUTLASS passes strides of 0, and others that break it); where the rows
of a box land in shared memory; which boxes CuTe's ``make_tma_copy`` takes for a tile.
Ignores: im2col maps; packed types of 4 and 6 bits; swizzles of chunks of 32 and 64 bytes (CUDA 12.8); boxes narrower than
their swizzle's span, of which no source says whether their rows are padded; the cost of narrow rows in the TMA unit.
Source: CUDA driver API, ``cuTensorMapEncodeTiled`` as ``cuda.h`` 13.0 documents it (no driver has been asked); PTX ISA,
``cp.async.bulk.tensor``; CUTLASS ``cute/atom/copy_traits_sm90_tma.hpp``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from gpusim.errors import LayoutError, nearest, nearest_multiple
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import coalesce, composition, right_inverse
from gpusim.layout.int_tuple import IntTuple, ScaledBasis, show
from gpusim.layout.layout import Layout, flatten, make_identity_layout
from gpusim.layout.swizzle import SWIZZLE_MODES, ByteLayout, ComposedLayout, mode_of, span_bytes, swizzle_mode
from gpusim.units import LINE_BYTES, SECTOR_BYTES, WARP_SIZE
from gpusim.workload.access import MATRIX_ROW_BYTES, AccessPattern, wavefronts
from gpusim.workload.dtypes import DType

MAX_BOX_ELEMENTS = 256
MAX_BOX_RANK = 5
"""Limits of a TMA box. Source: CUDA driver API, ``cuTensorMapEncodeTiled``."""

MAX_ELEMENT_STRIDE = 8
MAX_GLOBAL_ELEMENTS = 1 << 32
GLOBAL_STRIDE_REACH_BYTES = 1 << 40
"""Limits of a tensor map: elements of a dimension, and what strides stay below. Source: as above."""

SMEM_BOX_ALIGNMENT_BYTES = 128
"""Where a box without swizzle may start in shared memory. Source: PTX ISA, ``cp.async.bulk.tensor``."""

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
    """What one TMA instruction moves: an inner row and up to four outer dimensions, as the hardware takes it.

    Args:
        inner_elements: elements of the contiguous dimension.
        outer: elements of the other dimensions, from inside out; empty for a single row.
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
        """Rows of ``inner_elements``: the product of the outer dimensions."""
        return math.prod(self.outer)

    @property
    def num_bytes(self) -> int:
        """Bytes that the box brings, and that its mbarrier must expect (zero-filled ones included)."""
        return self.num_rows * self.inner_bytes


def tma_fill(boxes: Iterable[TmaBox]) -> AccessPattern:
    """What loading ``boxes`` asks for: one request each, sectors and lines row by row, writes into smem.

    Rows start on a multiple of their width. Ignores: the cost of narrow rows in the TMA unit itself (see
    ``tma_wavefronts``).

    >>> tma_fill([TmaBox(inner_elements=64, outer=(128,), dtype=DType("bf16", 16, "float"), swizzle="128B")])
    AccessPattern(num_requests=1, num_sectors=512, num_lines=128, num_wavefronts=128, num_bytes=16384)

    Raises:
        LayoutError: as ``tma_wavefronts``.
    """
    total = AccessPattern()
    for box in boxes:
        total += AccessPattern(
            num_requests=1,
            num_sectors=box.num_rows * math.ceil(box.inner_bytes / SECTOR_BYTES),
            num_lines=box.num_rows * math.ceil(box.inner_bytes / LINE_BYTES),
            num_wavefronts=tma_wavefronts(box),
            num_bytes=box.num_bytes,
        )
    return total


def tma_wavefronts(box: TmaBox, swizzle: str | None = None) -> int:
    """Shared-memory wavefronts in which one box is written.

    Models: rows lie one after the other, each 16-byte chunk where the swizzle puts it; eight consecutive chunks are
    written together, by the bank rule. So a box costs its bytes over 128.
    Ignores: what narrow rows cost beyond that: no counter of these writes has been read yet.
    Source: the place of chunks is that of the driver's swizzle modes (CUTLASS ``mma_traits_sm90_gmma.hpp``); that
    consecutive bytes fill wavefronts is inferred from boxes with rows of 128 bytes, which reach the rate of plain bulk
    copies. Rows of 16 bytes do not: an H800 took about 3115 cycles for 1024 of them against 1424 for a plain copy of as
    many bytes (raw logs of HPMLL/NVIDIA-Hopper-Benchmark @ded6f57), about 3 a row.

    >>> tma_wavefronts(TmaBox(inner_elements=64, outer=(128,), dtype=DType("bf16", 16, "float"), swizzle="128B"))
    128

    Args:
        box: what is written.
        swizzle: a name in ``SWIZZLE_MODES`` instead of the box's own.

    Raises:
        LayoutError: a row narrower than the swizzle's span, which may or may not be padded, or wider.
    """
    placed = box if swizzle is None else replace(box, swizzle=swizzle)
    _check_full_rows(placed)
    num_chunks = placed.num_bytes // MATRIX_ROW_BYTES
    addresses = MATRIX_ROW_BYTES * np.arange(math.ceil(num_chunks / WARP_SIZE) * WARP_SIZE).reshape(-1, WARP_SIZE)
    landed = swizzle_mode(placed.swizzle)(addresses)
    return int(wavefronts("st_shared_b128", landed, addresses < placed.num_bytes).sum())


def _check_full_rows(box: TmaBox) -> None:
    span = span_bytes(box.swizzle)
    if swizzle_mode(box.swizzle).num_bits and box.inner_bytes != span:
        fitting = [mode for mode in SWIZZLE_MODES if box.inner_bytes in (span_bytes(mode), 0)]
        raise LayoutError(
            f"TMA box: rows of {box.inner_bytes} bytes are narrower than swizzle {box.swizzle!r}, and no source says "
            f"whether they are padded to its {span}: use {span // box.dtype.num_bytes} elements of {box.dtype.name}"
            + (f", or swizzle {fitting[0]!r}" if fitting else "")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMap:
    """The arguments of ``cuTensorMapEncodeTiled``, in its order; all dimensions from the contiguous one outwards.

    >>> from gpusim.workload.dtypes import BF16
    >>> TensorMap(
    ...     dtype=BF16, global_address=4096, global_dim=(512, 1024), global_strides_bytes=(1024,), box_dim=(64, 128),
    ...     swizzle="128B",
    ... ).arguments
    (9, 2, 4096, (512, 1024), (1024,), (64, 128), (1, 1), 0, 3, 2, 0)

    Args:
        dtype: the element type; fp8 and int8 go as bytes.
        global_address: where the tensor starts; a multiple of 16 (32 for interleave "32B").
        global_dim: elements of each dimension.
        global_strides_bytes: from one index to the next, of all dimensions but the contiguous one; multiples of 16 (32 for
            interleave "32B") below 2^40. 0 is taken: CUTLASS passes it for a batch of one.
        box_dim: elements that one instruction walks along each dimension.
        element_strides: n takes every n-th of these (1 to 8), so that ``ceil(box_dim / n)`` land in shared memory. Without
            interleave the first is not looked at. None for 1 everywhere.
        interleave: "none", or channels in slices of "16B" or "32B".
        swizzle: a name in ``SWIZZLE_MODES``.
        l2_promotion: what L2 fetches for a miss: "none", "64B", "128B", "256B".
        oob_fill: what elements outside of the tensor become: "zero", or a special "nan" for floats.

    Source: CUDA driver API, ``cuTensorMapEncodeTiled``.

    Raises:
        LayoutError: where the documentation has the driver answer ``CUDA_ERROR_INVALID_VALUE``.
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
        """Dimensions of the tensor, and of the box."""
        return len(self.global_dim)

    @property
    def box(self) -> TmaBox:
        """What one instruction brings into shared memory, element strides applied.

        Raises:
            LayoutError: interleaved maps, whose rows are not plain ones.
        """
        if self.interleave != "none":
            raise LayoutError(f"tensor map: interleave {self.interleave!r} brings no plain box: use interleave 'none'")
        return self._plain_box()

    def _plain_box(self) -> TmaBox:
        outer = zip(self.box_dim[1:], self._steps[1:], strict=True)
        return TmaBox(
            inner_elements=self.box_dim[0],
            outer=tuple(it.ceil_div(extent, step) for extent, step in outer),
            dtype=self.dtype,
            swizzle=self.swizzle,
        )

    @property
    def smem_alignment_bytes(self) -> int:
        """What a tile's start in shared memory is a multiple of: 128, or the swizzle's repeat.

        The hardware itself wants 128; it swizzles by address, so a tile that starts in the midst of the repeat lands
        permuted otherwise than a layout whose swizzle counts from its start says.
        """
        return max(SMEM_BOX_ALIGNMENT_BYTES, swizzle_mode(self.swizzle).period)

    def check_smem_address(self, address_bytes: int) -> None:
        """Refuse a start in shared memory that TMA does not take, or at which the swizzle is another.

        Raises:
            LayoutError: not a multiple of ``smem_alignment_bytes``.
        """
        if address_bytes % self.smem_alignment_bytes or address_bytes < 0:
            raise LayoutError(
                f"tensor map: a box with swizzle {self.swizzle!r} at shared-memory address {address_bytes}: use a multiple "
                f"of {self.smem_alignment_bytes}"
            )

    @property
    def arguments(self) -> tuple[Any, ...]:
        """As the driver takes them after the map itself, enumerations as numbers.

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


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaCopy:
    """A tile of shared memory as instructions of one tensor map.

    Instruction i brings ``basis.size`` elements to element ``i * basis.size`` of the tile before the swizzle. Multicast
    splits each among ``num_multicast`` CTAs, in order.

    Args:
        tensor_map: what the driver is given; its box is a CTA's slice.
        basis: element of an instruction to coordinate of the tensor, relative to ``starts``; one mode for each dimension
            of the map. CuTe's ``tma_gbasis``.
        rest: number of an instruction to the coordinate, within the tile, at which it starts.
        num_multicast: CTAs among which each instruction is split.
    """

    tensor_map: TensorMap
    basis: Layout
    rest: Layout
    num_multicast: int

    @property
    def num_instructions(self) -> int:
        """Instructions that bring the whole tile, counted once for all CTAs of a multicast."""
        return self.rest.size

    @property
    def num_bytes(self) -> int:
        """Bytes of the whole tile: what an mbarrier in each CTA that receives it must expect."""
        return self.num_instructions * self.num_multicast * self.tensor_map.box.num_bytes


def tensor_map(
    tensor: Layout,
    dtype: DType,
    smem: Layout | ComposedLayout | ByteLayout | tuple[int, ...],
    *,
    swizzle: str | None = None,
    tiler: IntTuple | None = None,
    num_multicast: int = 1,
    element_strides: tuple[int, ...] | None = None,
    global_address: int = 0,
    l2_promotion: str = "128B",
    oob_fill: str = "zero",
) -> TensorMap:
    """The tensor map for tiles of ``tensor`` in shared memory.

    >>> from gpusim.workload.dtypes import BF16
    >>> row_major = Layout((1024, 512), (512, 1))
    >>> tensor_map(row_major, BF16, (128, 64), swizzle="128B").box_dim
    (64, 128)

    Args:
        tensor: in global memory, in elements.
        dtype: the element type of both sides.
        smem: the tile's layout in shared memory, see ``make_tma_copy``; or a box, one extent for each mode of
            ``tensor``. A box's dimensions go from the smallest stride of ``tensor`` outwards.
        swizzle: of a box; "none" unless given. A layout has its own.
        tiler: of a layout, as ``make_tma_copy`` takes it.
        num_multicast: likewise.
        element_strides: of a box, in the order of its extents.
        global_address: see :class:`TensorMap`.
        l2_promotion: likewise.
        oob_fill: likewise.

    Raises:
        LayoutError: as :class:`TensorMap` and ``make_tma_copy``; a box's argument beside a layout, or the other way round.
    """
    if not isinstance(smem, tuple):
        if swizzle is not None or element_strides is not None:
            raise LayoutError(f"tensor map: {smem} says swizzle and strides itself: leave swizzle and element_strides out")
        copy = make_tma_copy(
            tensor, dtype, smem, tiler=tiler, num_multicast=num_multicast,
            global_address=global_address, l2_promotion=l2_promotion, oob_fill=oob_fill,
        )
        return copy.tensor_map
    if tiler is not None or num_multicast != 1:
        raise LayoutError(f"tensor map: a box of {show(smem)} is one CTA's already: leave tiler and num_multicast out")
    modes = tensor.modes
    if len(smem) != len(modes):
        raise LayoutError(f"tensor map: a box of {show(smem)} for {tensor}: use {len(modes)} extents")
    if element_strides is not None and len(element_strides) != len(modes):
        raise LayoutError(f"tensor map: element strides {show(element_strides)} for {tensor}: use {len(modes)}")
    order = sorted(range(len(modes)), key=lambda mode: modes[mode][1])
    if modes[order[0]][1] != 1:
        raise LayoutError(f"tensor map: {tensor} has no contiguous mode: use one of stride 1")
    return TensorMap(
        dtype=dtype,
        global_dim=tuple(modes[mode][0] for mode in order),
        global_strides_bytes=tuple(modes[mode][1] * dtype.num_bytes for mode in order[1:]),
        box_dim=tuple(smem[mode] for mode in order),
        element_strides=None if element_strides is None else tuple(element_strides[mode] for mode in order),
        swizzle=swizzle or "none",
        global_address=global_address,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
    )


def make_tma_copy(
    tensor: Layout,
    dtype: DType,
    smem: Layout | ComposedLayout | ByteLayout,
    *,
    tiler: IntTuple | None = None,
    num_multicast: int = 1,
    global_address: int = 0,
    l2_promotion: str = "128B",
    oob_fill: str = "zero",
) -> TmaCopy:
    """The boxes that bring a tile of ``tensor`` into the layout ``smem``: as large as one instruction can make them.

    What lies contiguous in shared memory is followed through the tensor's modes for as long as these are walked in steps
    of 1; that is the box, and the swizzle is the layout's. A K-major tile of wgmma is one box for each swizzle span along
    k, an MN-major one for each span along m or n and, unless the repeats go along k first, for each 8 of k.

    >>> from gpusim.layout import tile_to_shape
    >>> from gpusim.workload.dtypes import BF16
    >>> from gpusim.workload.gmma import gmma_atom
    >>> smem = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 128))
    >>> copy = make_tma_copy(Layout((1024, 512), (512, 1)), BF16, smem)
    >>> copy.tensor_map.box_dim, print(copy.basis, copy.rest)
    (64,128):(1@1,1@0) (2):(64@1)
    ((64, 128), None)

    Args:
        tensor: in global memory, in elements.
        dtype: the element type of both sides.
        smem: the tile, one stage of it; a swizzle in elements is converted.
        tiler: the tile's shape in the modes of ``tensor``; the extents of ``smem``'s modes unless given.
        num_multicast: CTAs among which an instruction is split, along its last dimensions.
        global_address: see :class:`TensorMap`.
        l2_promotion: likewise.
        oob_fill: likewise.

    Sizes and strides of the tensor are taken as CuTe takes those that it does not know when it compiles: modes are never
    merged, and those of size 1 or stride 0 stay. Beyond five dimensions the last ones become one, of the strides' greatest
    common divisor. Source: CUTLASS ``cute/atom/copy_traits_sm90_tma.hpp``.

    Raises:
        LayoutError: a tile of another size or type than ``tiler`` says; gaps in shared memory; a contiguous mode that is
            not the tensor's; a swizzle that is none of TMA's, or rows narrower than its span; a slice that multicast
            does not divide, or that starts where a box cannot; and as :class:`TensorMap`.
    """
    swizzle, layout, offset = _swizzle_and_layout(smem, dtype)
    shape = it.product_each(layout.shape) if tiler is None else tiler
    full = _smem_to_tensor(tensor, layout, shape)
    values = [step.value if isinstance(step, ScaledBasis) else step for _extent, step in full.modes]
    num_box = next((i for i, value in enumerate(values) if value != 1), len(values))
    if num_box == 0:
        raise LayoutError(f"TMA copy: {layout} is not walked mode by mode of {tensor}: use a tile of neighbouring elements")
    modes = [(extent, cast("ScaledBasis", step)) for extent, step in full.modes]
    basis = _basis(tensor, modes[:num_box])
    box_dim = _split([math.prod(it.leaves(mode.shape)) for mode in basis], num_multicast)
    dims, strides = _global_modes(tensor, basis)
    if strides[0] != 1:
        raise LayoutError(
            f"TMA copy: {layout} is contiguous along a mode of stride {strides[0]} of {tensor}: use a tile of its major mode"
        )
    described = TensorMap(
        dtype=dtype,
        global_dim=tuple(dims),
        global_strides_bytes=tuple(stride * dtype.num_bytes for stride in strides[1:]),
        box_dim=box_dim,
        swizzle=swizzle,
        global_address=global_address,
        l2_promotion=l2_promotion,
        oob_fill=oob_fill,
    )
    _check_full_rows(described.box)
    rest = Layout(*map(tuple, zip(*modes[num_box:], strict=True))) if modes[num_box:] else Layout((1,), (0,))
    described.check_smem_address(offset * dtype.num_bytes)
    # Boxes within a tile may start in the midst of the repeat, since the swizzle works on addresses.
    if rest.size * num_multicast > 1 and described.box.num_bytes % SMEM_BOX_ALIGNMENT_BYTES:
        raise LayoutError(
            f"TMA copy: boxes of {described.box.num_bytes} bytes side by side: use slices of whole "
            f"{SMEM_BOX_ALIGNMENT_BYTES}s"
        )
    return TmaCopy(tensor_map=described, basis=basis, rest=rest, num_multicast=num_multicast)


def _swizzle_and_layout(smem: Layout | ComposedLayout | ByteLayout, dtype: DType) -> tuple[str, Layout, int]:
    """TMA's name of the swizzle, the layout without it, and its start in elements."""
    if isinstance(smem, Layout):
        return "none", smem, 0
    placed = smem.to_bytes(dtype.bits) if isinstance(smem, ComposedLayout) else smem
    if placed.element_bits != dtype.bits:
        raise LayoutError(f"TMA copy: {placed} has elements of {placed.element_bits} bits: use {dtype.bits}")
    name = mode_of(placed.swizzle)
    if name is None:
        known = ", ".join(map(str, SWIZZLE_MODES.values()))
        raise LayoutError(f"TMA copy: {placed.swizzle} of byte addresses is none of TMA's: use {known}")
    return name, placed.layout, placed.offset


def _smem_to_tensor(tensor: Layout, layout: Layout, shape: IntTuple) -> Layout:
    """Element of shared memory before the swizzle to coordinate of the tensor, merged where it goes on."""
    tile = composition(make_identity_layout(tensor.shape), shape)
    if tile.size != layout.size:
        raise LayoutError(f"TMA copy: a tile of {show(shape)} in {layout}, which holds {layout.size}: use as many elements")
    inverse = right_inverse(layout)
    if inverse.size != layout.size:
        raise LayoutError(
            f"TMA copy: {layout} has gaps, only {inverse.size} of its {layout.size} elements lie side by side: use a layout "
            "without padding, and pad no rows: swizzle them"
        )
    return cast("Layout", flatten(coalesce(composition(tile, inverse))))


def _basis(tensor: Layout, box: list[tuple[int, ScaledBasis]]) -> Layout:
    """The box's modes, then those of the tensor that it does not walk; beyond five, the last ones as one."""
    walked = {step.modes for _extent, step in box}
    whole = make_identity_layout(tensor.shape)
    others = [(1, step) for _extent, step in whole.modes if step.modes not in walked]
    modes: list[tuple[Any, Any]] = [*box, *others]
    if len(modes) >= MAX_BOX_RANK:
        last = modes[MAX_BOX_RANK - 1 :]
        modes[MAX_BOX_RANK - 1 :] = [(tuple(extent for extent, _ in last), tuple(step for _, step in last))]
    return Layout(tuple(extent for extent, _ in modes), tuple(step for _, step in modes))


def _global_modes(tensor: Layout, basis: Layout) -> tuple[list[int], list[int]]:
    """Extent and stride of each dimension, in elements; modes that share one count in steps of their common divisor."""
    known = {
        step.modes: mode for mode, (_e, step) in zip(tensor.modes, make_identity_layout(tensor.shape).modes, strict=True)
    }
    dims, strides = [], []
    for part in basis:
        shared = [known[step.modes] for _extent, step in part.modes]
        stride = math.gcd(*(step for _extent, step in shared))
        # Modes of stride 0 alone have nothing to count in: as in CuTe the last one's extent stands.
        count = 1 + sum((extent - 1) * (step // stride) for extent, step in shared) if stride else shared[-1][0]
        dims.append(count)
        strides.append(stride)
    return dims, strides


def _split(box: list[int], num_multicast: int) -> tuple[int, ...]:
    """The slice of each CTA: the last dimensions are divided first."""
    left = num_multicast
    sliced = list(box)
    for i in reversed(range(len(box))):
        if left < 1 or (box[i] % left and left % box[i]):
            raise LayoutError(f"TMA copy: a box of {show(tuple(box))} for {num_multicast} CTAs: use one that divides it")
        sliced[i], left = it.ceil_div(box[i], left), it.ceil_div(left, box[i])
    if left > 1:
        raise LayoutError(f"TMA copy: a box of {show(tuple(box))} for {num_multicast} CTAs: use at most {math.prod(box)}")
    return tuple(sliced)
