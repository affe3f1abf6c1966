"""Core of the layout algebra: coalesce, composition, complement and the inverses.

Each function accepts layouts, and objects with a layout inside (a swizzled layout, a tensor). The module ``divide`` builds
divides and products from these.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import gcd
from typing import Any, Final, TypeAlias, cast

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.int_tuple import ScaledBasis, show
from gpusim.layout.layout import (
    CarriesLayout,
    Layout,
    filter_zeros,
    get,
    inner_layout,
    make_layout,
    method_of_layout,
    through,
)
from gpusim.layout.swizzle import ByteLayout, ComposedLayout, Swizzle, is_swizzle, make_swizzle

Mode: TypeAlias = tuple[int, Any]
"""Size and stride of a leaf."""

Path: TypeAlias = tuple[int, ...]
"""Position of a mode: mode, mode within it, ..."""

_UNIT: Final = Layout(1, 0)


def from_modes(modes: list[Mode]) -> Layout:
    """A flat layout. A single mode stays an integer."""
    return Layout(it.unwrap(tuple(s for s, _d in modes)), it.unwrap(tuple(d for _s, d in modes)))


def by_mode(layout: Layout, profile: Any, function: Callable[[Layout, Any], Layout], *, keep: bool = True) -> Layout:
    """The layout of ``function`` applied to each mode and its part of ``profile``. Modes without a part are kept or dropped.

    Raises:
        LayoutError: ``profile`` has more modes than ``layout``.
    """
    if len(profile) > layout.rank:
        raise LayoutError(
            f"{show_tiler(profile)} has {len(profile)} modes, {layout} has {layout.rank}: use at most {layout.rank}"
        )
    parts = [function(mode, part) for mode, part in zip(layout, profile, strict=False)]
    return make_layout(*parts, *(list(layout)[len(profile) :] if keep else []))


def show_tiler(tiler: Any) -> str:
    """A tiler in CuTe's notation."""
    return f"<{','.join(map(show_tiler, tiler))}>" if isinstance(tiler, tuple) else show(tiler)


# Coalesce and filter


@through
def coalesce(layout: Layout, profile: Any = None) -> Layout:
    """The layout with the same offsets and as few modes as possible; with ``profile``, for each of its leaves separately.

    Offsets within the layout do not change; past the end they may differ.

    >>> print(coalesce(Layout((2, (1, 6)), (1, (6, 2)))), coalesce(Layout((2, (1, 6)), (1, (6, 2))), (1, 1)))
    12:1 (2,6):(1,2)

    Raises:
        LayoutError: ``profile`` has more modes than ``layout``.
    """
    if isinstance(profile, tuple):
        return by_mode(layout, profile, coalesce)
    return from_modes(_merge([mode for mode in layout.modes if mode[0] != 1]) or [(1, 0)])


def _merge(modes: list[Mode]) -> list[Mode]:
    merged: list[Mode] = []
    for extent, step in modes:
        if merged and merged[-1][0] * merged[-1][1] == step:
            merged[-1] = (merged[-1][0] * extent, merged[-1][1])
        else:
            merged.append((extent, step))
    return merged


def unbounded_modes(layout: Layout) -> list[Mode]:
    """Coalesced modes that also keep the offsets past the end, where the last mode continues without limit.

    >>> unbounded_modes(Layout((4, 1), (1, 9))), unbounded_modes(Layout((2, 2, 3)))
    ([(4, 1), (2, 9)], [(12, 1)])
    """
    *front, (extent, step) = layout.modes
    return _merge([mode for mode in front if mode[0] != 1] + [(max(extent, 2), step)])


@through
def filter(layout: Layout, profile: Any = None) -> Layout:
    """The coalesced layout without modes of stride 0: each offset once.

    >>> print(filter(Layout((2, 4, 8), (1, 0, 2))))
    16:1
    """
    if isinstance(profile, tuple):
        return by_mode(layout, profile, filter)
    return coalesce(filter_zeros(layout))


# Composition


@method_of_layout
def composition(lhs: Any, rhs: Any) -> Any:
    """The layout R with ``R(c) == lhs(rhs(c))`` for every coordinate c of ``rhs``, in ``rhs``'s profile.

    ``rhs`` is a layout, an integer N for the layout ``N:1``, ``_``, or a *tiler*. A tiler is a tuple that applies mode by
    mode. **It drops modes of ``lhs`` that it does not name**, as in CuTe; ``logical_divide`` keeps them. Past the end of
    ``lhs``, its last mode continues, as in C++. A swizzle on the left, or a swizzled layout, gives a ComposedLayout.

    >>> print(composition(Layout((6, 2), (8, 2)), Layout((4, 3), (3, 1))))
    ((2,2),3):((24,2),8)
    >>> print(composition(Layout((12, (4, 8)), (59, (13, 1))), (Layout(3, 4), Layout(8, 2))))
    (3,(2,4)):(236,(26,1))
    >>> print(composition(Swizzle(3, 3, 3), Layout((8, 64), (64, 1))))
    Sw<3,3,3> o 0 o (8,64):(64,1)

    Raises:
        LayoutError: no layout of ``rhs``'s profile has these values. (CuTe returns a wrong layout in some of these cases.)
    """
    if isinstance(rhs, ComposedLayout) and isinstance(lhs, Layout):
        return _compose_before_swizzle(lhs, rhs)
    if isinstance(lhs, Swizzle):
        return _compose_swizzle(lhs, rhs)
    if isinstance(rhs, Swizzle):
        return _pull_swizzle_out(lhs, rhs)
    return _compose(lhs, rhs)


@through
def _compose(lhs: Layout, rhs: Any) -> Layout:
    if rhs is None:
        return lhs
    if isinstance(rhs, tuple):
        return by_mode(lhs, rhs, _compose, keep=False)
    if isinstance(rhs, CarriesLayout):
        raise LayoutError(f"composition of {lhs} with {rhs}: the right one is more than a layout: use its plain layout")
    return _compose_layouts(lhs, rhs if isinstance(rhs, Layout) else Layout(rhs))


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One mode of the right operand, its composition, and its extent in each mode of the left operand."""

    extent: int
    step: int
    piece: Layout
    reach: dict[int, int]

    @property
    def is_irregular(self) -> bool:
        """Whether its steps carry from mode to mode."""
        return -1 in self.reach


def _compose_layouts(lhs: Layout, rhs: Layout) -> Layout:
    try:
        outers = {path: unbounded_modes(get(lhs, *path)) for path in _paths(rhs)}
        leaves: dict[Path, list[_Leaf]] = {path: [] for path in outers}
        pieces = it.map_leaves(lambda s, d: _compose_leaf(outers, leaves, s, d), rhs.shape, rhs.stride)
        for path, outer in outers.items():
            if _may_carry(outer, leaves[path]):
                _check_sums(outer, leaves[path])
    except LayoutError as error:
        raise LayoutError(f"composition of {lhs} with {rhs}: {error}") from None
    return Layout(it.map_leaves(lambda p: p.shape, pieces), it.map_leaves(lambda p: p.stride, pieces))


def _split_step(step: Any) -> tuple[Path, int]:
    return (step.modes, step.value) if isinstance(step, ScaledBasis) else ((), step)


def _paths(rhs: Layout) -> set[Path]:
    """Modes of the left operand in which ``rhs`` yields coordinates; the path () if it yields integers."""
    paths = {path for path, value in (_split_step(step) for _extent, step in rhs.modes) if value}
    if any(a != b and b[: len(a)] == a for a in paths for b in paths):
        raise LayoutError(
            "some strides on the right name a mode and others a part of it: use integers, or bases of separate modes"
        )
    return paths


def _compose_leaf(outers: dict[Path, list[Mode]], leaves: dict[Path, list[_Leaf]], extent: int, stride: Any) -> Layout:
    path, step = _split_step(stride)
    if step == 0:
        return Layout(extent, 0)
    modes, reach = _compose_mode(outers[path], extent, step)
    leaf = _Leaf(extent, step, from_modes(modes), reach)
    leaves[path].append(leaf)
    return leaf.piece


def _compose_mode(outer: list[Mode], extent: int, step: int) -> tuple[list[Mode], dict[int, int]]:
    """The modes of ``j -> outer(j * step)`` for j < extent, and the extent in each mode of ``outer``."""
    sign = 1 if step > 0 else -1
    if extent == 1:
        return [(1, sign * _unused_step(outer, abs(step)))], {}
    modes, reach = _walk(outer, extent, abs(step), 0)
    return [(n, sign * d) for n, d in modes], reach


def _walk(outer: list[Mode], extent: int, step: int, position: int) -> tuple[list[Mode], dict[int, int]]:
    size, stride = outer[position]
    if position == len(outer) - 1 or (extent - 1) * step < size:
        return [(extent, step * stride)], {position: (extent - 1) * step}
    if step % size == 0:
        return _walk(outer, extent, step // size, position + 1)
    if size % step:
        return _by_trial(outer[position:], extent, step), {-1: 1}
    part = size // step
    if extent % part:
        raise LayoutError(
            f"{extent} steps of {step} cross a mode of {size}, which takes {part} of them: "
            f"use a multiple of {part}, or at most {part}"
        )
    rest, reach = _walk(outer, extent // part, 1, position + 1)
    return [(part, step * stride), *rest], reach | {position: (part - 1) * step}


def _unused_step(outer: list[Mode], step: int) -> Any:
    """The stride that CuTe gives a mode of size 1. It has no effect within the layout."""
    for size, _stride in outer[:-1]:
        step = -(-step // size)
    return step * outer[-1][1]


def _by_trial(outer: list[Mode], extent: int, step: int) -> list[Mode]:
    """The composition if neither step nor size divides the other: carries may still form a layout."""
    if any(isinstance(stride, ScaledBasis) for _size, stride in outer):
        raise LayoutError(f"steps of {step} do not fit a mode of {outer[0][0]}: use a divisor or a multiple")
    layout = from_modes(outer)
    return layout_of(lambda j: layout(j * step), extent).modes


def layout_of(function: Callable[[int], int], extent: int) -> Layout:
    """The coalesced layout with the value ``function(i)`` for every i below ``extent``.

    >>> print(layout_of(lambda i: i % 4 * 8 + i // 4, 12))
    (4,3):(8,1)

    Raises:
        LayoutError: no layout has these values.
    """
    modes: list[Mode] = []
    done = 1
    while done < extent:
        step, run = function(done), 2
        while done * run < extent and function(done * run) == step * run:
            run += 1
        modes.append((run, step))
        done *= run
    layout = from_modes(modes or [(1, 0)])
    wrong = next((i for i in range(extent) if layout.size != extent or layout(i) != function(i)), None)
    if wrong is not None:
        start = ", ".join(str(function(i)) for i in range(min(extent, 8)))
        raise LayoutError(
            f"no layout of size {extent} yields {start}{', ...' if extent > 8 else ''}: "
            "use steps and sizes that divide the modes they cross"
        )
    return layout


def _may_carry(outer: list[Mode], leaves: list[_Leaf]) -> bool:
    """Whether the sum of the leaves' steps may leave a mode of ``outer``, so that leaf by leaf is not sufficient."""
    moving = [leaf for leaf in leaves if leaf.extent > 1]
    if len(moving) < 2 or len(outer) < 2:
        return False
    if any(leaf.is_irregular for leaf in moving) or len({leaf.step > 0 for leaf in moving}) > 1:
        return True
    totals = [sum(leaf.reach.get(position, 0) for leaf in moving) for position in range(len(outer) - 1)]
    return any(total >= size for total, (size, _stride) in zip(totals, outer, strict=False))


def _check_sums(outer: list[Mode], leaves: list[_Leaf]) -> None:
    layout = from_modes(outer)
    for coord in product(*(range(leaf.extent) for leaf in leaves)):
        offset = sum(c * leaf.step for c, leaf in zip(coord, leaves, strict=True))
        parts = reduce(it.add, (leaf.piece(c) for c, leaf in zip(coord, leaves, strict=True)))
        full = layout(offset)
        if it.add(full, it.repeat_like(parts, 0)) != it.add(parts, it.repeat_like(full, 0)):
            raise LayoutError(
                f"{show(coord)} lies at {show(full)}, but its modes one by one add up to {show(parts)}: no "
                "layout expresses that; use modes that do not run into each other, or tile mode by mode"
            )


def _compose_swizzle(lhs: Swizzle, rhs: Any) -> Any:
    if isinstance(rhs, Swizzle):
        if lhs.shift != rhs.shift:
            raise LayoutError(f"composition of {lhs} with {rhs}: the shifts differ: use swizzles of one shift")
        return make_swizzle(lhs.source_mask ^ rhs.source_mask, lhs.target_mask ^ rhs.target_mask)
    if not isinstance(rhs, Layout):
        raise LayoutError(f"composition of {lhs} with {rhs}: use a layout or a swizzle on the right")
    return ComposedLayout(lhs, 0, rhs) if lhs.num_bits else rhs


def _pull_swizzle_out(lhs: Layout, rhs: Swizzle) -> Any:
    """``lhs o rhs`` with the swizzle on the left, on the bits that ``lhs`` maps the original ones to.

    Bits beyond ``lhs``'s end are tried last: they have no effect within it, and may prevent a solution.
    """
    if not isinstance(lhs, Layout):
        raise LayoutError(f"composition of {lhs} with {rhs}: a swizzle on the right goes before a plain layout: use one")
    integers_only("composition with a swizzle", lhs)
    places = [(index, rhs(index)) for index in range(lhs.size) if rhs(index) < lhs.size]
    for bits in (rhs.source_mask, rhs.source_mask & (lhs.size - 1)):
        source, target = lhs(bits), lhs(rhs(bits) ^ bits)
        if is_swizzle(source, target):
            swizzle = make_swizzle(source, target)
            if all(swizzle(lhs(index)) == lhs(place) for index, place in places):
                return composition(swizzle, lhs)
    raise LayoutError(
        f"composition of {lhs} with {rhs}: no swizzle in front of {lhs} does the same: "
        "use a layout that keeps the swizzle's bits together"
    )


def _compose_before_swizzle(lhs: Layout, rhs: ComposedLayout) -> Any:
    if rhs.offset:
        raise LayoutError(f"composition of {lhs} with {rhs}: the offset {rhs.offset} is in the way: use offset 0")
    if isinstance(rhs.layout_a, Layout):
        return composition(composition(lhs, rhs.layout_a), rhs.layout_b)
    return composition(_pull_swizzle_out(lhs, rhs.layout_a), rhs.layout_b)


# Complement


def complement(layout: Layout | CarriesLayout, cotarget: Any = None) -> Layout:
    """The complement of ``layout``: both together reach each offset once, up to ``cotarget`` or beyond.

    ``cotarget`` is a size, a shape or a layout (its shape); by default, the layout's cosize. Offsets ascend. They may extend
    further if the layout's repeats do not divide ``cotarget``.

    >>> print(complement(Layout(4, 1), 24), complement(Layout(6, 4), 24), complement(Layout((2, 2), (1, 6)), 24))
    6:4 4:1 (3,2):(2,12)

    Raises:
        LayoutError: offsets that overlap or leave holes below ``cotarget`` (CuTe truncates), or negative strides.
    """
    once = filter(inner_layout(layout))
    target = once.cosize if cotarget is None else it.as_int_tuple(getattr(cotarget, "shape", cotarget), "cotarget")
    if not all(isinstance(leaf, int) for leaf in it.leaves(target)):
        raise LayoutError(f"complement: {it.show(target)} is no size and no shape: use integers")
    result = repeats_of(once, target)
    hole = _first_hole(once)
    if hole is not None and hole < it.product(target):
        raise LayoutError(
            f"complement of {layout}: no repeats of it reach offset {hole}, below {it.show(target)}: "
            "use strides of which each is a multiple of the one before times its size"
        )
    return result


def repeats_of(layout: Layout, target: Any) -> Layout:
    """Offsets at which copies of ``layout`` fit without overlap, in ascending order. Holes between them may remain.

    Raises:
        LayoutError: the layout overlaps itself, or has negative strides.
    """
    once = filter(layout)
    integers_only("complement", once)
    if once.stride == 0:
        return Layout(it.product(target))
    holes: list[Mode] = []
    filled = 1
    for step, extent in sorted((step, extent) for extent, step in once.modes):
        if step < filled:
            raise LayoutError(
                f"complement of {layout}: the mode {extent}:{step} starts inside of the {filled} that the modes "
                "before it fill: use positive strides, each at least the one before times its size"
            )
        holes.append((step // filled, filled))
        filled = step * extent
    return coalesce(from_modes([*holes, (it.product(it.ceil_div(target, filled)), filled)]))


def _first_hole(once: Layout) -> int | None:
    """The first offset that no copy reaches, because a stride is no multiple of the extent before it."""
    filled = 1
    for step, extent in sorted((step, extent) for extent, step in once.modes if not once.has_basis):
        if filled and step % filled:
            return int(step // filled * filled)
        filled = step * extent
    return None


# Inverses


def _by_stride(modes: list[Mode]) -> list[tuple[int, int, int]]:
    """(stride, size, stride in the domain) of each mode, in CuTe's sort order, which may reverse equal strides."""
    domain = it.wrap(it.compact_col_major(tuple(extent for extent, _step in modes)))
    rows = [(step, extent, place) for (extent, step), place in zip(modes, domain, strict=True)]
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            if rows[j][0] < rows[i][0]:
                rows[i], rows[j] = rows[j], rows[i]
    return rows


def integers_only(name: str, layout: Layout) -> None:
    """Refuse a layout that yields coordinates.

    Raises:
        LayoutError: a stride is a basis element.
    """
    if layout.has_basis:
        raise LayoutError(f"{name}: {layout} yields coordinates: use a layout with integer strides")


def right_inverse(layout: Any) -> Any:
    """The largest layout R with ``layout(R(i)) == i`` for every i below ``R.size``.

    For a swizzled layout without offset: the inverse of the layout after the swizzle, which is its own inverse.

    >>> print(right_inverse(Layout((4, 8), (8, 1))), right_inverse(Layout((4, 8), (1, 5))))
    (8,4):(4,1) 4:1

    Raises:
        LayoutError: strides that are bases, or a swizzle that cannot be moved to the left.
    """
    return _inverse(layout, _right_inverse)


def left_inverse(layout: Any) -> Any:
    """A layout L with ``L(layout(i)) == i`` for every i, if ``layout`` is injective.

    If it is not, ``layout(L(layout(i))) == layout(i)`` still holds.

    >>> print(left_inverse(Layout((4, 8), (8, 1))), left_inverse(Layout(4, 2)), left_inverse(Layout((4, 8), (1, 5))))
    (8,4):(4,1) (2,4):(0,1) (5,8):(1,4)

    Raises:
        LayoutError: strides that are negative, bases, or no multiples of one another. Also: modes whose overlap no layout
            can invert (CuTe returns a wrong layout).
    """
    return _inverse(layout, _left_inverse)


def _inverse(layout: Any, invert: Callable[[Layout], Layout]) -> Any:
    if layout is None or isinstance(layout, Swizzle):
        return layout
    if isinstance(layout, Layout):
        return invert(layout)
    if isinstance(layout, ByteLayout):
        raise LayoutError(f"inverse of {layout}: its swizzle counts bytes, an inverse elements: use to_elements() first")
    if not isinstance(layout, ComposedLayout) or layout.offset:
        why = "its offset is in the way" if isinstance(layout, ComposedLayout) else "it is no layout"
        raise LayoutError(f"inverse of {layout}: {why}: use a layout, or a swizzled one at offset 0")
    plain = None
    if isinstance(layout.layout_a, Layout):
        with suppress(LayoutError):  # where no single layout is the same, one inverse after the other
            plain = composition(layout.layout_a, layout.layout_b)
    return invert(plain) if plain is not None else composition(invert(layout.layout_b), _inverse(layout.layout_a, invert))


def _right_inverse(layout: Layout) -> Layout:
    integers_only("right_inverse", layout)
    found: list[Mode] = []
    reached = 1
    for step, extent, place in _by_stride(coalesce(layout).modes):
        if step == reached:
            found.append((extent, place))
            reached = step * extent
    return coalesce(from_modes(found or [(1, 0)]))


def _left_inverse(layout: Layout) -> Layout:
    integers_only("left_inverse", layout)
    merged = coalesce(layout)
    rows = _by_stride(merged.modes)
    steps = [step for step, _extent, _place in rows if step != 0]
    if any(step < 0 for step in steps) or any(b % a for a, b in zip([1, *steps], steps, strict=False)):
        raise LayoutError(
            f"left_inverse: the strides of {layout} are no positive multiples of one another: "
            "use strides of which each divides the next"
        )
    sizes = [b // a for a, b in zip([1, *steps], steps, strict=False)] + [rows[-1][1]]
    places = [0, *(place for step, _extent, place in rows if step != 0)]
    result = coalesce(from_modes(list(zip(sizes, places, strict=True))))
    if not _is_separated(rows):
        _check_quasi_inverse(layout, merged, result)
    return result


def _is_separated(rows: list[tuple[int, int, int]]) -> bool:
    """Whether each stride is beyond the offsets of all modes before it, so that digits never carry."""
    reach = 0
    for step, extent, _place in rows:
        if 0 < step <= reach and extent > 1:
            return False
        reach += step * (extent - 1)
    return True


def _check_quasi_inverse(layout: Layout, merged: Layout, inverse: Layout) -> None:
    for index in range(merged.size):
        if merged(inverse(merged(index))) != merged(index):
            raise LayoutError(
                f"left_inverse: modes of {layout} overlap so that no layout leads back to offset {merged(index)}: "
                "use modes that do not overlap"
            )


# Common parts of two layouts


def max_common_layout(a: Any, b: Any) -> Layout:
    """The longest R with ``a(R(i)) == b(R(i)) == i``: the elements that one vector instruction may copy from a to b.

    A swizzle limits it to the run that it keeps contiguous.

    >>> print(max_common_layout(Layout((4, 8), (8, 1)), Layout((4, 8), (8, 1))))
    (8,4):(4,1)
    >>> print(max_common_layout(Layout((4, 8)), Layout((4, 8), (1, 5))))
    4:1
    """
    inverse = right_inverse(inner_layout(b))
    common = coalesce(composition(inner_layout(a), inverse))
    extent, step = common.modes[0]
    if step != 1:
        return _UNIT
    most = min((extent, *_runs(a, b)))
    return cast("Layout", composition(inverse, Layout(most)))


def max_common_vector(a: Any, b: Any) -> int:
    """Number of elements that are contiguous in both layouts: the size of ``max_common_layout``.

    >>> max_common_vector(Layout((4, 8)), Layout((4, 8), (1, 5)))
    4
    >>> max_common_vector(ComposedLayout(Swizzle(3, 3, 3), 0, Layout(512)), Layout(512))
    8
    """
    return max_common_layout(a, b).size


def _runs(a: Any, b: Any) -> list[int]:
    """The run that each swizzle keeps contiguous; empty if both swizzles are equal."""
    swizzles = [x.layout_a for x in (a, b) if isinstance(x, ComposedLayout) and isinstance(x.layout_a, Swizzle)]
    same = len(swizzles) == 2 and swizzles[0] == swizzles[1]
    return [] if same else [1 << swizzle.base for swizzle in swizzles]


def domain_distribute(shape: Any, count: int) -> Layout:
    """A layout of ``count`` coordinates distributed over ``shape`` so that they divide it.

    It has fewer coordinates if no such layout exists.

    >>> print(domain_distribute((15, 14), 6))
    (3,2):(1,15)
    """
    extents = it.wrap(it.flatten(getattr(shape, "shape", shape)))
    modes: list[Mode] = []
    for extent, step in zip(extents, it.compact_col_major(extents), strict=True):
        share = gcd(extent, count)
        modes.append((share, step))
        count //= share
    return coalesce(from_modes(modes))


def nullspace(layout: Layout) -> Layout:
    """The coordinates that modes of stride 0 map to offset 0, as integers.

    >>> print(nullspace(Layout((2, 3, 4), (1, 0, 2))))
    3:2
    """
    extents = it.wrap(it.flatten(layout.shape))
    places = it.compact_col_major(extents)
    kept = [(s, place) for (s, step), place in zip(layout.modes, places, strict=True) if step == 0]
    return from_modes(kept) if kept else _UNIT
