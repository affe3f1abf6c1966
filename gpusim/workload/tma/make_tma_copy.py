"""Derive TMA boxes and tensor maps from layouts, as CuTe's ``make_tma_copy`` does.

In: layouts of tensors in global memory and of tiles in shared memory. Out: :class:`TensorMap`, :class:`TmaCopy`, and
the part of it that a CTA copies.

Models:
* The boxes that CuTe chooses for a tile.
* The slices of a multicast.

Ignores:
* Gather, im2col, and all that :mod:`gpusim.workload.tma.boxes` ignores.

Source: CUTLASS ``cute/atom/copy_traits_sm90_tma.hpp``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import coalesce, composition, right_inverse
from gpusim.layout.divide import logical_divide, tile_to_shape
from gpusim.layout.int_tuple import E, IntTuple, ScaledBasis, show
from gpusim.layout.layout import Layout, flatten, make_identity_layout, make_layout, size
from gpusim.layout.swizzle import SWIZZLE_MODES, ByteLayout, ComposedLayout, mode_of
from gpusim.layout.tiled import CopyAtomTV, TiledCopy
from gpusim.layout.tiling import Tensor, domain_offset
from gpusim.workload.dtypes import DType
from gpusim.workload.tma.boxes import MAX_BOX_RANK, SMEM_BOX_ALIGNMENT_BYTES, TensorMap, check_full_rows


@dataclass(frozen=True, slots=True, kw_only=True)
class TmaCopy:
    """A tile of shared memory as TMA instructions with one tensor map.

    Instruction i copies ``basis.size`` elements to element ``i * basis.size`` of the tile before the swizzle. Multicast
    splits each instruction among ``num_multicast`` CTAs, in order.

    Args:
        tensor_map: the driver's tensor map; its box is the slice of one CTA.
        basis: layout from an element of an instruction to a coordinate of the tensor, relative to the instruction's start.
            It has one mode for each dimension of the map. CuTe's ``tma_gbasis``.
        rest: layout from the number of an instruction to the coordinate, within the tile, at which it starts.
        num_multicast: CTAs among which each instruction is split.
        tensor: layout of the tensor in global memory, in elements.
        tiled: the tile as a tiled copy of one thread, which splits no instruction.
    """

    tensor_map: TensorMap
    basis: Layout
    rest: Layout
    num_multicast: int
    tensor: Layout
    tiled: TiledCopy

    @property
    def num_instructions(self) -> int:
        """Number of instructions that copy the full tile, counted once for all CTAs of a multicast."""
        return self.rest.size

    @property
    def num_bytes(self) -> int:
        """Bytes of the full tile: the transaction count of the mbarrier in each CTA that receives it."""
        return self.num_instructions * self.num_multicast * self.tensor_map.box.num_bytes

    def get_tma_tensor(self, shape: IntTuple) -> Tensor:
        """A tensor of ``shape`` whose elements are the coordinates that TMA instructions take, innermost dimension first.

        Raises:
            LayoutError: a shape that is not congruent with the tensor's.
        """
        if not it.congruent(shape, self.tensor.shape):
            raise LayoutError(f"TMA copy: {show(shape)} is no shape of {self.tensor}: use its modes")
        bases = make_identity_layout(self.tensor.shape).stride
        stride = it.map_leaves(self._coordinate, self.tensor.stride, bases)
        return Tensor(Layout(shape, stride), (0,) * self.tensor_map.rank)

    def _coordinate(self, stride: int, mode: ScaledBasis) -> ScaledBasis:
        """Step of one mode of the tensor in the map's coordinates; merged modes count in steps of their stride."""
        steps = [[step for _extent, step in part.modes] for part in self.basis]
        dimension = next(i for i, merged in enumerate(steps) if mode in merged)
        if len(steps[dimension]) == 1:
            return E(dimension)
        step_bytes = max(self.tensor_map.global_strides_bytes[dimension - 1], 1)
        return ScaledBasis(it.ceil_div(stride * self.tensor_map.dtype.num_bytes, step_bytes), (dimension,))

    def get_slice(self, cta_idx: int) -> CtaTmaCopy:
        """The part of CTA ``cta_idx`` of the multicast; 0 without one.

        >>> from gpusim.layout import local_tile, tile_to_shape
        >>> from gpusim.workload.dtypes import BF16
        >>> from gpusim.workload.smem.wgmma_operands import gmma_atom
        >>> smem = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 128))
        >>> copy = make_tma_copy(Layout((1024, 512), (512, 1)), BF16, smem, num_multicast=2)
        >>> tiles = local_tile(copy.get_tma_tensor((1024, 512)), (128, 128), (None, None))
        >>> print(copy.get_slice(1).partition_S(tiles))
        (0,64) o (((64,128),2),1,1,8,4):(((1@0,1@1),64@0),0,0,128@1,128@0)

        Raises:
            LayoutError: there is no such CTA.
        """
        if not 0 <= cta_idx < self.num_multicast:
            raise LayoutError(f"TMA copy: no CTA {cta_idx}: use 0 to {self.num_multicast - 1}")
        return CtaTmaCopy(self, cta_idx)


@dataclass(frozen=True, slots=True)
class CtaTmaCopy:
    """One CTA's part of a TMA copy. As in CuTe, the elements of an instruction are all from where the CTA's slice starts."""

    copy: TmaCopy
    cta_idx: int

    def partition_S(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """The source: ((elements of an instruction, instructions), RestM, RestN, ...)."""
        return self._started(self.copy.tiled.get_slice(0).partition_S(tensor))

    def partition_D(self, tensor: Any) -> Tensor:  # noqa: N802 - CuTe's name
        """The destination: ((elements of an instruction, instructions), RestM, RestN, ...)."""
        return self._started(self.copy.tiled.get_slice(0).partition_D(tensor))

    def _started(self, part: Tensor) -> Tensor:
        start = self.cta_idx * (self.copy.basis.size // self.copy.num_multicast)
        return domain_offset(((start, 0), *(0,) * (part.rank - 1)), part)


def tma_partition(copy: TmaCopy, cta_coord: Any, cta_layout: Layout, smem: Tensor, gmem: Tensor) -> tuple[Tensor, Tensor]:
    """(global memory, shared memory) as ((elements of an instruction, instructions), rest): CuTe's ``tma_partition``.

    Args:
        copy: the copy.
        cta_coord: coordinate of a CTA in ``cta_layout``.
        cta_layout: layout from a coordinate to the number of a CTA within the multicast.
        smem: tile of shared memory, as mode 0, then any modes.
        gmem: tile of the tensor of coordinates, as mode 0, then any modes.

    Raises:
        LayoutError: tiles of different sizes.
    """
    tile, num_values = smem.inner[0], copy.basis.size
    if tile.size != size(gmem, 0):
        raise LayoutError(f"TMA partition: tiles of {tile.size} and {size(gmem, 0)} elements: use tiles of one size")
    full = tile_to_shape(make_layout(right_inverse(tile)), tile.size)
    tiler = logical_divide(full, Layout(num_values))
    start = cta_layout(cta_coord) * (num_values // cta_layout.cosize)

    def parted(tensor: Tensor) -> Tensor:
        rest = (None,) * (tensor.rank - 1)
        by_instruction = coalesce(composition(tensor, (tiler, *rest)), ((1, 1),))
        return domain_offset(((start, 0), *(0,) * len(rest)), by_instruction)

    return parted(gmem), parted(smem)


def tensor_map(
    tensor: Layout, dtype: DType, smem: Layout | ComposedLayout | ByteLayout | tuple[int, ...], *,
    swizzle: str | None = None, tiler: IntTuple | None = None, num_multicast: int = 1,
    element_strides: tuple[int, ...] | None = None, global_address: int = 0, l2_promotion: str = "128B",
    oob_fill: str = "zero",
) -> TensorMap:
    """The tensor map for tiles of ``tensor`` in shared memory.

    >>> from gpusim.workload.dtypes import BF16
    >>> row_major = Layout((1024, 512), (512, 1))
    >>> tensor_map(row_major, BF16, (128, 64), swizzle="128B").box_dim
    (64, 128)

    Args:
        tensor: layout in global memory, in elements.
        dtype: the element type.
        smem: the tile's layout in shared memory, see ``make_tma_copy``; or a box, one extent for each mode of ``tensor``. A
            box's dimensions are ordered from the smallest stride of ``tensor`` outwards.
        swizzle: swizzle of a box; "none" by default. A layout contains its swizzle.
        tiler: shape of a layout's tile, see ``make_tma_copy``.
        num_multicast: CTAs of a layout's multicast, see ``make_tma_copy``.
        element_strides: element strides of a box, in the order of its extents.
        global_address: see :class:`TensorMap`.
        l2_promotion: see :class:`TensorMap`.
        oob_fill: see :class:`TensorMap`.

    Raises:
        LayoutError: see :class:`TensorMap` and ``make_tma_copy``. Also: an argument for boxes together with a layout, or an
            argument for layouts together with a box.
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
        dtype=dtype, global_dim=tuple(modes[mode][0] for mode in order),
        global_strides_bytes=tuple(modes[mode][1] * dtype.num_bytes for mode in order[1:]),
        box_dim=tuple(smem[mode] for mode in order),
        element_strides=None if element_strides is None else tuple(element_strides[mode] for mode in order),
        swizzle=swizzle or "none", global_address=global_address, l2_promotion=l2_promotion, oob_fill=oob_fill,
    )


def make_tma_copy(
    tensor: Layout, dtype: DType, smem: Layout | ComposedLayout | ByteLayout, *, tiler: IntTuple | None = None,
    num_multicast: int = 1, global_address: int = 0, l2_promotion: str = "128B", oob_fill: str = "zero",
) -> TmaCopy:
    """TMA boxes that copy a tile of ``tensor`` into the layout ``smem``, each as large as one instruction permits.

    The box extends over contiguous elements of shared memory, as long as these advance through the tensor's modes in steps
    of 1. Its swizzle is that of the layout. A K-major wgmma tile has one box for each swizzle span along its K mode. An
    MN-major tile has one box for each span along its major mode. Unless the repeats extend along k first, it has one for
    each 8 of k.

    >>> from gpusim.layout import tile_to_shape
    >>> from gpusim.workload.dtypes import BF16
    >>> from gpusim.workload.smem.wgmma_operands import gmma_atom
    >>> smem = tile_to_shape(gmma_atom("K", "128B", element_bits=16), (128, 128))
    >>> copy = make_tma_copy(Layout((1024, 512), (512, 1)), BF16, smem)
    >>> copy.tensor_map.box_dim, print(copy.basis, copy.rest)
    (64,128):(1@1,1@0) (2):(64@1)
    ((64, 128), None)

    Args:
        tensor: layout in global memory, in elements.
        dtype: the element type.
        smem: the tile, one stage of it; a swizzle in elements is converted.
        tiler: the tile's shape in the modes of ``tensor``; by default the extents of ``smem``'s modes.
        num_multicast: CTAs among which an instruction is split, along its last dimensions.
        global_address: see :class:`TensorMap`.
        l2_promotion: see :class:`TensorMap`.
        oob_fill: see :class:`TensorMap`.

    The tensor's sizes and strides are treated like CuTe's dynamic ones: modes are never merged, and modes of size 1 or
    stride 0 stay. Beyond five dimensions, the last ones become one, with the greatest common divisor of their strides.
    Source: CUTLASS ``cute/atom/copy_traits_sm90_tma.hpp``.

    Raises:
        LayoutError: a tile whose size or type differs from ``tiler``'s, or that has gaps in shared memory. Also: a
            contiguous mode that is not the tensor's. Also: a swizzle that TMA does not support, or rows narrower than its
            span. Also: a slice that multicast does not divide, or that starts at an invalid address. Also: see
            :class:`TensorMap`.
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
        dtype=dtype, global_dim=tuple(dims), global_strides_bytes=tuple(stride * dtype.num_bytes for stride in strides[1:]),
        box_dim=box_dim, swizzle=swizzle, global_address=global_address, l2_promotion=l2_promotion, oob_fill=oob_fill,
    )
    check_full_rows(described.box)
    rest = Layout(*map(tuple, zip(*modes[num_box:], strict=True))) if modes[num_box:] else Layout((1,), (0,))
    described.check_smem_address(offset * dtype.num_bytes)
    # Boxes within a tile may start within a period of the swizzle, because the swizzle applies to addresses.
    if rest.size * num_multicast > 1 and described.box.num_bytes % SMEM_BOX_ALIGNMENT_BYTES:
        raise LayoutError(
            f"TMA copy: boxes of {described.box.num_bytes} bytes side by side: use slices of whole "
            f"{SMEM_BOX_ALIGNMENT_BYTES}s"
        )
    return TmaCopy(
        tensor_map=described, basis=basis, rest=rest, num_multicast=num_multicast, tensor=tensor,
        tiled=_tiled(layout, shape, basis.size),
    )


def _tiled(layout: Layout, tiler: IntTuple, num_values: int) -> TiledCopy:
    """The tile as a copy of one thread: instructions one after the other."""
    values = tile_to_shape(make_layout(composition(right_inverse(layout), num_values)), layout.size)
    return TiledCopy(CopyAtomTV.vector(num_values), make_layout(Layout(1, 0), values), it.product_each(tiler))


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
    """Layout from an element of shared memory before the swizzle to a coordinate of the tensor, coalesced."""
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
    """The box's modes, then the other modes of the tensor. Beyond five modes, the last ones are merged into one."""
    walked = {step.modes for _extent, step in box}
    full = make_identity_layout(tensor.shape)
    others = [(1, step) for _extent, step in full.modes if step.modes not in walked]
    modes: list[tuple[Any, Any]] = [*box, *others]
    if len(modes) >= MAX_BOX_RANK:
        last = modes[MAX_BOX_RANK - 1 :]
        modes[MAX_BOX_RANK - 1 :] = [(tuple(extent for extent, _ in last), tuple(step for _, step in last))]
    return Layout(tuple(extent for extent, _ in modes), tuple(step for _, step in modes))


def _global_modes(tensor: Layout, basis: Layout) -> tuple[list[int], list[int]]:
    """Extent and stride of each dimension, in elements. Merged modes count in steps of their greatest common divisor."""
    known = {
        step.modes: mode for mode, (_e, step) in zip(tensor.modes, make_identity_layout(tensor.shape).modes, strict=True)
    }
    dims, strides = [], []
    for part in basis:
        shared = [known[step.modes] for _extent, step in part.modes]
        stride = math.gcd(*(step for _extent, step in shared))
        # If all merged modes have stride 0, the last one's extent is taken, as in CuTe.
        count = 1 + sum((extent - 1) * (step // stride) for extent, step in shared) if stride else shared[-1][0]
        dims.append(count)
        strides.append(stride)
    return dims, strides


def _split(box: list[int], num_multicast: int) -> tuple[int, ...]:
    """The box slice of each CTA. The last dimensions are divided first."""
    left = num_multicast
    sliced = list(box)
    for i in reversed(range(len(box))):
        if left < 1 or (box[i] % left and left % box[i]):
            raise LayoutError(f"TMA copy: a box of {show(tuple(box))} for {num_multicast} CTAs: use one that divides it")
        sliced[i], left = it.ceil_div(box[i], left), it.ceil_div(left, box[i])
    if left > 1:
        raise LayoutError(f"TMA copy: a box of {show(tuple(box))} for {num_multicast} CTAs: use at most {math.prod(box)}")
    return tuple(sliced)
