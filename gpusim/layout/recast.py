"""Recast layouts to another unit: wider elements, narrower elements, bits."""

from __future__ import annotations

from math import gcd
from typing import Any

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it
from gpusim.layout.algebra import coalesce, integers_only, right_inverse
from gpusim.layout.divide import logical_divide
from gpusim.layout.int_tuple import ScaledBasis
from gpusim.layout.layout import CarriesLayout, Layout
from gpusim.layout.swizzle import ByteLayout, ComposedLayout, Swizzle


def upcast(layout: Any, factor: int) -> Any:
    """The layout in a unit ``factor`` times as large: 16-bit elements to 32-bit ones with ``factor`` 2.

    A unit that is only partly covered counts as a full one. A swizzle and its offset are converted, too. A swizzle of bytes
    stays, and its elements become wider, as CuTe's ``smem_ptr_flag_bits`` do. A swizzle alone drops bits that move parts of
    a unit.

    >>> print(upcast(Layout((4, 8), (8, 1)), 4))
    (4,2):(2,1)
    >>> print(upcast(ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16), 4))
    Sw<3,4,3>_smem_ptr[64b] o (8,16):(16,1)

    Raises:
        LayoutError: a stride or an extent and ``factor``, of which neither divides the other. Also: a layout whose swizzle
            moves parts of the larger unit (CuTe drops those bits). Also: elements that are no power of two of bytes, or a
            tensor.
    """
    if isinstance(layout, Swizzle):
        return layout.upcast(factor)
    if isinstance(layout, Layout):
        return _with_modes(layout, [_upcast_mode(s, d, factor, layout) for s, d in layout.modes])
    _refuse_others("upcast", layout)
    if factor < 1 or layout.offset % factor:
        raise LayoutError(f"upcast of {layout} by {factor}: the offset {layout.offset} is no multiple: use one")
    if isinstance(layout, ByteLayout):
        bits = _element_bits("upcast", layout, factor)
        return ByteLayout(layout.swizzle, upcast(layout.layout, factor), bits, layout.offset // factor)
    outer = layout.layout_a.to_units(factor) if isinstance(layout.layout_a, Swizzle) else upcast(layout.layout_a, factor)
    return ComposedLayout(outer, layout.offset // factor, upcast(layout.layout_b, factor))


def downcast(layout: Any, factor: int) -> Any:
    """The layout in a unit ``factor`` times as small: 32-bit elements to 16-bit ones with ``factor`` 2.

    >>> print(downcast(Layout((4, 2), (2, 1)), 4))
    (4,8):(8,1)

    Raises:
        LayoutError: no mode has stride 1 for the parts of an element; or two modes have, and would overlap (CuTe lets them).
            Also: elements narrower than a byte with a swizzle of bytes, or a tensor.
    """
    if isinstance(layout, Swizzle):
        return layout.downcast(factor)
    if isinstance(layout, ByteLayout):
        bits = _element_bits("downcast", layout, factor)
        return ByteLayout(layout.swizzle, downcast(layout.layout, factor), bits, layout.offset * factor)
    if not isinstance(layout, Layout):
        _refuse_others("downcast", layout)
        parts = downcast(layout.layout_a, factor), downcast(layout.layout_b, factor)
        return ComposedLayout(parts[0], layout.offset * factor, parts[1])
    place = _place_of_parts(layout, factor)
    modes = [(s * factor, d) if i == place else (s, d * factor) for i, (s, d) in enumerate(layout.modes)]
    return _with_modes(layout, modes)


def _refuse_others(name: str, layout: Any) -> None:
    if not isinstance(layout, ComposedLayout | ByteLayout):
        of_tensors = ": use recast, which knows its offset" if isinstance(layout, CarriesLayout) else ""
        raise LayoutError(f"{name}: {layout} is no layout and no swizzle{of_tensors or ': use make_layout(...) first'}")


def _element_bits(name: str, layout: ByteLayout, factor: int) -> int:
    """Bits of an element ``factor`` times as wide or narrow, if its width is a power of two of bytes."""
    bits = layout.element_bits
    if factor < 1 or factor & (factor - 1) or (name == "downcast" and bits % (8 * factor)):
        most = f" of at most {bits // 8}" if name == "downcast" else ""
        raise LayoutError(
            f"{name} of {layout} by {factor}: no elements of full bytes come of it, whose swizzle counts bytes: use a "
            f"power of two{most}"
        )
    return bits * factor if name == "upcast" else bits // factor


def _place_of_parts(layout: Layout, factor: int) -> int:
    """Index of the mode of stride 1, which holds the parts of an element; one of size 1 only if there is no other."""
    places = sorted((-extent, i) for i, (extent, step) in enumerate(layout.modes) if step in (1, -1))
    if factor < 1 or not places:
        raise LayoutError(f"downcast of {layout} by {factor}: no mode has stride 1: append the mode 1:1 for the parts")
    if len(places) > 1 and places[1][0] < -1:
        raise LayoutError(f"downcast of {layout} by {factor}: two modes have stride 1: use one that does not overlap")
    return places[0][1]


def recast_layout(layout: Any, old_bits: int, new_bits: int) -> Any:
    """The layout of elements of ``old_bits`` as one of elements of ``new_bits`` (CuTe's ``recast_layout<Old, New>``).

    >>> print(recast_layout(Layout((4, 8), (8, 1)), old_bits=8, new_bits=32))
    (4,2):(2,1)
    >>> print(recast_layout(ComposedLayout(Swizzle(3, 4, 3), 0, Layout(1024)), old_bits=8, new_bits=16))
    Sw<3,3,3> o 0 o 512:1

    Raises:
        LayoutError: incompatible sizes, or a swizzle that moves parts of the new element.
    """
    common = gcd(old_bits, new_bits)
    wide, narrow = new_bits // common, old_bits // common
    up = upcast(layout, wide) if wide > 1 else layout
    return downcast(up, narrow) if narrow > 1 else up


def max_alignment(layout: Any) -> int:
    """The largest factor by which ``upcast`` works without splitting a run.

    >>> max_alignment(Layout((4, 8), (1, 8))), max_alignment(Layout((4, 8), (8, 1)))
    (4, 32)
    >>> max_alignment(ComposedLayout(Swizzle(3, 3, 3), 0, Layout((8, 64), (64, 1))))
    8
    >>> max_alignment(ByteLayout(Swizzle(3, 4, 3), Layout((8, 64), (64, 1)), element_bits=16))
    8

    Raises:
        LayoutError: strides that are bases, or the offset of a tensor that is no number.
    """
    if isinstance(layout, Swizzle):
        return 1 << layout.base
    if isinstance(layout, ByteLayout):
        full = max(1, (1 << layout.swizzle.base) * 8 // layout.element_bits) if layout.swizzle.num_bits else 0
        return gcd(full, layout.offset, max_alignment(layout.layout))
    if isinstance(layout, ComposedLayout):
        return gcd(max_alignment(layout.layout_a), layout.offset, max_alignment(layout.layout_b))
    if isinstance(layout, CarriesLayout):
        return _alignment_of_tensor(layout)
    if not isinstance(layout, Layout):
        raise LayoutError(f"max_alignment: {layout} is no layout and no swizzle: use make_layout(...) first")
    integers_only("max_alignment", layout)
    flat = coalesce(layout)
    parts = logical_divide(flat, right_inverse(flat))
    return gcd(parts[0].size, *it.leaves(parts[1].stride))


def _alignment_of_tensor(tensor: Any) -> int:
    layout, offset = tensor.layout, tensor.offset
    if not isinstance(offset, int):
        raise LayoutError(f"max_alignment: {tensor} starts at a coordinate: use a tensor with integer offsets")
    if isinstance(layout, ByteLayout):  # a tensor's offset counts bytes then
        offset = offset * 8 // layout.element_bits if offset * 8 % layout.element_bits == 0 else 1
    return gcd(offset, max_alignment(layout))


def _with_modes(layout: Layout, modes: list[tuple[int, Any]]) -> Layout:
    shape, stride = (it.unflatten(tuple(mode[i] for mode in modes), layout.shape) for i in (0, 1))
    return Layout(shape, stride)


def _upcast_mode(extent: int, step: Any, factor: int, layout: Layout) -> tuple[int, Any]:
    value = step.value if isinstance(step, ScaledBasis) else step
    if value == 0 or factor == 1:
        return extent, step
    if factor < 1 or (value % factor and factor % value):
        raise LayoutError(f"upcast of {layout} by {factor}: neither it nor the stride {value} divides the other")
    run = it.ceil_div(factor, abs(value))
    if extent % run and run % extent:
        raise LayoutError(f"upcast of {layout} by {factor}: {run} of the mode {extent}:{step} make one: use a multiple")
    wide = it.ceil_div(abs(value), factor) * (1 if value > 0 else -1)
    return it.ceil_div(extent, run), ScaledBasis(wide, step.modes) if isinstance(step, ScaledBasis) else wide
