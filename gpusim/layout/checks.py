"""Checks of orders and offsets that layouts share.

In: shapes, orders, offsets. Out: an error, or whether a condition holds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from gpusim.errors import LayoutError
from gpusim.layout import int_tuple as it


def refuse_equal_orders(shape: it.IntTuple, order: it.IntTuple) -> None:
    """Refuse an order in which two modes share a place, so that they would overlap.

    Raises:
        LayoutError: two modes with more than one coordinate have the same order.
    """
    if not it.weakly_congruent(order, shape):
        return  # compact_order says so
    sizes = zip(it.leaves(order), it.leaves(it.product_like(shape, order)), strict=True)
    used = [place for place, size in sizes if size > 1]
    if len(used) != len(set(used)):
        raise LayoutError(f"order {it.show(order)}: two modes share a place and would overlap: use distinct numbers")


def is_between(offset: int, modes: Sequence[tuple[int, Any]]) -> bool:
    """Whether an offset lies below the last one of ``modes``, (extent, stride), and no coordinate reaches it.

    >>> is_between(3, [(4, 2)]), is_between(4, [(4, 2)]), is_between(7, [(4, 2)])
    (True, False, False)
    """
    if not all(isinstance(step, int) and step >= 0 for _, step in modes):
        return False
    moving = sorted((step, extent) for extent, step in modes if step)
    return 0 <= offset <= sum(step * (extent - 1) for step, extent in moving) and not _is_reached(offset, moving)


def _is_reached(offset: int, modes: list[tuple[int, int]]) -> bool:
    """Whether multiples of the strides of ``modes``, (stride, extent) in ascending order, add up to ``offset``."""
    if not modes or offset == 0 or offset % math.gcd(*(step for step, _ in modes)):
        return offset == 0
    step, extent = modes[-1]
    most = sum(below * (num - 1) for below, num in modes[:-1])
    first, last = max(0, -(-(offset - most) // step)), min(extent - 1, offset // step)
    return any(_is_reached(offset - count * step, modes[:-1]) for count in range(first, last + 1))
