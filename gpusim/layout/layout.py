"""Layouts: functions from coordinates to offsets, given by a shape and a stride."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.checks import is_between, refuse_equal_orders
from gpusim.layout.int_tuple import IntTuple, ScaledBasis, Stride, show

AnyFunction = TypeVar("AnyFunction", bound=Callable[..., Any])

_METHODS: dict[str, Callable[..., Any]] = {}
"""Functions of later modules that methods of a layout call, by name."""


def method_of_layout(function: AnyFunction) -> AnyFunction:
    """Decorator of a function that a method of :class:`Layout` calls."""
    _METHODS[function.__name__] = function
    return function


MAX_WALKED = 1 << 24
"""Maximum number of coordinates that are checked one by one, if no rule covers all of them."""


class Major(Enum):
    """Order of the modes of a compact layout."""

    LEFT = "left"
    RIGHT = "right"


LayoutLeft: Final = Major.LEFT
"""Column-major: the leftmost mode has stride 1. CuTe's default; also ``GenColMajor``."""

LayoutRight: Final = Major.RIGHT
"""Row-major: the rightmost mode has stride 1; also ``GenRowMajor``."""

GenColMajor: Final = LayoutLeft
GenRowMajor: Final = LayoutRight


class CarriesLayout(ABC):
    """An object with a layout inside (a swizzle, a pointer), whose coordinates are those of the layout."""

    __slots__ = ()

    @property
    @abstractmethod
    def inner(self) -> Layout:
        """The layout whose coordinates the object has."""

    @abstractmethod
    def with_inner(self, inner: Layout) -> Self:
        """The object with another layout inside."""

    @abstractmethod
    def __call__(self, *coord: Any) -> Any:
        """The offset of a coordinate; an object with fewer modes if some modes are ``_``."""

    @property
    def shape(self) -> IntTuple:
        """The shape of the coordinates."""
        return self.inner.shape

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.inner.size

    @property
    def rank(self) -> int:
        """Number of modes."""
        return self.inner.rank

    @property
    def depth(self) -> int:
        """Levels of nesting."""
        return self.inner.depth


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Layout:
    """``shape:stride``: coordinate (c0, c1, ...) has offset c0 d0 + c1 d1 + ...; CuTe's ``Layout``.

    Without ``stride`` the layout is compact and column-major. An integer coordinate counts colexicographically through all
    modes. **It may be past the end: it then continues in the last mode**, as in C++; a negative one counts backwards. ``_``
    (or ``None``) in a coordinate slices. Arrays of integers are accepted in place of integers.

    >>> row_major = Layout((4, 8), (8, 1))
    >>> row_major(1, 2), row_major(9), row_major(32), row_major.size, row_major.cosize
    (10, 10, 8, 32, 32)
    >>> print(row_major(2, None), row_major(None, (3)), Layout((4, 8)))
    (8):(1) (4):(8) (4,8):(1,4)
    >>> row_major
    Layout((4, 8), (8, 1))

    Raises:
        LayoutError: shape and stride that are not congruent, or a mode of size 0 or less.
    """

    shape: IntTuple
    stride: Stride

    def __init__(self, shape: IntTuple, stride: Stride | Major | None = None) -> None:
        sizes = it.as_int_tuple(shape, "shape")
        extents = list(it.leaves(sizes))
        if not extents or not all(isinstance(size, int) and size >= 1 for size in extents):
            raise LayoutError(f"layout: shape {show(sizes)}: use one mode or more, of integers of 1 or more")
        steps = _strides(sizes, stride)
        if not it.congruent(sizes, steps) or it.has_none(steps):
            raise LayoutError(
                f"layout {show(sizes)}:{show(steps)}: shape and stride differ in profile: "
                "give each mode one size and one stride"
            )
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "stride", steps)

    def __str__(self) -> str:
        """CuTe's notation."""
        return f"{show(self.shape)}:{show(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape}, {self.stride})"

    @staticmethod
    def parse(text: str) -> Layout | CarriesLayout:
        """A layout from CuTe's notation, also with the ``_`` of static integers and with a swizzle in front.

        >>> Layout.parse("((2,4),8):((1,16),2)"), Layout.parse("(_4,_8)")
        (Layout(((2, 4), 8), ((1, 16), 2)), Layout((4, 8), (1, 4)))
        >>> print(Layout.parse("Sw<3,3,3> o 0 o (8,64):(64,1)"))
        Sw<3,3,3> o 0 o (8,64):(64,1)

        Raises:
            LayoutError: text that is no layout; the error names the position.
        """
        layout: Layout | CarriesLayout = _METHODS["parse_layout"](text)
        return layout

    def __call__(self, *coord: Any) -> Any:
        """The offset of a coordinate (a coordinate if strides are bases); a Layout if a mode is ``_``."""
        where = coord[0] if len(coord) == 1 else coord
        if it.has_none(where):
            return slice(where, self)
        return it.crd2idx(where, self.shape, self.stride)

    def __getitem__(self, mode: int) -> Layout:
        """The layout of one mode: ``layout[0]``, ``layout[-1]``."""
        return get(self, mode + self.rank if mode < 0 else mode)

    def __len__(self) -> int:
        return self.rank

    def __iter__(self) -> Iterator[Layout]:
        return (get(self, mode) for mode in range(self.rank))

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return it.product(self.shape)

    @property
    def rank(self) -> int:
        """Number of modes."""
        return it.rank(self.shape)

    @property
    def depth(self) -> int:
        """Levels of nesting."""
        return it.depth(self.shape)

    @property
    def coshape(self) -> IntTuple:
        """The smallest shape that contains every offset: an integer, or a tuple if strides are bases.

        >>> Layout((4, 8), (16, 2)).coshape, make_identity_layout((4, 8)).coshape
        (63, (4, 8))
        """
        last = it.inner_product(it.map_leaves(lambda s: s - 1, self.shape), it.map_leaves(abs, self.stride))
        return cast("IntTuple", it.map_leaves(lambda c: c + 1, last))

    @property
    def cosize(self) -> int:
        """One more than the largest offset (in absolute value, if strides are negative)."""
        return it.product(self.coshape)

    @property
    def modes(self) -> list[tuple[int, Any]]:
        """(size, stride) of each leaf, from left to right."""
        return list(zip(it.leaves(self.shape), it.leaves(self.stride), strict=True))

    @property
    def has_basis(self) -> bool:
        """Whether a stride is a basis element, so that the layout yields coordinates."""
        return any(isinstance(step, ScaledBasis) for step in it.leaves(self.stride))

    def get_hier_coord(self, index: int) -> IntTuple:
        """The coordinate at offset ``index``, in the layout's profile.

        Between the offsets of the layout, it is CuTe's coordinate: each mode divides by its stride.

        >>> Layout(((2, 4), 8), ((1, 16), 2)).get_hier_coord(35), Layout((4, 3), (2, 16)).get_hier_coord(21)
        (((1, 2), 1), (2, 1))

        Raises:
            LayoutError: the offset is outside of the layout, or a coordinate has it that CuTe does not find.
        """
        coord = cast("IntTuple", it.idx2crd(index, self.shape, self.stride))
        if self(coord) != index and not is_between(index, self.modes):
            what = f"{self} has no coordinate for offset {index}, or is not compact"
            raise LayoutError(f"get_hier_coord: {what}: use an offset below {self.cosize} of a compact layout")
        return coord

    def get_flat_coord(self, index: int) -> IntTuple:
        """The coordinate at offset ``index``, one integer for each mode.

        >>> Layout(((2, 4), 8), ((1, 16), 2)).get_flat_coord(35)
        (5, 1)
        """
        coord = self.get_hier_coord(index)
        if not isinstance(coord, tuple) or self.rank == 1:
            return cast("int", it.crd2idx(coord, self.shape))
        return tuple(it.crd2idx(c, s) for c, s in zip(coord, it.wrap(self.shape), strict=True))

    def get_1d_coord(self, index: int) -> int:
        """The colexicographical index of the coordinate at offset ``index``.

        >>> Layout((4, 8), (8, 1)).get_1d_coord(10)
        9
        """
        return cast("int", it.crd2idx(self.get_hier_coord(index), self.shape))

    def compose(self, *tilers: Any) -> Layout:
        """``composition(self, tiler)``; several tilers go mode by mode.

        >>> print(Layout((4, 8)).compose(Layout(2, 2), None))
        (2,8):(2,4)
        """
        result: Layout = _METHODS["composition"](self, tilers[0] if len(tilers) == 1 else tilers)
        return result

    def with_shape(self, *shape: IntTuple) -> Layout:
        """The layout with the same offsets and another shape: ``composition(self, make_layout(shape))``.

        >>> print(Layout(32).with_shape(4, 8))
        (4,8):(1,4)
        """
        return self.compose(Layout(shape[0] if len(shape) == 1 else shape))


def _strides(shape: IntTuple, stride: Stride | Major | None) -> Any:
    if stride is None or stride is Major.LEFT:
        return it.compact_col_major(shape)
    return it.compact_row_major(shape) if stride is Major.RIGHT else it.as_int_tuple(stride, "stride")


P = ParamSpec("P")
L = TypeVar("L", bound="Layout | CarriesLayout")


def through(function: Callable[Concatenate[Layout, P], Layout]) -> Callable[Concatenate[L, P], L]:
    """Decorator: an operation on layouts also accepts objects with a layout inside, of which it changes the layout only."""

    @wraps(function)
    def lifted(layout: L, *args: P.args, **kwargs: P.kwargs) -> L:
        if isinstance(layout, CarriesLayout):
            return cast("L", layout.with_inner(function(layout.inner, *args, **kwargs)))
        if not isinstance(layout, Layout):
            raise LayoutError(f"{function.__name__}: {layout!r} is no layout: use make_layout(...) first")
        return cast("L", function(layout, *args, **kwargs))

    return cast("Callable[Concatenate[L, P], L]", lifted)


def inner_layout(layout: Layout | CarriesLayout) -> Layout:
    """The plain layout from coordinates to offsets, before any swizzle."""
    return layout.inner if isinstance(layout, CarriesLayout) else layout


# Making layouts


def make_layout(*parts: Any) -> Layout:
    """A layout from a shape, from a shape and a stride (or LayoutLeft, LayoutRight), or from layouts as its modes.

    >>> print(make_layout((4, 8)), make_layout((4, 8), LayoutRight), make_layout((4, 8), (1, 5)))
    (4,8):(1,4) (4,8):(8,1) (4,8):(1,5)
    >>> print(make_layout(Layout(4, 2), Layout((2, 2))))
    (4,(2,2)):(2,(1,2))

    Raises:
        LayoutError: parts that are neither, or not congruent.
    """
    if parts and all(isinstance(part, Layout) for part in parts):
        return Layout(tuple(part.shape for part in parts), tuple(part.stride for part in parts))
    if len(parts) not in (1, 2) or any(isinstance(part, Layout | CarriesLayout) for part in parts):
        raise LayoutError("make_layout: use a shape, a shape and a stride, or layouts only")
    return Layout(*parts)


def make_ordered_layout(shape: IntTuple, order: IntTuple | Major) -> Layout:
    """The compact layout whose modes are in ascending ``order``. Those of the same order overlap.

    >>> print(make_ordered_layout((2, 2, 2, 2), (0, 2, 3, 1)), make_ordered_layout((4, 3, 2), (0, 0, 1)))
    (2,2,2,2):(1,4,8,2) (4,3,2):(1,1,12)

    Raises:
        LayoutError: ``order`` does not fit.
    """
    return Layout(shape, order if isinstance(order, Major) else it.compact_order(shape, order))


def make_layout_like(layout: Layout) -> Layout:
    """The compact layout with the same shape and order of strides. Strides of 0 stay.

    >>> print(make_layout_like(Layout((2, 3, 4, 5), (0, 42, 1, 0))))
    (2,3,4,5):(0,4,1,0)

    Raises:
        LayoutError: two modes have the same stride.
    """
    kept = filter_zeros(layout).shape
    refuse_equal_orders(kept, cast("IntTuple", layout.stride))
    return Layout(layout.shape, it.compact_order(kept, cast("IntTuple", layout.stride)))


def make_identity_layout(shape: IntTuple) -> Layout:
    """The layout that maps each coordinate to itself.

    >>> identity = make_identity_layout((4, (2, 3)))
    >>> print(identity, identity(6))
    (4,(2,3)):(1@0,(1@0@1,1@1@1)) (2, (1, 0))
    """
    return Layout(shape, it.basis_like(shape))


# Modes of layouts


@through
def get(layout: Layout, *modes: int) -> Layout:
    """The layout of the mode at ``modes`` (CuTe's ``get<0,1>`` and ``layout<0,1>``).

    >>> print(get(Layout(((2, 4), 8)), 0, 1))
    4:2

    Raises:
        LayoutError: no such mode.
    """
    return Layout(it.get(layout.shape, *modes), it.get(layout.stride, *modes))


def both(function: Callable[[Any], Any], layout: Layout) -> Layout:
    """The layout with ``function`` applied to the shape and to the stride."""
    return Layout(function(layout.shape), function(layout.stride))


@through
def take(layout: Layout, begin: int, end: int) -> Layout:
    """Modes ``begin`` to ``end``, exclusive.

    >>> print(take(Layout((2, 3, 5)), 1, 3))
    (3,5):(2,6)

    Raises:
        LayoutError: no such range, or an empty one.
    """
    if not 0 <= begin < end <= layout.rank:
        raise LayoutError(f"take: modes {begin} to {end} of {layout}: use a range within 0 to {layout.rank}")
    return both(lambda tree: it.wrap(tree)[begin:end], layout)


@through
def select(layout: Layout, *modes: int) -> Layout:
    """The modes with these indices, in that order.

    >>> print(select(Layout((2, 3, 5)), 2, 0))
    (5,2):(6,1)

    Raises:
        LayoutError: no such mode.
    """
    return both(lambda tree: tuple(it.get(tree, mode) for mode in modes), layout)


@through
def group_modes(layout: Layout, begin: int, end: int) -> Layout:
    """The layout with modes ``begin`` to ``end`` (exclusive; -1 for the last) as one mode (CuTe's ``group``).

    >>> print(group_modes(Layout((2, 3, 5)), 0, 2))
    ((2,3),5):((1,2),6)
    """
    return both(lambda tree: it.group(tree, begin, end), layout)


def flatten(layout: Any) -> Any:
    """The layout without nesting: depth 1 at most. Accepts a layout, a composed layout, a tensor or an IntTuple.

    >>> print(flatten(Layout(((2, 4), 8), ((1, 16), 2))), flatten((2, (3, 4))))
    (2,4,8):(1,16,2) (2, 3, 4)
    """
    return _flatten(layout) if isinstance(layout, Layout | CarriesLayout) else it.flatten(layout)


@through
def _flatten(layout: Layout) -> Layout:
    return both(it.flatten, layout)


@through
def unflatten(layout: Layout, profile: Any) -> Layout:
    """The flat layout in the profile of ``profile``.

    >>> print(unflatten(Layout((2, 4, 8)), ((0, 0), 0)))
    ((2,4),8):((1,2),8)
    """
    return both(lambda tree: it.unflatten(tree, profile), layout)


_UNIT: Final = Layout(1, 0)


@through
def append(layout: Layout, mode: Layout = _UNIT, rank: int | None = None) -> Layout:
    """The layout with ``mode`` appended, once or until it has ``rank`` modes (CuTe's ``append<N>``).

    >>> print(append(Layout(4), Layout(2, 8)), append(Layout((4, 2)), rank=4))
    (4,2):(1,8) (4,2,1,1):(1,4,0,0)

    Raises:
        LayoutError: there are more than ``rank`` modes already.
    """
    wanted = layout.rank + 1 if rank is None else rank
    return Layout(it.pad(layout.shape, wanted, mode.shape), it.pad(layout.stride, wanted, mode.stride))


@through
def prepend(layout: Layout, mode: Layout = _UNIT, rank: int | None = None) -> Layout:
    """The layout with ``mode`` prepended, once or until it has ``rank`` modes.

    >>> print(prepend(Layout(4), Layout(2, 8)))
    (2,4):(8,1)
    """
    missing = 1 if rank is None else rank - layout.rank
    if missing <= 0:
        return append(layout, mode, rank)
    return Layout((*([mode.shape] * missing), *it.wrap(layout.shape)), (*([mode.stride] * missing), *it.wrap(layout.stride)))


@through
def replace(layout: Layout, mode: int, other: Layout) -> Layout:
    """The layout with ``other`` instead of mode ``mode``.

    >>> print(replace(Layout((2, 3, 5)), 1, Layout(7, 0)))
    (2,7,5):(1,0,6)
    """
    return make_layout(*(other if i == mode else kept for i, kept in enumerate(layout)))


@through
def zip_layout(layout: Layout) -> Layout:
    """The layout with the modes of its modes transposed (CuTe's ``zip`` of one layout).

    >>> print(zip_layout(Layout(((2, 3), (5, 7)))))
    ((2,5),(3,7)):((1,6),(2,30))
    """
    return both(it.zip_modes, layout)


@through
def filter_zeros(layout: Layout, profile: Any = None) -> Layout:
    """The layout with size 1 in modes of stride 0 (or where ``profile`` is 0): they no longer repeat offsets.

    >>> print(filter_zeros(Layout((2, 3), (1, 0))))
    (2,1):(1,0)
    """
    guide = layout.stride if profile is None else profile
    return Layout(_ones_at_zeros(guide, layout.shape), layout.stride)


def _ones_at_zeros(guide: Any, shape: Any) -> Any:
    if isinstance(guide, tuple):
        it.same_rank("filter_zeros", guide, shape)
        return tuple(map(_ones_at_zeros, guide, shape))
    return it.repeat_like(shape, 1) if guide == 0 else shape


# Properties of layouts; each function also accepts an IntTuple


def _shape_of(thing: Any, modes: tuple[int, ...]) -> IntTuple:
    return cast("IntTuple", it.get(thing.shape if hasattr(thing, "shape") else thing, *modes))


def shape(layout: Any, *modes: int) -> IntTuple:
    """The shape of a layout, or of one mode.

    >>> shape(Layout(((2, 4), 8)), 0)
    (2, 4)
    """
    return _shape_of(layout, modes)


def stride(layout: Layout, *modes: int) -> Stride:
    """The stride of a layout, or of one mode.

    >>> stride(Layout(((2, 4), 8)), 0, 1)
    2
    """
    return cast("Stride", it.get(layout.stride, *modes))


def size(layout: Any, *modes: int) -> int:
    """Number of coordinates of a layout, of one mode, or of a shape.

    >>> size(Layout(((2, 4), 8)), 0), size((3, 4))
    (8, 12)
    """
    return it.product(_shape_of(layout, modes))


def rank(layout: Any, *modes: int) -> int:
    """Number of modes of a layout, of one mode, or of an IntTuple.

    >>> rank(Layout(((2, 4), 8))), rank(Layout(((2, 4), 8)), 1)
    (2, 1)
    """
    return it.rank(_shape_of(layout, modes))


def depth(layout: Any, *modes: int) -> int:
    """Levels of nesting of a layout, of one mode, or of an IntTuple.

    >>> depth(Layout(((2, 4), 8)))
    2
    """
    return it.depth(_shape_of(layout, modes))


def cosize(layout: Any, *modes: int) -> int:
    """One more than the largest offset, of a layout or of one mode.

    >>> cosize(Layout((4, 8), (16, 2))), cosize(Layout((4, 8), (16, 2)), 1)
    (63, 15)
    """
    return cast("int", get(layout, *modes).cosize)


def coprofile(layout: Layout) -> Any:
    """Zeros in the profile of the layout's values.

    >>> coprofile(Layout((4, 8))), coprofile(make_identity_layout((4, 8)))
    (0, (0, 0))
    """
    return it.repeat_like(layout.coshape, 0)


# Slicing


def slice(coord: Any, layout: Any) -> Any:
    """The modes where ``coord`` has ``_``. For a Layout the offset of the rest is lost; other objects keep it.

    >>> print(slice((None, 3), Layout((4, 8), (8, 1))))
    (4):(8)

    Raises:
        LayoutError: ``coord`` does not fit the shape, or keeps no mode at all.
    """
    if isinstance(layout, CarriesLayout):
        return layout(coord)
    if not isinstance(layout, Layout):
        return it.slice_modes(coord, layout)
    if not it.has_none(coord):
        raise LayoutError(f"slice: {show(coord)} keeps no mode of {layout}: put _ for a mode, or call the layout")
    return both(lambda tree: it.slice_modes(coord, tree), layout)


def dice(coord: Any, layout: Any) -> Any:
    """The modes where ``coord`` has a number: the opposite of ``slice``. Also for an IntTuple or a tiler.

    >>> print(dice((None, 3), Layout((4, 8), (8, 1))), dice((1, None, 1), (32, 64, 4)))
    (8):(1) (32, 4)
    """
    if not isinstance(layout, Layout):
        return it.dice_modes(coord, layout)
    return both(lambda tree: it.dice_modes(coord, tree), layout)


def slice_and_offset(coord: Any, layout: Layout) -> tuple[Layout, Any]:
    """The sliced layout, and the offset of the fixed coordinates.

    >>> slice_and_offset((None, 3), Layout((4, 8), (8, 1)))
    (Layout((4,), (8,)), 3)
    """
    return slice(coord, layout), it.crd2idx(coord, layout.shape, layout.stride)


def offsets(layout: Any) -> list[Any]:
    """The offsets of all coordinates, in colexicographical order.

    >>> offsets(Layout((2, 3), (3, 1)))
    [0, 3, 1, 4, 2, 5]
    """
    return [layout(index) for index in range(layout.size)]


def is_injective(layout: Layout) -> bool:
    """Whether no two coordinates have the same offset.

    >>> is_injective(Layout((4, 2), (2, 1))), is_injective(Layout((4, 2), (1, 2)))
    (True, False)

    Raises:
        LayoutError: strides that interleave, and too many coordinates to check each.
    """
    if layout.has_basis:
        _refuse_many(layout)
        return len(set(offsets(layout))) == layout.size
    strides = sorted((abs(d), s) for s, d in layout.modes if s > 1)
    reached = 0
    for step, extent in strides:
        if step <= reached:
            break
        reached += (extent - 1) * step
    else:
        return True
    if strides[0][0] == 0 or layout.size > 1 + sum((extent - 1) * step for step, extent in strides):
        return False  # more coordinates than offsets
    _refuse_many(layout)
    import numpy as np

    found = np.zeros(1, dtype=np.int64)
    for step, extent in strides:  # signs make no difference: a reversed mode has the same number of offsets
        found = (found[:, None] + step * np.arange(extent)).reshape(-1)
    return len(np.unique(found)) == layout.size


def _refuse_many(layout: Layout) -> None:
    if layout.size > MAX_WALKED:
        raise LayoutError(f"{layout}: {layout.size} coordinates, too many to look at each: use at most {MAX_WALKED}")
