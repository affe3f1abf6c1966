"""Tensors (a layout at an offset), and their partition into tiles for CTAs and parts for threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self, cast

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.divide import zipped_divide
from gpusim.layout.int_tuple import Coord, IntTuple, show
from gpusim.layout.layout import CarriesLayout, Layout, dice, inner_layout, make_identity_layout, make_layout
from gpusim.layout.recast import recast_layout
from gpusim.layout.swizzle import ByteLayout, ComposedLayout


@dataclass(frozen=True, slots=True, repr=False)
class Tensor(CarriesLayout):
    """A layout that starts at ``offset``: CuTe's pointer and layout.

    Offsets are in the layout's unit (elements, or bytes for a ByteLayout). For an identity layout the offset is a
    coordinate. A swizzled layout keeps the offset inside of its swizzle. ``data``, if given, is indexed by the offsets.

    >>> tensor = Tensor(Layout((4, 8), (8, 1)), 100)
    >>> print(tensor(1, 2), tensor(1, None), tensor)
    110 108 o (8):(1) 100 o (4,8):(8,1)
    >>> Tensor(Layout((2, 2), (1, 2)), data="abcd")[1, 1]
    'd'
    """

    layout: Layout | ComposedLayout | ByteLayout
    offset: Any = 0
    data: Any = None

    def __call__(self, *coord: Any) -> Any:
        """The offset of a coordinate; a Tensor if a mode is ``_``."""
        where = coord[0] if len(coord) == 1 else coord
        if not it.has_none(where):
            return it.add(self.offset, self.layout(where))
        if isinstance(self.layout, CarriesLayout):
            return Tensor(self.layout(where), self.offset, self.data)
        start = it.crd2idx(where, self.layout.shape, self.layout.stride)
        return Tensor(self.layout(where), it.add(self.offset, start), self.data)

    def __getitem__(self, coord: Any) -> Any:
        """The element of ``data`` at a coordinate; a Tensor if a mode is ``_``.

        Raises:
            LayoutError: there is no data.
        """
        if it.has_none(coord):
            return self(coord)
        if self.data is None:
            raise LayoutError(f"tensor {self}: it has no data: call it for offsets, or give it data")
        return self.data[self(coord)]

    @property
    def inner(self) -> Layout:
        """The plain layout of its coordinates."""
        return inner_layout(self.layout)

    def with_inner(self, inner: Layout) -> Self:
        """The tensor at the same offset with another plain layout inside."""
        layout = self.layout.with_inner(inner) if isinstance(self.layout, CarriesLayout) else inner
        return type(self)(layout, self.offset, self.data)

    def __str__(self) -> str:
        """CuTe's notation."""
        return f"{show(self.offset)} o {self.layout}"

    def __repr__(self) -> str:
        data = ", data=..." if self.data is not None else ""
        return f"Tensor({self.layout!r}, {self.offset!r}{data})"


def make_tensor(offset: Any, layout: Any, stride: Any = None) -> Tensor:
    """A tensor at ``offset`` (CuTe's pointer) with a layout, or with a shape and a stride.

    >>> print(make_tensor(0, (4, 8)), make_tensor(16, (4, 8), (8, 1)))
    0 o (4,8):(1,4) 16 o (4,8):(8,1)
    """
    if isinstance(layout, Layout | ComposedLayout | ByteLayout):
        return Tensor(layout, offset)
    return Tensor(make_layout(layout) if stride is None else make_layout(layout, stride), offset)


def make_identity_tensor(shape: IntTuple) -> Tensor:
    """The tensor with each coordinate as its element. Its partitions show the coordinates of each thread.

    >>> tile = local_tile(make_identity_tensor((8, 16)), (4, 4), (1, 2))
    >>> print(tile, tile(3, 1))
    (4,8) o (4,4):(1@0,1@1) (7, 9)
    """
    return Tensor(make_identity_layout(shape), it.repeat_like(shape, 0))


def recast(tensor: Tensor, old_bits: int, new_bits: int) -> Tensor:
    """The tensor as elements of another width in the same memory.

    >>> print(recast(Tensor(Layout((4, 8), (8, 1)), 64), old_bits=8, new_bits=32))
    16 o (4,2):(2,1)

    Raises:
        LayoutError: incompatible widths, an offset within an element, negative strides, or data.
    """
    if tensor.data is not None or any(abs(d) != d for _s, d in tensor.inner.modes):
        raise LayoutError(f"recast of {tensor}: use a tensor without data and without negative strides")
    place, rest = divmod(tensor.offset * old_bits, new_bits)
    if rest:
        raise LayoutError(f"recast of {tensor}: its offset is no full element of {new_bits} bits: align it")
    return Tensor(recast_layout(tensor.layout, old_bits, new_bits), place)


def domain_offset(coord: IntTuple, tensor: Tensor) -> Tensor:
    """The tensor of the same shape that starts at ``coord``.

    >>> print(domain_offset((1, 2), Tensor(Layout((4, 8), (8, 1)))))
    10 o (4,8):(8,1)
    """
    start = tensor.inner(coord)
    if not isinstance(tensor.layout, CarriesLayout):
        return Tensor(tensor.layout, it.add(tensor.offset, start), tensor.data)
    if isinstance(tensor.layout, ByteLayout):
        moved: Any = ByteLayout(
            tensor.layout.swizzle, tensor.layout.layout, tensor.layout.element_bits, tensor.layout.offset + start
        )
    else:
        moved = ComposedLayout(tensor.layout.layout_a, tensor.layout.offset + start, tensor.layout.layout_b)
    return Tensor(moved, tensor.offset, tensor.data)


def _as_tensor(tensor: Any) -> Tensor:
    return tensor if isinstance(tensor, Tensor) else make_tensor(0, tensor)


def inner_partition(tensor: Any, tiler: Any, coord: Coord) -> Tensor:
    """The tile at ``coord``: all elements that the tiler selects there.

    An integer counts through all tiles. A tuple may omit trailing modes, which are kept in full.

    >>> print(inner_partition(Tensor(Layout((16, 64))), (4, 8), (1, 2)))
    260 o (4,8):(1,16)

    Raises:
        LayoutError: a coordinate outside of the grid of tiles (CuTe continues past the end).
    """
    tiled = zipped_divide(_as_tensor(tensor), tiler)
    tile, rest = tiled.inner
    return cast("Tensor", tiled(it.repeat(tile.rank, None), _place(coord, rest)))


def outer_partition(tensor: Any, tiler: Any, coord: Coord) -> Tensor:
    """The elements at coordinate ``coord`` of every tile.

    >>> print(outer_partition(Tensor(Layout((16, 64))), (4, 8), (1, 2)))
    33 o (4,8):(4,128)

    Raises:
        LayoutError: a coordinate outside of the tile (CuTe continues past the end).
    """
    tiled = zipped_divide(_as_tensor(tensor), tiler)
    tile, rest = tiled.inner
    return cast("Tensor", tiled(_place(coord, tile), it.repeat(rest.rank, None)))


def _place(coord: Coord, modes: Layout) -> Coord:
    """``coord`` with trailing modes kept in full, after a check that it is inside."""
    full = it.pad(coord, modes.rank, None) if isinstance(coord, tuple) else coord
    if isinstance(full, tuple):
        it.same_rank("partition", full, modes.shape if isinstance(modes.shape, tuple) else (modes.shape,))
        parts = zip(full, it.product_each(modes.shape), strict=True)
    else:
        parts = zip((full,), (modes.size,), strict=True)
    if any(isinstance(c, int) and not 0 <= c < extent for c, extent in parts):
        raise LayoutError(f"partition: {show(coord)} lies outside of {show(modes.shape)}: use a place inside")
    return cast("Coord", full)


def local_tile(tensor: Any, tiler: Any, coord: Coord, proj: Any = None) -> Tensor:
    """The CTA's tile at ``coord``. ``proj`` omits (``X``) the modes of tiler and coordinate that the tensor lacks.

    >>> print(local_tile(Tensor(Layout((128, 64), (64, 1))), (32, 64), (1, 0)))
    2048 o (32,64):(64,1)
    >>> cta_tiler, cta_coord = (32, 64, 4), (1, 2, None)
    >>> print(local_tile(Tensor(Layout((128, 16))), cta_tiler, cta_coord, (1, None, 1)))
    32 o (32,4,4):(1,128,512)
    """
    if proj is None:
        return inner_partition(tensor, tiler, coord)
    return inner_partition(tensor, dice(proj, tiler), dice(proj, coord))


def local_partition(tensor: Any, tile: Layout, index: int, proj: Any = None) -> Tensor:
    """The part of thread ``index``: in each tile, the element at the coordinate of ``index`` in the layout ``tile``.

    >>> print(local_partition(Tensor(Layout((16, 64))), Layout((2, 16)), 5))
    33 o (8,4):(2,256)
    >>> threads = Layout((2, 16, 1), (16, 1, 0))
    >>> print(local_partition(Tensor(Layout((16, 64))), threads, 17, (1, None, 1)))
    1 o (8,64):(2,16)

    Raises:
        LayoutError: an index that the layout of threads does not reach (CuTe wraps around).
    """
    if proj is None:
        return outer_partition(tensor, it.product_each(tile.shape), tile.get_flat_coord(index))
    kept = cast("IntTuple", dice(proj, tile.get_flat_coord(index)))
    return outer_partition(tensor, it.product_each(dice(proj, tile).shape), kept)
